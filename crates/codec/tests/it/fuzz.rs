//! Hostile input: an error or the right data, never a panic, and no more memory than the output and a constant.
//!
//! Images begin with those of real pools in `tests/__fuzz__`. Changed bytes would not pass a checksum or a MAC, so
//! inputs with one are made valid here, with the sizes of real blocks, and changed after that.

use bolero::{ValueGenerator, produce};
use cenote_codec::checksum::{
    self, Salt, verify_gang_header, verify_trailer, verify_zil, write_gang_header, write_trailer, write_zil,
};
use cenote_codec::compress::{compress, decompress};
use cenote_codec::crypt::{CryptError, DataKey, KeyObject, Suite, WrappingKey, block};
use cenote_codec::gf256;
use format::blkptr::CryptParams;
use format::{BlockPtr, ChecksumId, CompressionId, Endian};
use testkit::alloc::thread_peak;
use testkit::fuzz::Target;

/// Maximum memory of an algorithm beyond its output, in bytes. Zstandard's tables are allocated by C code and not
/// counted here; it decodes into the output and has no window of its own.
const SCRATCH_MAX: usize = 128 << 10;

/// Changes of single bytes; positions are taken modulo the length.
type Changes = Vec<(u16, u8)>;

/// Random bytes, at most `max`. Without a range, a vector would get at most 64.
fn bytes(max: usize) -> impl ValueGenerator<Output = Vec<u8>> {
    produce::<Vec<u8>>().with().len(0..=max)
}

/// The words of a pointer.
fn words() -> impl ValueGenerator<Output = Vec<u8>> {
    bytes(128)
}

/// Decompresses, and checks the memory used.
fn decompress_within_bounds(id: CompressionId, image: &[u8], block: &mut [u8]) -> bool {
    let (result, peak) = thread_peak(|| decompress(id, image, block));
    assert!(peak <= SCRATCH_MAX, "{id}: {peak} bytes");
    result.is_ok()
}

fn change(bytes: &mut [u8], changes: &Changes) {
    let len = bytes.len().max(1);
    for (at, with) in changes.iter().take(8) {
        if let Some(byte) = bytes.get_mut(usize::from(*at) % len) {
            *byte ^= with;
        }
    }
}

fn any_compression(id: u8) -> CompressionId {
    CompressionId::from_id(id % 17).expect("ids are dense")
}

/// A block pointer with these words, changed to have a checksum and the given encryption.
fn pointer(words: &[u8]) -> BlockPtr {
    let mut raw = [0; 128];
    for (to, from) in raw.iter_mut().zip(words) {
        *to = *from;
    }
    BlockPtr::decode(&raw, Endian::Little).expect("128 bytes")
}

fn key(suite: u8) -> DataKey {
    let suite = Suite::ALL[usize::from(suite) % Suite::ALL.len()];
    DataKey::new(suite, 1, u64::from(suite.id() != 5), &[7; 32][..suite.key_len()], &[9; 64])
        .expect("lengths")
}

/// Input: one byte for the algorithm, two for the size of the block in units of 16 bytes, then the image.
#[test]
fn decompress_any_bytes() {
    let target = Target::new(env!("CARGO_MANIFEST_DIR"), "decompress_any_bytes");
    // The block is at most 1 MiB.
    bolero::check!(name = "decompress_any_bytes").for_each(target.bound((1 << 20) + SCRATCH_MAX, 0).checked(
        |input| {
            let Some(([id, low, high], image)) = input.split_first_chunk() else { return false };
            let mut block = vec![0; 16 * usize::from(u16::from_le_bytes([*low, *high]))];
            decompress_within_bounds(any_compression(*id), image, &mut block)
        },
    ));
}

#[test]
fn decompress_damaged_images() {
    let input = (produce::<u8>(), 0u8..8, bytes(4000), produce::<Changes>());
    bolero::check!().with_generator(input).for_each(|(id, repeat, data, changes)| {
        let data = data.repeat(usize::from(*repeat) + 1);
        let id = any_compression(*id);
        let Some(mut image) = compress(id, 3, &data, 2 * data.len() + 64) else { return };
        image.resize(image.len().next_multiple_of(512), 0);
        let mut block = vec![0; data.len()];
        assert!(decompress_within_bounds(id, &image, &mut block));
        assert!(block == data, "{id}");
        change(&mut image, changes);
        decompress_within_bounds(id, &image, &mut block);
        let cut = image.len() / 2;
        decompress_within_bounds(id, &image[..cut], &mut block);
    });
}

