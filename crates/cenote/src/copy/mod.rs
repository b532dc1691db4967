//! Getting files out of a pool: to a folder of the host, or as a tar archive.
//!
//! [`walk`] goes through a tree of a file system; [`extract`] and [`archive`] write what it
//! meets with [`host`] and [`tar`]. Nothing here prints: who calls hears of each file, each
//! problem and each attribute that could not be kept through an [`Observer`].
//!
//! # What always holds
//! - A file that cannot be read whole is never passed off as whole: it is left out, or (when
//!   asked for) filled with zeros, and told either way with the ranges that are lost.
//! - Every name and every number from the pool is taken for hostile: names that are no names are
//!   told as damage, loops of directories end, copies stay beneath their target.

pub mod archive;
pub mod extract;
pub mod host;
pub mod import;
pub mod meta;
pub mod source;
pub mod tar;
pub mod untar;
pub mod walk;

use std::io;

use crate::error::chain;
use host::Lost;
use tar::BadRange;
use walk::Trouble;
use zpl::ZplError;

/// Hears how a copy goes on.
pub trait Observer {
    /// A file or directory is about to be copied.
    fn begins(&mut self, path: &[u8]) {
        let _ = path;
    }

    /// This many bytes of data were copied since the last call.
    fn copied(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// Something is not as it should be.
    fn problem(&mut self, path: &[u8], problem: &Problem);
}

/// Something that did not go as it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A place of the tree could not be visited, or not whole.
    #[error(transparent)]
    Tree(#[from] Trouble),
    /// Ranges of the file are lost.
    #[error("{}", damaged_text(ranges, *left_out))]
    Damaged {
        /// What could not be read, in order.
        ranges: Vec<BadRange>,
        /// The file was left out; otherwise it has zeros there.
        left_out: bool,
    },
    /// Extended attributes or the ACL could not be read.
    #[error("cannot read its attributes: {0}")]
    Attributes(#[source] ZplError),
    /// The copy could not be written.
    #[error("{}", host_text(.0))]
    Host(#[source] io::Error),
    /// The host could not make a hard link: the file was copied once more.
    #[error("copied instead of linked: {}", host_text(.0))]
    NotLinked(#[source] io::Error),
    /// Something of the host could not be read.
    #[error("{}", host_text(.0))]
    Source(#[source] io::Error),
    /// The copy could not be written into the pool.
    #[error(transparent)]
    Target(#[from] ZplError),
    /// Something of another kind has the name.
    #[error("a {kind} is in the way")]
    InTheWay {
        /// What it is.
        kind: zpl::FileKind,
    },
    /// Source and target are the same file.
    #[error("it is the same file")]
    SameFile,
    /// A member's name would lead out of the target.
    #[error("its name contains '..'")]
    LeadsOut,
    /// A member's name goes through a symbolic link.
    #[error("cannot go through the symbolic link '{}'", name.escape_ascii())]
    ThroughLink {
        /// The component that is a link.
        name: Vec<u8>,
    },
    /// A hard link to something that is not there.
    #[error("cannot link to '{}': it is not there", target.escape_ascii())]
    NoTarget {
        /// What it is to.
        target: Vec<u8>,
    },
    /// Archives have no sockets.
    #[error("a socket, which an archive cannot hold: left out")]
    Socket,
    /// An attribute was not kept.
    #[error("{}", lost_text(.0))]
    Lost(Lost),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        Problem::Host(error)
    }
}

impl From<Lost> for Problem {
    fn from(lost: Lost) -> Problem {
        Problem::Lost(lost)
    }
}

impl Problem {
    /// All content is there: only something about it could not be kept on this host.
    #[must_use]
    pub fn is_minor(&self) -> bool {
        // An owner cannot be kept by most users; extended attributes and ACLs are content.
        !matches!(self, Problem::Lost(Lost::Xattr(..) | Lost::Acl))
            && matches!(self, Problem::Lost(_) | Problem::NotLinked(_) | Problem::Socket)
    }
}

/// Counts of a copy.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Names written, directories not counted.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// Bytes of data.
    pub bytes: u64,
    /// Problems because of which something is missing from the copy.
    pub failures: u64,
    /// Problems that concern attributes only.
    pub minor: u64,
}

impl Summary {
    fn count(&mut self, problem: &Problem) {
        if problem.is_minor() {
            self.minor += 1;
        } else {
            self.failures += 1;
        }
    }
}

/// `above/below`, where either may be empty.
fn join(above: &[u8], below: &[u8]) -> Vec<u8> {
    match (above, below) {
        (above, b"") => above.to_vec(),
        (b"", below) => below.to_vec(),
        (above, below) if above.ends_with(b"/") => [above, below].concat(),
        (above, below) => [above, b"/", below].concat(),
    }
}

/// The system's words, without the number that Rust adds.
pub(crate) fn host_text(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(at) => text.get(..at).unwrap_or(&text).to_owned(),
        None => text,
    }
}

fn damaged_text(ranges: &[BadRange], left_out: bool) -> String {
    const SHOWN: usize = 4;
    let text = |range: &BadRange| format!("{}-{}", range.offset, range.offset + range.len - 1);
    let mut list: Vec<String> = ranges.iter().take(SHOWN).map(text).collect();
    if ranges.len() > SHOWN {
        list.push(format!("and {} more", ranges.len() - SHOWN));
    }
    let bytes: u64 = ranges.iter().map(|range| range.len).sum();
    let done = if left_out { "left out" } else { "zeros in their place" };
    let cause = ranges.first().map(|range| format!(": {}", chain(&range.error))).unwrap_or_default();
    format!("{bytes} bytes cannot be read (bytes {}), {done}{cause}", list.join(", "))
}

fn lost_text(lost: &Lost) -> String {
    match lost {
        Lost::Owner => "owner not kept: not permitted".to_owned(),
        Lost::Xattr(name, why) => {
            format!("extended attribute {} not kept: {why}", String::from_utf8_lossy(name))
        }
        Lost::Acl => "NFSv4 ACL not kept: Linux has none".to_owned(),
        Lost::Mode(why) => format!("mode not kept: {why}"),
        Lost::Times(why) => format!("times not kept: {why}"),
    }
}
