//! `zpool destroy`, `export`, `sync`, `labelclear`.

use super::{command_line, texts};
use crate::console;
use crate::getopt::Getopt;
use crate::out::visible;
use crate::rights;
use crate::stop::{Outcome, Stop};
use crate::zfs::mount::HOW;
use admin::Search;
use admin::change::{
    ChangeError, before_close, check_admin, clear_labels, destroy_pool, export_pool, find_device,
    found_names, imported_names, sync_pool,
};
use admin::mounting::{MountRefusal, Mounting};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// How often it is looked whether a client still waits.
const LOOK: Duration = Duration::from_millis(200);
/// Most threads that sync pools for users who are no administrators.
const OTHERS_SYNCS_MAX: usize = 32;
static OTHERS_SYNCS: AtomicUsize = AtomicUsize::new(0);

/// What is said when a pool could not be changed: one that is not there, or why not.
fn told(action: &str, name: &str, error: &ChangeError) -> String {
    match error {
        ChangeError::NoPool => format!("cannot open '{name}': no such pool"),
        error => format!("{action} '{name}': {error}"),
    }
}

pub(super) fn destroy(args: Vec<OsString>) -> Outcome {
    let command = command_line("destroy", &args);
    let mut walk = Getopt::new(args, "f", &[]);
    while walk.next()?.is_some() {}
    let operands = texts(&walk.operands());
    let [name] = &operands[..] else {
        let why = if operands.is_empty() { "missing pool argument" } else { "too many arguments" };
        return Err(Stop::usage(why));
    };
    let search = crate::search::from_env();
    let unmounted =
        |refusal: MountRefusal| format!("{refusal}\ncould not destroy '{name}': could not unmount datasets");
    before_close(&search, name, false).map_err(|error| Stop::failed(told("cannot destroy", name, &error)))?;
    let gone = let_go(&search, name, &|| destroy_pool(&search, name, &command), &unmounted, "cannot destroy");
    gone.map_err(Stop::failed)?;
    Ok(0)
}

/// Unmounts what is mounted of a pool, and lets the pool go; mounts it again if the pool stays. What to say if that
/// fails.
fn let_go(
    search: &Search,
    name: &str,
    verb: &dyn Fn() -> Result<(), ChangeError>,
    unmounted: &dyn Fn(MountRefusal) -> String,
    action: &str,
) -> Result<(), String> {
    let failed = |error: ChangeError| told(action, name, &error);
    check_admin(search).map_err(failed)?;
    let Some(mounting) = Mounting::of(search) else { return verb().map_err(failed) };
    let pending = mounting.before_export(name, HOW).map_err(unmounted)?;
    let outcome = verb();
    mounting.after_export(&pending, outcome.is_ok());
    outcome.map_err(failed)
}

pub(super) fn export(args: Vec<OsString>) -> Outcome {
    let command = command_line("export", &args);
    let mut walk = Getopt::new(args, "afF", &[]);
    let (mut all, mut force) = (false, false);
    while let Some((letter, _)) = walk.next()? {
        all |= letter == 'a';
        force |= letter == 'f';
    }
    let search = crate::search::from_env();
    let mut names = texts(&walk.operands());
    if all {
        if !names.is_empty() {
            return Err(Stop::usage("too many arguments"));
        }
        names = imported_names(&search).map_err(Stop::failed)?;
    } else if names.is_empty() {
        return Err(Stop::usage("missing pool argument"));
    }
    Ok(each(&names, |name| {
        let verb = || export_pool(&search, name, &command);
        before_close(&search, name, force).map_err(|error| told("cannot export", name, &error))?;
        let_go(&search, name, &verb, &|refusal| refusal.to_string(), "cannot export")
    }))
}

pub(super) fn sync(args: Vec<OsString>) -> Outcome {
    let mut walk = Getopt::new(args, "f", &[]);
    while walk.next()?.is_some() {}
    let search = crate::search::from_env();
    let mut names = texts(&walk.operands());
    let are_all = names.is_empty();
    if are_all {
        names = found_names(&search).map_err(Stop::failed)?;
    }
    let mut code = 0;
    for name in &names {
        match sync_cancellable(&search, name)? {
            // All means all that can be: others hold nothing that could be written.
            Err(ChangeError::ReadOnly { .. }) if are_all => {}
            Ok(()) => {}
            Err(error) => {
                not_synced(name, &error).lines().for_each(|line| say_error_line!("{}", visible(line)));
                code = 1;
            }
        }
    }
    Ok(code)
}

