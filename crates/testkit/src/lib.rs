//! Common parts of the tests of all crates: the golden pools, their manifests and keys, and the judges.
//!
//! It is used as a dev-dependency only. It contains no code for ZFS formats, so that the expected results
//! never come from the code that they judge.
//!
//! # What always holds
//! - A folder returned by [`Fixture::dir`] holds all images of that pool, complete, and no other files:
//!   images are unpacked beside it and moved there in one rename. It is shared by all tests and read-only; a
//!   test that changes images uses [`Fixture::scratch`].
//! - A test that cannot do its job because a tool is missing reports that with [`skip`].
//! - Unsafe code is in [`alloc`] only: an allocator cannot be written without it.
//!
//! ```no_run
//! let pool = testkit::Fixture::open("single");
//! println!("{} in {}", pool.manifest().pool, pool.dir().display());
//! for entry in pool.entries() {
//!     println!("{} {}", entry.ds, entry.path_lossy());
//! }
//! ```
// Images of tests are written and copied here with `std`, because `vdev` is under test.
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
mod streams;
mod unpack;

pub use bytes::{base64_decode, hex, sha256, sparse_sha256};
pub use entries::{Entries, Entry, EntryKind};
pub use error::FixtureError;
pub use fixture::{Fixture, Scratch, fixtures_root, workspace_root};
pub use judge::{assert_zdb_clean, cenote, hurried, need_file, need_root, need_tool, skip, tool};
pub use manifest::{Dataset, Image, Manifest, Partition, Property, SpaceRow, ZdbResult};
pub use streams::{received, stream, stream_names, streams_root};
