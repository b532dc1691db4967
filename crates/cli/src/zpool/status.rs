//! `zpool status`.

use super::scripts::{Columns, Scripts};
use super::status_options::Options;
use super::status_text::{self, Advice};
use super::{JSON_BY_GUID, JSON_FLAT, JSON_INT, Operands, POWER, Stamp, nice, operands, repeat, status_json};
use crate::colour::{self, Colour};
use crate::getopt::{Getopt, Long};
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::time;
use crate::vdevs::{GROUPS, Names, spare_word, tops};
use admin::verbs::zpool::status::{Request, Row};
use admin::{Activity, Checkpoint, Class, ErrorScrub, Expansion, Health, PoolStatus, Removal, Scan, Vdev};
use format::nicenum::{nicebytes, nicenum};
use std::ffi::OsString;
use std::fmt::Write as _;

const LONG: &[Long] = &[
    Long::flag("json", 'j'),
    Long::flag("json-int", JSON_INT),
    Long::flag("json-flat-vdevs", JSON_FLAT),
    Long::flag("json-pool-key-guid", JSON_BY_GUID),
    Long::flag("power", POWER),
];

/// Options, operands and the stamp of a command line.
fn parse(args: Vec<OsString>) -> Result<(Options, Operands, Stamp), Stop> {
    let mut walk = Getopt::new(args, "c:jdDegiLpPstT:vx", LONG);
    let mut stamp = Stamp::Off;
    let mut options = Options { names: Names::from_env(), ..Options::default() };
    while let Some((letter, value)) = walk.next()? {
        match letter {
            'c' => options.scripts = Scripts::parse(&value.unwrap_or_default().to_string_lossy())?,
            'd' => options.direct = true,
            'D' => options.dedup += 1,
            'e' => options.unhealthy_only = true,
            'g' => options.names.guid = true,
            'i' => options.initialize = true,
            'L' => options.names.follow = true,
            'p' => options.exact = true,
            'P' => options.names.path = true,
            's' => options.slow = true,
            't' => options.trim = true,
            'T' => stamp = Stamp::parse(value.as_deref())?,
            'v' => options.verbose = true,
            'x' => options.sick_only = true,
            POWER => options.power = true,
            other => {
                options.json.take(other);
            }
        }
    }
    options.json.check()?;
    options.exact |= options.json.int;
    Ok((options, operands(walk)?, stamp))
}

/// The scripts of a command line.
pub(super) fn scripts(args: Vec<OsString>) -> Result<Scripts, Stop> {
    Ok(parse(args)?.0.scripts)
}

pub(super) fn run(args: Vec<OsString>, out: &Out) -> Outcome {
    if matches!(args.last(), Some(last) if last == "-c") {
        out.print(&Scripts::available("status")?);
        return Ok(0);
    }
    let (options, operands, stamp) = parse(args)?;
    repeat(&operands, stamp, out, |pools| sample(&options, pools, out))
}

fn sample(options: &Options, names: &[String], out: &Out) -> Outcome {
    let request = Request { pools: names.to_vec(), unhealthy_only: options.sick_only };
    let answer = super::reading().run(&request).map_err(|refusal| super::unread(&refusal))?;
    let code = super::tell_problems(&answer.problems);
    if options.json.on {
        out.print(&status_json::answer(options, &answer.pools));
    } else if answer.pools.is_empty() && answer.healthy == 0 {
        if names.is_empty() && code == 0 {
            say_error_line!("no pools available");
        }
    } else if answer.pools.is_empty() {
        match names {
            [one] => out.print(&format!("pool '{}' is healthy\n", out.cell(one))),
            _ => out.print("all pools are healthy\n"),
        }
    }
    if !options.json.on {
        for (i, Row { status, not_mounted }) in answer.pools.iter().enumerate() {
            let gap = if i > 0 { "\n" } else { "" };
            let text = format!("{gap}{}", text(options, status, out));
            let is_painted = colour::are_wanted(out);
            out.print_bytes(&if is_painted { colour::paint(text.as_bytes(), of_state) } else { text.into() });
            if !not_mounted.is_empty() {
                out.print("mounts: The following file systems could not be mounted:\n\n");
            }
            for (dataset, why) in not_mounted {
                out.print(&format!("        {}: {}\n", out.cell(dataset), out.cell(&why.to_string())));
            }
        }
    }
    Ok(code)
}

