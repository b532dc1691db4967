//! A daemon and its clients, and their behaviour when either of them misbehaves or dies.
// Tests do not run for a client, so they may use the process's own streams.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
// Tests use `std` to make and damage files.
#![allow(clippy::disallowed_types, missing_docs)]

use crate::daemon_support::folder::Folder;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Size of an image.
const IMAGE: u64 = 256 << 20;

/// A folder with its own state folder, socket and images. Its commands have their own daemon, which the first
/// command that needs it starts, and which is ended at the end.
struct World {
    folder: tempfile::TempDir,
}

impl Folder for World {
    fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl World {
    fn new() -> World {
        let world = World { folder: tempfile::tempdir().expect("a folder") };
        for image in ["a", "b"] {
            let file = std::fs::File::create(world.path(image)).expect("made");
            file.set_len(IMAGE).expect("sparse");
        }
        world
    }

    fn socket(&self) -> PathBuf {
        self.path("run/socket")
    }

    /// Makes a pool whose file systems are not mounted.
    fn create(&self) {
        self.good("zpool create -O mountpoint=none tank ~/a");
    }

    /// Process id of the running daemon.
    fn pid(&self) -> rustix::process::Pid {
        let text = self.good("daemon --status");
        let pid = text.split("process ").nth(1).and_then(|rest| rest.split(',').next());
        let pid = pid.and_then(|pid| pid.parse().ok()).and_then(rustix::process::Pid::from_raw);
        pid.expect("a process")
    }

    fn kill(&self) {
        let pid = self.pid();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
        // The threads end one after the other; until the last one has ended, the kernel accepts connections.
        while std::os::unix::net::UnixStream::connect(self.socket()).is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Starts a command that runs until it is stopped; returns after its first line.
    fn going(&self, words: &str) -> Child {
        let mut child = self.command(words);
        child.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().expect("it starts");
        let mut byte = [0];
        child.stdout.as_mut().expect("a pipe").read_exact(&mut byte).expect("it writes");
        child
    }
}

/// Copies the program in a separate process: a descriptor of this process that is open for writing would be
/// inherited by programs that other tests start meanwhile, and a program that is open for writing cannot be
/// run.
fn copy_program(to: &Path) {
    let done = Command::new("cp").arg(env!("CARGO_BIN_EXE_cenote")).arg(to).status();
    assert!(done.expect("cp starts").success());
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.command("daemon --stop").output();
    }
}

fn ended(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Whether commands can be run as another user here.
fn need_setpriv() -> bool {
    testkit::need_root() && testkit::need_file("/usr/bin/setpriv")
}

/// Whether file systems can be mounted here, by root.
fn need_mounts() -> bool {
    testkit::need_root() && testkit::need_file("/dev/fuse")
}

#[test]
fn the_first_command_starts_it_and_all_find_the_same_pools() {
    let world = World::new();
    assert_eq!(world.run("daemon --status").code, Some(3));
    world.create();
    world.good("zfs create tank/a");
    world.good("zfs create tank/a/b");
    world.good("zfs snapshot -r tank@s");
    world.good("zfs destroy -r tank/a");
    assert_eq!(world.good("zfs list -H -o name -t all"), "tank\ntank@s\n");
    assert_eq!(world.good("zpool list -H -o name,health"), "tank\tONLINE\n");
    let exported = world.run("zpool export tank");
    assert_eq!(exported.code, Some(0), "{exported:?}");
    assert_eq!(world.good("zpool list -H"), "");
    assert!(world.good("zpool import -d .").contains("tank"));
    world.good("zpool import -d . tank");
    world.good("zpool destroy tank");
}

/// Each command name is a file of its own, and not a link to `cenote`.
#[test]
fn a_copy_by_another_name_starts_it() {
    let world = World::new();
    let copy = world.path("zpool");
    copy_program(&copy);
    let mut command = Command::new(&copy);
    command.arg("list").env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    command.env("CENOTE_SOCKET", world.socket()).env("CENOTE_STATE", world.path("state"));
    let output = command.output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "no pools available\n", "{output:?}");
    assert_eq!(world.run("daemon --status").code, Some(0));
}

#[test]
fn it_ends_when_asked_and_has_the_pools_again() {
    let world = World::new();
    world.create();
    world.good("zfs create tank/a");
    world.good("daemon --stop");
    assert!(!world.socket().exists());
    assert_eq!(world.run("daemon --status").err, "cenoted is not running\n");
    assert_eq!(world.good("zfs list -H -o name"), "tank\ntank/a\n");
    // Signals end the daemon in the same way.
    let pid = world.pid();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("told");
    while Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists() && world.socket().exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(world.good("zpool list -H -o name"), "tank\n");
}

#[test]
fn what_was_answered_survives_a_kill() {
    let world = World::new();
    world.create();
    for n in 0..5 {
        world.good(&format!("zfs create tank/{n}"));
        world.kill();
        let names: String = (0..=n).map(|n| format!("tank/{n}\n")).collect();
        assert_eq!(world.good("zfs list -H -o name -d 1 tank"), format!("tank\n{names}"));
    }
}

#[test]
fn mounts_come_back_after_a_kill() {
    if !need_mounts() {
        return;
    }
    let world = World::new();
    let at = world.path("mnt");
    world.good(&format!("zpool create -m {} tank ~/a", at.display()));
    let file = at.join("file");
    let mut written = std::fs::File::create(&file).expect("made");
    written.write_all(b"kept").expect("written");
    written.sync_all().expect("durable");
    world.kill();
    assert!(std::fs::read(&file).is_err(), "nobody serves it");
    drop(written);
    // Another daemon leaves the mount alone: programs that write here must not write to the directory below.
    let other = World::new();
    other.create();
    other.good("daemon --stop");
    assert!(std::fs::write(at.join("astray"), b"x").is_err(), "what is below the mount is not seen");
    world.good("zpool list");
    assert_eq!(std::fs::read(&file).expect("served again"), b"kept");
    // Listings show the present state, not that of the last transaction group.
    std::fs::write(at.join("new"), b"x").expect("written");
    assert!(world.good("ls tank:/").contains("new"));
    let ran = world.run("mkdir tank:/dir");
    assert!(ran.code == Some(1) && ran.err.contains("is mounted: change its files below"), "{ran:?}");
    world.good("daemon --stop");
    assert!(!file.exists(), "unmounted");
}

#[test]
fn mounts_of_a_daemon_that_was_killed_are_mended_by_zfs_mount() {
    const COUNT: usize = 8;
    if !need_mounts() {
        return;
    }
    let world = World::new();
    let names = ["", "/1", "/2", "/3", "/3/a", "/3/b", "/3/b/c", "/4"];
    world.good("zpool create -m ~/mnt tank ~/a");
    for name in &names[1..] {
        world.good(&format!("zfs create tank{name}"));
    }
    let places = names.map(|name| world.path(&format!("mnt{name}")).canonicalize().expect("mounted"));
    let mounted = || {
        let table = std::fs::read_to_string("/proc/self/mountinfo").expect("there");
        let at = table.lines().filter_map(|line| line.split(' ').nth(4).map(PathBuf::from));
        at.filter(|at| places.contains(at)).count()
    };
    let answer = |place: &PathBuf| rustix::fs::statfs(place).map(drop);
    for round in ["left alone", "at once"] {
        for place in &places {
            let mut file = std::fs::File::create(place.join(round)).expect("made");
            file.write_all(round.as_bytes()).and_then(|()| file.sync_all()).expect("durable");
        }
        if round == "left alone" {
            world.kill();
            for place in &places {
                while answer(place) != Err(rustix::io::Errno::NOTCONN) {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            }
            assert_eq!(mounted(), COUNT, "nobody has taken them away");
        } else {
            rustix::process::kill_process(world.pid(), rustix::process::Signal::KILL).expect("killed");
        }
        world.good("zfs mount -a");
        assert_eq!(mounted(), COUNT, "{round}: each is there once\n{}", world.log());
        for place in &places {
            let file = std::fs::read_to_string(place.join(round));
            assert_eq!(file.expect("served"), round, "{}", place.display());
        }
        assert_eq!(world.good("zfs mount").lines().count(), COUNT);
    }
    world.good("daemon --stop");
    assert_eq!(mounted(), 0);
}

#[test]
fn a_daemon_that_is_still_dying_is_waited_for() {
    let (world, other) = (World::new(), World::new());
    world.create();
    world.kill();
    // Another process holds the device, as the kernel does for a while.
    let disk = world.path("a");
    other.good(&format!("zpool import -f -d {} tank", disk.display()));
    let listing = world.command("zpool list -H -o name").stdout(Stdio::piped()).spawn().expect("it starts");
    while !world.log().contains("waiting for what it had") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    other.good("zpool export tank");
    let listed = listing.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "tank\n", "{}", world.log());
}

#[test]
fn a_daemon_that_ended_in_order_leaves_nobody_waiting() {
    let world = World::new();
    world.create();
    assert!(!std::fs::read(world.path("state/cenoted.lock")).expect("there").is_empty());
    world.good("daemon --stop");
    assert!(std::fs::read(world.path("state/cenoted.lock")).expect("there").is_empty());
}

#[test]
fn a_pool_that_has_another_guid_comes_back() {
    let world = World::new();
    world.create();
    let noted = world.path("state/zpool.cache");
    let before = std::fs::read(&noted).expect("noted");
    world.good("zpool reguid tank");
    world.kill();
    // As if the power had gone off before the file was written.
    std::fs::write(&noted, before).expect("written");
    let guid = world.good("zpool get -H -o value guid tank");
    world.kill();
    assert_eq!(world.good("zpool get -H -o value guid tank"), guid, "the file has it now");
    // Several commands change guids: the last one to record them records the present ones.
    for _ in 0..5 {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| world.good("zpool reguid tank"));
            }
        });
        let noted = std::fs::read(&noted).expect("noted");
        let guid: u64 = world.good("zpool get -H -p -o value guid tank").trim().parse().expect("a number");
        let (key, guid) = (b"pool_guid".as_slice(), guid.to_be_bytes());
        let at = noted.windows(key.len()).position(|bytes| bytes == key).expect("the key");
        let is_there =
            noted[at..at + 64].windows(8).any(|bytes| bytes == guid || bytes.iter().rev().eq(&guid));
        assert!(is_there, "the guid {guid:x?} is not noted");
    }
}

