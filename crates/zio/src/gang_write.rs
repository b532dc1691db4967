//! Writing gang blocks: if no free segment is large enough, a block is cut into up to three pieces, which may
//! be cut again, and is replaced by a header of pointers (docs/on-disk/12-block-pointers.md, section 7).
//!
//! # What always holds
//! - Headers are the classic ones of 512 bytes, which every reader accepts.
//! - A header has at least as many copies as the pieces, so that copy `d` of every piece is counted in
//!   address `d` of the header.
//! - Space is allocated for the whole gang, or none is.
//! - A gang that replaces another of the same size is cut like that one, and uses the same space.

use crate::layer::Zio;
use crate::policy::{ReadPolicy, WritePolicy};
use crate::quantum::Quantum;
use crate::space::{self, Writer};
use crate::{AllocError, AllocTx, Request, ZioError, gang, pointer};
use codec::checksum;
use format::blkptr::BLKPTR_SIZE;
use format::units::MAX_BLOCK;
use format::{Asize, BlockPtr, BpKind, Dva, Endian, Psize, VdevId};
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use vdev::tunable::Tunable;

/// Bytes of a gang header.
pub(crate) const HEADER_SIZE: usize = 512;
/// Number of pointers in a header.
const SLOTS: u64 = 3;

/// For tests: blocks of at least this many bytes may be ganged although they would fit in one piece.
pub static FORCE_GANGING: Tunable =
    Tunable::new("metaslab_force_ganging", MAX_BLOCK + 1, HEADER_SIZE as u64 + 1, MAX_BLOCK + 1);
/// Percentage of those blocks that are ganged.
pub static FORCE_GANGING_PCT: Tunable = Tunable::new("metaslab_force_ganging_pct", 3, 0, 100);

