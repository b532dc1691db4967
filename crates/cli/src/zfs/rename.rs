//! `zfs rename`.

use super::change::{Change, cannot, cannot_open, unwritable};
use super::mount;
use crate::getopt::Getopt;
use crate::stop::{Outcome, Stop};
use admin::edit::names::{self, Form};
use admin::edit::{self, EditError};
use std::ffi::OsString;

#[derive(Default)]
struct Options {
    parents: bool,
    below: bool,
    unmounted: bool,
}

/// Runs the verb.
pub(super) fn run(args: &[OsString]) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "pruf", &[]);
    let mut options = Options::default();
    while let Some((letter, _)) = walk.next()? {
        match letter {
            'p' => options.parents = true,
            'r' => options.below = true,
            'u' => options.unmounted = true,
            // -f: see `mount::HOW`.
            _ => {}
        }
    }
    let operands = crate::zpool::texts(&walk.operands());
    let (from, to) = match &operands[..] {
        [] => return Err(Stop::usage("missing source dataset argument")),
        [_] => return Err(Stop::usage("missing target dataset argument")),
        [from, to] => (from.as_str(), to.as_str()),
        _ => return Err(Stop::usage("too many arguments")),
    };
    match options {
        Options { below: true, parents: true, .. } => {
            return Err(Stop::usage("-p and -r options are mutually exclusive"));
        }
        Options { below: true, unmounted: true, .. } => {
            return Err(Stop::usage("-u and -r options are mutually exclusive"));
        }
        Options { unmounted: true, parents: true, .. } => {
            return Err(Stop::usage("-u and -p options are mutually exclusive"));
        }
        Options { below: true, .. } if !from.contains('@') => {
            return Err(Stop::usage("source dataset for recursive rename must be a snapshot"));
        }
        _ => {}
    }
    Change::run("rename", args, |change| {
        if from.contains('@') && !options.parents && !options.unmounted {
            snapshot(change, from, to, options.below)
        } else {
            dataset(change, from, to, &options)
        }
    })
}

/// The part of a new name of a snapshot behind the `@`; the dataset before it need not be told.
fn snapshot_name<'t>(from: &str, to: &'t str) -> Result<&'t str, String> {
    let dataset = from.split('@').next().unwrap_or_default();
    let cannot = |why: &dyn std::fmt::Display| format!("cannot rename to '{to}': {why}");
    let (of, short) = to.split_once('@').unwrap_or(("", to));
    if of.is_empty() {
        names::check(&format!("{dataset}@{short}"), Form::Snapshot).map_err(|e| cannot(&e))?;
        return Ok(short);
    }
    names::check(to, Form::Snapshot).map_err(|e| cannot(&e))?;
    if of == dataset { Ok(short) } else { Err(cannot(&"snapshots must be part of same dataset")) }
}

fn snapshot(change: &mut Change, from: &str, to: &str, below: bool) -> Outcome {
    let closed = |error: EditError| cannot_open(from, error);
    names::check(from, Form::Snapshot).map_err(|e| closed(e.into()))?;
    let view = change.view(from).map_err(closed)?;
    view.dataset(from).map_err(|e| closed(e.into()))?;
    let short = snapshot_name(from, to).map_err(Stop::failed)?;
    if from.split_once('@').is_some_and(|(_, old)| old == short) {
        return Ok(0);
    }
    let pool = change.pool(from).map_err(|e| unwritable(from, e, |error| cannot("rename", from, &error)))?;
    edit::rename_snapshot(&pool, from, short, below).map_err(|error| match error {
        EditError::Exists { .. } if below => Stop::failed(format!(
            "cannot rename '{from}': a child dataset already has a snapshot with the new name"
        )),
        other => cannot("rename", from, &other),
    })?;
    change.done(from);
    let renamed = if below {
        edit::with_descendants(&view, from.split('@').next().unwrap_or(from))
    } else {
        Ok(Vec::new())
    };
    let mut renamed: Vec<String> =
        renamed.unwrap_or_default().iter().map(|name| format!("{name}@")).collect();
    renamed.push(from.to_owned());
    mount::snapshots_changed(&renamed);
    Ok(0)
}

fn dataset(change: &mut Change, from: &str, to: &str, options: &Options) -> Outcome {
    let closed = |error: EditError| cannot_open(from, error);
    names::check(from, Form::Head).map_err(|e| closed(e.into()))?;
    let view = change.view(from).map_err(closed)?;
    view.dataset(from).map_err(|e| closed(e.into()))?;
    if from == to {
        return Ok(0);
    }
    let bad = |why: &dyn std::fmt::Display| Stop::failed(format!("cannot rename to '{to}': {why}"));
    names::check(to, Form::Head).map_err(|e| bad(&e))?;
    let refused = |error: EditError| cannot("create", to, &error);
    names::check_new(to).map_err(|e| refused(e.into()))?;
    // Of a pool that is read-only it is told below, of the old name.
    change.view(to).map_err(refused)?;
    if edit::pool_of(from) != edit::pool_of(to) {
        return Err(bad(&"datasets must be within same pool"));
    }
    if to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
        return Err(bad(&"New dataset name cannot be a descendant of current dataset name"));
    }
    if !from.contains('/') {
        return Err(Stop::failed(format!("cannot rename '{from}': operation does not apply to pools")));
    }
    let pool = change.pool(from).map_err(|e| unwritable(from, e, |error| cannot("rename", from, &error)))?;
    if options.parents {
        let made = edit::create_ancestors(&pool, to).map_err(refused)?;
        if !made.is_empty() {
            change.done(from);
            mount::made(&made);
        }
    }
    let mounting = mount::mounting();
    let pending =
        mounting.as_ref().map(|mounting| mounting.before_rename(from, options.unmounted, mount::HOW));
    let pending = pending.transpose().map_err(|refusal| Stop::failed(refusal.to_string()))?;
    let renamed = edit::rename(&pool, from, to);
    let mut refusals = Vec::new();
    if let (Some(mounting), Some(pending)) = (&mounting, pending) {
        refusals = mounting.after_rename(pending, if renamed.is_ok() { to } else { from });
    }
    renamed.map_err(|error| match error {
        // What is wrong with the place is told of the new name.
        EditError::NoParent { .. } | EditError::ParentNotFilesystem { .. } => refused(error),
        EditError::Refused(ref cause) if edit::is_bad_name(cause) => {
            Stop::failed(format!("cannot rename '{from}': dataset name is too long"))
        }
        other => cannot("rename", from, &other),
    })?;
    change.done(from);
    Ok(mount::outcome(&refusals))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_names_of_snapshots() {
        for (to, expected) in [
            ("tank/fs@q", Ok("q")),
            ("@q", Ok("q")),
            ("q", Ok("q")),
            ("tank/fs@x/y", Err("cannot rename to 'tank/fs@x/y': trailing slash in name")),
            ("tank/cl@s", Err("cannot rename to 'tank/cl@s': snapshots must be part of same dataset")),
        ] {
            assert_eq!(snapshot_name("tank/fs@s", to), expected.map_err(str::to_owned), "{to}");
        }
    }
}
