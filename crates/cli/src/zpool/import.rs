//! `zpool import`: the list of pools that could be imported. Importing itself is for a version with
//! a daemon; here pools are opened in process by the verbs that need them.

use super::{status_text, texts};
use crate::getopt::{Getopt, Long};
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use cenote::admin::{self, Candidate, CandidateVdev};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

const REWIND_TO_CHECKPOINT: char = '\u{1}';
const LONG: &[Long] = &[Long::flag("rewind-to-checkpoint", REWIND_TO_CHECKPOINT)];

pub(super) fn run(args: Vec<OsString>, out: &Out) -> Outcome {
    let mut walk = Getopt::new(args, "aCc:d:DEfFlmnNo:R:stT:VX", LONG);
    let mut search = crate::search::from_env();
    let mut dirs = Vec::new();
    let (mut all, mut cachefile) = (false, None);
    while let Some((letter, value)) = walk.next()? {
        match letter {
            'a' => all = true,
            'c' => cachefile = value.map(PathBuf::from),
            'd' => dirs.extend(value.map(PathBuf::from)),
            'D' => search.destroyed = true,
            _ => {}
        }
    }
    if cachefile.is_some() && !dirs.is_empty() {
        return Err(Stop::usage("-c is incompatible with -d"));
    }
    if !dirs.is_empty() {
        search.paths = dirs;
    }
    search.cachefile = cachefile;
    let operands = texts(&walk.operands());
    if operands.len() > 2 {
        return Err(Stop::usage("too many arguments"));
    }
    if all && !operands.is_empty() {
        return Err(Stop::usage("too many arguments"));
    }
    let (found, problems) = admin::import_list(&search).map_err(Stop::failed)?;
    for problem in &problems {
        eprintln!("{}", crate::out::visible(&problem.to_string()));
    }
    if let Some(name) = operands.first() {
        return named(name, &found);
    }
    let code = u8::from(!problems.is_empty());
    if found.is_empty() {
        if problems.is_empty() {
            eprintln!("no pools available to import");
        }
        return Ok(code);
    }
    if all {
        return Err(refusal("-a"));
    }
    for (i, pool) in found.iter().enumerate() {
        let gap = if i > 0 { "\n" } else { "" };
        out.print(&format!("{gap}{}", text(pool, out)));
    }
    Ok(code)
}

/// What is said instead of importing.
fn named(name: &str, found: &[Candidate]) -> Outcome {
    let matches = found.iter().filter(|p| p.name == name || p.guid.0.to_string() == name).count();
    match matches {
        0 => Err(Stop::failed(format!("cannot import '{name}': no such pool available"))),
        1 => Err(refusal(name)),
        _ => Err(Stop::failed(format!(
            "cannot import '{name}': more than one matching pool\nimport by numeric ID instead"
        ))),
    }
}

fn refusal(what: &str) -> Stop {
    Stop::failed(format!(
        "cannot import '{what}': not supported by this version of Cenote\n\
         Pools need no import here: each command opens them in process, read-only.\n\
         Name their devices or folders in CENOTE_DEVICES (one path a line) or ZPOOL_IMPORT_PATH\n\
         (separated by colons) and use 'zpool status', 'zfs list' or 'cenote' directly."
    ))
}

fn text(pool: &Candidate, out: &Out) -> String {
    let mut text = String::new();
    let destroyed = if pool.is_destroyed() { " (DESTROYED)" } else { "" };
    let _ = writeln!(text, "  pool: {}", out.cell(&pool.name));
    let _ = writeln!(text, "    id: {}", pool.guid);
    let _ = writeln!(text, " state: {}{destroyed}", pool.health_name());
    if let Some(status) = pool.status_text() {
        let _ = writeln!(text, "status: {}", status);
    }
    let _ = writeln!(text, "action: {}", pool.action_text());
    if let Some(comment) = pool.config.comment.as_ref().filter(|c| !c.is_empty()) {
        let _ = writeln!(text, "comment: {}", out.cell(comment));
    }
    if let Some(id) = pool.message_id() {
        let _ = writeln!(text, "   see: {}", status_text::page(id));
    }
    text.push_str("config:\n\n");
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
