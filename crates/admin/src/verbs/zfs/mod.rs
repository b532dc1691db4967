//! The verbs of `zfs`: datasets, their properties, permissions and mounts.

pub mod allow;
pub mod allowed;
pub mod bookmark;
pub mod clone;
pub mod create;
pub mod destroy;
pub mod diff;
pub mod get;
pub mod hold;
mod hold_changes;
pub mod holds;
pub mod inherit;
pub mod list;
pub mod mount;
pub mod mounted;
mod mounts;
mod operand;
pub mod outdated;
pub mod project;
pub mod promote;
pub mod receive;
pub mod redact;
pub mod release;
pub mod rename;
pub mod rollback;
mod select;
pub mod send;
pub mod set;
pub mod snapshot;
pub mod space;
pub mod unallow;
pub mod unmount;
pub mod upgrade;
pub mod wait;

pub use hold_changes::HoldChange;
pub(crate) use mounts::UNMOUNT;
pub use mounts::{AfterAncestors, NotMounted};
pub use operand::{NotOpened, Operand, Unopened};
pub use select::{DatasetRow, Depth, Selection};

use crate::datasets::Entry;

/// A refusal that lists what would have to go: two lines, then one name a line.
fn listing<'n>(head: &str, advice: &str, names: impl IntoIterator<Item = &'n String>) -> String {
    let mut text = format!("{head}\n{advice}");
    for name in names {
        text.push('\n');
        text.push_str(name);
    }
    text
}

/// Texts as lines, each with a line break behind it.
fn lines<T: std::fmt::Display>(texts: &[T]) -> String {
    texts.iter().map(|text| format!("{text}\n")).collect()
}
