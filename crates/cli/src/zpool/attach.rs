//! `zpool attach`, `replace`, `detach`.

use super::healing::wait_for;
use super::{check_opens, in_session, texts};
use crate::getopt::Getopt;
use crate::out::{Out, visible};
use crate::stop::{Outcome, Stop};
use admin::change::parse_ashift;
use admin::verbs::zpool::{Refusal, attach, detach, replace};
use std::ffi::OsString;

/// Exit code of a refusal whose status the real tool passes on.
const MINUS_ONE: u8 = 255;

/// Options and operands of `attach` and `replace`.
struct Given {
    force: bool,
    sequential: bool,
    wait: bool,
    pool: String,
    device: String,
    new_device: Option<String>,
}

impl Given {
    fn parse(args: &[OsString], is_attach: bool) -> Result<Given, Stop> {
        let mut walk = Getopt::new(args.to_vec(), "fo:sw", &[]);
        let (mut force, mut sequential, mut wait, mut ashift) = (false, false, false, None);
        while let Some((letter, value)) = walk.next()? {
            match letter {
                'f' => force = true,
                's' => sequential = true,
                'w' => wait = true,
                _ => {
                    ashift =
                        Some(super::ashift_option(&value.unwrap_or_default().to_string_lossy())?.to_owned())
                }
            }
        }
        let mut operands = texts(&walk.operands()).into_iter();
        let pool = operands.next().ok_or_else(|| Stop::usage("missing pool name argument"))?;
        let device = operands.next().ok_or_else(|| Stop::usage("missing <device> specification"))?;
        let new_device = operands.next();
        if new_device.is_none() && is_attach {
            return Err(Stop::usage("missing <new_device> specification"));
        }
        if operands.next().is_some() {
            return Err(Stop::usage("too many arguments"));
        }
        check_opens(&pool)?;
        // The vdev keeps its sector size: the new device must only be able to work with it.
        ashift.map(|text| parse_ashift(&text)).transpose().map_err(Stop::failed)?;
        Ok(Given { force, sequential, wait, pool, device, new_device })
    }
}

pub(super) fn attach(args: &[OsString], out: &Out) -> Outcome {
    let Given { force, sequential, wait, pool, device, new_device } = Given::parse(args, true)?;
    let new_device = new_device.unwrap_or_default();
    let request = attach::Request { pool: pool.clone(), device, new_device, force, sequential };
    in_session("attach", args, |session| ended(session.run(&request)))?;
    if wait {
        wait_for(&pool, &|all| all.resilver, out)?;
    }
    Ok(0)
}

pub(super) fn replace(args: &[OsString], out: &Out) -> Outcome {
    let Given { force, sequential, wait, pool, device, new_device } = Given::parse(args, false)?;
    let request = replace::Request { pool: pool.clone(), device, new_device, force, sequential };
    in_session("replace", args, |session| ended(session.run(&request)))?;
    if wait {
        wait_for(&pool, &|all| all.replace, out)?;
    }
    Ok(0)
}

pub(super) fn detach(args: &[OsString]) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "", &[]);
    while walk.next()?.is_some() {}
    let operands = texts(&walk.operands());
    let (pool, device) = match &operands[..] {
        [] => return Err(Stop::usage("missing pool name argument")),
        [_] => return Err(Stop::usage("missing <device> specification")),
        [pool, device, ..] => (pool.clone(), device.clone()),
    };
    check_opens(&pool)?;
    let request = detach::Request { pool, device };
    in_session("detach", args, |session| ended(session.run(&request)))
}

/// The exit code: what the pool itself refuses has one of its own.
fn ended(outcome: Result<(), Refusal>) -> Outcome {
    match outcome {
        Ok(()) => Ok(0),
        Err(refusal @ Refusal::Failed { .. }) => {
            refusal.to_string().lines().for_each(|line| say_error_line!("{}", visible(line)));
            Err(Stop::Code(MINUS_ONE))
        }
        Err(refusal) => Err(Stop::failed(refusal)),
    }
}
