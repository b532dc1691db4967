//! Block pointers as `zdb` prints them: a long form for roots, and a short one for lists.

use format::blkptr::Protection;
use format::{BlockPtr, BpKind, Dva, Endian, Level};
use std::fmt;

/// The long form, with all addresses and properties.
pub(super) struct Long<'a>(pub(super) &'a BlockPtr);

impl fmt::Display for Long<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bp = self.0;
        let (level, kind, birth) = (bp.level(), bp.obj_type(), bp.logical_birth());
        let (lsize, psize) = (bp.lsize().0, bp.psize().0);
        match bp.kind() {
            BpKind::Hole => write!(f, "HOLE [L{level} {kind}] size={lsize:x}L birth={birth}L"),
            BpKind::Redacted => write!(f, "REDACTED [L{level} {kind}] size={lsize:x}L birth={birth}L"),
            BpKind::Embedded => {
                let (what, compress) = (bp.checksum_id(), compression(bp));
                write!(
                    f,
                    "EMBEDDED [L{level} {kind}] et={what} {compress} size={lsize:x}L/{psize:x}P birth={birth}L"
                )
            }
            BpKind::Normal | BpKind::Gang => self.normal(f),
        }
    }
}

impl Long<'_> {
    fn normal(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bp = self.0;
        let mut copies = 0;
        for (i, dva) in bp.dvas().enumerate() {
            write!(f, "DVA[{i}]=<{dva}> ")?;
            copies += 1;
        }
        if let Some(params) = bp.crypt_params() {
            let word = |at: usize| {
                u64::from_le_bytes(std::array::from_fn(|i| params.iv.get(at + i).copied().unwrap_or(0)))
            };
            write!(f, "salt={:x} iv={:x}:{:x} ", u64::from_le_bytes(params.salt), word(0), word(8))?;
        }
        write!(f, "[L{} {}] {} {} ", bp.level(), bp.obj_type(), checksum(bp), compression(bp))?;
        let crypt = match bp.protection() {
            Protection::None => "unencrypted",
            Protection::Encrypted => "encrypted",
            Protection::Authenticated if bp.level() > Level(0) => "indirect-MAC",
            Protection::Authenticated => "authenticated",
        };
        let order = if bp.byte_order() == Endian::Little { "LE" } else { "BE" };
        let shape = if bp.kind() == BpKind::Gang { "gang" } else { "contiguous" };
        let sharing = if bp.is_dedup() { "dedup" } else { "unique" };
        let number = ["zero", "single", "double", "triple"].get(copies).unwrap_or(&"zero");
        let (lsize, psize) = (bp.lsize().0, bp.psize().0);
        write!(f, "{crypt} {order} {shape} {sharing} {number} size={lsize:x}L/{psize:x}P ")?;
        write!(f, "birth={}L/{}P fill={}", bp.logical_birth(), bp.physical_birth(), bp.fill())?;
        write!(f, " cksum={}", bp.checksum())
    }
}

/// The short form for lists of blocks, with only the first address unless `all` is set.
pub(super) struct Short<'a> {
    pub(super) bp: &'a BlockPtr,
    pub(super) all: bool,
    /// Whether the entry of a livelist says that the block was freed.
    pub(super) freed: bool,
}

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bp = self.bp;
        let (lsize, psize, birth) = (bp.lsize().0, bp.psize().0, bp.logical_birth());
        match bp.kind() {
            BpKind::Embedded => write!(f, "EMBEDDED et={} {lsize:x}L/{psize:x}P B={birth}", bp.checksum_id()),
            // A redacted block has no address either, but is no hole.
            BpKind::Redacted => write!(f, "REDACTED {lsize:x}L B={birth}"),
            // Its first address is empty.
            BpKind::Hole if !self.all => write!(f, "0:0:0 {lsize:x}L B={birth}"),
            BpKind::Hole => write!(f, "{lsize:x}L B={birth}"),
            BpKind::Normal | BpKind::Gang => {
                let shown = if self.all { usize::MAX } else { 1 };
                for dva in bp.dvas().take(shown) {
                    let Dva { vdev, offset, asize, .. } = dva;
                    write!(f, "{vdev}:{:x}:{:x} ", offset.0, asize.0)?;
                }
                write!(f, "{lsize:x}L/{psize:x}P F={} B={birth}/{} ", bp.fill(), bp.physical_birth())?;
                if self.freed {
                    f.write_str("FREE ")?;
                }
                write!(f, "cksum={}", bp.checksum())
            }
        }
    }
}

pub(super) fn checksum(bp: &BlockPtr) -> &'static str {
    bp.checksum_kind().map_or("unknown", |id| id.name())
}

pub(super) fn compression(bp: &BlockPtr) -> &'static str {
    bp.compression().map_or("unknown", |id| id.name())
}
