//! Writes without a block (holes, embedded data, data that are there already), and overwriting in place.

use super::fake::{Pool, Top, Tx, block, noise, policy, text};
use crate::{AllocClass, NewBlock, Quantum, ReadPolicy, WritePolicy, Zio, ZioError};
use format::{BlockPtr, BpKind, ChecksumId, CompressionId, Level, ObjType, Txg};

fn lz4() -> WritePolicy {
    WritePolicy { compression: CompressionId::Lz4, ..policy() }
}

#[test]
fn zeros_become_holes_that_tell_their_birth_where_something_was() {
    let pool = Pool::new(&[Top::Single], 9);
    let zeros = |policy: &WritePolicy, old: BlockPtr| {
        pool.write(&NewBlock { old, ..block(vec![0; 4096], policy) }, 20).unwrap()
    };
    assert_eq!(zeros(&lz4(), BlockPtr::HOLE), BlockPtr::HOLE);
    let old = pool.write(&block(noise(4096, 1), &lz4()), 10).unwrap();
    let hole = zeros(&WritePolicy { obj_type: ObjType::ZVOL, ..lz4() }, old);
    assert_eq!((hole.kind(), hole.logical_birth()), (BpKind::Hole, Txg(20)));
    assert_eq!((hole.lsize().0, hole.obj_type(), hole.level()), (4096, ObjType::ZVOL, Level(0)));
    let words = hole.words().iter().enumerate().filter(|(_, word)| **word != 0);
    assert_eq!(words.map(|(i, _)| i).collect::<Vec<_>>(), [6, 10]);
    assert_eq!(hole.prop() >> 61, 0, "no byte order");
    assert_eq!(hole.prop() >> 32 & 0xffff, 0, "no algorithms");
    let without = WritePolicy { hole_birth: false, ..lz4() };
    assert_eq!(zeros(&without, old), BlockPtr::HOLE);
    // A hole that is written again keeps its birth; a hole of another size does not.
    let older = pool.write(&NewBlock { old, ..block(vec![0; 4096], &lz4()) }, 15).unwrap();
    assert_eq!(zeros(&lz4(), older), older);
    let smaller = pool.write(&NewBlock { old, ..block(vec![0; 512], &lz4()) }, 15).unwrap();
    assert_eq!(zeros(&lz4(), smaller).logical_birth(), Txg(20));
    // Without compression zeros are data.
    assert_eq!(zeros(&policy(), BlockPtr::HOLE).kind(), BpKind::Normal);
    let empty = WritePolicy { compression: CompressionId::Empty, ..policy() };
    assert_eq!(zeros(&empty, BlockPtr::HOLE), BlockPtr::HOLE);
}

#[test]
fn small_results_go_into_the_pointer() {
    let pool = Pool::new(&[Top::Single], 12);
    let algorithms = [
        CompressionId::Lz4,
        CompressionId::Lzjb,
        CompressionId::Zle,
        CompressionId::Gzip6,
        CompressionId::Zstd,
    ];
    for compression in algorithms {
        for len in [512, 4096, 8192, 1 << 17] {
            let policy = WritePolicy { compression, embed: true, ..policy() };
            let mut data = vec![0; len];
            data[7..17].copy_from_slice(b"0123456789");
            let new = block(data, &policy);
            let bp = pool.write(&new, 9).unwrap();
            // A hundred bytes are too few for the runs of large blocks; for lzjb even of smaller ones.
            if len <= 8192 && (len == 512 || compression != CompressionId::Lzjb) {
                assert_eq!(bp.kind(), BpKind::Embedded, "{compression} {len}");
            }
            pool.check(&bp, &new, 9);
            for other in [
                WritePolicy { embed: false, ..policy.clone() },
                WritePolicy { tree_level: Level(1), ..policy.clone() },
                WritePolicy { obj_type: ObjType::DNODE, ..policy.clone() },
                WritePolicy { obj_type: ObjType::OBJSET, ..policy.clone() },
            ] {
                let new = NewBlock { policy: other, ..new.clone() };
                let bp = pool.write(&new, 9).unwrap();
                assert_eq!(bp.kind(), BpKind::Normal);
                pool.check(&bp, &new, 9);
            }
        }
    }
    let new = block(noise(512, 3), &WritePolicy { embed: true, ..lz4() });
    assert_eq!(pool.write(&new, 9).unwrap().kind(), BpKind::Normal);
}

#[test]
fn compression_that_saves_no_unit_of_space_is_dropped() {
    let pool = Pool::new(&[Top::Single], 12);
    let at = |data: Vec<u8>| pool.write(&block(data, &lz4()), 5).unwrap();
    let mut half_zero = noise(4096, 1);
    half_zero[2048..].fill(0);
    assert_eq!(at(half_zero.clone()).compression(), Ok(CompressionId::Off));
    half_zero.resize(8192, 0);
    assert_eq!((at(half_zero).psize().0), 4096);
    let bp = at(text(131_072, 2));
    assert!(bp.psize().0 < 131_072 * 7 / 8 && bp.psize().0.is_multiple_of(4096), "{bp}");
    pool.zio.set_quantum(Quantum { min: 512, unit: 512 });
    let mut quarter = noise(1024, 4);
    quarter[400..].fill(0);
    assert_eq!(at(quarter).psize().0, 512);
}