#[test]
fn a_pool_comes_back_with_devices_that_its_file_does_not_name_yet() {
    let world = World::new();
    world.create();
    let noted = world.path("state/zpool.cache");
    let before = std::fs::read(&noted).expect("noted");
    world.good("zpool add tank ~/b");
    world.good("zpool reguid tank");
    for _ in 0..2 {
        world.kill();
        std::fs::write(&noted, &before).expect("written");
        assert_eq!(world.good("zpool list -H -o name,health"), "tank\tONLINE\n", "{}", world.log());
        assert_ne!(std::fs::read(&noted).expect("noted"), before, "the file is mended");
    }
    // The cache file cannot be written: the pool is changed and is imported again.
    std::fs::create_dir(world.path("state/zpool.cache.new")).expect("made");
    world.good("zpool reguid tank");
    world.kill();
    assert_eq!(world.good("zpool list -H -o name,health"), "tank\tONLINE\n", "{}", world.log());
}

#[test]
fn a_pool_that_two_files_list_is_one() {
    let world = World::new();
    world.create();
    let noted = world.path("state/zpool.cache");
    let before = std::fs::read(&noted).expect("noted");
    world.good("zpool set cachefile=~/other tank");
    assert!(!noted.exists());
    // As if the daemon had been killed while it recorded that.
    std::fs::write(&noted, &before).expect("written");
    world.kill();
    assert_eq!(world.good("zpool list -H -o name,health"), "tank\tONLINE\n", "{}", world.log());
    world.good("zpool set cachefile= tank");
    assert!(noted.exists() && !world.path("other").exists());
    world.kill();
    assert_eq!(world.good("zpool list -H -o name,health"), "tank\tONLINE\n");
}

#[test]
fn a_pool_whose_logs_were_given_up_is_had_again_after_its_file_changes() {
    let world = World::new();
    world.good("zpool create -O mountpoint=none tank ~/a log ~/b");
    world.good("zpool export tank");
    std::fs::remove_file(world.path("b")).expect("there");
    world.good("zpool import -m -d . tank");
    world.good("zpool set cachefile=~/other tank");
    world.kill();
    assert_eq!(world.good("zpool list -H -o name,health"), "tank\tDEGRADED\n", "{}", world.log());
}

#[test]
fn clients_at_the_same_time() {
    let world = World::new();
    world.create();
    std::thread::scope(|scope| {
        for client in 0..4 {
            let world = &world;
            scope.spawn(move || {
                for n in 0..4 {
                    world.good(&format!("zfs create tank/{client}-{n}"));
                    world.good("zfs list");
                }
            });
        }
    });
    assert_eq!(world.good("zfs list -H -o name").lines().count(), 17);
}

#[test]
fn several_first_commands_start_one() {
    let world = World::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| world.good("zpool list"));
        }
    });
    assert_eq!(world.log().matches("cenoted starts").count(), 1, "{}", world.log());
}

#[test]
fn bad_messages_end_their_connection_only() {
    let world = World::new();
    world.create();
    let refused = |bytes: &[u8]| {
        let mut stream = UnixStream::connect(world.socket()).expect("it listens");
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    };
    assert!(refused(b"GET / HTTP/1.1\r\n\r\n").contains("not Cenote's protocol"));
    assert!(refused(b"CntC\xff\xff\xff\xff").contains("at most"));
    assert!(refused(b"CntC\x02\0\0\0{}").contains("malformed"));
    let word = |word: &[u8]| {
        let length = u32::try_from(word.len()).expect("short").to_le_bytes();
        refused(&[&b"CntC"[..], &length, word].concat())
    };
    // A request of an earlier version of the program.
    let request =
        br#"{"request":{"version":2,"program":"zpool","args":[],"env":[],"umask":0,"terminal":false}}"#;
    assert!(word(request).contains("version 2 of the protocol is not spoken here"));
    // Once, numbers that were decoded as words took thirty times their bytes.
    assert!(
        word(format!(r#"{{"request":{{"args":[[{}0]]}}}}"#, "0,".repeat(40_000)).as_bytes())
            .contains("at most")
    );
    // A silent client blocks no other.
    let _silent = UnixStream::connect(world.socket()).expect("it listens");
    assert_eq!(world.good("zpool list -H -o name"), "tank\n");
}

#[test]
fn there_is_one_for_a_state_folder_and_one_at_a_socket() {
    let world = World::new();
    world.good("zpool list");
    let pid = world.pid().as_raw_nonzero();
    let second = world.run("daemon");
    assert_eq!(second.code, Some(3));
    assert!(second.err.contains(&format!("already running (process {pid})")), "{second:?}");
    let output =
        world.command("daemon").env("CENOTE_STATE", world.path("other")).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("another cenoted answers at"));
}

#[test]
fn one_that_cannot_start_says_why_and_where_its_log_is() {
    let world = World::new();
    let output =
        world.command("zpool list").env("CENOTE_STATE", world.path("a/b")).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("a/b: ") && text.contains("cannot start cenoted; its log: "), "{text}");
    let silent = world.command("zpool list").env("CENOTE_NO_START", "1").output().expect("it starts");
    assert!(silent.status.code() == Some(1) && silent.stderr.is_empty());
}

#[test]
fn a_signal_to_the_client_ends_the_command() {
    let world = World::new();
    world.create();
    let child = world.going("zpool iostat tank 1");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("told");
    assert_eq!(ended(child).0, Some(130));
    // A killed client leaves no command that keeps the pool busy.
    let mut child = world.going("zpool iostat tank 1");
    child.kill().expect("killed");
    child.wait().expect("ended");
    world.good("zpool export tank");
}

#[test]
fn a_daemon_that_dies_is_told() {
    let world = World::new();
    world.create();
    let child = world.going("zpool iostat tank 1");
    world.kill();
    let (code, text) = ended(child);
    assert_eq!((code, text.as_str()), (Some(1), "connection to cenoted lost\n"));
}

#[test]
fn a_command_that_goes_on_is_told_when_the_daemon_ends() {
    let world = World::new();
    world.create();
    let child = world.going("zpool iostat tank 1");
    world.good("daemon --stop");
    let (code, text) = ended(child);
    assert_eq!((code, text.as_str()), (Some(1), "cenoted ends: the command was not waited for\n"));
}

/// A command that reads for long is not cut off, and a new one is run by the next daemon.
#[test]
fn commands_that_meet_the_end_of_a_daemon_are_answered() {
    let world = World::new();
    world.create();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (world, done) = (&world, &done);
        for _ in 0..2 {
            scope.spawn(move || {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    assert_eq!(world.good("zfs list -H -o name"), "tank\n");
                }
            });
        }
        (0..6).for_each(|_| drop(world.run("daemon --stop")));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// A descriptor that is never answered would block a thread for good.
#[test]
fn the_daemon_has_no_descriptor_of_a_client() {
    let world = World::new();
    world.create();
    let file = std::fs::File::create(world.path("out")).expect("made");
    let mut command = world.command("zpool iostat tank 1");
    let stdin = std::fs::File::open(world.path("b")).expect("there");
    let mut child = command.stdin(stdin).stdout(file).spawn().expect("it starts");
    while std::fs::metadata(world.path("out")).expect("there").len() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let fds = std::fs::read_dir(format!("/proc/{}/fd", world.pid().as_raw_nonzero())).expect("there");
    let open: Vec<PathBuf> = fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok()).collect();
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert!(!open.contains(&world.path("out")) && !open.contains(&world.path("b")), "{open:?}");
}

