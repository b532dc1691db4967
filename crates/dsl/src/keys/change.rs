//! Key objects of encrypted datasets, in changes that need no loaded key (docs/on-disk/31-encryption.md,
//! sections 3 and 12).
//!
//! # What always holds
//! - A key object counts the directories that name it, and is freed with the last of them.

use super::{CryptoKey, KEYLOCATION};
use crate::error::DslError;
use crate::mos_tx::MosTx;
use crate::task::TaskCtx;
use crate::zapify;
use format::ObjectId;
use format::names;

/// The key object of a directory; `None`: it is not encrypted.
pub(crate) fn key_object_of(m: MosTx<'_>, dir: ObjectId) -> Result<Option<ObjectId>, DslError> {
    Ok(zapify::get(m, dir, names::dir::CRYPTO_KEY_OBJ)?.filter(|id| *id != 0).map(ObjectId))
}

/// The encryption root of a directory; `None`: it is not encrypted.
pub(crate) fn key_root_of(m: MosTx<'_>, dir: ObjectId) -> Result<Option<ObjectId>, DslError> {
    let Some(key) = key_object_of(m, dir)? else { return Ok(None) };
    Ok(m.zap(key)?.lookup_u64(names::key_object::ROOT_DIR.as_bytes())?.map(ObjectId))
}

/// Gives a clone the key object of its origin.
pub(crate) fn share_key(m: MosTx<'_>, from: ObjectId, to: ObjectId) -> Result<(), DslError> {
    let Some(key) = key_object_of(m, from)? else { return Ok(()) };
    m.zap(key)?.increment(names::key_object::REFCOUNT.as_bytes(), 1)?;
    zapify::set(m, to, names::dir::CRYPTO_KEY_OBJ, key.0)
}

/// Drops the reference of a directory that is being destroyed to its key object.
pub(crate) fn release_key(m: MosTx<'_>, dir: ObjectId) -> Result<(), DslError> {
    let Some(key) = key_object_of(m, dir)? else { return Ok(()) };
    if m.zap(key)?.increment(names::key_object::REFCOUNT.as_bytes(), -1)? == 0 {
        m.free(key)?;
    }
    Ok(())
}

/// Gives a snapshot of an encrypted head a new IV set guid.
pub(crate) fn mark_snapshot_ivs(m: MosTx<'_>, dir: ObjectId, snapshot: ObjectId) -> Result<(), DslError> {
    if key_object_of(m, dir)?.is_none() {
        return Ok(());
    }
    zapify::set(m, snapshot, names::dataset::IVSET_GUID, m.env.random())
}

/// Ends the receive of a raw stream into a dataset that has its key from the dataset above at the sender: its keys are
/// wrapped with that key already, so it joins the encryption root of its parent. Nothing changes if it does not fit: if the
/// parent is not encrypted, or has a key that is derived in another way.
///
/// # Errors
/// If an object of the MOS cannot be read, or is damaged.
pub fn inherit_sent(ctx: &mut TaskCtx<'_>, name: &str) -> Result<(), DslError> {
    let dsl = ctx.dsl()?;
    let dir = dsl.dir(name)?;
    let Some(parent) = dir.parent() else { return Ok(()) };
    let (Some(own), Some(above)) = (CryptoKey::of(&dir)?, CryptoKey::of(parent)?) else { return Ok(()) };
    let derived = |key: &CryptoKey| (key.format, key.salt, key.iterations);
    if own.root_dir != dir.id() || derived(&own) != derived(&above) {
        return Ok(());
    }
    let m = ctx.m();
    let mut stack = vec![dir.clone()];
    while let Some(at) = stack.pop() {
        // Those below that inherit from it inherit from its new root.
        if let Some(object) = key_object_of(m, at.id())?
            && key_root_of(m, at.id())? == Some(dir.id())
        {
            m.zap(object)?.upsert(names::key_object::ROOT_DIR.as_bytes(), above.root_dir.0)?;
        }
        stack.extend(at.children()?);
    }
    if let Some(props) = m.dir(dir.id())?.props {
        let zap = m.zap(props)?;
        zap.remove_if_present(KEYLOCATION.as_bytes())?;
        zap.remove_if_present(format!("{KEYLOCATION}{}", names::prop_suffix::RECEIVED).as_bytes())?;
    }
    ctx.heads.keyring().forget(dir.id());
    Ok(())
}
