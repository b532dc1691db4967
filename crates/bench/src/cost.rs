//! Measures time: of the clock, and of the processors.

use crate::Failure;
use std::process::{Command, Stdio};
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
    peak_of(std::process::id())
}

/// Maximum resident memory of a process so far, in bytes; 0 if it has ended.
pub(crate) fn peak_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
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

/// The better of two runs.
pub(crate) fn best(before: Option<Cost>, now: Cost) -> Option<Cost> {
    Some(before.filter(|before| before.wall <= now.wall).unwrap_or(now))
}

/// CPU seconds of both sides.
pub(crate) fn cpu_note(ours: Cost, theirs: Cost) -> String {
    format!("CPU {:.2} s, {:.2}", ours.cpu.as_secs_f64(), theirs.cpu.as_secs_f64())
}

/// Runs a program to its end and ignores its output.
pub(crate) fn timed(command: &mut Command) -> Result<Cost, Failure> {
    let cpu = children_cpu();
    let meter = Meter::start();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let name = command.get_program().to_string_lossy().into_owned();
    let status = status.map_err(|error| format!("{name}: {error}"))?;
    let wall = meter.stop().wall;
    if !status.success() {
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        return Err(format!("{name} {}: {status}", words.join(" ")).into());
    }
    Ok(Cost { wall, cpu: children_cpu().saturating_sub(cpu) })
}

/// CPU time of all child processes that have ended: fields `cutime` and `cstime` of /proc/self/stat, in ticks.
fn children_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields = after_name.split_whitespace().skip(13).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second().max(1))
}
