//! Where streams are received: the names of datasets, from the operand and the names in the stream
//! (docs/on-disk/30-send-streams.md, section 9).

use crate::edit::EditError;
use crate::edit::names::{self, Form};
use serde::{Deserialize, Serialize};

/// How the name of a dataset is made of its name in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Naming {
    /// The operand is the name of the dataset.
    #[default]
    Exact,
    /// All but the first component is appended to the operand (`-d`).
    AllButFirst,
    /// The last component is appended to the operand (`-e`).
    Last,
}

/// A rule for the names of all datasets of one stream or package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    naming: Naming,
    /// The operand, without a snapshot.
    base: String,
    /// The snapshot of the operand.
    snapshot: Option<String>,
    /// Name in the stream of its topmost dataset.
    top: String,
}

impl Place {
    /// A rule for a stream whose topmost dataset is `top`.
    pub(super) fn new(target: &str, naming: Naming, top: &str) -> Place {
        let (base, snapshot) = match target.split_once('@') {
            Some((base, snapshot)) => (base, Some(snapshot.to_owned())),
            None => (target, None),
        };
        Place { naming, base: base.to_owned(), snapshot, top: top.to_owned() }
    }

    /// The operand, without a snapshot.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Name in the stream of its topmost dataset.
    pub(super) fn top(&self) -> &str {
        &self.top
    }

    /// Whether the operand names a snapshot.
    pub(super) fn names_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Whether missing datasets above are made.
    pub(super) fn makes_ancestors(&self) -> bool {
        self.naming != Naming::Exact
    }

    /// Full name of a dataset that is `sent` in the stream. `None`: it is not below the topmost one.
    pub(super) fn dataset(&self, sent: &str) -> Option<String> {
        let rest = sent.strip_prefix(&self.top).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
        let own = match self.naming {
            Naming::Exact => "",
            Naming::AllButFirst => self.top.split_once('/').map_or("", |(_, rest)| rest),
            Naming::Last => self.top.rsplit('/').next().unwrap_or_default(),
        };
        Some(match own {
            "" => format!("{}{rest}", self.base),
            own => format!("{}/{own}{rest}", self.base),
        })
    }

    /// Name of the snapshot for the one that is `sent`.
    pub(super) fn snapshot<'n>(&'n self, sent: &'n str) -> &'n str {
        self.snapshot.as_deref().unwrap_or(sent)
    }
}

/// Checks the operand.
///
/// # Errors
/// It cannot be a name, or names a snapshot where a name is appended to it.
pub(super) fn check(target: &str, naming: Naming) -> Result<(), EditError> {
    let form = match target.contains('@') && naming == Naming::Exact {
        true => Form::Snapshot,
        false => Form::Head,
    };
    Ok(names::check(target, form)?)
}

/// The parent of a dataset; `None`: it is the root of a pool.
pub(super) fn parent(dataset: &str) -> Option<&str> {
    dataset.rsplit_once('/').map(|(above, _)| above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_of_the_operand_and_the_name_in_the_stream() {
        use Naming::{AllButFirst, Exact, Last};
        for (target, naming, top, sent, dataset) in [
            ("tank/r", Exact, "src/fs", "src/fs", "tank/r"),
            ("tank/r@x", Exact, "src/fs", "src/fs/a/b", "tank/r/a/b"),
            ("tank", AllButFirst, "src/a/b", "src/a/b", "tank/a/b"),
            ("tank", AllButFirst, "src", "src", "tank"),
            ("tank", AllButFirst, "src", "src/a", "tank/a"),
            ("tank/r", Last, "src/a/b", "src/a/b/c", "tank/r/b/c"),
            ("tank/r", Last, "src", "src", "tank/r/src"),
        ] {
            let place = Place::new(target, naming, top);
            assert_eq!(place.dataset(sent).as_deref(), Some(dataset), "{target} {naming:?} {sent}");
        }
        let place = Place::new("tank/r", Exact, "src/fs");
        assert_eq!((place.dataset("src/fs2"), place.dataset("src")), (None, None));
        assert_eq!(place.snapshot("a"), "a");
        assert_eq!(Place::new("tank/r@x", Exact, "src/fs").snapshot("a"), "x");
    }

    #[test]
    fn operands_are_checked() {
        let check = |target: &str, naming| check(target, naming).map_err(|error| error.to_string());
        assert_eq!(check("tank/fs", Naming::Exact), Ok(()));
        assert_eq!(check("tank/fs@a", Naming::Exact), Ok(()));
        for bad in ["tank/fs@", "tank/fs@@a", "tank/fs/@a", "tank/fs@/a", "tank//fs", "tank/fs#a", ""] {
            assert!(check(bad, Naming::Exact).is_err(), "{bad}");
        }
        let why = "snapshot delimiter '@' is not expected here";
        assert_eq!(check("tank/fs@a", Naming::Last), Err(why.to_owned()));
    }
}
