//! The end of a daemon that was killed while one of its threads waited for a mount of its own.
// Tests use `std` to make and damage files.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types, missing_docs)]

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Environment variable of the process that is killed: the mount point.
const PLACE: &str = "CENOTE_TEST_PLACE";
/// Lock file of a state folder; the daemon that holds it writes its process id there.
const LOCK: &str = "cenoted.lock";
const PATIENCE: Duration = Duration::from_secs(60);

/// A FUSE server that makes a request to its own mount and never answers it, like a daemon that was killed at
/// the wrong moment. It runs in a process of its own.
#[test]
fn server() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else { return };
    let device = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let data = std::ffi::CString::new(data).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("p", &place, "fuse.cenote", flags, data.as_c_str()).unwrap();
    let number = device_number(&place).unwrap();
    let state = place.with_file_name("state");
    std::fs::create_dir(&state).unwrap();
    let mut lock = std::fs::File::create(state.join(LOCK)).unwrap();
    lock.lock().unwrap();
    writeln!(lock, "{}", std::process::id()).unwrap();
    std::fs::write(state.join("mounts"), format!("@{number} {}\0", place.display())).unwrap();
    let mut request = vec![0; 1 << 20];
    rustix::io::read(&device, &mut request[..]).unwrap();
    // The reply to INIT: version 7.31, and the greatest length of a write.
    let mut greeting = [80_u32.to_le_bytes(), [0; 4]].concat();
    greeting.extend(&request[8..16]);
    [7_u32, 31, 0, 0, 0, 4096].iter().for_each(|word| greeting.extend(word.to_le_bytes()));
    greeting.resize(80, 0);
    rustix::io::write(&device, &greeting).unwrap();
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_cenote"));
    daemon.args(["daemon", "--release", &std::process::id().to_string()]).env("CENOTE_STATE", state);
    let mut beside = daemon.stdin(Stdio::null()).spawn().unwrap();
    std::thread::spawn(move || rustix::fs::statfs(&place));
    // Reads the request, and never answers it.
    rustix::io::read(&device, &mut request[..]).unwrap();
    println!("\nready {}", beside.id());
    beside.wait().unwrap();
}

fn device_number(place: &Path) -> Option<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.split(' ').nth(4) == place.to_str())?;
    line.split(' ').nth(2).map(str::to_owned)
}

/// Whether all threads of a process end within a time limit.
fn has_ended(child: &mut Child, limit: Duration) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// The processes of one test.
struct Served {
    folder: tempfile::TempDir,
    server: Child,
    /// The process beside the daemon.
    beside: Pid,
}

impl Served {
    fn new() -> Option<Served> {
        if !testkit::need_root() || !testkit::need_file("/dev/fuse") {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let place = place_in(&folder);
        std::fs::create_dir(&place).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "killed::server", "--nocapture"]).env(PLACE, &place).stdout(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
        let beside = lines.find_map(|line| line.strip_prefix("ready ")?.parse().ok());
        let beside = Pid::from_raw(beside.expect("it serves")).unwrap();
        Some(Served { folder, server, beside })
    }

    fn state(&self) -> PathBuf {
        place_in(&self.folder).with_file_name("state")
    }

    /// Whether the killed server ends.
    fn dies(&mut self) -> bool {
        let has_died = has_ended(&mut self.server, PATIENCE);
        if !has_died {
            // Otherwise it would never end.
            serve::mounts::Record::new(self.state().join("mounts")).end_connections(|| true).unwrap();
            self.server.wait().unwrap();
        }
        has_died
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // If the next daemon did not do so.
        let _ = rustix::mount::unmount(place_in(&self.folder), rustix::mount::UnmountFlags::DETACH);
    }
}

fn place_in(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().canonicalize().unwrap().join("mnt")
}

#[test]
fn a_daemon_that_waits_for_its_own_mount_dies_all_the_same() {
    let Some(mut served) = Served::new() else { return };
    served.server.kill().unwrap();
    assert!(served.dies(), "a thread of it waited for an answer");
}

/// The whole control group is killed.
#[test]
fn one_that_is_killed_with_the_process_beside_it_dies_when_the_next_begins() {
    let Some(mut served) = Served::new() else { return };
    kill_process(served.beside, Signal::KILL).unwrap();
    served.server.kill().unwrap();
    assert!(!has_ended(&mut served.server, Duration::from_millis(500)), "it waits for an answer");
    let next = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.args(args).env("CENOTE_STATE", served.state()).stdin(Stdio::null());
        command.env("CENOTE_SOCKET", served.state().join("socket")).output().unwrap()
    };
    let listed = next(&["zpool", "list"]);
    next(&["daemon", "--stop"]);
    assert!(served.dies(), "a thread of it waited for an answer");
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "no pools available\n", "{listed:?}");
}
