//! `zpool`: what its verbs have in common.
//!
//! Verbs that change a pool run in process: they open it, do their work and export it. A pool stays imported in
//! the sense of the tools while the cache file, or our own file beside it, lists it.

mod add;
mod attach;
mod change;
mod checkpoint;
mod create;
mod events;
mod get;
pub(crate) use get::fields as get_fields;
mod healing;
mod history;
mod import;
mod iostat;
mod layout;
mod list;
mod reguid;
mod remove;

#[cfg(test)]
mod samples;
mod scripts;
pub(crate) use scripts::SAID;
mod set;
mod status;
mod status_json;
mod status_options;
mod status_text;
mod upgrade;

use crate::console;
use crate::getopt::{Getopt, Long};
use crate::out::Out;
use crate::rights;
use crate::stop::{Outcome, Stop};
use crate::time;
use crate::usage::Tool;
use admin::verbs::zpool::{self, ReadRefusal};
use admin::{self, PoolFacts, Problem, Search, Session};
use format::nicenum;
use serde_json::{Map, Value as Json, json};
use std::ffi::{OsStr, OsString};

/// Runs a subcommand, given by its canonical name.
pub(crate) fn run(subcommand: &str, args: Vec<OsString>, out: &Out) -> Outcome {
    rights::check(rights::zpool(subcommand), || rights::zpool_refusal(subcommand, &args))?;
    match subcommand {
        "list" => list::run(args, out),
        "status" => status::run(args, out),
        "get" => get::run(args, out),
        "import" => import::run(&args, out),
        "history" => history::run(args, out),
        "events" => events::run(args, out),
        "iostat" => iostat::run(args, out),
        "create" => create::run(&args, out),
        "add" => add::run(&args, out),
        "attach" => attach::attach(&args, out),
        "replace" => attach::replace(&args, out),
        "detach" => attach::detach(&args),
        "destroy" => change::destroy(&args),
        "export" => change::export(&args),
        "sync" => change::sync(args),
        "reguid" => reguid::run(&args),
        "remove" => remove::run(&args, out),
        "labelclear" => change::labelclear(args),
        "scrub" => healing::scrub(&args, out),
        "resilver" => healing::resilver(&args),
        "checkpoint" => checkpoint::run(&args, out),
        "clear" => healing::clear(&args),
        "online" => healing::online(&args),
        "offline" => healing::offline(&args),
        "reopen" => healing::reopen(&args),
        "wait" => healing::wait(args, out),
        "set" => set::run(&args, out),
        "upgrade" => upgrade::run(&args, out),
        "version" => crate::version::run(Tool::Zpool, args, out),
        other => Err(crate::unsupported(Tool::Zpool, other, &args)),
    }
}

