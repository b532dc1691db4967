//! What verbs leave in the pool's history beside the notes of what changed: the operation as a whole with what it was
//! given, as OpenZFS keeps it of those of its requests that say what they are given
//! (docs/on-disk/22-mos-dsl.md, section 10). `zpool history -i` calls them ioctls.
//!
//! # What always holds
//! - Only what has succeeded is recorded, before the command that asked for it.

use super::EditError;
use cenote::{PoolWriter, history_command};
use dsl::prop::PropValue;
use format::nvlist::{NvList, NvValue};
use std::time::Instant;

/// Bytes of input that are kept: a command about thousands of snapshots must not push everything older out of the
/// history.
const INPUT_MAX: usize = 64 << 10;

/// An operation that is under way.
pub(crate) struct Operation {
    name: &'static str,
    begun: Instant,
}

impl Operation {
    pub(crate) fn begin(name: &'static str) -> Operation {
        Operation { name, begun: Instant::now() }
    }

    /// It has succeeded.
    pub(crate) fn done(self, pool: &PoolWriter, input: NvList) -> Result<(), EditError> {
        self.done_with(pool, input, None)
    }

    /// The same for one that gives something.
    pub(crate) fn done_with(
        self,
        pool: &PoolWriter,
        input: NvList,
        output: Option<NvList>,
    ) -> Result<(), EditError> {
        let input = if input.encode_native().len() > INPUT_MAX { NvList::new() } else { input };
        let ::pool::Command { user, hostname, .. } = history_command("", pool.caller());
        let elapsed = self.begun.elapsed();
        let entry = ::pool::Operation { name: self.name.to_owned(), input, output, elapsed, user, hostname };
        Ok(pool.live().record_operation(entry).map_err(cenote::Error::from)?)
    }
}

/// Names without values.
pub(crate) fn names<'n>(names: impl IntoIterator<Item = &'n String>) -> NvList {
    let mut list = NvList::new();
    names.into_iter().for_each(|name| list.push(name, NvValue::Boolean));
    list
}

/// One pair.
pub(crate) fn pair(name: &str, value: impl Into<NvValue>) -> NvList {
    let mut list = NvList::new();
    list.push(name, value);
    list
}

/// Properties with their values as they are stored.
pub(crate) fn properties<'p>(props: impl IntoIterator<Item = &'p (String, PropValue)>) -> NvList {
    let mut list = NvList::new();
    for (name, value) in props {
        match value {
            PropValue::Number(number) => list.push(name, *number),
            PropValue::String(text) => list.push(name, text.as_str()),
        }
    }
    list
}
