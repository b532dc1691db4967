//! `zfs`: what its listing verbs have in common: which datasets, in which order. What the changing ones
//! have in common is in [`session`].

mod allow;
mod bookmark;
mod clone;
mod create;
mod destroy;
mod diff;
mod get;
mod hold;
mod holds;
mod list;
pub(crate) mod mount;
pub(crate) mod mount_helper;
mod permissions;
pub(crate) mod project;
mod properties;
mod rename;
mod rollback;
mod session;
mod set;
mod snapshot;
mod space;
mod upgrade;
mod wait;

use crate::getopt::Long;
use crate::out::Out;
use crate::rights;
use crate::stop::{Outcome, Stop};
use crate::usage::Tool;
use admin::{self, AdminError, Entry, Kind, OpenPool, Walk};
use format::prop;
use serde_json::{Map, Value as Json, json};
use std::ffi::OsString;

/// Runs a subcommand, given by its canonical name.
pub(crate) fn run(subcommand: &str, args: Vec<OsString>, out: &Out) -> Outcome {
    rights::check(rights::zfs(subcommand), || rights::zfs_refusal(subcommand, &args))?;
    match subcommand {
        "list" => list::run(args, out),
        "get" => get::run(args, out),
        "diff" => diff::run(args, out),
        "holds" => holds::run(args, out),
        "userspace" | "groupspace" | "projectspace" => space::run(subcommand, args, out),
        "version" => crate::version::run(Tool::Zfs, args, out),
        "mount" => mount::mount(args, out),
        "unmount" => mount::unmount(args),
        "create" => create::run(&args, out),
        "destroy" => destroy::run(&args, out),
        "snapshot" => snapshot::run(&args),
        "rollback" => rollback::run(&args),
        "clone" => clone::run(&args),
        "promote" => clone::promote(&args),
        "rename" => rename::run(&args),
        "set" => set::run(&args, out),
        "inherit" => set::inherit(&args),
        "hold" => hold::hold(&args),
        "release" => hold::release(&args),
        "bookmark" => bookmark::run(&args),
        "upgrade" => upgrade::run(&args, out),
        "wait" => wait::run(args),
        "project" => project::run(&args, out),
        "allow" => allow::run(allow::Verb::Allow, &args, out),
        "unallow" => allow::run(allow::Verb::Unallow, &args, out),
        other => Err(crate::unsupported(Tool::Zfs, other)),
    }
}

/// `--json-int`.
const JSON_INT: char = '\u{1}';

/// Long options of `list` and `get`.
const JSON_LONG: &[Long] = &[Long::flag("json", 'j'), Long::flag("json-int", JSON_INT)];

/// How far below its operands a listing goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// The operands themselves.
    Own,
    /// So many levels.
    Levels(u64),
    /// All the way.
    All,
}

/// The value of `-d`.
fn depth(value: Option<OsString>) -> Result<Depth, Stop> {
    let text = value.unwrap_or_default().to_string_lossy().into_owned();
    match text.parse::<i64>() {
        Ok(levels) => match u64::try_from(levels) {
            Ok(levels) => Ok(Depth::Levels(levels)),
            Err(_) => Err(Stop::usage("Depth can not be negative.")),
        },
        Err(_) => Err(Stop::usage(format!("{text} is not an integer"))),
    }
}

/// The value of `-t`.
fn kinds(value: Option<OsString>) -> Result<Vec<Kind>, Stop> {
    let text = value.unwrap_or_default().to_string_lossy().into_owned();
    let mut kinds = Vec::new();
    for word in text.split(',') {
        match word {
            "filesystem" | "fs" => kinds.push(Kind::Filesystem),
            "volume" | "vol" => kinds.push(Kind::Volume),
            "snapshot" | "snap" => kinds.push(Kind::Snapshot),
            "bookmark" => kinds.push(Kind::Bookmark),
            "all" => kinds.extend(ALL_KINDS),
            other => return Err(Stop::usage(format!("invalid type '{other}'"))),
        }
    }
    Ok(kinds)
}

const ALL_KINDS: [Kind; 4] = [Kind::Filesystem, Kind::Volume, Kind::Snapshot, Kind::Bookmark];

/// What a listing is about.
struct Selection<'a> {
    operands: &'a [String],
    kinds: &'a [Kind],
    depth: Depth,
    /// `-t` was given.
    kinds_given: bool,
    /// Snapshots are listed too where the pool's `listsnapshots` says so.
    listsnapshots: bool,
    /// It is `get`: bookmarks may be named without `-t`, and snapshots of an operand that is itself wanted are
    /// not.
    bookmarks: bool,
}

/// The options that `list` and `get` share.
struct Common {
    scripted: bool,
    exact: bool,
    json: bool,
    int: bool,
    depth: Depth,
    kinds: Option<Vec<Kind>>,
}

