//! Blocks whose addresses are on removed vdevs.

use super::fake::{Pool, Top, Tx, block, noise, policy};
use crate::space::Space;
use crate::{NewBlock, Obsolete, WritePolicy, ZioError, pointer};
use format::{AllocOffset, Asize, BlockPtr, ChecksumId, CompressionId, Dva, VdevId};
use vdev::tree::{IndirectMapping, MapEntry};

fn dva(vdev: u32, offset: u64, asize: u64) -> Dva {
    Dva { vdev: VdevId(vdev), offset: AllocOffset(offset), asize: Asize(asize), gang: false }
}

fn entry(src: u64, len: u64, to: Dva) -> MapEntry {
    MapEntry { src: AllocOffset(src), len, dst: to }
}

/// A pool whose vdev 0 was moved to vdevs 1 and 2, and vdev 1 to vdev 2. All its space there is in use.
fn pool() -> Pool {
    let pool = Pool::new(&[Top::Removed, Top::Removed, Top::Single], 9);
    let tree = pool.zio.tree();
    let older = vec![
        entry(4096, 1024, dva(1, 8192, 1024)),
        entry(5120, 3072, dva(2, 1 << 20, 3072)),
        entry(16_384, 512, dva(2, 2 << 20, 512)),
    ];
    let newer = vec![entry(8192, 512, dva(2, 4096, 512)), entry(8704, 512, dva(2, 65_536, 512))];
    tree.set_indirect(VdevId(0), IndirectMapping::new(VdevId(0), older, Vec::new()).unwrap());
    tree.set_indirect(VdevId(1), IndirectMapping::new(VdevId(1), newer, Vec::new()).unwrap());
    pool
}

/// The present location of the block at byte 4096 of vdev 0.
fn pieces() -> [Dva; 3] {
    [dva(2, 4096, 512), dva(2, 65_536, 512), dva(2, 1 << 20, 3072)]
}

#[test]
fn their_space_is_where_they_were_moved_to() {
    let pool = pool();
    for piece in pieces() {
        pool.space.claim(&piece, &Tx(5)).unwrap();
    }
    let written = pool.write(&block(noise(4096, 1), &policy()), 3).unwrap();
    pool.zio.free(&written, &Tx(5)).unwrap();
    let bp = pointer::with_dvas(&written, &[dva(0, 4096, 4096)], false);
    pool.zio.free(&bp, &Tx(5)).unwrap();
    assert_eq!(pool.taken(), 0);
    let range = |vdev, offset, asize| Obsolete {
        vdev: VdevId(vdev),
        offset: AllocOffset(offset),
        asize: Asize(asize),
    };
    assert_eq!(pool.zio.take_obsolete(), [range(0, 4096, 4096), range(1, 8192, 1024)]);
    assert_eq!(pool.zio.take_obsolete(), []);
    pool.zio.claim(&bp, &Tx(5)).unwrap();
    assert_eq!(pool.taken(), 3);
    assert_eq!(pool.zio.take_obsolete(), []);
}

#[test]
fn places_that_were_never_moved_are_not_freed() {
    let pool = pool();
    for piece in pieces() {
        pool.space.claim(&piece, &Tx(5)).unwrap();
    }
    let written = pool.write(&block(noise(8192, 1), &policy()), 3).unwrap();
    let taken = pool.taken();
    for bad in [dva(0, 4096, 8192), dva(0, 0, 512), dva(0, 1 << 23, 512)] {
        let bp = pointer::with_dvas(&written, &[dva(0, 4096, 4096), bad], false);
        let error = pool.zio.free(&bp, &Tx(5)).unwrap_err();
        assert!(matches!(error, ZioError::Misplaced { .. }), "{error:?}");
        assert_eq!(pool.taken(), taken);
        assert_eq!(pool.zio.take_obsolete(), []);
    }
}

#[test]
fn unchanged_data_leaves_a_removed_vdev_all_the_same() {
    let pool = pool();
    let policy = WritePolicy {
        checksum: ChecksumId::Sha256,
        compression: CompressionId::Lz4,
        nopwrite: true,
        ..policy()
    };
    let new = block(noise(4096, 1), &policy);
    let there = pool.write(&new, 3).unwrap();
    let write = |old: BlockPtr| pool.write(&NewBlock { old, ..new.clone() }, 5).unwrap();
    assert_eq!(write(there), there);
    let moved = pointer::with_dvas(&there, &[dva(0, 4096, 4096)], false);
    assert_ne!(write(moved), moved);
}
