//! Encryption and authentication by kind of block (docs/on-disk/31-encryption.md, sections 4 to 9).
//!
//! | block | function |
//! | --- | --- |
//! | level 0 of an encrypted type | [`decrypt_block`] |
//! | dnodes: only bonus areas are encrypted | [`decrypt_dnode_block`] |
//! | level 0 of any other type | [`verify_auth`] |
//! | level 1 and above | [`indirect_mac`], [`verify_indirect_mac`], on the decompressed block |
//! | object set | [`objset_macs`], to be compared with those in the block |
//! | intent log | [`decrypt_zil_block`] |
//!
//! Except the last two, the functions work on the bytes as they are on disk, after their checksum was verified.

mod dnode;
mod objset;
mod record;
mod zil;

pub use dnode::{decrypt_dnode_block, encrypt_dnode_block};
pub use objset::objset_macs;
pub use zil::{decrypt_zil_block, encrypt_zil_block};

use super::{CryptError, DataKey, KEY_VERSION, MAC_LEN, check_mac, sha512};
use format::blkptr::CryptParams;
use format::{BlockPtr, Endian};
use std::ops::Range;

/// Decrypts the block that `bp` points to, `psize` bytes as they are on disk.
///
/// # Errors
/// [`CryptError`] if the pointer is not of an encrypted block, the structure of the block does not hold
/// together, or the MAC is wrong.
pub fn decrypt_block(key: &DataKey, bp: &BlockPtr, data: &mut [u8]) -> Result<(), CryptError> {
    let CryptParams { salt, iv, mac } = bp.crypt_params().ok_or(CryptError::NotEncrypted)?;
    key.decrypt(&salt, &iv, &mac, &[], data)
}

/// Verifies the MAC of a level-0 block that is only authenticated; `data` is `psize` bytes as on disk.
///
/// # Errors
/// [`CryptError::Authentication`] if the MAC is wrong; another [`CryptError`] if the pointer has none.
pub fn verify_auth(key: &DataKey, bp: &BlockPtr, data: &[u8]) -> Result<(), CryptError> {
    check_mac(&auth_mac(key, data), &bp.mac_bytes())
}

/// The MAC of a level-0 block that is only authenticated.
pub(crate) fn auth_mac(key: &DataKey, data: &[u8]) -> [u8; MAC_LEN] {
    head(&key.hmac(&[data]))
}

/// Verifies the MAC of an indirect block; `data` is the decompressed block. No key is needed: it is a plain hash of
/// the MACs in the block, in the form of either version of key objects.
///
/// # Errors
/// [`CryptError::Authentication`] if the MAC is wrong; another [`CryptError`] if the pointer has none.
pub fn verify_indirect_mac(bp: &BlockPtr, data: &[u8]) -> Result<(), CryptError> {
    let order = bp.byte_order();
    let stored = bp.mac_bytes();
    [KEY_VERSION, 0]
        .into_iter()
        .find_map(|version| check_mac(&indirect_mac(version, data, order), &stored).ok())
        .ok_or(CryptError::Authentication)
}

/// The MAC of a decompressed indirect block, in the form of the given version of key objects. It needs no key.
pub fn indirect_mac(version: u64, data: &[u8], order: Endian) -> [u8; MAC_LEN] {
    let mut records = Vec::with_capacity(data.len() / 4);
    for bp in BlockPtr::decode_all(data, order) {
        record::push_pointer(version, &bp, &mut records);
    }
    head(&sha512(&[&records]))
}

fn head(digest: &[u8; 64]) -> [u8; MAC_LEN] {
    let mut mac = [0; MAC_LEN];
    mac.copy_from_slice(&digest[..MAC_LEN]);
    mac
}

/// The parts of a structured block: data that is authenticated in clear, and ranges that are encrypted.
struct Plan {
    aad: Vec<u8>,
    /// Ascending ranges without overlaps, within the block.
    secret: Vec<Range<usize>>,
}

impl Plan {
    /// The encrypted bytes of the block, concatenated.
    fn gather(&self, block: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.secret.iter().map(ExactSizeIterator::len).sum());
        for range in &self.secret {
            out.extend_from_slice(block.get(range.clone()).unwrap_or(&[]));
        }
        out
    }

    /// Copies the ranges back into the block, the inverse of `gather`.
    fn scatter(&self, mut bytes: &[u8], block: &mut [u8]) {
        for range in &self.secret {
            let Some(place) = block.get_mut(range.clone()) else { return };
            let Some((head, rest)) = bytes.split_at_checked(place.len()) else { return };
            place.copy_from_slice(head);
            bytes = rest;
        }
    }

    fn decrypt(&self, key: &DataKey, params: &CryptParams, block: &mut [u8]) -> Result<(), CryptError> {
        let mut bytes = self.gather(block);
        let opened = key.decrypt(&params.salt, &params.iv, &params.mac, &self.aad, &mut bytes);
        self.scatter(&bytes, block);
        opened
    }

    /// Encrypts the ranges. Returns the MAC; the one in `params` is ignored.
    fn encrypt(
        &self,
        key: &DataKey,
        params: &CryptParams,
        block: &mut [u8],
    ) -> Result<[u8; MAC_LEN], CryptError> {
        let mut bytes = self.gather(block);
        let mac = key.encrypt(&params.salt, &params.iv, &self.aad, &mut bytes)?;
        self.scatter(&bytes, block);
        Ok(mac)
    }
}
