//! Every checksum, compression and size, on every kind of vdev.

use super::fake::{Pool, Top, Tx, block, noise, policy, text};
use crate::{NewBlock, WritePolicy};
use format::{BpKind, ChecksumId, CompressionId};
use vdev::env::Random;

const CHECKSUMS: [ChecksumId; 8] = [
    ChecksumId::Off,
    ChecksumId::Fletcher2,
    ChecksumId::Fletcher4,
    ChecksumId::Sha256,
    ChecksumId::Sha512,
    ChecksumId::Skein,
    ChecksumId::Edonr,
    ChecksumId::Blake3,
];

const COMPRESSIONS: [(CompressionId, i32); 10] = [
    (CompressionId::Off, 0),
    (CompressionId::Empty, 0),
    (CompressionId::Lzjb, 0),
    (CompressionId::Gzip1, 0),
    (CompressionId::Gzip9, 0),
    (CompressionId::Zle, 0),
    (CompressionId::Lz4, 0),
    (CompressionId::Zstd, 0),
    (CompressionId::Zstd, -10),
    (CompressionId::Zstd, 9),
];

fn shapes() -> Vec<(Vec<Top>, u64)> {
    vec![
        (vec![Top::Single], 9),
        (vec![Top::Mirror(2), Top::Mirror(3)], 12),
        (vec![Top::Raidz(4, 1), Top::Single], 9),
        (vec![Top::Raidz(5, 2)], 12),
        (vec![Top::Draid, Top::Mirror(2)], 12),
    ]
}

/// Half noise, half zeros in runs; or text; or noise alone.
fn contents(len: usize, seed: u64) -> Vec<u8> {
    match seed % 3 {
        0 => noise(len, seed),
        1 => text(len, seed),
        _ => {
            let mut bytes = noise(len, seed);
            bytes.chunks_mut(256).step_by(2).for_each(|chunk| chunk.fill(0));
            bytes
        }
    }
}

fn write_check_free(pool: &Pool, blocks: &[NewBlock], txg: u64) {
    let results = pool.zio.write_many(blocks, &Tx(txg), &pool.env);
    assert_eq!(results.len(), blocks.len());
    let bps: Vec<_> = results.into_iter().map(Result::unwrap).collect();
    let quantum = pool.zio.quantum();
    for (bp, block) in bps.iter().zip(blocks) {
        pool.check(bp, block, txg);
        assert_eq!(bp.kind(), BpKind::Normal);
        assert_eq!(bp.dvas().count(), usize::from(block.policy.copies));
        let (lsize, psize) = (bp.lsize().0, bp.psize().0);
        if bp.compression() == Ok(CompressionId::Off) {
            assert_eq!(lsize, psize);
        } else {
            assert!(psize < lsize && psize == quantum.round_up(psize), "{bp}");
        }
    }
    assert_eq!(pool.taken(), bps.iter().map(|bp| bp.dvas().count()).sum::<usize>());
    for bp in &bps {
        pool.zio.free(bp, &Tx(txg + 1)).unwrap();
    }
    assert_eq!(pool.taken(), 0);
}

#[test]
fn all_algorithms_and_sizes() {
    for (tops, ashift) in shapes() {
        let pool = Pool::new(&tops, ashift);
        let mut blocks = Vec::new();
        let mut seed = 0;
        for checksum in CHECKSUMS {
            for (compression, level) in COMPRESSIONS {
                for sectors in [1, 2, 3, 8, 31, 32, 256] {
                    seed += 1;
                    let copies = 1 + (seed % 3) as u8;
                    let policy = WritePolicy { checksum, compression, level, copies, ..policy() };
                    blocks.push(block(contents(512 * sectors, seed), &policy));
                }
            }
        }
        write_check_free(&pool, &blocks, 10);
    }
}

#[test]
fn blocks_of_sixteen_mebibytes() {
    for (tops, ashift) in [(vec![Top::Mirror(2)], 12), (vec![Top::Raidz(3, 1)], 12)] {
        let pool = Pool::new(&tops, ashift);
        let compressions = [CompressionId::Off, CompressionId::Lz4, CompressionId::Zstd];
        let blocks: Vec<NewBlock> = compressions
            .into_iter()
            .map(|compression| block(text(16 << 20, 1), &WritePolicy { compression, ..policy() }))
            .collect();
        write_check_free(&pool, &blocks, 7);
    }
}

#[test]
fn many_small_blocks_lie_one_after_the_other() {
    let pool = Pool::new(&[Top::Single], 9);
    let policy = WritePolicy { compression: CompressionId::Lz4, ..policy() };
    let blocks: Vec<NewBlock> = (0..20_000).map(|i| block(noise(512, i), &policy)).collect();
    let results = pool.zio.write_many(&blocks, &Tx(5), &pool.env);
    for (i, (bp, block)) in results.into_iter().zip(&blocks).enumerate() {
        let bp = bp.unwrap();
        assert_eq!(bp.dvas().next().unwrap().offset.0, 512 * i as u64);
        if i % 97 == 0 {
            pool.check(&bp, block, 5);
        }
    }
}

#[test]
fn a_batch_of_several_windows() {
    for workers in [1, 3] {
        let mut pool = Pool::new(&[Top::Mirror(2)], 12);
        pool.env = pool.env.with_workers(workers);
        let policy = WritePolicy { compression: CompressionId::Lz4, ..policy() };
        let blocks: Vec<NewBlock> = (0..100).map(|i| block(text(1 << 20, i), &policy)).collect();
        write_check_free(&pool, &blocks, 10);
    }
}

#[test]
fn random_batches() {
    for seed in 0..30 {
        let mut random = Random::from_seed(seed);
        let shapes = shapes();
        let (tops, ashift) = &shapes[random.below(shapes.len() as u64) as usize];
        let pool = Pool::new(tops, *ashift);
        let blocks: Vec<NewBlock> = (0..random.below(60))
            .map(|_| {
                let (compression, level) = COMPRESSIONS[random.below(10) as usize];
                let checksum = CHECKSUMS[random.below(8) as usize];
                let copies = 1 + random.below(3) as u8;
                let policy = WritePolicy { checksum, compression, level, copies, ..policy() };
                block(contents(512 * (1 + random.below(300) as usize), random.next()), &policy)
            })
            .collect();
        eprintln!("seed {seed}");
        write_check_free(&pool, &blocks, 3 + seed);
    }
}
