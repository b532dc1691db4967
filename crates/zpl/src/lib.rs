//! The two consumers of the DMU's objects: file systems and volumes.
//!
//! [`Filesystem`] opens an object set of files and finds [`Node`]s by number, name or path; a node has
//! attributes, content, entries, extended attributes and an ACL. [`Volume`] is a single range of bytes.
//! [`Fs`] is a file system opened for writing: every operation of POSIX by object number, as servers of FUSE
//! and NFS need them; [`VolumeWriter`] is a volume opened for writing. [`make_filesystem`] and
//! [`make_volume`] fill a new dataset; [`replay`] applies the records of an intent log. Reading goes through
//! [`Filesystem`] and [`Node`], which show the newest state ([`Fs::reader`]). Called by `cenote`; uses `dmu`
//! and `dsl`, and does not depend on pools.
//!
//! # What always holds
//! - Attributes are decoded once, when a node is opened; layouts are resolved once, when the file system is
//!   opened. No hot path decodes twice.
//! - The contents of a directory or link are checked before use: names that no directory can hold are
//!   skipped, sizes are clipped, parents are followed a bounded number of times.
//! - Each operation of docs/on-disk/23-zpl.md, section 6, is in one transaction; its checks run before it
//!   begins or before the first change. Only an operation that frees many blocks uses several transactions,
//!   from the end of the file, each with its own record, so that no txg frees more blocks than fit in memory.
//! - A failed change of names leaves no trace: entries are put back (`edits`), attributes are changed last.
//! - No thread waits for a lock of long duration while it holds a transaction.
//! - Attributes in memory and on disk are the same; an object has at most one inode in memory.
//! - No object is freed while an operation on its content or settings runs, or while a [`Hold`] keeps it.
//!
//! # Order of locks
//! settings of one file -> renames between directories -> names of directories, by number -> ranges of bytes,
//! by number -> transaction -> state of one inode -> locks of `dmu`.
//!
//! Source: `docs/on-disk/23-zpl.md`, `24-zil.md` (sections 4 and 7), `25-zvol.md`. Tests: beside the code,
//! `tests/it/golden`, `tests/it/write` (a model of POSIX, crashes and their logs, threads),
//! `tests/it/judged.rs` (by `zdb`), `tests/hostile`.
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