#[test]
fn checksums_of_any_pointer() {
    bolero::check!().with_generator((words(), bytes(5000))).for_each(|(words, data)| {
        let bp = pointer(words);
        let _ = checksum::verify(&bp, data, None);
        let _ = checksum::verify(&bp, data, Some(&Salt([1; 32])));
        let _ = verify_gang_header(data, &bp);
        let _ = verify_zil(&bp, data);
    });
}

#[test]
fn trailers() {
    let input = (bytes(3000), words(), produce::<u64>(), produce::<Changes>());
    bolero::check!().with_generator(input).for_each(|(region, words, at, changes)| {
        let verifier = [*at, 0, 0, 0];
        let _ = verify_trailer(region, verifier);
        let mut region = region.clone();
        if write_trailer(&mut region, verifier).is_ok() {
            assert_eq!(verify_trailer(&region, verifier), Ok(Some(Endian::Little)));
            let written = region.clone();
            change(&mut region, changes);
            if region != written {
                assert_eq!(verify_trailer(&region, verifier), Ok(None));
            }
        }
        let bp = pointer(words);
        if write_gang_header(&mut region, &bp).is_ok() {
            assert_eq!(verify_gang_header(&region, &bp), Ok(Some(Endian::Little)));
        }
    });
}

#[test]
fn log_blocks() {
    let input = (words(), bytes(9000), produce::<bool>(), produce::<u8>(), produce::<Changes>());
    bolero::check!().with_generator(input).for_each(|(words, records, is_old, suite, changes)| {
        let id = if *is_old { ChecksumId::Zilog } else { ChecksumId::Zilog2 };
        let bp = pointer(words)
            .with_prop_bits(39, 1, 0)
            .with_prop_bits(40, 8, id.id().into())
            .with_prop_bits(48, 8, 9)
            .with_prop_bits(56, 6, 0b10_0000)
            .with_word(0, 8);
        let key = key(*suite);
        let mut block = vec![0; 184];
        block.extend_from_slice(records);
        let used = block.len() as u64;
        block.resize(block.len().next_multiple_of(4096), 0);
        let nused_at = if *is_old { block.len() - 184 + 136 } else { 136 };
        block[nused_at..nused_at + 8].copy_from_slice(&used.to_le_bytes());
        let params = bp.crypt_params().expect("an encrypted pointer");
        let plain = block.clone();
        if let (false, Ok(mac)) = (*is_old, block::encrypt_zil_block(&key, &params, &mut block)) {
            assert!(write_zil(&bp, &mut block, Some(&mac)));
            assert_eq!(verify_zil(&bp, &block), Some((Endian::Little, used as usize)));
            let mut opened = block.clone();
            assert_eq!(block::decrypt_zil_block(&key, &bp, &mut opened), Ok(()));
            assert_eq!(opened[184..], plain[184..]);
        }
        change(&mut block, changes);
        let _ = verify_zil(&bp, &block);
        let _ = block::decrypt_zil_block(&key, &bp, &mut block);
    });
}

#[test]
fn blocks_of_dnodes() {
    // 32 slots of 16 KiB: the first bytes of each determine the structure of the block.
    let input = (bytes(512), words(), produce::<u8>(), produce::<bool>(), produce::<Changes>());
    bolero::check!().with_generator(input).for_each(|(cores, words, suite, is_big, changes)| {
        let key = key(*suite);
        let order = if *is_big { Endian::Big } else { Endian::Little };
        let mut block = vec![0; 16384];
        for (slot, core) in block.chunks_exact_mut(512).zip(cores.chunks(16)) {
            slot[..core.len()].copy_from_slice(core);
        }
        let params = CryptParams { salt: [1; 8], iv: [2; 12], mac: [0; 16] };
        let plain = block.clone();
        if let Ok(mac) = block::encrypt_dnode_block(&key, &params, order, &mut block) {
            let [low, high] = [0, 8].map(|at| order.get_u64(&mac, at).unwrap());
            let bp = BlockPtr::HOLE
                .with_word(0, 8)
                .with_word(4, 0x0101_0101_0101_0101)
                .with_word(5, 0x0202_0202_0202_0202)
                .with_word(11, 0x0202_0202_0000_0000)
                .with_word(14, low)
                .with_word(15, high)
                .with_prop_bits(48, 8, 10)
                .with_prop_bits(61, 1, 1)
                .with_prop_bits(63, 1, u64::from(!is_big));
            assert_eq!(block::decrypt_dnode_block(&key, &bp, &mut block), Ok(()));
            assert!(block == plain);
        }
        change(&mut block, changes);
        let _ = block::decrypt_dnode_block(&key, &pointer(words), &mut block);
        let _ =
            block::decrypt_dnode_block(&key, &pointer(words).with_word(0, 8), cores.clone().as_mut_slice());
    });
}

