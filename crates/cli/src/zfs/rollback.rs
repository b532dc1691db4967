//! `zfs rollback`.

use super::session::{in_session, refused};
use crate::getopt::Getopt;
use crate::stop::{Outcome, Stop};
use admin::verbs::zfs::rollback::Request;
use std::ffi::OsString;

/// Runs the verb.
pub(super) fn run(args: &[OsString]) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "rRf", &[]);
    let mut request = Request::default();
    while let Some((letter, _)) = walk.next()? {
        match letter {
            'r' => request.destroy_newer = true,
            'R' => (request.destroy_newer, request.destroy_clones) = (true, true),
            // -f changes nothing: see `admin::verbs::zfs::UNMOUNT`.
            _ => {}
        }
    }
    let operands = crate::zpool::texts(&walk.operands());
    request.snapshot = match &operands[..] {
        [] => return Err(Stop::usage("missing dataset argument")),
        [one] => one.clone(),
        _ => return Err(Stop::usage("too many arguments")),
    };
    in_session("rollback", args, |session| match session.run(&request) {
        Ok(_) => Ok(0),
        Err(refusal) => Err(refused(&refusal)),
    })
}
