//! Measures time: of the clock, and of the processors.

use std::time::{Duration, Instant};

/// Start of a measurement.
pub(crate) struct Meter {
    wall: Instant,
    cpu: Duration,
}

/// Cost of a workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

impl Meter {
    pub(crate) fn start() -> Meter {
        Meter { wall: Instant::now(), cpu: cpu_time() }
    }

    pub(crate) fn stop(&self) -> Cost {
        Cost { wall: self.wall.elapsed(), cpu: cpu_time().saturating_sub(self.cpu) }
    }
}

impl Cost {
    /// Prints the cost of `count` operations in one line.
    pub(crate) fn report(self, what: &str, count: u64) {
        let each = |time: Duration| time.as_secs_f64() * 1e6 / count.max(1) as f64;
        println!(
            "{what:<28} {:>10.0}/s  {:>8.2} us wall  {:>8.2} us CPU",
            count as f64 / self.wall.as_secs_f64().max(1e-9),
            each(self.wall),
            each(self.cpu)
        );
    }
}

/// User and system time of this process, all threads.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// Maximum resident memory of this process, in bytes.
pub(crate) fn memory_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Number of bytes that this process has written to devices.
pub(crate) fn bytes_written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}
