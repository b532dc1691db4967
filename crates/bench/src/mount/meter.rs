//! What a workload took: time, processors, bytes of the device.

use super::site::Site;
use std::time::{Duration, Instant};

/// Ticks of `/proc/PID/stat` in a second; Linux has had this number on every machine for decades.
const TICKS: u64 = 100;
const SECTOR: u64 = 512;

/// Totals at one moment.
#[derive(Clone, Copy, Default)]
struct Usage {
    client: Duration,
    server: Duration,
    read: u64,
    written: u64,
}

/// Since when something is measured.
pub(super) struct Meter {
    wall: Instant,
    start: Usage,
}

/// One measurement.
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    /// The system, in its short name.
    pub(super) system: &'static str,
    /// What was done.
    pub(super) what: String,
    /// How often.
    pub(super) count: u64,
    pub(super) wall: Duration,
    pub(super) client: Duration,
    pub(super) server: Duration,
    /// Bytes that the device read and wrote; `None`: there is no device.
    pub(super) device: Option<(u64, u64)>,
    /// Time of one operation, in the middle and of the slowest hundredth.
    pub(super) latency: Option<(Duration, Duration)>,
}

impl Meter {
    pub(super) fn start(site: &Site<'_>) -> Meter {
        let start = Usage::of(site);
        Meter { wall: Instant::now(), start }
    }

    pub(super) fn stop(&self, site: &Site<'_>, what: &str, count: u64) -> Row {
        let wall = self.wall.elapsed();
        let now = Usage::of(site);
        Row {
            system: site.kind.name(),
            what: what.to_owned(),
            count,
            wall,
            client: now.client.saturating_sub(self.start.client),
            server: now.server.saturating_sub(self.start.server),
            device: site.has_device().then(|| {
                (now.read.saturating_sub(self.start.read), now.written.saturating_sub(self.start.written))
            }),
            latency: None,
        }
    }
}

impl Usage {
    fn of(site: &Site<'_>) -> Usage {
        let (read, written) = site.device_stat().and_then(|text| sectors(&text)).unwrap_or_default();
        let server = site.server_pid().map(|pid| ticks(&pid.to_string(), 11)).unwrap_or_default();
        let own = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let own = Duration::new(own.tv_sec.unsigned_abs(), own.tv_nsec.unsigned_abs() as u32);
        Usage { client: own + ticks("self", 13), server, read, written }
    }
}

/// Two neighbouring fields of `/proc/PID/stat`, counted from behind the name: own time (11), that of children (13).
fn ticks(pid: &str, field: usize) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields = rest.split_whitespace().skip(field).take(2);
    let sum: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(sum * 1000 / TICKS)
}

/// Bytes read and written, of `/sys/block/NAME/stat`.
fn sectors(text: &str) -> Option<(u64, u64)> {
    let fields: Vec<u64> = text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    Some((fields.get(2)? * SECTOR, fields.get(6)? * SECTOR))
}

/// Most memory that a process has ever had, in bytes.
pub(super) fn memory_peak(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

impl Row {
    /// Microseconds for each operation.
    pub(super) fn each(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.count.max(1) as f64
    }

    pub(super) fn rate(&self) -> f64 {
        self.count as f64 / self.wall.as_secs_f64().max(1e-9)
    }
}

/// The middle and the slowest hundredth of some times.
pub(super) fn percentiles(mut times: Vec<Duration>) -> Option<(Duration, Duration)> {
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 100).copied();
    Some((at(50)?, at(99)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_understood() {
        let stat = "   10 0 80 3 20 0 160 9 0 5 12 0 0 0 0";
        assert_eq!(sectors(stat), Some((80 * 512, 160 * 512)));
        assert!(memory_peak(std::process::id()).is_some_and(|bytes| bytes > 1 << 20));
        let times = (0..100).map(Duration::from_millis).collect();
        assert_eq!(percentiles(times), Some((Duration::from_millis(50), Duration::from_millis(99))));
        assert_eq!(percentiles(Vec::new()), None);
    }
}
