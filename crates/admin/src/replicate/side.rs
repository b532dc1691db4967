//! The two sides of a replication: what the engine asks of where snapshots come from, and of where they go.
//!
//! Three implementations: [`super::Here`] over pools that this process has open, [`super::Commands`] by `zfs …` of any
//! implementation, here or on another machine, and [`super::Files`], a folder of streams. Names are full names at that
//! side.

use serde::{Deserialize, Serialize};
use std::io::{self, PipeReader, Write};

/// A file system or volume as a side has listed it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dataset {
    /// Full name.
    pub name: String,
    /// Guid of the dataset, which it keeps when it is renamed.
    pub guid: u64,
    /// Value of the property [`super::policy::SOURCE`]: guid of the dataset that it is a copy of.
    pub source: Option<u64>,
    /// Token of an interrupted receive.
    pub token: Option<String>,
    /// Snapshots in the order in which they were taken.
    pub snapshots: Vec<Point>,
    /// Bookmarks, in the order of their snapshots.
    pub bookmarks: Vec<Point>,
    /// Time at which the snapshot of the newest full stream was taken; only of folders of streams.
    pub full_at: Option<u64>,
}

/// A snapshot or bookmark.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Point {
    /// The part of the name after `@` or `#`.
    pub name: String,
    /// Guid of the snapshot, also of copies and bookmarks of it.
    pub guid: u64,
    /// Txg in which it was taken at this side: an order, with no meaning at the other side.
    pub createtxg: u64,
    /// Time at which it was taken, in seconds since 1970; the same at both sides.
    pub creation: u64,
    /// Tags of the holds on it.
    pub holds: Vec<String>,
}

/// Properties of users that are set on a dataset itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserProperties {
    /// Full name of the dataset.
    pub dataset: String,
    /// Its guid.
    pub guid: u64,
    /// Names and values. Whoever may set them has chosen all characters.
    pub properties: Vec<(String, String)>,
}

/// A stream that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stream {
    /// Of a snapshot, from another one or a bookmark of the same dataset on, or the whole.
    Of {
        /// Full name of the dataset.
        dataset: String,
        /// Name and guid of the snapshot.
        to: (String, u64),
        /// Name with `@` or `#` and guid of the start; `None`: a full stream.
        from: Option<(String, u64)>,
    },
    /// The rest of an interrupted one.
    Rest {
        /// The token of the receiver.
        token: String,
    },
}

/// How streams are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Blocks as they are on disk, encrypted ones included.
    pub raw: bool,
    /// Compressed blocks as they are.
    pub compressed: bool,
    /// Blocks of more than 128 KiB whole.
    pub large_blocks: bool,
    /// Properties too.
    pub props: bool,
}

/// Where a stream goes, and how.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// Full name of the dataset.
    pub dataset: String,
    /// Changes since the newest snapshot that the stream starts from are given up.
    pub rollback: bool,
    /// Properties that the dataset gets.
    pub set: Vec<(String, String)>,
    /// Properties of the stream that do not take effect.
    pub exclude: Vec<String>,
}

/// What two copies of a snapshot must have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// SHA-256 of the contents.
    Contents([u8; 32]),
    /// The streams are whole by their own checksums: a folder of streams has no contents.
    Whole,
}

