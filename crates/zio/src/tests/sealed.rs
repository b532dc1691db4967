//! Blocks of encrypted datasets that are written as they were encrypted elsewhere: with the key they are read.

use super::fake::{Pool, Top, block, noise, policy};
use crate::{NewBlock, RawForm, ReadPolicy, Seal, WritePolicy, ZioError};
use codec::crypt::{CryptError, DataKey, Suite};
use format::blkptr::{BLKPTR_SIZE, CryptParams};
use format::{BlockPtr, BpKind, ChecksumId, CompressionId, Endian, Level, ObjType};
use std::sync::Arc;

const SALT: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
const IV: [u8; 12] = [11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22];

fn key() -> DataKey {
    DataKey::new(Suite::Aes256Gcm, 7, 1, &noise(32, 1), &noise(64, 2)).unwrap()
}

/// A block with this plaintext, encrypted.
fn encrypted(key: &DataKey, plain: &[u8], policy: &WritePolicy) -> NewBlock {
    let mut data = plain.to_vec();
    let mac = key.encrypt(&SALT, &IV, &[], &mut data).unwrap();
    let params = CryptParams { salt: SALT, iv: IV, mac };
    let lsize = data.len() as u64;
    let form = RawForm { lsize, compression: CompressionId::Off, params };
    NewBlock { seal: Some(Seal::Raw(form)), ..block(data, policy) }
}

#[test]
fn encrypted_blocks_and_gangs_are_read_with_the_key() {
    let key = key();
    for largest in [0, 4096] {
        for checksum in [ChecksumId::Fletcher4, ChecksumId::Sha256, ChecksumId::Edonr] {
            for copies in 1..=2 {
                let pool = Pool::new(&[Top::Mirror(2), Top::Mirror(2)], 9);
                pool.set_largest(largest);
                let policy = WritePolicy { checksum, copies, gang_copies: 2, ..policy() };
                let plain = noise(65_536, 3);
                let new = encrypted(&key, &plain, &policy);
                let bp = pool.write(&new, 12).unwrap();
                assert_eq!(bp.kind(), if largest == 0 { BpKind::Normal } else { BpKind::Gang });
                assert_eq!((bp.validate(), bp.fill()), (Ok(()), 1));
                let params = bp.crypt_params().unwrap();
                assert_eq!((params.salt, params.iv), (SALT, IV));
                let read = |key| pool.zio.read(&bp, &ReadPolicy { key, every_copy: true });
                assert!(read(Some(&key)).unwrap().bytes() == plain, "{bp}");
                assert!(matches!(read(None), Err(ZioError::Locked { .. })));
                pool.zio.free(&bp, &super::fake::Tx(13)).unwrap();
                assert_eq!(pool.taken(), 0, "salt and IV are no place");
            }
        }
    }
}

#[test]
fn an_indirect_block_has_the_mac_of_those_in_it() {
    let key = key();
    let pool = Pool::new(&[Top::Single], 9);
    let child = pool.write(&encrypted(&key, &noise(4096, 3), &policy()), 12).unwrap();
    let pointers: Vec<u8> = [BlockPtr::HOLE, child].iter().flat_map(|bp| bp.encode(Endian::Little)).collect();
    let data = [pointers, vec![0; 131_072 - 2 * BLKPTR_SIZE]].concat();
    let policy = WritePolicy { tree_level: Level(1), compression: CompressionId::Lz4, copies: 3, ..policy() };
    let new = NewBlock { seal: Some(Seal::Indirect), ..block(data, &policy) };
    let bp = pool.write(&new, 12).unwrap();
    assert!(bp.psize() < format::Psize(131_072) && bp.dvas().count() == 3, "{bp}");
    let read = |bp: &BlockPtr| pool.zio.read(bp, &ReadPolicy { key: Some(&key), every_copy: false });
    assert!(read(&bp).unwrap().bytes() == &**new.data);
    let wrong = bp.with_word(15, !bp.words()[15]);
    assert!(matches!(read(&wrong), Err(ZioError::Crypt { source: CryptError::Authentication, .. })));
}

#[test]
fn dnodes_without_an_object_are_a_hole() {
    let pool = Pool::new(&[Top::Single], 9);
    let policy = WritePolicy { obj_type: ObjType::DNODE, ..policy() };
    let params = CryptParams { salt: SALT, iv: IV, mac: [9; 16] };
    let form = RawForm { lsize: 16_384, compression: CompressionId::Off, params };
    let of = |data| NewBlock { seal: Some(Seal::Raw(form)), ..block(data, &policy) };
    assert!(pool.write(&of(vec![0; 16_384]), 12).unwrap().is_hole());
    let mut data = vec![0; 16_384];
    data[0] = 1;
    let bp = pool.write(&NewBlock { data: Arc::new(data), fill: 1, ..of(Vec::new()) }, 12).unwrap();
    assert_eq!((bp.crypt_params(), bp.fill()), (Some(params), 1));
}
