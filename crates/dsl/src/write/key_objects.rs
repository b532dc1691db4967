//! Key objects of encrypted datasets, as far as changes that need no key touch them
//! (docs/on-disk/31-encryption.md, sections 3 and 12).
//!
//! # What always holds
//! - A key object counts the directories that name it, and goes with the last of them.

use super::mos_tx::MosTx;
use super::zapify;
use crate::DslError;
use format::ObjectId;

/// Key in a directory's ZAP: its key object.
const KEY: &str = "com.datto:crypto_key_obj";
/// Key in a snapshot's ZAP: identity of its IVs.
const IVSET_GUID: &str = "com.datto:ivset_guid";
/// Entries of a key object.
const REFCOUNT: &[u8] = b"DSL_CRYPTO_REFCOUNT";
const ROOT: &[u8] = b"DSL_CRYPTO_ROOT_DDOBJ";

/// The key object of a directory; none: it is not encrypted.
pub(crate) fn of(m: MosTx<'_>, dir: ObjectId) -> Result<Option<ObjectId>, DslError> {
    Ok(zapify::get(m, dir, KEY)?.filter(|id| *id != 0).map(ObjectId))
}

/// The directory that asks for the key of a directory.
pub(crate) fn root_of(m: MosTx<'_>, dir: ObjectId) -> Result<Option<ObjectId>, DslError> {
    let Some(key) = of(m, dir)? else { return Ok(None) };
    Ok(m.zap(key)?.lookup_u64(ROOT)?.map(ObjectId))
}

/// A clone has the key of its origin.
pub(crate) fn share(m: MosTx<'_>, from: ObjectId, to: ObjectId) -> Result<(), DslError> {
    let Some(key) = of(m, from)? else { return Ok(()) };
    m.zap(key)?.increment(REFCOUNT, 1)?;
    zapify::set(m, to, KEY, key.0)
}

/// A directory goes.
pub(crate) fn release(m: MosTx<'_>, dir: ObjectId) -> Result<(), DslError> {
    let Some(key) = of(m, dir)? else { return Ok(()) };
    if m.zap(key)?.increment(REFCOUNT, -1)? == 0 {
        m.free(key)?;
    }
    Ok(())
}

/// A snapshot of an encrypted head has IVs of its own from here on.
pub(crate) fn mark_snapshot(m: MosTx<'_>, dir: ObjectId, snapshot: ObjectId) -> Result<(), DslError> {
    if of(m, dir)?.is_none() {
        return Ok(());
    }
    zapify::set(m, snapshot, IVSET_GUID, m.env.random())
}
