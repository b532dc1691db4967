//! Blocks of the intent log: chain header, record headers and block pointers are in clear, so that a pool can be
//! claimed without keys (docs/on-disk/31-encryption.md, section 9).

use super::{CryptParams, DataKey, Plan};
use crate::checksum::{CHAIN_SIZE, TRAILER_MAGIC};
use crate::crypt::{CryptError, MAC_LEN};
use format::{BlockPtr, Endian};

const WHAT: &str = "log block";
const NUSED: usize = 136;
/// Offset of the magic number and checksum at the end of the chain header. They are not authenticated, because they
/// contain the MAC.
const EMBEDDED: usize = 144;
const MAC: usize = EMBEDDED + 24;
const RECORD_HEADER: usize = 32;
const TX_WRITE: u64 = 9;
const TX_CLONE_RANGE: u64 = 24;
/// Flag in the type of a record: names are looked up without regard to case.
const CASE_BIT: u64 = 1 << 63;
/// Range of the block pointer in a write record.
const WRITE_POINTER: std::ops::Range<usize> = 64..192;
/// Offset of the number of pointers in a clone record; the pointers follow.
const CLONE_POINTERS: usize = 64;

/// Decrypts the records of a log block in place. Its checksum was verified, so its chain header is in front: blocks
/// with the older layout are never encrypted.
///
/// # Errors
/// [`CryptError`] if the pointer is not of an encrypted block, the records do not hold together, or the MAC
/// is wrong.
pub fn decrypt_zil_block(key: &DataKey, bp: &BlockPtr, block: &mut [u8]) -> Result<(), CryptError> {
    let mut params = bp.crypt_params().ok_or(CryptError::NotEncrypted)?;
    let order = order(block)?;
    let words: [u64; 2] = order.words(WHAT, block, MAC).map_err(|_| short(block))?;
    for (bytes, word) in params.mac.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    plan(block, order)?.decrypt(key, &params, block)
}

/// Encrypts the records of a log block, complete except for its checksum, in place. Returns the MAC, which becomes
/// part of the checksum. The MAC in `params` is ignored.
///
/// # Errors
/// [`CryptError`] if the records are not consistent.
pub fn encrypt_zil_block(
    key: &DataKey,
    params: &CryptParams,
    block: &mut [u8],
) -> Result<[u8; MAC_LEN], CryptError> {
    plan(block, Endian::Little)?.encrypt(key, params, block)
}

fn short(block: &[u8]) -> CryptError {
    CryptError::Structure { what: WHAT, why: "ends too early", at: block.len() }
}

fn order(block: &[u8]) -> Result<Endian, CryptError> {
    [Endian::Little, Endian::Big]
        .into_iter()
        .find(|order| order.get_u64(block, EMBEDDED) == Some(TRAILER_MAGIC))
        .ok_or(CryptError::Structure { what: WHAT, why: "no magic number", at: EMBEDDED })
}

fn plan(block: &[u8], order: Endian) -> Result<Plan, CryptError> {
    let bad = |why, at| CryptError::Structure { what: WHAT, why, at };
    let used = order.get_u64(block, NUSED).and_then(|used| usize::try_from(used).ok());
    let used = used.and_then(|used| block.get(..used)).ok_or(bad("more used than there is", NUSED))?;
    let header = used.get(..CHAIN_SIZE).ok_or(bad("less used than the header", NUSED))?;
    let mut plan = Plan { aad: header.iter().take(EMBEDDED).copied().collect(), secret: Vec::new() };
    let mut at = CHAIN_SIZE;
    while at < used.len() {
        let rest = used.get(at..).unwrap_or(&[]);
        let kind = order.get_u64(rest, 0).ok_or(bad("a record is cut off", at))? & !CASE_BIT;
        let len = order.get_u64(rest, 8).and_then(|len| usize::try_from(len).ok());
        let record = len
            .filter(|len| *len >= RECORD_HEADER)
            .and_then(|len| rest.get(..len))
            .ok_or(bad("the length of a record is wrong", at))?;
        add_record(&mut plan, kind, record, at);
        at += record.len();
    }
    Ok(plan)
}

/// Adds the record that starts at byte `at` of the block.
fn add_record(plan: &mut Plan, kind: u64, record: &[u8], at: usize) {
    let len = record.len();
    let pointers = match kind {
        TX_WRITE => WRITE_POINTER.start.min(len)..WRITE_POINTER.end.min(len),
        TX_CLONE_RANGE => CLONE_POINTERS.min(len)..len,
        _ => len..len,
    };
    for clear in [0..RECORD_HEADER, pointers.clone()] {
        plan.aad.extend_from_slice(record.get(clear).unwrap_or(&[]));
    }
    for secret in [RECORD_HEADER..pointers.start, pointers.end..len] {
        if !secret.is_empty() {
            plan.secret.push(at + secret.start..at + secret.end);
        }
    }
}
