//! `zpool destroy`, `export`, `sync`, `labelclear`.

use super::{in_session, texts};
use crate::console;
use crate::getopt::Getopt;
use crate::out::visible;
use crate::rights;
use crate::stop::{Outcome, Stop};
use admin::change::LabelClearError;
use admin::verbs::zpool;
use admin::verbs::zpool::labelclear;
use admin::{Search, Session};
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

pub(super) fn destroy(args: &[OsString]) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "f", &[]);
    while walk.next()?.is_some() {}
    let operands = texts(&walk.operands());
    let [pool] = &operands[..] else {
        let why = if operands.is_empty() { "missing pool argument" } else { "too many arguments" };
        return Err(Stop::usage(why));
    };
    let request = zpool::destroy::Request { pool: pool.clone() };
    in_session("destroy", args, |session| session.run(&request).map(|()| 0).map_err(Stop::failed))
}

pub(super) fn export(args: &[OsString]) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "afF", &[]);
    let (mut all, mut force) = (false, false);
    while let Some((letter, _)) = walk.next()? {
        all |= letter == 'a';
        force |= letter == 'f';
    }
    let mut names = texts(&walk.operands());
    if all {
        if !names.is_empty() {
            return Err(Stop::usage("too many arguments"));
        }
        names = super::reading().imported_names().map_err(Stop::failed)?;
    } else if names.is_empty() {
        return Err(Stop::usage("missing pool argument"));
    }
    in_session("export", args, |session| {
        Ok(super::each(&names, |name| session.run(&zpool::export::Request { pool: name.to_owned(), force })))
    })
}

pub(super) fn sync(args: Vec<OsString>) -> Outcome {
    let mut walk = Getopt::new(args, "f", &[]);
    while walk.next()?.is_some() {}
    let search = crate::search::from_env();
    let mut names = texts(&walk.operands());
    let are_all = names.is_empty();
    if are_all {
        names = Session::new(search.clone()).found_names().map_err(Stop::failed)?;
    }
    let mut code = 0;
    for name in names {
        // All means all that can be changed.
        let request = zpool::sync::Request { pool: name, unless_read_only: are_all };
        if let Err(refusal) = sync_cancellable(&search, request)? {
            refusal.to_string().lines().for_each(|line| say_error_line!("{}", visible(line)));
            code = 1;
        }
    }
    Ok(code)
}

/// A thread that syncs a pool for a user who is no administrator. Of a suspended pool it stays when its client has
/// gone.
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
fn sync_cancellable(
    search: &Search,
    request: zpool::sync::Request,
) -> Result<Result<(), zpool::Refusal>, Stop> {
    let sync = |search: Search, request| Session::new(search).run(&request);
    if console::current().is_none() {
        return Ok(sync(search.clone(), request));
    }
    let place = if rights::is_administrator() { None } else { Some(OthersSync::begin(&OTHERS_SYNCS)) };
    if let Some(None) = place {
        return Err(Stop::failed(format!("cannot sync '{}': too many requests", request.pool)));
    }
    let (told, done) = std::sync::mpsc::channel();
    let search = search.clone();
    let work = move || {
        let _place = place;
        // The client may have gone.
        let _ = told.send(sync(search, request));
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
    let request = labelclear::Request { device: PathBuf::from(name), force };
    match Session::new(crate::search::from_env()).run(&request) {
        Ok(()) => Ok(0),
        Err(refusal @ (labelclear::Refusal::NoDevice { .. } | labelclear::Refusal::Denied(_))) => {
            Err(Stop::failed(refusal))
        }
        Err(refusal) => {
            refusal.to_string().lines().for_each(|line| say_error_line!("{}", visible(line)));
            let nothing_there = matches!(refusal, labelclear::Refusal::Kept(LabelClearError::Clear { .. }));
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
