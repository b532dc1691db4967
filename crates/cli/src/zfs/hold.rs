//! `zfs hold` and `zfs release`.

use super::change::{Change, open_text};
use super::complain;
use crate::getopt::Getopt;
use crate::stop::{Outcome, Stop};
use admin::edit::names::{self, Form};
use admin::edit::{self, EditError};
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

/// One operand after the other: what is wrong with one does not keep the others from being done.
fn change_all(change: &mut Change, verb: Verb, tag: &str, operands: &[String], below: bool) -> Outcome {
    let mut code = 0;
    for operand in operands {
        let outcome = expand(change, verb, operand, below).and_then(|names| {
            let pool = change.pool(operand).map_err(|error| match error.is_read_only() {
                true => format!("cannot {}: {error}", verb.name()),
                false => open_text(operand, &error),
            })?;
            match verb {
                Verb::Hold => edit::hold(&pool, &names, tag),
                Verb::Release => edit::release(&pool, &names, tag),
            }
            .map_err(|blame| match &blame.1 {
                error @ (EditError::Denied | EditError::DelegationOff) => {
                    format!("cannot {}: {error}", verb.name())
                }
                error => verb.text(&blame.0, error),
            })
        });
        match outcome {
            Ok(()) => change.done(operand),
            Err(message) => {
                complain(&message);
                code = 1;
            }
        }
    }
    Ok(code)
}

/// The snapshots that an operand names, or what to say of it.
fn expand(change: &mut Change, verb: Verb, operand: &str, below: bool) -> Result<Vec<String>, String> {
    let Some((dataset, snapshot)) = operand.split_once('@') else {
        return Err(format!("'{operand}' is not a snapshot"));
    };
    let closed = |error: EditError| open_text(dataset, &error);
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
