//! A folder with images, and commands that run there.
#![allow(dead_code)] // Each test uses its part.

use crate::common;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder with images and the state of the commands.
pub(crate) struct World {
    folder: tempfile::TempDir,
    images: PathBuf,
}

/// Names of the images, and their sizes in MiB.
const IMAGES: [(&str, u64); 9] = [
    ("small", 64),
    ("tiny", 10),
    ("big", 200),
    ("b2", 150),
    ("x140", 140),
    ("x144", 144),
    ("x145", 145),
    ("near", 125),
    ("lnk", 128),
];

impl World {
    /// A folder in memory, if there is such a place: commands open and close the pools again and again.
    pub(crate) fn new() -> World {
        World::below(&common::memory())
    }

    /// A folder that is not below `/dev`: messages name devices there without their folder.
    pub(crate) fn with_whole_paths() -> World {
        World::below(&std::env::temp_dir())
    }

    fn below(folder: &Path) -> World {
        let folder = tempfile::tempdir_in(folder).expect("a folder");
        let world = World { images: folder.path().join("d"), folder };
        std::fs::create_dir(world.images()).expect("made");
        for i in 0..10 {
            world.image(&format!("f{i}"), 128);
        }
        IMAGES.iter().for_each(|(name, size)| world.image(name, *size));
        world
    }

    pub(crate) fn images(&self) -> &Path {
        &self.images
    }

    /// Uses the images in this folder from now on.
    pub(crate) fn use_images(&mut self, folder: &Path) {
        self.images = folder.to_owned();
    }

    #[allow(clippy::disallowed_types)] // An image for the commands, no device of ours.
    pub(crate) fn image(&self, name: &str, mib: u64) {
        let file = std::fs::File::create(self.images().join(name)).expect("made");
        file.set_len(mib << 20).expect("sized");
    }

    /// Runs a command; returns its output, both streams mixed, and its exit code.
    pub(crate) fn run(&self, line: &str) -> (String, i32) {
        let words: Vec<String> = line.split(' ').map(|word| self.here(word)).collect();
        self.run_words(&words)
    }

    pub(crate) fn run_words(&self, words: &[String]) -> (String, i32) {
        let mut command = Command::new(testkit::cenote());
        command.args(words).env_clear().env("TZ", "UTC0").env("CENOTE_DIRECT", "1");
        command.env("CENOTE_STATE", self.folder.path().join("state"));
        let (text, code) = common::run_mixed(command);
        (self.there(&text), code)
    }

    /// Runs a command that must succeed without output.
    pub(crate) fn good(&self, line: &str) {
        assert_eq!(self.run(line), (String::new(), 0), "{line}");
    }

    fn here(&self, text: &str) -> String {
        text.replace("/img/lnk", "/img/d/lnk").replace("/img/d", &self.images().display().to_string())
    }

    fn there(&self, text: &str) -> String {
        text.replace(&self.images().display().to_string(), "/img/d").replace("/img/d/lnk", "/img/lnk")
    }

    /// Output of `zdb` for a pool, if it is installed.
    pub(crate) fn zdb(&self, options: &str, pool: &str) -> Option<(String, bool)> {
        let zdb = Path::new("/usr/sbin/zdb");
        if !zdb.exists() {
            return None;
        }
        let output = testkit::hurried(zdb)
            .args(["-U", "/nonexistent", "-e", "-p"])
            .arg(self.images())
            .args(options.split(' '))
            .arg(pool)
            .output()
            .expect("zdb starts");
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        Some((text, output.status.success()))
    }

    /// Output of `zdb` for the cache file, if it is installed.
    pub(crate) fn zdb_of_cache(&self) -> Option<String> {
        let zdb = Path::new("/usr/sbin/zdb");
        let cache = self.folder.path().join("state/zpool.cache");
        let output = zdb
            .exists()
            .then(|| testkit::hurried(zdb).arg("-CU").arg(cache).output().expect("zdb starts"))?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Checks that the pool is consistent: no block leaks, and none is wrong.
    pub(crate) fn judge(&self, pool: &str) {
        if let Some((text, success)) = self.zdb("-bcc", pool) {
            assert!(
                success && text.contains("No leaks (block sum matches space maps exactly)"),
                "{pool}: {text}"
            );
        }
    }
}

/// The lines with columns squeezed: paths here have other lengths than in the transcripts.
pub(crate) fn squeezed(text: &str) -> Vec<String> {
    let squeeze = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        let words: Vec<&str> = line.split_whitespace().collect();
        format!("{}{}", &line[..indent], words.join(" "))
    };
    text.lines().map(squeeze).collect()
}

/// Runs every command of a transcript, and compares the output.
pub(crate) fn replay(transcript: &str) {
    let world = World::new();
    let mut wrong = Vec::new();
    for block in format!("\n{transcript}").split("\n$ ").skip(1) {
        let (command, rest) = block.split_once('\n').expect("a command and what it printed");
        let (expected, code) = rest.rsplit_once("[exit ").expect("an exit code");
        let code: i32 = code.trim_end().trim_end_matches(']').parse().expect("a number");
        let (printed, exit) = world.run(command);
        if (squeezed(&printed), exit) != (squeezed(expected), code) {
            wrong.push(format!("$ {command}\n--- expected {code}\n{expected}+++ {exit}\n{printed}"));
        }
    }
    assert!(wrong.is_empty(), "{} commands differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Checksums of the devices.
pub(crate) fn sums(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut images: Vec<_> = entries.collect();
    images.sort();
    images.iter().map(|image| testkit::sparse_sha256(image)).collect()
}
