//! `zfs redact`.

use super::complain_all;
use super::session::in_session;
use crate::stop::{Outcome, Stop};
use admin::verbs::zfs::redact::{Refusal, Request};
use std::ffi::OsString;

/// The exit codes of OpenZFS are numbers of errors.
const NO_SNAPSHOT: u8 = 2;
const EXISTS: u8 = 17;
const INVALID: u8 = 22;

/// Runs the verb.
pub(super) fn run(args: &[OsString]) -> Outcome {
    let mut operands = crate::zpool::texts(&super::clone::no_options(args.to_vec())?).into_iter();
    let (Some(snapshot), Some(bookmark)) = (operands.next(), operands.next()) else {
        return Err(Stop::usage("too few arguments"));
    };
    let redaction_snapshots: Vec<String> = operands.collect();
    if redaction_snapshots.is_empty() {
        return Err(Stop::usage("too few arguments"));
    }
    let request = Request { snapshot, bookmark, redaction_snapshots };
    in_session("redact", args, |session| {
        session.run(&request).map(|_| 0).map_err(|refusal| refused(&refusal))
    })
}

fn refused(refusal: &Refusal) -> Stop {
    let code = match refusal {
        Refusal::Open { .. } => NO_SNAPSHOT,
        Refusal::Exists { .. } => EXISTS,
        Refusal::FullName | Refusal::NotDescendant { .. } | Refusal::Redacted { .. } => INVALID,
        Refusal::Denied(_) | Refusal::NoFeature | Refusal::NotMade { .. } => 1,
    };
    complain_all(&[refusal]);
    Stop::Code(code)
}
