//! Send streams that OpenZFS wrote, from `fixtures/streams`.

use crate::Dataset;
use crate::entries::Entries;
use crate::fixture::workspace_root;
use crate::unpack::decoder;
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;

/// Ending of the name of a packed stream.
const PACKED: &str = ".zstream.zst";

/// Folder of the streams.
#[must_use]
pub fn streams_root() -> PathBuf {
    workspace_root().join("fixtures/streams")
}

/// Names of all streams, sorted.
///
/// # Panics
/// If the folder of streams cannot be listed.
#[must_use]
pub fn stream_names() -> Vec<String> {
    let root = streams_root();
    let listing = fs::read_dir(&root).unwrap_or_else(|error| panic!("{}: {error}", root.display()));
    let mut names: Vec<String> = listing
        .filter_map(Result::ok)
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(PACKED)?.to_owned()))
        .collect();
    names.sort();
    names
}

/// The bytes of a stream.
///
/// # Panics
/// If there is no such stream, or it cannot be unpacked.
#[must_use]
pub fn stream(name: &str) -> Vec<u8> {
    let path = streams_root().join(format!("{name}{PACKED}"));
    let mut bytes = Vec::new();
    let unpacked = File::open(&path).and_then(decoder).and_then(|mut from| from.read_to_end(&mut bytes));
    unpacked.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    bytes
}

/// What OpenZFS's `zfs receive` has made of the streams, in the pool `dst`: its datasets, and all their files.
///
/// # Panics
/// If the answers cannot be read.
#[must_use]
pub fn received() -> (Vec<Dataset>, Entries) {
    #[derive(serde::Deserialize)]
    struct Answers {
        datasets: Vec<Dataset>,
    }

    let path = streams_root().join("received-manifest.json.zst");
    let manifest = File::open(&path).and_then(decoder).map(serde_json::from_reader);
    let manifest = manifest.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let manifest: Answers = manifest.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let path = streams_root().join("received-entries.jsonl.zst");
    let entries = Entries::of_file(&path, "received");
    (manifest.datasets, entries.unwrap_or_else(|error| panic!("{error}")))
}
