//! `zfs mount` and `zfs unmount`.

use super::{complain_all, reading};
use crate::getopt::{Getopt, Long};
use crate::keys;
use crate::mounts::mounting;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use admin::verbs::zfs::mount::{Refusal, Request, Target};
use admin::verbs::zfs::{mounted, unmount};
use serde_json::{Map, json};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Default)]
struct Options {
    all: bool,
    below: bool,
    json: bool,
    /// `-v`: progress of `-a` and `-R`.
    verbose: bool,
    /// `-l`: keys that are missing are loaded first.
    load_keys: bool,
    /// Where `mount(8)` says.
    on: Option<PathBuf>,
    /// Only whether it could be.
    fake: bool,
    /// `-O`.
    overlay: bool,
    /// `-f`.
    force: bool,
    /// `-o`, in order.
    words: Vec<String>,
}

impl Options {
    fn request(&self, target: Target) -> Request {
        let options = self.words.clone();
        Request { target, overlay: self.overlay, force: self.force, options, check_only: self.fake }
    }
}

/// How often progress is shown.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// `--on` and `--fake`, for [`super::mount_helper`].
const ON: char = '\u{1}';
const FAKE: char = '\u{2}';

/// Runs `zfs mount`.
pub(super) fn mount(args: Vec<OsString>, out: &Out) -> Outcome {
    const LONG: [Long; 3] =
        [Long::flag("json", 'j'), Long { name: "on", letter: ON, value: true }, Long::flag("fake", FAKE)];
    let mut walk = Getopt::new(args, "ajRlvo:Of", &LONG);
    let mut options = Options::default();
    while let Some((letter, value)) = walk.next()? {
        match letter {
            'a' => options.all = true,
            'R' => options.below = true,
            'j' => options.json = true,
            ON => options.on = value.map(PathBuf::from),
            FAKE => options.fake = true,
            'v' => options.verbose = true,
            'O' => options.overlay = true,
            'o' => options.words.push(value.unwrap_or_default().to_string_lossy().into_owned()),
            'l' => options.load_keys = true,
            _ => options.force = true,
        }
    }
    if options.json && options.all {
        return Err(Stop::usage("the -j and -a options are mutually exclusive"));
    }
    let operands = crate::zpool::texts(&walk.operands());
    match (&operands[..], options.all, options.below) {
        ([], true, _) => mount_all(Target::All, &options, out),
        ([_, ..], true, _) => Err(Stop::usage("too many arguments")),
        ([], false, true) => Err(Stop::usage("missing dataset argument")),
        ([], false, false) => {
            list(&options, out)?;
            Ok(0)
        }
        (names, false, true) => {
            for name in names {
                let request = Request { check_only: true, ..Request::of(Target::Below(name.clone())) };
                // The real tool adds its usage here.
                reading().run(&request).map_err(|refusal| match refusal {
                    Refusal::Mount(refusal) => Stop::usage(refusal.to_string()),
                    other => Stop::failed(other),
                })?;
            }
            let mut code = 0;
            for name in names {
                code |= mount_all(Target::Below(name.clone()), &options, out)?;
            }
            Ok(code)
        }
        ([name], false, false) => match options.on.clone() {
            Some(directory) => mount_at(name, directory, &options),
            None => mount_one(name, &options),
        },
        _ => Err(Stop::usage("too many arguments")),
    }
}

/// Mounts one where it belongs. Its key is loaded once nothing else is in the way.
fn mount_one(name: &str, options: &Options) -> Outcome {
    let request = Request { check_only: false, ..options.request(Target::One(name.to_owned())) };
    let done = match (reading().run(&request), mounting()) {
        (Err(refusal), Some(mounting)) if refusal.is_locked() && options.load_keys => {
            let wanted = mounting.wanted_key(name).map_err(Stop::failed)?;
            match keys::load(&mounting, wanted.as_slice()) {
                0 => reading().run(&request),
                code => return Ok(code),
            }
        }
        (done, _) => done,
    };
    done.map(|_| 0).map_err(Stop::failed)
}

/// Mounts all, or all below a dataset; with `-v` a terminal shows how far it is, as OpenZFS does. The exit code.
fn mount_all(target: Target, options: &Options, out: &Out) -> Outcome {
    let below = match &target {
        Target::Below(name) => Some(name.as_str()),
        _ => None,
    };
    let code = match mounting().filter(|_| options.load_keys) {
        Some(mounting) => keys::load(&mounting, &mounting.wanted_keys(below)),
        None => 0,
    };
    let mut session = reading();
    if options.verbose && out.is_terminal() {
        session.on_progress(Box::new(show_progress()));
    }
    let request = Request { check_only: false, ..options.request(target) };
    let answer = session.run(&request).map_err(Stop::failed)?;
    complain_all(&answer.not_mounted);
    Ok(code | u8::from(!answer.not_mounted.is_empty()))
}

/// Shows how many file systems have been mounted.
fn show_progress() -> impl FnMut(usize, usize) {
    let (out, mut shown) = (Out::new(), Instant::now());
    move |index, total| {
        if index == 1 {
            out.print("Mounting ZFS filesystems: ");
        }
        let position = format!("({index}/{total})");
        if index == total {
            out.print(&format!("{position}\n"));
        } else if shown.elapsed() >= TELL_EVERY {
            shown = Instant::now();
            // The next one overwrites it.
            out.print(&format!("{position}{}", "\u{8}".repeat(position.len())));
        }
    }
}

/// For `mount(8)`: a file system, or the root of the pool that a device belongs to.
fn mount_at(source: &str, directory: PathBuf, options: &Options) -> Outcome {
    let request = options.request(Target::At { source: source.to_owned(), directory });
    reading().run(&request).map(|_| 0).map_err(Stop::failed)
}

fn list(options: &Options, out: &Out) -> Result<(), Stop> {
    let mounts = reading().run(&mounted::Request {}).map_err(Stop::failed)?.mounts;
    if options.json {
        let mut all = Map::new();
        for mount in mounts {
            let at = mount.at.to_string_lossy().into_owned();
            let object = json!({"filesystem": mount.dataset, "mountpoint": at});
            all.insert(mount.dataset, object);
        }
        out.print(&crate::zpool::json_answer("zfs mount", "datasets", all));
        return Ok(());
    }
    for mount in mounts {
        let at = mount.at.to_string_lossy().into_owned();
        out.print(&format!("{:<30}  {}\n", mount.dataset, out.cell(&at)));
    }
    Ok(())
}

/// Runs `zfs unmount`.
pub(super) fn unmount(args: Vec<OsString>) -> Outcome {
    let mut walk = Getopt::new(args, "afu", &[]);
    let mut all = false;
    while let Some((letter, _)) = walk.next()? {
        // Keys are unloaded with the last who needs them; -f changes nothing (see `admin::verbs::zfs::UNMOUNT`).
        all |= letter == 'a';
    }
    let operands = crate::zpool::texts(&walk.operands());
    let request = match (&operands[..], all) {
        ([], true) => unmount::Request::All,
        ([_, ..], true) => return Err(Stop::usage("too many arguments")),
        ([], false) => return Err(Stop::usage("missing filesystem argument")),
        ([one], false) if one.starts_with('/') => unmount::Request::Directory(PathBuf::from(one)),
        ([one], false) => unmount::Request::Dataset(one.clone()),
        _ => return Err(Stop::usage("too many arguments")),
    };
    let answer = reading().run(&request).map_err(Stop::failed)?;
    complain_all(&answer.still_mounted);
    Ok(u8::from(!answer.still_mounted.is_empty()))
}
