//! The verbs of `zfs`: datasets, their properties, permissions and mounts.

pub mod allow;
pub mod bookmark;
pub mod clone;
pub mod create;
pub mod destroy;
pub mod hold;
mod holds;
pub mod inherit;
pub mod mount;
mod mounts;
pub mod promote;
pub mod release;
pub mod rename;
pub mod rollback;
pub mod set;
pub mod snapshot;
pub mod unallow;
pub mod unmount;
pub mod upgrade;

pub use holds::WhyNot;
pub use mounts::{NotMounted, UNMOUNT};

/// A refusal that lists what would have to go: two lines, then one name a line.
fn list<'n>(head: &str, advice: &str, names: impl IntoIterator<Item = &'n String>) -> String {
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
