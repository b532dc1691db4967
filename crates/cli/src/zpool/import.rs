//! `zpool import`: its arguments, the list of pools that could be imported, and what is said of refusals.

use super::{Given, in_session_with, known_pool_property, status_text, texts};
use crate::getopt::{Getopt, Long};
use crate::keys;
use crate::out::{Out, message_line, visible};
use crate::stop::{Outcome, Stop};
use crate::time;
use admin::verbs::zpool::import::{self, Answer, MissingVdev, Refusal, Request};
use admin::verbs::zpool::importable::{self, Found, FoundVdev};
use admin::{Search, Session};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

const REWIND_TO_CHECKPOINT: char = '\u{1}';
const LONG: &[Long] = &[Long::flag("rewind-to-checkpoint", REWIND_TO_CHECKPOINT)];

/// What the options ask for beside the request.
#[derive(Default)]
struct Wanted {
    all: bool,
    /// `-X` needs `-F`.
    extreme: bool,
    load_keys: bool,
    no_mount: bool,
    props: Given,
    request: Request,
}

pub(super) fn run(args: &[OsString], out: &Out) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), ":aCc:d:DEfFlmnNo:R:stT:VX", LONG);
    let mut search = crate::search::from_env();
    let Wanted { all, load_keys, no_mount, props, mut request, .. } = options(&mut walk, &mut search)?;
    let operands = texts(&walk.operands());
    if operands.len() > 2 || all && !operands.is_empty() {
        return Err(Stop::usage("too many arguments"));
    }
    if operands.is_empty() && !all {
        return list(search, request.names_places, out);
    }
    let mut operands = operands.into_iter();
    (request.pool, request.new_name) = (operands.next(), operands.next());
    request.properties = props.pairs();
    // Keys that are asked for are loaded before anything is mounted.
    request.mount = !no_mount && !load_keys;
    in_session_with(search, "import", args, |session| {
        let outcome = session.run(&request);
        super::tell_warnings(session);
        let answer = outcome.map_err(|refusal| Stop::failed(words(&refusal)))?;
        Ok(tell(session, &request, answer, load_keys))
    })
}

/// Tells what was not imported or mounted. The exit code.
fn tell(session: &Session<'_>, request: &Request, answer: Answer, load_keys: bool) -> u8 {
    let say = |text: &str| text.lines().for_each(|line| say_error_line!("{}", message_line(line)));
    if request.pool.is_none() && answer.pools.is_empty() && answer.problems == 0 {
        say_error_line!("no pools available to import");
    }
    let mut code = u8::from(request.pool.is_none() && answer.problems > 0);
    for mut pool in answer.pools {
        if let Some(refusal) = &pool.refusal {
            say(&words(refusal));
            code = 1;
            continue;
        }
        if load_keys && !request.dry_run {
            if let Some(mounting) = session.mounting() {
                code |= keys::load(&mounting, &mounting.wanted_keys(Some(&pool.pool)));
            }
            pool.not_mounted = import::mount_all(session, &pool.pool, &request.mount_options);
        }
        pool.not_mounted.iter().for_each(|message| say(message));
        code |= u8::from(!pool.not_mounted.is_empty());
    }
    code
}

