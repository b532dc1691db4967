//! `zfs destroy`.

use super::change::{Change, MINUS_ONE, cannot, cannot_open, tell_partly, unwritable, with_list};
use super::{complain, mount};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use admin::edit::names::{self, Form};
use admin::edit::{self, EditError, Partly, SnapshotRange};
use cenote::{DatasetKind, Pool, PoolWriter};
use format::nicenum::nicebytes;
use std::collections::BTreeSet;
use std::ffi::OsString;

/// The number of the error of a file system that is read-only, which the real tool passes on.
const READ_ONLY: u8 = 30;

#[derive(Default)]
struct Options {
    defer: bool,
    dry_run: bool,
    parsable: bool,
    verbose: bool,
    /// `-r`, or implied by `-R`.
    below: bool,
    clones: bool,
    name: String,
}

/// Runs the verb.
pub(super) fn run(args: &[OsString], out: &Out) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "vpndfrR", &[]);
    let mut options = Options::default();
    while let Some((letter, _)) = walk.next()? {
        match letter {
            'v' => options.verbose = true,
            'p' => (options.verbose, options.parsable) = (true, true),
            'n' => options.dry_run = true,
            'd' => options.defer = true,
            'r' => options.below = true,
            'R' => (options.below, options.clones) = (true, true),
            // -f: see `mount::HOW`.
            _ => {}
        }
    }
    let operands = crate::zpool::texts(&walk.operands());
    options.name = match &operands[..] {
        [] => return Err(Stop::usage("missing dataset argument")),
        [one] => one.clone(),
        _ => return Err(Stop::usage("too many arguments")),
    };
    Change::run("destroy", args, |change| match options.name.split_once('@') {
        Some((dataset, list)) => snapshots(change, &options, dataset, list, out),
        None if options.name.contains('#') => bookmark(change, &options),
        None => dataset(change, &options, out),
    })
}

impl Options {
    /// A line about something that goes.
    fn line(&self, name: &str, is_refused: bool) -> String {
        match (self.parsable, self.dry_run || is_refused) {
            (true, _) => format!("destroy\t{name}\n"),
            (false, true) => format!("would destroy {name}\n"),
            (false, false) => format!("will destroy {name}\n"),
        }
    }

    /// The line about the space that is freed.
    fn space(&self, bytes: u64) -> String {
        match (self.parsable, self.dry_run) {
            (true, _) => format!("reclaim\t{bytes}\n"),
            (false, true) => format!("would reclaim {}\n", nicebytes(bytes)),
            (false, false) => format!("will reclaim {}\n", nicebytes(bytes)),
        }
    }
}

fn held(name: &str) -> String {
    format!("cannot destroy snapshot {name}: it's being held. Run 'zfs holds -r {name}' to see holders.")
}

// ---- snapshots ------------------------------------------------------------------------------

fn snapshots(change: &mut Change, options: &Options, dataset: &str, list: &str, out: &Out) -> Outcome {
    let refused = |error| cannot_open(dataset, error);
    names::check(dataset, Form::Head).map_err(|e| refused(e.into()))?;
    let view = change.view(dataset).map_err(refused)?;
    view.dataset(dataset).map_err(|e| refused(e.into()))?;
    let Ok(items) = SnapshotRange::parse_list(list) else {
        return Err(Stop::failed(edit::RangeError));
    };
    let names = edit::select_snapshots(&view, dataset, &items, options.below).map_err(refused)?;
    if names.is_empty() {
        return Err(Stop::failed(edit::RangeError));
    }
    let mut clones = Vec::new();
    let mut is_refused = false;
    for name in names.iter().filter(|_| !options.defer || options.clones) {
        let hanging = edit::dependents(&view, name).map_err(refused)?.all;
        if !hanging.is_empty() && !options.clones && !is_refused {
            is_refused = true;
            say(&with_list(
                &format!("cannot destroy '{name}': snapshot has dependent clones"),
                "use '-R' to destroy the following datasets:",
                &hanging,
            ));
        }
        clones.extend(hanging.into_iter().filter(|_| options.clones));
    }
    if options.verbose {
        let mut text: String = names.iter().map(|name| options.line(name, is_refused)).collect();
        if !is_refused {
            text += &options.space(edit::reclaimed(&view, &names).map_err(refused)?);
        }
        out.print(&text);
    }
    match (is_refused, options.dry_run) {
        (true, _) => Ok(1),
        (false, true) => Ok(0),
        (false, false) => destroy_snapshots(change, options, &view, &names, &clones),
    }
}

