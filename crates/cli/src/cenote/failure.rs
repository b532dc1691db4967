//! How a verb of `cenote` ends.

use super::term::{self, complain};

/// Why a verb ends at once. Everything that concerns one file of several is told and passed over
/// instead.
#[derive(Debug)]
pub(crate) enum Failure {
    /// To be said.
    Message(String),
    /// All has been said.
    Silent,
    /// The reader of the output is gone.
    NoReader,
    /// A signal asked for the end, and nothing was left half done.
    Interrupted,
}

impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Failure {
        let io = (&error as &(dyn std::error::Error + 'static)).downcast_ref::<std::io::Error>();
        match io.map(std::io::Error::kind) {
            Some(std::io::ErrorKind::BrokenPipe) => Failure::NoReader,
            _ => Failure::Message(term::chain(&error)),
        }
    }
}

/// A verb's exit code, or why there was no sense in going on.
pub(super) type Outcome = Result<u8, Failure>;

/// Exit code of a verb that met `problems`.
pub(super) fn code(has_problems: bool) -> u8 {
    u8::from(has_problems)
}

impl Failure {
    /// Says what there is to say. Output without a reader is no reason to go on.
    pub(super) fn tell(self) -> Result<(), Failure> {
        match self {
            Failure::Message(text) => text.lines().for_each(complain),
            Failure::Silent => {}
            Failure::NoReader | Failure::Interrupted => return Err(self),
        }
        Ok(())
    }
}
