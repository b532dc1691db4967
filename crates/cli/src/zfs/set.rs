//! `zfs set` and `zfs inherit`.

use super::change::{Change, MINUS_ONE, Pairs, cannot_open, open_text, unwritable, warn_small_blocks};
use super::{complain, mount};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use admin::edit::names::{self, Form};
use admin::edit::values::{self, InheritError, Setting, ValueError};
use admin::edit::{self, EditError};
use std::ffi::OsString;

/// Runs `zfs set`.
pub(super) fn run(args: &[OsString], out: &Out) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "u", &[]);
    let mut stays = false;
    while walk.next()?.is_some() {
        stays = true;
    }
    let operands = crate::zpool::texts(&walk.operands());
    if operands.is_empty() {
        return Err(Stop::usage("missing arguments"));
    }
    let (pairs, datasets) = match split(&operands)? {
        Ok(split) => split,
        Err(message) => {
            complain(&message);
            return Ok(MINUS_ONE);
        }
    };
    Change::run("set", args, |change| {
        let mut code = 0;
        for name in datasets {
            match set(change, name, &pairs, stays) {
                Ok(()) => {
                    change.done(name);
                    if let Some(path) = pairs.get("mountpoint").filter(|_| !stays) {
                        mount::tell_elsewhere(name, path, out);
                    }
                }
                Err((failure, message)) => {
                    message.lines().for_each(complain);
                    code = code.max(failure);
                }
            }
        }
        Ok(code)
    })
}

/// Properties first, then datasets: whatever has no `=`.
#[allow(clippy::type_complexity)]
fn split(operands: &[String]) -> Result<Result<(Pairs, &[String]), String>, Stop> {
    let count = operands.iter().take_while(|word| values::split(word).is_some()).count();
    let (words, datasets) = operands.split_at(count);
    let mut pairs = Pairs::default();
    for word in words {
        match pairs.add(Some(word.into())) {
            Err(Stop::Failed(Some(message))) => return Ok(Err(message)),
            other => other?,
        }
    }
    if datasets.is_empty() {
        return Err(Stop::usage("missing dataset name(s)"));
    }
    Ok(Ok((pairs, datasets)))
}

/// The exit code of a failure, and its message.
type Failure = (u8, String);

fn set(change: &mut Change, name: &str, pairs: &Pairs, stays: bool) -> Result<(), Failure> {
    let closed = |error: EditError| (1, open_text(name, &error));
    names::check(name, Form::Any).map_err(|e| closed(e.into()))?;
    let view = change.view(name).map_err(closed)?;
    let dataset = view.dataset(name).map_err(|e| closed(e.into()))?;
    let refused = |error: EditError| (MINUS_ONE, format!("cannot set property for '{name}': {error}"));
    let subject = edit::subject(&dataset).map_err(refused)?;
    let pool = match change.pool(name) {
        Err(error) if !error.is_read_only() => return Err(closed(error)),
        pool => pool,
    };
    let features = pool.as_ref().ok().map(|pool| pool.live().features());
    let settings: Result<Vec<Setting>, ValueError> = pairs
        .0
        .iter()
        .map(|(prop, text)| {
            values::resolve(prop, text, &subject, &|feature| {
                features.as_ref().is_none_or(|f| f.is_enabled(feature))
            })
        })
        .collect();
    if matches!(settings, Ok(_) | Err(ValueError::SmallBlocks { .. })) {
        warn_small_blocks(pairs, &view);
    }
    let settings = settings.map_err(|e| refused(e.into()))?;
    let pool = pool.map_err(refused)?;
    let told = |text: String| (MINUS_ONE, text);
    let around = mount::Around::set(name, pairs, stays).map_err(|refusal| told(refusal.to_string()))?;
    let done = edit::set(&pool, name, &settings);
    let refusals = around.finish(&done);
    done.map_err(|error| {
        let text = match error {
            // Of what exists, this is said of a reservation.
            EditError::NoSpace => "size is greater than available space".to_owned(),
            other => other.to_string(),
        };
        (MINUS_ONE, format!("cannot set property for '{name}': {text}"))
    })?;
    match refusals.first() {
        None => Ok(()),
        Some(_) => Err((1, refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))),
    }
}

/// Runs `zfs inherit`.
pub(super) fn inherit(args: &[OsString]) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "rS", &[]);
    let (mut below, mut received) = (false, false);
    while let Some((letter, _)) = walk.next()? {
        match letter {
            'r' => below = true,
            _ => received = true,
        }
    }
    let operands = crate::zpool::texts(&walk.operands());
    let (prop, datasets) = match operands.split_first() {
        None => return Err(Stop::usage("missing property argument")),
        Some((_, [])) => return Err(Stop::usage("missing dataset argument")),
        Some(split) => split,
    };
    let prop = values::inheritable(prop, received).map_err(|error| match error {
        InheritError::Unknown { .. } => Stop::usage(error.to_string()),
        other => Stop::failed(other),
    })?;
    Change::run("inherit", args, |change| {
        let mut code = 0;
        for name in datasets {
            match inherit_one(change, name, &prop, received, below) {
                Ok(()) => change.done(name),
                Err(Stop::Failed(Some(message))) => {
                    message.lines().for_each(complain);
                    code = 1;
                }
                Err(other) => return Err(other),
            }
        }
        Ok(code)
    })
}

fn inherit_one(change: &mut Change, name: &str, prop: &str, received: bool, below: bool) -> Result<(), Stop> {
    let closed = |error: EditError| cannot_open(name, error);
    names::check(name, Form::Any).map_err(|e| closed(e.into()))?;
    let view = change.view(name).map_err(closed)?;
    view.dataset(name).map_err(|e| closed(e.into()))?;
    let text = |name: &str, error: &EditError| format!("cannot inherit {prop} for '{name}': {error}");
    let pool = match change.pool(name) {
        Err(error) if error.is_read_only() && below => {
            let all = edit::with_descendants(&view, name).map_err(closed)?;
            let lines: Vec<String> = all.iter().map(|name| text(name, &error)).collect();
            return Err(Stop::failed(lines.join("\n")));
        }
        pool => pool.map_err(|e| unwritable(name, e, |error| Stop::failed(text(name, &error))))?,
    };
    let around = mount::Around::inherit(name, prop).map_err(|refusal| Stop::failed(refusal.to_string()))?;
    let done = edit::inherit(&pool, name, prop, received, below);
    let refusals = around.finish(&done);
    done.map_err(|e| Stop::failed(text(name, &e)))?;
    refusals.iter().for_each(mount::tell);
    if refusals.is_empty() { Ok(()) } else { Err(Stop::Code(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_end_at_the_first_word_without_a_value() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let good = words("a:b=1 quota=none tank/x tank/y");
        let (pairs, datasets) = split(&good).expect("usage").expect("unique");
        assert_eq!((pairs.0.len(), datasets.len()), (2, 2));
        let twice = words("a:b=1 a:b=2 tank");
        assert_eq!(split(&twice).expect("usage"), Err("property 'a:b' specified multiple times".to_owned()));
        let none = words("compression=on");
        assert!(matches!(split(&none), Err(Stop::Usage(text)) if text == "missing dataset name(s)"));
    }
}