fn destroy_snapshots(
    change: &mut Change,
    options: &Options,
    view: &Pool,
    names: &[String],
    clones: &[String],
) -> Outcome {
    let defer = options.defer && !options.clones;
    let first = names.first().map_or("", String::as_str);
    let pool = change.pool(first).map_err(|e| unwritable(first, e, |error| snapshots_stay(&error)))?;
    if !defer && (tell_held(view, names.iter().chain(clones))? || tell_in_use(names) || tell_in_use(clones)) {
        return Ok(1);
    }
    let (clones, busy) = mount::unmounted(clones);
    let outcome = edit::destroy_all(&pool, clones);
    if !clones.is_empty() {
        change.done(first);
    }
    if let Err(partly) = outcome {
        return Ok(failed(&partly));
    }
    if busy {
        return Ok(1);
    }
    match edit::destroy_snapshots(&pool, names, defer) {
        Ok(()) => {
            change.done(first);
            mount::snapshots_changed(names);
            Ok(0)
        }
        Err(error) => {
            tell_partly("destroyed", clones, names);
            Err(snapshots_stay(&error))
        }
    }
}

fn snapshots_stay(error: &EditError) -> Stop {
    Stop::failed(format!("cannot destroy snapshots: {error}"))
}

/// Says which of these are held; nothing is destroyed then.
fn tell_held<'n>(view: &Pool, names: impl IntoIterator<Item = &'n String>) -> Result<bool, Stop> {
    let kept = held_of(view, names)?;
    kept.iter().for_each(|name| complain(&held(name)));
    Ok(!kept.is_empty())
}

/// Those of these names that are snapshots with holds. To be asked before anything is destroyed: the view does not outlive
/// many changes.
fn held_of<'n>(view: &Pool, names: impl IntoIterator<Item = &'n String>) -> Result<Vec<&'n String>, Stop> {
    let mut kept = Vec::new();
    for name in names.into_iter().filter(|name| name.contains('@')) {
        let dataset = view.dataset(name).map_err(|e| cannot_open(name, e))?;
        let holds = dataset.dsl().holds().map_err(|e| cannot_open(name, e))?;
        if !holds.is_empty() {
            kept.push(name);
        }
    }
    Ok(kept)
}

/// Says which of these snapshots somebody uses.
fn tell_in_use(names: &[String]) -> bool {
    let used = mount::snapshots_in_use(names);
    for name in &used {
        complain(&format!("cannot destroy snapshot {name}: dataset is busy"));
    }
    !used.is_empty()
}

fn say(text: &str) {
    text.lines().for_each(complain);
}

/// Says what was not destroyed, and why; the exit code.
fn failed(partly: &Partly) -> u8 {
    let name = partly.left.first().map_or("", String::as_str);
    match &partly.error {
        EditError::Refused(error) if edit::is_held(error) => complain(&held(name)),
        error => complain(&format!("cannot destroy '{name}': {error}")),
    }
    tell_partly("destroyed", &partly.done, &partly.left);
    1
}

// ---- bookmarks ------------------------------------------------------------------------------

fn bookmark(change: &mut Change, options: &Options) -> Outcome {
    let unsupported = |what: &str| {
        complain(&format!("{what} is not supported with bookmark"));
        Ok(MINUS_ONE)
    };
    match options {
        Options { dry_run: true, .. } => return unsupported("dryrun"),
        Options { defer: true, .. } => return unsupported("defer destroy"),
        Options { below: true, .. } => return unsupported("recursive"),
        _ => {}
    }
    let name = options.name.as_str();
    let missing = || Stop::failed(format!("bookmark '{name}' does not exist."));
    let view = change.view(name).map_err(|e| match e {
        EditError::NoPool { .. } => missing(),
        other => cannot_open(name, other),
    })?;
    if names::check(name, Form::Bookmark).is_err() || view.dsl().bookmark(name).is_err() {
        return Err(missing());
    }
    let pool = match change.pool(name) {
        Err(error) if error.is_read_only() => {
            complain(&format!("cannot destroy bookmark: {error}"));
            return Ok(READ_ONLY);
        }
        pool => pool.map_err(|e| cannot_open(name, e))?,
    };
    edit::destroy_bookmark(&pool, name).map_err(|error| match error {
        EditError::Denied | EditError::DelegationOff => {
            Stop::failed(format!("cannot destroy bookmark: {error}"))
        }
        error => Stop::failed(format!("cannot destroy bookmark '{name}': {error}")),
    })?;
    change.done(name);
    Ok(0)
}

