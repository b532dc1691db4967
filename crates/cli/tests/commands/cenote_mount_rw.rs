//! `cenote mount --read-write`: programs use a pool, which is then judged.
// Tests do not run for a client, so they may use the process's own streams.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
#![allow(clippy::disallowed_types)] // The tests use the mount as any program would.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;

/// A pool `p` with a file system `p/a`, mounted; unmounted and judged at the end.
struct MountedPool {
    dir: tempfile::TempDir,
    server: Option<Child>,
}

impl MountedPool {
    /// `None`: it cannot be done here, which has been said.
    fn new(properties: &[&str]) -> Option<MountedPool> {
        if !testkit::need_file("/dev/fuse") {
            return None;
        }
        if !rustix::process::geteuid().is_root() && testkit::need_tool("fusermount3").is_none() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        for name in ["images", "state", "at"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let disk = dir.path().join("images/disk");
        fs::File::create(&disk).unwrap().set_len(512 << 20).unwrap();
        let home = MountedPool { dir, server: None };
        home.good(&["zpool", "create", "p", disk.to_str().unwrap()]);
        let mut create = vec!["zfs", "create"];
        properties.iter().for_each(|property| create.extend(["-o", property]));
        create.push("p/a");
        home.good(&create);
        home.mounted()
    }

    fn at(&self) -> PathBuf {
        self.dir.path().join("at")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.args(words);
        command.env("CENOTE_DEVICES", self.dir.path().join("images"));
        command.env("CENOTE_STATE", self.dir.path().join("state")).env("CENOTE_DIRECT", "1");
        command
    }

    fn good(&self, words: &[&str]) -> String {
        let output = self.command(words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        text
    }

    fn mounted(mut self) -> Option<MountedPool> {
        let at = self.at();
        let before = fs::metadata(&at).unwrap().dev();
        let mut server = self.command(&["mount", "-w", "p/a"]).arg(&at).spawn().unwrap();
        let begun = Instant::now();
        while fs::metadata(&at).is_ok_and(|stat| stat.dev() == before) {
            if let Some(status) = server.try_wait().unwrap() {
                testkit::skip(&format!("cannot mount here: {status}"));
                return None;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "not mounted");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.server = Some(server);
        Some(self)
    }

    /// The server is told to end, and closes the pool.
    fn unmounted(mut self) -> MountedPool {
        let mut server = self.server.take().unwrap();
        let pid = rustix::process::Pid::from_child(&server);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert!(server.wait().unwrap().success());
        self
    }

    /// The server is gone from one moment to the next.
    fn killed(mut self) -> MountedPool {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        let at = self.at();
        if rustix::mount::unmount(&at, rustix::mount::UnmountFlags::DETACH).is_err() {
            Command::new("fusermount3").args(["-u", "-z"]).arg(&at).status().unwrap();
        }
        self
    }

    /// Checks that neither `zdb` nor our own check finds an error in the pool.
    fn judged(self) {
        self.good(&["verify", "p"]);
        testkit::assert_zdb_clean(&self.dir.path().join("images"), "p");
    }
}

impl Drop for MountedPool {
    fn drop(&mut self) {
        if let Some(server) = self.server.as_mut() {
            let pid = rustix::process::Pid::from_child(server);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = server.wait();
        }
    }
}

fn errno<T>(result: std::io::Result<T>) -> Option<Errno> {
    result.err().and_then(|error| error.raw_os_error()).map(Errno::from_raw_os_error)
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

#[test]
fn names_links_and_attributes() {
    let Some(home) = MountedPool::new(&["xattr=sa", "acltype=posix"]) else { return };
    let at = |name: &str| home.at().join(name);
    fs::create_dir_all(at("dir/sub")).unwrap();
    fs::write(at("dir/file"), "content").unwrap();
    fs::hard_link(at("dir/file"), at("second")).unwrap();
    symlink("dir/file", at("link")).unwrap();
    assert_eq!(fs::read_to_string(at("link")).unwrap(), "content");
    assert_eq!(fs::metadata(at("second")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(at("second")).unwrap().ino(), fs::metadata(at("dir/file")).unwrap().ino());

    assert_eq!(errno(fs::create_dir(at("dir"))), Some(Errno::EXIST));
    assert_eq!(errno(fs::remove_dir(at("dir"))), Some(Errno::NOTEMPTY));
    assert_eq!(errno(fs::remove_dir(at("second"))), Some(Errno::NOTDIR));
    assert_eq!(errno(fs::remove_file(at("dir"))), Some(Errno::ISDIR));
    assert_eq!(errno(fs::rename(at("dir"), at("dir/sub/dir"))), Some(Errno::INVAL));
    assert_eq!(errno(fs::read(at("none"))), Some(Errno::NOENT));
    assert_eq!(errno(fs::write(at(&"n".repeat(256)), "")), Some(Errno::NAMETOOLONG));

    fs::rename(at("dir/file"), at("moved")).unwrap();
    assert_eq!(errno(fs::metadata(at("dir/file"))), Some(Errno::NOENT));
    let cwd = rustix::fs::CWD;
    let rename = |from: &str, to: &str, how| rustix::fs::renameat_with(cwd, at(from), cwd, at(to), how);
    assert_eq!(rename("moved", "second", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("moved", "dir", RenameFlags::EXCHANGE).unwrap();
    assert!(fs::metadata(at("moved")).unwrap().is_dir());
    assert_eq!(fs::read_to_string(at("dir")).unwrap(), "content");

    fs::set_permissions(at("dir"), fs::Permissions::from_mode(0o4751)).unwrap();
    assert_eq!(fs::metadata(at("second")).unwrap().permissions().mode() & 0o7777, 0o4751);
    rustix::fs::setxattr(at("dir"), "user.key", b"value", XattrFlags::CREATE).unwrap();
    assert_eq!(rustix::fs::setxattr(at("dir"), "user.key", b"", XattrFlags::CREATE), Err(Errno::EXIST));
    let mut value = [0; 16];
    assert_eq!(rustix::fs::getxattr(at("second"), "user.key", &mut value), Ok(5));
    rustix::fs::removexattr(at("dir"), "user.key").unwrap();
    assert_eq!(rustix::fs::getxattr(at("second"), "user.key", &mut value), Err(Errno::NODATA));
    let mut names: Vec<_> = fs::read_dir(home.at())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["dir", "link", "moved", "second"]);
    home.unmounted().judged();
}

#[test]
fn bytes_holes_and_files_without_names() {
    let Some(home) = MountedPool::new(&["recordsize=16k"]) else { return };
    let at = |name: &str| home.at().join(name);
    let content = noise(1_000_000, 3);
    fs::write(at("file"), &content).unwrap();
    assert_eq!(fs::read(at("file")).unwrap(), content);
    let mut file = fs::OpenOptions::new().read(true).write(true).open(at("file")).unwrap();
    file.write_all_at(b"patch", 500_000).unwrap();
    file.seek(SeekFrom::Start(499_999)).unwrap();
    let mut part = [0; 7];
    file.read_exact(&mut part).unwrap();
    assert_eq!(part[1..6], *b"patch");
    assert_eq!((part[0], part[6]), (content[499_999], content[500_005]));
    file.set_len(700_001).unwrap();
    file.set_len(800_000).unwrap();
    let now = fs::read(at("file")).unwrap();
    assert_eq!(now.len(), 800_000);
    assert!(now[700_001..].iter().all(|byte| *byte == 0));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 0, 65_536).unwrap();
    file.sync_all().unwrap();
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)), Ok(65_536));
    assert!(fs::read(at("file")).unwrap()[..65_536].iter().all(|byte| *byte == 0));

    // Appending from two descriptors.
    let append = || fs::OpenOptions::new().append(true).create(true).open(at("log")).unwrap();
    let (mut one, mut two) = (append(), append());
    (0..10).for_each(|_| one.write_all(b"1").and_then(|()| two.write_all(b"2")).unwrap());
    assert_eq!(fs::read(at("log")).unwrap(), b"12".repeat(10));

    // A file exists until its last descriptor is closed.
    fs::write(at("going"), "still here").unwrap();
    let mut open = fs::File::open(at("going")).unwrap();
    fs::remove_file(at("going")).unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), open.metadata().unwrap().nlink()), ("still here", 0));
    drop(open);
    let mut replaced = fs::File::open(at("log")).unwrap();
    fs::write(at("new"), "new").unwrap();
    fs::rename(at("new"), at("log")).unwrap();
    let mut bytes = Vec::new();
    replaced.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"12".repeat(10));

    let flags = OFlags::TMPFILE.bits().cast_signed();
    let nameless = fs::OpenOptions::new().write(true).read(true).custom_flags(flags).open(home.at());
    // Kernels before 6.1 do not support files without a name.
    if let Ok(mut nameless) = nameless {
        nameless.write_all(b"named later").unwrap();
        let by_number =
            PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&nameless)));
        let cwd = rustix::fs::CWD;
        rustix::fs::linkat(cwd, by_number, cwd, at("named"), rustix::fs::AtFlags::SYMLINK_FOLLOW).unwrap();
        drop(nameless);
        assert_eq!(fs::read_to_string(at("named")).unwrap(), "named later");
    }
    drop((file, one, two, replaced));
    home.unmounted().judged();
}