fn options(walk: &mut Getopt, search: &mut Search) -> Result<Wanted, Stop> {
    let mut wanted = Wanted::default();
    let (mut dirs, mut cachefile) = (Vec::new(), None);
    while let Some((letter, value)) = walk.next()? {
        let text = || value.as_ref().map(|v| v.to_string_lossy().into_owned()).unwrap_or_default();
        let request = &mut wanted.request;
        match letter {
            'a' => wanted.all = true,
            'c' => cachefile = value.map(PathBuf::from),
            'd' => dirs.extend(value.map(PathBuf::from)),
            'D' => (search.destroyed, request.destroyed) = (true, true),
            'f' => request.force = true,
            'F' => request.rewind = true,
            'l' => wanted.load_keys = true,
            'm' => request.allow_missing_logs = true,
            'n' => request.dry_run = true,
            'N' => wanted.no_mount = true,
            'o' => option(&text(), &mut wanted)?,
            'R' => wanted.props.add("altroot", &text()).map_err(Stop::failed)?,
            't' => request.temporary = true,
            'T' => request.txg_max = Some(txg(&text())?),
            'X' => wanted.extreme = true,
            REWIND_TO_CHECKPOINT => request.checkpoint = true,
            // How devices are looked for, and what is done with damaged configurations: all ways are one here.
            _ => {}
        }
    }
    if cachefile.is_some() && !dirs.is_empty() {
        return Err(Stop::usage("-c is incompatible with -d"));
    }
    if wanted.load_keys && wanted.no_mount {
        return Err(Stop::usage("-l is incompatible with -N"));
    }
    if (wanted.request.dry_run || wanted.extreme) && !wanted.request.rewind {
        return Err(Stop::usage("-n or -X only meaningful with -F"));
    }
    wanted.request.names_places = !dirs.is_empty();
    if wanted.request.names_places {
        search.paths = dirs;
    }
    search.cachefile = cachefile;
    Ok(wanted)
}

/// `-o`: a property, or, without `=`, options for mounting.
fn option(text: &str, wanted: &mut Wanted) -> Result<(), Stop> {
    let Some((name, value)) = text.split_once('=') else {
        wanted.request.mount_options.extend(text.split(',').map(str::to_owned));
        return Ok(());
    };
    let Some(name) = known_pool_property(name) else {
        say_error_line!("{}", visible(&format!("property '{name}' is not a valid pool or vdev property")));
        // This ends with 0 in the real tool, too.
        return Err(Stop::Code(0));
    };
    wanted.props.add(&name, value).map_err(Stop::failed)
}

/// `-T`: the newest state that counts. 0 stands for the newest of all.
fn txg(text: &str) -> Result<u64, Stop> {
    match text.parse::<u64>() {
        Ok(0) => Ok(u64::MAX),
        Ok(txg) => Ok(txg),
        Err(_) => Err(Stop::usage("invalid txg value")),
    }
}

/// Without operands: the pools that could be imported.
fn list(search: Search, names_places: bool, out: &Out) -> Outcome {
    let request = importable::Request { names_places };
    let found = Session::new(search).run(&request).map_err(Stop::failed)?;
    let code = super::tell_problems(&found.problems);
    if found.pools.is_empty() && found.problems.is_empty() {
        say_error_line!("no pools available to import");
    }
    for (i, pool) in found.pools.iter().enumerate() {
        let gap = if i > 0 { "\n" } else { "" };
        out.print(&format!("{gap}{}", text(pool, out)));
    }
    Ok(code)
}

/// What the tool says of a pool that is not imported.
fn words(refusal: &Refusal) -> String {
    let what = |pool: &str, new_name: &Option<String>| match new_name {
        Some(new) => format!("cannot import '{pool}' as '{new}'"),
        None => format!("cannot import '{pool}'"),
    };
    match refusal {
        Refusal::OtherHost { pool, new_name, host, hostid, accessed } => format!(
            "{}: pool was previously in use from another system.\n\
             Last accessed by {} (hostid={hostid:x}) at {}\n\
             The pool can be imported, use 'zpool import -f' to import the pool.",
            what(pool, new_name),
            if host.is_empty() { "<unknown>" } else { host },
            time::ctime(*accessed)
        ),
        // OpenZFS advises here to destroy the pool, whose data is whole when the devices are back.
        Refusal::Unavailable { pool, new_name, vdevs } => {
            let list: String = vdevs.iter().map(|vdev| format!("\t    {vdev}\n")).collect();
            format!(
                "{}: one or more devices is currently unavailable\n\
                 The devices below are missing or corrupted, the pool can be imported when they are back:\n{list}",
                what(pool, new_name)
            )
        }
        Refusal::MissingLogs { pool, new_name, vdevs } => {
            let name = |vdev: &MissingVdev| vdev.name.clone().unwrap_or_else(|| vdev.to_string());
            let list: String = vdevs.iter().map(|vdev| format!("\t    {} [log]\n", name(vdev))).collect();
            format!(
                "{}: one or more devices is currently unavailable\n\
                 The devices below are missing or corrupted, use '-m' to import the pool anyway:\n{list}\n",
                what(pool, new_name)
            )
        }
        Refusal::ReadOnly { pool, new_name, reason } => format!(
            "{}: {reason}\n\
             This version of Cenote can only read it: use 'zpool import -o readonly=on' to import the pool.",
            what(pool, new_name)
        ),
        refusal => refusal.to_string(),
    }
}