#[test]
fn input_and_holes_go_through_the_connection() {
    let world = World::new();
    world.create();
    let file = std::fs::File::create(world.path("sparse")).expect("made");
    file.set_len(64 << 20).expect("sparse");
    std::os::unix::fs::FileExt::write_all_at(&file, b"in the middle", 32 << 20).expect("written");
    world.good("cp sparse tank:/sparse");
    let archive = world.command("tar tank:/sparse").output().expect("it starts").stdout;
    // In a pipe they are zeros, in a file they take no space.
    let piped = world.command("cat tank:/sparse").output().expect("it starts");
    assert!(piped.status.success() && piped.stdout.len() == 64 << 20);
    let out = std::fs::File::create(world.path("copy")).expect("made");
    assert!(world.command("cat tank:/sparse").stdout(out).status().expect("it starts").success());
    let copy = std::fs::read(world.path("copy")).expect("there");
    assert!(copy == piped.stdout && copy[32 << 20..].starts_with(b"in the middle"));
    let blocks =
        std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(world.path("copy")).expect("there"));
    assert!(blocks < 8192, "{blocks}");
    world.good("rm tank:/sparse");
    let mut command = world.command("tar -x tank:/");
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("a pipe").write_all(&archive).expect("read");
    assert_eq!(ended(child), (Some(0), String::new()));
    assert_eq!(world.command("cat tank:/sparse").output().expect("it starts").stdout, copy);
}

#[test]
fn a_client_says_nothing_to_the_socket_of_somebody_else() {
    use std::os::unix::fs::{PermissionsExt, chown};
    if !need_setpriv() {
        return;
    }
    let world = World::new();
    std::fs::set_permissions(world.folder.path(), std::fs::Permissions::from_mode(0o1777)).expect("set");
    // Another user may have made the folder first.
    std::fs::create_dir(world.path("run")).expect("made");
    let listener = UnixListener::bind(world.socket()).expect("a socket");
    listener.set_nonblocking(true).expect("set");
    chown(world.path("run"), Some(65534), Some(65534)).expect("set");
    let ran = world.run("zpool list");
    assert!(ran.code == Some(1) && ran.err.contains("belongs to user 65534"), "{ran:?}");
    assert!(listener.accept().is_err(), "it is not even connected to");
    // A link to a folder that would be accepted.
    std::fs::rename(world.path("run"), world.path("real")).expect("moved");
    chown(world.path("real"), Some(0), Some(0)).expect("set");
    std::os::unix::fs::symlink(world.path("real"), world.path("run")).expect("made");
    let ran = world.run("zpool list");
    assert!(ran.code == Some(1) && ran.err.contains("is no folder"), "{ran:?}");
    std::fs::remove_file(world.path("run")).expect("removed");
    // A process that listens in a folder that every user may write to.
    let program = world.path("cenote");
    copy_program(&program);
    let as_user = |words: &str| {
        let mut command = Command::new("/usr/bin/setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&program);
        command.args(words.split_whitespace()).env_clear().stdin(Stdio::null());
        command.env("CENOTE_SOCKET", world.path("s")).env("CENOTE_STATE", world.path("state"));
        command.output().expect("it starts")
    };
    assert!(as_user("zpool list").status.success());
    let asked =
        world.command("zpool list").env("CENOTE_SOCKET", world.path("s")).output().expect("it starts");
    let text = String::from_utf8_lossy(&asked.stderr);
    assert!(asked.status.code() == Some(1) && text.contains("a socket of user 65534"), "{text}");
    assert!(as_user("daemon --stop").status.success());
}

/// The capability to lower the nice value.
const SYS_NICE: u32 = 23;

#[test]
fn a_daemon_that_a_command_starts_has_nothing_of_the_command() {
    let world = World::new();
    let script = format!(
        "exec 9>'{}'; trap '' HUP; umask 077; ulimit -S -f 200; ulimit -S -t 500; exec nice -n 5 \"$0\" zpool list",
        world.path("lock").display()
    );
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_cenote")]).env_clear().env("PATH", "/usr/bin:/bin");
    command.env("CENOTE_SOCKET", world.socket()).env("CENOTE_STATE", world.path("state"));
    command.env("SECRET", "x").env("CENOTE_KEYS", "x").stdin(Stdio::null());
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let pid = world.pid().as_raw_nonzero();
    let proc = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).expect("there");
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("there");
    let open: Vec<PathBuf> = fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok()).collect();
    assert!(!open.contains(&world.path("lock")), "{open:?}");
    let limits = proc("limits");
    for name in ["Max file size", "Max cpu time"] {
        let line = limits.lines().find(|line| line.starts_with(name)).expect("there");
        assert!(line.contains("unlimited"), "{line}");
    }
    assert!(proc("status").contains("Umask:\t0022"));
    assert!(!proc("environ").contains("SECRET") && !proc("environ").contains("CENOTE_KEYS"));
    let capabilities = proc("status")
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    if capabilities.is_some_and(|all| all >> SYS_NICE & 1 == 1) {
        let stat = proc("stat");
        let nice = stat.rsplit_once(") ").expect("a name").1.split(' ').nth(16).expect("there").to_owned();
        assert_eq!(nice, "0");
    }
    // A signal that the command ignored has its effect: after the log was moved away, a new one begins.
    std::fs::rename(world.path("state/cenoted.log"), world.path("state/moved")).expect("moved");
    let pid = rustix::process::Pid::from_raw(pid.get()).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("told");
    while !world.log().contains("the log begins again") {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    world.good("zpool list");
}

/// A version 2 control group in which a command runs that starts a daemon.
struct ControlGroup {
    /// Mount point of version 2 control groups.
    all: PathBuf,
    own: PathBuf,
}

impl ControlGroup {
    /// `None`: there are none here, which was reported.
    fn new() -> Option<ControlGroup> {
        let places = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from);
        let Some(all) = places.into_iter().find(|all| all.join("cgroup.controllers").exists()) else {
            testkit::skip("no control groups of the second kind");
            return None;
        };
        let own = all.join(format!("cenote-test-{}", std::process::id()));
        if let Err(error) = std::fs::create_dir(&own) {
            testkit::skip(&format!("no control group can be made: {error}"));
            return None;
        }
        Some(ControlGroup { all, own })
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.own);
    }
}

/// Ending the control group of the command, as the end of a session or of a container does, does not end the
/// daemon.
#[test]
fn a_daemon_that_a_command_starts_leaves_the_control_group_of_the_command() {
    if !testkit::need_root() {
        return;
    }
    let Some(unshare) = testkit::need_tool("unshare") else { return };
    let Some(group) = ControlGroup::new() else { return };
    let world = World::new();
    // If the other version is mounted beside it, it appears at its usual place.
    let script =
        "mount --bind \"$1\" /sys/fs/cgroup && echo $$ >\"/sys/fs/cgroup/$2/cgroup.procs\" || exit 99
        exec \"$0\" zpool list -H";
    let mut command = Command::new(unshare);
    command.args(["-m", "/bin/sh", "-c", script, env!("CARGO_BIN_EXE_cenote")]);
    command.arg(&group.all).arg(group.own.file_name().expect("a name")).env_clear().stdin(Stdio::null());
    command.env("CENOTE_SOCKET", world.socket()).env("CENOTE_STATE", world.path("state"));
    let output = command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output().expect("it starts");
    if output.status.code() == Some(99) {
        testkit::skip("no process can be put into a control group");
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", world.pid().as_raw_nonzero()));
    let groups = groups.expect("it runs");
    assert!(groups.lines().any(|line| line == "0::/cenoted"), "{groups}");
    std::fs::remove_dir(&group.own).expect("nobody is left in it");
    world.good("daemon --stop");
}

#[test]
fn a_command_that_has_not_begun_is_asked_for_again() {
    let world = World::new();
    std::fs::create_dir(world.path("run")).expect("made");
    // A daemon that dies when it gets the request, and one that is about to end.
    for last_words in [&b""[..], b"CntC\x08\0\0\0\"ending\""] {
        let listener = UnixListener::bind(world.socket()).expect("a socket");
        let child = world.command("zpool list -H").stderr(Stdio::piped()).spawn().expect("it starts");
        let (mut stream, _) = listener.accept().expect("asked");
        stream.read_exact(&mut [0; 8]).expect("said");
        let _ = stream.write_all(last_words);
        std::fs::remove_file(world.socket()).expect("removed");
        drop((listener, stream));
        assert_eq!(ended(child), (Some(0), String::new()), "{}", world.log());
        world.good("daemon --stop");
    }
    // A command that has begun is not started again.
    let listener = UnixListener::bind(world.socket()).expect("a socket");
    let child = world.command("zpool list -H").stderr(Stdio::piped()).spawn().expect("it starts");
    let (mut stream, _) = listener.accept().expect("asked");
    stream.write_all(b"CntC\x08\0\0\0\"begins\"").expect("said");
    drop((listener, stream));
    std::fs::remove_file(world.socket()).expect("removed");
    assert_eq!(ended(child), (Some(1), "connection to cenoted lost\n".to_owned()));
}

#[test]
fn a_reader_that_goes_away_ends_the_command() {
    let world = World::new();
    world.create();
    let mut child = world.going("zpool iostat tank 1");
    drop(child.stdout.take());
    assert_eq!(ended(child).0, Some(141));
}

/// A pipe with space for one page.
fn small_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).expect("small");
    (reader, writer)
}

