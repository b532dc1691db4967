//! `zpool scrub`, `resilver`, `clear`, `online`, `offline`, `reopen`, `wait`.

use super::{Stamp, check_opens, each, in_session, names_of, nice, reading, texts};
use crate::console;
use crate::getopt::{Getopt, Long};
use crate::out::{Out, visible};
use crate::stop::{Outcome, Stop};
use admin::change::{Activities, Scrub};
use admin::verbs::zpool;
use std::ffi::OsString;
use std::time::Duration;

/// How often it is looked whether something has ended.
const LOOK: Duration = Duration::from_millis(200);
/// `--power`.
const POWER: char = super::POWER;
/// Options of `clear`, `online` and `offline`.
const LONG: &[Long] = &[Long::flag("power", POWER)];

fn say(text: &str) {
    text.lines().for_each(|line| say_error_line!("{}", visible(line)));
}

pub(super) fn scrub(args: &[OsString], out: &Out) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "spweC", &[]);
    let (mut stop, mut pause, mut wait, mut errors, mut newer) = (false, false, false, false, false);
    while let Some((letter, _)) = walk.next()? {
        match letter {
            's' => stop = true,
            'p' => pause = true,
            'w' => wait = true,
            'e' => errors = true,
            _ => newer = true,
        }
    }
    for (one, other, letters) in [
        (pause, stop, ("-s", "-p")),
        (pause, newer, ("-p", "-C")),
        (stop, newer, ("-s", "-C")),
        (errors, newer, ("-e", "-C")),
    ] {
        if one && other {
            let (a, b) = letters;
            let why = format!("invalid option combination :{a} and {b} are mutually exclusive");
            return Err(Stop::usage(why));
        }
    }
    if wait && (stop || pause) {
        let letter = if stop { "-s" } else { "-p" };
        return Err(Stop::usage(format!("invalid option combination: -w cannot be used with {letter}")));
    }
    let names = texts(&walk.operands());
    if names.is_empty() {
        return Err(Stop::usage("missing pool name argument"));
    }
    let what = match (stop, pause, newer) {
        (false, false, _) if errors => Scrub::Errors,
        (true, ..) => Scrub::Stop,
        (_, true, _) => Scrub::Pause,
        (_, _, true) => Scrub::Newer,
        _ => Scrub::Start,
    };
    let code = in_session("scrub", args, |session| {
        Ok(each(&names, |name| {
            let answer = session.run(&zpool::scrub::Request { pool: name.to_owned(), what })?;
            if answer.has_checkpoint && !matches!(what, Scrub::Stop | Scrub::Errors) {
                let name = visible(name);
                out.print(&format!(
                    "warning: will not scrub state that belongs to the checkpoint of pool '{name}'\n"
                ));
            }
            Ok::<_, zpool::Refusal>(())
        }))
    })?;
    if code == 0 && wait {
        for name in &names {
            wait_for(name, &|all| all.scrub, out)?;
        }
    }
    Ok(code)
}

pub(super) fn resilver(args: &[OsString]) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "", &[]);
    while walk.next()?.is_some() {}
    let names = texts(&walk.operands());
    if names.is_empty() {
        return Err(Stop::usage("missing pool name argument"));
    }
    in_session("resilver", args, |session| {
        Ok(each(&names, |name| session.run(&zpool::resilver::Request { pool: name.to_owned() })))
    })
}

pub(super) fn clear(args: &[OsString]) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "FnX", LONG);
    let (mut rewind, mut dry) = (false, false);
    while let Some((letter, _)) = walk.next()? {
        match letter {
            'F' => rewind = true,
            'n' => dry = true,
            _ => {}
        }
    }
    if dry && !rewind {
        return Err(Stop::usage("-n flag requires the -F flag"));
    }
    let operands = texts(&walk.operands());
    let (name, device) = match &operands[..] {
        [] => return Err(Stop::usage("missing pool name")),
        [name] => (name, None),
        [name, device] => (name, Some(device.clone())),
        _ => return Err(Stop::usage("too many arguments")),
    };
    let request = zpool::clear::Request { pool: name.clone(), device, dry_run: dry };
    in_session("clear", args, |session| session.run(&request).map(|()| 0).map_err(Stop::failed))
}

/// Pool and devices of `online` and `offline`.
fn devices(operands: &[String]) -> Result<(&String, &[String]), Stop> {
    match operands {
        [] => Err(Stop::usage("missing pool name")),
        [_] => Err(Stop::usage("missing device name")),
        [pool, devices @ ..] => Ok((pool, devices)),
    }
}

pub(super) fn offline(args: &[OsString]) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "ft", LONG);
    let (mut fault, mut temporarily) = (false, false);
    while let Some((letter, _)) = walk.next()? {
        match letter {
            'f' => fault = true,
            't' => temporarily = true,
            _ => {}
        }
    }
    let operands = texts(&walk.operands());
    let (pool, names) = devices(&operands)?;
    check_opens(pool)?;
    in_session("offline", args, |session| {
        Ok(each(names, |name| {
            let (pool, device) = (pool.clone(), name.to_owned());
            session.run(&zpool::offline::Request { pool, device, fault, temporary: temporarily })
        }))
    })
}

pub(super) fn online(args: &[OsString]) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "e", LONG);
    let mut expand = false;
    while let Some((letter, _)) = walk.next()? {
        expand |= letter == 'e';
    }
    let operands = texts(&walk.operands());
    let (pool, names) = devices(&operands)?;
    check_opens(pool)?;
    in_session("online", args, |session| {
        Ok(each(names, |name| {
            let (pool, device) = (pool.clone(), name.to_owned());
            let answer = session.run(&zpool::online::Request { pool, device, expand })?;
            warn(name, &answer);
            Ok::<(), zpool::Refusal>(())
        }))
    })
}

