//! `zfs clone` and `zfs promote`.

use super::change::{Change, Pairs, cannot, cannot_open, unwritable, warn_small_blocks};
use super::mount;
use crate::getopt::Getopt;
use crate::stop::{Outcome, Stop};
use admin::edit::names::{self, Form};
use admin::edit::{self, CloneSpec, EditError};
use std::ffi::OsString;

/// Runs `zfs clone`.
pub(super) fn run(args: &[OsString]) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "o:pu", &[]);
    let (mut parents, mut stays, mut props) = (false, false, Pairs::default());
    while let Some((letter, value)) = walk.next()? {
        match letter {
            'p' => parents = true,
            'u' => stays = true,
            _ => props.add(value)?,
        }
    }
    let operands = crate::zpool::texts(&walk.operands());
    let (origin, name) = match &operands[..] {
        [] => return Err(Stop::usage("missing source dataset argument")),
        [_] => return Err(Stop::usage("missing target dataset argument")),
        [origin, name] => (origin.clone(), name.clone()),
        _ => return Err(Stop::usage("too many arguments")),
    };
    Change::run("clone", args, |change| clone(change, origin, name, parents, stays, props))
}

fn clone(
    change: &mut Change,
    origin: String,
    name: String,
    parents: bool,
    stays: bool,
    props: Pairs,
) -> Outcome {
    let closed = |error: EditError| cannot_open(&origin, error);
    names::check(&origin, Form::Snapshot).map_err(|e| closed(e.into()))?;
    let view = change.view(&origin).map_err(closed)?;
    let is_volume = view.dataset(&origin).map_err(|e| closed(e.into()))?.dsl().is_volume().unwrap_or(false);
    let refused = |error: EditError| cannot("create", &name, &error);
    if parents && name.contains('/') && view.dataset(&name).is_ok() {
        return Ok(0);
    }
    names::check_new(&name).map_err(|e| refused(e.into()))?;
    let pool = change.pool(&name).map_err(refused)?;
    if edit::pool_of(&name) != edit::pool_of(&origin) {
        return Err(Stop::failed(format!("cannot create '{name}': source and target pools differ")));
    }
    warn_small_blocks(&props, &view);
    if parents {
        let made = edit::create_ancestors(&pool, &name).map_err(refused)?;
        if !made.is_empty() {
            change.done(&name);
            mount::made(&made);
        }
    }
    let spec = CloneSpec { origin, name, props: props.0 };
    edit::clone(&pool, &spec).map_err(|e| cannot("create", &spec.name, &e))?;
    change.done(&spec.name);
    // Volumes are not mounted.
    Ok(if stays || is_volume { 0 } else { mount::made(&[spec.name]) })
}

/// Runs `zfs promote`.
pub(super) fn promote(args: &[OsString]) -> Outcome {
    let walk = no_options(args.to_vec())?;
    let operands = crate::zpool::texts(&walk);
    let name = match &operands[..] {
        [] => return Err(Stop::usage("missing clone filesystem argument")),
        [one] => one,
        _ => return Err(Stop::usage("too many arguments")),
    };
    Change::run("promote", args, |change| {
        let closed = |error: EditError| cannot_open(name, error);
        names::check(name, Form::Head).map_err(|e| closed(e.into()))?;
        let view = change.view(name).map_err(closed)?;
        let origin = view.dataset(name).map_err(|e| closed(e.into()))?.dsl().dir().origin();
        if !matches!(origin, Ok(Some(_))) {
            return Err(Stop::failed(format!("cannot promote '{name}': not a cloned filesystem")));
        }
        let pool =
            change.pool(name).map_err(|e| unwritable(name, e, |error| cannot("promote", name, &error)))?;
        edit::promote(&pool, name).map_err(|error| match error {
            EditError::Exists { name: taken } => {
                let origin = origin.ok().flatten();
                let parent = origin.map_or_else(String::new, |origin| origin.name().to_owned());
                let snapshot = taken.split('@').next_back().unwrap_or_default();
                Stop::failed(format!(
                    "cannot promote '{name}': conflicting snapshot '{snapshot}' from parent '{parent}'"
                ))
            }
            other => cannot("promote", name, &other),
        })?;
        change.done(name);
        // Snapshots have moved from one to the other.
        if let (Some(mounting), Ok(view)) = (mount::mounting(), change.view(name)) {
            let all = edit::with_descendants(&view, edit::pool_of(name)).unwrap_or_default();
            mounting.after_snapshots(
                all.iter().map(|name| format!("{name}@")).collect::<Vec<_>>().iter().map(String::as_str),
            );
        }
        Ok(0)
    })
}

/// The operands of a verb that has no options.
pub(super) fn no_options(args: Vec<OsString>) -> Result<Vec<OsString>, Stop> {
    let mut walk = Getopt::new(args, "", &[]);
    while walk.next()?.is_some() {}
    Ok(walk.operands())
}
