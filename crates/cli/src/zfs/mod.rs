//! `zfs`: what its listing verbs have in common: which datasets, in which order. What the changing ones
//! have in common is in [`change`].

mod allow;
mod bookmark;
mod change;
mod clone;
mod create;
mod destroy;
mod get;
mod hold;
mod holds;
mod list;
mod permissions;
mod project;
mod rename;
mod rollback;
mod set;
mod snapshot;
mod space;
mod upgrade;

use crate::getopt::Long;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::usage::Tool;
use cenote::admin::{self, AdminError, Entry, Kind, OpenPool, Walk};
use format::prop;
use serde_json::{Map, Value as Json, json};
use std::ffi::OsString;

/// Runs a subcommand, given by its canonical name.
pub(crate) fn run(subcommand: &str, args: Vec<OsString>, out: &Out) -> Outcome {
    match subcommand {
        "list" => list::run(args, out),
        "get" => get::run(args, out),
        "holds" => holds::run(args, out),
        "userspace" | "groupspace" | "projectspace" => space::run(subcommand, args, out),
        "version" => crate::version::run(Tool::Zfs, args, out),
        "create" => create::run(&args, out),
        "destroy" => destroy::run(&args, out),
        "snapshot" => snapshot::run(&args),
        "rollback" => rollback::run(&args),
        "clone" => clone::run(&args),
        "promote" => clone::promote(&args),
        "rename" => rename::run(&args),
        "set" => set::run(&args),
        "inherit" => set::inherit(&args),
        "hold" => hold::run(hold::Verb::Hold, &args),
        "release" => hold::run(hold::Verb::Release, &args),
        "bookmark" => bookmark::run(&args),
        "upgrade" => upgrade::run(&args, out),
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
            Err(_) => Err(Stop::usage(format!("{text} can not be negative"))),
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
    /// Operands need not be of the selected kinds (`get`).
    any_operand: bool,
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
    eprintln!("{}", crate::out::visible(message));
}

fn is_path(operand: &str) -> bool {
    operand.starts_with('/') || operand.starts_with("./") || operand.starts_with("../") || operand == "."
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
    let entry = match admin::find(pools, operand) {
        Ok(entry) => entry,
        Err(e) => {
            complain(&open_message(operand, &e));
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
        Depth::Own if below && !selection.any_operand && wants_points(selection) => {
            kinds.retain(|k| matches!(k, Kind::Snapshot | Kind::Bookmark) || *k == entry.kind());
            let walk = Walk { kinds, depth: Some(0) };
            return collect(admin::points(pool, &entry, &walk), selected);
        }
        Depth::Own => Some(0),
    };
    if !below || levels == Some(0) {
        let fits = kinds.contains(&entry.kind()) || selection.any_operand || !selection.kinds_given;
        if fits {
            selected.entries.push(entry);
        } else {
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
    let other = prop::per_owner(name).is_some_and(|(_, owner)| !owner.is_empty())
        || name.strip_prefix("written@").is_some_and(|s| !s.is_empty())
        || name.strip_prefix("written#").is_some_and(|s| !s.is_empty())
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
