//! Verbs: one module each, readable alone. A verb is a request (what is asked for), an answer (what was done), a
//! refusal (why nothing, or not all, was done), the right that it needs, and `run`, which checks, orders and does it.
//!
//! Commands, the daemon, `.zfs`, tests, and programs that embed the library are callers: they turn arguments into a
//! request and an answer into text, and check, order or undo nothing themselves. Requests, answers and refusals are
//! plain data that serde carries over a socket.
//!
//! # What always holds
//! - A verb is run by [`Session::run`], which asks for its right.
//! - Everything that can be refused is refused before the first change.
//! - A verb looks after the mounts that its change concerns, where the process has mounts.
//!
//! Source: docs/on-disk/33-cli.md. Tests: `crates/admin/tests`, `crates/cli/tests`.

/// Makes [`Denied`] into a verb's refusal, by the variant that holds it.
macro_rules! from_denied {
    ($refusal:ty, $variant:path) => {
        impl From<$crate::verbs::Denied> for $refusal {
            fn from(denied: $crate::verbs::Denied) -> $refusal {
                $variant(denied.into()).into()
            }
        }
    };
}

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
use std::ops::ControlFlow;

/// A verb's request; see the module.
pub trait Verb: Serialize + DeserializeOwned {
    /// The command and subcommand that users type: `zfs snapshot`.
    const NAME: &'static str;
    /// Who may run it.
    const RIGHT: Right;
    /// What was done.
    type Answer: Serialize + DeserializeOwned;
    /// Why it was not done, or not wholly.
    type Refusal: Refused;

    /// Does it. Called by [`Session::run`] only.
    ///
    /// # Errors
    /// The refusal; what had been done by then stands in it.
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

/// A verb's refusal: an enum whose variants hold the facts. `Display` gives what the command says, in the words of
/// OpenZFS.
pub trait Refused: Serialize + DeserializeOwned + std::fmt::Display + From<Denied> {
    /// The reason behind it, for callers that answer all verbs alike.
    fn reason(&self) -> Reason;
}

/// A value as it is after it was carried to another process and back.
#[cfg(test)]
pub(crate) fn carried<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) -> T {
    let carried = serde_json::from_str(&serde_json::to_string(value).expect("data")).expect("data");
    assert_eq!(&carried, value);
    carried
}
