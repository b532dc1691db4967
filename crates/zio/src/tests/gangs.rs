//! Gang blocks: blocks for which there is no space in one piece.

use super::fake::{Pool, Top, Tx, block, noise, policy, text};
use crate::{AllocError, NewBlock, WritePolicy, ZioError};
use format::{BpKind, ChecksumId, CompressionId, DeviceOffset, Dva};
use std::sync::Arc;
use vdev::env::Random;

fn gang_of(pool: &Pool, new: &NewBlock) -> format::BlockPtr {
    let bp = pool.write(new, 12).unwrap();
    assert_eq!(bp.kind(), BpKind::Gang);
    pool.check(&bp, new, 12);
    bp
}

#[test]
fn pieces_headers_and_sizes_add_up() {
    for (tops, ashift) in [
        (vec![Top::Single], 9),
        (vec![Top::Mirror(2), Top::Mirror(2)], 12),
        (vec![Top::Raidz(4, 1)], 12),
        (vec![Top::Draid], 12),
    ] {
        let pool = Pool::new(&tops, ashift);
        for (largest, len) in [(65_536, 131_072), (16_384, 131_072), (4096, 69_632), (8192, 1 << 20)] {
            let largest = pool.zio.quantum().min.max(largest); // nothing smaller is ever asked for
            for copies in 1..=3 {
                pool.set_largest(largest);
                let policy = WritePolicy { copies, gang_copies: 2, ..policy() };
                let bp = gang_of(&pool, &block(noise(len, largest), &policy));
                assert_eq!(bp.dvas().count(), usize::from(copies.max(2)));
                let taken = pool.taken();
                assert!(taken > 4);
                // The charge equals the allocated space.
                let charged: u64 = bp.dvas().map(|dva| dva.asize.0).sum();
                assert_eq!(charged, pool.space.bytes_taken(), "{bp}");
                pool.zio.free(&bp, &Tx(13)).unwrap();
                assert_eq!(pool.taken(), 0);
                pool.zio.claim(&bp, &Tx(13)).unwrap();
                assert_eq!(pool.taken(), taken);
                pool.zio.free(&bp, &Tx(13)).unwrap();
            }
        }
    }
}

#[test]
fn a_gang_of_this_txg_is_written_over() {
    for (tops, ashift) in [(vec![Top::Single], 9), (vec![Top::Mirror(2), Top::Mirror(2)], 12)] {
        let pool = Pool::new(&tops, ashift);
        // With gangs in gangs too.
        for (largest, len) in [(65_536, 131_072), (4096, 69_632)] {
            pool.set_largest(largest);
            for copies in 1..=2 {
                let policy = WritePolicy { copies, gang_copies: 2, ..policy() };
                let old = gang_of(&pool, &block(noise(len, 1), &policy));
                let (taken, bytes) = (pool.taken(), pool.space.bytes_taken());
                let new = NewBlock { old, in_place: true, ..block(noise(len, 2), &policy) };
                let over = gang_of(&pool, &new);
                assert!(over.dvas().eq(old.dvas()), "{over}");
                assert_eq!((pool.taken(), pool.space.bytes_taken()), (taken, bytes));
                // Of another size or number of copies, or if overwriting is not allowed: elsewhere.
                for other in [
                    NewBlock { data: Arc::new(noise(len + 4096, 3)), ..new.clone() },
                    NewBlock { policy: WritePolicy { copies: 3 - copies, ..policy }, ..new.clone() },
                    NewBlock { in_place: false, ..new.clone() },
                ] {
                    let bp = gang_of(&pool, &other);
                    assert!(bp.dvas().all(|dva| old.dvas().all(|before| before != dva)), "{bp}");
                    pool.zio.free(&bp, &Tx(13)).unwrap();
                }
                pool.zio.free(&over, &Tx(13)).unwrap();
                assert_eq!(pool.taken(), 0);
            }
        }
    }
}

#[test]
fn a_gang_that_cannot_be_read_is_not_written_over() {
    let pool = Pool::new(&[Top::Single], 9);
    pool.set_largest(4096);
    let policy = WritePolicy { gang_copies: 1, ..policy() };
    let old = gang_of(&pool, &block(noise(65_536, 1), &policy));
    let at = old.dvas().next().unwrap().offset.on_device();
    pool.disks[0].make_unreadable(DeviceOffset(at.0), 512);
    let new = NewBlock { old, in_place: true, ..block(noise(65_536, 2), &policy) };
    let elsewhere = gang_of(&pool, &new);
    assert!(elsewhere.dvas().all(|dva| old.dvas().all(|before| before != dva)));
}

