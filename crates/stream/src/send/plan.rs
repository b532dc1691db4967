//! What a stream may contain, and its first record (docs/on-disk/30-send-streams.md, section 2).

use super::{Options, SendError, Source, key_data};
use dmu::zap::Zap;
use dmu::{KeyState, ObjSet};
use dsl::Dsl;
use dsl::bookmark::RedactionList;
use format::names::master_node;
use format::nvlist::{NvList, NvValue};
use format::objset::ObjsetType;
use format::stream::{Begin, End, MAGIC, Record, feature, flag};
use format::{ObjectId, Txg};
use std::sync::Arc;

/// Bytes of the field of the first record that has the name of the snapshot, with a zero at the end.
const NAME_SIZE: usize = 256;

/// The decisions about a stream.
pub(super) struct Plan {
    /// The object set; of a raw stream of an encrypted one, without its key.
    pub(super) set: Arc<ObjSet>,
    /// For reading redaction lists.
    pub(super) dsl: Dsl,
    /// Feature flags, with the bits of [`feature`].
    pub(super) features: u64,
    /// Blocks that are not newer are not sent.
    pub(super) from: Txg,
    /// Blocks that are sent even so.
    pub(super) missing: Option<RedactionList>,
    /// Blocks that are left out.
    pub(super) redact: Option<RedactionList>,
    /// The first object and byte of it that are sent.
    pub(super) start: (ObjectId, u64),
    /// Guid in records.
    pub(super) guid: u64,
    /// Unreadable blocks are filled.
    pub(super) fill_unreadable: bool,
    /// The stream has an end.
    pub(super) ends: bool,
    begin: Begin,
    payload: Vec<u8>,
}

impl Plan {
    pub(super) fn new(source: &Source, options: &Options) -> Result<Plan, SendError> {
        let dataset = &source.dataset;
        let set = &source.set;
        let is_encrypted = dataset.is_encrypted()?;
        let is_raw = options.raw && is_encrypted;
        let redacted = dataset.redact_snaps()?;
        if is_raw && (options.redact.is_some() || redacted.is_some()) {
            return Err(SendError::Refused("raw streams cannot be redacted"));
        }
        let features = features(source, options, is_raw, redacted.is_some())?;
        // Without its key, the set yields the bonus areas as they are stored.
        let set = if is_raw {
            set.open_other(set.root(), set.number(), KeyState::Locked)?
        } else {
            Arc::clone(set)
        };
        let redact_snaps = options.redact.as_ref().map(|list| list.snapshots.clone()).or(redacted);
        let list = begin_list(source, options, redact_snaps, is_raw, &set)?;
        let phys = dataset.phys();
        let begin = Begin {
            magic: MAGIC,
            version_info: 1 | features << 2,
            creation_time: phys.creation_time,
            objset_type: set.kind().id() as u32,
            flags: begin_flags(source)?,
            to_guid: options.to_guid.unwrap_or(phys.guid),
            from_guid: source.from.as_ref().map_or(0, |from| from.guid),
            to_name: name_field(&options.to_name)?,
        };
        Ok(Plan {
            set,
            dsl: dataset.dsl().clone(),
            features,
            from: source.from.as_ref().map_or(Txg(0), |from| from.txg),
            missing: source.from.as_ref().and_then(|from| from.redaction.clone()),
            redact: options.redact.clone(),
            start: options.resume.unwrap_or((ObjectId(0), 0)),
            guid: phys.guid,
            fill_unreadable: options.fill_unreadable,
            ends: !options.saved,
            begin,
            payload: if list.is_empty() { Vec::new() } else { list.encode_native() },
        })
    }

    pub(super) fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Blocks are sent encrypted, as they are on disk.
    pub(super) fn is_raw(&self) -> bool {
        self.has(feature::RAW)
    }

    pub(super) fn sends_compressed(&self) -> bool {
        self.has(feature::COMPRESSED)
    }

    pub(super) fn begin(&self) -> Record {
        Record::Begin(self.begin.clone())
    }

    pub(super) fn begin_payload(&self) -> &[u8] {
        &self.payload
    }

    pub(super) fn end(&self) -> Record {
        // The writer puts the checksum in.
        Record::End(End { checksum: [0; 4], to_guid: self.begin.to_guid })
    }
}

