//! `zfs mount` and `zfs unmount`.

use super::complain;
use crate::getopt::{Getopt, Long};
use crate::keys;
use crate::out::Out;
use crate::rights::{self, Right};
use crate::stop::{Outcome, Stop};
use admin::mounting::{MountRefusal, MountRequest, Mounting};
use admin::{OpenPool, Unmount, open_pools, pool_io};
use serde_json::{Map, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The mounts that commands are about; without a daemon nothing can be mounted.
pub(crate) fn mounting() -> Option<Mounting> {
    Mounting::of(&crate::search::from_env())
}

fn needed(verb: &str) -> Result<Mounting, Stop> {
    mounting().ok_or_else(|| {
        Stop::failed(format!("cannot {verb}: mounts need the daemon (unset CENOTE_DIRECT to use it)"))
    })
}

/// Says what is not mounted or unmounted, and why.
pub(super) fn tell(refusal: &MountRefusal) {
    refusal.to_string().lines().for_each(complain);
}

fn refused(refusal: &MountRefusal) -> Stop {
    Stop::failed(refusal)
}

/// Says what went wrong; the exit code.
pub(super) fn outcome(refusals: &[MountRefusal]) -> u8 {
    refusals.iter().for_each(tell);
    u8::from(!refusals.is_empty())
}

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
    request: MountRequest,
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
            'O' => options.request.overlay = true,
            'o' => options.request.options.push(value.unwrap_or_default().to_string_lossy().into_owned()),
            'l' => options.load_keys = true,
            // Mounts that are forced are no different here.
            _ => {}
        }
    }
    if options.json && options.all {
        return Err(Stop::usage("the -j and -a options are mutually exclusive"));
    }
    let operands = crate::zpool::texts(&walk.operands());
    match (&operands[..], options.all, options.below) {
        ([], true, _) => Ok(mount_all(&needed("mount")?, None, &options, out)),
        ([_, ..], true, _) => Err(Stop::usage("too many arguments")),
        ([], false, true) => Err(Stop::usage("missing dataset argument")),
        ([], false, false) => {
            list(&options, out);
            Ok(0)
        }
        (names, false, true) => {
            let mounting = needed("mount")?;
            for name in names {
                // The real tool adds its usage here.
                mounting.place(name).map_err(|refusal| Stop::usage(refusal.to_string()))?;
            }
            Ok(names.iter().fold(0, |code, name| code | mount_all(&mounting, Some(name), &options, out)))
        }
        ([name], false, false) => {
            let mounting = needed("mount")?;
            match &options.on {
                Some(at) => mount_at(&mounting, name, at, &options),
                None => mount_one(&mounting, name, &options),
            }
        }
        _ => Err(Stop::usage("too many arguments")),
    }
}

/// Mounts one where it belongs. Its key is loaded once nothing else is in the way.
fn mount_one(mounting: &Mounting, name: &str, options: &Options) -> Outcome {
    let done = match mounting.mount(name, &options.request) {
        Err(refusal) if refusal.is_locked() && options.load_keys => {
            let wanted = mounting.wanted_key(name).map_err(|refusal| refused(&refusal))?;
            match keys::load(mounting, wanted.as_slice()) {
                0 => mounting.mount(name, &options.request),
                code => return Ok(code),
            }
        }
        done => done,
    };
    done.map(|()| 0).map_err(|refusal| refused(&refusal))
}

/// Mounts all, or all below a dataset; with `-v` a terminal shows how far it is, as OpenZFS does. The exit code.
fn mount_all(mounting: &Mounting, below: Option<&str>, options: &Options, out: &Out) -> u8 {
    let code = match options.load_keys {
        true => keys::load(mounting, &mounting.wanted_keys(below)),
        false => 0,
    };
    let is_shown = options.verbose && out.is_terminal();
    let mut shown = Instant::now();
    let refusals = mounting.mount_all_telling(below, &options.request, &mut |index, total| {
        if !is_shown {
            return;
        }
        if index == 1 {
            out.print("Mounting ZFS filesystems: ");
        }
        let how_far = format!("({index}/{total})");
        if index == total {
            out.print(&format!("{how_far}\n"));
        } else if shown.elapsed() >= TELL_EVERY {
            shown = Instant::now();
            // The next one overwrites it.
            out.print(&format!("{how_far}{}", "\u{8}".repeat(how_far.len())));
        }
    });
    code | outcome(&refusals)
}

