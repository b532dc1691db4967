//! Block pointers as `zdb` prints them: one form for roots and `-dddddd`, a shorter one for lists.

use format::blkptr::Protection;
use format::{BlockPtr, BpKind, Endian, Level, ObjType};
use std::fmt;

/// The long form: every address and property.
pub(crate) struct Long<'a>(pub(crate) &'a BlockPtr);

impl fmt::Display for Long<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bp = self.0;
        let head = |f: &mut fmt::Formatter<'_>, word: &str| write!(f, "{word} [L{} {}]", bp.level(), bp.obj_type());
        match bp.kind() {
            BpKind::Hole => {
                head(f, "HOLE")?;
                write!(f, " size={:x}L birth={}L", bp.lsize().0, bp.logical_birth())
            }
            BpKind::Redacted => {
                head(f, "REDACTED")?;
                write!(f, " size={:x}L birth={}L", bp.lsize().0, bp.logical_birth())
            }
            BpKind::Embedded => {
                head(f, "EMBEDDED")?;
                write!(
                    f,
                    " et={} {} size={:x}L/{:x}P birth={}L",
                    bp.checksum_id(),
                    compression(bp),
                    bp.lsize().0,
                    bp.psize().0,
                    bp.logical_birth()
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
        if let Some(crypt) = bp.crypt_params() {
            let iv = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| crypt.iv.get(at + i).copied().unwrap_or(0)));
            write!(f, "salt={:x} iv={:x}:{:x} ", u64::from_le_bytes(crypt.salt), iv(0), iv(8))?;
        }
        let protection = match bp.protection() {
            Protection::None => "unencrypted",
            Protection::Encrypted => "encrypted",
            Protection::Authenticated if bp.level() > Level(0) => "indirect-MAC",
            Protection::Authenticated if bp.obj_type() == ObjType::OBJSET => "authenticated",
            Protection::Authenticated => "authenticated",
        };
        let order = if bp.byte_order() == Endian::Little { "LE" } else { "BE" };
        let shape = if bp.kind() == BpKind::Gang { "gang" } else { "contiguous" };
        let sharing = if bp.is_dedup() { "dedup" } else { "unique" };
        let number = ["zero", "single", "double", "triple"].get(copies).copied().unwrap_or("zero");
        write!(
            f,
            "[L{} {}] {} {} {protection} {order} {shape} {sharing} {number} size={:x}L/{:x}P birth={}L/{}P fill={} cksum={}",
            bp.level(),
            bp.obj_type(),
            checksum(bp),
            compression(bp),
            bp.lsize().0,
            bp.psize().0,
            bp.logical_birth(),
            bp.physical_birth(),
            bp.fill(),
            bp.checksum(),
        )
    }
}

/// The short form of `-ddddd`: one line of a block list.
pub(crate) struct Short<'a>(pub(crate) &'a BlockPtr);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bp = self.0;
        match bp.kind() {
            BpKind::Embedded | BpKind::Redacted => write!(
                f,
                "EMBEDDED et={} {:x}L/{:x}P B={}",
                bp.checksum_id(),
                bp.lsize().0,
                bp.psize().0,
                bp.logical_birth()
            ),
            BpKind::Hole => write!(f, "{:x}L B={}", bp.lsize().0, bp.logical_birth()),
            BpKind::Normal | BpKind::Gang => {
                for dva in bp.dvas() {
                    write!(f, "{dva} ")?;
                }
                write!(
                    f,
                    "{:x}L/{:x}P F={} B={}/{} cksum={}",
                    bp.lsize().0,
                    bp.psize().0,
                    bp.fill(),
                    bp.logical_birth(),
                    bp.physical_birth(),
                    bp.checksum()
                )
            }
        }
    }
}

fn checksum(bp: &BlockPtr) -> &'static str {
    bp.checksum_kind().map_or("unknown", |id| id.name())
}

fn compression(bp: &BlockPtr) -> &'static str {
    bp.compression().map_or("unknown", |id| id.name())
}
