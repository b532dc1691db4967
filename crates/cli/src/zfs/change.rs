//! What the verbs that change datasets have in common: the pools that a command opens, its line in their
//! history, the words around a refusal.
//!
//! # What always holds
//! - A pool is opened for change when it is first needed, and exported before the command ends, however
//!   it ends.
//! - A pool in which something changed has the command line in its history, others have not; a command
//!   that failed is in none.

use super::complain;
use crate::stop::{Outcome, Stop};
use admin::{
    self,
    edit::{self, EditError},
};
use cenote::{Pool, PoolWriter};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::rc::Rc;

/// Exit code of a refusal whose status the real tool passes on.
pub(super) const MINUS_ONE: u8 = 255;

/// A command that changes datasets.
pub(super) struct Change {
    line: String,
    pools: BTreeMap<String, Rc<PoolWriter>>,
    /// Pools that cannot be changed.
    read_only: BTreeMap<String, Pool>,
    changed: BTreeSet<String>,
}

impl Change {
    /// Runs a command; then writes its line into the history of the pools that it changed, and closes
    /// all that it opened.
    pub(super) fn run(
        subcommand: &str,
        args: &[OsString],
        command: impl FnOnce(&mut Change) -> Outcome,
    ) -> Outcome {
        let words = args.iter().map(|arg| arg.to_string_lossy());
        let line = words.fold(format!("zfs {subcommand}"), |line, word| format!("{line} {word}"));
        let mut change =
            Change { line, pools: BTreeMap::new(), read_only: BTreeMap::new(), changed: BTreeSet::new() };
        let outcome = command(&mut change);
        if !matches!(outcome, Ok(0)) {
            change.changed.clear();
        }
        let closed = change.close();
        match outcome {
            Ok(code) => Ok(if closed { code } else { code.max(1) }),
            Err(stop) => Err(stop),
        }
    }

    /// The pool that a dataset's name begins with, open for change.
    pub(super) fn pool(&mut self, dataset: &str) -> Result<Rc<PoolWriter>, EditError> {
        let name = edit::pool_of(dataset);
        if let Some(pool) = self.pools.get(name) {
            return Ok(Rc::clone(pool));
        }
        let pool = Rc::new(edit::open_pool(&crate::search::from_env(), dataset)?);
        self.pools.insert(name.to_owned(), Rc::clone(&pool));
        Ok(pool)
    }

    /// The pool that a dataset's name begins with, for reading, as it is now: also one that cannot be changed.
    pub(super) fn view(&mut self, dataset: &str) -> Result<Pool, EditError> {
        let name = edit::pool_of(dataset);
        if let Some(pool) = self.read_only.get(name) {
            return Ok(pool.clone());
        }
        let error = match self.pool(dataset) {
            Ok(pool) => return Ok(pool.view()?),
            Err(error) => error,
        };
        if error.is_read_only() {
            let (pools, _) = admin::open_pools(&crate::search::from_env(), &[name.to_owned()]);
            if let Some(pool) = pools.iter().find(|pool| pool.name() == name) {
                self.read_only.insert(name.to_owned(), pool.pool().clone());
                return Ok(pool.pool().clone());
            }
        }
        Err(error)
    }

    /// Something in the pool of this dataset was changed.
    pub(super) fn done(&mut self, dataset: &str) {
        self.changed.insert(edit::pool_of(dataset).to_owned());
    }

    /// False if something went wrong, which is told.
    fn close(self) -> bool {
        let mut is_well = true;
        for (name, pool) in self.pools {
            let recorded = if self.changed.contains(&name) { pool.record(&self.line) } else { Ok(()) };
            let closed = match Rc::into_inner(pool) {
                Some(pool) => pool.close(),
                None => Ok(()),
            };
            for error in [recorded.err(), closed.err()].into_iter().flatten() {
                complain(&format!("cannot close '{name}': {}", EditError::from(error)));
                is_well = false;
            }
        }
        is_well
    }
}

/// `cannot open 'x': …`. A pool that is not there is told as a missing dataset.
pub(super) fn open_text(name: &str, error: &EditError) -> String {
    match error {
        EditError::NoPool { .. } | EditError::NoDataset { .. } => {
            format!("cannot open '{name}': dataset does not exist")
        }
        other => format!("cannot open '{name}': {other}"),
    }
}

/// The properties of `-o`, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Pairs(pub(super) Vec<(String, String)>);

impl Pairs {
    /// Adds the value of `-o`.
    pub(super) fn add(&mut self, value: Option<OsString>) -> Result<(), Stop> {
        let text = value.unwrap_or_default().to_string_lossy().into_owned();
        let Some((name, value)) = edit::values::split(&text) else {
            return Err(Stop::failed("missing '=' for property=value argument"));
        };
        if self.has(name) {
            return Err(Stop::failed(format!("property '{name}' specified multiple times")));
        }
        self.0.push((name.to_owned(), value.to_owned()));
        Ok(())
    }

    /// Sets a property, whatever was given before.
    pub(super) fn set(&mut self, name: &str, value: String) {
        self.0.retain(|(known, _)| known != name);
        self.0.push((name.to_owned(), value));
    }

    /// The value of a property.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// There is a value for this property.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_unique() {
        let mut pairs = Pairs::default();
        pairs.add(Some("a:b=c=d".into())).expect("fine");
        assert_eq!(pairs.0, [("a:b".to_owned(), "c=d".to_owned())]);
        let text = |result: Result<(), Stop>| match result {
            Err(Stop::Failed(Some(text))) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(text(pairs.add(Some("a:b=x".into()))), "property 'a:b' specified multiple times");
        assert_eq!(text(pairs.add(Some("foo".into()))), "missing '=' for property=value argument");
    }
}
