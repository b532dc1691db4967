//! `zpool iostat`.
//!
//! A sample is taken of all pools, the one before is subtracted, and the rest printed: as a table (`table.rs`) or
//! as histograms (`histogram.rs`). Texts and layout: fixtures/cli-transcripts/04-iostat.txt.

mod histogram;
mod operands;
mod table;

use super::Stamp;
use super::scripts::{Columns, Scripts};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::vdevs::{GROUPS, Names, tops};
use admin::verbs::zpool::iostat::{Refusal, Request, Selection};
use admin::{Class, PoolIo, Vdev, VdevIo};
use std::ffi::OsString;
use std::time::Duration;

/// Lines of a terminal between headers.
const HEADER_EVERY: u64 = 24;

/// Which histograms are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Histogram {
    /// `-r`.
    Sizes,
    /// `-w`.
    Times,
}

/// What was asked for.
#[derive(Debug, Clone, Copy, Default)]
struct Options {
    /// `-H`
    scripted: bool,
    /// `-p`
    exact: bool,
    /// `-v`
    verbose: bool,
    /// `-l`
    latency: bool,
    /// `-q`
    queues: bool,
    /// `-n`
    one_header: bool,
    /// `-y`
    skip_first: bool,
    histogram: Option<Histogram>,
    names: Names,
}

/// What goes into one line, or one histogram.
struct Line<'a> {
    name: String,
    depth: usize,
    vdev: &'a Vdev,
    io: Option<&'a VdevIo>,
}

/// The parts of a report, in their order.
enum Part<'a> {
    Line(Line<'a>),
    /// A heading of vdevs of one class; where names are not shown, an empty line.
    Heading(&'static str),
}

/// The scripts of a command line.
pub(super) fn scripts(args: Vec<OsString>) -> Result<Scripts, Stop> {
    Ok(options(args)?.2)
}

pub(super) fn run(args: Vec<OsString>, out: &Out) -> Outcome {
    if matches!(args.last(), Some(last) if last == "-c") {
        out.print(&Scripts::available("iostat")?);
        return Ok(0);
    }
    let (options, stamp, scripts, walk) = options(args)?;
    let given = operands::split(&super::texts(&walk.operands()))?;
    let (mut interval, mut count) = (given.interval, given.count);
    if options.skip_first && interval.is_none() {
        (interval, count) = (Some(1.0), Some(1));
    }
    // In one session: counters begin when a pool is opened.
    let mut session = super::reading();
    let mut request = Request::Named(given.names);
    let mut before = Vec::new();
    let selection = Selection::default();
    let mut report = Report { options, stamp, scripts, out, selection, samples: 0, lines: 0 };
    let mut is_first = true;
    loop {
        let answer = session.run(&request).map_err(refused)?;
        let now = answer.pools;
        report.selection.clone_from(&answer.selection);
        request = Request::Selected(answer.selection);
        if now.is_empty() && interval.is_none() {
            return Err(Stop::failed("no pools available"));
        }
        if !(is_first && options.skip_first) {
            report.print(&before, &now);
            count = count.map(|count| count - 1);
        }
        let Some(seconds) = interval.filter(|_| count != Some(0)) else { return Ok(0) };
        // Longer pauses than a year are one.
        if !crate::console::sleep(Duration::from_secs_f64(seconds.min(3.2e7))) {
            return Ok(0);
        }
        (before, is_first) = (now, false);
    }
}

fn options(args: Vec<OsString>) -> Result<(Options, Stamp, Scripts, Getopt), Stop> {
    let mut walk = Getopt::new(args, "c:gHLlnPpqrT:vwy", &[]);
    let mut options = Options { names: Names::from_env(), ..Options::default() };
    let (mut stamp, mut scripts, mut sizes, mut times) = (Stamp::Off, None, false, false);
    while let Some((letter, value)) = walk.next()? {
        match letter {
            'c' => {
                scripts = Some(Scripts::parse(&value.unwrap_or_default().to_string_lossy())?);
                options.verbose = true;
            }
            'g' => options.names.guid = true,
            'H' => options.scripted = true,
            'L' => options.names.follow = true,
            'l' => options.latency = true,
            'n' => options.one_header = true,
            'P' => options.names.path = true,
            'p' => options.exact = true,
            'q' => options.queues = true,
            'r' => sizes = true,
            'T' => stamp = Stamp::parse(value.as_deref())?,
            'v' => options.verbose = true,
            'w' => times = true,
            _ => options.skip_first = true,
        }
    }
    if (sizes || times) && (scripts.is_some() || options.latency || options.queues) {
        return Err(Stop::usage("[-r|-w] isn't allowed with [-c|-l|-q]"));
    }
    if sizes && times {
        return Err(Stop::usage("Only one of [-r|-w] can be passed at a time"));
    }
    options.histogram = sizes.then_some(Histogram::Sizes).or_else(|| times.then_some(Histogram::Times));
    Ok((options, stamp, scripts.unwrap_or_default(), walk))
}

/// How the command ends when no sample is taken.
fn refused(refusal: Refusal) -> Stop {
    if !matches!(refusal, Refusal::Mixed { .. }) {
        return Stop::failed(refusal);
    }
    // An empty line is between it and the usage.
    for line in format!("{refusal}\n").lines() {
        say_error_line!("{}", crate::out::message_line(line));
    }
    Stop::usage("")
}

/// Prints samples, one after the other.
struct Report<'o> {
    options: Options,
    stamp: Stamp,
    /// `-c`.
    scripts: Scripts,
    out: &'o Out,
    selection: Selection,
    /// So many were printed.
    samples: u64,
    /// Lines since the last header.
    lines: u64,
}

