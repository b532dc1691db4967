//! Pools on files, created and used only through the public interface.

use std::path::Path;

use cenote::{OpenOptions, Pool, PoolWriter};
use cenote_admin::change::NewPool;

/// A directory of image files for a pool `p`.
pub(crate) struct Images {
    pub(crate) dir: tempfile::TempDir,
}

impl Images {
    pub(crate) fn new() -> Images {
        Images { dir: tempfile::tempdir().expect("a folder") }
    }

    /// Creates an image file; returns its path.
    pub(crate) fn file(&self, name: &str, size: u64) -> String {
        let path = self.dir.path().join(name);
        std::fs::File::create(&path).and_then(|file| file.set_len(size)).expect("a file");
        path.to_str().expect("plain names").to_owned()
    }

    /// Creates the pool. Words that are not in the vdev grammar become image files of this size.
    pub(crate) fn pool(&self, size: u64, vdevs: &str, props: &[(&str, &str)]) -> PoolWriter {
        self.describe(size, vdevs, props).create().expect("a pool")
    }

    pub(crate) fn describe(&self, size: u64, vdevs: &str, props: &[(&str, &str)]) -> NewPool {
        let grammar = |word: &str| {
            ["mirror", "log", "special", "spare", "cache"].contains(&word) || word.starts_with("raidz")
        };
        let words: Vec<String> = vdevs
            .split_whitespace()
            .map(|word| if grammar(word) { word.to_owned() } else { self.file(word, size) })
            .collect();
        let new = NewPool::new("p", &words).expect("free files");
        props.iter().fold(new, |new, (name, value)| new.with(name, value))
    }

    pub(crate) fn search(&self) -> OpenOptions {
        OpenOptions::new().search(self.dir.path())
    }

    pub(crate) fn open_rw(&self) -> PoolWriter {
        Pool::open_rw("p", &self.search()).expect("it was exported")
    }

    /// Output of `zdb` on the exported pool; `None`: `zdb` is not installed.
    pub(crate) fn zdb(&self, args: &[&str]) -> Option<String> {
        zdb(self.dir.path(), args)
    }

    /// Checks the exported pool with `zdb`.
    pub(crate) fn judge(&self) {
        testkit::assert_zdb_clean(self.dir.path(), "p");
    }
}

pub(crate) fn zdb(dir: &Path, args: &[&str]) -> Option<String> {
    Some(try_zdb(dir, args)?.unwrap_or_else(|| panic!("zdb {args:?} fails")))
}

/// Output of `zdb`, if it can read the pool; `None`: `zdb` is not installed.
pub(crate) fn try_zdb(dir: &Path, args: &[&str]) -> Option<Option<String>> {
    let zdb = testkit::need_tool("zdb")?;
    let output = testkit::hurried(zdb).args(["-e", "-p"]).arg(dir).args(args).output().expect("zdb runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        println!("zdb {args:?}: {text}\n{errors}");
        return Some(None);
    }
    Some(Some(text + &errors))
}

/// Incompressible bytes.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

impl Images {
    /// Bytes of a block of the exported pool as they are on disk, read with `zdb -R`.
    pub(crate) fn raw(&self, block: &str) -> Option<Vec<u8>> {
        let zdb = testkit::need_tool("zdb")?;
        let output =
            testkit::hurried(zdb).args(["-e", "-p"]).arg(self.dir.path()).args(["-R", "p", block]).output();
        Some(output.expect("zdb runs").stdout)
    }
}