#[test]
fn any_protected_block() {
    bolero::check!().with_generator((words(), bytes(5000), produce::<u8>())).for_each(
        |(words, data, suite)| {
            let (bp, key) = (pointer(words), key(*suite));
            let mut data = data.clone();
            let _ = block::verify_auth(&key, &bp, &data);
            let _ = block::verify_indirect_mac(&bp, &data);
            let _ = block::objset_macs(&key, &data, bp.byte_order());
            let mut objset = data.clone();
            objset.resize(4096, 0);
            let _ = block::objset_macs(&key, &objset, bp.byte_order());
            if block::decrypt_block(&key, &bp, &mut data) == Err(CryptError::Authentication) {
                assert!(data.iter().all(|byte| *byte == 0));
            }
        },
    );
}

#[test]
fn key_objects() {
    type Fields = (u8, u64, u64, [u8; 12], [u8; 16], [u8; 32], Changes);
    bolero::check!().with_type::<Fields>().for_each(|(suite, guid, version, iv, mac, master, changes)| {
        let suite = Suite::ALL[usize::from(*suite) % Suite::ALL.len()];
        let hmac = [0x3c; 64];
        let wrapping = WrappingKey::new(*master);
        let object =
            KeyObject { suite, guid: *guid, version: *version, iv: *iv, mac: *mac, master: *master, hmac };
        assert!(object.unwrap_key(&wrapping).is_err(), "a guessed tag");
        let key = DataKey::new(suite, *guid, *version % 2, &master[..suite.key_len()], &hmac).unwrap();
        let mut wrapped = KeyObject::wrap(&key, &wrapping, *iv).unwrap();
        assert!(wrapped.unwrap_key(&wrapping).is_ok());
        let before = wrapped.clone();
        change(&mut wrapped.master[..suite.key_len()], changes);
        change(&mut wrapped.hmac, changes);
        let is_same = wrapped == before;
        assert_eq!(wrapped.unwrap_key(&wrapping).is_ok(), is_same);
    });
}

#[test]
fn passphrases() {
    bolero::check!().with_generator((bytes(600), produce::<u64>(), produce::<u8>())).for_each(
        |(passphrase, salt, rounds)| {
            assert_eq!(
                WrappingKey::from_passphrase(passphrase, *salt, u64::from(*rounds)).is_ok(),
                *rounds > 0
            );
        },
    );
}

#[test]
fn raidz_columns() {
    let input = (produce::<u8>(), produce::<u8>(), produce::<u8>(), bytes(1500), bytes(4));
    bolero::check!().with_generator(input).for_each(|(nparity, ndata, short, data, missing)| {
        let (nparity, ndata) = (usize::from(*nparity) % 4, usize::from(*ndata) % 40);
        let len = data.len();
        let short = usize::from(*short) % (len + 1);
        let mut columns: Vec<Vec<u8>> = (0..nparity + ndata)
            .map(|i| if i % 3 == 2 && i >= nparity { data[..short].to_vec() } else { data.clone() })
            .collect();
        let (parity, rest) = columns.split_at_mut(nparity);
        let rest: Vec<&[u8]> = rest.iter().map(Vec::as_slice).collect();
        let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        let generated = gf256::generate(&rest, &mut parity);
        assert_eq!(generated.is_ok(), nparity > 0 && ndata > 0);
        let whole = columns.clone();
        let missing: Vec<usize> = missing.iter().take(4).map(|i| usize::from(*i) % 48).collect();
        for column in &missing {
            if let Some(column) = columns.get_mut(*column) {
                column.fill(0xcc);
            }
        }
        let mut slices: Vec<&mut [u8]> = columns.iter_mut().map(Vec::as_mut_slice).collect();
        if gf256::reconstruct(&mut slices, nparity, &missing).is_ok() {
            assert!(columns == whole);
        }
    });
}