fn name_field(name: &str) -> Result<[u8; NAME_SIZE], SendError> {
    let mut field = [0; NAME_SIZE];
    let place = field.get_mut(..name.len()).filter(|place| place.len() < NAME_SIZE);
    place.ok_or(SendError::Refused("the name is too long"))?.copy_from_slice(name.as_bytes());
    Ok(field)
}

fn begin_flags(source: &Source) -> Result<u32, SendError> {
    let mut flags = flag::FREE_RECORDS | flag::SPILL_BLOCK;
    if source.from.as_ref().is_some_and(|from| from.is_origin) {
        flags |= flag::CLONE;
    }
    if format::dsl::DS_FLAG_CASE_INSENSITIVE & source.dataset.phys().flags != 0 {
        flags |= flag::CASE_INSENSITIVE;
    }
    Ok(flags)
}

/// The feature flags of the stream.
fn features(source: &Source, options: &Options, is_raw: bool, is_redacted: bool) -> Result<u64, SendError> {
    let used = source.dataset.features()?;
    let in_dataset = |name: &str| used.iter().any(|feature| feature.name == name);
    let in_pool = |name: &str| source.pool_features.contains(&name);
    let is_encrypted = source.dataset.is_encrypted()?;
    let mut bits = 0;
    let mut set = |bit: u64, is_on: bool| bits |= if is_on { bit } else { 0 };
    let embeds = (options.embedded || options.raw) && !is_encrypted && in_pool("embedded_data");
    // The contents of encrypted blocks are sent decompressed: they are decrypted first.
    let compressed = options.raw || (options.compressed && !is_encrypted);
    let large = (options.large_blocks || options.raw) && in_dataset("large_blocks");
    set(feature::SA_SPILL, zpl_version(&source.set)? >= ZPL_WITH_ATTRIBUTES);
    set(feature::LARGE_BLOCKS, large);
    set(feature::EMBED_DATA, embeds);
    set(feature::COMPRESSED, compressed);
    set(feature::RAW, is_raw);
    set(feature::LZ4, (embeds || compressed) && in_pool("lz4_compress"));
    set(feature::ZSTD, compressed && in_dataset("zstd_compress"));
    set(feature::LARGE_DNODE, in_dataset("large_dnode"));
    set(feature::LONGNAME, in_dataset("longname"));
    set(feature::LARGE_MICROZAP, in_dataset("large_microzap"));
    set(feature::REDACTED, options.redact.is_some() || is_redacted);
    set(feature::RESUMING, options.resume.is_some());
    if in_dataset("large_microzap") && !large {
        return Err(SendError::Refused("directories with large blocks need a stream with large blocks"));
    }
    Ok(bits)
}

/// The first version of file systems that has system attributes, and with them spill blocks.
const ZPL_WITH_ATTRIBUTES: u64 = 5;

/// The version of a file system; 0 for other sets.
fn zpl_version(set: &Arc<ObjSet>) -> Result<u64, SendError> {
    if set.kind() != ObjsetType::Zfs {
        return Ok(0);
    }
    // A partly received file system may lack it.
    let Ok(object) = set.object(master_node::OBJECT) else { return Ok(0) };
    let found = Zap::open(&object).and_then(|zap| zap.lookup_u64(master_node::VERSION.as_bytes()));
    Ok(found.ok().flatten().unwrap_or(0))
}

/// The payload of the first record.
fn begin_list(
    source: &Source,
    options: &Options,
    redact_snaps: Option<Vec<u64>>,
    is_raw: bool,
    set: &ObjSet,
) -> Result<NvList, SendError> {
    let mut list = NvList::new();
    if let Some(snaps) = redact_snaps {
        list.push("redact_snaps", NvValue::Uint64Array(snaps));
    }
    if let Some(snaps) = source.from.as_ref().and_then(|from| from.redact_snaps.clone()) {
        list.push("redact_from_snaps", NvValue::Uint64Array(snaps));
    }
    if let Some((object, offset)) = options.resume {
        list.push("resume_object", object.0);
        list.push("resume_offset", offset);
    }
    if is_raw {
        list.push("crypt_keydata", key_data::list(source, set)?);
    }
    Ok(list)
}
