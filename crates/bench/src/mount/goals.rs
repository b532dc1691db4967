//! Goals for Cenote's mounts, each compared with measurements of the same run.

use super::meter::Row;

/// Allowed CPU time per operation on a name beyond that of an empty file system, in microseconds.
const ABOVE_FLOOR_US: f64 = 15.0;
/// Both transports: Cenote, and the empty file system as its lower bound.
const OURS: [(&str, &str); 2] = [("cenote", "floor"), ("cenote-uring", "floor-uring")];

/// A goal and the measurement that it is compared with.
#[derive(Debug)]
pub(super) struct Verdict {
    /// Description of the goal, with the system that it is for.
    pub(super) goal: String,
    pub(super) got: f64,
    /// The goal's value, in the unit of the measurement.
    pub(super) limit: f64,
    pub(super) unit: &'static str,
    pub(super) is_met: bool,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Verdict { goal, got, limit, unit, .. } = self;
        let end = if self.is_met { "met" } else { "MISSED" };
        write!(f, "goal: {goal}: {got:.1} {unit}, limit {limit:.1}: {end}")
    }
}

/// Rows by operation and system; goals without measurements are skipped.
struct Judge<'r> {
    rows: &'r [Row],
    verdicts: Vec<Verdict>,
}

impl Judge<'_> {
    fn row(&self, what: &str, system: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.what == what && row.system == system && row.count > 0)
    }

    fn rate(&self, what: &str, system: &str) -> Option<f64> {
        self.row(what, system).map(Row::rate)
    }

    fn wall(&self, what: &str, system: &str) -> Option<f64> {
        self.row(what, system).map(|row| row.each(row.wall))
    }

    fn at_most(&mut self, goal: String, unit: &'static str, got: Option<f64>, limit: Option<f64>) {
        if let (Some(got), Some(limit)) = (got, limit) {
            self.verdicts.push(Verdict { goal, got, limit, unit, is_met: got <= limit });
        }
    }

    fn at_least(&mut self, goal: String, unit: &'static str, got: Option<f64>, limit: Option<f64>) {
        if let (Some(got), Some(limit)) = (got, limit) {
            self.verdicts.push(Verdict { goal, got, limit, unit, is_met: got >= limit });
        }
    }

    /// Operations on names: CPU time compared with the empty file system, and time compared with other systems.
    fn names(&mut self, ours: &str, floor: &str) {
        for what in
            ["names create", "names rename", "names unlink", "tree create", "tree rename", "tree unlink"]
        {
            let cpu = |system| self.row(what, system).and_then(Row::cpu_each);
            let (got, limit) = (cpu(ours), cpu(floor).map(|floor| floor + ABOVE_FLOOR_US));
            self.at_most(format!("{ours}, {what}: CPU of the floor + 15 us"), "us", got, limit);
        }
        for what in ["names open+close", "tree open+close", "tree warm walk, read"] {
            let (got, ext4) = (self.wall(what, ours), self.wall(what, "ext4"));
            let limit = ext4.map(|time| time * 2.0);
            self.at_most(format!("{ours}, {what}: time within 2x of ext4"), "us", got, limit);
        }
        for rival in ["ext4", "xfs"] {
            let what = "tree cold walk, read";
            let (got, limit) = (self.rate(what, ours), self.rate(what, rival));
            self.at_least(format!("{ours}, {what}: faster than {rival}"), "/s", got, limit);
        }
        if ours != "cenote-uring" {
            return;
        }
        for what in ["tree create", "tree remove"] {
            let (got, ext4) = (self.wall(what, ours), self.wall(what, "ext4"));
            let limit = ext4.map(|time| time * 3.0);
            self.at_most(format!("{ours}, {what}: time within 3x of ext4"), "us", got, limit);
            let limit = self.rate(what, "zfs-fuse").map(|rate| rate * 2.0);
            let got = self.rate(what, ours);
            self.at_least(format!("{ours}, {what}: twice as fast as zfs-fuse"), "/s", got, limit);
        }
    }

    /// Copies of files, and data.
    fn data(&mut self, ours: &str, floor: &str) {
        for what in ["4 KB cp -r", "8 KB cp -r"] {
            for rival in ["btrfs", "xfs"] {
                let limit = self.rate(what, rival).map(|rate| rate / 2.0);
                let got = self.rate(what, ours);
                self.at_least(format!("{ours}, {what}: within 2x of {rival}"), "/s", got, limit);
            }
        }
        let what = "8 KiB direct reads, 32 threads";
        let (got, limit) = (self.rate(what, ours), self.rate(what, "ext4").map(|rate| rate * 0.8));
        self.at_least(format!("{ours}, {what}: 80 % of ext4"), "/s", got, limit);
        let reads = |row: &Row| Some(row.device?.reads? as f64 / row.count as f64);
        let got = self.row(what, ours).and_then(reads);
        self.at_most(format!("{ours}, {what}: one device read each"), "reads", got, Some(1.05));
        for what in ["8 KiB O_DSYNC, 10 threads, a file", "8 KiB O_DSYNC, 10 threads, own"] {
            let (got, limit) = (self.rate(what, ours), self.rate(what, "ext4").map(|rate| rate / 2.0));
            self.at_least(format!("{ours}, {what}: half of ext4"), "/s", got, limit);
        }
        let what = "append, fdatasync";
        let middle = |system| Some(self.row(what, system)?.latency?.0.as_secs_f64() * 1e6);
        let (got, limit) = (middle(ours), middle("ext4"));
        self.at_most(format!("{ours}, {what}: p50 of ext4"), "us", got, limit);
        let what = "dd read, MiB";
        let slower = self.rate(what, "disk").zip(self.rate(what, floor)).map(|(disk, floor)| disk.min(floor));
        let (got, limit) = (self.rate(what, ours), slower.map(|rate| rate * 0.8));
        self.at_least(format!("{ours}, {what}: 80 % of the slower of disk and floor"), "/s", got, limit);
    }
}

