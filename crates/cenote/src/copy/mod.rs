//! Copies files between pools, directories of the host and tar archives.
//!
//! [`walk`] visits a tree of a file system; [`Extractor`] and [`Archiver`] write its files with [`HostTree`] and
//! [`TarWriter`]. [`import`] copies into a pool. Nothing is printed: an [`Observer`] is called for each file, each
//! problem and each attribute that could not be kept.
//!
//! # What always holds
//! - A file that cannot be read completely is left out or, on request, filled with zeros. Either way the lost
//!   ranges are reported.
//! - Every name and number from a pool is treated as hostile: impossible names are reported as damage, walks
//!   through loops of directories end, and copies stay below their target.

mod archive;
mod extract;
mod host;
pub mod import;
mod meta;
mod source;
mod tar;
mod untar;
mod walk;

pub use archive::Archiver;
pub use extract::Extractor;
pub use host::{Damaged, HostTree, Lost};
pub use meta::{Content, Kind, Segment, Stamp};
pub use source::{child_filesystems, children, known_segments};
pub use tar::{BadRange, Piece, TarWriter, ace_text, read_in_blocks};
pub use untar::{TarError, TarReader};
pub use walk::{Child, Children, Flow, Position, Trouble, Visitor, walk};

use std::io;

use crate::error::{chain, errno_text};
use zpl::ZplError;

/// Observer of a copy.
pub trait Observer {
    /// Called before a file or directory is copied.
    fn begins(&mut self, path: &[u8]) {
        let _ = path;
    }

    /// Called with the number of data bytes copied since the last call.
    fn copied(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// Called for each problem.
    fn problem(&mut self, path: &[u8], problem: &Problem);
}

/// A problem with one path of a copy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A file or directory of the source could not be read, or only in part.
    #[error(transparent)]
    Tree(#[from] Trouble),
    /// Ranges of the file cannot be read.
    #[error("{}", damaged_text(ranges, *left_out))]
    Damaged {
        /// The ranges, in order.
        ranges: Vec<BadRange>,
        /// True if the file was left out; otherwise it has zeros in these ranges.
        left_out: bool,
    },
    /// Extended attributes or the ACL could not be read.
    #[error("cannot read its attributes: {0}")]
    Attributes(#[source] ZplError),
    /// The copy could not be written.
    #[error("{}", errno_text(.0))]
    Host(#[source] io::Error),
    /// The host could not create a hard link: the file was copied again.
    #[error("copied instead of linked: {}", errno_text(.0))]
    NotLinked(#[source] io::Error),
    /// A file or directory of the host could not be read.
    #[error("{}", errno_text(.0))]
    Source(#[source] io::Error),
    /// The copy could not be written into the pool.
    #[error(transparent)]
    Target(#[from] ZplError),
    /// The name belongs to a file of another kind.
    #[error("a {kind} is in the way")]
    InTheWay {
        /// Kind of that file.
        kind: zpl::FileKind,
    },
    /// Source and target are the same file.
    #[error("it is the same file")]
    SameFile,
    /// The name of a member contains `..`.
    #[error("its name contains '..'")]
    LeadsOut,
    /// The path of a member goes through a symbolic link.
    #[error("cannot go through the symbolic link '{}'", name.escape_ascii())]
    ThroughLink {
        /// The component that is a symbolic link.
        name: Vec<u8>,
    },
    /// The target of a hard link does not exist.
    #[error("cannot link to '{}': it is not there", target.escape_ascii())]
    NoTarget {
        /// Name of the target.
        target: Vec<u8>,
    },
    /// The file is a socket, which archives cannot hold.
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
    /// True if the content was copied and only attributes were lost.
    #[must_use]
    pub fn is_minor(&self) -> bool {
        // Most users cannot set owners, so that is minor; extended attributes and ACLs are content.
        !matches!(self, Problem::Lost(Lost::Xattr(..) | Lost::Acl))
            && matches!(self, Problem::Lost(_) | Problem::NotLinked(_) | Problem::Socket)
    }
}

/// Result counts of a copy.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Names written, directories excluded.
    pub files: u64,
    /// Directories written.
    pub dirs: u64,
    /// Bytes of data written.
    pub bytes: u64,
    /// Problems after which content is missing from the copy.
    pub failures: u64,
    /// Problems with attributes only.
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