/// The colour of a line that tells a state.
fn of_state(line: &[u8]) -> Option<Colour> {
    let line = String::from_utf8_lossy(line);
    let state = line.split_whitespace().nth(1)?;
    match state {
        "DEGRADED" | "OFFLINE" => Some(Colour::Yellow),
        "FAULTED" | "UNAVAIL" | "REMOVED" | "SUSPENDED" => Some(Colour::Red),
        _ => None,
    }
}

/// The whole text of one pool.
fn text(options: &Options, status: &PoolStatus, out: &Out) -> String {
    let mut text = String::new();
    let name = out.cell(&status.facts.name).into_owned();
    let _ = writeln!(text, "  pool: {name}\n state: {}", status.facts.state_word());
    header(&status_text::of_status(&status.diagnosis), &mut text);
    if let Some(scan) = status.scan.as_ref().filter(|s| newest_is_scan(s, status.error_scrub.as_ref())) {
        scan_lines(scan, &mut text);
        let is_skipping = |c: &Checkpoint| !c.discarding && scan.start >= c.time;
        if status.checkpoint.as_ref().is_some_and(is_skipping) {
            let word = if scan.state == 1 { "skipping" } else { "skipped" };
            let _ =
                writeln!(text, "    scan warning: {word} blocks that are only referenced by the checkpoint.");
        }
    } else if let Some(scrub) = &status.error_scrub {
        error_scrub_lines(scrub, &mut text);
    }
    if let Some(removal) = &status.removal {
        let vdev = status.vdevs.root.children.iter().find(|v| v.id == removal.vdev);
        let name = |v: &Vdev| if v.is_leaf() { options.names.of(v) } else { v.kind.clone() };
        removal_lines(removal, vdev.map(name), &mut text);
    }
    if let Some(expansion) = &status.expansion {
        let vdev = status.vdevs.root.children.iter().find(|v| v.id == expansion.vdev);
        expansion_lines(expansion, vdev.map(|v| options.names.of(v)), &mut text);
    }
    if let Some(checkpoint) = &status.checkpoint {
        let (when, space) = (time::ctime(checkpoint.time), nicebytes(checkpoint.space));
        if checkpoint.discarding {
            let _ = writeln!(text, "checkpoint: discarding, {space} remaining.");
        } else {
            let _ = writeln!(text, "checkpoint: created {when}, consumes {space}");
        }
    }
    text.push_str("config:\n\n");
    let leaves = status.vdevs.root.walk().into_iter().filter(|vdev| vdev.is_leaf());
    let columns = options.scripts.columns(leaves);
    Config { options, out, columns: &columns, text: &mut text, width: 0 }.all(status);
    errors(options, status, out, &mut text);
    if options.dedup > 0 {
        dedup(options, status, &mut text);
    }
    text
}

fn header(advice: &Advice, text: &mut String) {
    if let Some(status) = &advice.status {
        let _ = writeln!(text, "status: {status}");
    }
    if let Some(action) = &advice.action {
        let _ = writeln!(text, "action: {action}");
    }
    if let Some(msgid) = advice.msgid {
        let _ = writeln!(text, "   see: {}", status_text::page(msgid));
    }
}

/// Which of the two kinds of scrub ran last.
fn newest_is_scan(scan: &Scan, errors: Option<&ErrorScrub>) -> bool {
    errors.is_none_or(|e| scan.start.max(scan.end) > e.start.max(e.end))
}

fn scan_lines(scan: &Scan, text: &mut String) {
    let (verb, noun) = if scan.function == 2 { ("resilvered", "resilver") } else { ("repaired", "scrub") };
    let _ = match scan.state {
        2 => {
            let done = if scan.function == 2 { "resilvered" } else { "scrub repaired" };
            let took = time::duration(scan.end.saturating_sub(scan.start));
            let (size, ended) = (nicebytes(scan.processed), time::ctime(scan.end));
            writeln!(text, "  scan: {done} {size} in {took} with {} errors on {ended}", scan.errors)
        }
        3 => writeln!(text, "  scan: {noun} canceled on {}", time::ctime(scan.end)),
        1 => {
            under_way(scan, verb, noun, text);
            Ok(())
        }
        _ => Ok(()),
    };
}

