//! Blocks of the intent log.

use super::fake::{Pool, Top, Tx, block, noise, policy};
use crate::{AllocClass, AllocError, WritePolicy, ZioError};
use codec::checksum;
use format::zil::Chain;
use format::{BlockPtr, Checksum, ChecksumId, CompressionId, Endian, ObjType, Txg};

/// The bytes to write of a log block with some records, and the end of the records.
fn sealed(bp: &BlockPtr, records: &[u8]) -> Vec<u8> {
    let [a, b, c, seq] = bp.checksum().0;
    let next = bp.with_word(15, seq + 1);
    assert_eq!(next.checksum(), Checksum([a, b, c, seq + 1]));
    let nused = 184 + records.len();
    let order = Endian::Little;
    let chain = Chain { next, nused: nused as u64, checksum: Checksum::default(), order };
    let mut bytes = chain.encode().to_vec();
    bytes.extend_from_slice(records);
    bytes.resize(nused.next_multiple_of(4096), 0);
    assert!(checksum::write_zil(bp, &mut bytes, None));
    bytes
}

#[test]
fn the_front_of_a_log_block_is_enough() {
    for tops in [vec![Top::Single], vec![Top::Mirror(2), Top::Log], vec![Top::Raidz(4, 1)], vec![Top::Draid]]
    {
        let pool = Pool::new(&tops, 12);
        let identity = [11, 12, 54, 1];
        let bp = pool.zio.allocate_log_block(131_072, identity, AllocClass::Log, &Tx(30)).unwrap();
        assert_eq!(bp.validate(), Ok(()));
        assert_eq!(bp.checksum(), Checksum(identity));
        assert_eq!((bp.psize().0, bp.lsize().0), (131_072, 131_072));
        assert_eq!(bp.checksum_kind(), Ok(ChecksumId::Zilog2));
        assert_eq!(bp.compression(), Ok(CompressionId::Off));
        assert_eq!((bp.obj_type(), bp.fill(), bp.logical_birth()), (ObjType::INTENT_LOG, 0, Txg(30)));
        assert_eq!(bp.dvas().count(), 1);
        assert!(pool.zio.read_log_block(&bp, None).unwrap().is_none(), "not written yet");
        let bytes = sealed(&bp, &noise(5000, 1));
        let written = pool.zio.write_log_block(&bp, &bytes).unwrap();
        let read = pool.zio.read_log_block(&bp, None).unwrap().expect("a log block");
        assert_eq!(read.bytes.len(), 131_072);
        assert!(read.bytes[..bytes.len()] == bytes, "{tops:?}");
        assert!(pool.disks.iter().any(|disk| disk.unflushed() > 0));
        pool.zio.flush_written().unwrap();
        assert!(pool.disks.iter().any(|disk| disk.unflushed() > 0), "not a block of the tree");
        pool.zio.flush_log_blocks(&written).unwrap();
        assert!(pool.disks.iter().all(|disk| disk.unflushed() == 0));
        pool.zio.free(&bp, &Tx(31)).unwrap();
        pool.zio.claim(&bp, &Tx(31)).unwrap();
        assert_eq!(pool.taken(), 1);
    }
}

#[test]
fn log_blocks_are_never_gangs() {
    let pool = Pool::new(&[Top::Single], 9);
    pool.set_largest(4096);
    let error = pool.zio.allocate_log_block(8192, [1; 4], AllocClass::Log, &Tx(30)).unwrap_err();
    assert!(matches!(error, ZioError::Allocate { source: AllocError::NoSpace { .. }, .. }), "{error:?}");
    assert_eq!(pool.taken(), 0);
}

#[test]
fn a_log_block_on_a_lost_disk_is_an_error() {
    let pool = Pool::new(&[Top::Single], 9);
    let bp = pool.zio.allocate_log_block(4096, [1, 2, 3, 4], AllocClass::Log, &Tx(30)).unwrap();
    pool.disks[0].vanish();
    let error = pool.zio.write_log_block(&bp, &sealed(&bp, &[])).unwrap_err();
    assert!(matches!(error, ZioError::Unwritable { .. }), "{error:?}");
}

#[test]
fn a_block_that_cannot_be_claimed_whole_is_not_claimed() {
    let pool = Pool::new(&[Top::Single], 9);
    let new = block(noise(4096, 1), &WritePolicy { copies: 2, ..policy() });
    let bp = pool.write(&new, 12).unwrap();
    let second = crate::pointer::with_dvas(&bp, &[bp.dvas().nth(1).unwrap()], false);
    pool.zio.free(&bp, &Tx(13)).unwrap();
    pool.zio.claim(&second, &Tx(14)).unwrap();
    let before = pool.taken();
    assert!(pool.zio.claim(&bp, &Tx(14)).is_err());
    assert_eq!(pool.taken(), before, "the first copy is free still");
}
