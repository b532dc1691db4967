//! `zpool checkpoint`.

use super::{in_session, texts};
use crate::getopt::{Getopt, Long};
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use admin::verbs::zpool::checkpoint::Request;
use std::ffi::OsString;

const LONG: &[Long] = &[Long::flag("discard", 'd'), Long::flag("wait", 'w')];

pub(super) fn run(args: &[OsString], out: &Out) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "dw", LONG);
    let (mut discard, mut wait) = (false, false);
    while let Some((letter, _)) = walk.next()? {
        match letter {
            'd' => discard = true,
            _ => wait = true,
        }
    }
    if wait && !discard {
        return Err(Stop::usage("--wait only valid when --discard also specified"));
    }
    let operands = texts(&walk.operands());
    let [pool] = &operands[..] else {
        let why = if operands.is_empty() { "missing pool argument" } else { "too many arguments" };
        return Err(Stop::usage(why));
    };
    let request = Request { pool: pool.clone(), discard };
    in_session("checkpoint", args, |session| session.run(&request).map(|()| 0).map_err(Stop::failed))?;
    if wait {
        super::healing::wait_for(pool, &|all| all.discard, out)?;
    }
    Ok(0)
}