impl Common {
    fn new() -> Common {
        Common { scripted: false, exact: false, json: false, int: false, depth: Depth::Own, kinds: None }
    }

    /// Takes an option, if it is one of these.
    fn take(&mut self, letter: char, value: Option<OsString>) -> Result<(), Stop> {
        match letter {
            'H' => self.scripted = true,
            'p' => self.exact = true,
            'j' => self.json = true,
            JSON_INT => self.int = true,
            'r' if self.depth == Depth::Own => self.depth = Depth::All,
            'd' => self.depth = depth(value)?,
            't' => self.kinds = Some(kinds(value)?),
            _ => {}
        }
        Ok(())
    }

    /// To be called when all options are taken.
    fn check(&mut self) -> Result<(), Stop> {
        if self.int && !self.json {
            return Err(Stop::usage("'--json-int' only works with '-j' option"));
        }
        self.exact |= self.int;
        Ok(())
    }
}

/// The pools and datasets of a listing, and the exit code so far. The pools keep the datasets open.
struct Selected {
    entries: Vec<Entry>,
    code: u8,
    _pools: Vec<OpenPool>,
}

/// Opens what is needed and collects the datasets. What is wrong is said on standard error.
fn select(selection: &Selection<'_>) -> Result<Selected, Stop> {
    let mut names: Vec<String> = Vec::new();
    for operand in selection.operands.iter().filter(|o| !is_path(o)) {
        let pool = operand.split(['/', '@', '#']).next().unwrap_or_default().to_owned();
        if !names.contains(&pool) {
            names.push(pool);
        }
    }
    let by_path = selection.operands.iter().any(|o| is_path(o));
    let (pools, problems) = admin::open_pools(&crate::search::from_env(), if by_path { &[] } else { &names });
    let mut selected = Selected { entries: Vec::new(), code: 0, _pools: Vec::new() };
    for problem in problems {
        // A pool that is not there is told dataset by dataset, as `zfs` does.
        if !problem.is_missing_pool() {
            complain(&problem.to_string());
            selected.code = 1;
        }
    }
    if selection.operands.is_empty() {
        for pool in &pools {
            let depth = match selection.depth {
                Depth::Levels(levels) => Some(levels),
                Depth::Own | Depth::All => None,
            };
            let walk = Walk { kinds: pool_kinds(selection, pool)?, depth };
            collect(admin::walk(pool, pool.name(), &walk), &mut selected)?;
        }
    }
    for operand in selection.operands {
        one(selection, operand, &pools, &mut selected)?;
    }
    selected._pools = pools;
    Ok(selected)
}

fn complain(message: &str) {
    say_error_line!("{}", crate::out::visible(message));
}

/// Tells of all of these, line by line.
fn complain_all<T: std::fmt::Display>(all: &[T]) {
    all.iter().for_each(|one| one.to_string().lines().for_each(complain));
}

fn is_path(operand: &str) -> bool {
    operand.starts_with('/') || operand.starts_with("./") || operand.starts_with("../") || operand == "."
}

/// What an operand names: a dataset, or a path in one. Paths of others than the administrator are not looked up.
fn find(pools: &[OpenPool], operand: &str) -> Result<Entry, AdminError> {
    if !is_path(operand) || rights::is_administrator() {
        return admin::find(pools, operand);
    }
    admin::find_by_text(pools, &rights::path(std::path::Path::new(operand)))
}

fn pool_kinds(selection: &Selection<'_>, pool: &OpenPool) -> Result<Vec<Kind>, Stop> {
    let mut kinds = selection.kinds.to_vec();
    if selection.listsnapshots && !selection.kinds_given {
        let set = admin::pool_property(pool, "listsnapshots").map_err(Stop::failed)?;
        if set.and_then(|p| p.value.number()) == Some(1) {
            kinds.push(Kind::Snapshot);
        }
    }
    Ok(kinds)
}

/// One operand and what lies below it.
fn one(
    selection: &Selection<'_>,
    operand: &str,
    pools: &[OpenPool],
    selected: &mut Selected,
) -> Result<(), Stop> {
    let entry = match unexpected(selection, operand) {
        Some(why) => Err(format!("cannot open '{operand}': {why}")),
        None => find(pools, operand).map_err(|e| find_message(pools, operand, &e)),
    };
    let entry = match entry {
        Ok(entry) => entry,
        Err(message) => {
            complain(&message);
            selected.code = 1;
            return Ok(());
        }
    };
    let pool = pools.iter().find(|p| p.name() == entry.pool_name());
    let Some(pool) = pool else { return Ok(()) };
    let mut kinds = pool_kinds(selection, pool)?;
    let below = matches!(entry.kind(), Kind::Filesystem | Kind::Volume);
    let levels = match selection.depth {
        Depth::All => None,
        Depth::Levels(levels) => Some(levels),
        // Snapshots and bookmarks that were asked for are those of the operand.
        Depth::Own
            if below
                && wants_points(selection)
                && !(selection.bookmarks && kinds.contains(&entry.kind())) =>
        {
            kinds.retain(|k| matches!(k, Kind::Snapshot | Kind::Bookmark) || *k == entry.kind());
            let walk = Walk { kinds, depth: Some(0) };
            return collect(admin::points(pool, &entry, &walk), selected);
        }
        Depth::Own => Some(0),
    };
    if !below || levels == Some(0) {
        let fits = kinds.contains(&entry.kind()) || !selection.kinds_given;
        if fits {
            selected.entries.push(entry);
        } else if !below || selection.depth == Depth::Own {
            complain(&format!("cannot open '{operand}': operation not applicable to datasets of this type"));
            selected.code = 1;
        }
        return Ok(());
    }
    let walk = Walk { kinds, depth: levels };
    collect(admin::walk(pool, entry.name(), &walk), selected)
}

