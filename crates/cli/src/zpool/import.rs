//! `zpool import`: which pools could be imported, and importing them.
//!
//! In process nothing stays open and nothing is mounted: an imported pool is one that is noted as such, and every
//! command opens it again.

use super::{Given, command_line, known_pool_property, status_text, texts};
use crate::getopt::{Getopt, Long};
use crate::keys;
use crate::out::{Out, message_line, visible};
use crate::stop::{Outcome, Stop};
use crate::time;
use admin::change::{
    ChangeError, ImportRequest, Importable, PoolSetting, SetWhen, check_pool_name, check_pool_setting,
    importable, imported_names,
};
use admin::mounting::Mounting;
use admin::{Candidate, CandidateVdev, Search};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const REWIND_TO_CHECKPOINT: char = '\u{1}';
const LONG: &[Long] = &[Long::flag("rewind-to-checkpoint", REWIND_TO_CHECKPOINT)];

/// What the options ask for.
#[derive(Default)]
struct Wanted {
    all: bool,
    /// `-n` and `-X` need `-F`.
    rewind: bool,
    dry: bool,
    extreme: bool,
    load_keys: bool,
    no_mount: bool,
    mount_options: Vec<String>,
    /// `-d` said where to look.
    has_places: bool,
    props: Given,
    request: ImportRequest,
}

pub(super) fn run(args: Vec<OsString>, out: &Out) -> Outcome {
    let command = command_line("import", &args);
    let mut walk = Getopt::new(args, ":aCc:d:DEfFlmnNo:R:stT:VX", LONG);
    let mut search = crate::search::from_env();
    let mut wanted = options(&mut walk, &mut search)?;
    wanted.request.command = command;
    let operands = texts(&walk.operands());
    if operands.len() > 2 || wanted.all && !operands.is_empty() {
        return Err(Stop::usage("too many arguments"));
    }
    if operands.is_empty() && !wanted.all {
        return list(&search, wanted.has_places, out);
    }
    if let Some(name) = operands.first()
        && operands.len() == 1
        && imported_names(&search).map_err(Stop::failed)?.contains(name)
    {
        return Err(Stop::failed(format!(
            "cannot import '{name}': a pool with that name already exists\n\
             use the form 'zpool import <pool | id> <newpool>' to give it a new name"
        )));
    }
    let mut found = match importable(&search) {
        Ok(found) => found,
        Err(error) => {
            say_error_line!("{}", visible(&format!("failed to open cache file: {error}")));
            Importable::default()
        }
    };
    told(&mut found, wanted.has_places);
    match operands.first() {
        Some(name) => one(name, operands.get(1), &found, wanted, &search),
        None => all(&found, &wanted, &search),
    }
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
            'F' => (wanted.rewind, request.recover) = (true, true),
            'l' => wanted.load_keys = true,
            'm' => request.allow_missing_logs = true,
            'n' => (wanted.dry, request.dry) = (true, true),
            'N' => wanted.no_mount = true,
            'o' => option(&text(), &mut wanted)?,
            'R' => wanted.props.add("altroot", &text()).map_err(Stop::failed)?,
            't' => request.settings.temporary = true,
            'T' => request.max_txg = Some(txg(&text())?),
            'X' => (wanted.extreme, request.recover) = (true, true),
            REWIND_TO_CHECKPOINT => request.settings.checkpoint = true,
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
    if (wanted.dry || wanted.extreme) && !wanted.rewind {
        return Err(Stop::usage("-n or -X only meaningful with -F"));
    }
    wanted.has_places = !dirs.is_empty();
    if wanted.has_places {
        search.paths = dirs;
    }
    search.cachefile = cachefile;
    Ok(wanted)
}