#[test]
fn compressed_and_salted_gangs() {
    let pool = Pool::new(&[Top::Single], 9);
    pool.set_largest(2048);
    for checksum in [ChecksumId::Sha256, ChecksumId::Blake3, ChecksumId::Edonr, ChecksumId::Off] {
        for compression in [CompressionId::Lz4, CompressionId::Zstd] {
            gang_of(&pool, &block(text(131_072, 1), &WritePolicy { checksum, compression, ..policy() }));
        }
    }
}

#[test]
fn the_largest_block_in_the_smallest_pieces() {
    let pool = Pool::new(&[Top::Single], 9);
    pool.set_largest(512);
    let bp = gang_of(&pool, &block(noise(1 << 20, 1), &policy()));
    pool.zio.free(&bp, &Tx(13)).unwrap();
    assert_eq!(pool.taken(), 0);
}

#[test]
fn without_space_nothing_is_held() {
    let pool = Pool::new(&[Top::Single], 9);
    let new = block(noise(65_536, 1), &policy());
    pool.set_largest(4096);
    // Whole gang: header and pieces; one extent less each time.
    for budget in 0.. {
        pool.space.state.lock().unwrap().budget = Some(budget);
        match pool.write(&new, 12) {
            Ok(bp) => {
                pool.check(&bp, &new, 12);
                assert_eq!(pool.taken(), budget);
                break;
            }
            Err(error) => {
                assert_eq!(pool.taken(), 0, "budget {budget}");
                let no_space =
                    matches!(&error, ZioError::Allocate { source: AllocError::NoSpace { .. }, .. });
                assert!(no_space, "{error:?}");
            }
        }
    }
    // The smallest block cannot be cut.
    pool.set_largest(256);
    pool.space.state.lock().unwrap().budget = None;
    assert!(pool.write(&block(noise(512, 1), &policy()), 12).is_err());
}

#[test]
fn a_gang_that_cannot_be_read_is_not_half_freed() {
    let pool = Pool::new(&[Top::Single], 9);
    pool.set_largest(4096);
    let bp = gang_of(&pool, &block(noise(65_536, 1), &WritePolicy { gang_copies: 1, ..policy() }));
    let taken = pool.taken();
    let at = bp.dvas().next().unwrap().offset.on_device();
    pool.disks[0].make_unreadable(DeviceOffset(at.0), 512);
    let error = pool.zio.free(&bp, &Tx(13)).unwrap_err();
    assert!(matches!(error, ZioError::Unreadable { .. }), "{error:?}");
    assert_eq!(pool.taken(), taken);
}

#[test]
fn addresses_outside_the_pool_are_not_freed() {
    let pool = Pool::new(&[Top::Single], 9);
    let bp = pool.write(&block(noise(4096, 1), &WritePolicy { copies: 2, ..policy() }), 12).unwrap();
    let [first, second] = [0, 1].map(|i| bp.dvas().nth(i).unwrap());
    for bad in
        [Dva { offset: format::AllocOffset(1 << 40), ..second }, Dva { vdev: format::VdevId(7), ..second }]
    {
        let bp = crate::pointer::with_dvas(&bp, &[first, bad], false);
        let error = pool.zio.free(&bp, &Tx(13)).unwrap_err();
        assert!(matches!(error, ZioError::Misplaced { .. }), "{error:?}");
        assert_eq!(pool.taken(), 2);
    }
}

#[test]
fn random_holes() {
    for seed in 0..40 {
        let mut random = Random::from_seed(seed);
        let ashift = 9 + random.below(4);
        let pool = Pool::new(&[Top::Mirror(2), Top::Single], ashift);
        let blocks: Vec<NewBlock> = (0..20)
            .map(|_| {
                let copies = 1 + random.below(3) as u8;
                let gang_copies = 1 + random.below(3) as u8;
                let policy = WritePolicy {
                    copies,
                    gang_copies,
                    compression: if random.one_in(2) { CompressionId::Lz4 } else { CompressionId::Off },
                    ..policy()
                };
                block(text(512 * (1 + random.below(256)) as usize, random.next() % 1000), &policy)
            })
            .collect();
        pool.set_largest(4096 << random.below(5));
        eprintln!("seed {seed}");
        let bps = pool.zio.write_many(&blocks, &Tx(12), &pool.env);
        for (bp, new) in bps.iter().zip(&blocks) {
            pool.check(bp.as_ref().unwrap(), new, 12);
        }
        for bp in &bps {
            pool.zio.free(bp.as_ref().unwrap(), &Tx(13)).unwrap();
        }
        assert_eq!(pool.taken(), 0);
    }
}

/// Bytes of a large header of a pool with sectors of 4 KiB.
const LARGE: usize = 4096;

