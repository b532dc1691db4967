//! `cenote stream` on locked streams, which `zfs send -w` makes of encrypted datasets: golden ones, whose contents are
//! known from what OpenZFS's receive made of them.
// Tests use `std` to make files.
#![allow(clippy::disallowed_types)]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use testkit::{Entry, EntryKind};

/// A folder with the golden streams, and keys.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().expect("a folder"));
        for name in ["raw-full", "raw-incr", "raw-replicate", "full"] {
            fs::write(folder.path(name), testkit::stream(name)).expect("written");
        }
        fs::write(folder.path("key"), testkit::keys::material("passphrase").expect("a key"))
            .expect("written");
        fs::write(folder.path("bad"), "no such passphrase").expect("written");
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, words: &str) -> (Option<i32>, Vec<u8>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        // Without a terminal to ask at.
        command.arg("stream").args(words.split(' ')).current_dir(self.0.path()).stdin(Stdio::null());
        let output = command.output().expect("it starts");
        (output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn told(&self, words: &str) -> Vec<u8> {
        let (code, out, err) = self.run(words);
        assert_eq!(code, Some(0), "{words}: {err}");
        out
    }

    fn refused(&self, words: &str) -> String {
        let (code, out, err) = self.run(words);
        assert_eq!((code, out.as_slice()), (Some(1), &b""[..]), "{words}: {err}");
        err
    }

    /// Compares files with what OpenZFS received. `words`: what reads the streams.
    fn compare(&self, words: &str, snapshot: &str) {
        let files = files_of(&format!("dst/raw@{snapshot}"));
        assert!(files.len() > 4);
        for file in files.iter().take(12) {
            let bytes = self.told(&format!("cat -q {words} @{snapshot}:/{}", file.path_lossy()));
            assert_eq!(Some(testkit::sha256(&bytes)), file.sha256, "{words} {}", file.path_lossy());
        }
    }
}

/// Files with plain names.
fn files_of(dataset: &str) -> Vec<Entry> {
    let is_plain =
        |path: &[u8]| path.iter().all(|byte| byte.is_ascii_alphanumeric() || b"./-_".contains(byte));
    let all = testkit::received().1.filter(|entry| entry.ds == dataset && entry.kind == EntryKind::File);
    all.filter(|entry| entry.sha256.is_some() && !entry.hashes_segments() && is_plain(&entry.path)).collect()
}

#[test]
fn with_their_key_they_are_read() {
    let folder = Folder::new();
    folder.compare("--key key raw-incr raw-full", "1");
    folder.compare("--key src/enc=key raw-incr raw-full", "2");
    let listed = folder.told("ls -q --key key raw-full");
    assert!(!listed.is_empty() && listed == folder.told("ls -q --key key raw-full raw-incr @1:/"));
    assert!(!folder.told("find -q --key key raw-full").is_empty());
    assert!(!folder.told("diff -q --key key raw-full raw-incr @1 @2").is_empty());
    // Large attributes are told, where the file system here has no room for them.
    let (_, _, told) = folder.run("cp -q -r --no-owner --key key raw-full @1:/ out");
    let is_expected = |line: &str| line.contains("attributes") || line.contains("not everything");
    assert!(told.lines().all(is_expected) && folder.path("out/README.txt").exists(), "{told}");
    folder.told("tar -q -f all.tar --key key raw-full @1:/");
    // A volume, in a package: the key of all roots, and that of its own.
    let image = folder.told("cat -q --key key raw-replicate src/enc/vol@2");
    assert!(
        !image.is_empty() && image == folder.told("cat -q --key src/enc/vol=key raw-replicate src/enc/vol@2")
    );
    let told = folder.told("verify -q --key key raw-replicate");
    assert!(String::from_utf8_lossy(&told).ends_with("\ndecrypted: 4 snapshots, every MAC is right\n"));
    // Beside a stream of another pool, or one that is not encrypted, the names are those of the senders, too.
    assert_eq!(folder.told("ls -q --key key raw-full full src/enc@1:/"), listed);
}

#[test]
fn without_their_key_or_with_a_wrong_one_the_message_tells_what_to_do() {
    let folder = Folder::new();
    let told = folder.refused("ls -q raw-full");
    for line in [
        "the stream is locked: 'src/enc@1' is encrypted, and the key of 'src/enc' is not loaded\n",
        "--key FILE loads it, or --key 'src/enc=FILE'\n",
    ] {
        assert!(told.contains(line), "{told}");
    }
    for key in ["bad", "src/enc=bad"] {
        for words in [format!("ls -q --key {key} raw-full"), format!("find -q --key {key} raw-full")] {
            let told = folder.refused(&words);
            let expected =
                "cannot load the key of 'src/enc' from bad: Incorrect key provided for 'src/enc'.\n";
            assert!(told.ends_with(expected), "{words}: {told}");
        }
    }
    let (code, _, told) = folder.run("verify -q --key bad raw-full");
    assert!(code == Some(1) && told.contains("Incorrect key provided for 'src/enc'."), "{told}");
    let told = folder.refused("ls -q --key src/other=key raw-full");
    assert!(told.ends_with("no dataset 'src/other' in the streams\n"), "{told}");
    let told = folder.refused("ls -q --key key --key bad raw-full");
    assert!(told.contains("--key DATASET=FILE"), "{told}");
    let told = folder.refused("ls -q --key nothing raw-full");
    assert!(told.contains("cannot read key file nothing: No such file"), "{told}");
    // What needs no key.
    folder.told("verify -q raw-full raw-incr");
    folder.told("info -q raw-full raw-incr");
}

#[test]
fn a_raw_chain_is_joined_without_its_key_and_stays_raw() {
    let folder = Folder::new();
    for snapshot in ["1", "2"] {
        folder.told(&format!("join -q -f joined-{snapshot} raw-incr raw-full @{snapshot}"));
        let info = folder.told(&format!("info -q -j joined-{snapshot}"));
        assert!(String::from_utf8_lossy(&info).contains("\"raw\""), "it is raw");
        assert!(folder.refused(&format!("ls -q joined-{snapshot}")).contains("the stream is locked"));
        folder.compare(&format!("--key key joined-{snapshot}"), snapshot);
    }
    // The increment goes on from the joined stream.
    folder.compare("--key key joined-1 raw-incr", "2");
}