#[test]
fn a_listing_that_nobody_reads_holds_no_pool() {
    let world = World::new();
    world.create();
    for name in ["a", "b", "c", "d", "e"] {
        world.good(&format!("zfs create tank/{name}"));
    }
    let listing = world.good("zfs get -rHp all tank");
    assert!(listing.len() > 8192, "it does not fit into the pipe");
    let (mut reader, writer) = small_pipe();
    let child = world.command("zfs get -rHp all tank").stdout(writer).spawn().expect("it starts");
    let mut first = [0];
    reader.read_exact(&mut first).expect("it writes");
    world.good("zpool export tank");
    let mut rest = String::new();
    reader.read_to_string(&mut rest).expect("text");
    assert_eq!(ended(child).0, Some(0));
    assert_eq!(listing.len(), 1 + rest.len());
    // A command whose reader closes the pipe instead.
    world.good("zpool import -d . tank");
    let (mut reader, writer) = small_pipe();
    let child = world.command("zfs get -rHp all tank").stdout(writer).spawn().expect("it starts");
    reader.read_exact(&mut first).expect("it writes");
    drop(reader);
    assert_eq!(ended(child).0, Some(141));
}

#[test]
fn a_pool_that_is_imported_is_mounted_by_zfs_mount() {
    let world = World::new();
    world.create();
    let ran = world.run("mount tank ~/x");
    assert!(ran.code == Some(1) && ran.err.contains("pool 'tank' is imported: 'zfs mount'"), "{ran:?}");
}

/// A small tmpfs.
struct SmallFolder(PathBuf);

impl SmallFolder {
    fn new(at: PathBuf) -> SmallFolder {
        std::fs::create_dir(&at).expect("made");
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", "size=12M", "none"]).arg(&at).status();
        assert!(done.expect("mount starts").success());
        SmallFolder(at)
    }
}

