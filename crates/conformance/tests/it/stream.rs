//! `cenote stream`: what it tells of golden streams, whole and damaged.

use crate::zstream::fed;
use std::process::{Command, Output, Stdio};

fn command() -> Command {
    let mut command = Command::new(testkit::cenote());
    command.arg("stream").env("TZ", "UTC");
    command
}

fn stream(words: &[&str]) -> Output {
    command().args(words).stdin(Stdio::null()).output().expect("runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn whole_streams_are_told_from_others() {
    let folder = tempfile::tempdir().expect("made");
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path.display().to_string()
    };
    let bytes = testkit::stream("longname");
    let whole = file("whole", &bytes);
    let packed = testkit::streams_root().join("replicate-r2.zstream.zst").display().to_string();
    let output = stream(&["verify", "-q", &whole, &packed]);
    let told = format!("{whole}: whole: 1 snapshot, 102K\n");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with(&told), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("replicate-r2.zstream.zst: whole: "));

    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    let gzip = [&[0x1f, 0x8b, 8, 0][..], &bytes].concat();
    let parts = [
        (file("damaged", &damaged), "checksum mismatch at byte "),
        (file("cut", &bytes[..bytes.len() - 400]), "the stream ends within the record at byte "),
        (
            file("short", &bytes[..bytes.len() - 312]),
            "not whole: 1 snapshot, 101K; it ends within src/long@1",
        ),
        (file("empty", &[]), "not whole: 0 snapshots, 0B; it is empty"),
        (file("text", b"no stream at all"), "not a send stream"),
        (file("gzip", &gzip), "cannot read the stream at byte 0: damaged gzip data"),
        (folder.path().join("nothing").display().to_string(), "No such file or directory"),
    ];
    for (path, message) in &parts {
        let output = stream(&["verify", "-q", path]);
        let told = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{path}: {told}");
        assert!(told.contains(&format!("{path}: {message}")), "{told}");
    }
    // Others are looked at nevertheless.
    let output = stream(&["verify", "-q", &parts[0].0, &whole]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), told));
}

#[test]
fn snapshots_are_listed() {
    let path = testkit::streams_root().join("interval-a-c.zstream.zst");
    let output = fed(&mut command(), &["info", "-qHp", "-"], &std::fs::read(&path).expect("readable"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told = text(&output.stdout);
    let rows: Vec<Vec<&str>> = told.lines().map(|line| line.split('\t').collect()).collect();
    let snapshots: Vec<_> = rows.iter().map(|row| (row[0], row[1], row[3], row[7])).collect();
    assert_eq!(
        snapshots,
        [("-", "src/fs@b", "filesystem", "whole"), ("-", "src/fs@c", "filesystem", "whole")]
    );
    assert!(rows[0][2].parse::<u64>().is_ok() && rows[0][6].parse::<u64>().is_ok(), "{told}");

    let output = stream(&["info", "-q", &path.display().to_string()]);
    assert!(text(&output.stdout).starts_with("FILE "), "{}", text(&output.stdout));

    let volume = testkit::streams_root().join("zvol-full.zstream.zst").display().to_string();
    let output = stream(&["info", "-qj", &volume]);
    let told = text(&output.stdout);
    for part in
        ["\"kind\": \"volume\"", "\"is_complete\": true", "\"from_guid\": null", "\"is_package\": false"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
}

/// Two hundred thousand snapshots in a package: counted, and listed up to a limit.
#[test]
fn many_snapshots_take_little_memory() {
    let package = testkit::stream("replicate-r2-r3");
    // The shortest stream in it has two records, of 312 bytes each.
    let begins = package.windows(624).position(|two| {
        let kind = |at: usize| u32::from_le_bytes([two[at], two[at + 1], two[at + 2], two[at + 3]]);
        kind(0) == 0 && two[8..13] == [0xac, 0xcb, 0xba, 0xf5, 2] && kind(312) == 5 && two[16] & 3 == 1
    });
    let short = &package[begins.expect("an empty increment")..][..624];
    let second = package
        .windows(16)
        .skip(312)
        .position(|head| head[..4] == [0; 4] && head[8..13] == [0xac, 0xcb, 0xba, 0xf5, 2]);
    let header = &package[..second.expect("a stream") + 312];
    let mut bytes = header.to_vec();
    (0..200_000).for_each(|_| bytes.extend_from_slice(short));
    bytes.extend_from_slice(&package[package.len() - 312..]);
    let limited = |words: &str| {
        let command = format!("ulimit -v 1000000; exec {} stream {words} -", testkit::cenote().display());
        fed(Command::new("sh").env("TZ", "UTC"), &["-c", &command], &bytes)
    };
    let output = limited("verify -q");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("-: whole: 200000 snapshots, "), "{}", text(&output.stdout));
    let output = limited("info -qH");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("-: only the first 100000 snapshots are listed"));
    assert_eq!(text(&output.stdout).lines().count(), 100_000);
}
