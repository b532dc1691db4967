//! Raw streams: encrypted datasets that are received without their key (docs/on-disk/31-encryption.md, section 13).
//!
//! A full stream makes a dataset that is an encryption root of its own, with the wrapped keys of the stream; an increment
//! replaces the wrapped keys at its end, so that a change of the user's key at the sender follows.

use super::{Begin, refused};
use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::error::{DslError, ReceiveRefusal};
use crate::keyring::{CryptoKey, KeyFormat};
use crate::keys::KEYLOCATION;
use crate::keys::change::key_object_of;
use crate::mos_tx::MosTx;
use crate::task::TaskCtx;
use crate::zapify;
use codec::crypt::{KEY_VERSION, KeyObject, Suite};
use dmu::zap::ZapValue;
use dmu::{KeyState, ObjSet, RawSet};
use format::dnode::{SLOT_SIZE, SLOTS_PER_BLOCK};
use format::names::{self, key_object};
use format::{NvList, NvValue, ObjType, ObjectId};

/// Where the key of a dataset that was received is, until the user says otherwise.
const PROMPT: &str = "prompt";
/// Block pointers of the array of dnodes.
const META_POINTERS: u64 = 3;
/// Sizes of indirect blocks, as powers of two.
const INDIRECT_SHIFTS: std::ops::RangeInclusive<u64> = 12..=17;
/// Greatest height of the array of dnodes.
const LEVELS_MAX: u64 = 12;

/// The list `crypt_keydata` at the start of a raw stream.
#[derive(Debug, Clone)]
pub struct RawStart {
    /// The wrapped keys.
    pub key: KeyObject,
    /// Number of the format of the user's key,
    pub keyformat: u64,
    /// and how a passphrase becomes the key that wraps the others: salt,
    pub salt: u64,
    /// and rounds of PBKDF2.
    pub iterations: u64,
    /// What the sender's object set is like.
    pub set: RawSet,
    /// IV set guid of the snapshot that is sent,
    pub to_ivset: u64,
    /// and of the snapshot from which the increment starts; 0: a full stream.
    pub from_ivset: u64,
}

fn invalid(why: &'static str) -> DslError {
    DslError::Receive(ReceiveRefusal::Invalid(why))
}

fn number(list: &NvList, name: &str) -> Result<u64, DslError> {
    list.u64(name).ok_or_else(|| invalid("a raw stream whose description of its keys lacks a number"))
}

fn bytes<const N: usize>(list: &NvList, name: &str) -> Result<[u8; N], DslError> {
    match list.get(name) {
        Some(NvValue::Uint8Array(bytes)) => bytes.as_slice().try_into().ok(),
        _ => None,
    }
    .ok_or_else(|| invalid("a raw stream whose description of its keys lacks a key"))
}

impl RawStart {
    /// Reads the list at the start of a raw stream.
    ///
    /// # Errors
    /// [`ReceiveRefusal::Invalid`] if an entry is missing or has a value that none has.
    pub fn from_list(start: &NvList) -> Result<RawStart, DslError> {
        let list = start.list("crypt_keydata").ok_or_else(|| invalid("a raw stream without its keys"))?;
        let suite = Suite::from_id(number(list, key_object::SUITE)?);
        let version = number(list, key_object::VERSION)?;
        if version != KEY_VERSION {
            return Err(invalid("a raw stream with keys of an unknown version"));
        }
        let keyformat = number(list, key_object::KEYFORMAT)?;
        let iterations = number(list, key_object::PBKDF2_ITERS)?;
        match KeyFormat::from_id(keyformat) {
            Some(KeyFormat::Passphrase) if iterations == 0 => {
                return Err(invalid("a raw stream whose passphrase has no rounds"));
            }
            Some(_) => {}
            None => return Err(invalid("a raw stream with a key of an unknown format")),
        }
        Ok(RawStart {
            key: KeyObject {
                suite: suite.ok_or_else(|| invalid("a raw stream with an unknown crypto suite"))?,
                guid: number(list, key_object::GUID)?,
                version,
                iv: bytes(list, key_object::IV)?,
                mac: bytes(list, key_object::MAC)?,
                master: bytes(list, key_object::MASTER_KEY)?,
                hmac: bytes(list, key_object::HMAC_KEY)?,
            },
            keyformat,
            salt: number(list, key_object::PBKDF2_SALT)?,
            iterations,
            set: set_of(list)?,
            to_ivset: number(list, "to_ivset_guid")?,
            from_ivset: number(list, "from_ivset_guid")?,
        })
    }
}

/// The shape of the array of dnodes.
fn set_of(list: &NvList) -> Result<RawSet, DslError> {
    let byte = |name: &str| u8::try_from(number(list, name)?).map_err(|_| invalid("no such id of dnodes"));
    let (levels, shift) = (number(list, "mdn_nlevels")?, number(list, "mdn_indblkshift")?);
    let max_block = number(list, "mdn_maxblkid")?;
    let is_shape = number(list, "mdn_blksz")? == (SLOT_SIZE * SLOTS_PER_BLOCK) as u64
        && number(list, "mdn_nblkptr")? == META_POINTERS
        && INDIRECT_SHIFTS.contains(&shift)
        && (1..=LEVELS_MAX).contains(&levels)
        && max_block < ObjectId::LIMIT / SLOTS_PER_BLOCK as u64
        && max_block.checked_shr(((shift - 7) * (levels - 1)) as u32).unwrap_or(0) < META_POINTERS;
    if !is_shape {
        return Err(invalid("a raw stream whose dnodes have an impossible shape"));
    }
    Ok(RawSet {
        portable_mac: bytes(list, "portable_mac")?,
        checksum: byte("mdn_checksum")?,
        compress: byte("mdn_compress")?,
        levels: levels as u8,
        indirect_shift: shift as u8,
        max_block,
    })
}

