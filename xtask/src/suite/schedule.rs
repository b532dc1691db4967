//! Runs test programs concurrently: the longest first, as many as the machine has processors, and one of [`LANE`].
//!
//! # What always holds
//! - Of the programs in [`LANE`] one runs at a time, beside others: they mount, attach loop devices and start
//!   daemons, and check tables of the whole machine. They mostly wait for other processes and for disks, so they
//!   run [`LANE_TESTS`] tests at once even on fewer processors, and no other program waits for them.
//! - A program that runs longer than [`PATIENCE`] is killed, and counts as failed.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::programs::{DOCUMENTATION, Program};

/// Packages and targets of which one runs at a time.
const LANE: [(&str, &str); 5] = [
    ("cenote-cli", "commands"),
    ("cenote-serve", "it"),
    ("cenote-serve", "many"),
    ("cenote-serve", "rings"),
    ("cenote-stress", "rounds"),
];
/// Package whose tests are short themselves, and run many commands.
const RUNS_COMMANDS: &str = "cenote-conformance";
/// Tests that a program in [`LANE`] runs at once, or one a processor, if there are more.
const LANE_TESTS: usize = 6;
/// Longest time that a program may run.
const PATIENCE: Duration = Duration::from_secs(20 * 60);
/// Interval at which programs are checked.
const PAUSE: Duration = Duration::from_millis(20);
/// Tunables of glibc's allocator: freed memory is kept, and large buffers lie in huge pages. Tests fill and free whole
/// images; the system would clear each page of them again.
const MEMORY: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=1073741824",
);
/// Variable with the duration of a fuzz target, and its default value: `.cargo/config.toml` sets it for
/// programs that cargo starts.
const PIECE: (&str, &str) = ("BOLERO_RANDOM_TEST_TIME_MS", "200");

/// A program that has ended.
#[derive(Debug)]
pub(super) struct Ran<'p> {
    pub(super) program: &'p Program,
    /// Its output: standard output, then standard error.
    pub(super) output: String,
    pub(super) time: Duration,
    pub(super) has_succeeded: bool,
    /// How it ended, for messages.
    pub(super) end: String,
}

/// A program that runs.
struct Running<'p> {
    program: &'p Program,
    child: Child,
    output: File,
    since: Instant,
}

/// Runs the programs; yields each as soon as it has ended.
pub(super) fn run<'p>(
    programs: &'p [Program],
    arguments: &[String],
    skip_log: &Path,
) -> impl Iterator<Item = Result<Ran<'p>, String>> {
    let times = Times::load();
    let mut waiting: Vec<&Program> = programs.iter().collect();
    // The last one is started first.
    waiting.sort_by(|one, other| times.expected(one).total_cmp(&times.expected(other)));
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let (arguments, skip_log) = (arguments.to_owned(), skip_log.to_owned());
    let mut schedule = Schedule { waiting, running: Vec::new(), cores, arguments, skip_log, times };
    std::iter::from_fn(move || schedule.next())
}

struct Schedule<'p> {
    /// Programs that are not started yet, the longest last.
    waiting: Vec<&'p Program>,
    running: Vec<Running<'p>>,
    cores: usize,
    /// Arguments of the user for each program.
    arguments: Vec<String>,
    /// File to which tests report that they were skipped.
    skip_log: PathBuf,
    times: Times,
}

impl<'p> Schedule<'p> {
    fn next(&mut self) -> Option<Result<Ran<'p>, String>> {
        loop {
            while let Some(program) = self.choose() {
                match self.start(program) {
                    Ok(running) => self.running.push(running),
                    Err(reason) => return Some(Err(reason)),
                }
            }
            if self.running.is_empty() {
                self.times.store();
                return None;
            }
            if let Some(ended) = self.ended() {
                return Some(ended);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// The longest program that may be started now.
    fn choose(&mut self) -> Option<&'p Program> {
        let in_lane = self.running.iter().filter(|running| is_in_lane(running.program)).count();
        let is_full = self.running.len() - in_lane >= self.cores;
        let may_start = |program: &&Program| if is_in_lane(program) { in_lane == 0 } else { !is_full };
        let at = self.waiting.iter().rposition(may_start)?;
        Some(self.waiting.remove(at))
    }

    fn start(&self, program: &'p Program) -> Result<Running<'p>, String> {
        let failure = |error: std::io::Error| format!("{}: {error}", program.path.display());
        let output = tempfile::tempfile().map_err(failure)?;
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).current_dir(&program.folder);
        command.envs(program.environment.iter().map(|(name, value)| (name, value)));
        match program.kind.as_str() {
            DOCUMENTATION => {}
            "doc" => {
                command.arg("--");
            }
            _ => {
                let tests = if is_in_lane(program) { self.cores.max(LANE_TESTS) } else { self.cores + 1 };
                command.arg(format!("--test-threads={tests}"));
                // As cargo sets them.
                command.env("CARGO_MANIFEST_DIR", &program.folder).env("CARGO_PKG_NAME", &program.package);
            }
        }
        command.args(&self.arguments).env("CENOTE_SKIP_LOG", &self.skip_log).stdin(Stdio::null());
        for (name, value) in [MEMORY, PIECE] {
            if std::env::var_os(name).is_none() {
                command.env(name, value);
            }
        }
        command.stdout(output.try_clone().map_err(failure)?).stderr(output.try_clone().map_err(failure)?);
        let child = command.spawn().map_err(failure)?;
        Ok(Running { program, child, output, since: Instant::now() })
    }

    /// A program that has ended or has run too long; `None`: there is none at present.
    fn ended(&mut self) -> Option<Result<Ran<'p>, String>> {
        for at in 0..self.running.len() {
            let running = &mut self.running[at];
            let status = running.child.try_wait();
            let is_late = running.since.elapsed() > PATIENCE;
            let end = match status {
                Ok(None) if !is_late => continue,
                Ok(None) => {
                    let _ = running.child.kill();
                    let _ = running.child.wait();
                    Err(format!("it was ended after {} minutes", PATIENCE.as_secs() / 60))
                }
                Ok(Some(status)) if status.success() => Ok(()),
                Ok(Some(status)) => Err(status.to_string()),
                Err(error) => Err(error.to_string()),
            };
            let running = self.running.swap_remove(at);
            return Some(self.finish(running, end));
        }
        None
    }

