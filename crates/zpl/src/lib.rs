//! What a dataset's objects mean to people: files and directories, and volumes.
//!
//! [`Filesystem`] opens an object set of files and gives [`Node`]s by number, name or path; a node has
//! attributes, content, entries, extended attributes and an ACL. [`Volume`] is the other consumer of objects:
//! one range of bytes. [`Fs`] is a file system opened for writing: every operation of POSIX by the numbers of
//! files, as servers of FUSE and NFS need them; [`VolumeWriter`] is a volume opened for writing.
//! [`make_filesystem`] and [`make_volume`] fill a new dataset; [`replay`] repeats what an intent log says.
//! Reading goes through [`Filesystem`] and [`Node`], which show the newest state ([`Fs::reader`]). Called by
//! `cenote`; knows `dmu` and `dsl`, and nothing of pools.
//!
//! # What always holds
//! - Attributes are decoded once, when a node is opened; layouts are resolved once, when the file
//!   system is. Nothing is decoded twice on a hot path.
//! - What a directory or a link says is checked before it is believed: names that no directory can
//!   hold are left out, sizes are clipped, parents are followed a bounded number of times.
//! - Each operation of docs/on-disk/23-zpl.md, section 6, is in one transaction; what can fail is checked
//!   before it begins or before the first change. Only what frees many blocks does so in several, from the
//!   end, each with its own record, so that no txg has more to free than memory should list.
//! - Of a change of names that fails, nothing stays: entries are put back (`edits`), attributes come last.
//! - No thread waits for a lock of long duration while it holds a transaction.
//! - Attributes in memory and on disk are the same; a file in memory is the only one of its number.
//! - No object is freed while an operation on its content or settings runs, or while a [`Hold`] keeps it.
//!
//! # Order of locks
//! settings of one file -> renames between directories -> names of directories, by number -> ranges of bytes,
//! by number -> transaction -> state of one inode -> locks of `dmu`.
//!
//! Source: `docs/on-disk/23-zpl.md`, `24-zil.md` (sections 4 and 7), `25-zvol.md`. Tests: beside the code,
//! `tests/golden`, `tests/write` (a model of POSIX, crashes and their logs, threads), `tests/hostile`,
//! `tests/judged` (by `zdb`).
#![forbid(unsafe_code)]

mod access;
mod acl;
mod attrs;
mod dir;
mod error;
mod file;
mod fs;
mod fuid;
mod node;
mod space;
mod volume;
mod xattr;

pub use access::{
    Access, Cred, allowed_mode, may_access, may_change_attrs, may_chown, may_remove, without_set_ids,
};
pub use acl::Acl;
pub use acl::change::encode_posix;
pub use attrs::Attrs;
pub use attrs::record::NewAttrs;
pub use dir::names::{Made, NewFile};
pub use dir::path::NameIn;
pub use dir::rename::RenameHow;
pub use dir::{DirEntries, DirEntry, DirPage, Listed};
pub use error::{BeginError, ZplError};
pub use file::clone_range::FileRange;
pub use file::data::{Allocate, WriteHow};
pub use format::acl::{Ace, Who};
pub use format::znode::Time;
pub use fs::backing::{Backing, CloneTable, Cost, IntentLog, NoLog};
pub use fs::head::{AppliedLogs, HeadFs, HeadVolume, PoolClones, options_of};
pub use fs::make::{NewFilesystem, make_filesystem, make_volume, upgrade_filesystem};
pub use fs::options::{AccessTimes, FsOptions, SnapshotDir, XattrStorage};
pub use fs::replay::replay;
pub use fs::stat::{FsStats, Stat};
pub use fs::writable::Fs;
pub use fs::{CaseSensitivity, Filesystem};
pub use fuid::NOBODY;
pub use node::Node;
pub use node::hold::Hold;
pub use node::kind::FileKind;
pub use space::{QuotaOf, SpaceKind, SpaceRow};
pub use volume::Volume;
pub use volume::writer::VolumeWriter;
pub use xattr::NameAndValue;
pub use xattr::change::XattrHow;
