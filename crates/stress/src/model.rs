//! The contents that the files of a writer may have.
//!
//! For each path the model keeps the states since the last one known to be on disk, that one first. Without a
//! crash a file has the last state. After a crash it has any of them, or a mixture of two consecutive ones: a
//! write done in part.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The state of an existing file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileState {
    /// The contents.
    pub(crate) bytes: Arc<[u8]>,
    /// The value of the extended attribute, if set.
    pub(crate) label: Option<Arc<[u8]>>,
}

impl FileState {
    /// Returns the file with other contents.
    pub(crate) fn with(&self, bytes: impl Into<Arc<[u8]>>) -> FileState {
        FileState { bytes: bytes.into(), label: self.label.clone() }
    }
}

/// The state of a path; `None`: no file.
pub(crate) type Content = Option<FileState>;

/// Files by path.
pub(crate) type Tree = BTreeMap<String, FileState>;

/// The operation that led to a state; it decides which partial results a crash may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// A call that may have been done up to some byte.
    Call,
    /// Pages of a mapping, which the kernel writes in any order.
    Pages,
    /// A change of the name, which is done or not.
    Name,
}

/// A state of a path and its cause.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    content: Content,
    cause: Cause,
}

/// Bytes that the kernel writes as a whole.
const PAGE: usize = 4096;

/// The possible states of a writer's files.
#[derive(Debug, Default)]
pub(crate) struct Model(BTreeMap<String, Vec<State>>);

impl Model {
    /// The state of a path if there was no crash.
    pub(crate) fn now(&self, path: &str) -> Content {
        self.0.get(path).and_then(|states| states.last()?.content.clone())
    }

    /// All files in their last states.
    pub(crate) fn tree(&self) -> Tree {
        self.0.keys().filter_map(|path| Some((path.clone(), self.now(path)?))).collect()
    }

    /// Records a call that changes a path and has been made or at least begun.
    pub(crate) fn change(&mut self, path: &str, content: Content) {
        self.push(path, State { content, cause: Cause::Call });
    }

    /// Records a change of pages that are in the kernel's memory.
    pub(crate) fn change_by_pages(&mut self, path: &str, content: Content) {
        self.push(path, State { content, cause: Cause::Pages });
    }

    fn push(&mut self, path: &str, state: State) {
        let absent = State { content: None, cause: Cause::Name };
        self.0.entry(path.to_owned()).or_insert_with(|| vec![absent]).push(state);
    }

    /// Records a rename. The unsynced states move along: the new name may be on disk before the contents are.
    pub(crate) fn rename(&mut self, path: &str, to: &str) {
        let mut states = self.0.get(path).cloned().unwrap_or_default();
        if let Some(first) = states.first_mut() {
            first.cause = Cause::Name;
        }
        states.into_iter().filter(|state| state.content.is_some()).for_each(|state| self.push(to, state));
        self.change(path, None);
    }

    /// The last state of a path is on disk.
    pub(crate) fn settle(&mut self, path: &str) {
        if let Some(states) = self.0.get_mut(path) {
            states.drain(..states.len() - 1);
        }
    }

    /// The last states of all paths are on disk.
    pub(crate) fn settle_all(&mut self) {
        for states in self.0.values_mut() {
            states.drain(..states.len() - 1);
        }
    }

    /// Replaces all states by this tree, which is on disk.
    pub(crate) fn become_tree(&mut self, tree: &Tree) {
        let state = |file: &FileState| State { content: Some(file.clone()), cause: Cause::Name };
        self.0 = tree.iter().map(|(path, file)| (path.clone(), vec![state(file)])).collect();
    }

    /// Adds this tree as a state of all paths, which may or may not be on disk.
    pub(crate) fn may_become(&mut self, tree: &Tree) {
        let absent: Vec<String> = self.0.keys().filter(|path| !tree.contains_key(*path)).cloned().collect();
        absent.iter().for_each(|path| self.change(path, None));
        tree.iter().for_each(|(path, file)| self.change(path, Some(file.clone())));
    }

    /// Checks the files found without a crash against the last states.
    pub(crate) fn check(&self, found: &Tree) -> Result<(), String> {
        compare(&self.tree(), found)
    }

    /// Checks the files found after a crash, and makes them the new states. Earlier states stay possible if
    /// the daemon that answered may be about to be killed.
    pub(crate) fn accept(&mut self, found: &Tree) -> Result<(), String> {
        for (path, states) in &self.0 {
            let file = found.get(path).cloned();
            if !is_explained(states, &file) {
                let known: Vec<String> = states.iter().map(|state| describe(&state.content)).collect();
                let last =
                    states.last().map_or(String::new(), |state| first_difference(&state.content, &file));
                return Err(format!("{path} is {}{last}, and may be: {}", describe(&file), known.join(", ")));
            }
        }
        if let Some(path) = found.keys().find(|path| !self.0.contains_key(*path)) {
            return Err(format!("{path} was never made"));
        }
        self.may_become(found);
        Ok(())
    }
}

/// Compares two trees; the error names the first difference.
pub(crate) fn compare(wanted: &Tree, found: &Tree) -> Result<(), String> {
    for path in wanted.keys().chain(found.keys()) {
        let (wanted, found) = (wanted.get(path).cloned(), found.get(path).cloned());
        if wanted != found {
            let at = first_difference(&wanted, &found);
            return Err(format!("{path} is {}, not {}{at}", describe(&found), describe(&wanted)));
        }
    }
    Ok(())
}

