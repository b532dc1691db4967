//! `entries.jsonl.zst` of a fixture: one line for each file of each dataset.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value};

use crate::bytes::base64_decode;
use crate::error::FixtureError;
use crate::unpack::decoder;

/// Kind of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
pub enum EntryKind {
    /// Regular file.
    #[serde(rename = "f")]
    File,
    /// Directory.
    #[serde(rename = "d")]
    Directory,
    /// Symbolic link.
    #[serde(rename = "l")]
    Link,
    /// Character device.
    #[serde(rename = "c")]
    Char,
    /// Block device.
    #[serde(rename = "b")]
    Block,
    /// Named pipe.
    #[serde(rename = "p")]
    Pipe,
    /// Socket.
    #[serde(rename = "s")]
    Socket,
}

/// One file as the other implementation showed it through a mount.
#[derive(Debug, Clone, Deserialize)]
pub struct Entry {
    /// File system or snapshot, full name.
    pub ds: String,
    /// Path below the dataset's root, in bytes; `.` is the root itself.
    #[serde(deserialize_with = "text_or_b64")]
    pub path: Vec<u8>,
    /// Kind of the file.
    #[serde(rename = "type")]
    pub kind: EntryKind,
    /// Mode, as `st_mode` without the kind.
    #[serde(deserialize_with = "octal")]
    pub mode: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Id of the owning group.
    pub gid: u32,
    /// Length in bytes (`st_size`).
    pub size: u64,
    /// Number of links (`st_nlink`).
    pub nlink: u64,
    /// Inode number (`st_ino`); absent if the mount assigned a number of its own.
    pub ino: Option<u64>,
    /// Modification time in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Change time in nanoseconds since 1970.
    pub ctime_ns: i64,
    /// Space on disk in units of 512 bytes (`st_blocks`).
    pub blocks: u64,
    /// SHA-256 of the content, hexadecimal; of the data segments only when [`Entry::hashes_segments`].
    pub sha256: Option<String>,
    /// `segs` when `sha256` covers the data segments only.
    pub sha256_of: Option<String>,
    /// Data segments by SEEK_DATA, `(start, length)`, given when the file is not one segment.
    pub segs: Option<Vec<(u64, u64)>>,
    /// Target of a symbolic link.
    #[serde(default, deserialize_with = "optional_text_or_b64")]
    pub target: Option<Vec<u8>>,
    /// Major and minor number of a device.
    pub rdev: Option<(u32, u32)>,
    /// Extended attributes, POSIX ACLs as `system.posix_acl_*` among them.
    #[serde(default, deserialize_with = "attributes")]
    pub xattr: BTreeMap<String, Vec<u8>>,
    /// Project id; absent if the file system has no projects.
    pub projid: Option<u64>,
    /// Inode flags: 0x10 immutable, 0x20 append only, 0x40 no dump, 0x20000000 inherit project.
    pub xflags: Option<u64>,
    /// Error number with which reading must fail.
    pub read_errno: Option<i32>,
    /// Error number with which reading the link must fail.
    pub readlink_errno: Option<i32>,
    /// All other fields of the line.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Entry {
    /// The path for messages.
    #[must_use]
    pub fn path_lossy(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }

    /// True when `sha256` covers the data segments only (files above 1 GiB).
    #[must_use]
    pub fn hashes_segments(&self) -> bool {
        self.sha256_of.as_deref() == Some("segs")
    }
}

/// Iterator over the entries of a fixture, which unpacks them while it reads.
pub struct Entries {
    lines: std::io::Split<Box<dyn BufRead>>,
    name: String,
}

impl Entries {
    pub(crate) fn open(folder: &Path, name: &str) -> Result<Entries, FixtureError> {
        Entries::of_file(&folder.join("entries.jsonl.zst"), name)
    }

    /// The entries in this packed file.
    pub(crate) fn of_file(path: &Path, name: &str) -> Result<Entries, FixtureError> {
        let failed = |source| FixtureError::Io { path: path.to_owned(), source };
        let plain = File::open(path).and_then(decoder).map_err(failed)?;
        let lines: Box<dyn BufRead> = Box::new(BufReader::new(plain));
        Ok(Entries { lines: lines.split(b'\n'), name: name.to_owned() })
    }
}

impl Iterator for Entries {
    type Item = Entry;

    /// # Panics
    /// If a line is not an entry: a golden file with errors is no base for a test.
    fn next(&mut self) -> Option<Entry> {
        loop {
            let line = self.lines.next()?.unwrap_or_else(|error| panic!("entries of {}: {error}", self.name));
            if !line.is_empty() {
                let entry = serde_json::from_slice(&line);
                return Some(entry.unwrap_or_else(|error| {
                    panic!("entries of {}: {error}: {}", self.name, String::from_utf8_lossy(&line))
                }));
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TextOrB64 {
    Text(String),
    Coded { b64: String },
}

impl TextOrB64 {
    fn bytes<E: serde::de::Error>(self) -> Result<Vec<u8>, E> {
        match self {
            TextOrB64::Text(text) => Ok(text.into_bytes()),
            TextOrB64::Coded { b64 } => base64_decode(&b64).ok_or_else(|| E::custom("not base64")),
        }
    }
}

fn text_or_b64<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    TextOrB64::deserialize(from)?.bytes()
}

fn optional_text_or_b64<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u8>>, D::Error> {
    Option::<TextOrB64>::deserialize(from)?.map(TextOrB64::bytes).transpose()
}

fn octal<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let text = String::deserialize(from)?;
    u32::from_str_radix(&text, 8).map_err(D::Error::custom)
}

fn attributes<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, Vec<u8>>, D::Error> {
    let coded = BTreeMap::<String, String>::deserialize(from)?;
    let plain = |(name, value): (String, String)| Some((name, base64_decode(&value)?));
    coded.into_iter().map(|pair| plain(pair).ok_or_else(|| D::Error::custom("not base64"))).collect()
}
