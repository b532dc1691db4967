//! Samples by fuzz target, and their files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Maximum length of a sample in bytes.
const LEN_MAX: usize = (16 << 10) + 16;
/// Maximum length of a sample of a whole ZAP in bytes: a header and a leaf of the usual size.
const ZAP_LEN_MAX: usize = 33 << 10;
/// Maximum number of samples of a target.
const FILES_MAX: usize = 32;
/// Maximum size of all samples of a target in bytes.
const BYTES_MAX: usize = 120 << 10;

/// Samples by crate and target, then by their special property.
#[derive(Default)]
pub(crate) struct Corpus(BTreeMap<(&'static str, &'static str), BTreeMap<String, Vec<u8>>>);

impl Corpus {
    /// Adds a sample from a golden pool. Of samples with the same special property the shortest is kept.
    pub(crate) fn add(&mut self, folder: &'static str, target: &'static str, special: &str, bytes: Vec<u8>) {
        self.insert(folder, target, format!("real-{special}"), bytes);
    }

    /// Adds a hand-made sample.
    pub(crate) fn make(&mut self, folder: &'static str, target: &'static str, special: &str, bytes: Vec<u8>) {
        self.insert(folder, target, format!("made-{special}"), bytes);
    }

    #[allow(clippy::needless_pass_by_value)] // Callers make the name for this call alone.
    fn insert(&mut self, folder: &'static str, target: &'static str, name: String, bytes: Vec<u8>) {
        let most = if target == "whole_zaps" { ZAP_LEN_MAX } else { LEN_MAX };
        if bytes.len() > most {
            return;
        }
        let name = name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_");
        let samples = self.0.entry((folder, target)).or_default();
        match samples.get(&name) {
            Some(old) if old.len() <= bytes.len() => {}
            _ => {
                samples.insert(name, bytes);
            }
        }
    }

    /// Writes the files, and removes those of an earlier run.
    pub(crate) fn write(&self) {
        let mut total = 0;
        for ((folder, target), samples) in &self.0 {
            let root = testkit::workspace_root().join("crates").join(folder);
            let path = testkit::fuzz::corpus(&root, target);
            empty(&path);
            let (mut count, mut bytes) = (0, 0);
            for (name, sample) in choose(samples) {
                fs::write(path.join(name), sample).expect("the corpus can be written");
                count += 1;
                bytes += sample.len();
            }
            total += bytes;
            println!("{folder} {target}: {count} of {} samples, {bytes} bytes", samples.len());
        }
        println!("{total} bytes in all");
    }
}

fn empty(path: &Path) {
    fs::create_dir_all(path).expect("the folder can be made");
    for entry in fs::read_dir(path).expect("the folder can be listed").flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("real-") || name.starts_with("made-") {
            fs::remove_file(entry.path()).expect("an old sample can be removed");
        }
    }
}

/// All hand-made samples, and a selection of the real ones, without duplicates.
fn choose(samples: &BTreeMap<String, Vec<u8>>) -> Vec<(&String, &Vec<u8>)> {
    let mut chosen: Vec<(&String, &Vec<u8>)> = Vec::new();
    let mut bytes = 0;
    let (made, real): (Vec<_>, Vec<_>) = samples.iter().partition(|(name, _)| name.starts_with("made-"));
    let step = real.len().div_ceil(FILES_MAX).max(1);
    for (name, sample) in made.into_iter().chain(real.into_iter().step_by(step)) {
        let is_new = chosen.iter().all(|(_, other)| *other != sample);
        if is_new && bytes + sample.len() <= BYTES_MAX {
            bytes += sample.len();
            chosen.push((name, sample));
        }
    }
    chosen
}
