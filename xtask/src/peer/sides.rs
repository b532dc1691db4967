//! The two sides: our commands on this machine, and OpenZFS in a guest. Both run the same shell scripts.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Functions for the scripts of both sides.
const TOOLS: &str = include_str!("../guest/tools.sh");
/// Time that a script may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// Bytes of the data that files are filled with.
const DATA_BYTES: usize = 16 << 20;
/// Size of the device of the guest's pool.
const THEIR_DISK: u64 = 4 << 30;
/// Names under which our program is called.
const LINKS: [&str; 5] = ["zfs", "zpool", "zdb", "zstream", "cenoted"];

/// A message that says what failed.
pub(super) type Failure = String;

/// One of the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Ours,
    Theirs,
}

impl Side {
    /// Name of the side and of its pool.
    pub(super) fn name(self) -> &'static str {
        match self {
            Side::Ours => "ours",
            Side::Theirs => "theirs",
        }
    }

    pub(super) fn other(self) -> Side {
        match self {
            Side::Ours => Side::Theirs,
            Side::Theirs => Side::Ours,
        }
    }
}

/// A booted guest, and a daemon of ours.
pub(super) struct Sides {
    dir: PathBuf,
    guest: Child,
    daemon: Child,
    requests: u32,
}

impl Sides {
    /// Boots the guest with `run`, and starts a daemon of `program`, in an empty folder.
    pub(super) fn start(run: &Path, program: &Path, dir: &Path) -> Result<Sides, Failure> {
        prepare(program, dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let share = |name: &str, path: PathBuf| format!("{name}={}", path.display());
        let mut guest = Command::new(run);
        guest.args(["--mem", "2500", "--timeout", "86400", "--share", &share("peer", dir.join("share"))]);
        guest.arg("--disk").arg(dir.join("theirs.img"));
        let log = |name: &str| fs::File::create(dir.join(name)).map_err(|error| format!("{name}: {error}"));
        guest.arg(crate::root().join("xtask/src/guest/serve.sh")).stdin(Stdio::null());
        guest.stdout(log("guest.log")?).stderr(log("guest.err")?);
        let mut daemon = Command::new(dir.join("bin/cenote"));
        daemon.arg("daemon").envs(environment(dir)).stdin(Stdio::null());
        daemon.stdout(log("daemon.log")?).stderr(log("daemon.err")?).process_group(0);
        let guest = guest.spawn().map_err(|error| format!("{}: {error}", run.display()))?;
        let daemon = daemon.spawn().map_err(|error| format!("the daemon: {error}"))?;
        let mut sides = Sides { dir: dir.to_owned(), guest, daemon, requests: 0 };
        let answers = "for _ in $(seq 600); do cenote daemon --status >/dev/null 2>&1 && exit 0; sleep 0.1; done; exit 1";
        sides.run(Side::Ours, answers)?;
        sides.run(Side::Theirs, "zpool create -f -O mountpoint=/theirs -O acltype=posix theirs /kp/disk0")?;
        Ok(sides)
    }

    /// Folder that both sides see, as this machine sees it.
    pub(super) fn share(&self) -> PathBuf {
        self.dir.join("share")
    }

    /// Runs a script; returns what it prints.
    pub(super) fn run(&mut self, side: Side, script: &str) -> Result<String, Failure> {
        let (text, is_good) = self.try_run(side, script)?;
        if is_good { Ok(text) } else { Err(format!("{}: {script}\n{text}", side.name())) }
    }

    /// Like [`Sides::run`]; also tells whether the script ended well.
    pub(super) fn try_run(&mut self, side: Side, script: &str) -> Result<(String, bool), Failure> {
        match side {
            Side::Ours => self.run_here(script),
            Side::Theirs => self.run_there(script),
        }
    }

    fn run_here(&self, script: &str) -> Result<(String, bool), Failure> {
        let work = self.dir.join("work");
        let head = head(Side::Ours, &self.share().display().to_string(), &work.display().to_string());
        let output = Command::new("timeout")
            .args([&PATIENCE.as_secs().to_string(), "bash", "-c", &format!("{head}{script}")])
            .envs(environment(&self.dir))
            .current_dir(&work)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("bash: {error}"))?;
        let text = [output.stdout, output.stderr].concat();
        Ok((String::from_utf8_lossy(&text).into_owned(), output.status.success()))
    }

