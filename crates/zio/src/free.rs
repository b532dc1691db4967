//! Freeing the space of blocks, claiming the space of existing blocks, and the charge of blocks.
//!
//! # What always holds
//! - All extents of a block are known before the first is changed: a gang whose headers cannot be read is an
//!   error without a change.
//! - While a checkpoint is kept ([`Zio::hold_frees`]), blocks that it may reference stay allocated: their extents are
//!   reported by [`Zio::take_held`] instead.
//! - For a block on a removed vdev, the space to which it was moved is freed; the range of the removed vdev
//!   that is no longer needed is reported by [`Zio::take_obsolete`].
//! - For a block on a vdev that is being removed, its own space is freed, and that of the copies made so far.

use crate::space::{self, Held, Obsolete, Writer};
use crate::{AllocError, AllocTx, ReadPolicy, Zio, ZioError, gang};
use format::config::VdevKind;
use format::units::SECTOR_SHIFT;
use format::{AllocOffset, Asize, BlockPtr, BpKind, Dva, Psize, Txg, VdevId};
use std::cell::RefCell;
use vdev::VdevTree;
use vdev::tree::{MappingFault, VdevError};

/// Most removals that an extent is followed through.
const REMOVALS_MAX: usize = 32;

impl Zio {
    /// Frees the space of a block: of every copy; for a gang, of all headers and pieces. Holes and embedded
    /// data have none. The space is not reused before two more txgs are on disk. A block that is counted in a
    /// table (dedup, clones) must not be passed before its count is zero.
    ///
    /// # Errors
    /// [`ZioError`] if the pointer names a place that is not in the pool, or a gang cannot be read: no space
    /// is freed then. [`ZioError::Allocate`] if the space was not in use.
    pub fn free(&self, bp: &BlockPtr, tx: &dyn AllocTx) -> Result<(), ZioError> {
        let Some(writer) = self.writer() else { return Err(ZioError::ReadOnly { bp: *bp }) };
        let extents = self.extents(bp)?;
        let (held, freed): (Vec<_>, Vec<_>) =
            extents.iter().copied().partition(|(_, birth)| writer.is_to_hold(*birth));
        let mut obsolete = Vec::new();
        for (extent, birth) in held {
            let places = RefCell::new(Vec::new());
            let hold = |extent: &Dva| {
                writer.space.check_allocated(extent)?;
                places.borrow_mut().push(Held { extent: *extent, birth });
                Ok(())
            };
            obsolete.extend(self.each_on_disk(bp, &[(extent, birth)], Copies::All, &hold)?);
            writer.note_held(tx.txg(), places.take());
        }
        let free = |extent: &Dva| writer.space.free(extent, tx);
        obsolete.extend(self.each_on_disk(bp, &freed, Copies::All, &free)?);
        for (extent, birth) in &extents {
            writer.freed.note(extent.vdev, extent.offset, *birth, tx.txg());
        }
        writer.note_obsolete(obsolete);
        Ok(())
    }

    /// From now on, blocks born in this txg or before are not freed but held. 0: none are.
    pub fn hold_frees(&self, up_to: Txg) {
        if let Some(writer) = self.writer() {
            writer.hold_frees(up_to);
        }
    }

    /// Takes the extents that `txg` has freed since the last call, and that were held instead.
    pub fn take_held(&self, txg: Txg) -> Vec<Held> {
        self.writer().map(|writer| writer.take_held(txg)).unwrap_or_default()
    }

    /// Frees an extent that was held.
    ///
    /// # Errors
    /// [`AllocError`] if part of it is not allocated.
    pub fn free_held(&self, extent: &Dva, tx: &dyn AllocTx) -> Result<(), AllocError> {
        self.writer().map_or(Ok(()), |writer| writer.space.free(extent, tx))
    }

    /// Claims the space of a block that was written by a txg which never ended, such as a block of the intent
    /// log, so that no other block gets it.
    ///
    /// # Errors
    /// [`ZioError`] if the pool is read-only, the pointer names a place that is not in the pool, or part of
    /// the space is taken. No space is claimed then.
    pub fn claim(&self, bp: &BlockPtr, tx: &dyn AllocTx) -> Result<(), ZioError> {
        let Some(writer) = self.writer() else { return Err(ZioError::ReadOnly { bp: *bp }) };
        let extents = self.extents(bp)?;
        let taken = RefCell::new(Vec::new());
        let claim = |extent: &Dva| {
            writer.space.claim(extent, tx)?;
            taken.borrow_mut().push(*extent);
            Ok(())
        };
        let claimed = self.each_on_disk(bp, &extents, Copies::Read, &claim).map(drop);
        claimed.inspect_err(|_| space::give_back(&*writer.space, taken.take(), tx))
    }