/// The lines of a scan that has not ended.
fn under_way(scan: &Scan, verb: &str, noun: &str, text: &mut String) {
    let started = time::ctime(scan.start);
    let pass = scan.pass.as_ref();
    if scan.paused {
        let since = pass.map_or(scan.end, |pass| pass.paused_since).max(scan.start);
        let _ = writeln!(text, "  scan: {noun} paused since {}", time::ctime(since));
        let _ = writeln!(text, "\t{noun} started on {started}");
    } else {
        let _ = writeln!(text, "  scan: {noun} in progress since {started}");
    }
    let total = scan.to_examine;
    let to_issue = total.saturating_sub(scan.skipped);
    let issued = pass.map_or(scan.examined.saturating_sub(scan.skipped), |pass| pass.issued);
    // A scan that does not run has no rate, and no end in sight.
    let elapsed = |start: u64, paused: u64| time::now().saturating_sub(start).saturating_sub(paused).max(1);
    let rate = |bytes: u64| {
        let seconds = pass.filter(|_| !scan.paused).map(|pass| elapsed(pass.start, pass.spent_paused));
        seconds.map_or(0, |seconds| bytes / seconds)
    };
    let at = |rate: u64| if rate > 0 { format!(" at {}/s", nicebytes(rate)) } else { String::new() };
    let issue_rate = rate(pass.map_or(0, |pass| pass.pass_issued));
    let _ = writeln!(
        text,
        "\t{} / {} scanned{}, {} / {} issued{}",
        nicebytes(scan.examined),
        nicebytes(total),
        at(rate(pass.map_or(0, |pass| pass.pass_examined))),
        nicebytes(issued),
        nicebytes(to_issue),
        at(issue_rate),
    );
    let share = (issued as f64 * 100.0 / to_issue.max(1) as f64).min(100.0);
    let _ = write!(text, "\t{} {verb}, {share:.2}% done", nicebytes(scan.processed));
    if scan.paused {
        text.push('\n');
        return;
    }
    match to_issue.saturating_sub(issued).checked_div(issue_rate) {
        Some(left) => {
            let _ = writeln!(text, ", {} to go", time::duration(left));
        }
        None => text.push_str(", no estimated completion time\n"),
    }
}

fn error_scrub_lines(scrub: &ErrorScrub, text: &mut String) {
    let _ = match scrub.state {
        2 => {
            let seconds = scrub.end.saturating_sub(scrub.start);
            let took = time::duration(seconds % 86400);
            let (days, ended) = (seconds / 86400, time::ctime(scrub.end));
            writeln!(
                text,
                " scrub: scrubbed {} error blocks in {days} days {took} on {ended}",
                scrub.examined
            )
        }
        3 => writeln!(text, " scrub: error scrub canceled on {}", time::ctime(scrub.end)),
        1 => {
            let word = if scrub.paused { "paused" } else { "in progress" };
            let _ = writeln!(text, " scrub: error scrub {word} since {}", time::ctime(scrub.start));
            writeln!(text, "\t{}/{} error blocks scrubbed", scrub.examined, scrub.to_examine)
        }
        _ => Ok(()),
    };
}

/// Longest time to the end of a removal that is told, in hours: thirty days.
const HOURS_MAX: u64 = 30 * 24;

fn removal_lines(removal: &Removal, vdev: Option<String>, text: &mut String) {
    let name = vdev.unwrap_or_else(|| format!("vdev {}", removal.vdev));
    let copied = nicenum(removal.copied);
    let _ = match removal.state {
        2 => {
            let seconds = removal.end.saturating_sub(removal.start);
            let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
            writeln!(
                text,
                "remove: Removal of vdev {} copied {copied} in {hours}h{minutes}m, completed on {}",
                removal.vdev,
                time::ctime(removal.end)
            )
        }
        3 => writeln!(text, "remove: Removal of {name} canceled on {}", time::ctime(removal.end)),
        1 => {
            let started = time::ctime(removal.start);
            let _ = writeln!(text, "remove: Evacuation of {name} in progress since {started}");
            let share = removal.copied as f64 * 100.0 / removal.to_copy.max(1) as f64;
            let elapsed = time::now().saturating_sub(removal.start).max(1);
            let rate = (removal.copied / elapsed).max(1);
            let minutes = removal.to_copy.saturating_sub(removal.copied) / rate / 60;
            let (total, at) = (nicenum(removal.to_copy), nicenum(rate));
            let _ = write!(text, "\t{copied} copied out of {total} at {at}/s, {share:.2}% done");
            match minutes / 60 {
                hours @ ..HOURS_MAX => writeln!(text, ", {hours}h{}m to go", minutes % 60),
                _ => writeln!(text, ", (copy is slow, no estimated time)"),
            }
        }
        _ => Ok(()),
    };
    if removal.mapping_memory > 0 {
        let _ =
            writeln!(text, "\t{} memory used for removed device mappings", nicenum(removal.mapping_memory));
    }
}

