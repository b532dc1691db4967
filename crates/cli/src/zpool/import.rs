//! `zpool import`: the list of pools that could be imported. Importing itself is for a version with
//! a daemon; here pools are opened in process by the verbs that need them.

use super::status_text;
use super::texts;
use crate::getopt::{Getopt, Long};
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::vdevs::{GROUPS, Names, tops};
use cenote::admin::{self, Class, Health, Importable, Search, Vdev};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

const REWIND_TO_CHECKPOINT: char = '\u{1}';
const LONG: &[Long] = &[Long::flag("rewind-to-checkpoint", REWIND_TO_CHECKPOINT)];

pub(super) fn run(args: Vec<OsString>, out: &Out) -> Outcome {
    let mut walk = Getopt::new(args, "aCc:d:DEfFlmnNo:R:stT:VX", LONG);
    let mut search = Search::from_env();
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
    let operands = texts(walk.operands());
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
fn named(name: &str, found: &[Importable]) -> Outcome {
    let matches = found.iter().filter(|p| p.name == name || p.guid.to_string() == name).count();
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

fn text(pool: &Importable, out: &Out) -> String {
    let mut text = String::new();
    let state = pool.health.word();
    let destroyed = if pool.destroyed { " (DESTROYED)" } else { "" };
    let _ = writeln!(text, "  pool: {}", out.cell(&pool.name));
    let _ = writeln!(text, "    id: {}", pool.guid);
    let _ = writeln!(text, " state: {state}{destroyed}");
    let advice = status_text::of_import(&pool.diagnosis, pool.health, pool.destroyed);
    if let Some(status) = advice.status {
        let _ = writeln!(text, "status: {status}");
    }
    if let Some(action) = advice.action {
        let _ = writeln!(text, "action: {action}");
    }
    if let Some(comment) = &pool.comment {
        let _ = writeln!(text, "comment: {}", out.cell(comment));
    }
    if let Some(id) = advice.msgid {
        let _ = writeln!(text, "   see: {}", status_text::page(id));
    }
    text.push_str("config:\n\n");
    Config::of(pool, out, &mut text);
    text
}

/// The tree without counters.
struct Config<'a> {
    names: Names,
    out: &'a Out,
    text: &'a mut String,
    width: usize,
}

impl Config<'_> {
    fn of(pool: &Importable, out: &Out, text: &mut String) {
        let names = Names::from_env();
        let mut config = Config { names, out, text, width: 10 };
        let root = &pool.vdevs.root;
        config.width = config.width.max(config.widest(root, 0));
        for vdev in pool.vdevs.cache.iter().chain(&pool.vdevs.spares) {
            config.width = config.width.max(config.widest(vdev, 1));
        }
        config.line(root, 0);
        for vdev in tops(root, Class::Normal) {
            config.tree(vdev, 1);
        }
        for (class, heading) in GROUPS {
            let members: Vec<&Vdev> = tops(root, class).collect();
            if !members.is_empty() {
                // The tab behind the heading is the tool's own.
                let _ = writeln!(config.text, "\t{heading}\t");
                members.iter().for_each(|v| config.tree(v, 1));
            }
        }
        for (heading, members) in [("cache", &pool.vdevs.cache), ("spares", &pool.vdevs.spares)] {
            if !members.is_empty() {
                let _ = writeln!(config.text, "\t{heading}");
            }
            for vdev in members {
                let _ = writeln!(config.text, "\t  {}", config.out.cell(&config.names.of(vdev)));
            }
        }
    }

    /// A missing device is known by its path here: nothing has taken its place.
    fn name(&self, vdev: &Vdev) -> String {
        self.out.cell(&self.names.of_present(vdev)).into_owned()
    }

    fn widest(&self, vdev: &Vdev, depth: usize) -> usize {
        let own = 2 * depth + self.name(vdev).chars().count();
        let shown = vdev.children.iter().filter(|c| !hidden(c));
        shown.map(|c| self.widest(c, depth + 1)).fold(own, usize::max)
    }

    fn tree(&mut self, vdev: &Vdev, depth: usize) {
        if hidden(vdev) {
            return;
        }
        self.line(vdev, depth);
        for child in &vdev.children {
            self.tree(child, depth + 1);
        }
    }

    fn line(&mut self, vdev: &Vdev, depth: usize) {
        let name = format!("{}{}", "  ".repeat(depth), self.name(vdev));
        let _ = write!(self.text, "\t{name:<w$}  {}", vdev.health.word(), w = self.width);
        if vdev.health != Health::Online && !vdev.aux.words().is_empty() {
            let _ = write!(self.text, "  {}", vdev.aux.words());
        }
        self.text.push('\n');
    }
}

fn hidden(vdev: &Vdev) -> bool {
    matches!(vdev.kind.as_str(), "hole" | "indirect")
}
