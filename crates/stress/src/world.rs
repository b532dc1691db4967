//! A round's folder, pool and daemon; its commands, and what becomes of the round.

use crate::{Plan, Random, Report};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest that a command may take, and a mount may be away after a crash.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// Bytes of a device.
pub(crate) const DEVICE: u64 = 512 << 20;
/// Exit code of a command that `timeout` has killed.
const KILLED: i32 = 137;

/// Why a round failed.
#[derive(Debug)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.to_string())
    }
}

pub(crate) type Done<T = ()> = Result<T, Failure>;

/// A failure with these words.
pub(crate) fn wrong<T>(why: impl Into<String>) -> Done<T> {
    Err(Failure(why.into()))
}

/// How the devices are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Two devices with the same.
    Mirror,
    /// Three devices, one of which can be done without.
    Raidz1,
    /// Four devices, two of which can be done without.
    Raidz2,
}

impl Layout {
    /// How many devices it has.
    pub(crate) fn devices(self) -> usize {
        match self {
            Layout::Mirror => 2,
            Layout::Raidz1 => 3,
            Layout::Raidz2 => 4,
        }
    }

    /// How many of them it can do without.
    pub(crate) fn spared(self) -> usize {
        if self == Layout::Raidz2 { 2 } else { 1 }
    }

    fn word(self) -> &'static str {
        match self {
            Layout::Mirror => "mirror",
            Layout::Raidz1 => "raidz1",
            Layout::Raidz2 => "raidz2",
        }
    }
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn is_good(&self) -> bool {
        self.code == 0
    }
}

/// A round.
pub(crate) struct World {
    program: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) layout: Layout,
    pub(crate) devices: Vec<PathBuf>,
    /// The daemon is killed now and then: calls and commands may fail by it.
    pub(crate) is_killed: bool,
    begun: Instant,
    journal: Mutex<File>,
    failure: Mutex<Option<String>>,
    is_over: AtomicBool,
    pub(crate) calls: AtomicU64,
    commands: AtomicU64,
    kills: AtomicU64,
}