/// Checks that an increment, or the stream of a clone, fits the snapshot that it starts from.
pub(super) fn check_source(
    ctx: &TaskCtx<'_>,
    request: &Begin,
    raw: &RawStart,
    from: &Dataset,
) -> Result<(), DslError> {
    let name = || from.name().to_owned();
    let Some(key) = CryptoKey::of(from.dir())? else {
        return refused(ReceiveRefusal::NotEncrypted { name: name() });
    };
    if key.wrapped.guid != raw.key.guid || key.wrapped.suite != raw.key.suite {
        return refused(ReceiveRefusal::OtherKey { name: name() });
    }
    if from.phys().guid == request.from_guid {
        match from.ivset_guid()? {
            None | Some(0) => return refused(ReceiveRefusal::NoIvSet { name: name() }),
            Some(_) if raw.from_ivset == 0 => return refused(ReceiveRefusal::NoIvSet { name: name() }),
            Some(guid) if guid != raw.from_ivset => {
                return refused(ReceiveRefusal::OtherIvSet { name: name() });
            }
            Some(_) => {}
        }
    }
    let set = ObjSet::open(ctx.mos.store(), &from.phys().bp, from.id().0, KeyState::Locked)?;
    if !raw.set.fits(&set.phys().meta_dnode) {
        return refused(ReceiveRefusal::Invalid("a raw increment whose dnodes have another shape"));
    }
    Ok(())
}

/// Checks that a stream that resumes a receive has the keys of the dataset.
pub(super) fn check_resumed(dir: &Dir, raw: Option<&RawStart>) -> Result<(), DslError> {
    let name = || dir.name().to_owned();
    match (CryptoKey::of(dir)?, raw) {
        (None, None) => Ok(()),
        (Some(key), Some(raw)) if key.wrapped.guid == raw.key.guid => Ok(()),
        (Some(_), Some(_)) => refused(ReceiveRefusal::OtherKey { name: name() }),
        _ => refused(ReceiveRefusal::NotResumable { name: name() }),
    }
}

/// Makes a new directory, whose head is `head`, an encryption root with the keys of the stream.
pub(super) fn create_key(
    m: MosTx<'_>,
    dir: ObjectId,
    head: ObjectId,
    raw: &RawStart,
) -> Result<(), DslError> {
    let object = m.create_plain_zap(ObjType::ZAP_METADATA)?;
    let zap = m.zap(object)?;
    zap.upsert(key_object::SUITE.as_bytes(), raw.key.suite.id())?;
    zap.upsert(key_object::GUID.as_bytes(), raw.key.guid)?;
    zap.upsert(key_object::VERSION.as_bytes(), raw.key.version)?;
    zap.upsert(key_object::ROOT_DIR.as_bytes(), dir.0)?;
    zap.upsert(key_object::REFCOUNT.as_bytes(), 1_u64)?;
    store_wrapped(m, object, raw)?;
    zapify::set(m, dir, names::dir::CRYPTO_KEY_OBJ, object.0)?;
    zapify::activate_feature(m, head, "encryption")?;
    if let Some(props) = m.dir(dir)?.props {
        m.zap(props)?.upsert(KEYLOCATION.as_bytes(), ZapValue::Str(PROMPT.as_bytes()))?;
    }
    Ok(())
}

/// Stores what changes with the user's key.
fn store_wrapped(m: MosTx<'_>, object: ObjectId, raw: &RawStart) -> Result<(), DslError> {
    let zap = m.zap(object)?;
    let key = &raw.key;
    zap.upsert(key_object::IV.as_bytes(), ZapValue::Bytes(&key.iv))?;
    zap.upsert(key_object::MAC.as_bytes(), ZapValue::Bytes(&key.mac))?;
    zap.upsert(key_object::MASTER_KEY.as_bytes(), ZapValue::Bytes(&key.master))?;
    zap.upsert(key_object::HMAC_KEY.as_bytes(), ZapValue::Bytes(&key.hmac))?;
    zap.upsert(key_object::KEYFORMAT.as_bytes(), raw.keyformat)?;
    zap.upsert(key_object::PBKDF2_SALT.as_bytes(), raw.salt)?;
    Ok(zap.upsert(key_object::PBKDF2_ITERS.as_bytes(), raw.iterations)?)
}

/// Ends a raw receive into this directory: its keys are wrapped as in the stream, and its new snapshot has the IV set
/// guid of the stream. If the user's key has changed, the one that is loaded is removed: it is not the key any more.
pub(super) fn finish(
    ctx: &TaskCtx<'_>,
    dir: ObjectId,
    snapshot: ObjectId,
    raw: &RawStart,
) -> Result<(), DslError> {
    let m = ctx.m();
    if let Some(object) = key_object_of(m, dir)? {
        let known = CryptoKey::read(&m.view(), object)?;
        if known.wrapped != raw.key || known.salt != raw.salt || known.iterations != raw.iterations {
            store_wrapped(m, object, raw)?;
            ctx.heads.keyring().forget(dir);
        }
    }
    zapify::set(m, snapshot, names::dataset::IVSET_GUID, raw.to_ivset)
}