/// `-o`: a property, or, without `=`, options for mounting.
fn option(text: &str, wanted: &mut Wanted) -> Result<(), Stop> {
    let Some((name, value)) = text.split_once('=') else {
        wanted.mount_options.extend(text.split(',').map(str::to_owned));
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

/// Says what could not be looked at. A folder of `-d` that is not there holds no pools, and that is all.
fn told(found: &mut Importable, is_given: bool) {
    found.problems.retain(|problem| !is_given || Path::new(&problem.what).exists());
    for problem in &found.problems {
        say_error_line!("{}", visible(&problem.to_string()));
    }
}

/// Without operands: the pools that could be imported.
fn list(search: &Search, is_given: bool, out: &Out) -> Outcome {
    let mut found = importable(search).map_err(Stop::failed)?;
    told(&mut found, is_given);
    if found.pools.is_empty() && found.problems.is_empty() {
        say_error_line!("no pools available to import");
    }
    for (i, pool) in found.pools.iter().enumerate() {
        let gap = if i > 0 { "\n" } else { "" };
        out.print(&format!("{gap}{}", text(pool, out)));
    }
    Ok(u8::from(!found.problems.is_empty()))
}

/// Puts the properties into the request.
fn properties(name: &str, wanted: &mut Wanted) -> Result<(), Stop> {
    for (prop, value) in wanted.props.pairs() {
        let refused = |why: &str| Stop::failed(format!("cannot import pool '{name}': {why}"));
        let request = &mut wanted.request;
        match check_pool_setting(&prop, &value, SetWhen::Import).map_err(|why| refused(&why))? {
            PoolSetting::Stored(name, value) => request.props.push((name, value)),
            PoolSetting::Compatibility(value) => request.props.push(("compatibility".to_owned(), value)),
            PoolSetting::Feature(feature) => request.features.push(feature.to_owned()),
            PoolSetting::CacheFile(value) => {
                request.settings.cachefile = Some(value).filter(|v| !v.is_empty())
            }
            PoolSetting::ReadOnly(readonly) => request.settings.readonly = readonly,
            PoolSetting::AltRoot(root) => request.settings.altroot = Some(root),
            PoolSetting::Version(version) if version < 5000 => {
                return Err(refused(&format!("property 'version' number {version} is invalid.")));
            }
            _ => {}
        }
    }
    let settings = &mut wanted.request.settings;
    if settings.checkpoint && !settings.readonly {
        return Err(Stop::failed(format!(
            "cannot import '{name}': going back to a checkpoint is not supported by this version of Cenote\n\
             use '-o readonly=on' to import the pool as it was then"
        )));
    }
    super::unlist(&wanted.props, settings.temporary, settings);
    settings.temporary &= wanted.request.new_name.is_some();
    Ok(())
}

/// Imports the pool that was named.
fn one(name: &str, new: Option<&String>, found: &Importable, mut wanted: Wanted, search: &Search) -> Outcome {
    let matching = found.matching(name);
    let pool = match &matching[..] {
        [] => return Err(Stop::failed(format!("cannot import '{name}': no such pool available"))),
        [one] => *one,
        _ => {
            return Err(Stop::failed(format!(
                "cannot import '{name}': more than one matching pool\nimport by numeric ID instead"
            )));
        }
    };
    if let Some(new) = new {
        check_pool_name(new).map_err(|problem| Stop::failed(format!("cannot import '{new}': {problem}")))?;
        wanted.request.new_name = Some(new.clone());
    }
    properties(&pool.name, &mut wanted)?;
    found.import(pool, &wanted.request).map_err(|error| stop(pool, new, &error))?;
    Ok(mount(search, new.unwrap_or(&pool.name), &wanted))
}

/// Mounts what mounts by itself of a pool that was imported; says what does not. The exit code.
fn mount(search: &Search, pool: &str, wanted: &Wanted) -> u8 {
    if wanted.no_mount || wanted.dry {
        return 0;
    }
    let Some(mounting) = Mounting::of(search) else { return 0 };
    let code = match wanted.load_keys {
        true => keys::load(&mounting, &mounting.wanted_keys(Some(pool))),
        false => 0,
    };
    let refused = mounting.after_import(pool, &wanted.mount_options);
    for refusal in &refused {
        refusal.to_string().lines().for_each(|line| say_error_line!("{}", message_line(line)));
    }
    code | u8::from(!refused.is_empty())
}

/// `-a`: all that are there.
fn all(found: &Importable, wanted: &Wanted, search: &Search) -> Outcome {
    if found.pools.is_empty() && found.problems.is_empty() {
        say_error_line!("no pools available to import");
    }
    let mut code = u8::from(!found.problems.is_empty());
    for pool in &found.pools {
        let mut own =
            Wanted { props: wanted.props.clone(), request: wanted.request.clone(), ..Wanted::default() };
        let outcome = properties(&pool.name, &mut own)
            .and_then(|()| found.import(pool, &own.request).map_err(|error| stop(pool, None, &error)));
        match outcome {
            Err(Stop::Failed(Some(message))) => {
                message.lines().for_each(|line| say_error_line!("{}", message_line(line)));
                code = 1;
            }
            Ok(()) => code |= mount(search, &pool.name, wanted),
            Err(_) => code = 1,
        }
    }
    Ok(code)
}

/// What the tool says of an import that failed.
fn stop(pool: &Candidate, new: Option<&String>, error: &ChangeError) -> Stop {
    let what = match new {
        Some(new) => format!("cannot import '{}' as '{new}'", pool.name),
        None => format!("cannot import '{}'", pool.name),
    };
    Stop::failed(match error {
        ChangeError::Name(problem) => format!("{what}: {problem}"),
        ChangeError::OtherHost { host, hostid, accessed } => format!(
            "{what}: pool was previously in use from another system.\n\
             Last accessed by {} (hostid={hostid:x}) at {}\n\
             The pool can be imported, use 'zpool import -f' to import the pool.",
            if host.is_empty() { "<unknown>" } else { host },
            time::ctime(*accessed)
        ),
        // OpenZFS advises here to destroy the pool, whose data is whole when the devices are back.
        ChangeError::Unavailable { devices } => {
            let list: String = devices.iter().map(|device| format!("\t    {device}\n")).collect();
            format!(
                "{what}: one or more devices is currently unavailable\n\
                 The devices below are missing or corrupted, the pool can be imported when they are back:\n{list}"
            )
        }
        ChangeError::MissingLogs { devices } => {
            let list: String = devices.iter().map(|d| format!("\t    {} [log]\n", vdev_name(d))).collect();
            format!(
                "{what}: one or more devices is currently unavailable\n\
                 The devices below are missing or corrupted, use '-m' to import the pool anyway:\n{list}\n"
            )
        }
        ChangeError::ReadOnly { why } => format!(
            "{what}: {why}\n\
             This version of Cenote can only read it: use 'zpool import -o readonly=on' to import the pool."
        ),
        error => format!("{what}: {error}"),
    })
}

/// The name of a vdev, without what is behind it: how it is missing, or which of its devices are.
fn vdev_name(lacking: &str) -> &str {
    let is_group = |name: &str| {
        name.rsplit_once('-').is_some_and(|(kind, id)| !kind.contains('/') && id.parse::<u32>().is_ok())
    };
    let group = lacking.split_once(" (").map(|(name, _)| name).filter(|name| is_group(name));
    group.unwrap_or_else(|| lacking.rsplit_once(": ").map_or(lacking, |(path, _)| path))
}

fn text(pool: &Candidate, out: &Out) -> String {
    let comment = pool.config.comment.as_ref().filter(|comment| !comment.is_empty());
    // The labels are flush right, and this one is longer than the others.
    let width = if comment.is_some() { "comment".len() } else { "config".len() };
    let destroyed = if pool.is_destroyed() { " (DESTROYED)" } else { "" };
    let mut text = String::new();
    let mut line = |label: &str, value: &str| {
        let _ = writeln!(text, "{label:>width$}: {value}");
    };
    line("pool", &out.cell(&pool.name));
    line("id", &pool.guid.to_string());
    line("state", &format!("{}{destroyed}", pool.health_name()));
    if let Some(status) = pool.status_text() {
        line("status", &status);
    }
    line("action", &pool.action_text());
    if let Some(comment) = comment {
        line("comment", &out.cell(comment));
    }
    if let Some(id) = pool.message_id() {
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
fn config(pool: &Candidate, out: &Out, text: &mut String) {
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
    config.line(&pool.name, pool.health_name(), pool.reason, 0);
    for (heading, members) in groups.iter().filter(|(_, members)| !members.is_empty()) {
        if let Some(heading) = heading {
            let _ = writeln!(config.text, "\t{heading}");
        }
        members.iter().for_each(|v| config.tree(v, 1));
    }
}

fn widest(vdev: &CandidateVdev, depth: usize, out: &Out) -> usize {
    let own = 2 * depth + out.cell(&vdev.name).chars().count();
    vdev.children.iter().map(|c| widest(c, depth + 1, out)).fold(own, usize::max)
}

struct Config<'a> {
    out: &'a Out,
    text: &'a mut String,
    width: usize,
}

impl Config<'_> {
    fn tree(&mut self, vdev: &CandidateVdev, depth: usize) {
        self.line(&vdev.name, vdev.state, vdev.reason, depth);
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
