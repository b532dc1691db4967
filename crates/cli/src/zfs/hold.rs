//! `zfs hold` and `zfs release`.

use super::complain;
use super::session::in_session;
use crate::getopt::Getopt;
use crate::stop::{Outcome, Stop};
use admin::Session;
use admin::verbs::zfs::hold::{self, Answer, Refusal};
use admin::verbs::zfs::release;
use std::ffi::OsString;

/// Runs `zfs hold`.
pub(super) fn hold(args: &[OsString]) -> Outcome {
    each("hold", args, |session, tag, snapshot, recursive| {
        session.run(&hold::Request { snapshot, tag: tag.to_owned(), recursive })
    })
}

/// Runs `zfs release`.
pub(super) fn release(args: &[OsString]) -> Outcome {
    each("release", args, |session, tag, snapshot, recursive| {
        session.run(&release::Request { snapshot, tag: tag.to_owned(), recursive })
    })
}

/// Runs a verb on one operand after the other: what is refused of one does not keep the others from being done.
fn each(
    subcommand: &str,
    args: &[OsString],
    verb: impl Fn(&mut Session<'static>, &str, String, bool) -> Result<Answer, Refusal>,
) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "r", &[]);
    let mut recursive = false;
    while walk.next()?.is_some() {
        recursive = true;
    }
    let operands = crate::zpool::texts(&walk.operands());
    let (tag, snapshots) = match operands.split_first() {
        Some((tag, snapshots)) if !snapshots.is_empty() => (tag, snapshots),
        _ => return Err(Stop::usage("")),
    };
    in_session(subcommand, args, |session| {
        let mut code = 0;
        for snapshot in snapshots {
            match verb(session, tag, snapshot.clone(), recursive) {
                Ok(_) => {}
                Err(refusal @ Refusal::ReservedTag) => return Err(Stop::usage(refusal.to_string())),
                Err(refusal @ Refusal::EmptyTag) => return Err(Stop::failed(refusal)),
                Err(refusal) => {
                    complain(&refusal.to_string());
                    code = 1;
                }
            }
        }
        Ok(code)
    })
}
