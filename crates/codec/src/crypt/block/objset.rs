//! The two MACs of an object set (docs/on-disk/31-encryption.md, section 8).

use super::DataKey;
use super::record::{DnodeParts, bad_dnode};
use crate::crypt::CryptError;
use format::Endian;
use format::dnode::SLOT_SIZE;
use format::objset::FLAG_USERACCOUNTING_COMPLETE;

const WHAT: &str = "objset";
const KIND: usize = 704;
const FLAGS: usize = 712;
/// The flags that are portable, that is, travel with a raw stream: none.
const PORTABLE_FLAGS: u64 = 0;
/// Offsets of the dnodes for user, group and project accounting, in object sets that have them.
const ACCOUNTING: [usize; 3] = [1024, 1536, 2048];
/// Size of object sets with project accounting; smaller ones may have user and group accounting.
const WITH_PROJECTS: usize = 4096;

/// The portable and the local MAC that the object set should have. The local MAC is zero if space accounting is
/// incomplete; after a raw receive it is zero on disk too, regardless of the flags.
///
/// # Errors
/// [`CryptError`] if the object set is too short.
pub fn objset_macs(key: &DataKey, objset: &[u8], order: Endian) -> Result<([u8; 32], [u8; 32]), CryptError> {
    let short = CryptError::Structure { what: WHAT, why: "ends too early", at: objset.len() };
    let kind = order.get_u64(objset, KIND).ok_or(short.clone())?;
    let flags = order.get_u64(objset, FLAGS).ok_or(short)?;
    let mut meta = Vec::new();
    push_dnode(key, objset, 0, order, &mut meta)?;
    // The big-endian type is an accident that became part of the format.
    let portable = key.hmac(&[&kind.to_be_bytes(), &PORTABLE_FLAGS.to_le_bytes(), &meta]);

    let mut accounting = Vec::new();
    let present = if objset.len() >= WITH_PROJECTS { 3 } else { 2 };
    for at in ACCOUNTING.into_iter().take(present) {
        if objset.get(at).is_some_and(|kind| *kind != 0) {
            push_dnode(key, objset, at, order, &mut accounting)?;
        }
    }
    let local = if flags & FLAG_USERACCOUNTING_COMPLETE == 0 || accounting.is_empty() {
        [0; 32]
    } else {
        head(&key.hmac(&[&flags.to_le_bytes(), &accounting]))
    };
    Ok((head(&portable), local))
}

fn push_dnode(
    key: &DataKey,
    objset: &[u8],
    at: usize,
    order: Endian,
    out: &mut Vec<u8>,
) -> Result<(), CryptError> {
    let slot = objset.get(at..at + SLOT_SIZE).ok_or(bad_dnode(WHAT, at))?;
    let parts = DnodeParts::of(slot).ok_or(bad_dnode(WHAT, at))?;
    parts.push_record(key.version(), slot, order, out);
    Ok(())
}

fn head(digest: &[u8; 64]) -> [u8; 32] {
    let mut mac = [0; 32];
    mac.copy_from_slice(&digest[..32]);
    mac
}
