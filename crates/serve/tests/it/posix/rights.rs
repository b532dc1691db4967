//! Set-id bits, capabilities and flags of files when another user changes the file.

use super::mounted_pool::MountedPool;
use super::run::Runner;
use crate::common::transports::transports;
use admin::PoolVerbs;
use cenote_serve::export::{Caller, Kind, NewNode};
use cenote_serve::fuse::{Service, Transport};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `struct vfs_cap_data` with a capability for programs.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Makes a file like a program of root's that a group may write: with set-id bits, a capability, or both.
fn lend(run: &mut Runner, at: &Path, mode: &str, capable: bool) {
    assert_eq!(run.run(&format!("chmod f {mode}")), "ok");
    if capable {
        rustix::fs::setxattr(at.join("f"), "security.capability", &CAPABILITY, XattrFlags::empty()).unwrap();
    }
}

/// The mode of a program, and whether it gets a capability.
fn lent(at: &Path) -> (u32, bool) {
    let mode = std::fs::metadata(at.join("f")).unwrap().mode() & 0o7777;
    let mut value = [0; 64];
    (mode, rustix::fs::getxattr(at.join("f"), "security.capability", &mut value[..]).is_ok())
}

/// The transports of this kernel, each with and without the write-back cache.
fn everywhere() -> impl Iterator<Item = (Transport, bool)> {
    transports().into_iter().flat_map(|transport| [(transport, false), (transport, true)])
}

#[test]
fn what_a_file_lends_goes_before_somebody_else_writes() {
    if !rustix::process::geteuid().is_root() {
        testkit::skip("only root can act as several users");
        return;
    }
    const WAYS: [(&str, &[&str]); 7] = [
        ("w", &["b: pwrite x 0 abc"]),
        ("w+dsync", &["b: pwrite x 0 abc"]),
        ("w+sync", &["b: pwrite x 0 abc"]),
        ("w+direct", &["b: pwrite x 0 a 4096"]),
        ("w", &["b: ftruncate x 100"]),
        ("w", &["b: fallocate x none 0 65536"]),
        ("w", &["open y g r", "b: copy y 0 x 0 4096"]),
    ];
    for (transport, writeback) in everywhere() {
        let Some(home) = MountedPool::over(transport, 512, &[("xattr", 2)], writeback) else { return };
        let at = home.at();
        std::fs::write(at.join("g"), [7; 4096]).unwrap();
        let mut run = Runner::new(&at);
        for line in ["make f 664", "chown f 0 65510"] {
            assert_eq!(run.run(line), "ok");
        }
        std::fs::write(at.join("f"), [1; 8192]).unwrap();
        for capable in [false, true] {
            // Opened before it has the bits, and after.
            for is_early in [false, true] {
                for (flags, calls) in WAYS {
                    let open = format!("b: open x f {flags}");
                    let early = is_early.then(|| run.run(&open));
                    lend(&mut run, &at, "6775", capable);
                    assert_eq!(lent(&at), (0o6775, capable));
                    assert_eq!(early.unwrap_or_else(|| run.run(&open)), "ok");
                    let done: Vec<String> = calls.iter().map(|line| run.run(line)).collect();
                    let was = lent(&at);
                    // Past its cache the kernel would go on using cached set-id bits: such a write is
                    // refused. With the write-back cache, not all writes that ask for it bypass the cache.
                    let is_refused = done[0].ends_with(&format!(" {}", Errno::TXTBSY.raw_os_error()));
                    let left = if is_refused { (0o6775, capable) } else { (0o775, false) };
                    assert_eq!(was, left, "{transport:?}, {flags} {calls:?}: {done:?}, early {is_early}");
                    if !writeback {
                        assert_eq!(
                            is_refused,
                            is_early && flags.contains('+'),
                            "{flags} {calls:?}: {done:?}"
                        );
                    }
                    run.run("chmod f 664");
                    // The attribute exists only if the write was refused.
                    let _ = rustix::fs::removexattr(at.join("f"), "security.capability");
                }
            }
        }
        drop(run);
        home.judge();
    }
}

