//! Writes results as text and as JSON.

use super::device_use::DeviceUse;
use super::goals::Verdict;
use super::meter::Row;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// All results of a run.
#[derive(Default)]
pub(super) struct Results {
    pub(super) rows: Vec<Row>,
    /// Maximum memory of the servers in bytes, by system.
    pub(super) memory: Vec<(&'static str, u64)>,
    /// Failed measurements, with the reasons.
    pub(super) failures: Vec<String>,
}

/// The time in microseconds.
fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// KiB that a device transferred per operation.
fn kib(row: &Row, of: impl Fn(&DeviceUse) -> u64) -> Option<f64> {
    Some(of(row.device.as_ref()?) as f64 / 1024.0 / row.count.max(1) as f64)
}

/// The text of one measurement.
pub(super) fn line(row: &Row) -> String {
    let mut text =
        format!("{:<13}{:<32}{:>9.0}/s {:>8.1} us", row.system, row.what, row.rate(), row.each(row.wall));
    // Writing to a string does not fail.
    if let Some(cpu) = row.cpu {
        let [client, server] = [cpu.client, cpu.server].map(|time| row.each(time));
        let _ = write!(text, "  CPU {client:>7.1} + {server:>7.1}");
    }
    if let Some((read, written)) = kib(row, |device| device.read).zip(kib(row, |device| device.written)) {
        let _ = write!(text, "  {read:>8.2} KiB read  {written:>8.2} written");
    }
    if let Some((middle, slow)) = row.latency {
        let _ = write!(text, "  p50 {:.0} us, p99 {:.0}", us(middle), us(slow));
    }
    text
}

/// Text of a cell of a table.
type Cell = fn(&Row) -> Option<String>;

/// The tables, with a line per workload and a column per system.
const TABLES: [(&str, Cell); 6] = [
    ("operations a second", |row| Some(format!("{:.0}", row.rate()))),
    ("CPU microseconds for each, client and server", |row| Some(format!("{:.1}", row.cpu_each()?))),
    ("CPU microseconds for each, the whole machine with the kernel's threads", |row| {
        Some(format!("{:.1}", row.each(row.cpu?.machine)))
    }),
    ("KiB read from the device for each", |row| Some(format!("{:.2}", kib(row, |device| device.read)?))),
    ("KiB written to the device for each", |row| Some(format!("{:.2}", kib(row, |device| device.written)?))),
    ("microseconds, p50/p99", |row| {
        let (middle, slow) = row.latency?;
        Some(format!("{:.0}/{:.0}", us(middle), us(slow)))
    }),
];

/// All results as text.
pub(super) fn text(results: &Results, verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    for (title, cell) in TABLES {
        let table = table(&results.rows, cell);
        // More than the line of systems.
        if table.lines().count() > 1 {
            let _ = write!(text, "\n{title}\n{table}");
        }
    }
    if !results.memory.is_empty() {
        text.push_str("\nmemory of the server at most, MiB\n");
    }
    for (system, bytes) in &results.memory {
        let _ = writeln!(text, "{system:<13}{:>8}", bytes >> 20);
    }
    if !results.failures.is_empty() {
        text.push_str("\nleft out\n");
    }
    for failure in &results.failures {
        let _ = writeln!(text, "{failure}");
    }
    if !verdicts.is_empty() {
        let met = verdicts.iter().filter(|verdict| verdict.is_met).count();
        let _ = writeln!(text, "\ngoals: {met} of {} met", verdicts.len());
    }
    for verdict in verdicts {
        let _ = writeln!(text, "{verdict}");
    }
    text
}

/// One table, without empty lines and columns.
fn table(rows: &[Row], cell: Cell) -> String {
    let (mut systems, mut loads): (Vec<&str>, Vec<&str>) = Default::default();
    let shown: Vec<(&Row, String)> = rows.iter().filter_map(|row| Some((row, cell(row)?))).collect();
    for (row, _) in &shown {
        if !systems.contains(&row.system) {
            systems.push(row.system);
        }
        if !loads.contains(&row.what.as_str()) {
            loads.push(&row.what);
        }
    }
    let mut text = format!("{:<32}", "");
    systems.iter().for_each(|system| text.push_str(&format!("{system:>14}")));
    text.push('\n');
    for load in &loads {
        let _ = write!(text, "{load:<32}");
        for system in &systems {
            let found = shown.iter().find(|(row, _)| row.what == *load && row.system == *system);
            let _ = write!(text, "{:>14}", found.map_or("-", |(_, value)| value));
        }
        text.push('\n');
    }
    text
}

/// All results as JSON.
pub(super) fn json(results: &Results, verdicts: &[Verdict], conditions: &Value) -> Value {
    let row = |row: &Row| {
        json!({
            "system": row.system,
            "workload": row.what,
            "operations": row.count,
            "seconds": row.wall.as_secs_f64(),
            "client_cpu_us": row.cpu.map(|cpu| row.each(cpu.client)),
            "server_cpu_us": row.cpu.map(|cpu| row.each(cpu.server)),
            "machine_cpu_us": row.cpu.map(|cpu| row.each(cpu.machine)),
            "device_bytes_read": row.device.map(|device| device.read),
            "device_bytes_written": row.device.map(|device| device.written),
            "device_reads": row.device.and_then(|device| device.reads),
            "p50_us": row.latency.map(|(middle, _)| us(middle)),
            "p99_us": row.latency.map(|(_, slow)| us(slow)),
        })
    };
    let verdict = |verdict: &Verdict| {
        json!({
            "goal": verdict.goal,
            "measured": verdict.got,
            "limit": verdict.limit,
            "unit": verdict.unit,
            "met": verdict.is_met,
        })
    };
    json!({
        "conditions": conditions,
        "rows": results.rows.iter().map(row).collect::<Vec<_>>(),
        "server_memory_bytes": results.memory.iter().copied().collect::<std::collections::BTreeMap<_, _>>(),
        "left_out": results.failures,
        "goals": verdicts.iter().map(verdict).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_a_line_a_workload_and_a_column_a_system() {
        let row = |system, what: &str, count| Row {
            system,
            what: what.to_owned(),
            count,
            wall: Duration::from_secs(1),
            ..Row::default()
        };
        let rows = vec![row("ext4", "a", 5), row("ext4", "b", 6), row("cenote", "b", 7)];
        let words: Vec<String> = table(&rows, TABLES[0].1)
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(words, ["ext4 cenote", "a 5 -", "b 6 7"]);
        // Without CPU times there is no table of them.
        assert_eq!(table(&rows, TABLES[1].1).trim(), "");
    }
}