    /// Whether all the space of a block is in use, by that block or by others.
    ///
    /// # Errors
    /// Those of [`Zio::free`].
    pub fn is_allocated(&self, bp: &BlockPtr) -> Result<bool, ZioError> {
        let Some(writer) = self.writer() else { return Err(ZioError::ReadOnly { bp: *bp }) };
        let check = |extent: &Dva| writer.space.check_allocated(extent);
        match self.each_on_disk(bp, &self.extents(bp)?, Copies::Read, &check) {
            Ok(_) => Ok(true),
            Err(ZioError::Allocate { source: AllocError::NotAllocated { .. }, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The present extents of a block, as the space maps must have them: for a gang all headers and pieces;
    /// for a removed vdev, the place to which it was moved; on a vdev that is being removed, the copies too.
    ///
    /// # Errors
    /// Those of [`Zio::free`].
    pub fn places(&self, bp: &BlockPtr) -> Result<Vec<Dva>, ZioError> {
        let places = RefCell::new(Vec::new());
        let note = |extent: &Dva| {
            places.borrow_mut().push(*extent);
            Ok(())
        };
        self.each_on_disk(bp, &self.extents(bp)?, Copies::All, &note)?;
        Ok(places.into_inner())
    }

    /// Charge of a block in bytes: the space of all copies, deflated by the parity overhead of its vdevs
    /// (docs/on-disk/15-space.md, section 9).
    pub fn dsize(&self, bp: &BlockPtr) -> u64 {
        let tree = self.tree();
        let charge = |dva: Dva| (dva.asize.0 >> SECTOR_SHIFT).saturating_mul(tree.deflate_ratio(dva.vdev));
        bp.dvas().map(charge).fold(0, u64::saturating_add)
    }

    /// Frees the copies of a range of a vdev that is being removed, because the range itself holds nothing, and
    /// notes that their part of the mapping is obsolete.
    ///
    /// # Errors
    /// [`AllocError`] if the copies are not allocated.
    pub fn free_copies(
        &self,
        vdev: VdevId,
        offset: AllocOffset,
        asize: Asize,
        tx: &dyn AllocTx,
    ) -> Result<(), AllocError> {
        let (Some(writer), Some(mapping)) = (self.writer(), self.tree().indirect(vdev)) else {
            return Ok(());
        };
        for part in mapping.parts(offset, asize.0) {
            writer.space.free(&part.dst, tx)?;
            writer.note_obsolete(vec![Obsolete { vdev, offset: part.src, asize: Asize(part.len) }]);
        }
        Ok(())
    }

    /// Notes a range of a removed vdev without any reference left, for [`Zio::take_obsolete`].
    pub fn note_obsolete(&self, range: Obsolete) {
        if let Some(writer) = self.writer() {
            writer.note_obsolete(vec![range]);
        }
    }

    /// Takes the ranges of removed vdevs that were freed since the last call, for their obsolete space maps.
    pub fn take_obsolete(&self) -> Vec<Obsolete> {
        self.writer().map(Writer::take_obsolete).unwrap_or_default()
    }

    /// Every extent of a block, checked to be in the pool, with the txg in which it was written.
    fn extents(&self, bp: &BlockPtr) -> Result<Vec<(Dva, Txg)>, ZioError> {
        let mut extents = Vec::new();
        let mut todo = vec![(*bp, 0)];
        while let Some((bp, depth)) = todo.pop() {
            bp.validate().map_err(|source| ZioError::BadPointer { bp, source })?;
            let birth = bp.physical_birth();
            match bp.kind() {
                BpKind::Hole | BpKind::Embedded | BpKind::Redacted => continue,
                BpKind::Normal => extents.extend(bp.dvas().map(|dva| (dva, birth))),
                BpKind::Gang => {
                    for piece in gang::pieces(self, &bp, &ReadPolicy::default(), &mut Vec::new(), depth)? {
                        todo.push((piece, depth + 1));
                    }
                    extents.extend(self.headers(&bp)?.into_iter().map(|header| (header, birth)));
                }
            }
        }
        let tree = self.tree();
        for (extent, _) in &extents {
            // Only the size of the extent matters: the block may be smaller than a sector.
            tree.check(extent, Psize(1)).map_err(|source| ZioError::Misplaced { bp: *bp, source })?;
        }
        Ok(extents)
    }

    /// The extents of all headers of a gang block.
    pub(crate) fn headers(&self, bp: &BlockPtr) -> Result<Vec<Dva>, ZioError> {
        let tree = self.tree();
        let size = Psize(gang::HEADER_SIZE as u64);
        bp.dvas()
            .map(|dva| {
                let asize = tree.psize_to_asize(dva.vdev, size, bp.physical_birth());
                let source = VdevError::NoVdev { vdev: dva.vdev };
                let asize = asize.ok_or(ZioError::Misplaced { bp: *bp, source })?;
                Ok(Dva { asize, gang: false, ..dva })
            })
            .collect()
    }

    /// Calls a closure for the present place of each extent. Returns the ranges of removed vdevs that were
    /// passed through.
    fn each_on_disk(
        &self,
        bp: &BlockPtr,
        extents: &[(Dva, Txg)],
        copies: Copies,
        act: &dyn Fn(&Dva) -> Result<(), AllocError>,
    ) -> Result<Vec<Obsolete>, ZioError> {
        let tree = self.tree();
        let mut obsolete = Vec::new();
        let mut moved = Vec::new();
        let extents = || extents.iter().map(|(extent, _)| extent);
        for extent in extents().filter(|extent| is_removed(&tree, extent)) {
            resolve(&tree, extent, 0, &mut moved, &mut obsolete)
                .map_err(|source| ZioError::Misplaced { bp: *bp, source })?;
        }
        moved.extend(extents().filter(|extent| !is_removed(&tree, extent)));
        if copies == Copies::All {
            add_copies(&tree, &mut moved, &mut obsolete)
                .map_err(|source| ZioError::Misplaced { bp: *bp, source })?;
        }
        for extent in &moved {
            act(extent).map_err(|source| ZioError::Allocate { bp: *bp, source })?;
        }
        Ok(obsolete)
    }
}

/// Which places of a range of a vdev that is being removed are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copies {
    /// The place that is read.
    Read,
    /// The copies made so far as well.
    All,
}

/// Adds the copies that removals have made so far of the extents, and notes what is obsolete of their mappings.
/// A copy may be on a vdev that is being removed itself only if its own removal has ended: one runs at a time.
fn add_copies(
    tree: &VdevTree,
    extents: &mut Vec<Dva>,
    obsolete: &mut Vec<Obsolete>,
) -> Result<(), VdevError> {
    let mut copies = Vec::new();
    for extent in extents.iter() {
        let Some(mapping) = tree.indirect(extent.vdev) else { continue };
        for part in mapping.parts(extent.offset, extent.asize.0) {
            obsolete.push(Obsolete { vdev: extent.vdev, offset: part.src, asize: Asize(part.len) });
            resolve(tree, &part.dst, 0, &mut copies, obsolete)?;
        }
    }
    extents.extend(copies);
    Ok(())
}

fn is_removed(tree: &VdevTree, extent: &Dva) -> bool {
    tree.top(extent.vdev).is_some_and(|node| node.kind == VdevKind::Indirect)
}

/// The present place of an extent of a removed vdev, through any number of removals.
fn resolve(
    tree: &VdevTree,
    extent: &Dva,
    depth: usize,
    moved: &mut Vec<Dva>,
    obsolete: &mut Vec<Obsolete>,
) -> Result<(), VdevError> {
    if !is_removed(tree, extent) {
        moved.push(*extent);
        return Ok(());
    }
    let vdev = extent.vdev;
    if depth > REMOVALS_MAX {
        return Err(VdevError::BadMapping { vdev, fault: MappingFault::Circle });
    }
    let no_mapping = |offset| VdevError::NoMapping { vdev, offset };
    let mapping = tree.indirect(vdev).ok_or(no_mapping(extent.offset))?;
    obsolete.push(Obsolete { vdev, offset: extent.offset, asize: extent.asize });
    let mut done = 0;
    while done < extent.asize.0 {
        let at = AllocOffset(extent.offset.0.saturating_add(done));
        let entry = mapping.find(at).ok_or(no_mapping(at))?;
        let skip = at.0 - entry.src.0;
        let len = (entry.len - skip).min(extent.asize.0 - done);
        let offset = AllocOffset(entry.dst.offset.0.saturating_add(skip));
        let piece = Dva { vdev: entry.dst.vdev, offset, asize: Asize(len), gang: false };
        resolve(tree, &piece, depth + 1, moved, obsolete)?;
        done += len;
    }
    Ok(())
}
