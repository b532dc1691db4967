//! What the tests of every crate need: the golden pools, their manifests and keys, and the judges.
//!
//! A dev-dependency only. It stands beside the house, not in it: it knows no ZFS format, so
//! that the golden answers never come out of the code that they judge.
//!
//! # What always holds
//! - A folder given by [`Fixture::dir`] holds all images of that pool, whole, and nothing else:
//!   images are unpacked beside it and moved there in one rename. It is shared by all tests and
//!   read-only; a test that changes images asks for [`Fixture::scratch`].
//! - What a test cannot do for want of a tool is said with [`skip`], never passed over.
//! - Unsafe code is in [`alloc`] only: an allocator cannot be written without.
//!
//! ```no_run
//! let pool = testkit::Fixture::open("single");
//! println!("{} in {}", pool.manifest().pool, pool.dir().display());
//! for entry in pool.entries() {
//!     println!("{} {}", entry.ds, entry.path_lossy());
//! }
//! ```
// Images are written and copied here, beside the house, where `vdev` must not be used.
#![allow(clippy::disallowed_types)]

pub mod alloc;
mod bytes;
mod entries;
mod error;
mod fixture;
pub mod fuzz;
mod judge;
pub mod keys;
mod manifest;
mod unpack;

pub use bytes::{base64_decode, hex, sha256};
pub use entries::{Entries, Entry, EntryKind};
pub use error::FixtureError;
pub use fixture::{Fixture, Scratch, fixtures_root, workspace_root};
pub use judge::{assert_zdb_clean, hurried, need_file, need_root, need_tool, skip, tool};
pub use manifest::{Dataset, Image, Manifest, Partition, Property, SpaceRow, ZdbResult};