/// A gang as OpenZFS 2.4 writes it: pieces of 4 KiB, all pointers to them in one header of that size, sealed
/// according to docs/on-disk/12-block-pointers.md, section 7.
fn large_gang(pool: &Pool, data: &[u8]) -> format::BlockPtr {
    let (tx, mut policy) = (Tx(12), policy());
    policy.gang_copies = 1;
    let sum = |bytes: &[u8]| {
        codec::checksum::compute(ChecksumId::Fletcher4, bytes, format::Endian::Little, None).unwrap()
    };
    let place = |size: u64| {
        let want = crate::space::request(policy.class, size, 1);
        crate::space::Space::allocate(&*pool.space, &want, &tx).unwrap()
    };
    let store = |dva: &Dva, bytes: &[u8]| {
        let at = DeviceOffset(dva.offset.on_device().0);
        pool.disks.iter().for_each(|disk| vdev::Device::write_at(&**disk, bytes, at).unwrap());
    };
    let mut header = vec![0; LARGE];
    let mut taken = 0;
    for (piece, slot) in data.chunks(LARGE).zip(header.chunks_exact_mut(format::blkptr::BLKPTR_SIZE)) {
        let dvas = place(piece.len() as u64);
        store(&dvas[0], piece);
        taken += dvas[0].asize.0;
        let bp =
            crate::pointer::piece(ChecksumId::Fletcher4, piece.len() as u64, sum(piece), format::Txg(12));
        let bp = crate::pointer::with_dvas(&bp, &dvas, false);
        slot.copy_from_slice(&bp.encode(format::Endian::Little));
    }
    let home = place(512)[0];
    let trailer = LARGE - 40;
    let verifier = [u64::from(home.vdev.0), home.offset.0, 12, 0];
    let mut words = vec![0x0210_da7a_b10c_7a11];
    words.extend(verifier);
    header[trailer..].copy_from_slice(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
    let seal = codec::checksum::compute(ChecksumId::Sha256, &header, format::Endian::Little, None).unwrap();
    header[trailer + 8..]
        .copy_from_slice(&seal.0.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
    store(&home, &header);
    let size = data.len() as u64;
    let bp = crate::pointer::normal(&policy, size, size, CompressionId::Off, sum(data), 1, format::Txg(12));
    let asize = format::Asize(home.asize.0 + taken);
    crate::pointer::with_dvas(&bp, &[Dva { asize, gang: true, ..home }], true)
}

#[test]
fn large_headers_are_read_where_the_feature_says_so() {
    for tops in [vec![Top::Single], vec![Top::Mirror(2)]] {
        let pool = Pool::new(&tops, 12);
        // As many pieces as a classic header has, one more, and as many as there can be.
        for pieces in [3, 4, 31] {
            let data = noise(pieces * LARGE, pieces as u64);
            let bp = large_gang(&pool, &data);
            assert_eq!((bp.validate(), bp.kind()), (Ok(()), BpKind::Gang));
            pool.zio.set_dynamic_gang_headers(false);
            assert!(pool.zio.read(&bp, &crate::ReadPolicy::default()).is_err(), "no such header is known");
            pool.zio.set_dynamic_gang_headers(true);
            assert!(pool.read(&bp) == data);
            let whole = pool.zio.check(&bp, &crate::ReadPolicy::SCRUB);
            assert!(whole.data.is_ok_and(|found| found == data) && whole.faults.is_empty());
        }
        // Headers from before the feature was active keep their size.
        pool.set_largest(4096);
        let new = block(noise(65_536, 1), &policy());
        gang_of(&pool, &new);
    }
}

#[test]
fn a_bad_large_header_is_read_from_the_other_side() {
    let pool = Pool::new(&[Top::Mirror(2)], 12);
    pool.zio.set_dynamic_gang_headers(true);
    let data = noise(20 * LARGE, 5);
    let bp = large_gang(&pool, &data);
    let at = DeviceOffset(bp.dvas().next().unwrap().offset.on_device().0 + 1000);
    // Flush, so that damage affects the medium, not the cache.
    let flush = || pool.disks.iter().for_each(|disk| vdev::Device::flush(&**disk).unwrap());
    flush();
    pool.disks[0].flip(at, 1, 1);
    let read = pool.zio.check(&bp, &crate::ReadPolicy::SCRUB);
    assert!(read.data.is_ok_and(|found| found == data));
    let guilty: Vec<_> = read.faults.iter().map(|fault| fault.leaf).collect();
    assert_eq!(guilty, [format::VdevGuid(1000)]);
    // The read has repaired it; now damage both.
    flush();
    pool.disks.iter().for_each(|disk| disk.flip(at, 1, 1));
    let error = pool.zio.read(&bp, &crate::ReadPolicy::default()).unwrap_err();
    assert!(matches!(error, ZioError::Unreadable { .. }), "{error:?}");
}
