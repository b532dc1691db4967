//! Changes of directory entries that are made together, or not at all.
//!
//! An operation first changes entries, then takes the other steps that can fail, and last the steps that
//! cannot: attributes that are ready. If a step fails, the entries are put back; their blocks are in memory
//! by then.

use crate::ZplError;
use crate::node::inode::Inode;
use dmu::Tx;
use dmu::zap::{Match, ZapEntry, ZapValue};

/// Changes of entries in one transaction.
pub(crate) struct Edits<'i> {
    tx: &'i Tx,
    done: Vec<(&'i Inode, Done)>,
}

/// A change of an entry, with the facts to undo it.
enum Done {
    Inserted(Vec<u8>),
    /// The entry that was removed.
    Removed(ZapEntry),
    /// The entry before its change.
    Updated(ZapEntry),
}

impl<'i> Edits<'i> {
    pub(crate) fn new(tx: &'i Tx) -> Edits<'i> {
        Edits { tx, done: Vec::new() }
    }

    pub(crate) fn insert(
        &mut self,
        dir: &'i Inode,
        name: &[u8],
        value: u64,
        how: Match,
    ) -> Result<(), ZplError> {
        dir.object.zap(self.tx)?.insert_matching(name, value, how)?;
        self.done.push((dir, Done::Inserted(name.to_vec())));
        Ok(())
    }

    pub(crate) fn remove(&mut self, dir: &'i Inode, name: &[u8], how: Match) -> Result<(), ZplError> {
        let entry = dir.object.zap(self.tx)?.remove_matching(name, how)?;
        self.done.push((dir, Done::Removed(entry)));
        Ok(())
    }

    pub(crate) fn update(
        &mut self,
        dir: &'i Inode,
        name: &[u8],
        value: u64,
        how: Match,
    ) -> Result<(), ZplError> {
        let entries = dir.object.zap(self.tx)?;
        let old = entries.lookup_matching(name, how)?.ok_or(ZplError::NotFound { dir: dir.id })?;
        entries.update(old.name(), value)?;
        self.done.push((dir, Done::Updated(old)));
        Ok(())
    }

    /// On an error, puts the entries back as they were.
    pub(crate) fn keep_if<R>(self, result: Result<R, ZplError>) -> Result<R, ZplError> {
        if result.is_err() {
            self.put_back();
        }
        result
    }

    fn put_back(self) {
        for (dir, done) in self.done.into_iter().rev() {
            let result = dir.object.zap(self.tx).and_then(|entries| match &done {
                Done::Inserted(name) => entries.remove(name),
                Done::Removed(old) => entries.insert(old.name(), value_of(old)),
                Done::Updated(old) => entries.update(old.name(), value_of(old)),
            });
            if let Err(error) = result {
                tracing::error!(dir = dir.id.0, %error, "an entry that was changed in part stays so");
            }
        }
    }
}

fn value_of(entry: &ZapEntry) -> ZapValue<'_> {
    ZapValue::Packed { int_size: entry.int_size, bytes: &entry.value }
}
