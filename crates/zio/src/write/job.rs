//! A block between the steps of writing.

use crate::gang_write::Unit;
use crate::policy::NewBlock;
use format::{BlockPtr, Dva};

/// The space of a block.
pub(super) enum Held {
    /// None needed: a hole, data in the pointer, or what stands there already.
    None,
    /// Space is yet to be allocated.
    Wanted,
    /// That of the old pointer.
    Old,
    /// The block has space of its own.
    Own,
    /// The headers and pieces of a gang.
    Gang(Vec<Unit>),
    /// Those of the gang of the old pointer.
    OldGang(Vec<Unit>),
}

/// A block that is being written.
pub(super) struct Job {
    pub(super) bp: BlockPtr,
    /// The stored bytes, if they are not those of the caller.
    pub(super) image: Option<Vec<u8>>,
    pub(super) held: Held,
}

impl Job {
    pub(super) fn done(bp: BlockPtr) -> Job {
        Job { bp, image: None, held: Held::None }
    }

    /// The stored bytes, `psize` of them.
    pub(super) fn bytes<'a>(&'a self, block: &'a NewBlock) -> &'a [u8] {
        self.image.as_deref().unwrap_or(&block.data)
    }

    /// Where it is to be written.
    pub(super) fn places(&self) -> impl Iterator<Item = Dva> {
        let units: &[Unit] =
            if let Held::Gang(units) | Held::OldGang(units) = &self.held { units } else { &[] };
        self.bp.dvas().chain(units.iter().flat_map(|unit| unit.extents.iter().copied()))
    }

    /// Every extent that was allocated for it.
    pub(super) fn extents(&self) -> Vec<Dva> {
        match &self.held {
            Held::None | Held::Wanted | Held::Old | Held::OldGang(_) => Vec::new(),
            Held::Own => self.bp.dvas().collect(),
            Held::Gang(units) => units.iter().flat_map(|unit| unit.extents.iter().copied()).collect(),
        }
    }
}
