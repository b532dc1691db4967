//! What a file lends to programs (set-id bits, capabilities) and binds them with (flags), when somebody else changes it.

use crate::home::Home;
use crate::run::Runner;
use cenote_serve::fuse::{Caller, NewNode, Service};
use cenote_serve::view::Kind;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// `struct vfs_cap_data` with a capability that programs get.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Makes a file as a program of root's that a group may write: with set-id bits, a capability, or both.
fn lend(run: &mut Runner, at: &Path, mode: &str, capable: bool) {
    assert_eq!(run.run(&format!("chmod f {mode}")), "ok");
    if capable {
        rustix::fs::setxattr(at.join("f"), "security.capability", &CAPABILITY, XattrFlags::empty()).unwrap();
    }
}

/// The mode that programs are run with, and whether they get a capability.
fn lent(at: &Path) -> (u32, bool) {
    let mode = std::fs::metadata(at.join("f")).unwrap().mode() & 0o7777;
    let mut value = [0; 64];
    (mode, rustix::fs::getxattr(at.join("f"), "security.capability", &mut value[..]).is_ok())
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
    for writeback in [false, true] {
        let Some(home) = Home::new(512, &[("xattr", 2)], writeback) else { return };
        let at = home.at();
        std::fs::write(at.join("g"), [7; 4096]).unwrap();
        let mut run = Runner::new(&at);
        for line in ["make f 664", "chown f 0 65510"] {
            assert_eq!(run.run(line), "ok");
        }
        std::fs::write(at.join("f"), [1; 8192]).unwrap();
        for capable in [false, true] {
            // Opened before it lends something, and after that.
            for is_early in [false, true] {
                for (flags, calls) in WAYS {
                    let open = format!("b: open x f {flags}");
                    let early = is_early.then(|| run.run(&open));
                    lend(&mut run, &at, "6775", capable);
                    assert_eq!(lent(&at), (0o6775, capable));
                    assert_eq!(early.unwrap_or_else(|| run.run(&open)), "ok");
                    let done: Vec<String> = calls.iter().map(|line| run.run(line)).collect();
                    let was = lent(&at);
                    // Around its cache the kernel would go on believing in set-id bits: such a write is refused. Where the
                    // kernel collects writes, not all that want to go around it do.
                    let is_refused = done[0].ends_with(&format!(" {}", Errno::TXTBSY.raw_os_error()));
                    let left = if is_refused { (0o6775, capable) } else { (0o775, false) };
                    assert_eq!(was, left, "{flags} {calls:?}: {done:?}, early {is_early}");
                    if !writeback {
                        assert_eq!(
                            is_refused,
                            is_early && flags.contains('+'),
                            "{flags} {calls:?}: {done:?}"
                        );
                    }
                    run.run("chmod f 664");
                    // It is there only where the write was refused.
                    let _ = rustix::fs::removexattr(at.join("f"), "security.capability");
                }
            }
        }
        drop(run);
        home.judge();
    }
}

#[test]
fn flags_are_changed_by_the_calls_that_the_kernel_checks_and_no_others() {
    let Some(mut home) = Home::new(256, &[], false) else { return };
    home.unmount();
    let live = home.service(false);
    let who = Caller { uid: 1000, ..Caller::default() };
    let new = NewNode { kind: Kind::Regular, mode: 0o666, rdev: (0, 0), target: &[] };
    let file = live.make(&Caller::default(), 1, b"f", &new).unwrap().entry.node;
    let set = |number: u32, len: usize| live.ioctl(&who, file, number, &vec![0x10; len], &mut []);
    // The form of programs of 32 bits, and other sizes.
    for number in [0x4004_6602, 0x4001_6602, 0x4010_6602, 0x4018_5820, 0x4020_5820, 0x4004_8302] {
        assert_eq!(set(number, 64), Err(Errno::NOTTY), "{number:x}");
    }
    for number in [0x8004_6601, 0x8004_7601] {
        assert_eq!(live.ioctl(&who, file, number, &[], &mut [0; 8]), Err(Errno::NOTTY), "{number:x}");
    }
    let mut flags = [0xff; 4];
    assert_eq!(live.ioctl(&who, file, 0x8008_6601, &[], &mut flags), Ok(4));
    assert_eq!(flags, [0; 4]);
    // The kernel's own form of the call.
    assert_eq!(live.ioctl(&who, file, 0x4008_6602, &0x40_u32.to_ne_bytes(), &mut []), Ok(0));
    live.ioctl(&who, file, 0x8008_6601, &[], &mut flags).unwrap();
    assert_eq!(u32::from_ne_bytes(flags), 0x40);
    drop(live);
    home.judge();
}

#[test]
fn lists_that_do_not_count_are_not_shown() {
    let Some(home) = Home::new(256, &[("xattr", 2), ("acltype", 1)], false) else { return };
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