    fn finish(&mut self, mut running: Running<'p>, end: Result<(), String>) -> Result<Ran<'p>, String> {
        let time = running.since.elapsed();
        let mut output = Vec::new();
        let read =
            running.output.seek(SeekFrom::Start(0)).and_then(|_| running.output.read_to_end(&mut output));
        read.map_err(|error| format!("the output of {}: {error}", running.program.label()))?;
        if self.arguments.is_empty() {
            self.times.note(running.program, time);
        }
        Ok(Ran {
            program: running.program,
            output: String::from_utf8_lossy(&output).into_owned(),
            time,
            has_succeeded: end.is_ok(),
            end: end.err().unwrap_or_default(),
        })
    }
}

fn is_in_lane(program: &Program) -> bool {
    LANE.contains(&(program.package.as_str(), program.target.as_str()))
}

/// Times of the programs in the last run, in seconds, by label.
struct Times {
    file: PathBuf,
    seconds: HashMap<String, f64>,
}

impl Times {
    fn load() -> Times {
        let file = crate::root().join("target/test-times.json");
        let text = std::fs::read(&file).unwrap_or_default();
        Times { file, seconds: serde_json::from_slice(&text).unwrap_or_default() }
    }

    /// The expected time: that of the last run, else one from the size, because large programs have more code
    /// to test. The programs in [`LANE`] wait for each other, so that they are expected to take longest; the time of
    /// commands does not follow from the size of the program that runs them.
    fn expected(&self, program: &Program) -> f64 {
        const BYTES_PER_SECOND: f64 = 1e6;
        let from_size = program.size as f64 / BYTES_PER_SECOND;
        let guess = || match program.kind.as_str() {
            "doc" | DOCUMENTATION => 60.0,
            _ if program.package == RUNS_COMMANDS => 100.0,
            _ if is_in_lane(program) => 200.0 + from_size,
            _ => from_size,
        };
        self.seconds.get(&program.label()).copied().unwrap_or_else(guess)
    }

    fn note(&mut self, program: &Program, time: Duration) {
        self.seconds.insert(program.label(), time.as_secs_f64());
    }

    /// Stores the times. A failure is ignored: it affects only the order of the next run.
    fn store(&self) {
        if let Ok(text) = serde_json::to_vec(&self.seconds) {
            let _ = std::fs::write(&self.file, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(package: &str, target: &str, script: &str, size: u64) -> Program {
        Program {
            package: package.to_owned(),
            target: target.to_owned(),
            kind: "test".to_owned(),
            path: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            environment: Vec::new(),
            folder: "/".into(),
            size,
        }
    }

    #[test]
    fn outputs_are_whole_and_bad_ends_are_told() {
        let programs = [
            shell("a", "one", "echo out; echo err >&2", 1),
            shell("a", "two", "exit 3", 1),
            shell("a", "three", "printf %s \"$CARGO_PKG_NAME\"", 1),
        ];
        let mut ran: Vec<Ran<'_>> = run(&programs, &["x".to_owned()], Path::new("/dev/null"))
            .map(|ran| ran.expect("it runs"))
            .collect();
        ran.sort_by(|one, other| one.program.target.cmp(&other.program.target));
        let [one, three, two] = ran.as_slice() else { panic!("{ran:?}") };
        assert_eq!((one.output.as_str(), one.has_succeeded), ("out\nerr\n", true));
        assert_eq!((three.output.as_str(), three.has_succeeded), ("a", true));
        assert!(!two.has_succeeded && two.end.contains('3'), "{two:?}");
    }

    #[test]
    fn one_of_a_lane_runs_at_a_time() {
        let programs = [
            shell("cenote-serve", "many", "", 3),
            shell("cenote-serve", "rings", "", 2),
            shell("cenote-dmu", "it", "", 1),
        ];
        let times = Times { file: PathBuf::new(), seconds: HashMap::new() };
        let waiting = programs.iter().rev().collect();
        let (arguments, skip_log) = (Vec::new(), PathBuf::from("/dev/null"));
        let mut schedule = Schedule { waiting, running: Vec::new(), cores: 1, arguments, skip_log, times };
        let first = schedule.choose().expect("one");
        assert_eq!(first.target, "many");
        schedule.running.push(schedule.start(first).expect("it starts"));
        let beside = schedule.choose().expect("one that is in no lane, though there is only one processor");
        assert_eq!(beside.package, "cenote-dmu");
        assert_eq!(schedule.choose(), None);
        let mut started = schedule.running.pop().expect("it was started");
        started.child.wait().expect("it ends");
        assert_eq!(schedule.choose().map(|program| program.target.as_str()), Some("rings"));
    }
}