impl Report<'_> {
    fn print(&mut self, before: &[PoolIo], now: &[PoolIo]) {
        let pools: Vec<PoolIo> = now
            .iter()
            .map(|pool| pool.since(before.iter().find(|before| before.name == pool.name)))
            .collect();
        let text = self.stamp.line() + &self.text(&pools);
        self.samples += 1;
        self.out.print(&text);
    }

    fn text(&mut self, pools: &[PoolIo]) -> String {
        let options = self.options;
        let width = self.name_width(pools);
        let mut text = String::new();
        if let Some(kind) = options.histogram {
            for part in pools.iter().flat_map(|pool| self.parts(pool)) {
                match part {
                    Part::Heading(_) => text.push('\n'),
                    Part::Line(line) => {
                        text.push_str(&histogram::text(&line, kind, width, options));
                    }
                }
            }
            return text;
        }
        let columns = self.columns(pools);
        let is_listing = self.selection.vdevs.is_some();
        let table = table::Table::new(options, width, is_listing, &columns);
        if self.wants_header() {
            text.push_str(&table.header());
            self.lines = 0;
        }
        for pool in pools {
            for part in self.parts(pool) {
                self.lines += 1;
                text.push_str(&match part {
                    Part::Heading(name) => table.heading(name),
                    Part::Line(line) => table.line(&line),
                });
            }
            if options.verbose && !is_listing {
                text.push_str(&table.dashes());
            }
        }
        if is_listing || (!options.verbose && pools.len() > 1) {
            text.push_str(&table.dashes());
        }
        text
    }

    /// What the scripts say of the leaves that are shown.
    fn columns(&self, pools: &[PoolIo]) -> Columns {
        let shown = pools.iter().flat_map(|pool| self.parts(pool)).filter_map(|part| match part {
            Part::Line(line) if line.vdev.is_leaf() => Some(line.vdev),
            _ => None,
        });
        self.scripts.columns(shown)
    }

    fn wants_header(&self) -> bool {
        let is_full = || self.lines >= HEADER_EVERY && !self.options.one_header && self.out.is_terminal();
        !self.options.scripted && (self.samples == 0 || self.options.verbose || is_full())
    }

    /// How wide names are, at least ten; also where only some of the vdevs are shown.
    fn name_width(&self, pools: &[PoolIo]) -> usize {
        let mut width = 10;
        for pool in pools {
            let all = match self.selection.vdevs {
                None if !self.options.verbose => vec![(pool.name.clone(), 0)],
                _ => self.tree(pool),
            };
            let widths = all.iter().map(|(name, depth)| name.chars().count() + 2 * depth);
            width = widths.fold(width, usize::max);
        }
        width
    }

    /// All names and how deep they are.
    fn tree(&self, pool: &PoolIo) -> Vec<(String, usize)> {
        fn walk(vdev: &Vdev, depth: usize, names: Names, out: &Out, all: &mut Vec<(String, usize)>) {
            all.push((out.cell(&names.of(vdev)).into_owned(), depth));
            vdev.children.iter().for_each(|child| walk(child, depth + 1, names, out, all));
        }
        let mut all = vec![(self.out.cell(&pool.name).into_owned(), 0)];
        let root = &pool.vdevs.root;
        for top in root.children.iter().filter(|top| top.kind != "hole").chain(&pool.vdevs.cache) {
            walk(top, 1, self.options.names, self.out, &mut all);
        }
        all
    }

    /// What is shown of a pool.
    fn parts<'a>(&self, pool: &'a PoolIo) -> Vec<Part<'a>> {
        let mut parts = Vec::new();
        let root = &pool.vdevs.root;
        if self.selection.vdevs.is_none() {
            let name = self.out.cell(&pool.name).into_owned();
            parts.push(Part::Line(Line { name, depth: 0, vdev: root, io: pool.io.get(&root.guid) }));
            if !self.options.verbose {
                return parts;
            }
        }
        tops(root, Class::Normal).for_each(|top| self.below(pool, top, 1, &mut parts));
        for (class, heading) in GROUPS {
            self.group(pool, heading, tops(root, class).collect(), &mut parts);
        }
        self.group(pool, "cache", pool.vdevs.cache.iter().collect(), &mut parts);
        parts
    }

    fn group<'a>(
        &self,
        pool: &'a PoolIo,
        heading: &'static str,
        vdevs: Vec<&'a Vdev>,
        parts: &mut Vec<Part<'a>>,
    ) {
        if !vdevs.is_empty() {
            let is_named = self.selection.vdevs.is_none() && !self.options.scripted;
            parts.push(Part::Heading(if is_named { heading } else { "" }));
            vdevs.into_iter().for_each(|vdev| self.below(pool, vdev, 1, parts));
        }
    }

    fn below<'a>(&self, pool: &'a PoolIo, vdev: &'a Vdev, depth: usize, parts: &mut Vec<Part<'a>>) {
        let names = self.options.names;
        let (shown, depth_shown) = match self.selection.vdevs {
            None => (true, depth),
            Some(_) => (self.selection.has_vdev(vdev), 0),
        };
        if shown {
            let name = self.out.cell(&names.of(vdev)).into_owned();
            parts.push(Part::Line(Line { name, depth: depth_shown, vdev, io: pool.io.get(&vdev.guid) }));
        }
        vdev.children.iter().for_each(|child| self.below(pool, child, depth + 1, parts));
    }
}

#[cfg(test)]
mod tests;
