//! Cleans up after a run, however it ends: mounts, loop devices, processes, and the changed kernel parameter.
//!
//! There are three processes. The first creates a directory and holds a pipe. The second, a [`cleaner`] in a
//! process group of its own, waits for the end of the pipe. The third does the work; it and its children have
//! [`MARK`] in their environment. An interrupt, or a signal that cannot be caught, ends the first process and
//! thereby closes the pipe.

use super::loop_image::{IMAGE, URING, URING_BEFORE};
use super::tools::run;
use crate::Failure;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Environment variable of all processes of a run: its directory.
const MARK: &str = "CENOTE_BENCH_FOLDER";
/// Time limit for processes to end, and for mounts to become free.
const PATIENCE: Duration = Duration::from_secs(20);

/// The directory of this run, if this is the working process.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os(MARK).map(PathBuf::from)
}

/// Runs this program again as the working process, in a directory below `dir`, and cleans up after it.
pub(crate) fn work_below(dir: &Path) -> Result<(), Failure> {
    let folder = tempfile::Builder::new().prefix("bench-mount").tempdir_in(dir)?.keep().canonicalize()?;
    if let Ok(before) = std::fs::read_to_string(URING) {
        std::fs::write(folder.join(URING_BEFORE), before.trim())?;
    }
    let this = std::env::current_exe()?;
    let mut cleaner = Command::new(&this);
    cleaner.arg("clean-up").arg(&folder).stdin(Stdio::piped()).process_group(0);
    let mut cleaner = cleaner.spawn()?;
    let pipe = cleaner.stdin.take();
    let done = Command::new(this).args(std::env::args_os().skip(1)).env(MARK, &folder).status();
    drop(pipe);
    cleaner.wait()?;
    match done? {
        status if status.success() => Ok(()),
        status => Err(format!("the measurement ended early: {status}").into()),
    }
}

/// Waits until the first process has ended, and removes what is left.
pub(crate) fn cleaner(folder: &Path) -> Result<(), Failure> {
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    end_processes(folder);
    if let Ok(before) = std::fs::read_to_string(folder.join(URING_BEFORE)) {
        std::fs::write(URING, before)?;
    }
    let start = Instant::now();
    loop {
        let left = mounts_below(folder, &std::fs::read_to_string("/proc/self/mounts")?);
        let is_late = start.elapsed() > PATIENCE;
        for at in &left {
            let how: &[&str] = if is_late { &["--lazy"] } else { &[] };
            let _ = run(Command::new("umount").args(how).arg(at));
        }
        if left.is_empty() || is_late {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let image = folder.join(IMAGE);
    for line in run(Command::new("losetup").arg("--associated").arg(&image))?.lines() {
        if let Some((device, _)) = line.split_once(':') {
            // A device that is still in use is detached by its last user.
            let _ = run(Command::new("losetup").args(["--detach", device]));
        }
    }
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

/// Ends the processes with the mark of this directory, and waits for their end.
fn end_processes(folder: &Path) {
    let start = Instant::now();
    loop {
        let left = marked(folder);
        if left.is_empty() || start.elapsed() > PATIENCE {
            return;
        }
        for pid in left {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Processes with the mark of this directory in their environment; zombies have no environment.
fn marked(folder: &Path) -> Vec<rustix::process::Pid> {
    let mark = format!("{MARK}={}", folder.display());
    let Ok(all) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has_mark = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    pids.filter(has_mark).filter_map(rustix::process::Pid::from_raw).collect()
}

/// Mount points below a directory, innermost and latest first, from a table like `/proc/self/mounts`.
fn mounts_below(folder: &Path, table: &str) -> Vec<PathBuf> {
    let places = table.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
    let mut below: Vec<PathBuf> = places.filter(|at| at.starts_with(folder)).collect();
    below.reverse();
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_below_the_folder_is_unmounted_the_latest_first() {
        let table = "/dev/a / ext4 rw 0 0\nx /b/run/mnt fuse rw 0 0\ny /b/runner fuse rw 0 0\n\
                     z /b/run/mnt/files fuse rw 0 0\n";
        let below = mounts_below(Path::new("/b/run"), table);
        assert_eq!(below, ["/b/run/mnt/files", "/b/run/mnt"].map(PathBuf::from));
    }

    #[test]
    fn processes_of_a_run_are_known_by_their_environment() {
        let folder = Path::new("/no/such/folder");
        let mut child = Command::new("sleep").arg("60").env(MARK, folder).spawn().expect("sleep");
        // The mark is visible as soon as the new program runs.
        let start = Instant::now();
        while marked(folder).is_empty() && start.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        let found = marked(folder);
        let _ = child.kill();
        child.wait().expect("its end");
        assert_eq!(
            found.iter().map(|pid| pid.as_raw_nonzero().get()).collect::<Vec<_>>(),
            [child.id() as i32]
        );
        assert!(marked(Path::new("/no/such")).is_empty());
    }
}
