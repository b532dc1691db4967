//! `zpool version`, `zfs version`.

use crate::getopt::{Getopt, Long};
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::usage::Tool;
use serde_json::json;
use std::ffi::OsString;

/// The version of OpenZFS whose formats, options and texts these commands follow, then the version of Cenote.
/// There is no kernel module, so both lines of the output show the same.
fn userland() -> String {
    format!("zfs-2.3.2-cenote-{}", env!("CARGO_PKG_VERSION"))
}

fn kernel() -> String {
    format!("zfs-kmod-2.3.2-cenote-{}", env!("CARGO_PKG_VERSION"))
}

const LONG: &[Long] = &[Long::flag("json", 'j')];

/// Runs the subcommand.
pub(crate) fn run(tool: Tool, args: Vec<OsString>, out: &Out) -> Outcome {
    let mut walk = Getopt::new(args, "j", LONG);
    let mut as_json = false;
    while walk.next()?.is_some() {
        as_json = true;
    }
    if !walk.operands().is_empty() {
        return Err(Stop::usage("too many arguments"));
    }
    if as_json {
        let version =
            json!({"command": format!("{} version", tool.name()), "vers_major": 0, "vers_minor": 1});
        let both = json!({"userland": userland(), "kernel": kernel()});
        out.print(&format!("{}\n", json!({"output_version": version, "zfs_version": both})));
    } else {
        out.print(&format!("{}\n{}\n", userland(), kernel()));
    }
    Ok(0)
}
