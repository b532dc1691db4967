//! `zfs rollback`.

use super::change::{Change, cannot, cannot_open, tell_partly, unwritable, with_list};
use super::{complain, mount};
use crate::getopt::Getopt;
use crate::stop::{Outcome, Stop};
use admin::edit::names::{self, Form};
use admin::edit::{self, EditError, Newer, Partly};
use admin::mounting::{MountRefusal, Replacing};
use std::ffi::OsString;

/// Runs the verb.
pub(super) fn run(args: &[OsString]) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "rRf", &[]);
    let (mut points, mut clones) = (false, false);
    while let Some((letter, _)) = walk.next()? {
        match letter {
            'r' => points = true,
            'R' => (points, clones) = (true, true),
            // -f: see `mount::HOW`.
            _ => {}
        }
    }
    let operands = crate::zpool::texts(&walk.operands());
    let name = match &operands[..] {
        [] => return Err(Stop::usage("missing dataset argument")),
        [one] => one,
        _ => return Err(Stop::usage("too many arguments")),
    };
    Change::run("rollback", args, |change| rollback(change, name, points, clones))
}

fn rollback(change: &mut Change, name: &str, points: bool, clones: bool) -> Outcome {
    let refused = |error: EditError| cannot_open(name, error);
    names::check(name, Form::Snapshot).map_err(|e| refused(e.into()))?;
    let view = change.view(name).map_err(refused)?;
    let newer = edit::newer_than(&view, name).map_err(refused)?;
    if let Some(message) = refusal(name, &newer, points, clones) {
        return Err(Stop::failed(message));
    }
    let pool = change.pool(name).map_err(|e| {
        unwritable(name, e, |error| match newer.points().chain(&newer.clones).next() {
            Some(newer) => cannot("destroy", newer, &error),
            None => cannot("rollback", name.split('@').next().unwrap_or(name), &error),
        })
    })?;
    let mounting = mount::mounting();
    let dataset = name.split('@').next().unwrap_or(name);
    let told = |refusal: MountRefusal| Stop::failed(refusal.to_string());
    if let Some(mounting) = &mounting {
        mounting.before_destroy(&newer.clones, mount::HOW).map_err(told)?;
    }
    let outcome = match edit::prepare_rollback(&pool, name, &newer) {
        Err(partly) => Err(partly),
        Ok(prepared) => {
            let replacing = mounting.as_ref().map(|mounting| mounting.before_replace(dataset));
            let mut replacing = replacing.transpose().map_err(told)?;
            prepared.run(|| replacing.iter_mut().for_each(Replacing::replaced))
        }
    };
    if outcome.as_ref().err().is_none_or(|partly| !partly.done.is_empty()) {
        change.done(name);
    }
    Ok(outcome.map_or_else(|partly| failed(name, &partly), |()| 0))
}

/// Why more than the going back would have to be asked for.
fn refusal(name: &str, newer: &Newer, points: bool, clones: bool) -> Option<String> {
    let all: Vec<String> = newer.points().cloned().collect();
    if !points && !all.is_empty() {
        return Some(with_list(
            &format!("cannot rollback to '{name}': more recent snapshots or bookmarks exist"),
            "use '-r' to force deletion of the following snapshots and bookmarks:",
            &all,
        ));
    }
    (!clones && !newer.clones.is_empty()).then(|| {
        with_list(
            &format!("cannot rollback to '{name}': clones of previous snapshots exist"),
            "use '-R' to force deletion of the following clones and dependents:",
            &newer.clones,
        )
    })
}

fn failed(name: &str, partly: &Partly) -> u8 {
    match &partly.error {
        EditError::Refused(error) if edit::is_held(error) => {
            let held = edit::about(error).unwrap_or(name);
            complain(&format!("cannot destroy '{held}': dataset is busy"));
        }
        error => complain(&format!("cannot rollback '{}': {error}", name.split('@').next().unwrap_or(name))),
    }
    tell_partly("destroyed", &partly.done, &partly.left);
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_newer_is_named() {
        let newer = Newer {
            snapshots: vec!["tank/fs@6".into(), "tank/fs@7".into()],
            bookmarks: vec![],
            clones: vec!["tank/c".into()],
        };
        assert_eq!(
            refusal("tank/fs@5", &newer, false, false).expect("refused"),
            "cannot rollback to 'tank/fs@5': more recent snapshots or bookmarks exist\n\
             use '-r' to force deletion of the following snapshots and bookmarks:\ntank/fs@6\ntank/fs@7"
        );
        assert!(refusal("tank/fs@5", &newer, true, false).expect("refused").ends_with("tank/c"));
        assert_eq!(refusal("tank/fs@5", &newer, true, true), None);
    }
}
