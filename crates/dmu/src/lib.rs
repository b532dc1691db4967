//! Objects: numbered arrays of bytes in object sets, made of trees of blocks.
//!
//! Above this crate nobody sees a block pointer's checksum or a device; below it nobody knows that
//! dnodes exist. [`ObjSet`] opens the root block of a dataset, [`Object`] reads one object of it,
//! [`zap`] reads name-value objects, [`traverse`] visits every block.
//!
//! # What always holds
//! - A pointer is followed only if it says what its place in the tree demands: level, type and
//!   size. So a walk of a hostile pool never allocates more than a block at a time; that it ends,
//!   although trees may repeat themselves, is the business of [`Room`] and [`Blocks`].
//! - Blocks are cached by place and birth ([`arc`]), so snapshots and clones share the cache.
//!
//! Source: `docs/on-disk/20-dmu.md`, `21-zap.md`.
#![forbid(unsafe_code)]

pub mod arc;
mod error;
pub mod interrupt;
pub mod live;
pub mod log;
mod object;
mod objset;
pub mod panics;
mod prefetch;
pub use prefetch::PREFETCH_DISABLE;
mod reading;
mod room;
mod store;
mod sync;
pub mod traverse;
pub mod zap;
pub mod zil;

pub use error::DmuError;
pub use object::{Blocks, Object};
pub use objset::{KeyState, Lease, ObjSet};
pub use room::Room;
pub use store::{Store, Witness};

/// What everybody above holds who changes objects: transactions, and clock, random numbers and workers; and
/// the bytes of a block.
pub use zio::{AllocTx, Block, Env};
