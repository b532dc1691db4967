//! `zfs clone` and `zfs promote`.

use super::complain;
use super::properties::Pairs;
use super::session::{in_session, tell_warnings};
use crate::getopt::Getopt;
use crate::stop::{Outcome, Stop};
use admin::verbs::zfs::{clone, promote};
use std::ffi::OsString;

/// Runs `zfs clone`.
pub(super) fn run(args: &[OsString]) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "o:pu", &[]);
    let (mut parents, mut stays, mut props) = (false, false, Pairs::default());
    while let Some((letter, value)) = walk.next()? {
        match letter {
            'p' => parents = true,
            'u' => stays = true,
            _ => props.add(value)?,
        }
    }
    let operands = crate::zpool::texts(&walk.operands());
    let (origin, name) = match &operands[..] {
        [] => return Err(Stop::usage("missing source dataset argument")),
        [_] => return Err(Stop::usage("missing target dataset argument")),
        [origin, name] => (origin.clone(), name.clone()),
        _ => return Err(Stop::usage("too many arguments")),
    };
    let request = clone::Request { origin, name, properties: props.0, parents, unmounted: stays };
    in_session("clone", args, |session| {
        let outcome = session.run(&request);
        tell_warnings(session);
        let answer = outcome.map_err(Stop::failed)?;
        let not_mounted = answer.ancestors_not_mounted.iter().chain(&answer.not_mounted);
        for mount in not_mounted {
            mount.to_string().lines().for_each(complain);
        }
        Ok(u8::from(!answer.not_mounted.is_empty()))
    })
}

/// Runs `zfs promote`.
pub(super) fn promote(args: &[OsString]) -> Outcome {
    let walk = no_options(args.to_vec())?;
    let operands = crate::zpool::texts(&walk);
    let name = match &operands[..] {
        [] => return Err(Stop::usage("missing clone filesystem argument")),
        [one] => one,
        _ => return Err(Stop::usage("too many arguments")),
    };
    let request = promote::Request { dataset: name.clone() };
    in_session("promote", args, |session| session.run(&request).map(|()| 0).map_err(Stop::failed))
}

/// The operands of a verb that has no options.
pub(super) fn no_options(args: Vec<OsString>) -> Result<Vec<OsString>, Stop> {
    let mut walk = Getopt::new(args, "", &[]);
    while walk.next()?.is_some() {}
    Ok(walk.operands())
}
