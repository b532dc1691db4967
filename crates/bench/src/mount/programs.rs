//! External programs that measure: fio and bonnie++.

use super::data::Extent;
use super::meter::{Meter, Row};
use super::providers::Purpose;
use super::site::Site;
use super::tools::run;
use crate::Failure;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// `fio`: reads and writes 4 KiB at random offsets of four files.
pub(super) fn fio(site: &mut Site<'_>, extent: Extent, rows: &mut Vec<Row>) -> Result<(), Failure> {
    site.prepare(Purpose::Files);
    for (what, rw) in [("fio 4 KiB random reads", "randread"), ("fio 4 KiB random writes", "randwrite")] {
        let job = |dir: &Path| {
            let mut command = Command::new("fio");
            command.args(["--name=bench", "--bs=4k", "--numjobs=4", "--group_reporting", "--ioengine=psync"]);
            command.args(["--output-format=json", "--fallocate=none"]);
            command.arg(format!("--rw={rw}")).arg(format!("--size={}", extent.bytes / 8));
            command.arg(format!("--directory={}", dir.display()));
            command
        };
        run(job(&site.dir()).arg("--create_only=1"))?;
        site.cool()?;
        let meter = Meter::start(site);
        let seconds = format!("--runtime={}", extent.seconds);
        let text = run(job(&site.dir()).args(["--time_based", "--end_fsync=1", &seconds]))?;
        let mut row = meter.stop(site, what, 0);
        let (count, wall, latency) =
            crate::fio::result(&text, rw).ok_or("fio printed something else than it should")?;
        (row.count, row.wall, row.latency) = (count, wall, latency);
        rows.push(row);
        for entry in std::fs::read_dir(site.dir())? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("bench.") {
                std::fs::remove_file(entry.path())?;
            }
        }
    }
    Ok(())
}

/// Amount of work of bonnie++.
#[derive(Debug, Clone, Copy)]
pub(super) struct BonnieSize {
    /// Size of its file in MiB.
    pub(super) mib: u64,
    /// Number of files, in units of 1024.
    pub(super) files: u64,
}

/// `bonnie++`: rates as it prints them, in its own units; CPU time and device use for the whole run.
pub(super) fn bonnie(site: &mut Site<'_>, size: BonnieSize, rows: &mut Vec<Row>) -> Result<(), Failure> {
    site.prepare(Purpose::Files);
    let meter = Meter::start(site);
    let mut command = Command::new("bonnie++");
    // It takes the size of memory from its options, and refuses a file smaller than twice that. -f skips single
    // characters, which would measure the C library.
    command.args([
        "-q",
        "-f",
        "-u",
        "root",
        "-r",
        &format!("{}", size.mib / 2),
        "-s",
        &format!("{}", size.mib),
    ]);
    command.args(["-n", &format!("{}", size.files), "-d"]).arg(site.dir());
    let text = run(&mut command)?;
    let whole = meter.stop(site, "bonnie++, all of it", 1);
    rows.push(whole);
    for (what, rate) in bonnie_rates(&text).ok_or("bonnie++ printed something else than it should")? {
        let wall = Duration::from_secs(1);
        rows.push(Row { system: site.kind.name(), what, count: rate, wall, ..Row::default() });
    }
    Ok(())
}

/// Beginning of the comma-separated line whose fields are known.
const BONNIE_FORMAT: &str = "1.98,";

/// The rates in its comma-separated line, with their names. Rates of operations that were too fast to measure are
/// missing.
fn bonnie_rates(text: &str) -> Option<Vec<(String, u64)>> {
    const FIELDS: [(usize, &str); 10] = [
        (11, "bonnie++ write, KiB"),
        (13, "bonnie++ rewrite, KiB"),
        (17, "bonnie++ read, KiB"),
        (19, "bonnie++ seeks"),
        (26, "bonnie++ sequential create"),
        (28, "bonnie++ sequential stat"),
        (30, "bonnie++ sequential delete"),
        (32, "bonnie++ random create"),
        (34, "bonnie++ random stat"),
        (36, "bonnie++ random delete"),
    ];
    let line = text.lines().find(|line| line.starts_with(BONNIE_FORMAT))?;
    let fields: Vec<&str> = line.split(',').collect();
    let rate = |at: usize| fields.get(at)?.parse::<f64>().ok().map(|rate| rate as u64);
    Some(FIELDS.iter().filter_map(|(at, what)| Some(((*what).to_owned(), rate(*at)?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_bonnie_are_read() {
        let text = "note\n1.98,2.00a,vm,1,1795303725,32M,,8192,5,29,2,25793,1,63077,2,39,1,27244,1,6326,14,1,,,,,\
                    405,0,+++++,+++,992,0,466,0,+++++,+++,1387,1,1529ms,373ms,121ms,1198ms,338ms,592ms\n";
        let rates = bonnie_rates(text).expect("understood");
        let numbers: Vec<u64> = rates.iter().map(|(_, rate)| *rate).collect();
        assert_eq!(numbers, [25793, 63077, 27244, 6326, 405, 992, 466, 1387]);
        assert_eq!(rates.get(5).map(|(what, _)| what.as_str()), Some("bonnie++ sequential delete"));
        assert_eq!(bonnie_rates("1.97,2.00"), None);
    }
}