/// [`CAPABILITY`] in the form that `/proc` shows.
const CAPABLE: u64 = 0x80;
/// Id of the user that runs programs, who owns no files.
const SOMEBODY: u32 = 65_503;
const PAGE: usize = 4096;

/// Runs a copy of `cat` as a user without rights; returns the effective user id and capabilities of the
/// process.
fn run_as_somebody(program: &Path) -> (u32, u64) {
    let output = loop {
        let mut cat = Command::new(program);
        cat.arg0("cat").arg("/proc/self/status").uid(SOMEBODY).gid(SOMEBODY).current_dir("/");
        match cat.output() {
            // Processes that other tests start hold this process's descriptors for a moment.
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            ran => break ran.unwrap(),
        }
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    let words = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    (words("Uid:")[1].parse().unwrap(), u64::from_str_radix(&words("CapEff:")[0], 16).unwrap())
}

/// The bits and the capability in the kernel's cache count, whatever the server reports: so the program is
/// run.
#[test]
fn a_program_that_somebody_else_has_written_to_runs_without_what_its_file_lent() {
    if !rustix::process::geteuid().is_root() {
        return testkit::skip("only root can act as several users");
    }
    if status_of_this_process("NoNewPrivs:") != "0" {
        return testkit::skip("no file lends anything to programs of this process");
    }
    let Some(cat) = testkit::need_tool("cat") else { return };
    let mut program = std::fs::read(cat).unwrap();
    // After the program there are pages that do not matter to it.
    program.resize(program.len().next_multiple_of(PAGE) + 4 * PAGE, 0);
    let spare = program.len() - PAGE;
    let ways = [
        ("w", format!("b: pwrite x {spare} abc")),
        ("w+append", "b: write x abc".to_owned()),
        ("w+dsync", format!("b: pwrite x {spare} abc")),
        ("w+sync", format!("b: pwrite x {spare} abc")),
        ("w+direct", format!("b: pwrite x {spare} a {PAGE}")),
        ("w+direct+sync", format!("b: pwrite x {spare} a {PAGE}")),
        ("w+direct+dsync", format!("b: pwrite x {spare} a {PAGE}")),
        ("w", format!("b: ftruncate x {spare}")),
        ("w", format!("b: fallocate x none {} {PAGE}", program.len())),
        ("w", format!("b: copy y 0 x {spare} {PAGE}")),
    ];
    for (transport, writeback) in everywhere() {
        let Some(home) = MountedPool::over(transport, 512, &[("xattr", 2)], writeback) else { return };
        let at = home.at();
        std::fs::write(at.join("g"), [7; PAGE]).unwrap();
        let mut run = Runner::new(&at);
        run.run("open y g r");
        let with = [false, true].into_iter().flat_map(|capable| [(capable, false), (capable, true)]);
        for ((capable, is_early), (flags, line)) in
            with.flat_map(|with| ways.iter().map(move |way| (with, way)))
        {
            let what = format!("{transport:?}, {writeback}, {flags} {line}, {capable}, early {is_early}");
            let _ = std::fs::remove_file(at.join("f"));
            std::fs::write(at.join("f"), &program).unwrap();
            for line in ["chmod f 664", "chown f 0 65510"] {
                assert_eq!(run.run(line), "ok");
            }
            let open = format!("b: open x f {flags}");
            if is_early {
                assert_eq!(run.run(&open), "ok", "{what}");
            }
            lend(&mut run, &at, if capable { "775" } else { "6775" }, capable);
            let lent = if capable { (SOMEBODY, CAPABLE) } else { (0, all_capabilities()) };
            if !is_early {
                // The bits are in effect, and the kernel has them in its cache. While the program is open for
                // writing it cannot be run.
                assert_eq!(run_as_somebody(&at.join("f")), lent, "{what}");
                assert_eq!(run.run(&open), "ok", "{what}");
            }
            let done = run.run(line);
            run.run("close x");
            let is_refused = done.ends_with(&format!(" {}", Errno::TXTBSY.raw_os_error()));
            let found = run_as_somebody(&at.join("f"));
            if is_refused {
                assert!(found == lent && std::fs::read(at.join("f")).unwrap() == program, "{what}: {done}");
            } else {
                assert!(std::fs::read(at.join("f")).unwrap() != program, "{what}: {done}");
                assert_eq!(found, (SOMEBODY, 0), "{what}: {done}");
            }
        }
        drop(run);
        home.judge();
    }
}

fn status_of_this_process(name: &str) -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
}

