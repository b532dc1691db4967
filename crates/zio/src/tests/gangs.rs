//! Blocks for which there is no space in one piece.

use super::fake::{Pool, Top, Tx, block, noise, policy, text};
use crate::{AllocError, NewBlock, WritePolicy, ZioError};
use format::{BpKind, ChecksumId, CompressionId, DeviceOffset, Dva};
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
                // What is charged is what is taken.
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
    // Whole: header and pieces; one extent less each time.
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
