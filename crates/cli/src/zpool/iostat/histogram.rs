//! Histograms: `-w` of how long requests took, `-r` of how large they were.

use super::table::over;
use super::{Histogram, Line, Options};
use crate::zpool::nice;
use admin::{IoStats, Priority, SIZE_BUCKETS, TIME_BUCKETS};
use format::nicenum::{nicenum, nicetime};

/// Width of a column.
const WIDTH: usize = 5;
/// log2 of the smallest size that is shown: a sector.
const SIZE_FIRST: usize = 9;

/// One vdev: an empty line, headings, a line for each bucket.
pub(super) fn text(line: &Line<'_>, kind: Histogram, name_width: usize, options: Options) -> String {
    let blank = IoStats::default();
    let stats = line.io.map_or(&blank, |io| &io.stats);
    let rows = match kind {
        Histogram::Sizes => sizes(stats, options.scripted),
        Histogram::Times => times(stats, options.scripted),
    };
    let mut text = String::from("\n");
    if options.scripted {
        text.push_str(&format!("{}\n", line.name));
        for (label, counts) in rows {
            let counts: Vec<String> = counts.iter().map(|count| nice(*count, options.exact)).collect();
            text.push_str(&format!("{label}\t{}\n", counts.join("\t")));
        }
        return text;
    }
    let columns = rows.first().map_or(0, |(_, counts)| counts.len());
    text.push_str(&header(kind, &line.name, name_width));
    text.push_str(&format!(
        "{}{}\n",
        "-".repeat(name_width),
        format!("  {}", "-".repeat(WIDTH)).repeat(columns)
    ));
    for (label, counts) in &rows {
        text.push_str(&format!("{label:<name_width$}"));
        for count in counts {
            text.push_str(&format!("  {:>WIDTH$}", nice(*count, options.exact)));
        }
        text.push('\n');
    }
    text.push_str(&"-".repeat(name_width + columns * (WIDTH + 2)));
    text.push('\n');
    text
}

/// Two lines.
fn header(kind: Histogram, name: &str, name_width: usize) -> String {
    let (headings, label, pair, singles): (&[&str], _, _, &[&str]) = match kind {
        Histogram::Sizes => (
            &["sync_read", "sync_write", "async_read", "async_write", "scrub", "trim", "rebuild"],
            "req_size",
            ["ind", "agg"],
            &[],
        ),
        Histogram::Times => (
            &["total_wait", "disk_wait", "syncq_wait", "asyncq_wait"],
            "latency",
            ["read", "write"],
            &["scrub", "trim", "rebuild"],
        ),
    };
    let mut first = format!("{name:<name_width$}");
    let mut second = format!("{label:<name_width$}");
    for heading in headings {
        first.push_str(&format!("  {}", over(heading, 2, WIDTH)));
        second.push_str(&format!("  {:>WIDTH$}  {:>WIDTH$}", pair[0], pair[1]));
    }
    singles.iter().for_each(|single| second.push_str(&format!("  {single:>WIDTH$}")));
    format!("{first}\n{second}\n")
}

fn sizes(stats: &IoStats, scripted: bool) -> Vec<(String, Vec<u64>)> {
    let row = |i: usize| {
        let of = |priority: Priority| {
            [stats.individual[priority.index()][i], stats.aggregated[priority.index()][i]]
        };
        let size = 1u64 << i;
        let label = if scripted { size.to_string() } else { nicenum(size) };
        (label, Priority::ALL.into_iter().flat_map(of).collect())
    };
    (SIZE_FIRST..SIZE_BUCKETS).map(row).collect()
}

fn times(stats: &IoStats, scripted: bool) -> Vec<(String, Vec<u64>)> {
    let row = |i: usize| {
        let most = (2u64 << i) - 1;
        let label = if scripted { most.to_string() } else { nicetime(most) };
        let waits = stats.total_wait.iter().chain(&stats.disk_wait);
        let mut counts: Vec<u64> = waits.map(|times| times[i]).collect();
        counts.extend(Priority::ALL.map(|priority| stats.queue_wait[priority.index()][i]));
        (label, counts)
    };
    (0..TIME_BUCKETS).map(row).collect()
}
