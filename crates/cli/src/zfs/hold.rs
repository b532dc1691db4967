//! `zfs hold` and `zfs release`.

use super::change::{Change, cannot_open};
use super::complain;
use crate::getopt::Getopt;
use crate::stop::{Outcome, Stop};
use cenote::admin::edit::names::{self, Form};
use cenote::admin::edit::{self, EditError};
use std::collections::BTreeMap;
use std::ffi::OsString;

/// Which of the two verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// `hold`.
    Hold,
    /// `release`.
    Release,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Verb::Hold => "hold",
            Verb::Release => "release",
        }
    }

    fn text(self, name: &str, error: &dyn std::fmt::Display) -> String {
        match self {
            Verb::Hold => format!("cannot hold snapshot '{name}': {error}"),
            Verb::Release => format!("cannot release hold from snapshot '{name}': {error}"),
        }
    }
}

/// Runs one of the verbs.
pub(super) fn run(verb: Verb, args: &[OsString]) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "r", &[]);
    let mut below = false;
    while walk.next()?.is_some() {
        below = true;
    }
    let operands = crate::zpool::texts(&walk.operands());
    let (tag, operands) = match operands.split_first() {
        Some((tag, operands)) if !operands.is_empty() => (tag, operands),
        _ => return Err(Stop::usage("")),
    };
    // Tags with a point in front are those of the tools themselves.
    if verb == Verb::Hold && tag.starts_with('.') {
        return Err(Stop::usage("tag may not start with '.'"));
    }
    if verb == Verb::Hold && tag.is_empty() {
        return Err(Stop::failed("cannot hold: operation not applicable to datasets of this type"));
    }
    Change::run(verb.name(), args, |change| change_all(change, verb, tag, operands, below))
}

fn change_all(change: &mut Change, verb: Verb, tag: &str, operands: &[String], below: bool) -> Outcome {
    let mut said = Vec::new();
    let mut by_pool: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for operand in operands {
        match expand(change, verb, operand, below) {
            Ok(names) => by_pool.entry(edit::pool_of(operand)).or_default().extend(names),
            Err(message) => said.push((operand.clone(), message)),
        }
    }
    // A snapshot that is missing keeps others from being released, but not from being held.
    if verb == Verb::Release && !said.is_empty() {
        by_pool.clear();
    }
    for (pool, listed) in by_pool {
        let mut names: Vec<String> = Vec::with_capacity(listed.len());
        listed.into_iter().for_each(|name| {
            if !names.contains(&name) {
                names.push(name)
            }
        });
        let writer = change.pool(pool).map_err(|e| cannot_open(pool, e))?;
        let outcome = match verb {
            Verb::Hold => edit::hold(writer.live(), &names, tag),
            Verb::Release => edit::release(writer.live(), &names, tag),
        };
        match outcome {
            Ok(()) => change.done(pool),
            Err(blame) => {
                let (name, error) = *blame;
                let message = verb.text(&name, &error);
                said.push((name, message));
            }
        }
    }
    // In the order in which they were asked for.
    let place = |name: &str| operands.iter().position(|operand| operand == name).unwrap_or(0);
    said.sort_by_key(|(name, _)| place(name));
    said.iter().for_each(|(_, message)| complain(message));
    Ok(u8::from(!said.is_empty()))
}

/// The snapshots that an operand names, or what to say of it.
fn expand(change: &mut Change, verb: Verb, operand: &str, below: bool) -> Result<Vec<String>, String> {
    let Some((dataset, snapshot)) = operand.split_once('@') else {
        return Err(format!("'{operand}' is not a snapshot"));
    };
    let closed = |error: EditError| super::change::open_text(dataset, &error);
    names::check(dataset, Form::Head).map_err(|e| closed(e.into()))?;
    let view = change.view(dataset).map_err(closed)?;
    view.dataset(dataset).map_err(|e| closed(e.into()))?;
    let found = if below {
        edit::with_name_below(&view, dataset, snapshot).map_err(closed)?
    } else {
        Vec::from_iter(view.dataset(operand).is_ok().then(|| operand.to_owned()))
    };
    if found.is_empty() { Err(verb.text(operand, &"dataset does not exist")) } else { Ok(found) }
}
