//! `zfs hold` and `zfs release`.

use super::complain;
use super::session::in_session;
use crate::getopt::Getopt;
use crate::stop::{Outcome, Stop};
use admin::Session;
use admin::verbs::zfs::{hold, release};
use std::ffi::OsString;

/// Runs `zfs hold`.
pub(super) fn hold(args: &[OsString]) -> Outcome {
    let Words { recursive, tag, snapshots } = Words::parse(args)?;
    // Tags with a point in front are those of the tools themselves.
    if tag.starts_with('.') {
        return Err(Stop::usage("tag may not start with '.'"));
    }
    if tag.is_empty() {
        return Err(Stop::failed("cannot hold: operation not applicable to datasets of this type"));
    }
    each("hold", args, snapshots, |session, snapshot| {
        let request = hold::Request { snapshots: vec![snapshot], tag: tag.clone(), recursive };
        session.run(&request).map(drop).map_err(|refusal| refusal.to_string())
    })
}

/// Runs `zfs release`.
pub(super) fn release(args: &[OsString]) -> Outcome {
    let Words { recursive, tag, snapshots } = Words::parse(args)?;
    each("release", args, snapshots, |session, snapshot| {
        let request = release::Request { snapshots: vec![snapshot], tag: tag.clone(), recursive };
        session.run(&request).map(drop).map_err(|refusal| refusal.to_string())
    })
}

/// The words of one of the commands.
struct Words {
    recursive: bool,
    tag: String,
    snapshots: Vec<String>,
}

impl Words {
    fn parse(args: &[OsString]) -> Result<Words, Stop> {
        let mut walk = Getopt::new(args.to_vec(), "r", &[]);
        let mut recursive = false;
        while walk.next()?.is_some() {
            recursive = true;
        }
        let mut snapshots = crate::zpool::texts(&walk.operands());
        if snapshots.len() < 2 {
            return Err(Stop::usage(""));
        }
        Ok(Words { recursive, tag: snapshots.remove(0), snapshots })
    }
}

/// One snapshot after the other: what is wrong with one does not keep the others from being done.
fn each(
    subcommand: &str,
    args: &[OsString],
    snapshots: Vec<String>,
    verb: impl Fn(&mut Session<'static>, String) -> Result<(), String>,
) -> Outcome {
    in_session(subcommand, args, |session| {
        let mut code = 0;
        for snapshot in snapshots {
            if let Err(message) = verb(session, snapshot) {
                complain(&message);
                code = 1;
            }
        }
        Ok(code)
    })
}
