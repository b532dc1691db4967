//! `zfs bookmark`.

use super::session::in_session;
use crate::stop::{Outcome, Stop};
use admin::verbs::zfs::bookmark::{Refusal, Request};
use std::ffi::OsString;

/// Runs the verb.
pub(super) fn run(args: &[OsString]) -> Outcome {
    let operands = crate::zpool::texts(&super::clone::no_options(args.to_vec())?);
    let (source, name) = full_names(&operands)?;
    let request = Request { source, name };
    in_session("bookmark", args, |session| session.run(&request).map(|()| 0).map_err(|e| refused(&e)))
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

/// What is said of a refusal: a source that is not there is a matter of usage.
fn refused(refusal: &Refusal) -> Stop {
    match refusal {
        Refusal::Open(closed) if closed.reason.is_usage() => Stop::usage(refusal.to_string()),
        _ => Stop::failed(refusal),
    }
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
