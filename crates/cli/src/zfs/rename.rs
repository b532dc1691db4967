//! `zfs rename`.

use super::complain_all;
use super::session::{in_session, refused};
use crate::getopt::Getopt;
use crate::stop::{Outcome, Stop};
use admin::verbs::zfs::rename::Request;
use std::ffi::OsString;

/// Runs the verb.
pub(super) fn run(args: &[OsString]) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "pruf", &[]);
    let mut request = Request::default();
    while let Some((letter, _)) = walk.next()? {
        match letter {
            'p' => request.parents = true,
            'r' => request.recursive = true,
            'u' => request.stay_mounted = true,
            // -f changes nothing: see `admin::verbs::zfs::UNMOUNT`.
            _ => {}
        }
    }
    let operands = crate::zpool::texts(&walk.operands());
    (request.from, request.to) = match &operands[..] {
        [] => return Err(Stop::usage("missing source dataset argument")),
        [_] => return Err(Stop::usage("missing target dataset argument")),
        [from, to] => (from.clone(), to.clone()),
        _ => return Err(Stop::usage("too many arguments")),
    };
    match request {
        Request { recursive: true, parents: true, .. } => {
            return Err(Stop::usage("-p and -r options are mutually exclusive"));
        }
        Request { recursive: true, stay_mounted: true, .. } => {
            return Err(Stop::usage("-u and -r options are mutually exclusive"));
        }
        Request { stay_mounted: true, parents: true, .. } => {
            return Err(Stop::usage("-u and -p options are mutually exclusive"));
        }
        Request { recursive: true, .. } if !request.from.contains('@') => {
            return Err(Stop::usage("source dataset for recursive rename must be a snapshot"));
        }
        _ => {}
    }
    in_session("rename", args, |session| match session.run(&request) {
        Ok(answer) => {
            complain_all(&answer.ancestors_not_mounted);
            complain_all(&answer.not_mounted);
            Ok(u8::from(!answer.not_mounted.is_empty()))
        }
        Err(refusal) => Err(refused(&refusal)),
    })
}