impl World {
    /// Makes the folder and the pool in it, mounted at `mnt`.
    pub(crate) fn make(plan: &Plan, number: u64, random: &mut Random) -> Done<World> {
        let folder = plan.folder.join(format!("round-{number}"));
        // What an earlier run of the same round left.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("devices"))?;
        // Other users find the socket and the mounts.
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755))?;
        let folder = folder.canonicalize()?;
        let layout = *random.of(&[Layout::Mirror, Layout::Raidz1, Layout::Raidz2]);
        let devices: Vec<PathBuf> =
            (0..layout.devices()).map(|n| folder.join(format!("devices/d{n}"))).collect();
        for device in &devices {
            File::create(device)?.set_len(DEVICE)?;
        }
        let journal = OpenOptions::new().create(true).append(true).open(folder.join("journal"))?;
        let world = World {
            program: plan.program.clone(),
            folder,
            layout,
            devices,
            is_killed: plan.actors.kills,
            begun: Instant::now(),
            journal: Mutex::new(journal),
            failure: Mutex::default(),
            is_over: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            kills: AtomicU64::new(0),
        };
        eprintln!("round {number} of seed {}: {layout:?} in {}", plan.seed, world.folder.display());
        let made = world.make_pool();
        made.map_err(|failure| Failure(format!("{failure} (in {})", world.folder.display())))?;
        Ok(world)
    }

    fn make_pool(&self) -> Done {
        let at = self.mount().display().to_string();
        let mut words = vec!["zpool", "create", "-m", &at, "tank", self.layout.word()];
        let devices: Vec<String> = self.devices.iter().map(|device| device.display().to_string()).collect();
        words.extend(devices.iter().map(String::as_str));
        self.good("world", &words)?;
        self.good("world", &["zfs", "create", "tank/t"]).map(drop)
    }

    /// The program `cenote`.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Where the pool's root file system is mounted.
    pub(crate) fn mount(&self) -> PathBuf {
        self.folder.join("mnt")
    }

    /// A command of ours, with the daemon of this round.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", &PATIENCE.as_secs().to_string()]).arg(&self.program).args(words);
        command.env_clear().env("TZ", "UTC0").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("CENOTE_SOCKET", self.folder.join("socket"));
        command.env("CENOTE_STATE", self.folder.join("state"));
        command.current_dir("/").stdin(Stdio::null());
        command
    }

    /// Runs a command and looks whether it has ended as commands do, well or not.
    pub(crate) fn run(&self, actor: &str, words: &[&str]) -> Done<Ran> {
        let begun = self.begun.elapsed();
        let output = self.command(words).output()?;
        self.judge_output(actor, words, begun, &output)
    }

    /// The same for several at once.
    pub(crate) fn run_together(&self, actor: &str, all: &[Vec<String>]) -> Done<Vec<Ran>> {
        let mut running = Vec::new();
        for line in all {
            let words: Vec<&str> = line.iter().map(String::as_str).collect();
            let begun = self.begun.elapsed();
            let child = self.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            running.push((line, begun, child));
        }
        let mut done = Vec::new();
        for (line, begun, child) in running {
            let words: Vec<&str> = line.iter().map(String::as_str).collect();
            let output = child.wait_with_output()?;
            done.push(self.judge_output(actor, &words, begun, &output)?);
        }
        Ok(done)
    }

    fn judge_output(&self, actor: &str, words: &[&str], begun: Duration, output: &Output) -> Done<Ran> {
        self.commands.fetch_add(1, Ordering::Relaxed);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        let line = words.join(" ");
        let code = output.status.code().unwrap_or(-1);
        let took = (self.begun.elapsed() - begun).as_millis();
        self.note(&format!(
            "{:9.3} {took:6} ms {actor}: {line} = {code} {}",
            begun.as_secs_f64(),
            err.trim()
        ));
        if code == KILLED {
            self.keep_stacks();
            return wrong(format!("{actor}: '{line}' has not ended after {} s", PATIENCE.as_secs()));
        }
        if !(0..=2).contains(&code) || err.contains("panicked") || err.contains("suspended") {
            return wrong(format!("{actor}: '{line}': {} {err}", output.status));
        }
        Ok(Ran { code, out, err })
    }

    /// A command that must do its work, even where the daemon is killed meanwhile: then it is asked for again.
    pub(crate) fn good(&self, actor: &str, words: &[&str]) -> Done<Ran> {
        let begun = Instant::now();
        loop {
            let ran = self.run(actor, words)?;
            if ran.is_good() {
                return Ok(ran);
            }
            if !self.is_killed || begun.elapsed() > PATIENCE {
                return wrong(format!("{actor}: '{}' failed: {}", words.join(" "), ran.err.trim()));
            }
        }
    }

    /// Writes a line into the journal.
    pub(crate) fn note(&self, line: &str) {
        // The journal helps to understand what a judge says; without it the judge is right all the same.
        let _ = writeln!(lock(&self.journal), "{line}");
    }

    /// What an actor does; that it fails ends the round.
    pub(crate) fn watch(&self, work: impl FnOnce() -> Done) {
        if let Err(Failure(why)) = work() {
            self.note(&format!("FAILED: {why}"));
            lock(&self.failure).get_or_insert(why);
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    /// The actors are to end.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Lets the actors work for so long, or until one fails.
    pub(crate) fn wait(&self, time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time && !self.is_over() {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// A pause of an actor, shorter if the round is over.
    pub(crate) fn pause(&self, time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time && !self.is_over() {
            std::thread::sleep(Duration::from_millis(5).min(time));
        }
    }

    /// What the first actor that failed said.
    pub(crate) fn outcome(&self) -> Done {
        lock(&self.failure).take().map_or(Ok(()), wrong)
    }

    /// The process of the daemon, if one runs.
    pub(crate) fn daemon(&self) -> Option<rustix::process::Pid> {
        let output = self.command(&["daemon", "--status"]).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let pid = text.split("process ").nth(1)?.split(',').next()?.trim().parse().ok()?;
        rustix::process::Pid::from_raw(pid)
    }

    /// What the threads of the daemon wait for, for the one who looks at a command that does not end.
    fn keep_stacks(&self) {
        let Some(pid) = self.daemon() else { return self.note("no daemon answers") };
        let folder = PathBuf::from(format!("/proc/{}/task", pid.as_raw_nonzero()));
        for task in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let part = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let (name, stack) = (part("comm"), part("stack").replace('\n', " < "));
            self.note(&format!("thread {}: {} {stack}", name.trim(), part("wchan")));
        }
    }

    /// What was done.
    pub(crate) fn report(&self) -> Report {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (calls, commands, kills) = (count(&self.calls), count(&self.commands), count(&self.kills));
        Report { rounds: 1, calls, commands, kills }
    }

    /// Ends the daemon, and removes the folder after a good round.
    pub(crate) fn end(self, outcome: Done) -> Done {
        let log = std::fs::read_to_string(self.folder.join("state/cenoted.log")).unwrap_or_default();
        let panic = log.lines().find(|line| line.contains("panicked")).map(str::to_owned);
        let outcome = outcome.and_then(|()| panic.map_or(Ok(()), |line| wrong(format!("daemon: {line}"))));
        let stopped = self.run("world", &["daemon", "--stop"]);
        let is_mounted = std::fs::read_to_string("/proc/self/mounts")
            .is_ok_and(|mounts| mounts.contains(&self.folder.display().to_string()));
        let outcome = outcome.and(stopped.map(drop)).and_then(|()| match is_mounted {
            true => wrong("something is mounted after the daemon's end"),
            false => Ok(()),
        });
        match outcome {
            Ok(()) => Ok(std::fs::remove_dir_all(&self.folder)?),
            Err(Failure(why)) => wrong(format!("{why}\nkept in {}", self.folder.display())),
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A failure of one thread is the round's; what the others say helps.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills the daemon at random moments. The next command starts another one.
pub(crate) fn kill_now_and_then(world: &World, mut random: Random) -> Done {
    while !world.is_over() {
        world.pause(Duration::from_millis(500 + random.below(4000)));
        kill_daemon(world);
    }
    Ok(())
}

/// Kills the daemon, if one runs.
pub(crate) fn kill_daemon(world: &World) {
    let Some(pid) = world.daemon() else { return };
    world.note(&format!("{:9.3} kill -9 {}", world.begun.elapsed().as_secs_f64(), pid.as_raw_nonzero()));
    world.kills.fetch_add(1, Ordering::Relaxed);
    // It may have ended by itself.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

/// FUSE over io_uring, switched on for new mounts until this is dropped.
pub(crate) struct Ring(Option<String>);

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

impl Ring {
    /// Does nothing where there is no such switch, or it is not ours.
    pub(crate) fn switch_on() -> Ring {
        let before = std::fs::read_to_string(Path::new(SWITCH)).ok();
        Ring(before.filter(|_| std::fs::write(SWITCH, "Y").is_ok()))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // There is nobody left to tell.
            let _ = std::fs::write(SWITCH, before.trim());
        }
    }
}