impl Drop for SmallFolder {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_pool_that_cannot_be_noted_is_not_there() {
    if !testkit::need_root() {
        return;
    }
    let world = World::new();
    let state = SmallFolder::new(world.path("state"));
    world.create();
    let mut fill = std::fs::File::create(state.0.join("fill")).expect("made");
    while fill.write_all(&[0; 4096]).is_ok() {}
    let ran = world.run("zpool create -O mountpoint=none more ~/b");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(world.good("zpool list -H -o name"), "tank\n");
    drop(fill);
    std::fs::remove_file(state.0.join("fill")).expect("removed");
    // It leaves no state that would be in the way.
    world.good("zpool create -O mountpoint=none more ~/b");
    world.good("daemon --stop");
    assert_eq!(world.good("zpool list -H -o name"), "more\ntank\n");
    world.good("daemon --stop");
}

#[test]
fn a_suspended_pool_holds_up_neither_the_end_nor_others() {
    if !testkit::need_root() {
        return;
    }
    let world = World::new();
    world.create();
    let small = SmallFolder::new(world.path("small"));
    let file = std::fs::File::create(small.0.join("disk")).expect("made");
    file.set_len(IMAGE).expect("sparse");
    drop(file);
    world.good("zpool create -O mountpoint=none -O compression=off full ~/small/disk");
    let mut noise = vec![0u8; 32 << 20];
    std::fs::File::open("/dev/urandom").expect("there").read_exact(&mut noise).expect("read");
    std::fs::write(world.path("noise"), noise).expect("written");
    // It waits for space on its device, which never comes.
    let mut child = world.command("cp noise full:/noise");
    let child = child.stderr(Stdio::piped()).spawn().expect("it starts");
    while !world.log().contains("the pool is suspended") {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(world.good("zpool list -H -o name,health").trim(), "full\tSUSPENDED\ntank\tONLINE");
    let status = world.good("zpool status full");
    for wanted in [" state: SUSPENDED\n", "faulted in response to IO failures.\n", "/ZFS-8000-HC\n"] {
        assert!(status.contains(wanted), "{status}");
    }
    world.good("zfs create tank/meanwhile");
    world.good("daemon --stop");
    assert_ne!(ended(child).0, Some(0));
    assert!(world.log().contains("given up") && world.log().contains("cenoted has ended"), "{}", world.log());
    assert!(world.good("zfs list -H -o name -r tank").contains("tank/meanwhile"));
    world.good("daemon --stop");
}

/// Waits until a process waits for a reply of a FUSE file system.
fn waits_for_fuse(child: &Child) {
    let place = format!("/proc/{}/wchan", child.id());
    while !std::fs::read_to_string(&place).expect("it is there").contains("request_wait_answer") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// A killed process is gone within a second on an idle machine.
const SOON: std::time::Duration = std::time::Duration::from_secs(5);

/// Waits up to a minute for the end of a process.
fn has_ended(child: &mut Child) -> bool {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while child.try_wait().expect("a child").is_none() {
        if std::time::Instant::now() > until {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    true
}

#[test]
fn whatever_waits_for_a_suspended_pool_can_be_ended() {
    use rustix::process::{Pid, Signal, kill_process};
    if !need_mounts() {
        return;
    }
    let world = World::new();
    let small = SmallFolder::new(world.path("small"));
    let file = std::fs::File::create(small.0.join("disk")).expect("made");
    file.set_len(IMAGE).expect("sparse");
    drop(file);
    world.good("zpool create -m ~/m -O compression=off full ~/small/disk");
    let sets = 2;
    (0..sets).for_each(|n| drop(world.good(&format!("zfs create full/{n}"))));
    std::fs::write(world.path("m/0/old"), vec![b'o'; 64 << 10]).expect("written");
    world.good("zpool sync full");
    let mut noise = vec![0u8; 32 << 20];
    std::fs::File::open("/dev/urandom").expect("there").read_exact(&mut noise).expect("read");
    std::fs::write(world.path("noise"), noise).expect("written");
    let mut copy = Command::new("cp");
    copy.arg(world.path("noise")).arg(world.path("m/noise")).stderr(Stdio::null());
    let mut copy = copy.spawn().expect("it starts");
    while !world.log().contains("the pool is suspended") {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for set in [0, sets - 1] {
        for signal in [Signal::KILL, Signal::TERM, Signal::INT] {
            let mut shell = Command::new("/bin/sh");
            // A program that handles the signal gets an error, and continues.
            let script = if signal == Signal::INT { "trap : INT; : >\"$0\" || exit 7" } else { ": >\"$0\"" };
            shell.args(["-c", script]).arg(world.path(&format!("m/{set}/new"))).stderr(Stdio::null());
            let mut shell = shell.spawn().expect("it starts");
            waits_for_fuse(&shell);
            kill_process(Pid::from_child(&shell), signal).expect("told");
            assert!(has_ended(&mut shell), "{set}: {signal:?}");
        }
    }
    // Requests that wait behind another one that waits for the pool, for a range of a file. Past the cache:
    // for pages that are being written, the kernel itself delays requests, which no signal ends.
    let old = world.path("m/0/old").display().to_string();
    let direct = |words: &[&str], flag: &str| {
        let mut dd = Command::new("dd");
        dd.args(words).args(["bs=4096", "count=1", flag]).stdout(Stdio::null()).stderr(Stdio::null());
        dd.spawn().expect("it starts")
    };
    let into = format!("of={old}");
    let mut writer = direct(&["if=/dev/zero", &into, "seek=16", "conv=notrunc"], "oflag=direct");
    waits_for_fuse(&writer);
    for signal in [Signal::KILL, Signal::INT] {
        let mut reader = direct(&[&format!("if={old}")], "iflag=direct");
        waits_for_fuse(&reader);
        kill_process(Pid::from_child(&reader), signal).expect("told");
        let told = std::time::Instant::now();
        assert!(has_ended(&mut reader), "{signal:?}");
        assert!(told.elapsed() < SOON, "{signal:?}: {:?}", told.elapsed());
        assert!(writer.try_wait().expect("a child").is_none(), "the pool is still suspended");
    }
    for words in
        ["zfs create full/x", "zpool sync full", "zfs set atime=off full/0", "zpool wait -t free full"]
    {
        let mut child = world.command(words);
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let task = format!("/proc/{}/task", world.pid().as_raw_nonzero());
        let requests = || {
            let threads = std::fs::read_dir(&task).expect("it runs").flatten();
            let names = threads.map(|thread| std::fs::read_to_string(thread.path().join("comm")));
            names.filter(|name| name.as_ref().is_ok_and(|name| name.trim() == "request")).count()
        };
        while requests() < 1 && child.try_wait().expect("a child").is_none() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&child), Signal::INT);
        assert!(has_ended(&mut child), "{words}");
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while requests() > 0 {
            assert!(std::time::Instant::now() < until, "'{words}' still runs in the daemon");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    for child in [&mut copy, &mut writer] {
        let _ = kill_process(Pid::from_child(child), Signal::INT);
        assert!(has_ended(child));
    }
    // With free space the pool continues, without the changes that no caller waits for any more.
    let grown = Command::new("mount").args(["-o", "remount,size=400M"]).arg(&small.0).status();
    assert!(grown.expect("mount starts").success());
    world.good("zpool clear full");
    assert!(!world.good("zfs list -H -o name").contains("full/x"));
    assert!(!world.path("m/0/new").exists());
    assert_eq!(
        std::fs::read(world.path("m/0/old")).expect("readable"),
        vec![b'o'; 64 << 10],
        "nothing is half done"
    );
    std::fs::write(world.path("m/0/later"), "written").expect("written");
    world.good("zpool export full");
    world.good("daemon --stop");
}

#[test]
fn a_command_whose_output_is_not_read_gives_way_when_its_pool_is_wanted() {
    let world = World::new();
    world.create();
    // More than is held for a reader.
    let file = std::fs::File::create(world.path("long")).expect("made");
    file.set_len(20 << 20).expect("sparse");
    drop(file);
    std::fs::write(world.path("long"), vec![b'x'; 20 << 20]).expect("written");
    world.good("cp long tank:/long");
    let (mut reader, writer) = small_pipe();
    let errors = Stdio::piped();
    let child = world.command("cat tank:/long").stdout(writer).stderr(errors).spawn().expect("it starts");
    let mut first = [0];
    reader.read_exact(&mut first).expect("it writes");
    world.good("zpool export tank");
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).expect("read");
    let (code, text) = ended(child);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("the pool is wanted"), "{text}");
    assert!(!rest.is_empty() && rest.len() < 20 << 20);
}

#[test]
fn a_full_log_is_put_aside() {
    const KEPT: u64 = 16 << 20;
    let world = World::new();
    let started = world.command("daemon --detach").env("CENOTE_LOG", "debug").output().expect("it starts");
    assert!(started.status.success());
    let old = world.path("state/cenoted.log.old");
    let long = "x".repeat(60_000);
    let mut lines = 0;
    while !old.exists() {
        assert!(lines < 1000, "the log has {} bytes", world.log().len());
        let _ = world.run(&format!("zpool list {long}"));
        lines += 1;
    }
    let length = |path: PathBuf| std::fs::metadata(path).expect("there").len();
    let line = 64 << 10;
    assert!((KEPT - line..KEPT + line).contains(&length(old)));
    world.good("zpool list");
    assert!((1..line * 4).contains(&length(world.path("state/cenoted.log"))), "a new one is written");
}

/// Connections of root and of another user.
#[test]
fn idle_connections_leave_room_for_others_where_descriptors_are_few() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    std::fs::set_permissions(world.folder.path(), std::fs::Permissions::from_mode(0o755)).expect("set");
    let mut daemon = Command::new("/bin/sh");
    daemon.args(["-c", "ulimit -n 200; exec \"$0\" daemon", env!("CARGO_BIN_EXE_cenote")]).env_clear();
    daemon.env("CENOTE_STATE", world.path("state")).env("CENOTE_SOCKET", world.socket());
    let daemon = daemon.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut daemon = daemon.spawn().expect("it starts");
    while UnixStream::connect(world.socket()).is_err() {
        assert!(daemon.try_wait().expect("a child").is_none(), "it ends");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    world.create();
    assert_eq!(world.pid(), rustix::process::Pid::from_child(&daemon));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.id())).expect("there");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("there");
    assert_eq!(line.split_whitespace().nth(3), Some("200"), "{line}");
    let connect = |socket: PathBuf| -> Vec<UnixStream> {
        (0..300).map(|_| UnixStream::connect(&socket).expect("taken")).collect()
    };
    // Connections without a request have made way, as many as take more than a quarter of all descriptors.
    let count_open = |connections: &[UnixStream]| {
        let is_open = |mut connection: &UnixStream| {
            connection.set_nonblocking(true).expect("set");
            connection.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        };
        connections.iter().filter(|connection| is_open(connection)).count()
    };
    let own = connect(world.socket());
    world.good("zfs create tank/own");
    assert!((1..50).contains(&count_open(&own)), "{}", count_open(&own));
    if testkit::need_root() {
        use rustix::thread::{Uid, set_thread_res_uid};
        let (nobody, socket) = (Uid::from_raw(65534), world.socket());
        // For this thread alone.
        let other = std::thread::spawn(move || {
            set_thread_res_uid(nobody, nobody, nobody).expect("done");
            connect(socket)
        });
        let other = other.join().expect("connected");
        world.good("zfs create tank/other");
        assert!((1..50).contains(&count_open(&other)), "{}", count_open(&other));
    }
    drop(own);
    world.good("daemon --stop");
    assert_eq!(daemon.wait().expect("it ends").code(), Some(0));
}

#[test]
fn memory_that_is_refused_loses_nothing_that_was_synced() {
    let world = World::new();
    world.create();
    std::fs::write(world.path("kept"), vec![7; 1 << 20]).expect("written");
    world.good("cp kept tank:/kept");
    world.good("zpool sync tank");
    let pid = world.pid();
    let status = std::fs::read_to_string(format!("/proc/{}/statm", pid.as_raw_nonzero())).expect("it runs");
    let pages: u64 = status.split(' ').next().and_then(|pages| pages.parse().ok()).expect("a number");
    let limit = Some(pages * 4096 + (4 << 20));
    let limit = rustix::process::Rlimit { current: limit, maximum: limit };
    rustix::process::prlimit(Some(pid), rustix::process::Resource::As, limit).expect("set");
    let file = std::fs::File::create(world.path("more")).expect("made");
    file.set_len(64 << 20).expect("sparse");
    drop(file);
    // It succeeded, or was refused with a reason.
    let ran = world.run("cp more tank:/more");
    assert!(ran.code == Some(0) || !ran.err.is_empty(), "{ran:?}");
    // By this daemon or the next.
    let _ = world.command("daemon --stop").output();
    assert_eq!(world.good("zpool list -H -o name"), "tank\n");
    let read = world.command("cat tank:/kept").output().expect("it starts");
    assert!(read.status.success() && read.stdout == vec![7; 1 << 20]);
}

#[test]
fn a_daemon_that_cannot_be_asked_is_not_said_to_be_gone() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    world.create();
    let folder = world.path("run");
    let set = |mode| {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).expect("set");
    };
    set(0o777);
    for words in ["daemon --stop", "daemon --status"] {
        let ran = world.run(words);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.contains("can be written by others"), "{ran:?}");
    }
    set(0o700);
    world.good("daemon --status");
}