fn text(pool: &Found, out: &Out) -> String {
    let comment = pool.comment.as_ref();
    // The labels are flush right, and this one is longer than the others.
    let width = if comment.is_some() { "comment".len() } else { "config".len() };
    let destroyed = if pool.is_destroyed { " (DESTROYED)" } else { "" };
    let mut text = String::new();
    let mut line = |label: &str, value: &str| {
        let _ = writeln!(text, "{label:>width$}: {value}");
    };
    line("pool", &out.cell(&pool.name));
    line("id", &pool.guid.to_string());
    line("state", &format!("{}{destroyed}", pool.state));
    if let Some(status) = &pool.status {
        line("status", status);
    }
    line("action", &pool.action);
    if let Some(comment) = comment {
        line("comment", &out.cell(comment));
    }
    if let Some(id) = &pool.message_id {
        line("see", &status_text::page(id));
    }
    let _ = writeln!(text, "{:>width$}:\n", "config");
    config(pool, out, &mut text);
    if pool.has_unknown_vdevs {
        text.push_str("\n\tAdditional devices are known to be part of this pool, though their\n");
        text.push_str("\texact configuration cannot be determined.\n");
    }
    text
}

/// The tree, without counters.
fn config(pool: &Found, out: &Out, text: &mut String) {
    let groups = [
        (None, &pool.vdevs),
        (Some("dedup\t"), &pool.dedup),
        (Some("special\t"), &pool.special),
        // The tab behind these headings is the tool's own.
        (Some("logs\t"), &pool.logs),
        (Some("cache"), &pool.cache),
        (Some("spares"), &pool.spares),
    ];
    let members = groups.iter().flat_map(|(_, members)| members.iter());
    let widest = members.map(|v| widest(v, 1, out)).fold(out.cell(&pool.name).chars().count(), usize::max);
    let mut config = Config { out, text, width: widest.max(10) };
    config.line(&pool.name, &pool.state, &pool.reason, 0);
    for (heading, members) in groups.iter().filter(|(_, members)| !members.is_empty()) {
        if let Some(heading) = heading {
            let _ = writeln!(config.text, "\t{heading}");
        }
        members.iter().for_each(|v| config.tree(v, 1));
    }
}

fn widest(vdev: &FoundVdev, depth: usize, out: &Out) -> usize {
    let own = 2 * depth + out.cell(&vdev.name).chars().count();
    vdev.children.iter().map(|c| widest(c, depth + 1, out)).fold(own, usize::max)
}

struct Config<'a> {
    out: &'a Out,
    text: &'a mut String,
    width: usize,
}

impl Config<'_> {
    fn tree(&mut self, vdev: &FoundVdev, depth: usize) {
        self.line(&vdev.name, &vdev.state, &vdev.reason, depth);
        for child in &vdev.children {
            self.tree(child, depth + 1);
        }
    }

    fn line(&mut self, name: &str, state: &str, reason: &str, depth: usize) {
        let name = format!("{}{}", "  ".repeat(depth), self.out.cell(name));
        // Cache devices have no state to show.
        let padded = if state.is_empty() { name } else { format!("{name:<w$}  {state}", w = self.width) };
        let gap = if reason.is_empty() { "" } else { "  " };
        let _ = writeln!(self.text, "\t{padded}{gap}{reason}");
    }
}
