//! Changing file systems and volumes.
//!
//! [`Fs`] is a file system opened for writing: every operation of POSIX by the numbers of files, as servers
//! of FUSE and NFS want them. [`VolumeWriter`] is a volume. [`make_filesystem`] and [`make_volume`] fill a
//! new dataset; [`replay`] does again what an intent log says. Reading goes through [`crate::Filesystem`] and
//! [`crate::Node`], which show the newest state ([`Fs::reader`]).
//!
//! # What always holds
//! - Each operation of docs/on-disk/23-zpl.md, section 6, is in one transaction; what can fail is checked
//!   before it begins or before the first change. Only what frees many blocks does so in several, from the end, each
//!   with its own record, so that no txg has more to free than memory should list.
//! - Of a change of names that fails, nothing stays: entries are put back (`edits`), attributes come last.
//! - Nobody waits for a lock of long duration while holding a transaction.
//! - Attributes in memory and on disk are the same; a file in memory is the only one of its number.
//! - Nobody frees an object while an operation on its content or settings runs, or while a [`Hold`] keeps it.
//!
//! # Order of locks
//! settings of one file -> renames between directories -> names of directories, by number -> ranges of bytes,
//! by number -> transaction -> state of one inode -> locks of `dmu`.
//!
//! Source: `docs/on-disk/23-zpl.md`, `24-zil.md` (sections 4 and 7), `25-zvol.md`. Tests: `tests/write` (a model
//! of POSIX, crashes and their logs, threads), `tests/hostile`, `tests/judged` (by `zdb`).

mod access;
mod acl;
mod clone;
mod data;
mod edits;
mod foresight;
mod fresh;
mod fs;
mod head;
mod hold;
mod home;
mod inode;
mod make;
mod names;
mod options;
mod quota;
mod range_lock;
mod rename;
mod replay;
mod sa;
mod setattr;
mod stat;
mod table;
mod unlink;
mod volume;
mod xattr;

pub use access::{
    Access, Cred, allowed_mode, may_access, may_change_attrs, may_chown, may_remove, without_set_ids,
};
pub use acl::encode_posix;
pub use clone::FileRange;
pub use data::{Allocate, WriteHow};
pub use fs::Fs;
pub use head::{AppliedLogs, HeadFs, HeadVolume, PoolClones, options_of};
pub use hold::Hold;
pub use home::{BeginError, CloneTable, Cost, Home, IntentLog, NoLog};
pub use make::{NewFilesystem, make_filesystem, make_volume, upgrade_filesystem};
pub use names::{Made, NewFile};
pub use options::{AccessTimes, FsOptions, SnapshotDir, XattrStorage};
pub use quota::QuotaOf;
pub use rename::RenameHow;
pub use replay::replay;
pub use setattr::NewAttrs;
pub use stat::{FsStats, Stat};
pub use volume::VolumeWriter;
pub use xattr::XattrHow;

/// The device number as the file system stores it: in the form of Linux where it fits, else a half word
/// each.
fn encode_device(major: u32, minor: u32) -> u64 {
    if major < 1 << 12 && minor < 1 << 20 {
        u64::from(major) << 20 | u64::from(minor)
    } else {
        u64::from(major) << 32 | u64::from(minor)
    }
}