/// For `mount(8)`: a file system, or the root of the pool that a device belongs to.
fn mount_at(mounting: &Mounting, source: &str, at: &Path, options: &Options) -> Outcome {
    // The place is named by whoever asks, not by the dataset.
    rights::check(Right::Administrator, || format!("cannot mount '{source}': permission denied"))?;
    let name = match source.starts_with('/') {
        true => {
            pool_with(source).ok_or_else(|| Stop::failed(format!("'{source}' is in no imported pool")))?
        }
        false => source.to_owned(),
    };
    let done = match options.fake {
        true => mounting.place(&name).map(drop),
        false => mounting.mount_at(&name, at, &options.request.options),
    };
    done.map(|()| 0).map_err(|refusal| refused(&refusal))
}

/// The imported pool that has a device.
fn pool_with(device: &str) -> Option<String> {
    let (pools, _) = open_pools(&crate::search::from_env(), &[]);
    let has_it = |pool: &&OpenPool| {
        pool_io(pool).is_ok_and(|io| io.vdevs.root.walk().iter().any(|v| v.path.as_deref() == Some(device)))
    };
    pools.iter().find(has_it).map(|pool| pool.name().to_owned())
}

fn list(options: &Options, out: &Out) {
    let mounts = mounting().map(|mounting| mounting.list()).unwrap_or_default();
    if options.json {
        let mut all = Map::new();
        for mount in mounts {
            let at = mount.at.to_string_lossy().into_owned();
            let object = json!({"filesystem": mount.dataset, "mountpoint": at});
            all.insert(mount.dataset, object);
        }
        return out.print(&crate::zpool::json_answer("zfs mount", "datasets", all));
    }
    for mount in mounts {
        let at = mount.at.to_string_lossy().into_owned();
        out.print(&format!("{:<30}  {}\n", mount.dataset, out.cell(&at)));
    }
}

/// Runs `zfs unmount`.
pub(super) fn unmount(args: Vec<OsString>) -> Outcome {
    let mut walk = Getopt::new(args, "afu", &[]);
    let mut all = false;
    while let Some((letter, _)) = walk.next()? {
        // Keys are unloaded with the last who needs them; for -f see [`HOW`].
        all |= letter == 'a';
    }
    let operands = crate::zpool::texts(&walk.operands());
    match (&operands[..], all) {
        ([], true) => Ok(outcome(&needed("unmount")?.unmount_all(None, false, HOW))),
        ([_, ..], true) => Err(Stop::usage("too many arguments")),
        ([], false) => Err(Stop::usage("missing filesystem argument")),
        ([one], false) => {
            let mounting = needed("unmount")?;
            let done = match one.starts_with('/') {
                true => mounting.unmount_path(Path::new(one), HOW),
                false => mounting.unmount(one, HOW),
            };
            done.map(|()| 0).map_err(|refusal| refused(&refusal))
        }
        _ => Err(Stop::usage("too many arguments")),
    }
}

/// How commands unmount, with `-f` or without: what is in use stays, as it does on Linux.
pub(crate) const HOW: Unmount = Unmount::Normal;

/// Says where a file system is mounted whose mount point, which was just set, only root mounts on.
pub(crate) fn tell_elsewhere(dataset: &str, wanted: &str, out: &Out) {
    let at = mounting().filter(|_| wanted.starts_with('/')).and_then(|mounting| mounting.elsewhere(dataset));
    at.iter().for_each(|at| print_elsewhere(dataset, at, wanted, out));
}

/// Says that a file system is mounted on `at`, not on its mount point.
pub(crate) fn print_elsewhere(dataset: &str, at: &Path, wanted: &str, out: &Out) {
    let (at, dataset) = (at.to_string_lossy(), out.cell(dataset));
    let (at, wanted) = (out.cell(&at), out.cell(wanted));
    out.print(&format!("{dataset} is mounted on {at}: only root mounts on {wanted}\n"));
}