/// The capabilities that a program of root's gets here.
fn all_capabilities() -> u64 {
    u64::from_str_radix(&status_of_this_process("CapBnd:"), 16).unwrap()
}

#[test]
fn flags_and_projects_are_the_owners_and_not_changed_through_mounts_that_are_only_read() {
    const GET: &str = "control x 80086601";
    const GET_EXTENDED: &str = "control x 801c581f";
    const GET_DOS: &str = "control x 80088301";
    // `FS_IOC_SETFLAGS`, flags and project by `FS_IOC_FSSETXATTR`, and the word of DOS attributes.
    const CALLS: [&str; 4] = [
        "control x 40086602 40",
        "control x 401c5820 80",
        "control x 401c5820 0 0 0 7",
        "control x 40088302 0 1",
    ];
    // Numbers of 32-bit programs, and other sizes, by a 64-bit program: the kernel does not check them.
    const OTHERS: [&str; 5] = [
        "control x 40046602 40",
        "control x 40106602 40",
        "control x 40185820 80",
        "control x 40045820 80",
        "control x 40048302 0",
    ];
    if !rustix::process::geteuid().is_root() {
        return testkit::skip("only root can act as several users");
    }
    for transport in transports() {
        let Some(home) = MountedPool::over(transport, 256, &[], false) else { return };
        let mut run = Runner::new(&home.at());
        for line in ["make f 666", "chmod f 666", "chown f 65501 65501"] {
            assert_eq!(run.run(line), "ok");
        }
        // Another file with the same number, of another file system, is open to be written.
        let Some(other) = MountedPool::over(Transport::Classic, 256, &[], false) else { return };
        let namesake = std::fs::File::create(other.at().join("f")).unwrap();
        let number = std::fs::metadata(home.at().join("f")).unwrap().ino();
        assert_eq!(namesake.metadata().unwrap().ino(), number);
        let beside = home.beside().join("only-read");
        std::fs::create_dir(&beside).unwrap();
        let mount = |words: &[&str]| assert!(Command::new("mount").args(words).status().unwrap().success());
        mount(&["--bind", home.at().to_str().unwrap(), beside.to_str().unwrap()]);
        let bound = Bound(beside.clone());
        mount(&["-o", "remount,bind,ro", beside.to_str().unwrap()]);
        let mut only_read = Runner::new(&beside);
        let fails = |outcome: String, error: Errno, what: &str| {
            assert!(
                outcome.ends_with(&format!(" {}", error.raw_os_error())),
                "{transport:?}, {what}: {outcome}"
            );
        };
        // Only flags that every file has are set.
        let now = |who: &str, run: &mut Runner| {
            assert_eq!(run.run(&format!("{who}open x f r")), "ok");
            let now = [GET, GET_EXTENDED, GET_DOS].map(|call| run.run(&format!("{who}{call}")));
            run.run("close x");
            now
        };
        let before = now("", &mut run);
        for call in CALLS.iter().chain(&OTHERS) {
            for who in ["", "a: ", "b: "] {
                // Open only for reading here, because the server checks whether it is open for writing
                // elsewhere.
                assert_eq!(only_read.run(&format!("{who}open x f r")), "ok");
                let outcome = only_read.run(&format!("{who}{call}"));
                only_read.run("close x");
                let is_known = CALLS.contains(call);
                let error = match (is_known, who) {
                    (false, _) => Errno::NOTTY,
                    // The kernel checks the mount first, the server the user.
                    (true, "b: ") if call.contains("40088302") => Errno::PERM,
                    (true, _) => Errno::ROFS,
                };
                fails(outcome, error, &format!("only read, {who}{call}"));
                assert_eq!(run.run(&format!("{who}open x f rw")), "ok");
                match (is_known, who) {
                    (false, _) => fails(run.run(&format!("{who}{call}")), Errno::NOTTY, call),
                    (true, "b: ") => fails(run.run(&format!("{who}{call}")), Errno::PERM, call),
                    _ => {}
                }
                run.run("close x");
            }
        }
        assert_eq!(now("", &mut run), before);
        for (number, call) in CALLS.iter().enumerate() {
            assert_eq!(run.run("a: open x f rw"), "ok");
            let outcome = run.run(&format!("a: {call}"));
            assert!(!outcome.contains(char::is_uppercase), "{transport:?}, {call}: {outcome}");
            run.run("close x");
            assert!(now("a: ", &mut run) != before, "{transport:?}, {number}");
            for undo in ["401c5820 0", "40086602 0", "40088302 0 8"] {
                assert_eq!(run.run("a: open x f rw"), "ok");
                let outcome = run.run(&format!("a: control x {undo}"));
                assert!(!outcome.contains(char::is_uppercase), "{undo}: {outcome}");
                run.run("close x");
            }
        }
        drop((only_read, bound, namesake, run));
        other.judge();
        home.judge();
    }
}

