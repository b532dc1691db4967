//! `zpool set`.

use super::{in_session, texts};
use crate::getopt::Getopt;
use crate::out::{Out, visible};
use crate::stop::{Outcome, Stop};
use admin::verbs::zpool::set::{Refusal, Request};
use std::ffi::OsString;

/// What failures of finding a pool or vdev give: an error number of the system.
const EXIT_INVALID: u8 = 22;

pub(super) fn run(args: &[OsString], _: &Out) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "", &[]);
    while walk.next()?.is_some() {}
    let operands = texts(&walk.operands());
    let (text, pool, vdev) = match &operands[..] {
        [] => return Err(Stop::usage("missing property=value argument")),
        [text] if !text.contains('=') => {
            return Err(Stop::usage("missing value in property=value argument"));
        }
        [_] => return Err(Stop::usage("missing pool name")),
        [text, pool] => (text, pool, None),
        [text, pool, vdev] => (text, pool, Some(vdev)),
        _ => return Err(Stop::usage("too many pool names")),
    };
    let Some((name, value)) = text.split_once('=') else {
        return Err(Stop::usage("missing value in property=value argument"));
    };
    let request = Request {
        pool: pool.clone(),
        vdev: vdev.cloned(),
        property: name.to_owned(),
        value: value.to_owned(),
    };
    in_session("set", args, |session| {
        let outcome = session.run(&request);
        super::tell_warnings(session);
        match outcome {
            Ok(()) => Ok(0),
            Err(refusal @ (Refusal::NoPool { .. } | Refusal::NoVdev { .. })) => {
                say_error_line!("{}", visible(&refusal.to_string()));
                Err(Stop::Code(EXIT_INVALID))
            }
            Err(refusal) => Err(Stop::failed(refusal)),
        }
    })
}