fn not_synced(name: &str, error: &ChangeError) -> String {
    match error {
        ChangeError::NoPool => format!("cannot open '{name}': no such pool"),
        error => format!("sync '{name}' failed: {error}"),
    }
}

/// A thread that syncs a pool for somebody who is no administrator. Of a suspended pool it stays when its client has gone.
struct OthersSync(&'static AtomicUsize);

impl OthersSync {
    /// `None`: there are too many already.
    fn begin(count: &'static AtomicUsize) -> Option<OthersSync> {
        let place = OthersSync(count);
        (count.fetch_add(1, Ordering::Relaxed) < OTHERS_SYNCS_MAX).then_some(place)
    }
}

impl Drop for OthersSync {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Syncs a pool. One that is suspended syncs when its devices are back, however long that takes: a client that does
/// not want to wait any longer is let go, and the thread that waits ends with the pool's suspension.
fn sync_cancellable(search: &Search, name: &str) -> Result<Result<(), ChangeError>, Stop> {
    if console::current().is_none() {
        return Ok(sync_pool(search, name));
    }
    let place = if rights::is_administrator() { None } else { Some(OthersSync::begin(&OTHERS_SYNCS)) };
    if let Some(None) = place {
        return Err(Stop::failed(format!("cannot sync '{name}': too many requests")));
    }
    let (told, done) = std::sync::mpsc::channel();
    let (search, name) = (search.clone(), name.to_owned());
    let work = move || {
        let _place = place;
        // Nobody may be listening any more.
        let _ = told.send(sync_pool(&search, &name));
    };
    let thread = std::thread::Builder::new().name("zpool sync".to_owned()).spawn(work);
    thread.map_err(|error| Stop::failed(format!("cannot sync: {error}")))?;
    loop {
        match done.recv_timeout(LOOK) {
            Ok(outcome) => return Ok(outcome),
            Err(RecvTimeoutError::Timeout) if !console::is_cancelled() => {}
            Err(_) => return Err(Stop::Code(1)),
        }
    }
}

/// Does something with each pool, and says what failed. The exit code.
fn each(names: &[String], mut work: impl FnMut(&str) -> Result<(), String>) -> u8 {
    let mut code = 0;
    for name in names {
        if let Err(message) = work(name) {
            message.lines().for_each(|line| say_error_line!("{}", visible(line)));
            code = 1;
        }
    }
    code
}

pub(super) fn labelclear(args: Vec<OsString>) -> Outcome {
    let mut walk = Getopt::new(args, "f", &[]);
    let mut force = false;
    while let Some((letter, _)) = walk.next()? {
        force |= letter == 'f';
    }
    let operands = texts(&walk.operands());
    let [name] = &operands[..] else {
        let why = if operands.is_empty() { "missing vdev name" } else { "too many arguments" };
        return Err(Stop::usage(why));
    };
    let path = if name.starts_with('/') {
        PathBuf::from(name)
    } else {
        let missing =
            || Stop::failed(format!("failed to find device {name}, try specifying absolute path instead"));
        find_device(name).map_err(|_| missing())?.path
    };
    match clear_labels(&crate::search::from_env(), &path, force) {
        Ok(()) => Ok(0),
        Err(error) => {
            error.to_string().lines().for_each(|line| say_error_line!("{}", visible(line)));
            let nothing_there = matches!(error, admin::change::LabelClearError::Clear { .. });
            Err(Stop::Code(if nothing_there { 255 } else { 1 }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_of_others_are_few_and_places_come_back() {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let all: Vec<_> = (0..100).filter_map(|_| OthersSync::begin(&COUNT)).collect();
        assert_eq!(all.len(), OTHERS_SYNCS_MAX);
        drop(all);
        assert!(OthersSync::begin(&COUNT).is_some());
        assert_eq!(COUNT.load(Ordering::Relaxed), 0);
    }
}