/// A bind mount, which is removed when dropped.
struct Bound(PathBuf);

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn flags_are_changed_by_the_calls_that_the_kernel_checks_and_no_others() {
    let Some(mut home) = MountedPool::new(256, &[], false) else { return };
    home.unmount();
    let live = home.service(false);
    let who = Caller { uid: 1000, ..Caller::default() };
    let new = NewNode { kind: Kind::Regular, mode: 0o666, rdev: (0, 0), target: &[] };
    let file = live.make(&Caller::default(), 1, b"f", &new).unwrap().entry.node;
    let set = |number: u32, len: usize| live.ioctl(&who, file, number, &vec![0x10; len], &mut []);
    // The form of 32-bit programs, and other sizes.
    for number in [0x4004_6602, 0x4001_6602, 0x4010_6602, 0x4018_5820, 0x4020_5820, 0x4004_8302] {
        assert_eq!(set(number, 64), Err(Errno::NOTTY), "{number:x}");
    }
    for number in [0x8004_6601, 0x8004_7601] {
        assert_eq!(live.ioctl(&who, file, number, &[], &mut [0; 8]), Err(Errno::NOTTY), "{number:x}");
    }
    let mut flags = [0xff; 4];
    assert_eq!(live.ioctl(&who, file, 0x8008_6601, &[], &mut flags), Ok(4));
    assert_eq!(flags, [0; 4]);
    // The native form of the call.
    assert_eq!(live.ioctl(&who, file, 0x4008_6602, &0x40_u32.to_ne_bytes(), &mut []), Ok(0));
    live.ioctl(&who, file, 0x8008_6601, &[], &mut flags).unwrap();
    assert_eq!(u32::from_ne_bytes(flags), 0x40);
    drop(live);
    home.judge();
}

#[test]
fn lists_that_do_not_count_are_not_shown() {
    let Some(home) = MountedPool::new(256, &[("xattr", 2), ("acltype", 1)], false) else { return };
    let mut run = Runner::new(&home.at());
    for line in ["make f 644", "acl f access u:7,u65501:6,g:5,m:7,o:0", "setx f user.x y"] {
        assert_eq!(run.run(line), "ok");
    }
    assert_eq!(run.run("listx f"), "system.posix_acl_access user.x");
    home.pool().set("p", &[("acltype", "off")]).unwrap();
    assert_eq!(run.run("listx f"), "user.x");
    home.pool().set("p", &[("acltype", "posix")]).unwrap();
    assert_eq!(run.run("listx f"), "system.posix_acl_access user.x");
    drop(run);
    home.judge();
}
