//! What a run of `zdb` found.

use std::process::ExitCode;

/// What a run found, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Clean,
    Failed,
    Inconsistent,
    Unreadable,
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> ExitCode {
        ExitCode::from(verdict as u8)
    }
}
