//! Cost of a workload: time, CPU time, device use.

use super::device_use::DeviceUse;
use super::site::Site;
use std::time::{Duration, Instant};

/// Ticks of `/proc/PID/stat` per second, which is constant on Linux.
const TICKS: u64 = 100;
/// Processor time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cpu {
    /// Of this process and its children.
    pub(crate) client: Duration,
    pub(crate) server: Duration,
    /// Of the whole machine, including threads of the kernel.
    pub(crate) machine: Duration,
}

/// Totals of processor time and I/O at one moment.
#[derive(Clone, Copy)]
struct Usage {
    cpu: Cpu,
    device: Option<DeviceUse>,
}

/// A measurement in progress.
pub(crate) struct Meter {
    wall: Instant,
    start: Usage,
}

/// Result of one measurement.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row {
    /// The system, in its short name.
    pub(super) system: &'static str,
    /// Name of the operation.
    pub(super) what: String,
    /// Number of operations.
    pub(crate) count: u64,
    pub(crate) wall: Duration,
    /// CPU time; `None`: it is counted with another row.
    pub(crate) cpu: Option<Cpu>,
    /// Device use; `None`: there is no device, or it is counted with another row.
    pub(super) device: Option<DeviceUse>,
    /// Median and 99th percentile of the latency of an operation.
    pub(super) latency: Option<(Duration, Duration)>,
}

impl Meter {
    pub(crate) fn start(site: &Site<'_>) -> Meter {
        let start = Usage::of(site);
        Meter { wall: Instant::now(), start }
    }

    pub(crate) fn stop(&self, site: &Site<'_>, what: &str, count: u64) -> Row {
        let wall = self.wall.elapsed();
        let (now, before) = (Usage::of(site), self.start);
        Row {
            system: site.kind.name(),
            what: what.to_owned(),
            count,
            wall,
            cpu: Some(Cpu {
                client: now.cpu.client.saturating_sub(before.cpu.client),
                server: now.cpu.server.saturating_sub(before.cpu.server),
                machine: now.cpu.machine.saturating_sub(before.cpu.machine),
            }),
            device: now.device.zip(before.device).map(|(now, before)| now.since(before)),
            latency: None,
        }
    }
}

impl Usage {
    fn of(site: &Site<'_>) -> Usage {
        let server = site.server_pid().map(|pid| ticks(&pid.to_string(), 11)).unwrap_or_default();
        let own = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let own = Duration::new(own.tv_sec.unsigned_abs(), own.tv_nsec.unsigned_abs() as u32);
        let all = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let cpu = Cpu { client: own + ticks("self", 13), server, machine: busy(&all) };
        Usage { cpu, device: site.device_use() }
    }
}

/// The sum of two adjacent fields of `/proc/PID/stat`, counted after the name: own time (11), that of children
/// (13).
fn ticks(pid: &str, field: usize) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields = rest.split_whitespace().skip(field).take(2);
    let sum: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(sum * 1000 / TICKS)
}

/// Busy time of all processors, from `/proc/stat`: all fields except idle and waiting for disks, without double
/// counting.
fn busy(text: &str) -> Duration {
    let fields = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let all: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
    let sum: u64 = all.iter().enumerate().filter(|(at, _)| matches!(at, 0..=2 | 5 | 6)).map(|(_, n)| n).sum();
    Duration::from_millis(sum * 1000 / TICKS)
}

/// Maximum resident memory of a process, in bytes.
pub(super) fn memory_peak(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

impl Row {
    /// Time per operation in microseconds.
    pub(super) fn each(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.count.max(1) as f64
    }

    /// CPU time per operation in microseconds, client and server.
    pub(super) fn cpu_each(&self) -> Option<f64> {
        self.cpu.map(|cpu| self.each(cpu.client + cpu.server))
    }

    /// Operations per second.
    pub(crate) fn rate(&self) -> f64 {
        self.count as f64 / self.wall.as_secs_f64().max(1e-9)
    }
}

/// Median and 99th percentile of some times.
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
        let known = DeviceUse { read: 80 * 512, written: 160 * 512, reads: Some(10) };
        assert_eq!(DeviceUse::of_stat(stat), Some(known));
        assert!(DeviceUse::of_process(std::process::id()).is_some());
        assert!(memory_peak(std::process::id()).is_some_and(|bytes| bytes > 1 << 20));
        let busy = busy("cpu  100 10 50 9999 77 3 2 8 5 5\ncpu0 1 1 1 1\n");
        assert_eq!(busy, Duration::from_millis(1650));
        let times = (0..100).map(Duration::from_millis).collect();
        assert_eq!(percentiles(times), Some((Duration::from_millis(50), Duration::from_millis(99))));
        assert_eq!(percentiles(Vec::new()), None);
    }
}
