//! The directory, pool and daemon of a round; its commands and their outcomes.

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

/// The longest time that a command may take, and that a mount may be away after a crash.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(180);
/// Bytes of a device.
pub(crate) const DEVICE: u64 = 512 << 20;
/// The size of the tmpfs that holds the devices.
const TMPFS_SIZE: &str = "size=3g";
/// Daemon parameters that make many blocks gang blocks, as in a pool without large free space.
const FORCE_GANGS: &str = "metaslab_force_ganging=1024,metaslab_force_ganging_pct=30";
/// The exit code of a command that `timeout` has killed.
const KILLED: i32 = 137;

/// The reason why a round failed, as text.
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

/// The result of a step of a round.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Fails with this reason.
pub(crate) fn fail<T>(why: impl Into<String>) -> Outcome<T> {
    Err(Failure(why.into()))
}

/// The redundancy of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A mirror of two devices.
    Mirror,
    /// Three devices with single parity.
    Raidz1,
    /// Four devices with double parity.
    Raidz2,
}

impl Layout {
    /// The number of devices.
    pub(crate) fn devices(self) -> usize {
        match self {
            Layout::Mirror => 2,
            Layout::Raidz1 => 3,
            Layout::Raidz2 => 4,
        }
    }

    /// The number of devices that may be missing.
    pub(crate) fn redundancy(self) -> usize {
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

/// The kind of the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    /// Files in the directory of the round.
    Files,
    /// Files on a tmpfs, which can be made full.
    Memory,
    /// Loop devices on such files, which can be made read-only.
    Loops,
}

/// The outcome of a command.
#[derive(Debug)]
pub(crate) struct Completed {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
    /// All devices refused writes at some time while it ran, so that a failure is expected.
    pub(crate) is_excused: bool,
}

impl Completed {
    pub(crate) fn is_success(&self) -> bool {
        self.code == 0
    }
}

/// The start of a command, and the state of the devices then.
#[derive(Debug, Clone, Copy)]
struct Start {
    at: Duration,
    outages: u64,
}

/// Runs a tool of the system, and returns its standard output.
pub(crate) fn system(tool: &str, args: &[&str]) -> Outcome<String> {
    let output = Command::new(tool).args(args).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        return fail(format!("{tool} {}: {} {}", args.join(" "), output.status, why.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(crate) fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The state of a round, shared by its actors.
pub(crate) struct World {
    program: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) layout: Layout,
    pub(crate) medium: Medium,
    /// The files that hold the data of the devices.
    pub(crate) images: Vec<PathBuf>,
    /// The paths of the devices: these files, or loop devices on them.
    pub(crate) devices: Vec<PathBuf>,
    /// Held during `zpool reguid`, and while a device with the old pool GUID may come back.
    pub(crate) identity: Mutex<()>,
    /// Odd while all devices refuse writes; incremented at the beginning and the end of each such time.
    outages: AtomicU64,
    /// The number of actors still running.
    busy: AtomicU64,
    /// Whether the daemon is killed now and then, so that calls and commands may fail.
    pub(crate) has_kills: bool,
    /// Parameters passed to the daemon.
    parameters: &'static str,
    begun: Instant,
    journal: Mutex<File>,
    failure: Mutex<Option<String>>,
    is_over: AtomicBool,
    pub(crate) calls: AtomicU64,
    commands: AtomicU64,
    kills: AtomicU64,
}

impl World {
    /// Makes the directory and the pool in it, mounted at `mnt`.
    pub(crate) fn make(plan: &Plan, number: u64, random: &mut Random) -> Outcome<World> {
        let folder = plan.folder.join(format!("round-{number}"));
        // Removes the remains of an earlier run of the same round.
        let _ = rustix::mount::unmount(folder.join("store"), rustix::mount::UnmountFlags::DETACH);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("store"))?;
        // Other users must reach the socket and the mounts.
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755))?;
        let folder = folder.canonicalize()?;
        let layout = *random.of(&[Layout::Mirror, Layout::Raidz1, Layout::Raidz2]);
        let mut medium = *random.of(&[Medium::Files, Medium::Memory, Medium::Loops]);
        if !plan.actors.devices || !rustix::process::geteuid().is_root() {
            medium = Medium::Files;
        }
        if medium != Medium::Files {
            system("mount", &["-t", "tmpfs", "-o", TMPFS_SIZE, "none", &text(&folder.join("store"))])?;
        }
        std::fs::create_dir(folder.join("store/devices"))?;
        std::fs::create_dir(folder.join("store/kept"))?;
        let images: Vec<PathBuf> =
            (0..layout.devices()).map(|n| folder.join(format!("store/devices/d{n}"))).collect();
        for image in &images {
            File::create(image)?.set_len(DEVICE)?;
        }
        let journal = OpenOptions::new().create(true).append(true).open(folder.join("journal"))?;
        let mut world = World {
            program: plan.program.clone(),
            folder,
            layout,
            medium,
            devices: images.clone(),
            images,
            identity: Mutex::default(),
            outages: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            has_kills: plan.actors.kills,
            parameters: if number % 3 == 2 { FORCE_GANGS } else { "" },
            begun: Instant::now(),
            journal: Mutex::new(journal),
            failure: Mutex::default(),
            is_over: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            kills: AtomicU64::new(0),
        };
        eprintln!(
            "round {number} of seed {}: {layout:?} of {medium:?}{} in {}",
            plan.seed,
            if world.parameters.is_empty() { "" } else { ", in pieces," },
            world.folder.display()
        );
        if medium == Medium::Loops {
            for n in 0..world.images.len() {
                let made = system("losetup", &["-f", "--show", &text(&world.images[n])])?;
                world.devices[n] = PathBuf::from(made.trim());
            }
        }
        if let Err(failure) = world.make_pool() {
            return fail(format!("{failure} (in {})", world.folder.display()));
        }
        Ok(world)
    }