fn expansion_lines(expansion: &Expansion, vdev: Option<String>, text: &mut String) {
    let name = vdev.unwrap_or_else(|| format!("vdev {}", expansion.vdev));
    let copied = nicebytes(expansion.copied);
    let _ = match expansion.state {
        2 => {
            let took = time::duration(expansion.end.saturating_sub(expansion.start));
            writeln!(
                text,
                "expand: expanded {name} copied {copied} in {took}, on {}",
                time::ctime(expansion.end)
            )
        }
        1 => {
            let _ = writeln!(
                text,
                "expand: expansion of {name} in progress since {}",
                time::ctime(expansion.start)
            );
            let share = expansion.copied as f64 * 100.0 / expansion.to_copy.max(1) as f64;
            let total = nicebytes(expansion.to_copy);
            writeln!(
                text,
                "\t{copied} / {total} copied, {share:.2}% done, (copy is paused while the pool is only read)"
            )
        }
        _ => Ok(()),
    };
}

/// The table of vdevs.
struct Config<'a> {
    options: &'a Options,
    out: &'a Out,
    /// What scripts say.
    columns: &'a Columns,
    text: &'a mut String,
    width: usize,
}

impl Config<'_> {
    fn all(&mut self, status: &PoolStatus) {
        let vdevs = &status.vdevs;
        let spares_and_cache = vdevs.cache.iter().chain(&vdevs.spares);
        self.width = self.widest(&vdevs.root, 0).max(10);
        for vdev in spares_and_cache {
            self.width = self.width.max(self.widest(vdev, 1));
        }
        let _ = write!(
            self.text,
            "\t{:<w$}  {:<8} {:>5} {:>5} {:>5}",
            "NAME",
            "STATE",
            "READ",
            "WRITE",
            "CKSUM",
            w = self.width
        );
        if self.options.slow {
            let _ = write!(self.text, " {:>5}", "SLOW");
        }
        if self.options.power {
            let _ = write!(self.text, " {:>5}", "POWER");
        }
        if self.options.direct {
            let _ = write!(self.text, " {:>5}", "DIO");
        }
        for title in &self.columns.titles {
            let _ = write!(self.text, "  {title:>w$}", w = self.columns.width(title));
        }
        self.text.push('\n');
        self.line(&vdevs.root, 0, false);
        for vdev in tops(&vdevs.root, Class::Normal) {
            self.tree(vdev, 1);
        }
        for (class, heading) in GROUPS {
            let members: Vec<&Vdev> = tops(&vdevs.root, class).collect();
            if !members.is_empty() {
                // The tab behind the heading is the tool's own.
                let _ = writeln!(self.text, "\t{heading}\t");
                members.iter().for_each(|v| self.tree(v, 1));
            }
        }
        if !vdevs.cache.is_empty() {
            self.text.push_str("\tcache\n");
            vdevs.cache.iter().for_each(|v| self.tree(v, 1));
        }
        if !vdevs.spares.is_empty() {
            self.text.push_str("\tspares\n");
            vdevs.spares.iter().for_each(|v| self.line(v, 1, true));
        }
    }

    fn name(&self, vdev: &Vdev) -> String {
        self.out.cell(&self.options.names.of(vdev)).into_owned()
    }

    fn widest(&self, vdev: &Vdev, depth: usize) -> usize {
        let own = 2 * depth + self.name(vdev).chars().count();
        let shown = vdev.children.iter().filter(|c| !hidden(c));
        shown.map(|c| self.widest(c, depth + 1)).fold(own, usize::max)
    }

    fn tree(&mut self, vdev: &Vdev, depth: usize) {
        if hidden(vdev) || (self.options.unhealthy_only && !has_trouble(vdev)) {
            return;
        }
        self.line(vdev, depth, false);
        for child in &vdev.children {
            self.tree(child, depth + 1);
        }
    }

    fn line(&mut self, vdev: &Vdev, depth: usize, spare: bool) {
        let name = format!("{}{}", "  ".repeat(depth), self.name(vdev));
        let state = if spare { spare_word(vdev) } else { vdev.health.word() };
        let _ = write!(self.text, "\t{name:<w$}  {state:<8}", w = self.width);
        if !spare {
            let exact = self.options.exact;
            for count in [vdev.read_errors, vdev.write_errors, vdev.checksum_errors] {
                let _ = write!(self.text, " {:>5}", nice(count, exact));
            }
            if self.options.slow {
                let slow = if vdev.is_leaf() { nice(vdev.slow_ios, exact) } else { "-".into() };
                let _ = write!(self.text, " {slow:>5}");
            }
            if self.options.power {
                let _ = write!(self.text, " {:>5}", "-");
            }
            if self.options.direct {
                let _ = write!(self.text, " {:>5}", nice(0, exact));
            }
            for title in &self.columns.titles {
                let cell = self.columns.cell(vdev.guid, title);
                let _ = write!(self.text, "  {cell:>w$}", w = self.columns.width(title));
            }
        }
        self.notes(vdev, spare);
        self.text.push('\n');
    }

    /// What stands behind the counters.
    fn notes(&mut self, vdev: &Vdev, spare: bool) {
        if vdev.not_present {
            let path = vdev.path.as_deref().unwrap_or_default();
            let _ = write!(self.text, "  was {}", self.out.cell(path));
        } else if !vdev.aux.words().is_empty() {
            let _ = write!(self.text, "  {}", vdev.aux.words());
        }
        if vdev.resilvering {
            self.text.push_str("  (resilvering)");
        } else if vdev.resilver_deferred {
            self.text.push_str("  (awaiting resilver)");
        }
        if vdev.removing {
            self.text.push_str("  (removing)");
        } else if vdev.non_allocating {
            self.text.push_str("  (non-allocating)");
        }
        if spare || !vdev.is_leaf() {
            return;
        }
        if self.options.initialize {
            let note =
                vdev.initialize.as_ref().map_or("(uninitialized)".into(), |a| activity(a, "initialized"));
            let _ = write!(self.text, "  {note}");
        }
        if self.options.trim {
            let note = vdev.trim.as_ref().map_or("(untrimmed)".into(), |a| activity(a, "trimmed"));
            let _ = write!(self.text, "  {note}");
        }
    }
}

