//! `zfs bookmark`.

use super::change::{Change, open_text};
use crate::stop::{Outcome, Stop};
use admin::edit::names::{self, Form, NameError};
use admin::edit::{self, EditError};
use std::ffi::OsString;

/// Runs the verb.
pub(super) fn run(args: &[OsString]) -> Outcome {
    let operands = crate::zpool::texts(&super::clone::no_options(args.to_vec())?);
    let (source, name) = full_names(&operands)?;
    Change::run("bookmark", args, |change| bookmark(change, &source, &name))
}

/// Source and new bookmark; one of them may leave its dataset to the other.
fn full_names(operands: &[String]) -> Result<(String, String), Stop> {
    let (source, name) = match operands {
        [] => return Err(Stop::usage("missing source argument")),
        [_] => return Err(Stop::usage("missing bookmark argument")),
        [source, name, ..] => (source.as_str(), name.as_str()),
    };
    if !source.contains(['@', '#']) {
        return Err(Stop::usage(format!("invalid source name '{source}': must contain a '@' or '#'")));
    }
    if !name.contains('#') {
        return Err(Stop::usage(format!("invalid bookmark name '{name}': must contain a '#'")));
    }
    let dataset = |full: &str| full.split(['@', '#']).next().unwrap_or_default().to_owned();
    let completed = |short: &str, other: &str| match short.starts_with(['@', '#']) {
        true => dataset(other) + short,
        false => short.to_owned(),
    };
    if source.starts_with(['@', '#']) && name.starts_with('#') {
        return Err(Stop::usage("either source or bookmark must be full dataset names"));
    }
    Ok((completed(source, name), completed(name, source)))
}

fn bookmark(change: &mut Change, source: &str, name: &str) -> Outcome {
    let view = change.view(source).map_err(|error| match error {
        // A pool that cannot be changed is no matter of usage.
        EditError::Open(_) | EditError::Failed(_) => Stop::failed(open_text(source, &error)),
        _ => Stop::usage(open_text(source, &error)),
    })?;
    if source.contains('#') {
        names::check(source, Form::Bookmark).map_err(|e| Stop::usage(open_text(source, &e.into())))?;
        view.dsl()
            .bookmark(source)
            .map_err(|_| Stop::usage(format!("cannot open '{source}': no such pool or dataset")))?;
    } else {
        names::check(source, Form::Snapshot).map_err(|e| Stop::usage(open_text(source, &e.into())))?;
        view.dataset(source).map_err(|e| Stop::usage(open_text(source, &e.into())))?;
    }
    let refused =
        |why: &dyn std::fmt::Display| Stop::failed(format!("cannot create bookmark '{name}': {why}"));
    match names::check(name, Form::Bookmark) {
        Ok(()) => {}
        Err(error @ NameError::TooLong) => return Err(refused(&error)),
        Err(_) => return Err(refused(&"invalid argument")),
    }
    if edit::pool_of(name) != edit::pool_of(source) {
        return Err(match change.pool(name) {
            Ok(_) => refused(&"bookmark is in a different pool"),
            Err(_) => refused(&"dataset does not exist"),
        });
    }
    let pool = change.pool(source).map_err(|e| refused(&e))?;
    edit::bookmark(&pool, source, name).map_err(|e: EditError| refused(&e))?;
    change.done(source);
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_the_names_may_be_short() {
        let full = |source: &str, name: &str| match full_names(&[source.to_owned(), name.to_owned()]) {
            Ok((source, name)) => format!("{source} {name}"),
            Err(Stop::Usage(text)) => text,
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(full("tank/v@1", "#m"), "tank/v@1 tank/v#m");
        assert_eq!(full("@1", "tank/v#m"), "tank/v@1 tank/v#m");
        assert_eq!(full("tank/v@1", "m3"), "invalid bookmark name 'm3': must contain a '#'");
        assert_eq!(full("tank/fs", "tank/fs#b"), "invalid source name 'tank/fs': must contain a '@' or '#'");
    }
}
