//! Blocks of dnodes: bonus areas of encrypted types are encrypted in place, all other bytes are authenticated
//! (docs/on-disk/31-encryption.md, section 6).

use super::record::{DnodeParts, bad_dnode};
use super::{CryptParams, DataKey, Plan};
use crate::crypt::{CryptError, MAC_LEN};
use format::{BlockPtr, Endian, ObjType};

/// Decrypts the bonus areas of a block of dnodes.
///
/// # Errors
/// [`CryptError`] if the pointer is not of an encrypted block, the structure of the block does not hold
/// together, or the MAC is wrong.
pub fn decrypt_dnode_block(key: &DataKey, bp: &BlockPtr, data: &mut [u8]) -> Result<(), CryptError> {
    let params = bp.crypt_params().ok_or(CryptError::NotEncrypted)?;
    plan(key.version(), data, bp.byte_order())?.decrypt(key, &params, data)
}

/// Encrypts the bonus areas of a block of dnodes. Returns the MAC; the one in `params` is ignored.
///
/// # Errors
/// [`CryptError`] if the structure of the block is not consistent.
pub fn encrypt_dnode_block(
    key: &DataKey,
    params: &CryptParams,
    order: Endian,
    data: &mut [u8],
) -> Result<[u8; MAC_LEN], CryptError> {
    plan(key.version(), data, order)?.encrypt(key, params, data)
}

fn plan(version: u64, data: &[u8], order: Endian) -> Result<Plan, CryptError> {
    let mut plan = Plan { aad: Vec::with_capacity(data.len() / 2), secret: Vec::new() };
    let mut at = 0;
    while at < data.len() {
        let dnode = data.get(at..).unwrap_or(&[]);
        let parts = DnodeParts::of(dnode).ok_or(bad_dnode("dnode block", at))?;
        parts.push_record(version, dnode, order, &mut plan.aad);
        let bonus = parts.bonus.clone();
        if has_secret_bonus(dnode, order) {
            plan.secret.push(at + bonus.start..at + bonus.end);
        } else {
            plan.aad.extend_from_slice(dnode.get(bonus).unwrap_or(&[]));
        }
        at += parts.len;
    }
    Ok(plan)
}

fn has_secret_bonus(dnode: &[u8], order: Endian) -> bool {
    let byte = |at: usize| dnode.get(at).copied().unwrap_or(0);
    let is_allocated = byte(0) != 0;
    let has_bonus = order.get_u16(dnode, 10).unwrap_or(0) != 0;
    is_allocated && has_bonus && ObjType::from_id_unchecked(byte(4)).is_encrypted()
}