fn wants_points(selection: &Selection<'_>) -> bool {
    selection.kinds_given && selection.kinds.iter().any(|k| matches!(k, Kind::Snapshot | Kind::Bookmark))
}

fn collect(found: Result<Vec<Entry>, AdminError>, selected: &mut Selected) -> Result<(), Stop> {
    selected.entries.extend(found.map_err(Stop::failed)?);
    Ok(())
}

/// What a name has in it that can be no name of the kinds that were asked for.
fn unexpected(selection: &Selection<'_>, operand: &str) -> Option<&'static str> {
    let wants = |kind| selection.kinds.contains(&kind);
    if is_path(operand) {
        return None;
    }
    if operand.contains('#') && !(wants(Kind::Bookmark) && (selection.kinds_given || selection.bookmarks)) {
        return Some("bookmark delimiter '#' is not expected here");
    }
    let is_refused = operand.contains('@') && selection.kinds_given && !wants(Kind::Snapshot);
    is_refused.then_some("snapshot delimiter '@' is not expected here")
}

/// What is said of an operand that is not found.
fn find_message(pools: &[OpenPool], operand: &str, error: &AdminError) -> String {
    let has_base = |(base, _): (&str, &str)| admin::find(pools, base).is_ok();
    match error {
        AdminError::NotInPool { .. }
            if rights::is_administrator()
                && std::path::Path::new(operand).try_exists().is_ok_and(|found| found) =>
        {
            format!("'{operand}': not a ZFS filesystem")
        }
        AdminError::NotInPool { .. } => format!("cannot open '{operand}': No such file or directory"),
        // A missing bookmark is told apart from a missing dataset.
        AdminError::NoDataset { .. } if operand.split_once('#').is_some_and(has_base) => {
            format!("cannot open '{operand}': no such pool or dataset")
        }
        other => open_message(operand, other),
    }
}

/// `cannot open 'x': …`.
fn open_message(name: &str, error: &AdminError) -> String {
    match error {
        AdminError::NoDataset { .. } | AdminError::NoPool { .. } => {
            format!("cannot open '{name}': dataset does not exist")
        }
        other => format!("cannot open '{name}': {other}"),
    }
}

/// Place of a dataset in a listing: by name, snapshots behind their dataset and in the order in which they
/// were made.
fn place(entry: &Entry) -> (String, bool, u64, String) {
    match entry.name().split_once('@') {
        Some((base, snapshot)) => (base.to_owned(), true, entry.create_txg(), snapshot.to_owned()),
        None => (entry.name().to_owned(), false, 0, String::new()),
    }
}

/// Sorts a listing; what several operands have selected is listed once.
fn sort(entries: &mut Vec<Entry>) {
    entries.sort_by_cached_key(place);
    entries.dedup_by(|a, b| a.name() == b.name());
}

/// A property of the table, of a user, or one that exists per owner or per snapshot.
fn known_property(name: &str) -> Option<String> {
    if let Some(p) = prop::dataset(name) {
        return Some(p.name.to_owned());
    }
    let other = prop::per_owner(name).is_some()
        || name.starts_with("written@")
        || name.starts_with("written#")
        || prop::is_user(name);
    other.then(|| name.to_owned())
}

/// A dataset object without its properties.
fn json_entry(entry: &Entry, int: bool) -> Map<String, Json> {
    let mut map = Map::new();
    map.insert("name".into(), json!(entry.name()));
    map.insert("type".into(), json!(entry.kind().word().to_uppercase()));
    map.insert("pool".into(), json!(entry.pool_name()));
    map.insert("createtxg".into(), crate::values::number(entry.create_txg(), int, |n| n.to_string()));
    if let Some((dataset, snapshot)) = entry.name().split_once('@') {
        map.insert("dataset".into(), json!(dataset));
        map.insert("snapshot_name".into(), json!(snapshot));
    }
    map
}