fn is_explained(states: &[State], found: &Content) -> bool {
    states.iter().any(|state| state.content == *found)
        || states.windows(2).any(|pair| is_between(pair, found))
}

/// Whether `found` is a partially done change: for a call, the new contents up to some byte and then the old;
/// for a mapping, any of its pages.
fn is_between(pair: &[State], found: &Content) -> bool {
    let [State { content: old, .. }, State { content: Some(new), cause }] = pair else { return false };
    if *cause == Cause::Name {
        return false;
    }
    let Some(found) = found.as_ref().filter(|found| found.label == new.label) else { return false };
    let old: &[u8] = old.as_ref().map(|old| &*old.bytes).unwrap_or_default();
    let (new, found): (&[u8], &[u8]) = (&new.bytes, &found.bytes);
    if *cause == Cause::Pages && old.len() == new.len() && new.len() == found.len() {
        let pages = old.chunks(PAGE).zip(new.chunks(PAGE)).zip(found.chunks(PAGE));
        return pages.into_iter().all(|((old, new), found)| found == old || found == new);
    }
    let same = new.iter().zip(found).take_while(|(one, two)| one == two).count();
    match (found.get(same..), old.get(same..)) {
        (Some([]), _) => true,
        (Some(rest), Some(before)) => rest == before,
        _ => false,
    }
}

fn describe(content: &Content) -> String {
    match content {
        None => "not there".to_owned(),
        Some(FileState { bytes, label }) => {
            let label = label.as_ref().map_or(String::new(), |label| format!(", label of {}", label.len()));
            format!("{} bytes ({:.8}{label})", bytes.len(), testkit::sha256(bytes))
        }
    }
}

fn first_difference(wanted: &Content, found: &Content) -> String {
    let (Some(wanted), Some(found)) = (wanted, found) else { return String::new() };
    if wanted.bytes == found.bytes {
        return String::new();
    }
    let (wanted, found) = (&wanted.bytes, &found.bytes);
    let differs: Vec<usize> =
        wanted.iter().zip(found.iter()).enumerate().filter(|(_, (a, b))| a != b).map(|(at, _)| at).collect();
    let at = differs.first().copied().unwrap_or(wanted.len().min(found.len()));
    let last = differs.last().copied().unwrap_or(at);
    let zeros = found[at.min(found.len())..].iter().take_while(|byte| **byte == 0).count();
    format!(": from byte {at} to {last}, with {zeros} zeros")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(bytes: &[u8]) -> Content {
        Some(FileState { bytes: bytes.into(), label: None })
    }

    fn tree(files: &[(&str, &[u8])]) -> Tree {
        files.iter().map(|(path, bytes)| ((*path).to_owned(), some(bytes).expect("a file"))).collect()
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
    fn pages_of_a_map_come_in_any_order_and_whole() {
        let (old, new) = ([1; 3 * PAGE], [2; 3 * PAGE]);
        let mut some_pages = old;
        some_pages[PAGE..2 * PAGE].fill(2);
        let mut torn = some_pages;
        torn[0] = 2;
        for (by_pages, found, is_right) in
            [(true, some_pages, true), (false, some_pages, false), (true, torn, false)]
        {
            let mut model = Model::default();
            model.become_tree(&tree(&[("f", &old)]));
            match by_pages {
                true => model.change_by_pages("f", some(&new)),
                false => model.change("f", some(&new)),
            }
            assert_eq!(model.accept(&tree(&[("f", &found)])).is_ok(), is_right, "by pages: {by_pages}");
        }
    }

    #[test]
    fn a_label_is_part_of_a_file() {
        let mut model = Model::default();
        model.change("f", some(b"1"));
        let labelled = FileState { label: Some(Arc::from(*b"l")), ..some(b"1").expect("a file") };
        model.change("f", Some(labelled.clone()));
        model.settle("f");
        assert!(model.accept(&tree(&[("f", b"1")])).is_err());
        assert_eq!(model.tree()["f"], labelled);
    }

    #[test]
    fn a_new_name_may_be_there_before_what_was_written_under_the_old_one() {
        let mut model = Model::default();
        model.become_tree(&tree(&[("f", b"1"), ("g", b"2222")]));
        model.change("f", some(b"133"));
        model.rename("f", "g");
        for explained in [b"1".as_slice(), b"13", b"133", b"2222"] {
            assert!(is_explained(&model.0["g"], &some(explained)), "{explained:?}");
        }
        for wrong in [b"1222".as_slice(), b"1322"] {
            assert!(!is_explained(&model.0["g"], &some(wrong)), "{wrong:?}");
        }
        assert_eq!(model.tree(), tree(&[("g", b"133")]));
    }

    #[test]
    fn a_rollback_that_may_have_been_done_leaves_both_trees_possible() {
        let mut model = Model::default();
        model.become_tree(&tree(&[("a", b"a"), ("b", b"b")]));
        model.may_become(&tree(&[("b", b"B"), ("c", b"c")]));
        model.accept(&tree(&[("b", b"B"), ("c", b"c")])).expect("done");
        // After another crash the states on disk are those before the first one.
        model.accept(&tree(&[("a", b"a"), ("b", b"b")])).expect("lost again");
        model.settle_all();
        assert!(model.accept(&tree(&[("b", b"B"), ("c", b"c")])).is_err());
    }
}
