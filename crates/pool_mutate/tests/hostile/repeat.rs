//! Cyclic and repetitive trees: a few blocks that point to each other many times over, so that an object of a
//! small pool claims up to 2^44 blocks. Every pointer has the level, type and size that its position demands,
//! and every checksum is right.

use format::blkptr::BLKPTR_SIZE;
use format::dnode::{CORE_SIZE, SLOT_SIZE};
use format::{BlockPtr, Endian, Level, ObjType};
use std::sync::atomic::{AtomicU64, Ordering};

/// Dnodes and blocks changed since the last [`start`].
pub(crate) static CHANGED: AtomicU64 = AtomicU64::new(0);

/// Types of objects whose trees are changed, one type at a time.
pub(crate) const TYPES: [ObjType; 14] = [
    ObjType::DNODE,
    ObjType::PLAIN_FILE,
    ObjType::DIRECTORY,
    ObjType::ZVOL,
    ObjType::SPACE_MAP,
    ObjType::BPOBJ,
    ObjType::BPOBJ_SUBOBJ,
    ObjType::DEADLIST,
    ObjType::SPA_HISTORY,
    ObjType::PACKED_NVLIST,
    ObjType::OBJECT_ARRAY,
    ObjType::U64_METADATA,
    ObjType::DSL_DS_SNAP_MAP,
    ObjType::USERGROUP_USED,
];

/// Installs the mutator for objects of this type.
pub(crate) fn start(kind: ObjType) {
    CHANGED.store(0, Ordering::Relaxed);
    zio::testing::set_mutator(Some(Box::new(move |bp, bytes| {
        if bp.level() > Level(0) && bp.obj_type() == kind {
            fill(bp, bytes);
        } else if bp.level() == Level(0) && bp.obj_type() == ObjType::DNODE {
            let mut at = 0;
            while at + SLOT_SIZE <= bytes.len() {
                let slots = usize::from(bytes[at + 12]) + 1;
                if bytes[at] == kind.id() && kind != ObjType::DNODE {
                    enlarge(&mut bytes[at..], kind);
                }
                at += slots * SLOT_SIZE;
            }
        } else if bp.obj_type() == ObjType::OBJSET && kind == ObjType::DNODE && bytes[704] != 1 {
            // The MOS stays as it is: without it the pool does not open.
            enlarge(bytes, kind);
        }
    })));
}

/// Fills an indirect block with copies of one pointer: its first, or a pointer to itself one level lower.
fn fill(bp: &BlockPtr, bytes: &mut [u8]) {
    CHANGED.fetch_add(1, Ordering::Relaxed);
    let below = u64::from(bp.level().0) - 1;
    let fits = |child: &BlockPtr| !child.is_hole() && u64::from(child.level().0) == below;
    let first = BlockPtr::decode_all(bytes, Endian::Little).find(fits);
    let child = first.unwrap_or_else(|| bp.with_prop_bits(56, 5, below)).encode(Endian::Little);
    for entry in bytes.chunks_exact_mut(BLKPTR_SIZE) {
        entry.copy_from_slice(&child);
    }
}

/// Makes a dnode the root of a tree with as many levels as block numbers allow, all of them in the block that
/// it points to.
fn enlarge(dnode: &mut [u8], kind: ObjType) {
    let Ok(bp) = BlockPtr::decode(&dnode[CORE_SIZE..], Endian::Little) else { return };
    // Its data blocks become indirect blocks, unless it has indirect blocks already.
    let shift = if dnode[2] > 1 { u32::from(dnode[1]) } else { bp.lsize().0.trailing_zeros() };
    let is_usable = !bp.is_embedded() && !bp.is_hole() && bp.lsize().0 == 1 << shift;
    if !is_usable || !(9..=17).contains(&shift) {
        return;
    }
    let fan_out = shift - 7;
    let levels = (44 / fan_out).min(20);
    CHANGED.fetch_add(1, Ordering::Relaxed);
    dnode[1] = shift as u8;
    dnode[2] = levels as u8 + 1;
    dnode[16..24].copy_from_slice(&((1u64 << (fan_out * levels)) - 1).to_le_bytes());
    let root = bp.with_prop_bits(56, 5, levels.into());
    dnode[CORE_SIZE..CORE_SIZE + BLKPTR_SIZE].copy_from_slice(&root.encode(Endian::Little));
    let bonus = CORE_SIZE + BLKPTR_SIZE * usize::from(dnode[3]);
    // The length field of the type, so that readers believe the size.
    let (word, value) = match kind {
        ObjType::PLAIN_FILE => (2, 1u64 << 60),
        ObjType::SPACE_MAP => (1, 1 << 45),
        ObjType::BPOBJ | ObjType::PACKED_NVLIST => (0, 1 << 40),
        ObjType::SPA_HISTORY => (1, 1 << 30),
        _ => return,
    };
    dnode[bonus + 8 * word..bonus + 8 * word + 8].copy_from_slice(&value.to_le_bytes());
}