/// `(13% initialized, started at …)`.
fn activity(activity: &Activity, done: &str) -> String {
    let percent = match activity.total {
        0 => 100,
        total => u128::from(activity.done) * 100 / u128::from(total),
    };
    let word = match activity.state {
        1 => "started",
        2 | 3 => "suspended",
        4 => "completed",
        _ => return format!("(un{done})"),
    };
    format!("({percent}% {done}, {word} at {})", time::ctime(activity.since))
}

/// Vdevs that `status` does not list: removed ones and the places of removed logs.
fn hidden(vdev: &Vdev) -> bool {
    matches!(vdev.kind.as_str(), "hole" | "indirect")
}

/// `-e`: it or something below it is not well.
fn has_trouble(vdev: &Vdev) -> bool {
    vdev.health != Health::Online
        || vdev.read_errors + vdev.write_errors + vdev.checksum_errors + vdev.slow_ios > 0
        || vdev.children.iter().any(has_trouble)
}

fn errors(options: &Options, status: &PoolStatus, out: &Out, text: &mut String) {
    text.push('\n');
    if status.error_count == 0 {
        text.push_str("errors: No known data errors\n");
    } else if options.verbose {
        text.push_str("errors: Permanent errors have been detected in the following files:\n\n");
        for file in &status.errors {
            let _ = writeln!(text, "        {}", out.cell(file));
        }
    } else {
        let _ = writeln!(text, "errors: {} data errors, use '-v' for a list", status.error_count);
    }
}

fn dedup(options: &Options, status: &PoolStatus, text: &mut String) {
    let Some(dedup) = status.dedup.as_ref().filter(|d| d.entries > 0) else {
        text.push_str("\n dedup: no DDT entries\n");
        return;
    };
    let size = |bytes| nice_size(bytes, options.exact);
    let share = dedup.cached as f64 * 100.0 / dedup.on_disk.max(1) as f64;
    let _ = writeln!(
        text,
        "\n dedup: DDT entries {}, size {} on disk, {} in core, {} cached ({share:.2}%)",
        dedup.entries,
        size(dedup.on_disk),
        size(dedup.in_core),
        nicenum(dedup.cached),
    );
    if options.dedup > 1 {
        super::dedup_table(&dedup.histogram, text);
    }
}

fn nice_size(bytes: u64, exact: bool) -> String {
    if exact { bytes.to_string() } else { nicebytes(bytes) }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