/// For tests: refuses some blocks as if they did not fit in one piece. `draws` counts the blocks that could
/// be refused.
pub(crate) fn forced(want: &Request, quantum: Quantum, draws: &AtomicU64) -> Option<AllocError> {
    let Request { class, psize, copies, .. } = *want;
    if psize.0 < FORCE_GANGING.get() || psize.0 <= quantum.min {
        return None;
    }
    // Knuth's multiplier spreads consecutive numbers.
    let drawn = (draws.fetch_add(1, Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % 100;
    let largest = Psize(psize.0 - 1);
    (drawn < FORCE_GANGING_PCT.get()).then_some(AllocError::NoSpace { class, psize, copies, largest })
}

/// A unit of a gang to be written: a header or a piece.
pub(crate) struct Unit {
    /// The allocated extents of the unit.
    pub(crate) extents: Vec<Dva>,
    contents: Contents,
}

enum Contents {
    Header(Box<[u8; HEADER_SIZE]>),
    /// A part of the block.
    Piece(Range<usize>),
}

impl Unit {
    /// The bytes of the unit, for a block with these stored bytes.
    pub(crate) fn bytes<'a>(&'a self, block: &'a [u8]) -> &'a [u8] {
        match &self.contents {
            Contents::Header(header) => &header[..],
            Contents::Piece(range) => block.get(range.clone()).unwrap_or(&[]),
        }
    }
}

/// Builder of one gang block: allocates and lays it out.
pub(crate) struct Builder<'a> {
    zio: &'a Zio,
    writer: &'a Writer,
    policy: &'a WritePolicy,
    quantum: Quantum,
    /// Vdevs that are used only if no other has enough space.
    avoid: &'a [VdevId],
    tx: &'a dyn AllocTx,
    units: Vec<Unit>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(
        zio: &'a Zio,
        writer: &'a Writer,
        policy: &'a WritePolicy,
        avoid: &'a [VdevId],
        tx: &'a dyn AllocTx,
    ) -> Builder<'a> {
        let quantum = zio.quantum();
        Builder { zio, writer, policy, quantum, avoid, tx, units: Vec::new() }
    }

    /// Builds a gang for `data`, the stored bytes of the block `bp`. Returns its pointer and the units to be
    /// written. `whole` is the error of allocating the block in one piece.
    pub(crate) fn build(
        mut self,
        bp: &BlockPtr,
        data: &[u8],
        whole: AllocError,
    ) -> Result<(BlockPtr, Vec<Unit>), ZioError> {
        match self.gang(bp, data, 0..data.len(), whole) {
            Ok(gang) => Ok((gang, self.units)),
            Err(error) => {
                let held = self.units.iter().flat_map(|unit| unit.extents.iter().copied());
                space::give_back(&*self.writer.space, held, self.tx);
                Err(error)
            }
        }
    }

    /// A gang for a part of the block. `bp` points to that part and has no place yet.
    fn gang(
        &mut self,
        bp: &BlockPtr,
        data: &[u8],
        range: Range<usize>,
        whole: AllocError,
    ) -> Result<BlockPtr, ZioError> {
        let no_space = |source| ZioError::Allocate { bp: *bp, source };
        if range.len() as u64 <= self.quantum.min {
            return Err(no_space(whole)); // a piece would be as large
        }
        let copies = self.policy.gang_header_copies();
        let want = space::request(self.policy.class, HEADER_SIZE as u64, copies);
        let places = self.writer.space.allocate_elsewhere(&want, self.avoid, self.tx).map_err(no_space)?;
        let place_of_header = self.units.len();
        let contents = Contents::Header(Box::new([0; HEADER_SIZE]));
        self.units.push(Unit { extents: places.clone(), contents });

        let pieces = self.pieces(bp, data, range)?;
        let bp = pointer::with_dvas(bp, &with_pieces(places, &pieces), true);
        self.complete(place_of_header, &bp, &pieces)?;
        Ok(bp)
    }

    /// Fills in a header, now that its pieces have addresses.
    fn complete(&mut self, unit: usize, bp: &BlockPtr, pieces: &[BlockPtr]) -> Result<(), ZioError> {
        let header = header(bp, pieces).map_err(|source| ZioError::Checksum { bp: *bp, source })?;
        if let Some(unit) = self.units.get_mut(unit) {
            unit.contents = Contents::Header(header);
        }
        Ok(())
    }

    /// Builds a gang for `data`, the stored bytes of the block `bp`, in the space of the gang `old` of the
    /// same size. Returns its pointer and the units to be written.
    ///
    /// Fails, without a change, if a header of `old` cannot be read, or if its pieces have other sizes than
    /// needed.
    pub(crate) fn rebuild(
        mut self,
        bp: &BlockPtr,
        old: &BlockPtr,
        data: &[u8],
    ) -> Result<(BlockPtr, Vec<Unit>), ZioError> {
        let gang = self.gang_over(bp, old, data, 0..data.len(), 0)?;
        Ok((gang, self.units))
    }

    /// Builds a gang for a part of the block in the space of another, which is itself `depth` gangs deep.
    fn gang_over(
        &mut self,
        bp: &BlockPtr,
        old: &BlockPtr,
        data: &[u8],
        range: Range<usize>,
        depth: usize,
    ) -> Result<BlockPtr, ZioError> {
        let others = gang::pieces(self.zio, old, &ReadPolicy::default(), &mut Vec::new(), depth)?;
        let place_of_header = self.units.len();
        let contents = Contents::Header(Box::new([0; HEADER_SIZE]));
        self.units.push(Unit { extents: self.zio.headers(old)?, contents });

        let mut pieces = Vec::with_capacity(others.len());
        let mut start = range.start;
        for other in &others {
            let end = start + other.psize().0 as usize;
            let piece = self.new_piece(bp, data, start..end)?;
            pieces.push(match other.kind() {
                BpKind::Gang => self.gang_over(&piece, other, data, start..end, depth + 1)?,
                _ if other.dvas().count() == usize::from(self.policy.copies) => {
                    let extents = other.dvas().collect();
                    self.units.push(Unit { extents, contents: Contents::Piece(start..end) });
                    pointer::with_places_of(&piece, other)
                }
                _ => return Err(ZioError::Gang { bp: *old, why: "its pieces have more or fewer copies" }),
            });
            start = end;
        }
        let bp = pointer::with_places_of(bp, old);
        self.complete(place_of_header, &bp, &pieces)?;
        Ok(bp)
    }

    fn pieces(&mut self, bp: &BlockPtr, data: &[u8], range: Range<usize>) -> Result<Vec<BlockPtr>, ZioError> {
        let mut pieces = Vec::with_capacity(SLOTS as usize);
        let mut start = range.start;
        for slots in (1..=SLOTS).rev() {
            let left = (range.end - start) as u64;
            if left == 0 {
                break;
            }
            let size = self.quantum.round_up(left.div_ceil(slots)).min(left);
            let end = start + size as usize;
            pieces.push(self.piece(bp, data, start..end)?);
            start = end;
        }
        Ok(pieces)
    }

    /// A pointer to a part of the block, without addresses yet.
    fn new_piece(&self, bp: &BlockPtr, data: &[u8], range: Range<usize>) -> Result<BlockPtr, ZioError> {
        let bytes = data.get(range).unwrap_or(&[]);
        let id = self.policy.checksum;
        let sum = checksum::compute(id, bytes, Endian::Little, self.zio.salt())
            .map_err(|source| ZioError::Checksum { bp: *bp, source })?;
        Ok(pointer::piece(id, bytes.len() as u64, sum, bp.logical_birth()))
    }

    fn piece(&mut self, bp: &BlockPtr, data: &[u8], range: Range<usize>) -> Result<BlockPtr, ZioError> {
        let piece = self.new_piece(bp, data, range.clone())?;
        let size = range.len() as u64;
        let want = space::request(self.policy.class_of(size), size, self.policy.copies);
        let place = match forced(&want, self.quantum, &self.writer.gang_draws) {
            Some(whole) => Err(whole),
            None => self.writer.space.allocate_elsewhere(&want, self.avoid, self.tx),
        };
        match place {
            Ok(extents) => {
                let piece = pointer::with_dvas(&piece, &extents, false);
                self.units.push(Unit { extents, contents: Contents::Piece(range) });
                Ok(piece)
            }
            Err(whole) if may_fit_in_pieces(&whole) => self.gang(&piece, data, range, whole),
            Err(source) => Err(ZioError::Allocate { bp: *bp, source }),
        }
    }
}

/// Whether pieces may fit. True also if a metaslab that cannot be read was the only one with enough space for
/// the whole.
pub(crate) fn may_fit_in_pieces(whole: &AllocError) -> bool {
    matches!(whole, AllocError::NoSpace { .. } | AllocError::Load { .. })
}

/// The addresses of a header, with the space of the pieces included in their sizes.
fn with_pieces(mut places: Vec<Dva>, pieces: &[BlockPtr]) -> Vec<Dva> {
    for piece in pieces {
        for (place, dva) in places.iter_mut().zip(piece.dvas()) {
            place.asize = Asize(place.asize.0 + dva.asize.0);
        }
    }
    places
}

/// The header that `bp` points to.
fn header(bp: &BlockPtr, pieces: &[BlockPtr]) -> Result<Box<[u8; HEADER_SIZE]>, checksum::ChecksumError> {
    let mut header = Box::new([0; HEADER_SIZE]);
    for (slot, piece) in header.chunks_exact_mut(BLKPTR_SIZE).zip(pieces) {
        slot.copy_from_slice(&piece.encode(Endian::Little));
    }
    checksum::write_gang_header(&mut header[..], bp)?;
    Ok(header)
}
