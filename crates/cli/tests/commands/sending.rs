//! Streams that the daemon sends for its clients.
// Tests do not run for a client, so they may use the process's own streams.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
// Tests use `std` to make files.
#![allow(clippy::disallowed_types, missing_docs)]

use crate::daemon_support::{Ran, cenote, folder::Folder};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use testkit::Fixture;

/// Bytes of the file that is sent: more than the daemon holds for a client.
const FILE: usize = 24 << 20;

/// A folder with a daemon, which has a pool with a snapshot `tank/a@1`.
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
        std::fs::File::create(world.path("a")).and_then(|file| file.set_len(256 << 20)).expect("sparse");
        let noise = |i: usize| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8;
        std::fs::write(world.path("file"), (0..FILE).map(noise).collect::<Vec<u8>>()).expect("written");
        world.good("zpool create -O mountpoint=none tank ~/a");
        world.good("zfs create tank/a");
        world.good("cp ~/file tank/a:/");
        world.good("zfs snapshot tank/a@1");
        world
    }

    /// Starts sending; returns the command and the reading end of its output, from which a byte was read.
    fn sending(&self) -> (Child, impl Read) {
        let mut child = self.command("zfs send tank/a@1");
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut reader = child.stdout.take().expect("a pipe");
        reader.read_exact(&mut [0]).expect("it writes");
        (child, reader)
    }
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

#[test]
fn a_stream_goes_to_the_client_while_it_is_made() {
    let world = World::new();
    let stream = world.path("stream");
    let target = std::fs::File::create(&stream).expect("made");
    let child = world.command("zfs send -v tank/a@1").stdout(target).stderr(Stdio::piped()).spawn();
    let (code, said) = ended(child.expect("it starts"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("full send of tank/a@1 estimated size is "), "{said}");
    assert!(said.contains("\nTIME        SENT   SNAPSHOT tank/a@1\n"), "{said}");
    let length = std::fs::metadata(&stream).expect("there").len();
    assert!(length > FILE as u64);
    world.good("stream verify -q ~/stream");
    // A snapshot is not destroyed while it is sent.
    let (child, mut reader) = world.sending();
    let refused = world.run("zfs destroy tank/a@1");
    assert!(refused.code == Some(1) && refused.err.contains("dataset is busy"), "{refused:?}");
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).expect("read");
    assert_eq!((1 + rest.len()) as u64, length);
    assert_eq!(ended(child), (Some(0), String::new()));
    // A reader that goes away ends the command without a word.
    let (child, reader) = world.sending();
    drop(reader);
    assert_eq!(ended(child), (Some(141), String::new()));
    world.good("zfs destroy tank/a@1");
}

#[test]
fn a_signal_asks_for_a_report() {
    let world = World::new();
    let (child, mut reader) = world.sending();
    let pid = Pid::from_child(&child);
    // The command looks for wishes while it sends.
    for _ in 0..FILE >> 20 {
        kill_process(pid, Signal::USR1).expect("told");
        std::thread::sleep(std::time::Duration::from_millis(20));
        reader.read_exact(&mut vec![0; 1 << 20]).expect("more");
    }
    std::io::copy(&mut reader, &mut std::io::sink()).expect("read");
    let (code, said) = ended(child);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.lines().count() > 0 && said.lines().all(|line| line.ends_with("   tank/a@1")), "{said}");
}

/// What `ps` shows of a process.
fn title(child: &Child) -> String {
    let bytes = std::fs::read(format!("/proc/{}/cmdline", child.id())).expect("read");
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
}

/// Sends with `-V` and reads slowly; returns the titles that were seen.
fn titles(world: &World, words: &str, is_direct: bool) -> Vec<String> {
    let mut command = world.command(words);
    if is_direct {
        command.env("CENOTE_DIRECT", "1").env("CENOTE_DEVICES", world.folder());
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut reader = child.stdout.take().expect("a pipe");
    let mut seen = Vec::new();
    loop {
        let mut part = Vec::new();
        (&mut reader).take(512 << 10).read_to_end(&mut part).expect("read");
        if part.is_empty() {
            break;
        }
        let now = title(&child);
        if seen.last() != Some(&now) && now.starts_with("zfs: ") {
            seen.push(now);
        }
        // Some three seconds for all: the title changes every second.
        std::thread::sleep(std::time::Duration::from_millis(60));
    }
    assert_eq!(ended(child), (Some(0), String::new()), "{words}");
    seen
}

#[test]
fn the_title_of_the_process_tells_how_much_is_sent() {
    let world = World::new();
    let is_report = |title: &String| {
        title.starts_with("zfs: sending tank/a@1 (") && title.contains("%: ") && title.contains("/24.")
    };
    let seen = titles(&world, "zfs send -V tank/a@1", false);
    assert!(seen.len() > 1 && seen.iter().all(is_report), "{seen:?}");
    assert!(seen[0].contains(" (0%: 0B/"), "{seen:?}");
    // Without a daemon, and by the name of the command alone.
    world.good("zpool export tank");
    world.good("daemon --stop");
    let seen = titles(&world, "zfs send -V tank/a@1", true);
    assert!(seen.len() > 1 && seen.iter().all(is_report), "{seen:?}");
    assert_eq!(titles(&world, "zfs send tank/a@1", true), Vec::<String>::new());
}

/// The parameter `zfs_send_corrupt_data` of the daemon.
#[test]
fn unreadable_blocks_end_a_stream_or_are_filled() {
    let world = World { folder: tempfile::tempdir().expect("a folder") };
    let fixture = Fixture::open("lost-block");
    let start = "warning: cannot send 't_lost_block/marked': cannot read byte ";
    for fills in [false, true] {
        let devices = fixture.dir().display();
        let mut import = world.command(&format!("zpool import -N -o readonly=on -d {devices} t_lost_block"));
        if fills {
            import.env("CENOTE_PARAMETERS", "zfs_send_corrupt_data=1");
        }
        let ran: Ran = import.output().expect("it starts").into();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let target = std::fs::File::create(world.path("stream")).expect("made");
        let mut send = world.command("zfs send t_lost_block/marked");
        let ran: Ran = send.stdout(target).output().expect("it starts").into();
        if fills {
            assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
            world.good("stream verify -q ~/stream");
            let pattern = 0x2f5_badd_b10c_u64.to_le_bytes().repeat(64);
            let stream = std::fs::read(world.path("stream")).expect("read");
            assert!(stream.windows(pattern.len()).step_by(8).any(|bytes| bytes == pattern));
        } else {
            assert_eq!(ran.code, Some(1), "{ran:?}");
            assert!(ran.err.starts_with(start) && ran.err.contains(" of object "), "{ran:?}");
        }
        world.good("zpool export t_lost_block");
        world.good("daemon --stop");
    }
}

#[test]
fn properties_of_an_encrypted_dataset_are_refused_before_its_key_is_missed() {
    let fixture = Fixture::open("encryption");
    let mut command = cenote(fixture.dir(), "none", "zfs send -p t_encryption/hex@s");
    command.env("CENOTE_DIRECT", "1").env("CENOTE_DEVICES", fixture.dir());
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = "cannot send t_encryption/hex@s: encrypted dataset t_encryption/hex may not be sent with properties \
                    without the raw flag\nwarning: cannot send 't_encryption/hex@s': backup failed\n";
    assert_eq!((output.status.code(), said.as_str()), (Some(1), expected));
    assert!(output.stdout.is_empty());
}
