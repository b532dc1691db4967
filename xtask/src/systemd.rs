//! `cargo xtask systemd`: tests the units under a real systemd.
//!
//! The systemd runs as the first process of its own namespaces. Its root is that of this machine with a tmpfs
//! layer over it: changes there do not persist, and the machine itself is not changed.

use crate::{Outcome, cargo, must, root};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SYSTEMD: &str = "/usr/lib/systemd/systemd";
/// Longest time until systemd responds.
const BOOT: Duration = Duration::from_secs(60);

/// Runs `cargo xtask systemd [PROGRAM]`.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let groups = needs()?;
    let program = match arguments {
        [] => {
            must(&mut cargo(&["build", "--release", "--package", "cenote-cli"]))?;
            root().join("target/release/cenote")
        }
        [program] => PathBuf::from(program),
        _ => return Err("usage: cargo xtask systemd [PROGRAM]".to_owned()),
    };
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let mut install = Command::new(root().join("packaging/install.sh"));
    install.arg(program).env("DESTDIR", folder.path().join("installed")).env("PREFIX", "/usr");
    must(&mut install)?;
    let machine = Machine::boot(folder.path(), &groups)?;
    let script = fs::read_to_string(root().join("xtask/src/systemd/proof.sh"))
        .map_err(|error| format!("proof.sh: {error}"))?;
    must(machine.command(&["/bin/sh", "-c", &script])?.stdin(Stdio::null()))
}

/// Checks the requirements; returns the mount point of version 2 control groups.
fn needs() -> Result<PathBuf, String> {
    let mut missing = Vec::new();
    if fs::metadata("/proc/self").is_ok_and(|found| std::os::unix::fs::MetadataExt::uid(&found) != 0) {
        missing.push("root".to_owned());
    }
    for (path, what) in [
        (SYSTEMD, "systemd (package systemd)"),
        ("/usr/bin/unshare", "unshare (package util-linux)"),
        ("/usr/bin/nsenter", "nsenter (package util-linux)"),
        ("/usr/bin/pgrep", "pgrep (package procps)"),
        ("/dev/fuse", "/dev/fuse"),
    ] {
        if !Path::new(path).exists() {
            missing.push(what.to_owned());
        }
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let groups = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let groups =
        groups.filter(|words| words.get(2) == Some(&"cgroup2")).find_map(|words| words.get(1).copied());
    match groups {
        Some(at) if missing.is_empty() => Ok(PathBuf::from(at)),
        None => {
            missing.push("control groups of the second kind, mounted somewhere".to_owned());
            Err(format!("this needs {}", missing.join(", ")))
        }
        _ => Err(format!("this needs {}", missing.join(", "))),
    }
}

/// A systemd in its own namespaces.
struct Machine {
    starter: Child,
    group: PathBuf,
}

impl Machine {
    fn boot(folder: &Path, groups: &Path) -> Result<Machine, String> {
        let group = groups.join(format!("cenote-proof-{}", std::process::id()));
        fs::create_dir(&group).map_err(|error| format!("{}: {error}", group.display()))?;
        let script = "echo $$ >\"$1/cgroup.procs\" && exec unshare --mount --pid --fork --cgroup --ipc --uts \
                      --kill-child --propagation slave /bin/sh \"$2\" \"$3\"";
        let starter = Command::new("/bin/sh")
            .args(["-c", script, "sh"])
            .arg(&group)
            .arg(root().join("xtask/src/systemd/boot.sh"))
            .arg(folder)
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        let mut machine = Machine { starter, group };
        let until = Instant::now() + BOOT;
        loop {
            let asked = machine.command(&["systemctl", "is-active", "--quiet", "proof.target"]);
            if asked.is_ok_and(|mut asked| {
                asked.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
            }) {
                return Ok(machine);
            }
            if let Ok(Some(status)) = machine.starter.try_wait() {
                return Err(format!("systemd does not start: {status}"));
            }
            if Instant::now() > until {
                return Err("systemd does not answer".to_owned());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// A command that runs in the namespaces.
    fn command(&self, words: &[&str]) -> Result<Command, String> {
        let children = format!("/proc/{0}/task/{0}/children", self.starter.id());
        let children = fs::read_to_string(children).unwrap_or_default();
        let first = children.split_whitespace().next().ok_or("it has not started")?;
        let mut command = Command::new("nsenter");
        command.args(["-t", first, "-m", "-p", "-i", "-u", "-C", "-r", "-w"]).args(words).env_clear();
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        Ok(command)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // All processes of the namespace end with its first one, and so do its mounts.
        let _ = self.starter.kill();
        let _ = self.starter.wait();
        let until = Instant::now() + BOOT;
        while self.group.exists() && Instant::now() < until {
            remove_groups(&self.group);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Removes a control group and the groups in it, none of which has processes any more.
fn remove_groups(group: &Path) {
    for inner in fs::read_dir(group).into_iter().flatten().flatten() {
        if inner.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&inner.path());
        }
    }
    let _ = fs::remove_dir(group);
}
