//! The key data of raw streams: all that a receiver needs to make the encrypted dataset, with its keys still wrapped
//! (docs/on-disk/31-encryption.md, section 13).

use super::{SendError, Source};
use dmu::ObjSet;
use dsl::DslError;
use dsl::keys::CryptoKey;
use format::names::key_object as names;
use format::nvlist::{NvList, NvValue};

/// Version of key objects that receivers accept.
const VERSION: u64 = 1;

/// The list `crypt_keydata` of the first record.
pub(super) fn list(source: &Source, set: &ObjSet) -> Result<NvList, SendError> {
    let dir = source.dataset.dir();
    let refused = SendError::Refused;
    let key = CryptoKey::of(dir)?.ok_or(refused("the dataset is not encrypted"))?;
    if key.wrapped.version != VERSION {
        return Err(refused("the dataset was encrypted by an old version, and cannot be sent raw"));
    }
    let root = CryptoKey::of(&key.root(dir.dsl())?)?.ok_or(refused("the encryption root has no key"))?;
    let from_ivset = match &source.from {
        None => 0,
        Some(from) => from.ivset_guid.ok_or(refused("the incremental source has no IV set guid"))?,
    };
    let to_ivset = source.dataset.ivset_guid()?.unwrap_or(0);
    let bytes = |bytes: &[u8]| NvValue::Uint8Array(bytes.to_vec());
    let mut list = NvList::new();
    list.push(names::SUITE, key.wrapped.suite.id());
    list.push(names::GUID, key.wrapped.guid);
    list.push(names::VERSION, key.wrapped.version);
    list.push(names::MASTER_KEY, bytes(&key.wrapped.master));
    list.push(names::HMAC_KEY, bytes(&key.wrapped.hmac));
    list.push(names::IV, bytes(&key.wrapped.iv));
    list.push(names::MAC, bytes(&key.wrapped.mac));
    list.push("portable_mac", bytes(&set.phys().portable_mac));
    list.push(names::KEYFORMAT, root.format().map_err(DslError::from)?.id());
    list.push(names::PBKDF2_ITERS, root.iterations);
    list.push(names::PBKDF2_SALT, root.salt);
    let meta = &set.phys().meta_dnode;
    list.push("mdn_checksum", u64::from(meta.checksum));
    list.push("mdn_compress", u64::from(meta.compress));
    list.push("mdn_nlevels", u64::from(meta.nlevels));
    list.push("mdn_blksz", meta.data_block_size());
    list.push("mdn_indblkshift", u64::from(meta.indblkshift));
    list.push("mdn_nblkptr", meta.blkptrs.len() as u64);
    list.push("mdn_maxblkid", meta.maxblkid.0);
    list.push("to_ivset_guid", to_ivset);
    list.push("from_ivset_guid", from_ivset);
    Ok(list)
}