#[test]
fn copies_share_blocks_and_many_names_are_listed() {
    let Some(home) = MountedPool::new(&["recordsize=64k"]) else { return };
    let at = |name: &str| home.at().join(name);
    let content = noise(1 << 20, 9);
    fs::write(at("one"), &content).unwrap();
    let (from, to) = (fs::File::open(at("one")).unwrap(), fs::File::create(at("two")).unwrap());
    let mut left = content.len();
    while left > 0 {
        left -= rustix::fs::copy_file_range(&from, None, &to, None, left).unwrap();
    }
    drop((from, to));
    assert_eq!(fs::read(at("two")).unwrap(), content);
    fs::create_dir(at("many")).unwrap();
    for i in 0..3000 {
        fs::write(at(&format!("many/file {i}")), format!("{i}")).unwrap();
    }
    assert_eq!(fs::read_dir(at("many")).unwrap().count(), 3000);
    for i in (0..3000).step_by(2) {
        fs::remove_file(at(&format!("many/file {i}"))).unwrap();
    }
    assert_eq!(fs::read_dir(at("many")).unwrap().count(), 1500);
    assert_eq!(fs::read_to_string(at("many/file 2999")).unwrap(), "2999");
    let home = home.unmounted();
    let used = home.good(&["zpool", "get", "-Hp", "-o", "value", "bcloneused", "p"]);
    assert_eq!(used.trim(), content.len().to_string());
    home.judged();
}

#[test]
fn what_was_synced_survives_the_death_of_the_server() {
    let Some(home) = MountedPool::new(&[]) else { return };
    let at = |name: &str| home.at().join(name);
    fs::create_dir(at("dir")).unwrap();
    let content = noise(300_000, 5);
    let mut file = fs::File::create(at("dir/kept")).unwrap();
    file.write_all(&content).unwrap();
    file.sync_all().unwrap();
    file.write_all(b"perhaps").unwrap();
    drop(file);
    let home = home.killed().mounted().unwrap();
    let found = fs::read(home.at().join("dir/kept")).unwrap();
    assert_eq!(found[..content.len()], content);
    assert!(matches!(&found[content.len()..], b"" | b"perhaps"), "{} bytes", found.len());
    assert!(Path::new(&home.at().join("dir")).is_dir());
    home.unmounted().judged();
}