/// All goals for which there are rows.
pub(super) fn judge(rows: &[Row]) -> Vec<Verdict> {
    let mut judge = Judge { rows, verdicts: Vec::new() };
    for (ours, floor) in OURS {
        judge.names(ours, floor);
        judge.data(ours, floor);
    }
    judge.verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::device_use::DeviceUse;
    use crate::mount::meter::Cpu;
    use std::time::Duration;

    fn row(system: &'static str, what: &str, count: u64, cpu_us: u64) -> Row {
        let cpu = Cpu { client: Duration::from_micros(cpu_us * count), ..Cpu::default() };
        let (wall, device) =
            (Duration::from_secs(1), Some(DeviceUse { reads: Some(count * 2), ..DeviceUse::default() }));
        Row { system, what: what.to_owned(), count, wall, cpu: Some(cpu), device, latency: None }
    }

    #[test]
    fn goals_are_met_or_missed_by_what_was_measured() {
        let create = "tree create";
        let rows = [
            row("ext4", create, 300, 10),
            row("zfs-fuse", create, 60, 200),
            row("floor-uring", create, 400, 30),
            row("cenote-uring", create, 110, 46),
        ];
        let said: Vec<String> = judge(&rows).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "goal: cenote-uring, tree create: CPU of the floor + 15 us: 46.0 us, limit 45.0: MISSED",
                "goal: cenote-uring, tree create: time within 3x of ext4: 9090.9 us, limit 10000.0: met",
                "goal: cenote-uring, tree create: twice as fast as zfs-fuse: 110.0 /s, limit 120.0: MISSED",
            ]
        );
    }

    #[test]
    fn device_reads_need_no_rival() {
        let what = "8 KiB direct reads, 32 threads";
        let verdicts = judge(&[row("cenote", what, 50, 10), row("xfs", what, 50, 10)]);
        assert_eq!(
            verdicts.iter().map(|verdict| (verdict.got, verdict.is_met)).collect::<Vec<_>>(),
            [(2.0, false)]
        );
    }

    #[test]
    fn nothing_is_judged_that_was_not_measured() {
        assert!(judge(&[]).is_empty());
        assert!(judge(&[row("cenote", "tree create", 1, 1), row("ext4", "tree create", 1, 1)]).is_empty());
    }
}
