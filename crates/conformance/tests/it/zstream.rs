//! `zstream` beside that of OpenZFS: what it prints for each golden stream, and that its streams are read.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Output and exit code.
type Said = (String, Option<i32>);

fn ours() -> Command {
    let mut command = Command::new(testkit::cenote());
    command.arg("zstream");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn said(command: &mut Command, words: &[&str], file: Option<&Path>) -> Said {
    let output = command.args(words).args(file).stdin(Stdio::null()).output().expect("runs");
    (text(&output.stdout), output.status.code())
}

/// The output of a command that reads these bytes.
pub(crate) fn fed(command: &mut Command, words: &[&str], bytes: &[u8]) -> Output {
    let mut child = command
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut input = child.stdin.take().expect("a pipe");
    std::thread::scope(|threads| {
        // A command that fails early closes the pipe.
        threads.spawn(move || drop(input.write_all(bytes)));
        child.wait_with_output().expect("ends")
    })
}

#[test]
fn dumps_are_those_of_openzfs() {
    for name in testkit::stream_names() {
        let expected =
            std::fs::read_to_string(testkit::streams_root().join(format!("dumps/{name}.dump.txt")));
        let output = fed(&mut ours(), &["dump"], &testkit::stream(&name));
        if name == "resume-part" {
            // Cut within a record: OpenZFS's ends with exit code 0.
            assert_eq!(output.status.code(), Some(1));
            let message = text(&output.stderr);
            assert!(message.contains("the stream ends within the record at byte "), "{message}");
            continue;
        }
        assert_eq!(output.status.code(), Some(0), "{name}");
        assert_eq!(text(&output.stdout), expected.expect("a dump"), "{name}");
    }
}

/// Streams whose contents are printed too: there is a line for 16 bytes.
const SMALL: [&str; 5] = ["clone-origin", "full-one-r1", "holes-incr", "longname", "replicate-r2-r3"];

/// Records, data, and without checksums, beside the real one.
#[test]
fn records_are_printed_as_openzfs_does() {
    let Some(real) = testkit::need_tool("zstream") else { return };
    let folder = tempfile::tempdir().expect("made");
    for name in testkit::stream_names() {
        let path = folder.path().join(&name);
        std::fs::write(&path, testkit::stream(&name)).expect("written");
        for options in ["-v", "-vv", "-d", "-C", "-Cd"] {
            let is_long = options.contains('d') || options == "-vv";
            if name == "resume-part" || is_long && !SMALL.contains(&name.as_str()) {
                continue;
            }
            let theirs = said(&mut Command::new(&real), &["dump", options], Some(&path));
            let own = said(&mut ours(), &["dump", options], Some(&path));
            let mut lines = own.0.lines().zip(theirs.0.lines());
            if let Some((a, b)) = lines.find(|(a, b)| a != b) {
                panic!("{name} {options}:\n  {a}\n  {b}");
            }
            assert!(own == theirs, "{name} {options}: the number of lines or the exit code differs");
        }
        std::fs::remove_file(&path).expect("removed");
    }
}

#[test]
fn the_records_of_changed_streams_are_those_of_openzfs() {
    let Some(real) = testkit::need_tool("zstream") else { return };
    let records = |bytes: &[u8]| {
        let output = fed(&mut Command::new(&real), &["dump", "-v"], bytes);
        assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
        // Checksums of ends of packages may be absent.
        text(&output.stdout).lines().filter(|line| !line.starts_with("END ")).collect::<Vec<_>>().join("\n")
    };
    for (name, words) in [
        ("full", &["recompress", "off"][..]),
        ("compressed-gzip-9", &["recompress", "off"]),
        ("full-props", &["recompress", "lzjb"]),
        ("large-Lec", &["recompress", "zle"]),
        ("compressed-lz4", &["decompress"]),
        ("replicate-r2", &["decompress", "-v", "2,0,off"]),
        ("compressed-lz4", &["decompress", "-v", "4,0,lz4", "2,0", "3,131072"]),
    ] {
        let bytes = testkit::stream(name);
        let own = fed(&mut ours(), words, &bytes);
        assert!(own.status.success(), "{name} {words:?}: {}", text(&own.stderr));
        let theirs = fed(&mut Command::new(&real), words, &bytes);
        assert!(records(&own.stdout) == records(&theirs.stdout), "{name} {words:?}");
        assert_eq!(text(&own.stderr), text(&theirs.stderr), "{name} {words:?}");
    }
}

/// The deduplicated stream of OpenZFS's own test suite.
#[test]
fn a_deduplicated_stream_is_written_out() {
    const PACKED: &str = "/usr/share/zfs/zfs-tests/tests/functional/rsend/dedup.zsend.bz2";
    let Some(real) = testkit::need_tool("zstream") else { return };
    if !testkit::need_file(PACKED) || !testkit::need_file("/usr/bin/bzcat") {
        return;
    }
    let folder = tempfile::tempdir().expect("made");
    let path = folder.path().join("dedup");
    let unpacked = Command::new("bzcat").arg(PACKED).output().expect("runs");
    std::fs::write(&path, &unpacked.stdout).expect("written");
    let own = ours().args(["redup", "-v"]).arg(&path).output().expect("runs");
    assert_eq!(own.status.code(), Some(0), "{}", text(&own.stderr));
    assert!(text(&own.stderr).contains(" including 51 dedup records"), "{}", text(&own.stderr));
    let theirs = Command::new(&real).arg("redup").arg(&path).output().expect("runs");
    let records = |bytes: &[u8]| text(&fed(&mut Command::new(&real), &["dump", "-v"], bytes).stdout);
    assert!(own.stdout.len() == 1_032_280 && records(&own.stdout) == records(&theirs.stdout));
}

#[test]
fn the_other_name_is_dump() {
    let bytes = testkit::stream("longname");
    let dump = fed(&mut ours(), &["dump", "-v"], &bytes);
    let mut other = Command::new(testkit::cenote());
    assert_eq!(fed(&mut other, &["zstreamdump", "-v"], &bytes).stdout, dump.stdout);
}

#[test]
fn the_token_is_printed_as_by_openzfs() {
    let root = testkit::streams_root();
    let token = std::fs::read_to_string(root.join("resume-token.txt")).expect("there");
    let (printed, code) = said(&mut ours(), &["token", token.trim()], None);
    let list = "nvlist version: 0\n\tobject = 0x10\n\toffset = 0x20000\n\tbytes = 0x8c700\n\
                \ttoguid = 0x3f4c985ed9b0a111\n\ttoname = src/fs@c\n";
    assert_eq!((printed.as_str(), code), (list, Some(0)));
}

#[test]
fn wrong_words_and_streams_are_refused() {
    let damaged = {
        let mut bytes = testkit::stream("full");
        bytes[40_000] = 1;
        bytes
    };
    let whole = testkit::stream("longname");
    let endless = testkit::stream("saved-partial");
    for (words, bytes, code, message) in [
        (&[][..], &whole, 1, "usage: zstream command args ...\n"),
        (&["help"], &whole, 1, "usage: zstream command args ...\n"),
        (&["dump", "-x"], &whole, 1, "invalid option 'x'\nusage: zstream"),
        (
            &["dump", "/nonexistent"],
            &whole,
            1,
            "Error while opening file '/nonexistent': No such file or directory\n",
        ),
        (&["token"], &whole, 1, "Need to pass the resume token\nusage: zstream"),
        (
            &["token", "abc"],
            &whole,
            1,
            "Unable to parse resume token: resume token is corrupt (invalid format)\n",
        ),
        (&["redup"], &whole, 1, "usage: zstream"),
        (&["recompress"], &whole, 1, "usage: zstream"),
        (&["recompress", "-l"], &whole, 1, "invalid option 'l'\nusage: zstream"),
        (&["recompress", "-l", "x", "zstd"], &whole, 1, "failed to parse level 'x'\nusage: zstream"),
        (&["recompress", "foo"], &whole, 2, "Invalid compression type foo.\n"),
        (
            &["decompress", "2,0,foo"],
            &whole,
            2,
            "Invalid compression type foo.\nSupported types are off, lz4, lzjb, gzip, zle, and zstd\n",
        ),
        (&["decompress", "2"], &whole, 1, "invalid record '2': it must be OBJECT,OFFSET\nusage: zstream"),
        // The other records are copied.
        (&["decompress", "2,0"], &whole, 0, "zstream: decompression failed for ino 2 offset 0\n"),
        (&["drop_record", "2,0,off"], &whole, 1, "usage: zstream"),
        (
            &["redup", "/dev/null"],
            &whole,
            1,
            "redup reads a file twice, and '/dev/null' is no regular file\n",
        ),
        (&["recompress", "lz4"], &Vec::new(), 1, "zstream: not a send stream\n"),
        (&["recompress", "lz4"], &endless, 0, "zstream: warning: the stream has no end: "),
        (&["dump"], &b"no stream".to_vec(), 1, "zstream: not a send stream\n"),
        (&["dump"], &damaged, 1, "zstream: checksum mismatch at byte "),
        (&["drop_record", "1,0"], &damaged, 1, "zstream: checksum mismatch at byte "),
    ] {
        let output = fed(&mut ours(), words, bytes);
        assert_eq!(output.status.code(), Some(code), "{words:?}");
        assert!(text(&output.stderr).starts_with(message), "{words:?}: {}", text(&output.stderr));
    }
    let output = fed(&mut ours(), &["dump"], &damaged);
    let printed = text(&output.stdout);
    let line = "Incorrect checksum in record header.\n\
                Expected checksum = 376968406357/ff761a1055cac8b/57052d4392a974c3/2312a70c1d0e2c6c\nSUMMARY:\n";
    assert!(printed.contains(line), "{printed}");
}

/// The stream is written though messages cannot be.
#[test]
fn messages_that_cannot_be_written_stop_nothing() {
    let bytes = testkit::stream("longname");
    let words = ["zstream decompress -v 2,0,off", "zstream decompress 2,0,gzip"];
    for words in words {
        let command = format!("exec {} {words} 2>/dev/full", testkit::cenote().display());
        let output = fed(&mut Command::new("sh"), &["-c", &command], &bytes);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(0), bytes.len()), "{words}");
    }
    let command = format!("exec {} zstream bogus 2>/dev/full", testkit::cenote().display());
    assert_eq!(fed(&mut Command::new("sh"), &["-c", &command], &bytes).status.code(), Some(1));
}
