//! `zfs mount` and `zfs unmount`.

use super::{complain, is_path};
use crate::getopt::{Getopt, Long};
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use cenote::admin::Unmount;
use cenote::admin::mounting::{MountRefusal, MountRequest, Mounting};
use serde_json::{Map, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The mounts that commands are about; without a daemon nothing can be mounted.
pub(super) fn mounting() -> Option<Mounting> {
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
    request: MountRequest,
}

/// Runs `zfs mount`.
pub(super) fn mount(args: Vec<OsString>, out: &Out) -> Outcome {
    let mut walk = Getopt::new(args, "ajRlvo:Of", &[Long::flag("json", 'j')]);
    let mut options = Options::default();
    while let Some((letter, value)) = walk.next()? {
        match letter {
            'a' => options.all = true,
            'R' => options.below = true,
            'j' => options.json = true,
            'O' => options.request.overlay = true,
            'o' => options.request.options.push(value.unwrap_or_default().to_string_lossy().into_owned()),
            // Keys of encrypted file systems, progress, and mounts that are forced although they are no
            // different here.
            _ => {}
        }
    }
    if options.json && options.all {
        return Err(Stop::usage("the -j and -a options are mutually exclusive"));
    }
    let operands = crate::zpool::texts(&walk.operands());
    match (&operands[..], options.all, options.below) {
        ([], true, _) => Ok(outcome(&needed("mount")?.mount_all(None, &options.request))),
        ([_, ..], true, _) => Err(Stop::usage("too many arguments")),
        ([], false, true) => Err(Stop::usage("missing dataset argument")),
        ([], false, false) => {
            list(&options, out);
            Ok(0)
        }
        ([name], false, true) => {
            let mounting = needed("mount")?;
            // The real tool adds its usage here.
            mounting.place(name).map_err(|refusal| Stop::usage(refusal.to_string()))?;
            Ok(outcome(&mounting.mount_all(Some(name), &options.request)))
        }
        ([name], false, false) => {
            let done = needed("mount")?.mount(name, &options.request);
            done.map(|()| 0).map_err(|refusal| refused(&refusal))
        }
        _ => Err(Stop::usage("too many arguments")),
    }
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
    let (mut all, mut how) = (false, Unmount::Normal);
    while let Some((letter, _)) = walk.next()? {
        match letter {
            'a' => all = true,
            'f' => how = Unmount::Force,
            // Keys are unloaded with the last who needs them.
            _ => {}
        }
    }
    let operands = crate::zpool::texts(&walk.operands());
    match (&operands[..], all) {
        ([], true) => Ok(outcome(&needed("unmount")?.unmount_all(None, false, how))),
        ([_, ..], true) => Err(Stop::usage("too many arguments")),
        ([], false) => Err(Stop::usage("missing filesystem argument")),
        ([one], false) => {
            let mounting = needed("unmount")?;
            let done = match is_path(one) {
                true => mounting.unmount_path(Path::new(one), how),
                false => mounting.unmount(one, how),
            };
            done.map(|()| 0).map_err(|refusal| refused(&refusal))
        }
        _ => Err(Stop::usage("too many arguments")),
    }
}

/// Removes folders of mount points when what was mounted there has gone.
pub(super) fn swept(mounting: Option<&Mounting>, folders: &[PathBuf]) {
    if let Some(mounting) = mounting {
        mounting.after_destroy(folders);
    }
}
