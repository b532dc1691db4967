//! `zpool remove`.

use super::healing::wait_for_removal;
use super::{check_opens, each, in_session, reading, texts};
use crate::getopt::Getopt;
use crate::out::{Out, visible};
use crate::stop::{Outcome, Stop};
use admin::verbs::zpool::remove::Request;
use format::nicenum::nicenum;
use std::ffi::OsString;

/// The options.
#[derive(Debug, Default)]
struct Options {
    dry: bool,
    exact: bool,
    cancel: bool,
    wait: bool,
}

pub(super) fn run(args: &[OsString], out: &Out) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "npsw", &[]);
    let mut options = Options::default();
    while let Some((letter, _)) = walk.next()? {
        match letter {
            'n' => options.dry = true,
            'p' => options.exact = true,
            's' => options.cancel = true,
            _ => options.wait = true,
        }
    }
    let operands = texts(&walk.operands());
    let Some((pool, devices)) = operands.split_first() else {
        return Err(Stop::usage("missing pool name argument"));
    };
    if options.cancel {
        return cancel(args, pool, devices, &options);
    }
    check_opens(pool)?;
    if devices.is_empty() {
        return Err(Stop::usage("missing device"));
    }
    if options.dry {
        for device in devices {
            tell_memory(pool, device, options.exact, out).map_err(Stop::failed)?;
        }
        return Ok(0);
    }
    let code = in_session("remove", args, |session| {
        Ok(each(devices, |device| {
            session.run(&Request { pool: pool.clone(), device: Some(device.to_owned()) })
        }))
    })?;
    if code == 0 && options.wait {
        wait_for_removal(pool, out)?;
    }
    Ok(code)
}

/// `-s`.
fn cancel(args: &[OsString], pool: &str, devices: &[String], options: &Options) -> Outcome {
    check_opens(pool)?;
    if !devices.is_empty() {
        return Err(Stop::usage("too many arguments"));
    }
    if options.dry {
        say_error_line!("stop request ignored");
        return Ok(0);
    }
    let request = Request { pool: pool.to_owned(), device: None };
    let code = in_session("remove", args, |session| Ok(each(&[pool.to_owned()], |_| session.run(&request))))?;
    if options.wait {
        return Err(Stop::usage("invalid option combination: -w cannot be used with -s"));
    }
    Ok(code)
}

/// `-n`: how much memory the mapping of a device would take.
fn tell_memory(pool: &str, device: &str, exact: bool, out: &Out) -> Result<(), admin::verbs::zpool::Refusal> {
    let request = Request { pool: pool.to_owned(), device: Some(device.to_owned()) };
    let bytes = request.memory(&mut reading())?;
    let device = visible(device);
    out.print(&match exact {
        true => format!("{device} {bytes}\n"),
        false => format!("Memory that will be used after removing {device}: {}\n", nicenum(bytes)),
    });
    Ok(())
}
