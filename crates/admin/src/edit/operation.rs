//! Records operations in the pool's history with their input, in addition to the entries of each change, as OpenZFS
//! does for requests that carry an nvlist (docs/on-disk/22-mos-dsl.md, section 10). `zpool history -i` shows them
//! as ioctls.
//!
//! # What always holds
//! - Only successful operations are recorded, before the command line of the command that asked for them.

use super::EditError;
use cenote::{PoolWriter, history_command};
use dsl::prop::PropValue;
use format::nvlist::{NvList, NvValue};
use std::time::Instant;

/// Maximum size of recorded input in bytes, so that a command with thousands of snapshots does not push older
/// entries out of the history.
const INPUT_MAX: usize = 64 << 10;

/// An operation in progress.
pub(crate) struct Operation {
    name: &'static str,
    begun: Instant,
}

impl Operation {
    pub(crate) fn begin(name: &'static str) -> Operation {
        Operation { name, begun: Instant::now() }
    }

    /// Records the operation as successful.
    pub(crate) fn done(self, pool: &PoolWriter, input: NvList) -> Result<(), EditError> {
        self.done_with(pool, input, None)
    }

    /// Records the operation as successful, with its output.
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

/// An nvlist of names without values.
pub(crate) fn names<'n>(names: impl IntoIterator<Item = &'n String>) -> NvList {
    let mut list = NvList::new();
    names.into_iter().for_each(|name| list.push(name, NvValue::Boolean));
    list
}

/// An nvlist with one pair.
pub(crate) fn pair(name: &str, value: impl Into<NvValue>) -> NvList {
    let mut list = NvList::new();
    list.push(name, value);
    list
}

/// An nvlist of properties with their stored values.
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