    /// The directory of the files that hold the data of the devices.
    pub(crate) fn store(&self) -> PathBuf {
        self.folder.join("store/devices")
    }

    /// Detaches the loop devices; from then on the files are the devices.
    pub(crate) fn detach_loops(&self) {
        for device in self.devices.iter().filter(|_| self.medium == Medium::Loops) {
            // A device in use is detached with its last user.
            let _ = system("losetup", &["-d", &text(device)]);
        }
    }

    /// Runs `work` while all devices refuse writes: commands may report errors, or wait.
    pub(crate) fn while_failing(&self, work: impl FnOnce() -> Outcome) -> Outcome {
        self.outages.fetch_add(1, Ordering::SeqCst);
        let done = work();
        self.outages.fetch_add(1, Ordering::SeqCst);
        done
    }

    /// Notes the start of a command.
    fn start(&self) -> Start {
        Start { at: self.begun.elapsed(), outages: self.outages.load(Ordering::SeqCst) }
    }

    fn is_excused(&self, start: Start) -> bool {
        start.outages % 2 == 1 || self.outages.load(Ordering::SeqCst) != start.outages
    }

    fn make_pool(&self) -> Outcome {
        let at = self.mount().display().to_string();
        let mut words = vec!["zpool", "create", "-m", &at, "tank", self.layout.word()];
        let devices: Vec<String> = self.devices.iter().map(|device| device.display().to_string()).collect();
        words.extend(devices.iter().map(String::as_str));
        self.run_ok("world", &words)?;
        self.run_ok("world", &["zfs", "create", "tank/t"]).map(drop)
    }

    /// The path of the `cenote` program.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The mount point of the pool's root file system.
    pub(crate) fn mount(&self) -> PathBuf {
        self.folder.join("mnt")
    }

