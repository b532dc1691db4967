//! Verbs: one module each, which can be read alone. A verb is a request (what is asked for), an answer (what was
//! done), a refusal (why not all was done), the right that it needs, and `run`, which checks the request and does
//! it.
//!
//! Commands, the daemon, `.zfs`, tests and programs that embed the library are callers. They turn arguments into a
//! request and an answer into text; they do not check, order or undo anything themselves. Requests, answers and
//! refusals are plain data that serde can carry over a socket.
//!
//! # What always holds
//! - [`Session::run`] runs every verb, and checks its right first.
//! - A verb makes all its checks before its first change.
//! - A verb mounts and unmounts the file systems that its change concerns, if the process has mounts.
//!
//! Source: docs/on-disk/33-cli.md. Tests: `crates/admin/tests`, `crates/cli/tests`.

/// Implements the conversion from [`Denied`] to a verb's refusal with the named variant.
macro_rules! from_denied {
    ($refusal:ty, $variant:path) => {
        impl From<$crate::verbs::Denied> for $refusal {
            fn from(denied: $crate::verbs::Denied) -> $refusal {
                $variant(denied.into()).into()
            }
        }
    };
}

pub mod by_name;
mod call;
mod reason;
mod right;
mod warning;
pub mod zfs;
pub mod zpool;

pub use reason::{Code, Reason, Stopped};
pub use right::{Denied, Right, right_of};
pub use warning::Warning;

use crate::Session;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Write;
use std::ops::ControlFlow;

/// The request of a verb; see the module.
pub trait Verb: Serialize + DeserializeOwned {
    /// Command and subcommand as users type them: `zfs snapshot`.
    const NAME: &'static str;
    /// The right that a caller needs.
    const RIGHT: Right;
    /// What was done, as plain data.
    type Answer: Serialize + DeserializeOwned;
    /// Why not all was done.
    type Refusal: Refused;

    /// Checks the request and does it. Only [`Session::run`] calls this.
    ///
    /// # Errors
    /// The refusal. If a part was done, the refusal says which.
    fn run(&self, session: &mut Session<'_>) -> Result<Self::Answer, Self::Refusal>;
}

/// A verb whose answer may be larger than memory: it can give its items one by one. [`Verb::run`] collects them.
pub trait Streamed: Verb {
    /// One item of the answer.
    type Item: Serialize + DeserializeOwned;

    /// Gives each item to `sink`, which may break off; takes the same memory however many there are. Called by
    /// [`Session::each`] only.
    ///
    /// # Errors
    /// The refusal. What can be checked before the first item is.
    fn each(
        &self,
        session: &mut Session<'_>,
        sink: &mut dyn FnMut(Self::Item) -> ControlFlow<()>,
    ) -> Result<(), Self::Refusal>;
}

/// A verb that produces bytes, which are not part of its answer: a stream. [`Verb::run`] only tells what they would be.
pub trait Written: Verb {
    /// What is told while bytes are written.
    type Event: Serialize + DeserializeOwned;

    /// Writes the bytes to `out`, and tells `on` what happens, which may end it. Called by [`Session::write`] only.
    ///
    /// # Errors
    /// The refusal. What can be checked before the first byte is.
    fn write(
        &self,
        session: &mut Session<'_>,
        out: &mut dyn Write,
        on: &mut dyn FnMut(Self::Event) -> ControlFlow<()>,
    ) -> Result<Self::Answer, Self::Refusal>;
}

/// All items of a streamed verb, for [`Verb::run`].
fn collect<V: Streamed>(request: &V, session: &mut Session<'_>) -> Result<Vec<V::Item>, V::Refusal> {
    let mut items = Vec::new();
    request.each(session, &mut |item| {
        items.push(item);
        ControlFlow::Continue(())
    })?;
    Ok(items)
}

/// A verb's refusal: an enum whose variants hold the facts. `Display` gives what the command says, in the words of
/// OpenZFS.
pub trait Refused: Serialize + DeserializeOwned + std::fmt::Display + From<Denied> {
    /// The underlying reason, for callers that treat all verbs alike.
    fn reason(&self) -> Reason;
}

/// Serializes and deserializes a value, as another process receives it.
#[cfg(test)]
pub(crate) fn carried<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) -> T {
    let carried = serde_json::from_str(&serde_json::to_string(value).expect("data")).expect("data");
    assert_eq!(&carried, value);
    carried
}