/// Why a side has not done something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SideError {
    /// A command could not be started.
    #[error("cannot start '{command}': {source}")]
    Start {
        /// Its first word.
        command: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A command, or a verb, has refused it.
    #[error("{at}: {message}")]
    Refused {
        /// The side.
        at: String,
        /// What it says.
        message: String,
    },
    /// A list that a command has printed has other columns.
    #[error("{at}: '{line}' is no line of a list")]
    List {
        /// The side.
        at: String,
        /// The line.
        line: String,
    },
    /// A file or a pipe.
    #[error("{what}: {source}")]
    Io {
        /// The file, or what was done.
        what: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The stream was damaged, or ended too early.
    #[error("the stream: {problem}")]
    Stream {
        /// What is wrong.
        problem: String,
    },
    /// The side cannot do this at all.
    #[error("{at}: {what}")]
    Unable {
        /// The side.
        at: String,
        /// What it cannot do.
        what: &'static str,
    },
    /// The replication was cancelled.
    #[error("cancelled")]
    Cancelled,
}

/// Result of a request to a side.
pub type Done<T = ()> = Result<T, SideError>;

/// One side. Every request is done as a whole or not at all, but for [`Side::receive`], which may leave a part behind
/// that a token continues.
pub trait Side: Send + Sync {
    /// How messages name the side.
    fn describe(&self) -> String;

    /// A dataset and, with `recursive`, all below it, parents first; nothing if there is none.
    ///
    /// # Errors
    /// [`SideError`]: then it is not known what is there.
    fn list(&self, root: &str, recursive: bool) -> Done<Vec<Dataset>>;

    /// Takes snapshots of these full names, all at one instant.
    ///
    /// # Errors
    /// [`SideError`].
    fn snapshot(&self, names: &[String]) -> Done;

    /// Writes a stream.
    ///
    /// # Errors
    /// [`SideError`]; what was written is incomplete.
    fn send(&self, stream: &Stream, style: Style, out: &mut dyn Write) -> Done;

    /// Receives a stream; what has arrived of an incomplete one can be continued.
    ///
    /// # Errors
    /// [`SideError`].
    fn receive(&self, target: &Target, input: PipeReader) -> Done;

    /// Discards what an interrupted receive has left.
    ///
    /// # Errors
    /// [`SideError`].
    fn abort(&self, dataset: &str) -> Done;

    /// Destroys snapshots of a dataset: parts after `@`.
    ///
    /// # Errors
    /// [`SideError`].
    fn destroy_snapshots(&self, dataset: &str, names: &[String]) -> Done;

    /// Destroys a bookmark, by its full name.
    ///
    /// # Errors
    /// [`SideError`].
    fn destroy_bookmark(&self, name: &str) -> Done;

    /// Destroys a dataset with its snapshots and all below it.
    ///
    /// # Errors
    /// [`SideError`].
    fn destroy_dataset(&self, name: &str) -> Done;

    /// Holds a snapshot, by its full name.
    ///
    /// # Errors
    /// [`SideError`].
    fn hold(&self, snapshot: &str, tag: &str) -> Done;

    /// Releases a hold.
    ///
    /// # Errors
    /// [`SideError`].
    fn release(&self, snapshot: &str, tag: &str) -> Done;

    /// Makes a bookmark of a snapshot; both full names.
    ///
    /// # Errors
    /// [`SideError`].
    fn bookmark(&self, snapshot: &str, bookmark: &str) -> Done;

    /// Renames a dataset with all below it.
    ///
    /// # Errors
    /// [`SideError`].
    fn rename(&self, from: &str, to: &str) -> Done;

    /// Sets a property.
    ///
    /// # Errors
    /// [`SideError`].
    fn set(&self, dataset: &str, property: &str, value: &str) -> Done;

    /// The properties below [`super::targets::PROPERTY`] of a dataset and of those below, of datasets that have some set
    /// themselves. Only of this machine.
    ///
    /// # Errors
    /// [`SideError`].
    fn user_properties(&self, _root: &str) -> Done<Vec<UserProperties>> {
        Ok(Vec::new())
    }

    /// Whether the contents of a dataset are encrypted. What is in files is sent as it is there.
    ///
    /// # Errors
    /// [`SideError`].
    fn is_encrypted(&self, _dataset: &str) -> Done<bool> {
        Ok(false)
    }

    /// What a copy of this snapshot, by its full name, must have in common with it.
    ///
    /// # Errors
    /// [`SideError`]; for a folder of streams: they are not whole.
    fn checksum(&self, snapshot: &str, raw: bool) -> Done<Checksum> {
        let (dataset, name) = snapshot.split_once('@').unwrap_or((snapshot, ""));
        let stream = Stream::Of { dataset: dataset.to_owned(), to: (name.to_owned(), 0), from: None };
        let style = Style { raw, large_blocks: true, ..Style::default() };
        super::digest::of_stream(|out| self.send(&stream, style, out)).map(Checksum::Contents)
    }

    /// True for a folder of streams, which holds streams as they were sent.
    fn is_files(&self) -> bool {
        false
    }
}

/// Removes the values of [`Dataset::source`] that are inherited: a dataset that is not a copy itself shows that of the
/// dataset above it. `datasets`: parents first.
pub(super) fn drop_inherited(datasets: &mut [Dataset]) {
    let values: std::collections::HashMap<String, Option<u64>> =
        datasets.iter().map(|dataset| (dataset.name.clone(), dataset.source)).collect();
    for dataset in datasets {
        let above = dataset.name.rsplit_once('/').and_then(|(above, _)| values.get(above));
        if dataset.source.is_some() && above == Some(&dataset.source) {
            dataset.source = None;
        }
    }
}