#[test]
fn the_service_managers_socket_takes_over_from_a_daemon_that_a_command_has_started() {
    let world = World::new();
    world.create();
    let before = world.pid();
    std::fs::remove_file(world.socket()).expect("there");
    let listener = UnixListener::bind(world.socket()).expect("a socket");
    let script = "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" daemon";
    let mut child = Command::new("/bin/sh");
    child.args(["-c", script, env!("CARGO_BIN_EXE_cenote")]).env_clear();
    child.env("CENOTE_STATE", world.path("state")).env("CENOTE_SOCKET", world.socket());
    let mut child = child.stdin(OwnedFd::from(listener)).stderr(Stdio::null()).spawn().expect("it starts");
    assert_eq!(world.good("zpool list -H -o name"), "tank\n");
    assert_eq!(world.pid(), rustix::process::Pid::from_child(&child));
    assert_ne!(world.pid(), before);
    world.good("daemon --stop");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_pool_in_a_file_of_another_pool_is_closed_first() {
    if !need_mounts() {
        return;
    }
    let world = World::new();
    world.good("zpool create -m ~/mnt outer ~/a");
    let file = std::fs::File::create(world.path("mnt/disk")).expect("made");
    file.set_len(100 << 20).expect("sparse");
    drop(file);
    world.good("zpool create -m ~/inner inner ~/mnt/disk");
    std::fs::write(world.path("inner/file"), b"kept").expect("written");
    world.good("daemon --stop");
    assert!(!world.log().contains("ERROR"), "{}", world.log());
    // They are imported in the order in which they depend on each other, also after a crash.
    for _ in 0..2 {
        assert_eq!(world.good("zpool list -H -o name,health"), "inner\tONLINE\nouter\tONLINE\n");
        assert_eq!(std::fs::read(world.path("inner/file")).expect("served"), b"kept", "{}", world.log());
        world.kill();
    }
    world.good("zpool list");
    world.good("daemon --stop");
}

#[test]
fn streams_and_the_working_folder_are_the_clients() {
    let world = World::new();
    world.create();
    world.good("zpool export tank");
    let inner = world.path("inner");
    std::fs::create_dir(&inner).expect("made");
    std::fs::rename(world.path("a"), inner.join("disk")).expect("moved");
    let output = world.command("zpool import -d . tank").current_dir(&inner).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let file = std::fs::File::create(world.path("out")).expect("made");
    assert!(world.command("zpool list -H -o name").stdout(file).status().expect("it starts").success());
    assert_eq!(std::fs::read_to_string(world.path("out")).expect("written"), "tank\n");
    // The daemon does not keep that working folder.
    let at = std::fs::read_link(format!("/proc/{}/cwd", world.pid().as_raw_nonzero())).expect("a folder");
    assert_eq!(at, Path::new("/"));
}

/// The terminal is that of the client.
#[test]
fn colours_are_shown_at_a_terminal_to_who_asks_for_them() {
    let Some(script) = testkit::need_tool("script") else { return };
    let world = World::new();
    world.good("zpool create -O mountpoint=none tank mirror ~/a ~/b");
    world.good("zpool offline tank ~/b");
    let status = |name: &str, value: &str| {
        let mut command = Command::new(&script);
        command.args(["-qec", "\"$CENOTE\" zpool status tank", "/dev/null"]).env_clear();
        command.env("PATH", "/usr/bin:/bin").env("SHELL", "/bin/sh").env("TERM", "xterm").env(name, value);
        command.env("CENOTE_SOCKET", world.socket()).env("CENOTE_STATE", world.path("state"));
        command.env("CENOTE", env!("CARGO_BIN_EXE_cenote")).stdin(Stdio::null());
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).replace('\r', "")
    };
    let plain = world.good("zpool status tank");
    assert_eq!(status("NO_COLOR", ""), plain);
    let painted = status("ZFS_COLOR", "1");
    assert!(painted.contains("\x1b[33m state: DEGRADED\x1b[0m\n"), "{painted}");
    assert_eq!(painted.replace("\x1b[33m", "").replace("\x1b[0m", ""), plain);
    // Without a terminal there are no colours.
    let piped = world.command("zpool status tank").env("ZFS_COLOR", "1").env("TERM", "xterm").output();
    assert_eq!(String::from_utf8_lossy(&piped.expect("it starts").stdout), plain);
}

#[test]
fn files_of_an_imported_pool_are_changed_in_the_daemon() {
    let world = World::new();
    world.create();
    world.good("zfs create tank/fs");
    world.good("mkdir tank/fs:/dir");
    let output = world.command("cp b tank/fs:/dir/b").output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    assert!(world.good("ls -l tank/fs:/dir").contains(&IMAGE.to_string()));
    world.good("rm -r tank/fs:/dir");
    assert_eq!(world.good("ls tank/fs:/"), "");
    assert_eq!(world.good("zpool list -H -o health tank"), "ONLINE\n");
}

/// A world with a pool, whose program every user may run; `None`: commands cannot be run as another user
/// here.
fn world_for_others() -> Option<World> {
    use std::os::unix::fs::PermissionsExt;
    if !need_setpriv() {
        return None;
    }
    let world = World::new();
    world.create();
    // Other users may not be able to enter the folder of test programs.
    copy_program(&world.path("cenote"));
    std::fs::set_permissions(world.folder.path(), std::fs::Permissions::from_mode(0o755)).expect("set");
    Some(world)
}

/// A command that user `nobody` runs, for the daemon of that world.
fn as_nobody(world: &World, words: &str) -> Command {
    let mut command = Command::new("/usr/bin/setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(world.path("cenote"));
    command.args(words.split_whitespace()).env_clear().env("CENOTE_SOCKET", world.socket());
    command.stdin(Stdio::null());
    command
}

#[test]
fn other_users_see_and_do_not_change() {
    use std::os::unix::fs::PermissionsExt;
    let Some(world) = world_for_others() else { return };
    let scripts = world.path("scripts");
    std::fs::create_dir(&scripts).expect("made");
    std::fs::write(scripts.join("who"), "#!/bin/sh\necho who=u$(/usr/bin/id -u)\n").expect("written");
    std::fs::set_permissions(scripts.join("who"), std::fs::Permissions::from_mode(0o755)).expect("set");
    let nobody = |words: &str| {
        let mut command = as_nobody(&world, words);
        command.env("CENOTE_KEYS", "tank=/etc/shadow");
        command.env("ZPOOL_SCRIPTS_PATH", &scripts);
        let output = command.output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), text)
    };
    assert_eq!(nobody("zpool list -H -o name"), (Some(0), "tank\n".to_owned(), String::new()));
    assert_eq!(nobody("zfs list -H -o name").1, "tank\n");
    for words in ["zpool export tank", "zpool create x b", "zpool import", "zfs load-key tank", "cat tank:/x"]
    {
        let (code, _, text) = nobody(words);
        assert!(code == Some(1) && text.contains("permission denied"), "{words}: {text}");
    }
    let (code, _, text) = nobody("zfs create tank/a");
    assert!(code == Some(1) && text.contains("permission denied"), "{text}");
    // Scripts run as the calling user, in the client's process.
    for words in ["zpool status -c who tank", "zpool iostat -c who tank"] {
        let (code, text, errors) = nobody(words);
        assert!(code == Some(0) && text.contains("u65534"), "{words}: {text}{errors}");
    }
    assert_eq!(nobody("zpool status -c ../who tank").0, Some(1));
    assert_eq!(nobody("zpool status -c none tank").2, "'none' is not in the search path of scripts\n");
    assert_eq!(nobody("daemon --stop").2, "cenoted: permission denied\n");
    // While they run, no thread of the daemon waits for their output.
    std::fs::write(scripts.join("who"), "#!/bin/sh\necho n=$(ls -l /proc/$PPID/fd | grep -c socket)\n")
        .expect("written");
    let (_, text, _) = nobody("zpool status -c who tank");
    assert!(text.lines().any(|line| line.contains("ONLINE") && line.trim_end().ends_with(" 0")), "{text}");
    world.good("zpool list tank");
}

