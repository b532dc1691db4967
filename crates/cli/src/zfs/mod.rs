//! `zfs`: one module a subcommand, which makes a request of its arguments and text or JSON of the answer. What the
//! commands that list have in common is here; what those that change pools have in common is in [`session`].

mod allow;
mod bookmark;
mod clone;
mod create;
mod destroy;
pub(crate) mod diff;
mod get;
mod hold;
mod holds;
mod list;
pub(crate) mod mount;
pub(crate) mod mount_helper;
mod permissions;
pub(crate) mod project;
mod properties;
mod receive;
mod redact;
mod rename;
mod rollback;
mod send;
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
use admin::verbs::zfs::{DatasetRow, Depth, Operand, Selection, Unopened};
use admin::{Kind, Session};
use format::prop;
use serde_json::{Map, Value as Json, json};
use std::ffi::OsString;
use std::path::Path;

/// Whether a command line, with its subcommand, asks for a title of the process.
pub(crate) fn has_title(args: &[OsString]) -> bool {
    args.split_first().is_some_and(|(word, args)| word == "send" && send::has_title(args))
}

/// Runs a subcommand, given by its canonical name.
pub(crate) fn run(subcommand: &str, args: Vec<OsString>, out: &Out) -> Outcome {
    rights::check(rights::zfs(subcommand), || rights::zfs_refusal(subcommand))?;
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
        "receive" => receive::run(&args, out),
        "clone" => clone::run(&args),
        "promote" => clone::promote(&args),
        "rename" => rename::run(&args),
        "send" => send::run(args, out),
        "set" => set::run(&args, out),
        "inherit" => set::inherit(&args),
        "hold" => hold::hold(&args),
        "release" => hold::release(&args),
        "bookmark" => bookmark::run(&args),
        "redact" => redact::run(&args),
        "upgrade" => upgrade::run(&args, out),
        "wait" => wait::run(args),
        "project" => project::run(&args, out),
        "allow" => allow::run(allow::Verb::Allow, &args, out),
        "unallow" => allow::run(allow::Verb::Unallow, &args, out),
        other => Err(crate::unsupported(Tool::Zfs, other, &args)),
    }
}

/// Bytes of output that are gathered where a verb gives one item after the other.
const CHUNK: usize = 64 << 10;

/// `--json-int`.
const JSON_INT: char = '\u{1}';

/// Long options of `list` and `get`.
const JSON_LONG: &[Long] = &[Long::flag("json", 'j'), Long::flag("json-int", JSON_INT)];

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

    /// The datasets that these options and operands select.
    fn selection(&self, operands: &[String]) -> Selection {
        let operands = operands.iter().map(|text| operand(text)).collect();
        Selection { operands, kinds: self.kinds.clone(), depth: self.depth }
    }
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
fn operand(text: &str) -> Operand {
    let path = is_path(text).then(|| rights::path(Path::new(text)));
    Operand { text: text.to_owned(), path }
}

/// Tells what a verb could not open; the exit code.
fn tell_unopened(unopened: &[Unopened]) -> u8 {
    unopened.iter().for_each(|one| complain(&one.to_string()));
    u8::from(!unopened.is_empty())
}

/// A session for verbs that change no pool: those that read, and those about mounts. It writes no history line.
fn reading() -> Session<'static> {
    let mut session = Session::new(crate::search::from_env());
    session.on_step(crate::console::end_without_client);
    session
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
fn json_dataset(row: &DatasetRow, int: bool) -> Map<String, Json> {
    let mut map = Map::new();
    map.insert("name".into(), json!(row.name));
    map.insert("type".into(), json!(row.kind.word().to_uppercase()));
    map.insert("pool".into(), json!(row.pool));
    map.insert("createtxg".into(), crate::values::number(row.create_txg, int, |n| n.to_string()));
    if let Some((dataset, snapshot)) = row.name.split_once('@') {
        map.insert("dataset".into(), json!(dataset));
        map.insert("snapshot_name".into(), json!(snapshot));
    }
    map
}