// ---- file systems and volumes ---------------------------------------------------------------

fn dataset(change: &mut Change, options: &Options, out: &Out) -> Outcome {
    let name = options.name.as_str();
    let refused = |error| cannot_open(name, error);
    let form = if options.defer { Form::Snapshot } else { Form::Head };
    names::check(name, form).map_err(|e| refused(e.into()))?;
    let view = change.view(name).map_err(refused)?;
    let kind = view.dataset(name).and_then(|d| d.kind()).map_err(|e| refused(e.into()))?;
    if !name.contains('/') && !options.below {
        return Err(Stop::failed(format!(
            "cannot destroy '{name}': operation does not apply to pools\n\
             use 'zfs destroy -r {name}' to destroy all datasets in the pool\n\
             use 'zpool destroy {name}' to destroy the pool itself"
        )));
    }
    let hanging = edit::dependents(&view, name).map_err(refused)?;
    let word = if kind == DatasetKind::Volume { "volume" } else { "filesystem" };
    if !options.below && !hanging.below.is_empty() {
        let head = format!("cannot destroy '{name}': {word} has children");
        let advice = "use '-r' to destroy the following datasets:";
        return Err(Stop::failed(with_list(&head, advice, &hanging.below)));
    }
    if !options.clones && !hanging.clones.is_empty() {
        let head = format!("cannot destroy '{name}': {word} has dependent clones");
        let advice = "use '-R' to destroy the following datasets:";
        return Err(Stop::failed(with_list(&head, advice, &hanging.clones)));
    }
    let mut all = hanging.all;
    all.push(name.to_owned());
    if options.verbose {
        out.print(&all.iter().map(|name| options.line(name, false)).collect::<String>());
    }
    if options.dry_run {
        return Ok(0);
    }
    let pool = change.pool(name).map_err(|e| {
        unwritable(name, e, |error| match all.iter().any(|name| name.contains('@')) {
            true => snapshots_stay(&error),
            false => cannot("destroy", all.first().map_or(name, String::as_str), &error),
        })
    })?;
    // The root of a pool goes with the pool only.
    all.retain(|name| name.contains(['/', '@']));
    let kept: BTreeSet<&String> = held_of(&view, &all)?.into_iter().collect();
    if !kept.is_empty() || !mount::snapshots_in_use(&all).is_empty() {
        change.done(name);
        return around_held(&pool, &kept, &all);
    }
    let (gone, busy) = mount::unmounted(&all);
    let outcome = edit::destroy_all(&pool, gone);
    mount::snapshots_changed(gone);
    if outcome.as_ref().err().is_none_or(|partly| !partly.done.is_empty()) {
        change.done(name);
    }
    Ok(outcome.map_or_else(|partly| failed(&partly), |()| u8::from(busy)))
}

/// Destroys what can be destroyed although snapshots are held or in use: what has one stays, with all its snapshots, and what is
/// above it.
fn around_held(pool: &PoolWriter, kept: &BTreeSet<&String>, all: &[String]) -> Outcome {
    for group in all.split_inclusive(|name| !name.contains('@')) {
        let is_held =
            group.iter().filter(|name| kept.contains(name)).inspect(|name| complain(&held(name))).count() > 0;
        if is_held || tell_in_use(group) {
            continue;
        }
        let (gone, _) = mount::unmounted(group);
        if let Err(partly) = edit::destroy_all(pool, gone) {
            let name = partly.left.first().map_or("", String::as_str);
            complain(&format!("cannot destroy '{name}': {}", partly.error));
        }
        mount::snapshots_changed(gone);
    }
    Ok(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_openzfs() {
        let mut options = Options { dry_run: true, ..Options::default() };
        assert_eq!(options.line("tank/home@daily", false), "would destroy tank/home@daily\n");
        assert_eq!(options.space(0), "would reclaim 0B\n");
        options.parsable = true;
        assert_eq!(options.line("tank/home@daily", false), "destroy\ttank/home@daily\n");
        assert_eq!(options.space(0), "reclaim\t0\n");
        options = Options::default();
        assert_eq!(options.line("tank/vol@1", false), "will destroy tank/vol@1\n");
        assert_eq!(options.line("tank/fs@1", true), "would destroy tank/fs@1\n");
        assert_eq!(options.space(14_336), "will reclaim 14K\n");
        assert_eq!(
            held("tank/home@daily"),
            "cannot destroy snapshot tank/home@daily: it's being held. \
             Run 'zfs holds -r tank/home@daily' to see holders."
        );
    }
}
