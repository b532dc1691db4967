//! What a dataset's objects mean to people: files and directories, and volumes.
//!
//! [`Filesystem`] opens an object set of files and gives [`Node`]s by number, name or path; a node
//! has attributes, content, entries, extended attributes and an ACL. [`Volume`] is the other
//! consumer of objects: one range of bytes. Called by `cenote`; knows `dmu`, and nothing of pools.
//!
//! # What always holds
//! - Attributes are decoded once, when a node is opened; layouts are resolved once, when the file
//!   system is. Nothing is decoded twice on a hot path.
//! - What a directory or a link says is checked before it is believed: names that no directory can
//!   hold are left out, sizes are clipped, parents are followed a bounded number of times.
//! - Nothing but [`mod@write`] writes.
//!
//! Source: `docs/on-disk/23-zpl.md`, `25-zvol.md`. Tests: beside the code and `tests/golden.rs`.
#![forbid(unsafe_code)]

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
pub mod write;
mod xattr;

pub use acl::Acl;
pub use attrs::Attrs;
pub use dir::{DirEntries, DirEntry, DirPage, Listed};
pub use error::ZplError;
pub use format::acl::{Ace, Who};
pub use format::znode::Time;
pub use fs::{CaseSensitivity, Filesystem, NameIn};
pub use fuid::NOBODY;
pub use node::{FileKind, Node};
pub use space::{SpaceKind, SpaceRow};
pub use volume::Volume;
pub use xattr::NameAndValue;
