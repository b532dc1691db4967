//! The state that a partly received dataset keeps to be resumed (docs/on-disk/30-send-streams.md, section 8).

use super::Begin;
use crate::error::{DslError, ReceiveRefusal};
use crate::heads::head::ReceivePoint;
use crate::mos_tx::MosTx;
use crate::zapify;
use dmu::zap::ZapValue;
use format::ObjectId;
use format::names::dataset as key;

/// The object that an unstarted receive names.
const FIRST_OBJECT: u64 = 1;

/// All keys of the state.
const KEYS: [&str; 11] = [
    key::RESUME_FROMGUID,
    key::RESUME_OBJECT,
    key::RESUME_OFFSET,
    key::RESUME_BYTES,
    key::RESUME_TOGUID,
    key::RESUME_TONAME,
    key::RESUME_REDACT_BOOK_SNAPS,
    key::RESUME_LARGEBLOCKOK,
    key::RESUME_EMBEDOK,
    key::RESUME_COMPRESSOK,
    key::RESUME_RAWOK,
];

/// Stores the state of a receive that begins.
pub(super) fn store(m: MosTx<'_>, head: ObjectId, request: &Begin) -> Result<(), DslError> {
    if request.from_guid != 0 {
        zapify::set(m, head, key::RESUME_FROMGUID, request.from_guid)?;
    }
    zapify::set(m, head, key::RESUME_TOGUID, request.to_guid)?;
    zapify::set(m, head, key::RESUME_TONAME, ZapValue::Str(request.to_name.as_bytes()))?;
    zapify::set(m, head, key::RESUME_OBJECT, FIRST_OBJECT)?;
    zapify::set(m, head, key::RESUME_OFFSET, 0_u64)?;
    zapify::set(m, head, key::RESUME_BYTES, 0_u64)?;
    let flags = [
        (key::RESUME_LARGEBLOCKOK, request.has_large_blocks),
        (key::RESUME_EMBEDOK, request.has_embedded),
        (key::RESUME_COMPRESSOK, request.is_compressed),
        (key::RESUME_RAWOK, request.raw.is_some()),
    ];
    for (name, _) in flags.into_iter().filter(|(_, is_set)| *is_set) {
        zapify::set(m, head, name, 1_u64)?;
    }
    if let Some(snaps) = &request.redact_from_snaps {
        zapify::set(m, head, key::RESUME_REDACT_BOOK_SNAPS, ZapValue::U64s(snaps))?;
    }
    Ok(())
}

/// Stores how far a receive has come, if it can be resumed.
pub(crate) fn store_point(m: MosTx<'_>, head: ObjectId, point: &ReceivePoint) -> Result<(), DslError> {
    if !is_resumable(m, head)? {
        return Ok(());
    }
    zapify::set(m, head, key::RESUME_OBJECT, point.object.0)?;
    zapify::set(m, head, key::RESUME_OFFSET, point.offset)?;
    zapify::set(m, head, key::RESUME_BYTES, point.bytes)
}

/// Whether a dataset has such a state.
pub(super) fn is_resumable(m: MosTx<'_>, head: ObjectId) -> Result<bool, DslError> {
    Ok(zapify::entry(m, head, key::RESUME_TOGUID)?.is_some())
}

/// Checks that a stream goes on where the receive has stopped. Returns that place.
pub(super) fn check(m: MosTx<'_>, head: ObjectId, request: &Begin) -> Result<ReceivePoint, DslError> {
    let stored = |name| zapify::get(m, head, name).map(Option::unwrap_or_default);
    let same_stream =
        stored(key::RESUME_TOGUID)? == request.to_guid && stored(key::RESUME_FROMGUID)? == request.from_guid;
    let object = ObjectId(stored(key::RESUME_OBJECT)?);
    let offset = stored(key::RESUME_OFFSET)?;
    if !same_stream || request.resumes != Some((object, offset)) {
        return Err(ReceiveRefusal::NotResumable { name: request.dataset.clone() }.into());
    }
    Ok(ReceivePoint { object, offset, bytes: stored(key::RESUME_BYTES)? })
}

/// Removes the state from a dataset that is whole.
pub(super) fn remove(m: MosTx<'_>, head: ObjectId) -> Result<(), DslError> {
    KEYS.iter().try_for_each(|name| zapify::remove(m, head, name).map(drop))
}
