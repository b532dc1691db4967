//! What may be in the files of a writer.
//!
//! For each path the model has the states since the last one that is known to be on disk, that one first. Without a
//! crash a file has the last of them. After one it has any of them, or what is between two: the beginning of a write.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The bytes of a file; `None`: there is none.
pub(crate) type Content = Option<Arc<[u8]>>;

/// Files and their contents.
pub(crate) type Tree = BTreeMap<String, Arc<[u8]>>;

/// The files of one writer.
#[derive(Debug, Default)]
pub(crate) struct Model(BTreeMap<String, Vec<Content>>);

impl Model {
    /// What must be there while nothing crashes.
    pub(crate) fn now(&self, path: &str) -> Content {
        self.0.get(path).and_then(|states| states.last().cloned()).flatten()
    }

    /// All of it.
    pub(crate) fn tree(&self) -> Tree {
        self.0.keys().filter_map(|path| Some((path.clone(), self.now(path)?))).collect()
    }

    /// A call that changes a path has been made, or at least begun.
    pub(crate) fn change(&mut self, path: &str, content: Content) {
        self.0.entry(path.to_owned()).or_insert_with(|| vec![None]).push(content);
    }

    /// The last state of a path is on disk.
    pub(crate) fn settle(&mut self, path: &str) {
        if let Some(states) = self.0.get_mut(path) {
            states.drain(..states.len() - 1);
        }
    }

    /// The last state of every path is on disk.
    pub(crate) fn settle_all(&mut self) {
        for states in self.0.values_mut() {
            states.drain(..states.len() - 1);
        }
    }

    /// Everything is as in this tree, and that is on disk.
    pub(crate) fn become_tree(&mut self, tree: &Tree) {
        self.0 = tree.iter().map(|(path, bytes)| (path.clone(), vec![Some(Arc::clone(bytes))])).collect();
    }

    /// Everything is as in this tree, and may be on disk, or not.
    pub(crate) fn may_be(&mut self, tree: &Tree) {
        let absent: Vec<String> = self.0.keys().filter(|path| !tree.contains_key(*path)).cloned().collect();
        absent.iter().for_each(|path| self.change(path, None));
        tree.iter().for_each(|(path, bytes)| self.change(path, Some(Arc::clone(bytes))));
    }

    /// What is there without a crash is what must be there.
    pub(crate) fn check(&self, found: &Tree) -> Result<(), String> {
        compare(&self.tree(), found)
    }

    /// What was found after a crash can be explained, and is what there is from now on. It need not be on disk: the
    /// daemon that answered may have been about to be killed.
    pub(crate) fn accept(&mut self, found: &Tree) -> Result<(), String> {
        for (path, states) in &self.0 {
            let bytes = found.get(path).cloned();
            if !is_explained(states, &bytes) {
                let known: Vec<String> = states.iter().map(shown).collect();
                return Err(format!("{path} is {}, and may be: {}", shown(&bytes), known.join(", ")));
            }
        }
        if let Some(path) = found.keys().find(|path| !self.0.contains_key(*path)) {
            return Err(format!("{path} was never made"));
        }
        self.may_be(found);
        Ok(())
    }
}

/// The same files with the same contents.
pub(crate) fn compare(wanted: &Tree, found: &Tree) -> Result<(), String> {
    for path in wanted.keys().chain(found.keys()) {
        let (wanted, found) = (wanted.get(path).cloned(), found.get(path).cloned());
        if wanted != found {
            let at = first_difference(&wanted, &found);
            return Err(format!("{path} is {}, not {}{at}", shown(&found), shown(&wanted)));
        }
    }
    Ok(())
}

fn is_explained(states: &[Content], found: &Content) -> bool {
    states.contains(found) || states.windows(2).any(|pair| is_between(&pair[0], &pair[1], found))
}

/// A write that was done in part: from the beginning to some byte what it makes of the file, then what was there.
fn is_between(old: &Content, new: &Content, found: &Content) -> bool {
    let (Some(new), Some(found)) = (new, found) else { return false };
    let old: &[u8] = old.as_deref().unwrap_or_default();
    let same = new.iter().zip(found.iter()).take_while(|(one, two)| one == two).count();
    match (found.get(same..), old.get(same..)) {
        (Some([]), _) => true,
        (Some(rest), Some(before)) => rest == before,
        _ => false,
    }
}

fn shown(content: &Content) -> String {
    match content {
        None => "not there".to_owned(),
        Some(bytes) => format!("{} bytes ({:.8})", bytes.len(), testkit::sha256(bytes)),
    }
}

fn first_difference(wanted: &Content, found: &Content) -> String {
    let (Some(wanted), Some(found)) = (wanted, found) else { return String::new() };
    let at = wanted.iter().zip(found.iter()).position(|(one, two)| one != two);
    let at = at.unwrap_or(wanted.len().min(found.len()));
    let zeros = found[at.min(found.len())..].iter().take_while(|byte| **byte == 0).count();
    format!(": from byte {at} on, where {zeros} zeros are")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(bytes: &[u8]) -> Content {
        Some(bytes.into())
    }

    fn tree(files: &[(&str, &[u8])]) -> Tree {
        files.iter().map(|(path, bytes)| ((*path).to_owned(), Arc::from(*bytes))).collect()
    }

    #[test]
    fn after_a_crash_any_state_since_the_last_settled_one_is_taken_and_no_other() {
        let mut model = Model::default();
        for bytes in [b"1111".as_slice(), b"2222", b"3333"] {
            model.change("f", some(bytes));
        }
        assert_eq!(model.check(&tree(&[("f", b"3333")])), Ok(()));
        model.settle("f");
        model.change("f", some(b"44445555"));
        model.change("f", None);
        for explained in [b"3333".as_slice(), b"44445555", b"4433", b"444455"] {
            assert!(is_explained(&model.0["f"], &some(explained)), "{explained:?}");
        }
        for wrong in [b"2222".as_slice(), b"0000", b"44440000", b"333344"] {
            assert!(!is_explained(&model.0["f"], &some(wrong)), "{wrong:?}");
        }
        assert!(model.accept(&tree(&[("f", b"3333"), ("g", b"")])).is_err());
        model.accept(&tree(&[])).expect("removed");
        assert!(model.tree().is_empty());
    }

    #[test]
    fn a_rollback_that_may_have_been_done_leaves_both_trees_possible() {
        let mut model = Model::default();
        model.become_tree(&tree(&[("a", b"a"), ("b", b"b")]));
        model.may_be(&tree(&[("b", b"B"), ("c", b"c")]));
        model.accept(&tree(&[("b", b"B"), ("c", b"c")])).expect("done");
        // Of another crash it is not known what was on disk before it.
        model.accept(&tree(&[("a", b"a"), ("b", b"b")])).expect("lost again");
        model.settle_all();
        assert!(model.accept(&tree(&[("b", b"B"), ("c", b"c")])).is_err());
    }
}