    fn run_there(&mut self, script: &str) -> Result<(String, bool), Failure> {
        let failed = |error: std::io::Error| format!("a request to the guest: {error}");
        self.requests += 1;
        let file = |end: &str| self.dir.join(format!("share/requests/{}.{end}", self.requests));
        let head = head(Side::Theirs, "/share/peer", "/tmp");
        fs::write(file("sh"), format!("{head}{script}\n")).map_err(failed)?;
        fs::write(file("go"), "").map_err(failed)?;
        let begun = Instant::now();
        while !file("rc").exists() {
            if let Ok(Some(status)) = self.guest.try_wait() {
                return Err(format!(
                    "the guest has ended with {status}: {}",
                    self.dir.join("guest.err").display()
                ));
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("the guest does not answer: {script}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let code = fs::read_to_string(file("rc")).map_err(failed)?;
        let text = fs::read(file("out")).map_err(failed)?;
        Ok((String::from_utf8_lossy(&text).into_owned(), code.trim() == "0"))
    }

    /// Ends both sides. `is_judged`: with the verdicts of `zdb` on our pool, and of a scrub of theirs.
    pub(super) fn end(mut self, is_judged: bool) -> Result<(), Failure> {
        if !is_judged {
            return Ok(());
        }
        let scrubbed =
            self.run(Side::Theirs, "zpool scrub -w theirs; zpool status -v theirs; zpool export theirs")?;
        if !(scrubbed.contains("with 0 errors") && scrubbed.contains("No known data errors")) {
            return Err(format!("scrub of theirs\n{scrubbed}"));
        }
        self.judge()?;
        self.run(Side::Ours, "timeout -k 1 60 cenote daemon --stop")?;
        Ok(())
    }

    /// Exports our pool, and asks `zdb` for its verdict.
    pub(super) fn judge(&mut self) -> Result<(), Failure> {
        self.run(Side::Ours, "zpool export ours")?;
        let zdb = testkit::tool("zdb").ok_or("no zdb on this machine")?;
        let mut judge = testkit::hurried(&zdb);
        judge.args(["-e", "-p"]).arg(self.dir.join("ours")).args(["-bcc", "ours"]);
        let output = judge.output().map_err(|error| format!("zdb: {error}"))?;
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if !(output.status.success() && text.contains("No leaks")) {
            return Err(format!("zdb -bcc ours: {}\n{text}", output.status));
        }
        Ok(())
    }
}

impl Drop for Sides {
    fn drop(&mut self) {
        let at = self.dir.join("share/requests");
        let next = self.requests + 1;
        let asked = fs::write(at.join(format!("{next}.sh")), "exit")
            .and_then(|()| fs::write(at.join(format!("{next}.go")), ""));
        let begun = Instant::now();
        while asked.is_ok()
            && begun.elapsed() < Duration::from_secs(20)
            && matches!(self.guest.try_wait(), Ok(None))
        {
            std::thread::sleep(Duration::from_millis(50));
        }
        for child in [&mut self.guest, &mut self.daemon] {
            let _ = Command::new("kill").arg(child.id().to_string()).stderr(Stdio::null()).status();
            let _ = child.wait();
        }
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let own = format!("{}/", self.dir.display());
        let left =
            mounts.lines().filter_map(|line| line.split(' ').nth(1)).filter(|path| path.starts_with(&own));
        for path in left.collect::<Vec<_>>().into_iter().rev() {
            let _ = Command::new("umount").args(["-l", path]).stderr(Stdio::null()).status();
        }
    }
}

/// Makes the folders of a run.
fn prepare(program: &Path, dir: &Path) -> std::io::Result<()> {
    let _ = fs::remove_dir_all(dir);
    for name in ["bin", "ours", "state", "work", "mnt", "share/requests", "share/streams"] {
        fs::create_dir_all(dir.join(name))?;
    }
    fs::copy(program, dir.join("bin/cenote"))?;
    for link in LINKS {
        std::os::unix::fs::symlink("cenote", dir.join("bin").join(link))?;
    }
    fs::write(dir.join("share/tools.sh"), TOOLS)?;
    fs::write(dir.join("share/data"), data())?;
    fs::File::create(dir.join("theirs.img"))?.set_len(THEIR_DISK)
}

/// Bytes to fill files with, the same at each run: blocks of 4 KiB that cannot be compressed, and others of text.
fn data() -> Vec<u8> {
    let mut random = super::Random::new(1);
    let mut bytes = Vec::with_capacity(DATA_BYTES);
    while bytes.len() < DATA_BYTES {
        let is_text = random.below(2) == 0;
        for _ in 0..512 {
            let word = random.next();
            bytes.extend_from_slice(&if is_text { *b"a word, " } else { word.to_le_bytes() });
        }
        if is_text {
            bytes.extend_from_slice(&random.next().to_le_bytes());
        }
    }
    bytes
}

/// What each script begins with.
fn head(side: Side, share: &str, work: &str) -> String {
    format!("SIDE={} SHARE={share} WORK={work}\n. $SHARE/tools.sh\n", side.name())
}

/// Environment of our commands and of the daemon.
fn environment(dir: &Path) -> Vec<(&'static str, std::ffi::OsString)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut first = dir.join("bin").into_os_string();
    first.push(":");
    first.push(path);
    vec![
        ("PATH", first),
        ("CENOTE_DEVICES", dir.join("ours").into_os_string()),
        ("CENOTE_STATE", dir.join("state").into_os_string()),
        ("CENOTE_SOCKET", dir.join("state/socket").into_os_string()),
        ("CENOTE_NO_START", "1".into()),
    ]
}
