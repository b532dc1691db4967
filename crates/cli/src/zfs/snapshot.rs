//! `zfs snapshot`.

use super::change::{Change, Pairs, open_text};
use super::{complain, mount};
use crate::getopt::Getopt;
use crate::stop::{Outcome, Stop};
use admin::edit::names::{self, Form};
use admin::edit::values::ValueError;
use admin::edit::{self, EditError};
use format::prop;
use std::ffi::OsString;

/// Runs the verb.
pub(super) fn run(args: &[OsString]) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "ro:", &[]);
    let (mut below, mut props) = (false, Pairs::default());
    while let Some((letter, value)) = walk.next()? {
        match letter {
            'r' => below = true,
            _ => props.add(value)?,
        }
    }
    let operands = crate::zpool::texts(&walk.operands());
    if operands.is_empty() {
        return Err(Stop::usage("missing snapshot argument"));
    }
    Change::run("snapshot", args, |change| snapshot(change, &operands, below, &props))
}

fn snapshot(change: &mut Change, operands: &[String], below: bool, props: &Pairs) -> Outcome {
    let mut wanted: Vec<String> = Vec::new();
    for operand in operands {
        for name in expand(change, operand, below)? {
            if !wanted.contains(&name) {
                wanted.push(name);
            }
        }
    }
    check_props(props)?;
    for name in &wanted {
        names::check(name, Form::Snapshot)
            .map_err(|e| Stop::failed(format!("cannot create snapshot '{name}': {e}")))?;
    }
    let nothing = |message: &str| {
        complain(message);
        if wanted.len() > 1 {
            complain("no snapshots were created");
        }
        Ok(1)
    };
    if is_twice(&wanted) {
        return nothing("cannot create snapshots : multiple snapshots of same fs not allowed");
    }
    let Some(first) = wanted.first() else { return Ok(0) };
    let view = change.view(first).map_err(|e| Stop::failed(open_text(first, &e)))?;
    let pool = match change.pool(first) {
        Err(error) if error.is_read_only() => return nothing(&format!("cannot create snapshots : {error}")),
        pool => pool.map_err(|e| Stop::failed(open_text(first, &e)))?,
    };
    let taken: Vec<String> = wanted.iter().filter(|name| view.dataset(name).is_ok()).cloned().collect();
    if let Some((last, others)) = taken.split_last() {
        let text = |name| format!("cannot create snapshot '{name}': dataset already exists");
        others.iter().for_each(|name| complain(&text(name)));
        return nothing(&text(last));
    }
    match edit::snapshot(&pool, &wanted, &props.0) {
        Ok(()) => {
            change.done(first);
            mount::snapshots_changed(&wanted);
            Ok(0)
        }
        // Who may not is not told of names.
        Err(error @ (EditError::Denied | EditError::DelegationOff)) => {
            nothing(&format!("cannot create snapshots : {error}"))
        }
        // A lack of space is the dataset's.
        Err(error @ EditError::NoSpace) if wanted.len() == 1 => {
            let dataset = first.split('@').next().unwrap_or_default();
            nothing(&format!("cannot create snapshot '{dataset}': {error}"))
        }
        Err(error) if wanted.len() == 1 => nothing(&format!("cannot create snapshot '{first}': {error}")),
        Err(error) => nothing(&format!("cannot create snapshots : {error}")),
    }
}

/// The snapshots that an operand asks for.
fn expand(change: &mut Change, operand: &str, below: bool) -> Result<Vec<String>, Stop> {
    // Without a name of a snapshot there is nothing to say but how it is used.
    let (dataset, snapshot) = operand.split_once('@').ok_or_else(|| Stop::usage(""))?;
    // A pool that cannot be changed is no matter of usage.
    let refused = |error: EditError| match error {
        EditError::Open(_) | EditError::Failed(_) => Stop::failed(open_text(dataset, &error)),
        _ => Stop::usage(open_text(dataset, &error)),
    };
    names::check(dataset, Form::Head).map_err(|e| refused(e.into()))?;
    let view = change.view(dataset).map_err(refused)?;
    view.dataset(dataset).map_err(|e| refused(e.into()))?;
    if !below {
        return Ok(vec![operand.to_owned()]);
    }
    let all = edit::with_descendants(&view, dataset).map_err(refused)?;
    Ok(all.iter().map(|name| format!("{name}@{snapshot}")).collect())
}

/// Only user properties are set on snapshots.
fn check_props(props: &Pairs) -> Result<(), Stop> {
    for (name, value) in &props.0 {
        let refused =
            |error: &dyn std::fmt::Display| Stop::failed(format!("cannot create snapshots : {error}"));
        if !prop::is_user(name) {
            return Err(refused(&ValueError::OfSnapshot));
        }
        edit::values::check_user(name, value).map_err(|e| refused(&e))?;
    }
    Ok(())
}

/// Two snapshots of one dataset, or of two pools, cannot be taken at the same moment.
fn is_twice(names: &[String]) -> bool {
    let mut datasets: Vec<&str> = names.iter().filter_map(|n| Some(n.split_once('@')?.0)).collect();
    let pools = datasets.iter().map(|name| edit::pool_of(name)).collect::<std::collections::HashSet<_>>();
    datasets.sort_unstable();
    datasets.windows(2).any(|two| two.first() == two.last()) || pools.len() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_snapshot_of_each_dataset_of_one_pool() {
        let twice = |names: &[&str]| is_twice(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert!(!twice(&["tank/a@1", "tank/b@2"]));
        assert!(twice(&["tank/a@1", "tank/a@2"]));
        assert!(twice(&["tank/a@1", "other@1"]));
    }
}
