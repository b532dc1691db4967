//! The state of a block between the steps of writing.

use crate::gang_write::Unit;
use crate::policy::NewBlock;
use format::{BlockPtr, Dva};

/// The space of a block.
pub(super) enum Held {
    /// No space needed: a hole, embedded data, or data that are there already.
    None,
    /// Space must still be allocated.
    Wanted,
    /// The space of the old pointer.
    Old,
    /// The block has space of its own.
    Own,
    /// Headers and pieces of a new gang.
    Gang(Vec<Unit>),
    /// Headers and pieces in the space of the old pointer's gang.
    OldGang(Vec<Unit>),
}

/// A block that is being written.
pub(super) struct Job {
    pub(super) bp: BlockPtr,
    /// The stored bytes, if they differ from those of the caller.
    pub(super) image: Option<Vec<u8>>,
    pub(super) held: Held,
}

impl Job {
    pub(super) fn done(bp: BlockPtr) -> Job {
        Job { bp, image: None, held: Held::None }
    }

    /// The stored bytes, `psize` of them.
    pub(super) fn bytes<'a>(&'a self, block: &'a NewBlock) -> &'a [u8] {
        self.image.as_deref().unwrap_or_else(|| block.stored_bytes())
    }

    /// The addresses to be written.
    pub(super) fn places(&self) -> impl Iterator<Item = Dva> {
        let units: &[Unit] =
            if let Held::Gang(units) | Held::OldGang(units) = &self.held { units } else { &[] };
        self.bp.dvas().chain(units.iter().flat_map(|unit| unit.extents.iter().copied()))
    }

    /// Every extent that was allocated for the block.
    pub(super) fn extents(&self) -> Vec<Dva> {
        match &self.held {
            Held::None | Held::Wanted | Held::Old | Held::OldGang(_) => Vec::new(),
            Held::Own => self.bp.dvas().collect(),
            Held::Gang(units) => units.iter().flat_map(|unit| unit.extents.iter().copied()).collect(),
        }
    }
}
