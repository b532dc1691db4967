//! Block pointers to bytes, and bytes to block pointers.
//!
//! The layer between object sets, which know block pointers, and vdevs, which know addresses. Reading a block
//! is: choose a copy, read it, verify its checksum, otherwise try the next copy or a reconstruction;
//! reassemble a gang; decrypt; decompress. These steps are the calls in [`Zio::read`]. Writing is
//! [`Zio::write_many`]: compress, checksum, allocate, issue. It needs an [`Allocator`]; without one
//! ([`Zio::set_allocator`]) a pool is read-only.
//!
//! # What always holds
//! - No byte leaves this crate unverified: the checksum in the pointer covers the stored bytes, and is
//!   checked before they are decrypted or decompressed.
//! - Sizes are checked before memory is allocated: a block has at most 16 MiB on either side of compression,
//!   whatever its pointer says.
//! - A pointer is validated before it is followed, so a hostile pool causes an error, not a panic.
//! - In a writable pool, copies that a read found damaged are rewritten from a right one.
//!
//! # Layers
//! Each uses only what stands before it: `tx`, `block`, `quantum`, `error`, `alloc`, `policy`, `pointer` -> `freed`,
//! `kept_blocks`, `outage` -> `space` (what reading and writing share) -> `layer`, the [`Zio`] itself -> `batch`,
//! `heal` -> `gang`, `retry` -> `read`, `free`, `log_blocks` -> `gang_write` -> `write`.
//!
//! # State of the process
//! None, except for the parameters [`FORCE_GANGING`] and [`FORCE_GANGING_PCT`] (see `vdev::tunable`), guards
//! of single threads ([`Insist`]), and the mutators of test builds (`testing`).
//!
//! Source: `docs/on-disk/12-block-pointers.md`, section 12. Tests: `src/tests`, `src/alloc/tests`.
#![forbid(unsafe_code)]

pub mod alloc;
mod batch;
mod block;
mod error;
mod evacuate;
mod free;
mod freed;
mod gang;
mod gang_write;
mod heal;
mod kept_blocks;
mod layer;
mod log_blocks;
#[cfg(feature = "testing")]
mod mutators;
mod outage;
mod pointer;
mod policy;
mod quantum;
mod read;
mod retry;
mod space;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;
mod tx;
mod write;

pub use alloc::{
    AllocClass, AllocError, Allocator, ClassTotals, MetaslabHint, Request, SpaceChange, SpaceSource, TopSpace,
};
pub use block::Block;
pub use error::ZioError;
pub use evacuate::Move;
pub use gang_write::{FORCE_GANGING, FORCE_GANGING_PCT};
pub use layer::Zio;
pub use log_blocks::LogBlock;
pub use outage::{Insist, Outage};
pub use policy::{NewBlock, RawForm, ReadPolicy, Seal, StoredForm, WritePolicy};
pub use quantum::Quantum;
pub use read::Checked;
pub use space::{Held, Obsolete, Unflushed};
pub use tx::AllocTx;

/// Clock, random numbers, workers and devices of a session; shared by all layers above.
pub use vdev::Env;
/// The vdevs of a pool, which also compute the allocated size of a block.
pub use vdev::VdevTree;
/// Locks that ignore poisoning.
pub use vdev::sync;
/// A set of ranges of numbers.
pub use vdev::tree::RangeSet;
/// Purpose of requests, by which devices count them.
pub use vdev::tree::{Priority, PriorityGuard};
/// A parameter that can be changed while the engine runs.
pub use vdev::tunable::Tunable;