#[test]
fn unchanged_data_is_not_written_again() {
    let pool = Pool::new(&[Top::Mirror(2)], 9);
    let policy = |checksum| WritePolicy { checksum, nopwrite: true, ..lz4() };
    for checksum in
        [ChecksumId::Sha256, ChecksumId::Sha512, ChecksumId::Skein, ChecksumId::Edonr, ChecksumId::Blake3]
    {
        for data in [text(8192, 5), noise(8192, 5)] {
            let new = block(data, &policy(checksum));
            let old = pool.write(&new, 10).unwrap();
            let again = |new: NewBlock| pool.write(&NewBlock { old, ..new }, 20).unwrap();
            let taken = pool.taken();
            assert_eq!(again(new.clone()), old);
            assert_eq!(pool.taken(), taken);
            let changed = |change: &dyn Fn(&mut WritePolicy)| {
                let mut new = new.clone();
                change(&mut new.policy);
                again(new)
            };
            assert_ne!(changed(&|policy| policy.nopwrite = false), old);
            assert_ne!(changed(&|policy| policy.copies = 2), old);
            assert_ne!(changed(&|policy| policy.tree_level = Level(1)), old);
            assert_ne!(changed(&|policy| policy.compression = CompressionId::Off), old);
            assert_ne!(again(block(noise(8192, 6), &policy(checksum))), old);
        }
    }
    let new = block(noise(8192, 5), &policy(ChecksumId::Fletcher4));
    let old = pool.write(&new, 10).unwrap();
    assert_ne!(pool.write(&NewBlock { old, ..new }, 20).unwrap(), old, "anybody can make fletcher4 agree");
}

#[test]
fn a_block_of_this_txg_is_written_over() {
    let pool = Pool::new(&[Top::Single, Top::Single], 9);
    let policy = WritePolicy { copies: 2, ..policy() };
    let old = pool.write(&block(noise(4096, 1), &policy), 10).unwrap();
    let new = NewBlock { old, in_place: true, ..block(noise(4096, 2), &policy) };
    let over = pool.write(&new, 10).unwrap();
    assert_eq!(over.dvas().collect::<Vec<_>>(), old.dvas().collect::<Vec<_>>());
    assert_eq!(pool.taken(), 2);
    pool.check(&over, &new, 10);
    // Of another txg, size or number of copies, or if overwriting is not allowed: elsewhere.
    let elsewhere = |new: &NewBlock, txg| {
        let bp = pool.write(new, txg).unwrap();
        assert!(bp.dvas().all(|dva| old.dvas().all(|before| before.offset != dva.offset)), "{bp}");
        pool.check(&bp, new, txg);
    };
    elsewhere(&new, 11);
    elsewhere(&NewBlock { in_place: false, ..new.clone() }, 10);
    elsewhere(&NewBlock { old, in_place: true, ..block(noise(2048, 2), &policy) }, 10);
    elsewhere(&NewBlock { policy: WritePolicy { copies: 1, ..policy }, ..new }, 10);
}

#[test]
fn a_pool_without_allocator_cannot_be_written() {
    let pool = Pool::new(&[Top::Single], 9);
    let new = block(noise(512, 1), &policy());
    let bp = pool.write(&new, 4).unwrap();
    let zio = Zio::new(pool.zio.tree());
    let read_only = |error| matches!(error, ZioError::ReadOnly { .. });
    assert!(read_only(zio.write(&new, &Tx(5), &pool.env).unwrap_err()));
    assert!(read_only(zio.free(&bp, &Tx(5)).unwrap_err()));
    assert!(read_only(zio.claim(&bp, &Tx(5)).unwrap_err()));
    assert!(read_only(zio.allocate_log_block(4096, [1; 4], AllocClass::Log, &Tx(5)).unwrap_err()));
    assert!(read_only(zio.write_log_block(&bp, &[0; 512]).unwrap_err()));
    assert!(zio.flush_written().is_ok());
    assert!(zio.read(&bp, &ReadPolicy::default()).is_ok());
}

#[test]
fn salted_checksums_need_the_salt() {
    let pool = Pool::new(&[Top::Single], 9);
    let zio = Zio::new(pool.zio.tree());
    zio.set_space(pool.space.clone());
    let new = block(noise(512, 1), &WritePolicy { checksum: ChecksumId::Blake3, ..policy() });
    let error = zio.write(&new, &Tx(5), &pool.env).unwrap_err();
    assert!(matches!(error, ZioError::Checksum { .. }), "{error:?}");
    assert_eq!(pool.taken(), 0);
}
