//! The table: a line for each pool or vdev, groups of columns as the options ask for them.

use super::{Line, Options};
use crate::values::ABSENT;
use crate::zpool::nice;
use crate::zpool::scripts::Columns;
use admin::{Op, PRIORITIES, Priority, TIME_BUCKETS, Times, VdevIo};
use format::nicenum::nicetime;

/// Columns under one heading.
struct Group {
    heading: &'static str,
    columns: &'static [&'static str],
    width: usize,
}

/// The layout of a report.
pub(super) struct Table<'c> {
    groups: Vec<Group>,
    /// What scripts say: columns behind all others.
    scripts: &'c Columns,
    options: Options,
    name_width: usize,
    /// What the first column is of.
    subject: &'static str,
}

const BOTH: &[&str] = &["read", "write"];

impl<'c> Table<'c> {
    pub(super) fn new(
        options: Options,
        name_width: usize,
        is_of_vdevs: bool,
        scripts: &'c Columns,
    ) -> Table<'c> {
        let widths = if options.exact { [15, 10, 6] } else { [5, 5, 5] };
        let [numbers, times, depths] = widths;
        let group = |heading, columns, width| Group { heading, columns, width };
        let mut groups = vec![
            group("capacity", &["alloc", "free"] as &[_], numbers),
            group("operations", BOTH, numbers),
            group("bandwidth", BOTH, numbers),
        ];
        if options.latency {
            for heading in ["total_wait", "disk_wait", "syncq_wait", "asyncq_wait"] {
                groups.push(group(heading, BOTH, times));
            }
            for heading in ["scrub", "trim", "rebuild"] {
                groups.push(group(heading, &["wait"], times));
            }
        }
        if options.queues {
            let queues = ["syncq_read", "syncq_write", "asyncq_read", "asyncq_write"];
            for heading in queues.into_iter().chain(["scrubq_read", "trimq_write", "rebuildq_write"]) {
                groups.push(group(heading, &["pend", "activ"], depths));
            }
        }
        let subject = if is_of_vdevs { "vdev" } else { "pool" };
        Table { groups, scripts, options, name_width, subject }
    }

    /// Three lines.
    pub(super) fn header(&self) -> String {
        let mut first = " ".repeat(self.name_width);
        let mut second = format!("{:<1$}", self.subject, self.name_width);
        for group in &self.groups {
            first.push_str("  ");
            first.push_str(&over(group.heading, group.columns.len(), group.width));
            for column in group.columns {
                second.push_str(&format!("  {column:>0$}", group.width));
            }
        }
        for title in &self.scripts.titles {
            second.push_str(&format!("  {title:>0$}", self.scripts.width(title)));
        }
        format!("{first}\n{second}\n{}", self.dashes())
    }

    pub(super) fn dashes(&self) -> String {
        if self.options.scripted {
            return String::new();
        }
        let mut line = "-".repeat(self.name_width);
        self.widths().for_each(|width| line.push_str(&format!("  {}", "-".repeat(width))));
        line + "\n"
    }

    fn widths(&self) -> impl Iterator<Item = usize> {
        let own = self.groups.iter().flat_map(|group| group.columns.iter().map(|_| group.width));
        own.chain(self.scripts.titles.iter().map(|title| self.scripts.width(title)))
    }

    /// The line above the vdevs of a class; without a name it is empty.
    pub(super) fn heading(&self, name: &str) -> String {
        if name.is_empty() {
            return "\n".to_owned();
        }
        let cells = self.widths().map(|width| format!("  {ABSENT:>width$}")).collect::<String>();
        format!("{name:<0$}{cells}\n", self.name_width)
    }

    pub(super) fn line(&self, line: &Line<'_>) -> String {
        let cells = self.cells(line);
        if self.options.scripted {
            return format!("{}\t{}\n", line.name, cells.join("\t"));
        }
        let mut text = format!("{}{}", "  ".repeat(line.depth), line.name);
        let padding = self.name_width.saturating_sub(text.chars().count());
        text.push_str(&" ".repeat(padding));
        for (cell, width) in cells.iter().zip(self.widths()) {
            text.push_str(&format!("  {cell:>width$}"));
        }
        text + "\n"
    }

    fn cells(&self, line: &Line<'_>) -> Vec<String> {
        let exact = self.options.exact;
        let blank = VdevIo { age: std::time::Duration::ZERO, stats: Default::default() };
        let io = line.io.unwrap_or(&blank);
        let space = |bytes| if line.vdev.space == 0 && !exact { ABSENT.into() } else { nice(bytes, exact) };
        let mut cells = vec![space(line.vdev.alloc), space(line.vdev.space.saturating_sub(line.vdev.alloc))];
        for counts in [io.stats.ops, io.stats.bytes] {
            cells.extend([Op::Read, Op::Write].map(|op| nice(io.per_second(counts[op as usize]), exact)));
        }
        if self.options.latency {
            let waits = &io.stats;
            let of = |priority: Priority| &waits.queue_wait[priority.index()];
            let [read, write] = &waits.total_wait;
            let [disk_read, disk_write] = &waits.disk_wait;
            let all = [read, write, disk_read, disk_write].into_iter();
            let times = all.chain(Priority::ALL.map(of)).map(|times| time(average(times), exact));
            cells.extend(times);
        }
        if self.options.queues {
            for i in 0..PRIORITIES {
                cells.extend([io.stats.pending[i], io.stats.active[i]].map(|depth| nice(depth, exact)));
            }
        }
        let said = self.scripts.titles.iter().map(|title| self.scripts.cell(line.vdev.guid, title));
        cells.extend(said.map(str::to_owned));
        cells
    }
}

/// A heading over so many columns: in the middle, or flush right over a single one.
pub(super) fn over(heading: &str, columns: usize, width: usize) -> String {
    let whole = columns * width + (columns - 1) * 2;
    let spare = whole.saturating_sub(heading.len());
    let right = if columns == 1 { 0 } else { spare / 2 };
    format!("{}{heading}{}", " ".repeat(spare - right), " ".repeat(right))
}

/// The mean of what a histogram of times counted, each taken for the middle of its bucket.
fn average(times: &Times) -> u64 {
    let count: u128 = times.iter().map(|count| u128::from(*count)).sum();
    let middle = |i: usize| (1u128 << i) + (1u128 << i) / 2;
    let sum: u128 = (0..TIME_BUCKETS).map(|i| u128::from(times[i]) * middle(i)).sum();
    sum.checked_div(count).and_then(|mean| u64::try_from(mean).ok()).unwrap_or(0)
}

fn time(nanoseconds: u64, exact: bool) -> String {
    match nanoseconds {
        0 => ABSENT.to_owned(),
        exactly if exact => exactly.to_string(),
        other => nicetime(other),
    }
}
