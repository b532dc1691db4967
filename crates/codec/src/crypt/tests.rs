//! Test vectors of docs/on-disk/31-encryption.md, section 15, and of the algorithms.

use super::*;

fn unhex(text: &str) -> Vec<u8> {
    let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn array<const N: usize>(text: &str) -> [u8; N] {
    unhex(text).try_into().unwrap()
}

fn key_object_of_the_spec() -> KeyObject {
    KeyObject {
        suite: Suite::Aes256Ccm,
        guid: (-160_642_115_730_651_159i64) as u64,
        version: 1,
        iv: array("297c9adb387bcb1982bd80ef"),
        mac: array("d022f87f2128d1911b62a5b326e3a0ea"),
        master: array("a3fa4ced67d46f123ae409f3a6560aad85e948ab110f5b8236587687ce331c87"),
        hmac: array(
            "b411e8a80b594f07a59d06fc533591649cbb96d2a4facd02df9c5d8924c9822a\
             eea94c0dfd6488f61f578fbcde1ade1b5768459afaba405d6cb2d9aaef13dd02",
        ),
    }
}

#[test]
fn key_object_of_a_real_pool() {
    let wrapping = WrappingKey::from_passphrase(b"password", 3_894_760_431_309_898_040, 350_000).unwrap();
    let object = key_object_of_the_spec();
    let key = object.unwrap_key(&wrapping).unwrap();
    assert!(key.master().starts_with(&unhex("837ef351b12208f5")));
    assert_eq!(KeyObject::wrap(&key, &wrapping, object.iv), Ok(object.clone()));
    let wrong = WrappingKey::new([1; 32]);
    assert_eq!(object.unwrap_key(&wrong).unwrap_err(), CryptError::Authentication);
    let other = KeyObject { version: 2, ..object.clone() };
    assert_eq!(other.unwrap_key(&wrapping).unwrap_err(), CryptError::KeyVersion { version: 2 });
    let pre_release = KeyObject { version: 0, ..object };
    assert_eq!(pre_release.unwrap_key(&wrapping).unwrap_err(), CryptError::Authentication);
}

#[test]
fn absurd_rounds_are_refused() {
    for iterations in [0, ITERATIONS_MAX + 1, 1 << 32, u64::MAX] {
        let refused = WrappingKey::from_passphrase(b"password", 1, iterations).unwrap_err();
        assert_eq!(refused, CryptError::Iterations { iterations });
    }
}

/// Test cases 4, 10 and 16 of the submission of GCM to NIST. There is no public vector for CCM with these lengths
/// of nonce and tag; the key object above and the golden pools test it.
#[test]
fn gcm_vectors() {
    let plain = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39";
    let aad = unhex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
    let iv = array("cafebabefacedbaddecaf888");
    for (suite, key, cipher, tag) in [
        (
            Suite::Aes128Gcm,
            "feffe9928665731c6d6a8f9467308308",
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091",
            "5bc94fbc3221a5db94fae95ae7121a47",
        ),
        (
            Suite::Aes192Gcm,
            "feffe9928665731c6d6a8f9467308308feffe9928665731c",
            "3980ca0b3c00e841eb06fac4872a2757859e1ceaa6efd984628593b40ca1e19c7d773d00c144c525ac619d18c84a3f4718e2448b2fe324d9ccda2710",
            "2519498e80f1478f37ba55bd6d27618c",
        ),
        (
            Suite::Aes256Gcm,
            "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
            "76fc6ece0f4e1768cddf8853bb2d551b",
        ),
    ] {
        let aead = Aead::new(suite, &unhex(key));
        let mut data = unhex(plain);
        assert_eq!(aead.seal(&iv, &aad, &mut data), Ok(array(tag)), "{suite}");
        assert_eq!(data, unhex(cipher), "{suite}");
        assert_eq!(aead.open(&iv, &array(tag), &aad, &mut data), Ok(()), "{suite}");
        assert_eq!(data, unhex(plain), "{suite}");
    }
}

fn data_key(suite: Suite) -> DataKey {
    let bytes: Vec<u8> = (0..96).collect();
    DataKey::new(suite, 7, 1, &bytes[..suite.key_len()], &bytes[32..]).unwrap()
}

#[test]
fn every_suite_round_trips_and_notices_every_change() {
    for suite in Suite::ALL {
        assert_eq!(Suite::from_id(suite.id()), Some(suite));
        let key = data_key(suite);
        for len in [0, 1, 15, 16, 17, 127, 128, 129, 4096, 131_072] {
            for aad_len in [0, 1, 14, 15, 100, 0xfeff, 0xff00, 70_000] {
                if aad_len > 100 && len > 17 {
                    continue;
                }
                let aad = vec![0x5a; aad_len];
                let plain: Vec<u8> = (0..len).map(|i| (i * 11) as u8).collect();
                let mut data = plain.clone();
                let mac = key.encrypt(&[1; 8], &[2; 12], &aad, &mut data).unwrap();
                assert!(len < 16 || data != plain);
                let sealed = data.clone();
                key.decrypt(&[1; 8], &[2; 12], &mac, &aad, &mut data).unwrap();
                assert_eq!(data, plain, "{suite} {len} {aad_len}");

                let mut wrong_mac = mac;
                wrong_mac[15] ^= 1;
                let refused = Err(CryptError::Authentication);
                data.clone_from(&sealed);
                assert_eq!(key.decrypt(&[1; 8], &[2; 12], &wrong_mac, &aad, &mut data), refused);
                assert!(data.iter().all(|byte| *byte == 0), "nothing unauthenticated is given out");
                data.clone_from(&sealed);
                assert_eq!(key.decrypt(&[3; 8], &[2; 12], &mac, &aad, &mut data), refused);
                data.clone_from(&sealed);
                assert_eq!(key.decrypt(&[1; 8], &[3; 12], &mac, &aad, &mut data), refused);
                let mut longer = aad.clone();
                longer.push(0);
                data.clone_from(&sealed);
                assert_eq!(key.decrypt(&[1; 8], &[2; 12], &mac, &longer, &mut data), refused);
            }
        }
    }
}

#[test]
fn ccm_cannot_count_more_than_three_bytes_hold() {
    let key = data_key(Suite::Aes128Ccm);
    let mut data = vec![0; 1 << 24];
    let too_long = CryptError::TooLong { suite: Suite::Aes128Ccm, len: 1 << 24 };
    assert_eq!(key.encrypt(&[0; 8], &[0; 12], &[], &mut data), Err(too_long.clone()));
    assert_eq!(key.decrypt(&[0; 8], &[0; 12], &[0; 16], &[], &mut data), Err(too_long));
    data.pop();
    assert!(key.encrypt(&[0; 8], &[0; 12], &[], &mut data).is_ok());
}

#[test]
fn many_salts_do_not_confuse_the_cache() {
    let key = data_key(Suite::Aes192Gcm);
    let seal = |salt: u64| {
        let mut data = [0; 32];
        let mac = key.encrypt(&salt.to_le_bytes(), &[0; 12], &[], &mut data).unwrap();
        (data, mac)
    };
    let first: Vec<_> = (0..500).map(seal).collect();
    let again: Vec<_> = (0..500).map(seal).collect();
    assert_eq!(first, again);
    let distinct: std::collections::HashSet<_> = first.into_iter().collect();
    assert_eq!(distinct.len(), 500);
}

#[test]
fn keys_of_wrong_lengths_are_errors() {
    assert!(DataKey::new(Suite::Aes128Gcm, 1, 1, &[0; 32], &[0; 64]).is_err());
    assert!(DataKey::new(Suite::Aes256Gcm, 1, 1, &[0; 32], &[0; 63]).is_err());
    assert!(DataKey::new(Suite::Aes256Gcm, 1, 2, &[0; 32], &[0; 64]).is_err());
}

#[test]
fn nothing_secret_is_printed() {
    let key = data_key(Suite::Aes256Gcm);
    let printed = format!("{key:?} {:?}", WrappingKey::new([0xab; 32]));
    assert_eq!(printed, "DataKey { suite: Aes256Gcm, guid: 7, .. } WrappingKey(..)");
}

mod blocks {
    use super::*;
    use crate::checksum;
    use crate::crypt::block::*;
    use format::blkptr::CryptParams;
    use format::{BlockPtr, ChecksumId, Endian, ObjType};

    fn pointer(kind: ObjType, params: &CryptParams, mac: &[u8; 16]) -> BlockPtr {
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        let tail = u32::from_le_bytes(params.iv[8..].try_into().unwrap());
        BlockPtr::HOLE
            .with_word(0, 8)
            .with_word(1, 800)
            .with_word(4, word(&params.salt))
            .with_word(5, word(&params.iv[..8]))
            .with_word(11, u64::from(tail) << 32 | 1)
            .with_word(14, word(&mac[..8]))
            .with_word(15, word(&mac[8..]))
            .with_prop_bits(48, 8, kind.id().into())
            .with_prop_bits(61, 1, 1)
            .with_prop_bits(63, 1, 1)
    }

    fn params() -> CryptParams {
        CryptParams { salt: [5; 8], iv: [6; 12], mac: [0; 16] }
    }

    /// A block of dnodes: one with an encrypted bonus, one with a clear one, a large one with a spill
    /// pointer, and free slots.
    fn dnodes() -> Vec<u8> {
        let mut block = vec![0; 16384];
        let mut put = |slot: usize, kind: u8, bonus_kind: u8, flags: u8, extra: u8| {
            let at = slot * 512;
            block[at..at + 13]
                .copy_from_slice(&[kind, 14, 1, 1, bonus_kind, 0, 0, flags, 1, 0, 64, 0, extra]);
            let end = at + 512 * (usize::from(extra) + 1);
            for (i, byte) in block[at + 64..end].iter_mut().enumerate() {
                *byte = (i * 7) as u8;
            }
        };
        put(0, 19, 44, 3, 0);
        put(1, 20, 17, 3, 0);
        put(4, 19, 44, 7, 2);
        block
    }

    #[test]
    fn dnode_blocks_hide_encrypted_bonus_areas_only() {
        for suite in [Suite::Aes256Gcm, Suite::Aes128Ccm] {
            let key = data_key(suite);
            let plain = dnodes();
            let mut block = plain.clone();
            let mac = encrypt_dnode_block(&key, &params(), Endian::Little, &mut block).unwrap();
            assert_eq!(block[..192], plain[..192], "core and pointer");
            assert_ne!(block[192..512], plain[192..512], "bonus");
            assert_eq!(block[512..2048 + 192], plain[512..2048 + 192]);
            assert_ne!(block[2240..3456], plain[2240..3456]);
            assert_eq!(block[3456..], plain[3456..], "spill pointer");
            let bp = pointer(ObjType::DNODE, &params(), &mac);
            let sealed = block.clone();
            decrypt_dnode_block(&key, &bp, &mut block).unwrap();
            assert_eq!(block, plain);

            // Space used, accounting flags and addresses may change; types, sizes and bonus may not.
            let free = [7, 25, 512 + 64].map(|at| (at, true));
            let bound = [0, 512 + 64 + 48, 512 + 300, 3000, 5000, 16000].map(|at| (at, false));
            for (at, is_free) in free.into_iter().chain(bound) {
                let mut block = sealed.clone();
                block[at] ^= 1;
                let opened = decrypt_dnode_block(&key, &bp, &mut block);
                assert_eq!(opened.is_ok(), is_free, "byte {at}");
            }
        }
    }

    #[test]
    fn dnodes_that_run_over_the_end_are_errors() {
        let key = data_key(Suite::Aes256Gcm);
        let bp = pointer(ObjType::DNODE, &params(), &[0; 16]);
        for (at, value) in [(12, 40), (3, 9), (16384 - 512 + 12, 1)] {
            let mut block = dnodes();
            block[at] = value;
            let opened = decrypt_dnode_block(&key, &bp, &mut block);
            assert!(matches!(opened, Err(CryptError::Structure { .. })), "byte {at}");
        }
        assert!(decrypt_dnode_block(&key, &bp, &mut [0; 100]).is_err());
    }

    #[test]
    fn plain_and_authenticated_blocks() {
        let key = data_key(Suite::Aes192Ccm);
        let mut data = vec![7; 4096];
        let mac = key.encrypt(&params().salt, &params().iv, &[], &mut data).unwrap();
        let bp = pointer(ObjType::PLAIN_FILE, &params(), &mac);
        assert_eq!(decrypt_block(&key, &bp, &mut data), Ok(()));
        assert_eq!(data, [7; 4096]);
        let clear = pointer(ObjType::MASTER_NODE, &params(), &auth_mac(&key, &data));
        assert_eq!(verify_auth(&key, &clear, &data), Ok(()));
        assert_eq!(verify_auth(&key, &clear, &data[1..]), Err(CryptError::Authentication));
        assert_eq!(decrypt_block(&key, &clear, &mut data), Err(CryptError::NotEncrypted));
    }

    #[test]
    fn indirect_blocks_of_both_key_versions_and_orders() {
        let child = pointer(ObjType::PLAIN_FILE, &params(), &[9; 16]);
        let grandchild = child.with_prop_bits(56, 5, 1).with_prop_bits(16, 16, 3);
        for order in [Endian::Little, Endian::Big] {
            let block: Vec<u8> =
                [child, BlockPtr::HOLE, grandchild].iter().flat_map(|bp| bp.encode(order)).collect();
            let mut macs = Vec::new();
            for version in [0, 1] {
                let mac = indirect_mac(version, &block, order);
                // The words of the pointer have the bytes in the order of the block.
                let [head, tail] = [0, 8].map(|at| order.get_u64(&mac, at).expect("16 bytes"));
                let bp = pointer(ObjType::PLAIN_FILE, &params(), &mac)
                    .with_prop_bits(56, 5, 1)
                    .with_prop_bits(63, 1, u64::from(order == Endian::Little))
                    .with_word(14, head)
                    .with_word(15, tail);
                assert_eq!(verify_indirect_mac(&bp, &block), Ok(()));
                assert_eq!(verify_indirect_mac(&bp, &block[128..]), Err(CryptError::Authentication));
                macs.push(mac);
            }
            assert_ne!(macs[0], macs[1]);
        }
    }

    #[test]
    fn pointers_of_indirect_blocks_may_be_compressed_anew() {
        let bp = pointer(ObjType::PLAIN_FILE, &params(), &[9; 16]).with_prop_bits(56, 5, 2);
        let other = bp.with_prop_bits(16, 16, 7).with_prop_bits(32, 7, 15).with_prop_bits(40, 8, 8);
        let mac = |bp: &BlockPtr| indirect_mac(1, &bp.encode(Endian::Little), Endian::Little);
        assert_eq!(mac(&bp), mac(&other.with_word(0, 77).with_word(10, 99)));
        assert_ne!(mac(&bp), mac(&bp.with_prop_bits(0, 16, 9)), "the logical size counts");
        let data = bp.with_prop_bits(56, 5, 0);
        assert_ne!(mac(&data), mac(&data.with_prop_bits(16, 16, 7)), "so does the stored size of data");
    }

    #[test]
    fn log_blocks_keep_headers_and_pointers_in_clear() {
        let key = data_key(Suite::Aes256Gcm);
        let mut block = vec![0u8; 4096];
        let mut at = 184;
        for (kind, len) in [(1u64, 120usize), (9, 192), (9, 400), (24, 328), (1 << 63 | 1, 104)] {
            block[at..at + 8].copy_from_slice(&kind.to_le_bytes());
            block[at + 8..at + 16].copy_from_slice(&(len as u64).to_le_bytes());
            block[at + 32..at + len].fill(0x33);
            at += len;
        }
        block[136..144].copy_from_slice(&(at as u64).to_le_bytes());
        let plain = block.clone();
        let mac = encrypt_zil_block(&key, &params(), &mut block).unwrap();
        let bp = pointer(ObjType::INTENT_LOG, &params(), &[0; 16])
            .with_prop_bits(40, 8, ChecksumId::Zilog2.id().into())
            .with_word(15, 4);
        assert!(checksum::write_zil(&bp, &mut block, Some(&mac)));
        assert_eq!(checksum::verify_zil(&bp, &block), Some((Endian::Little, at)));
        let secret = |range: std::ops::Range<usize>| {
            assert!(block[range.clone()].iter().filter(|byte| **byte == 0x33).count() < range.len());
        };
        let clear = |range: std::ops::Range<usize>| assert_eq!(block[range.clone()], plain[range]);
        clear(184..216);
        secret(216..304);
        let write = 184 + 120;
        clear(write..write + 32);
        secret(write + 32..write + 64);
        clear(write + 64..write + 192);
        let long = write + 192;
        clear(long + 64..long + 192);
        secret(long + 192..long + 400);
        let clone = long + 400;
        secret(clone + 32..clone + 64);
        clear(clone + 64..clone + 328);
        decrypt_zil_block(&key, &bp, &mut block).unwrap();
        assert_eq!(block[..144], plain[..144]);
        assert_eq!(block[184..], plain[184..]);
    }

    #[test]
    fn log_records_of_wrong_lengths_are_errors() {
        let key = data_key(Suite::Aes256Gcm);
        for (len, used) in
            [(0u64, 400u64), (31, 400), (217, 400), (u64::MAX, 400), (32, 190), (32, 5000), (32, 10)]
        {
            let mut block = vec![0u8; 4096];
            block[184] = 9;
            block[192..200].copy_from_slice(&len.to_le_bytes());
            block[136..144].copy_from_slice(&used.to_le_bytes());
            let sealed = encrypt_zil_block(&key, &params(), &mut block);
            assert!(matches!(sealed, Err(CryptError::Structure { .. })), "{len} {used}");
        }
    }

    #[test]
    fn short_object_sets_are_errors() {
        let key = data_key(Suite::Aes256Gcm);
        for len in [0, 512, 719] {
            assert!(objset_macs(&key, &vec![0; len], Endian::Little).is_err());
        }
        let (_, local) = objset_macs(&key, &[0; 1024], Endian::Little).unwrap();
        assert_eq!(local, [0; 32]);
    }
}