/// The command as the history of a pool has it.
fn command_line(verb: &str, args: &[OsString]) -> String {
    let mut line = format!("zpool {verb}");
    for arg in args {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}

/// Runs a command in a session of its own, whose line goes into the history of the pools that it changes.
fn in_session(
    subcommand: &str,
    args: &[OsString],
    command: impl FnOnce(&mut Session<'static>) -> Outcome,
) -> Outcome {
    in_session_with(crate::search::from_env(), subcommand, args, command)
}

/// The same for a command that says where pools are.
fn in_session_with(
    search: Search,
    subcommand: &str,
    args: &[OsString],
    command: impl FnOnce(&mut Session<'static>) -> Outcome,
) -> Outcome {
    command(&mut Session::of_command(search, command_line(subcommand, args)))
}

/// Tells the warnings of the verbs that have run.
fn tell_warnings(session: &mut Session<'_>) {
    for warning in session.take_warnings() {
        warning.to_string().lines().for_each(|line| say_error_line!("{}", crate::out::visible(line)));
    }
}

/// Does something with each pool or device, and tells what is refused. The exit code.
fn each<R: std::fmt::Display>(names: &[String], mut work: impl FnMut(&str) -> Result<(), R>) -> u8 {
    let mut code = 0;
    for name in names {
        if let Err(refusal) = work(name) {
            refusal.to_string().lines().for_each(|line| say_error_line!("{}", crate::out::visible(line)));
            code = 1;
        }
    }
    code
}

/// `-o` of verbs that take the sector size only.
fn ashift_option(text: &str) -> Result<&str, Stop> {
    let (name, value) = text.split_once('=').ok_or_else(|| Stop::usage("missing '=' for -o option"))?;
    if name == "ashift" { Ok(value) } else { Err(Stop::usage("")) }
}

/// Properties given on a command line, each once, in their order.
#[derive(Debug, Clone, Default)]
struct Given(Vec<(String, String)>);

impl Given {
    fn add(&mut self, name: &str, value: &str) -> Result<(), String> {
        if self.get(name).is_some() {
            return Err(format!("property '{name}' specified multiple times"));
        }
        self.0.push((name.to_owned(), value.to_owned()));
        Ok(())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    fn pairs(&self) -> Vec<(String, String)> {
        self.0.clone()
    }
}

/// The own name of a property that `-o` may give; of features every name will do, they are looked at later.
fn known_pool_property(name: &str) -> Option<String> {
    if name.starts_with(format::feature::PROPERTY_PREFIX) {
        return Some(name.to_owned());
    }
    let known = format::prop::pool(name).map(|prop| prop.name);
    known.or_else(|| format::prop::vdev(name).map(|prop| prop.name)).map(str::to_owned)
}

/// `--json` and what goes with it, for every verb that has it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct JsonOptions {
    /// JSON at all.
    pub(crate) on: bool,
    /// Numbers as integers.
    pub(crate) int: bool,
    /// Pools keyed by guid.
    pub(crate) by_guid: bool,
    /// Vdevs in one flat map.
    pub(crate) flat: bool,
}

/// Letters that stand for long options without one.
pub(crate) const JSON_INT: char = '\u{1}';
/// `--json-pool-key-guid`.
pub(crate) const JSON_BY_GUID: char = '\u{2}';
/// `--json-flat-vdevs`.
pub(crate) const JSON_FLAT: char = '\u{3}';
/// `--power`.
pub(crate) const POWER: char = '\u{4}';

/// Long options of `list` and `get`.
pub(crate) const JSON_LONG: &[Long] = &[
    Long::flag("json", 'j'),
    Long::flag("json-int", JSON_INT),
    Long::flag("json-pool-key-guid", JSON_BY_GUID),
];

impl JsonOptions {
    /// Takes an option if it is one of these.
    pub(crate) fn take(&mut self, letter: char) -> bool {
        match letter {
            'j' => self.on = true,
            JSON_INT => self.int = true,
            JSON_BY_GUID => self.by_guid = true,
            JSON_FLAT => self.flat = true,
            _ => return false,
        }
        true
    }

    /// The qualifying options need `-j`.
    pub(crate) fn check(self) -> Result<(), Stop> {
        for (set, name) in [
            (self.int, "--json-int"),
            (self.by_guid, "--json-pool-key-guid"),
            (self.flat, "--json-flat-vdevs"),
        ] {
            if set && !self.on {
                return Err(Stop::usage(format!("'{name}' only works with '-j' option")));
            }
        }
        Ok(())
    }

    /// The key of a pool.
    pub(crate) fn key(self, facts: &PoolFacts) -> String {
        if self.by_guid { facts.guid.to_string() } else { facts.name.clone() }
    }
}

/// The frame of every JSON answer.
pub(crate) fn json_answer(command: &str, name: &str, body: Map<String, Json>) -> String {
    let mut answer = Map::new();
    answer.insert("output_version".into(), json!({"command": command, "vers_major": 0, "vers_minor": 1}));
    answer.insert(name.into(), Json::Object(body));
    format!("{}\n", Json::Object(answer))
}

/// The facts that open every pool object; `typed` adds its type, as `list` and `get` do.
pub(crate) fn json_facts(facts: &PoolFacts, typed: bool, int: bool) -> Map<String, Json> {
    let mut map = Map::new();
    let number = |n: u64| crate::values::number(n, int, |n| n.to_string());
    map.insert("name".into(), json!(facts.name));
    if typed {
        map.insert("type".into(), json!("POOL"));
    }
    map.insert("state".into(), json!(facts.state_word()));
    map.insert("pool_guid".into(), number(facts.guid));
    map.insert("txg".into(), number(facts.config_txg));
    map.insert("spa_version".into(), number(facts.version));
    map.insert("zpl_version".into(), number(facts.zpl_version));
    map
}

/// Pool names, then `interval [count]`.
pub(crate) struct Operands {
    /// Names.
    pub(crate) pools: Vec<String>,
    /// Seconds between samples; none: one sample.
    pub(crate) interval: Option<f64>,
    /// How many samples; none: for ever.
    pub(crate) count: Option<u64>,
}

/// The stamp before each sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// None.
    Off,
    /// `-T u`: seconds since 1970.
    Seconds,
    /// `-T d`: a date.
    Date,
}

impl Stamp {
    /// The value of `-T`.
    pub(crate) fn parse(value: Option<&OsStr>) -> Result<Stamp, Stop> {
        match value.and_then(OsStr::to_str) {
            Some("u") => Ok(Stamp::Seconds),
            Some("d") => Ok(Stamp::Date),
            _ => Err(Stop::usage("")),
        }
    }

    /// The line, if any.
    pub(crate) fn line(self) -> String {
        match self {
            Stamp::Off => String::new(),
            Stamp::Seconds => format!("{}\n", time::now()),
            Stamp::Date => format!("{}\n", time::dated(time::now())),
        }
    }
}

/// Splits trailing numbers from names: no pool's name begins with a digit.
pub(crate) fn operands(walk: Getopt) -> Result<Operands, Stop> {
    let mut pools: Vec<String> = texts(&walk.operands());
    let last_number = |pools: &mut Vec<String>| {
        let number: f64 = pools.last()?.parse().ok().filter(|n: &f64| n.is_finite() && *n >= 0.0)?;
        pools.pop();
        Some(number)
    };
    let last = last_number(&mut pools);
    let before = if last.is_some() { last_number(&mut pools) } else { None };
    let (interval, count) = match (before, last) {
        (Some(interval), Some(count)) => (Some(interval), Some(count as u64)),
        (None, interval) => (interval, None),
        (Some(_), None) => (None, None),
    };
    if interval == Some(0.0) {
        return Err(Stop::usage("interval cannot be zero"));
    }
    if count == Some(0) {
        return Err(Stop::usage("count cannot be zero"));
    }
    Ok(Operands { pools, interval, count })
}

/// Operands as text.
pub(crate) fn texts(args: &[OsString]) -> Vec<String> {
    args.iter().map(|a| a.to_string_lossy().into_owned()).collect()
}

/// Repeats a listing as `interval` and `count` say. The exit code is that of the last sample.
pub(crate) fn repeat(
    operands: &Operands,
    stamp: Stamp,
    out: &Out,
    mut sample: impl FnMut(&[String]) -> Outcome,
) -> Outcome {
    let mut left = operands.count.unwrap_or(u64::MAX);
    loop {
        out.print(&stamp.line());
        let code = sample(&operands.pools)?;
        left -= 1;
        match operands.interval {
            Some(seconds) if left > 0 => {
                // Longer pauses than a year are one.
                if !crate::console::sleep(std::time::Duration::from_secs_f64(seconds.min(3.2e7))) {
                    return Ok(code);
                }
            }
            _ => return Ok(code),
        }
    }
}

/// A session of a command that changes no pool.
fn reading() -> Session<'static> {
    let mut session = Session::new(crate::search::from_env());
    session.on_step(crate::console::end_without_client);
    session
}

/// Tells what could not be opened or looked at. The exit code: 1 if there was something.
fn tell_problems(problems: &[Problem]) -> u8 {
    tell_problems_as(problems, &Problem::to_string)
}

/// The same, with words of the command's own.
fn tell_problems_as(problems: &[Problem], words: &dyn Fn(&Problem) -> String) -> u8 {
    problems.iter().for_each(|problem| say_error_line!("{}", crate::out::visible(&words(problem))));
    u8::from(!problems.is_empty())
}

/// How a command ends that could not read its pools.
fn unread(refusal: &ReadRefusal) -> Stop {
    unread_as(refusal, &Problem::to_string)
}

/// The same, with words of the command's own for what could not be opened.
fn unread_as(refusal: &ReadRefusal, words: &dyn Fn(&Problem) -> String) -> Stop {
    tell_problems_as(refusal.problems(), words);
    match refusal {
        ReadRefusal::Property { .. } => Stop::usage(refusal.to_string()),
        refusal => Stop::failed(refusal),
    }
}

/// The names of these pools as far as they can be opened; without names, of all. What is wrong is told, and the command
/// goes on.
fn names_of(pools: &[String]) -> Result<Vec<String>, Stop> {
    let request = zpool::list::Request { pools: pools.to_vec(), ..Default::default() };
    let answer = reading().run(&request).map_err(|refusal| unread(&refusal))?;
    tell_problems(&answer.problems);
    Ok(answer.pools.into_iter().map(|pool| pool.facts.name).collect())
}

/// Ends the command if a pool cannot be opened. What is wrong is told.
fn check_opens(pool: &str) -> Result<(), Stop> {
    if names_of(&[pool.to_owned()])?.is_empty() { Err(Stop::Code(1)) } else { Ok(()) }
}

/// A number with its unit, or exact.
pub(crate) fn nice(number: u64, exact: bool) -> String {
    if exact { number.to_string() } else { nicenum::nicenum(number) }
}

/// The dedup histogram, with the blank lines around it.
pub(crate) fn dedup_table(histogram: &[admin::DedupBucket], text: &mut String) {
    use std::fmt::Write as _;
    text.push_str("\nbucket              allocated                       referenced          \n");
    text.push_str("______   ______________________________   ______________________________\n");
    let mut row = |name: &str, cells: [&str; 8]| {
        let [b, l, p, d, rb, rl, rp, rd] = cells;
        let _ = writeln!(
            text,
            "{name:>6}   {b:>6}   {l:>5}   {p:>5}   {d:>5}   {rb:>6}   {rl:>5}   {rp:>5}   {rd:>5}"
        );
    };
    let heads = ["blocks", "LSIZE", "PSIZE", "DSIZE"];
    let dashes = ["------", "-----", "-----", "-----"];
    let twice = |[a, b, c, d]: [&'static str; 4]| [a, b, c, d, a, b, c, d];
    row("refcnt", twice(heads));
    row("------", twice(dashes));
    let mut total = admin::DedupBucket::default();
    for (power, bucket) in histogram.iter().enumerate().filter(|(_, b)| b.blocks > 0) {
        let cells = cells(bucket);
        let name = u32::try_from(power).ok().and_then(|p| 1u64.checked_shl(p)).unwrap_or(u64::MAX);
        row(&nicenum::nicenum(name), cells.each_ref().map(String::as_str));
        add(&mut total, bucket);
    }
    if total.blocks > 0 {
        row("Total", cells(&total).each_ref().map(String::as_str));
    }
    text.push('\n');
}

/// Counts of blocks as numbers, sizes as bytes.
fn cells(b: &admin::DedupBucket) -> [String; 8] {
    let four = |blocks, sizes: [u64; 3]| {
        let [l, p, d] = sizes.map(nicenum::nicebytes);
        [nicenum::nicenum(blocks), l, p, d]
    };
    let [blocks, l, p, d] = four(b.blocks, [b.lsize, b.psize, b.dsize]);
    let [ref_blocks, rl, rp, rd] = four(b.ref_blocks, [b.ref_lsize, b.ref_psize, b.ref_dsize]);
    [blocks, l, p, d, ref_blocks, rl, rp, rd]
}

fn add(total: &mut admin::DedupBucket, b: &admin::DedupBucket) {
    let pairs = [
        (&mut total.blocks, b.blocks),
        (&mut total.lsize, b.lsize),
        (&mut total.psize, b.psize),
        (&mut total.dsize, b.dsize),
        (&mut total.ref_blocks, b.ref_blocks),
        (&mut total.ref_lsize, b.ref_lsize),
        (&mut total.ref_psize, b.ref_psize),
        (&mut total.ref_dsize, b.ref_dsize),
    ];
    for (sum, part) in pairs {
        *sum = sum.saturating_add(part);
    }
}

/// Runs the scripts of `zpool status -c` and `iostat -c` in the client of another user's daemon. What they said, for
/// [`SAID`]; `None`: there are none, or the command line is no good, which the daemon will say.
///
/// # Errors
/// All is done, or scripts may not be run or are not there.
pub(crate) fn scripts_said(args: &[OsString]) -> Result<Option<String>, Stop> {
    let Some((verb, args)) = args.split_first() else { return Ok(None) };
    let parse = match verb.to_str() {
        Some("status") => status::scripts,
        Some("iostat") => iostat::scripts,
        _ => return Ok(None),
    };
    if args.last().is_some_and(|last| last == "-c") {
        let all = scripts::Scripts::available(&verb.to_string_lossy())?;
        let written = console::write(console::Stream::Out, all.as_bytes());
        return Err(Stop::Code(u8::from(written.is_err())));
    }
    match parse(args.to_vec()) {
        Err(Stop::Usage(_)) => Ok(None),
        scripts => scripts?.said(),
    }
}
