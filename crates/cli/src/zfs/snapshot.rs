//! `zfs snapshot`.

use super::complain;
use super::properties::Pairs;
use super::session::{in_session, refused};
use crate::getopt::Getopt;
use crate::stop::{Outcome, Stop};
use admin::verbs::zfs::snapshot::{Refusal, Request};
use std::ffi::OsString;

/// Runs the verb.
pub(super) fn run(args: &[OsString]) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "ro:", &[]);
    let (mut recursive, mut properties) = (false, Pairs::default());
    while let Some((letter, value)) = walk.next()? {
        match letter {
            'r' => recursive = true,
            _ => properties.add(value)?,
        }
    }
    let names = crate::zpool::texts(&walk.operands());
    if names.is_empty() {
        return Err(Stop::usage("missing snapshot argument"));
    }
    let request = Request { names, recursive, properties: properties.0 };
    in_session("snapshot", args, |session| match session.run(&request) {
        Ok(_) => Ok(0),
        Err(refusal) => tell(&refusal),
    })
}

/// Tells why no snapshot was taken; the exit code.
fn tell(refusal: &Refusal) -> Outcome {
    let wanted = match refusal {
        // There is nothing to say but how the command is used.
        Refusal::NotASnapshot { .. } => return Err(Stop::usage("")),
        Refusal::Open(closed) => {
            return Err(if closed.reason.is_usage() {
                Stop::usage(refusal.to_string())
            } else {
                refused(refusal)
            });
        }
        Refusal::Denied(_) | Refusal::Property(_) | Refusal::Name { .. } => return Err(refused(refusal)),
        Refusal::SameDataset { wanted }
        | Refusal::Exists { wanted, .. }
        | Refusal::NotTaken { wanted, .. } => *wanted,
    };
    refusal.to_string().lines().for_each(complain);
    if wanted > 1 {
        complain("no snapshots were created");
    }
    Ok(1)
}
