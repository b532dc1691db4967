//! Sessions of commands: the verbs of one command line, and how what they refuse is told.

use super::complain;
use crate::stop::{Outcome, Stop};
use admin::Session;
use std::ffi::OsString;

/// Runs a command in a session of its own: its line goes into the history of the pools that it changed if it exits
/// with 0, and the pools that it opened are closed.
pub(super) fn in_session(
    subcommand: &str,
    args: &[OsString],
    command: impl FnOnce(&mut Session<'static>) -> Outcome,
) -> Outcome {
    let words = args.iter().map(|arg| arg.to_string_lossy());
    let line = words.fold(format!("zfs {subcommand}"), |line, word| format!("{line} {word}"));
    let mut session = Session::of_command(crate::search::from_env(), line);
    let outcome = command(&mut session);
    let ended = session.end(matches!(outcome, Ok(0)));
    if let Err(errors) = &ended {
        errors.iter().for_each(|error| complain(&error.to_string()));
    }
    match outcome {
        Ok(code) if ended.is_err() => Ok(code.max(1)),
        outcome => outcome,
    }
}

/// Tells a refusal, line by line; the exit code is 1.
pub(super) fn refused(refusal: &dyn std::fmt::Display) -> Stop {
    Stop::failed(refusal)
}

/// Tells the warnings of the verbs that have run.
pub(super) fn tell_warnings(session: &mut Session<'_>) {
    for warning in session.take_warnings() {
        warning.to_string().lines().for_each(complain);
    }
}