#[test]
fn rights_do_not_depend_on_how_a_command_is_written() {
    let Some(world) = world_for_others() else { return };
    let nobody = |words: &str| {
        let words = words.replace("~", world.folder.path().to_str().expect("text"));
        let output =
            as_nobody(&world, &words).env("CENOTE_SCRIPT_COLUMNS", "[]").output().expect("it starts");
        assert_eq!(output.stdout, b"", "{words}");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let denied = (Some(1), "cannot clear events: permission denied\n".to_owned());
    assert_eq!(nobody("zpool events -c"), denied);
    assert_eq!(nobody("zpool events -cc"), denied);
    // Whether files of another user exist is not revealed.
    std::fs::create_dir(world.path("secret")).expect("made");
    std::fs::write(world.path("secret/there"), "x").expect("written");
    std::fs::set_permissions(world.path("secret"), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .expect("set");
    for verb in ["zfs list", "zfs get all", "zfs userspace", "fsstat"] {
        let said = |name: &str| {
            let (code, text) = nobody(&format!("{verb} ~/secret/{name}"));
            (code, text.replace(name, "NAME"))
        };
        assert_eq!(said("there"), said("nothere"), "{verb}");
        assert_eq!(said("there").0, Some(1), "{verb}");
    }
    // The user must have access to both sides of a comparison.
    for name in ["one", "two"] {
        world.good(&format!("zfs create -o mountpoint=none tank/{name}"));
    }
    world.good("zfs snapshot -r tank@s");
    world.good("zfs allow -u 65534 diff tank/one");
    assert_eq!(nobody("zfs diff tank/one@s tank/one").0, Some(0));
    let (code, text) = nobody("zfs diff tank/one@s tank/two");
    assert!(code == Some(1) && text.contains("permission denied"), "{text}");
    let (code, text) = nobody("zfs mount --on /mnt tank/one");
    assert!(code == Some(1) && text.contains("permission denied"), "{text}");
}

#[test]
fn limits_bind_users_who_may_not_change_them_as_by_openzfs() {
    let Some(world) = world_for_others() else { return };
    let user = |words: &str| {
        let output = as_nobody(&world, words).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).trim_end().to_owned())
    };
    let may = |words: &str| assert_eq!(user(words), (Some(0), String::new()), "{words}");
    let may_not = |words: &str, what: &str| {
        assert_eq!(user(words), (Some(1), format!("cannot {what}: out of space")), "{words}");
    };
    let counts = |name: &str| {
        let text = world.good(&format!("zfs get -H -o value filesystem_count,snapshot_count {name}"));
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let grant = |prop: &str, name: &str| drop(world.good(&format!("zfs allow -l -u 65534 {prop} {name}")));
    for name in ["t", "w"] {
        world.good(&format!("zfs create -o mountpoint=none tank/{name}"));
        let all = "create,mount,rename,clone,snapshot,promote,canmount";
        world.good(&format!("zfs allow -l -d -u 65534 {all} tank/{name}"));
    }

    world.good("zfs set filesystem_limit=1 tank/t");
    may("zfs create -o canmount=off tank/t/one");
    may_not("zfs create -o canmount=off tank/t/more", "create 'tank/t/more'");
    world.good("zfs snapshot tank/t/one@s");
    may_not("zfs clone -o canmount=off tank/t/one@s tank/t/clone", "create 'tank/t/clone'");
    grant("filesystem_limit", "tank/t");
    may("zfs create -o canmount=off tank/t/more");
    assert_eq!(
        (counts("tank/t"), counts("tank/w"), counts("tank")),
        ("2 1".into(), "none none".into(), "none none".into())
    );

    world.good("zfs set filesystem_limit=0 tank/w");
    may_not("zfs rename tank/t/one tank/w/one", "rename 'tank/t/one'");
    grant("filesystem_limit", "tank/w");
    world.good("zfs set snapshot_limit=0 tank/w");
    may_not("zfs rename tank/t/one tank/w/one", "rename 'tank/t/one'");
    world.good("zfs rename tank/t/one tank/w/one");
    assert_eq!((counts("tank/t"), counts("tank/w")), ("1 0".into(), "1 1".into()));
    may_not("zfs snapshot tank/w@x", "create snapshot 'tank/w'");
    grant("snapshot_limit", "tank/w");
    may("zfs snapshot tank/w@x");

    // A promotion adds snapshots only below the nearest directory above both.
    world.good("zfs set snapshot_limit=2 tank/w");
    world.good("zfs unallow -u 65534 snapshot_limit tank/w");
    world.good("zfs create tank/w/b");
    world.good("zfs clone tank/w/one@s tank/w/b/clone");
    may("zfs promote tank/w/b/clone");
    may("zfs promote tank/w/one");
    world.good("zfs set snapshot_limit=0 tank/w/b");
    may_not("zfs promote tank/w/b/clone", "promote 'tank/w/b/clone'");
    grant("snapshot_limit", "tank/w/b");
    may("zfs promote tank/w/b/clone");
    assert_eq!(
        (counts("tank/w"), counts("tank/w/b"), counts("tank/w/one")),
        ("3 2".into(), "1 1".into(), "0 0".into())
    );
    world.good("zfs create tank/new");
    assert_eq!(counts("tank/new"), "0 0", "while the feature is active everything new counts");
}

/// A request of another user is refused before any preparation.
#[test]
fn what_others_may_not_do_leaves_mounts_as_they_are() {
    let Some(world) = world_for_others() else { return };
    if !testkit::need_file("/dev/fuse") {
        return;
    }
    world.good("zfs create -o mountpoint=~/fs -u tank/fs");
    world.good("zfs mount -o ro,nosuid,nodev,noexec tank/fs");
    let line = || {
        let table = std::fs::read_to_string("/proc/self/mountinfo").expect("there");
        let at = world.path("fs").canonicalize().expect("there");
        let line = table.lines().find(|line| line.split(' ').nth(4) == at.to_str()).expect("mounted");
        line.split(' ').nth(5).map(str::to_owned)
    };
    let before = line();
    for words in ["set atime=off tank", "inherit atime tank/fs", "set readonly=off tank/fs"] {
        let denied = as_nobody(&world, &format!("zfs {words}")).output().expect("it starts");
        assert!(String::from_utf8_lossy(&denied.stderr).ends_with("permission denied\n"), "{denied:?}");
        assert_eq!(line(), before, "{words}");
    }
    world.good("zpool set delegation=off tank");
    for words in ["set readonly=off setuid=on tank/fs", "inherit readonly tank/fs"] {
        let denied = as_nobody(&world, &format!("zfs {words}")).output().expect("it starts");
        let text = String::from_utf8_lossy(&denied.stderr);
        assert!(text.ends_with("delegated administration is disabled on pool\n"), "{words}: {text}");
        assert_eq!(line(), before, "{words}");
    }
    // Root's own that is not done, and one about something else.
    assert_ne!(world.run("zfs set atime=off quota=1 tank/fs").code, Some(0));
    world.good("zfs set recordsize=16k tank/fs");
    assert_eq!(
        line().map(|words| words.replace(",noatime", "")),
        before.map(|words| words.replace(",noatime", ""))
    );
}

/// Whoever could hand on `allow` could do so without end, and root alone revokes what others have.
#[test]
fn allow_is_handed_on_by_root_alone() {
    let Some(world) = world_for_others() else { return };
    world.good("zfs create -o mountpoint=none tank/a");
    world.good("zfs allow -u 65534 allow,snapshot tank/a");
    let code = |words: &str| {
        let output = as_nobody(&world, words).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(code("zfs allow -e snapshot tank/a"), (Some(0), String::new()));
    let denied = (Some(1), "cannot set permissions on 'tank/a': permission denied\n".to_owned());
    for grant in ["-e allow", "-u 1234 allow,snapshot", "-c allow", "-s @all allow"] {
        assert_eq!(code(&format!("zfs allow {grant} tank/a")), denied, "{grant}");
    }
    let granted = world.good("zfs allow tank/a");
    assert!(granted.contains("everyone snapshot") && !granted.contains("1234"), "{granted}");
}

/// A permission counts where it was granted, for all that a command changes, and comes before holds and users.
#[test]
fn permissions_are_asked_for_at_each_dataset_that_changes() {
    let Some(world) = world_for_others() else { return };
    let denied = |words: &str, text: &str| {
        let output = as_nobody(&world, words).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.as_str()), (Some(1), text), "{words}");
    };
    for name in ["a", "a/b", "origin"] {
        world.good(&format!("zfs create -o mountpoint=none -o compression=gzip tank/{name}"));
    }
    world.good("zfs allow -l -u 65534 compression,rollback,promote tank/a");
    denied(
        "zfs inherit -r compression tank/a",
        "cannot inherit compression for 'tank/a': permission denied\n",
    );
    assert_eq!(world.good("zfs get -H -o value compression tank/a/b"), "gzip\n");

    world.good("zfs snapshot tank/a@1");
    world.good("zfs snapshot tank/a@2");
    world.good("zfs bookmark tank/a@2 tank/a#mark");
    world.good("zfs destroy tank/a@2");
    denied("zfs rollback -r tank/a@1", "cannot rollback 'tank/a': permission denied\n");
    denied("zfs send tank/a@1", "warning: cannot send 'tank/a@1': permission denied\n");
    world.good("zfs allow -l -u 65534 send tank/a");
    let sent = as_nobody(&world, "zfs send tank/a@1").output().expect("it starts");
    assert!(sent.status.success() && sent.stdout.len() > 1000, "{}", String::from_utf8_lossy(&sent.stderr));
    assert_eq!(world.good("zfs list -H -o name -t bookmark"), "tank/a#mark\n");

    world.good("zfs hold kept tank/a@1");
    denied("zfs destroy tank/a@1", "cannot destroy snapshots: permission denied\n");

    world.good("zfs snapshot tank/origin@1");
    world.good("zfs clone -o mountpoint=none tank/origin@1 tank/clone");
    for name in ["tank/origin", "tank/clone"] {
        world.good(&format!("zfs allow -l -u 65534 promote {name}"));
    }
    denied("zfs promote tank/clone", "cannot promote 'tank/clone': permission denied\n");

    // Nothing to set is no change, and no line in the history.
    let before = world.good("zpool history tank");
    as_nobody(&world, "zfs set tank").output().expect("it starts");
    assert_eq!(world.good("zpool history tank"), before);

    // What a request of another user names is bounded.
    let many = vec!["tank"; 2000].join(" ");
    let refused = as_nobody(&world, &format!("zfs get -r all {many}")).output().expect("it starts");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(text.contains("at most 1024 are allowed"), "{text}");
}

