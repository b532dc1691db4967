//! What a receive through a daemon does to mounted file systems.
// Tests do not run for a client, so they may use the process's own streams.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
// Tests use files as any program does.
#![allow(clippy::disallowed_types, missing_docs)]

use crate::daemon_support::can_mount;
use crate::daemon_support::folder::Folder;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Child, Stdio};

/// A folder with a daemon, which has the pool `tank` mounted at `~/tank`.
struct World {
    folder: tempfile::TempDir,
}

impl Folder for World {
    fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl World {
    /// `None`: mounting is not possible here, which was reported.
    fn new() -> Option<World> {
        if !can_mount() {
            return None;
        }
        let world = World { folder: tempfile::tempdir().expect("a folder") };
        File::create(world.path("disk")).and_then(|file| file.set_len(256 << 20)).expect("sparse");
        world.good("zpool create -O mountpoint=~/tank tank ~/disk");
        Some(world)
    }

    /// Writes a stream to a file.
    fn send(&self, words: &str, name: &str) {
        let target = File::create(self.path(name)).expect("made");
        let sent = self.command(words).stdout(target).output().expect("it starts");
        assert!(sent.status.success(), "{words}: {}", String::from_utf8_lossy(&sent.stderr));
    }

    /// Receives a stream from a file.
    fn receive(&self, words: &str, name: &str) {
        let source = File::open(self.path(name)).expect("there");
        let done = self.command(words).stdin(source).output().expect("it starts");
        assert!(done.status.success(), "{words}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Begins to receive half of a stream; the other half never comes.
    fn receiving(&self, words: &str, name: &str) -> Child {
        let stream = fs::read(self.path(name)).expect("there");
        let mut child = self.command(words);
        let mut child = child.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let half = stream.get(..stream.len() / 2).expect("there");
        child.stdin.as_mut().expect("piped").write_all(half).expect("read");
        child
    }

    /// Names of the file systems below one, each with whether it is mounted.
    fn mounted(&self, below: &str) -> Vec<String> {
        let list = self.good(&format!("zfs list -H -r -o name,mounted {below}"));
        list.lines().map(|line| line.replace('\t', " ")).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.run("zpool destroy -f tank");
        let _ = self.run("daemon --stop");
    }
}

#[test]
fn renamed_file_systems_stay_mounted() {
    let Some(world) = World::new() else { return };
    world.good("zfs create -p tank/s/x/low");
    world.good("zfs create tank/s/y");
    world.good("zfs snapshot -r tank/s@1");
    world.send("zfs send -R tank/s@1", "first");
    world.receive("zfs receive tank/r", "first");
    for line in ["tank/s/x tank/s/z", "tank/s/y tank/s/x", "tank/s/z/low tank/s/low"] {
        world.good(&format!("zfs rename {line}"));
    }
    fs::write(world.path("tank/s/low/file"), "text").expect("written");
    world.good("zfs snapshot -r tank/s@2");
    world.send("zfs send -R -I @1 tank/s@2", "second");
    world.receive("zfs receive -F tank/r", "second");
    assert_eq!(world.mounted("tank/r"), ["tank/r yes", "tank/r/low yes", "tank/r/x yes", "tank/r/z yes"]);
    assert_eq!(fs::read_to_string(world.path("tank/r/low/file")).expect("read"), "text");
}

#[test]
fn only_what_moved_is_mounted_anew() {
    let Some(world) = World::new() else { return };
    world.good("zfs create -p tank/s/a");
    fs::write(world.path("tank/s/a/file"), "old text").expect("written");
    world.good("zfs snapshot -r tank/s@1");
    world.send("zfs send -R tank/s@1", "first");
    world.receive("zfs receive tank/r", "first");
    world.good("zfs create tank/r/own");
    world.good("zfs unmount tank/r/own");
    // A file in use keeps its file system where it is; nothing asks it to move.
    let mut open = File::open(world.path("tank/r/a/file")).expect("there");
    world.good("zfs set com.example:note=new tank/s");
    world.good("zfs set exec=off tank/s/a");
    world.good("zfs snapshot -r tank/s@2");
    world.send("zfs send -p -i @1 tank/s@2", "top");
    world.send("zfs send -p -i @1 tank/s/a@2", "a");
    world.receive("zfs receive -F tank/r", "top");
    world.receive("zfs receive -F tank/r/a", "a");
    assert_eq!(world.mounted("tank/r"), ["tank/r yes", "tank/r/a yes", "tank/r/own no"]);
    let mut text = String::new();
    open.seek(SeekFrom::Start(0)).and_then(|_| open.read_to_string(&mut text)).expect("it is still open");
    assert_eq!(text, "old text");
    drop(open);
    // A received mount point moves the file system and what inherits from it, and no other.
    world.good("zfs set mountpoint=~/moved tank/s");
    world.good("zfs snapshot -r tank/s@3");
    world.send("zfs send -p -i @2 tank/s@3", "third");
    world.good("zfs unmount tank/s");
    world.receive("zfs receive -F tank/r", "third");
    assert_eq!(fs::read_to_string(world.path("moved/a/file")).expect("read"), "old text");
    assert!(!world.path("tank/r/a").exists());
    // What `-u` has brought stays unmounted, however often it is received again.
    world.receive("zfs receive -u tank/u", "first");
    world.receive("zfs receive -u tank/u", "top");
    assert_eq!(world.mounted("tank/u"), ["tank/u no", "tank/u/a no"]);
}

#[test]
fn what_is_not_destroyed_is_mounted_again() {
    let Some(world) = World::new() else { return };
    world.good("zfs create tank/s");
    world.good("zfs snapshot tank/s@1");
    let noise: Vec<u8> =
        (0..8_u64 << 20).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect();
    fs::write(world.path("tank/s/file"), noise).expect("written");
    world.good("zfs snapshot tank/s@2");
    world.send("zfs send tank/s@1", "first");
    world.send("zfs send -i @1 tank/s@2", "second");
    world.receive("zfs receive tank/r", "first");
    let mut child = world.receiving("zfs receive tank/r", "second");
    while !world.good("zpool history -i tank").contains("receive tank/r/%recv") {
        std::thread::yield_now();
    }
    let refused = world.run("zfs destroy -r tank/r");
    assert!(refused.code == Some(1) && refused.err.contains("dataset is busy"), "{refused:?}");
    assert_eq!(world.mounted("tank/r"), ["tank/r yes"]);
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
    world.good("zfs destroy -r tank/r");
}
