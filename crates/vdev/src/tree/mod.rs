//! The tree of vdevs of one pool: finding the leaves that hold a block, reading it when some of them are
//! missing, fail or return wrong bytes, and writing it to all of them (docs/on-disk/14-vdevs.md).
//!
//! `zio` asks for an [`Extent`], a range on a top-level vdev, and verifies bytes. The tree makes candidates
//! until one is right: the sides of a mirror, the data columns of a RAID-Z, then its parity, then every
//! combination of at most as many suspected columns as there is parity, then each stripe by itself; for
//! removed vdevs, the copies of each segment. Leaves that held wrong bytes are then known, and each is
//! reported as a [`Fault`].
//!
//! # What always holds
//! - Bytes are returned only if `verify` accepted them.
//! - A block of more than 16 MiB is refused before any memory is taken for it.
//! - At most [`ATTEMPTS_MAX`] candidates of one block are given to `verify`, and fewer if the block is large
//!   (`ATTEMPT_BYTES_MAX` in all): a hostile image costs bounded time.
//! - A leaf that did not take a block has the block's txg in its DTL before the write returns.
//! - A leaf that is known to lack a block (by its DTL, because it is resilvering, or because the
//!   configuration calls it offline or faulted) is asked last and not blamed.
//!
//! # Order
//! `open` with the tree of the labels, read the MOS, `open` again with the tree of the MOS, then
//! `set_indirect` for removed vdevs (newest first: its mapping may be needed to read the others) and
//! `set_dtl` for leaves. Then `write_many` and `flush` (`write.rs`), and once per txg `take_changed_dtls`
//! (`dtl.rs`). No lock is held while a device is read or written; a flush holds one per leaf.
//!
//! # Layers
//! `error`, `block`, `state`, `stats`, `range_set` -> `leaf` -> `node` (the tree itself) -> `build`,
//! `health`, `write`, `flush`, `dtl`, `repair`, and reading: `copies`, `columns` -> `candidates`, `stripes`,
//! `search` -> `parity`, `indirect` -> `read`.
//!
//! Tests: `tests/it/redundancy.rs` (every combination of failed and lying leaves), `tests/it/tree.rs`,
//! `tests/it/writing.rs`.

mod block;
mod build;
mod candidates;
mod columns;
mod copies;
mod dtl;
mod error;
mod evacuate;
mod flush;
mod health;
mod indirect;
mod indirect_map;
mod leaf;
mod node;
mod parity;
mod range_set;
mod read;
mod repair;
mod search;
mod state;
mod stats;
mod stripes;
mod write;

pub use block::{Extent, Fault, FaultKind, Read};
pub use candidates::ATTEMPTS_MAX;
pub use error::{ConfigFault, MappingFault, VdevError, WriteObstacle};
pub use evacuate::Versions;
pub use flush::Mark;
pub use health::{LeafIo, VdevStatus};
pub use indirect_map::{Birth, IndirectMapping, MapEntry};
pub use leaf::SLOW_IO_MS;
pub use node::{FaultListener, VdevTree};
pub use range_set::RangeSet;
pub use read::BlockRead;
pub use state::{Aux, VdevState};
pub use stats::{IoStats, Op, PRIORITIES, Priority, PriorityGuard, SIZE_BUCKETS, Sizes, TIME_BUCKETS, Times};
pub use write::Write;