    /// A `cenote` command that talks to the daemon of this round.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", &COMMAND_TIMEOUT.as_secs().to_string()]).arg(&self.program).args(words);
        command.env_clear().env("TZ", "UTC0").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("CENOTE_SOCKET", self.folder.join("socket"));
        command.env("CENOTE_STATE", self.folder.join("state"));
        command.env("CENOTE_PARAMETERS", self.parameters);
        command.current_dir("/").stdin(Stdio::null());
        command
    }

    /// Runs a command, and fails if it does not end in a regular way, with success or an error.
    pub(crate) fn run(&self, actor: &str, words: &[&str]) -> Outcome<Completed> {
        let start = self.start();
        let output = self.command(words).output()?;
        self.judge_output(actor, words, start, &output)
    }

    /// Runs several commands at once, with the same check.
    pub(crate) fn run_together(&self, actor: &str, all: &[Vec<String>]) -> Outcome<Vec<Completed>> {
        let mut running = Vec::new();
        for line in all {
            let words: Vec<&str> = line.iter().map(String::as_str).collect();
            let start = self.start();
            let child = self.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            running.push((line, start, child));
        }
        let mut done = Vec::new();
        for (line, start, child) in running {
            let words: Vec<&str> = line.iter().map(String::as_str).collect();
            let output = child.wait_with_output()?;
            done.push(self.judge_output(actor, &words, start, &output)?);
        }
        Ok(done)
    }

    fn judge_output(&self, actor: &str, words: &[&str], start: Start, output: &Output) -> Outcome<Completed> {
        self.commands.fetch_add(1, Ordering::Relaxed);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        let line = words.join(" ");
        let code = output.status.code().unwrap_or(-1);
        let took = (self.begun.elapsed() - start.at).as_millis();
        let is_excused = self.is_excused(start);
        self.note(&format!(
            "{:9.3} {took:6} ms {actor}: {line} = {code} {}",
            start.at.as_secs_f64(),
            err.trim()
        ));
        if code == KILLED {
            self.record_stacks();
            return fail(format!("{actor}: '{line}' has not ended after {} s", COMMAND_TIMEOUT.as_secs()));
        }
        let is_stopped = err.contains("suspended") && !is_excused;
        // 255: `zfs set` on a missing dataset, as in OpenZFS. 22: `zpool set` on a pool that a daemon could
        // not import because its devices refused writes.
        if !matches!(code, 0..=2 | 22 | 255) || err.contains("panicked") || is_stopped {
            return fail(format!("{actor}: '{line}': {} {err}", output.status));
        }
        Ok(Completed { code, out, err, is_excused })
    }

    /// Runs a command that must succeed; repeats it where the daemon may be killed meanwhile.
    pub(crate) fn run_ok(&self, actor: &str, words: &[&str]) -> Outcome<Completed> {
        let begun = Instant::now();
        loop {
            let completed = self.run(actor, words)?;
            if completed.is_success() {
                return Ok(completed);
            }
            if !(self.has_kills || completed.is_excused) || begun.elapsed() > COMMAND_TIMEOUT {
                return fail(format!("{actor}: '{}' failed: {}", words.join(" "), completed.err.trim()));
            }
        }
    }

    /// Writes a line to the journal.
    pub(crate) fn note(&self, line: &str) {
        // The journal only explains failures; a round without it is as valid.
        let _ = writeln!(lock(&self.journal), "{line}");
    }

    /// Runs an actor; its failure ends the round.
    pub(crate) fn watch(&self, work: impl FnOnce() -> Outcome) {
        self.busy.fetch_add(1, Ordering::SeqCst);
        if let Err(failure) = work() {
            self.fail(failure);
        }
        self.busy.fetch_sub(1, Ordering::SeqCst);
    }

    fn fail(&self, Failure(why): Failure) {
        self.note(&format!("FAILED: {why}"));
        lock(&self.failure).get_or_insert(why);
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Whether the actors are to end.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Lets the actors work for this long, or until one fails.
    pub(crate) fn wait(&self, time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time && !self.is_over() {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.is_over.store(true, Ordering::Relaxed);
        // A call that never returns is released when the daemon ends.
        let over = Instant::now();
        while self.busy.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(Duration::from_millis(20));
            if over.elapsed() > COMMAND_TIMEOUT * 3 / 2 {
                self.record_stacks();
                self.fail(Failure("an actor has not ended".to_owned()));
                kill_daemon(self);
                break;
            }
        }
    }

    /// Pauses an actor, at most until the round is over.
    pub(crate) fn pause(&self, time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time && !self.is_over() {
            std::thread::sleep(Duration::from_millis(5).min(time));
        }
    }

    /// The failure of the first actor that failed.
    pub(crate) fn outcome(&self) -> Outcome {
        lock(&self.failure).take().map_or(Ok(()), fail)
    }

    /// The process id of the daemon, if one runs.
    pub(crate) fn daemon(&self) -> Option<rustix::process::Pid> {
        let output = self.command(&["daemon", "--status"]).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let pid = text.split("process ").nth(1)?.split(',').next()?.trim().parse().ok()?;
        rustix::process::Pid::from_raw(pid)
    }

    /// Writes the stacks of the daemon's threads to the journal, to find the cause of a call that does not
    /// return.
    fn record_stacks(&self) {
        let Some(pid) = self.daemon() else { return self.note("no daemon answers") };
        let id = pid.as_raw_nonzero().to_string();
        match system("gdb", &["-p", &id, "-batch", "-ex", "thread apply all bt"]) {
            Ok(stacks) => self.note(&stacks),
            Err(Failure(why)) => self.note(&why),
        }
    }

    /// The totals of the round.
    pub(crate) fn report(&self) -> Report {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (calls, commands, kills) = (count(&self.calls), count(&self.commands), count(&self.kills));
        Report { rounds: 1, calls, commands, kills }
    }

    /// Ends the daemon, and removes the directory after a successful round.
    pub(crate) fn end(self, outcome: Outcome) -> Outcome {
        let log = std::fs::read_to_string(self.folder.join("state/cenoted.log")).unwrap_or_default();
        let panic = log.lines().find(|line| line.contains("panicked")).map(str::to_owned);
        let outcome = outcome.and_then(|()| panic.map_or(Ok(()), |line| fail(format!("daemon: {line}"))));
        let stopped = self.run("world", &["daemon", "--stop"]);
        let is_mounted = std::fs::read_to_string("/proc/self/mounts")
            .is_ok_and(|mounts| mounts.contains(&text(&self.mount())));
        let outcome = outcome.and(stopped.map(drop)).and_then(|()| match is_mounted {
            true => fail("something is mounted after the daemon's end"),
            false => Ok(()),
        });
        match outcome {
            Ok(()) => {
                self.detach_loops();
                if self.medium != Medium::Files {
                    system("umount", &[&text(&self.folder.join("store"))])?;
                }
                Ok(std::fs::remove_dir_all(&self.folder)?)
            }
            Err(Failure(why)) => fail(format!("{why}\nkept in {}", self.folder.display())),
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic of one thread fails the round; the state of the others still helps.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills the daemon at random moments. The next command starts another one.
pub(crate) fn kill_now_and_then(world: &World, mut random: Random) -> Outcome {
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

/// FUSE over io_uring, switched on for new mounts until the value is dropped.
pub(crate) struct Ring(Option<String>);

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

impl Ring {
    /// Does nothing where the kernel has no such switch, or without the right to change it.
    pub(crate) fn switch_on() -> Ring {
        let before = std::fs::read_to_string(Path::new(SWITCH)).ok();
        Ring(before.filter(|_| std::fs::write(SWITCH, "Y").is_ok()))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // A destructor cannot report the failure.
            let _ = std::fs::write(SWITCH, before.trim());
        }
    }
}