/// A verb by its name, with a request and an answer in JSON, through the daemon's socket.
#[test]
fn verbs_are_called_by_name() {
    let Some(world) = world_for_others() else { return };
    let call = |name: &str, request: &str| {
        let mut command = world.command("verb");
        let output = command.args([name, request]).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, text) = call("zfs create", r#"{"name":"tank/a","kind":"Filesystem"}"#);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with(r#"{"answer":"#) && text.ends_with("\"warnings\":[]}\n"), "{text}");
    let (code, text) = call("zfs snapshot", r#"{"names":["tank/a@1"]}"#);
    assert_eq!(
        (code, text.as_str()),
        (Some(0), "{\"answer\":{\"snapshots\":[\"tank/a@1\"]},\"warnings\":[]}\n")
    );
    let (code, text) = call("zfs snapshot", r#"{"names":["tank/a@1"]}"#);
    assert_eq!(code, Some(1));
    for fact in [r#""refusal":{"Exists":{"taken":["tank/a@1"],"wanted":1}}"#, r#""code":"exists""#] {
        assert!(text.contains(fact), "{text}");
    }
    assert_eq!(call("zfs destroy", r#"{"name":"tank/a","dryrun":true}"#), (Some(2), String::new()));
    assert_eq!(call("zfs nosuch", "{}"), (Some(2), String::new()));
    assert_eq!(world.good("zfs list -H -o name -t all"), "tank\ntank/a\ntank/a@1\n");
    assert!(world.good("zpool history tank").contains("cenote verb 'zfs snapshot'"));
    assert!(world.good("verb").lines().any(|line| line == "zpool scrub"));
    let other = as_nobody(&world, "verb").output().expect("it starts");
    assert_eq!(other.status.code(), Some(1));
}

#[test]
fn a_rollback_that_is_refused_loses_nothing_that_programs_write_meanwhile() {
    use std::os::unix::fs::FileExt;
    let Some(world) = world_for_others() else { return };
    if !testkit::need_file("/dev/fuse") {
        return;
    }
    world.good("zfs create -o mountpoint=~/fs tank/fs");
    for name in ["old", "new", "last"] {
        world.good(&format!("zfs snapshot tank/fs@{name}"));
    }
    world.good("zfs hold kept tank/fs@new");
    // The file is open and has no name: it would be lost if its file system were closed.
    let path = world.path("fs/file");
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).expect("made");
    std::fs::remove_file(path).expect("removed");
    file.write_all_at(b"text", 0).expect("written");
    for _ in 0..4 {
        let denied = as_nobody(&world, "zfs rollback tank/fs@last").output().expect("it starts");
        assert!(String::from_utf8_lossy(&denied.stderr).ends_with("permission denied\n"), "{denied:?}");
        let held = world.run("zfs rollback -r tank/fs@old");
        assert_eq!(held.err, "cannot destroy 'tank/fs@new': dataset is busy\n");
        let mut text = [0; 4];
        file.read_exact_at(&mut text, 0).expect("it is there");
        assert_eq!(&text, b"text");
        file.sync_all().expect("it is there");
    }
}

#[test]
fn one_of_a_user_answers_that_user_only() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    if !need_setpriv() {
        return;
    }
    let world = World::new();
    std::fs::set_permissions(world.folder.path(), std::fs::Permissions::from_mode(0o1777)).expect("set");
    let program = world.path("cenote");
    copy_program(&program);
    let as_user = |uid: u32, words: &str| {
        let mut command = Command::new("/usr/bin/setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".to_owned()]);
        command.arg("--").arg(&program).args(words.split_whitespace()).env_clear().stdin(Stdio::null());
        command.env("CENOTE_SOCKET", world.socket()).env("CENOTE_STATE", world.path("state"));
        command.current_dir(world.folder.path());
        let output = command.output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let image = world.path("b");
    std::fs::set_permissions(&image, std::fs::Permissions::from_mode(0o666)).expect("set");
    let made = as_user(65534, &format!("zpool create -O mountpoint=none mine {}", image.display()));
    assert_eq!(made.0, Some(0), "{made:?}");
    let folder = std::fs::metadata(world.path("run")).expect("made");
    assert_eq!((folder.uid(), folder.mode() & 0o777), (65534, 0o700));
    let other = as_user(65533, "zpool list");
    assert!(other.0 == Some(1) && other.1.contains("cannot connect to cenoted"), "{other:?}");
    assert_eq!(as_user(65534, "daemon --stop").0, Some(0));
}

#[test]
fn a_user_makes_mounts_and_destroys_a_pool() {
    use std::os::unix::fs::PermissionsExt;
    if !need_setpriv() || !need_mounts() || !testkit::need_file("/usr/bin/fusermount3") {
        return;
    }
    let world = World::new();
    std::fs::set_permissions(world.folder.path(), std::fs::Permissions::from_mode(0o1777)).expect("set");
    let program = world.path("cenote");
    copy_program(&program);
    let run = |uid: u32, program: &Path, words: &str| {
        let mut command = Command::new("/usr/bin/setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".to_owned()]);
        let words = words.replace("~", world.folder.path().to_str().expect("text"));
        command.arg("--").arg(program).args(words.split_whitespace()).env_clear().stdin(Stdio::null());
        command.env("PATH", "/usr/bin:/bin").env("XDG_RUNTIME_DIR", world.path("user/run"));
        command.env("XDG_STATE_HOME", world.path("user/state")).current_dir(world.folder.path());
        let output = command.output().expect("it starts");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code(), text)
    };
    let good = |words: &str| {
        let (code, text) = run(65534, &program, words);
        assert_eq!(code, Some(0), "{words}: {text}");
        text
    };
    let shell = |words: &str| run(65534, Path::new("/usr/bin/env"), words);
    assert_eq!(shell("mkdir -p ~/user/run ~/user/state").0, Some(0));
    assert_eq!(shell("truncate -s 256M ~/user/disk").0, Some(0));
    let said = good("zpool create -m /srv/mine mine ~/user/disk");
    assert!(
        said.starts_with("mine is mounted on ") && said.ends_with(": only root mounts on /srv/mine\n"),
        "{said}"
    );
    good("zfs create mine/a");
    let mounted = good("zfs mount");
    let at = mounted.lines().find_map(|line| line.strip_prefix("mine/a ")).expect("mounted").trim();
    assert!(at.starts_with(world.path("user/state/cenote/mnt").to_str().expect("text")), "{at}");
    assert_eq!(shell(&format!("cp /etc/hostname {at}/file")), (Some(0), String::new()));
    let said = good("zfs create -o mountpoint=/srv/b mine/b");
    assert!(
        said.starts_with("mine/b is mounted on ") && said.ends_with(": only root mounts on /srv/b\n"),
        "{said}"
    );
    let said = good("zfs set mountpoint=/srv/c mine/b");
    assert!(
        said.starts_with("mine/b is mounted on ") && said.ends_with(": only root mounts on /srv/c\n"),
        "{said}"
    );
    assert_eq!(good("zfs set -u mountpoint=/srv/d mine/b"), "");
    good("zfs snapshot mine/a@s");
    assert_eq!(shell(&format!("rm {at}/file")).0, Some(0));
    good("zfs rollback mine/a@s");
    assert_eq!(shell(&format!("cmp /etc/hostname {at}/file")), (Some(0), String::new()));
    // The daemon serves that user only, and only root may end it besides.
    let other = run(65533, &program, "zpool list");
    assert!(other.0 == Some(1) && other.1.contains("cannot connect to cenoted"), "{other:?}");
    assert_ne!(run(65533, Path::new("/usr/bin/env"), &format!("cat {at}/file")).0, Some(0));
    good("daemon --stop");
    assert!(good("zfs mount").contains("mine/a"), "it is there again");
    good("zfs unmount mine/a");
    good("zpool destroy mine");
    good("daemon --stop");
}

#[test]
fn a_service_manager_hands_over_the_socket_and_is_told() {
    let world = World::new();
    let listener = UnixListener::bind(world.path("handed")).expect("a socket");
    let manager = UnixDatagram::bind(world.path("notify")).expect("a socket");
    let mut child = Command::new("/bin/sh");
    let script = "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" daemon";
    child.args(["-c", script, env!("CARGO_BIN_EXE_cenote")]).env_clear();
    child.env("CENOTE_STATE", world.path("state")).env("NOTIFY_SOCKET", world.path("notify"));
    child.env("CENOTE_SOCKET", world.socket()).env("WATCHDOG_USEC", "30000000");
    let mut child = child.stdin(OwnedFd::from(listener)).stderr(Stdio::null()).spawn().expect("it starts");
    let mut words = Vec::new();
    let mut hear = |until: &str| {
        while !words.iter().any(|word| word == until) {
            let mut text = [0; 64];
            let length = manager.recv(&mut text).expect("told");
            words.push(String::from_utf8_lossy(&text[..length]).into_owned());
        }
    };
    hear("READY=1");
    hear("WATCHDOG=1");
    let list = world.command("zpool list").env("CENOTE_SOCKET", world.path("handed")).output();
    assert!(list.expect("it starts").status.success());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("told");
    hear("STOPPING=1");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert!(world.path("handed").exists(), "the socket is the manager's");
}
