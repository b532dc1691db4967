//! ZAPs, name-value objects: one interface over the micro and the fat form (docs/on-disk/21-zap.md).
//!
//! [`Zap`] finds entries by name and lists them; it reads blocks through [`ZapBlocks`], and so works for any
//! kind of object. [`ZapMut`] changes them. `format::zap` decodes single blocks.
//!
//! # What always holds
//! - Entries come in the order of their cursor (hash, then collision differentiator), in both forms; a cursor
//!   stays valid as long as the entry's hash does, and survives a restart.
//! - Memory is bounded by one leaf, time by the existing blocks: no count of the header is trusted, no chain
//!   is followed further than its leaf is long.
//! - A look-up in a damaged ZAP either finds the entry, or reports the damage; it reports a missing name only
//!   if all blocks that it read were valid.
//!
//! Tests: `tests.rs`, `write_tests.rs`, and `tests/it/fuzz_zap.rs`.

pub(crate) mod live;

mod blocks;
mod entries;
mod entry;
mod fat_write;
mod lookup;
mod matching;
mod micro_index;
mod micro_write;
mod normalize;
mod ops;
mod reader;
mod shared;
mod state;
mod stats;
#[cfg(test)]
mod tests;
mod unicode5;
mod value;
mod write;
#[cfg(test)]
mod write_tests;
mod zap_mut;

pub use blocks::{ZapBlocks, ZapBlocksMut};
pub use entries::{Entries, NamedEntry};
pub use entry::{CURSOR_END, ZapEntry, ZapKey};
pub use matching::Match;
pub use micro_index::MicroIndex;
pub use normalize::prepare;
pub use reader::Zap;
pub use shared::{list_shared, lookup_shared};
pub use state::ZapState;
pub use stats::{HISTOGRAM_ROWS, ZapStats};
pub use value::{VALUE_MAX, ZapValue};
pub use zap_mut::{NAME_LEN_MAX, ZapMut, create_fat, create_micro};