/// Tells of a device that is no good though it is online.
fn warn(name: &str, answer: &zpool::online::Answer) {
    if !answer.is_faulted() {
        return;
    }
    say(&format!("warning: device '{name}' onlined, but remains in faulted state"));
    match answer.state.as_deref() {
        Some("FAULTED") => say("use 'zpool clear' to restore a faulted device"),
        _ => say("use 'zpool replace' to replace devices that are no longer present"),
    }
}

pub(super) fn reopen(args: &[OsString]) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "n", &[]);
    let mut restart = true;
    while walk.next()?.is_some() {
        restart = false;
    }
    let mut names = texts(&walk.operands());
    if names.is_empty() {
        names = names_of(&[])?;
    }
    in_session("reopen", args, |session| {
        Ok(each(&names, |name| {
            session.run(&zpool::reopen::Request { pool: name.to_owned(), restart_scrub: restart })
        }))
    })
}

/// What can be waited for, in the order in which it is shown, and whether it can be going on here.
type Activity = (&'static str, fn(&Activities) -> u64);
const ACTIVITIES: [Activity; 9] = [
    ("discard", |all| all.discard),
    ("free", |all| all.free),
    ("initialize", |_| 0),
    ("replace", |all| all.replace),
    ("remove", |all| all.remove),
    ("resilver", |all| all.resilver),
    ("scrub", |all| all.scrub),
    ("trim", |_| 0),
    ("raidz_expand", |_| 0),
];

/// Waits until something has ended. False: the command is to end.
pub(super) fn wait_for(pool: &str, left: &dyn Fn(&Activities) -> u64, _: &Out) -> Result<bool, Stop> {
    loop {
        let now = look(pool)?;
        if left(&now) == 0 {
            return Ok(true);
        }
        if !console::sleep(LOOK) {
            return Ok(false);
        }
    }
}

/// Waits until the running removal has ended.
pub(super) fn wait_for_removal(pool: &str, out: &Out) -> Result<bool, Stop> {
    wait_for(pool, &|all| all.remove, out)
}

fn look(pool: &str) -> Result<Activities, Stop> {
    let request = zpool::wait::Request { pool: pool.to_owned() };
    reading().run(&request).map_err(Stop::failed)
}

pub(super) fn wait(args: Vec<OsString>, out: &Out) -> Outcome {
    let mut walk = Getopt::new(args, "HpT:t:", &[]);
    let (mut plain, mut exact, mut stamp) = (false, false, Stamp::Off);
    let mut wanted: Vec<Activity> = ACTIVITIES.to_vec();
    while let Some((letter, value)) = walk.next()? {
        match letter {
            'H' => plain = true,
            'p' => exact = true,
            'T' => stamp = Stamp::parse(value.as_deref())?,
            _ => wanted = chosen(&value.unwrap_or_default().to_string_lossy())?,
        }
    }
    let operands = texts(&walk.operands());
    let (name, interval) = match &operands[..] {
        [] => return Err(Stop::usage("missing 'pool' argument")),
        [name] => (name, None),
        [name, interval] => match interval.parse::<f64>() {
            Ok(seconds) if seconds > 0.0 && seconds.is_finite() => (name, Some(seconds.min(3.2e7))),
            Ok(_) => return Err(Stop::usage("interval cannot be zero")),
            Err(_) => return Err(Stop::usage("too many arguments")),
        },
        _ => return Err(Stop::usage("too many arguments")),
    };
    let left = |all: &Activities| wanted.iter().map(|(_, of)| of(all)).fold(0, u64::saturating_add);
    let Some(seconds) = interval else {
        wait_for(name, &left, out)?;
        return Ok(0);
    };
    let mut is_first = true;
    loop {
        let now = look(name)?;
        out.print(&stamp.line());
        out.print(&row(&wanted, &now, plain, exact, is_first));
        is_first = false;
        if left(&now) == 0 || !console::sleep(Duration::from_secs_f64(seconds)) {
            return Ok(0);
        }
    }
}

/// The activities of `-t`.
fn chosen(list: &str) -> Result<Vec<Activity>, Stop> {
    let mut names = Vec::new();
    for name in list.split(',').filter(|name| !name.is_empty()) {
        if !ACTIVITIES.iter().any(|(known, _)| *known == name) {
            return Err(Stop::usage(format!("invalid activity '{name}'")));
        }
        names.push(name);
    }
    Ok(ACTIVITIES.iter().filter(|(known, _)| names.contains(known)).copied().collect())
}

/// How much is left of each activity, with their names above the first such line.
fn row(wanted: &[Activity], now: &Activities, plain: bool, exact: bool, is_first: bool) -> String {
    let line = |cells: Vec<String>| {
        let padded = cells.iter().zip(wanted).map(|(cell, (name, _))| {
            if plain { cell.clone() } else { format!("{cell:>width$}", width = name.len().max(6)) }
        });
        format!("{}\n", padded.collect::<Vec<_>>().join(if plain { "\t" } else { "  " }))
    };
    let numbers = wanted.iter().map(|(_, of)| match of(now) {
        0 => "-".to_owned(),
        left => nice(left, exact),
    });
    let mut text = String::new();
    if is_first && !plain {
        text.push_str(&line(wanted.iter().map(|(name, _)| (*name).to_owned()).collect()));
    }
    text.push_str(&line(numbers.collect()));
    text
}
