//! Holds: tags that keep a snapshot from being destroyed (docs/on-disk/22-mos-dsl.md, section 8).
//!
//! # What always holds
//! - A snapshot marked for deferred destruction has a hold or a clone. The task that removes the last one is
//!   told to destroy the snapshot.
//! - A temporary hold is also in the pool's list of temporary holds, so that the next import releases it.

use crate::dataset::Dataset;
use crate::error::DslError;
pub use crate::error::HoldError;
use crate::mos;
use crate::mos_tx::MosTx;
use format::dsl::{DS_FLAG_DEFER_DESTROY, DatasetPhys};
use format::names;
use format::{ObjType, ObjectId};

/// Longest tag in bytes, its NUL included.
const TAG_LIMIT: usize = 256;

/// A hold on a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Tag of the hold, chosen by the user.
    pub tag: String,
    /// Time when the hold was made, in seconds since 1970.
    pub time: u64,
}

impl Dataset {
    /// The holds on this snapshot, by tag.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn holds(&self) -> Result<Vec<Hold>, DslError> {
        let Some(refs) = self.phys().userrefs else { return Ok(Vec::new()) };
        let mut holds = Vec::new();
        for entry in mos::zap(self.dsl().mos(), refs)?.entries() {
            let entry = entry?;
            let tag = String::from_utf8_lossy(entry.name()).into_owned();
            holds.push(Hold { tag, time: mos::number(refs, &entry)? });
        }
        holds.sort_by(|a, b| a.tag.cmp(&b.tag));
        Ok(holds)
    }
}

fn temporary_key(snapshot: ObjectId, tag: &str) -> String {
    format!("{:x}-{tag}", snapshot.0)
}

fn snapshot(m: MosTx<'_>, id: ObjectId) -> Result<DatasetPhys, DslError> {
    let phys = m.dataset(id)?;
    if phys.is_snapshot() { Ok(phys) } else { Err(HoldError::NotSnapshot.into()) }
}

/// Checks that [`hold`] would succeed.
///
/// # Errors
/// [`DslError::Hold`] with the [`HoldError`]; [`DslError::NotFound`].
pub fn check_hold(m: MosTx<'_>, id: ObjectId, tag: &str, temporary: bool) -> Result<(), DslError> {
    let phys = snapshot(m, id)?;
    let len = if temporary { temporary_key(id, tag).len() } else { tag.len() };
    if tag.is_empty() || len >= TAG_LIMIT {
        return Err(HoldError::TagTooLong.into());
    }
    match phys.userrefs {
        Some(refs) if m.zap(refs)?.contains(tag.as_bytes())? => Err(HoldError::TagExists.into()),
        _ => Ok(()),
    }
}

/// Holds a snapshot. `time` is seconds since 1970; a temporary hold ends with the next import.
///
/// # Errors
/// [`DslError::Hold`] with the [`HoldError`]; or an object of the MOS cannot be read or changed.
pub fn hold(m: MosTx<'_>, id: ObjectId, tag: &str, time: u64, temporary: bool) -> Result<(), DslError> {
    check_hold(m, id, tag, temporary)?;
    let refs = match m.dataset(id)?.userrefs {
        Some(refs) => refs,
        None => {
            let refs = m.create_plain_zap(ObjType::USERREFS)?;
            m.change_dataset(id, |phys| phys.userrefs = Some(refs))?;
            refs
        }
    };
    m.zap(refs)?.insert(tag.as_bytes(), time)?;
    if temporary {
        let list = match m.entry(names::directory::TMP_USERREFS)? {
            Some(list) => list,
            None => {
                let list = m.create_plain_zap(ObjType::USERREFS)?;
                m.set_entry(names::directory::TMP_USERREFS, list.0)?;
                list
            }
        };
        m.zap(list)?.insert(temporary_key(id, tag).as_bytes(), time)?;
    }
    Ok(())
}

/// Number of holds on the snapshot.
///
/// # Errors
/// If an object of the MOS cannot be read, or is damaged.
pub fn count(m: MosTx<'_>, id: ObjectId) -> Result<u64, DslError> {
    match m.dataset(id)?.userrefs {
        Some(refs) => Ok(m.zap(refs)?.count()?),
        None => Ok(0),
    }
}

/// Whether the snapshot has holds.
///
/// # Errors
/// If an object of the MOS cannot be read, or is damaged.
pub(crate) fn is_held(m: MosTx<'_>, id: ObjectId) -> Result<bool, DslError> {
    Ok(count(m, id)? > 0)
}

/// Checks that [`release`] would succeed.
///
/// # Errors
/// [`DslError::Hold`] with the [`HoldError`]; [`DslError::NotFound`].
pub fn check_release(m: MosTx<'_>, id: ObjectId, tag: &str) -> Result<(), DslError> {
    match snapshot(m, id)?.userrefs {
        Some(refs) if m.zap(refs)?.contains(tag.as_bytes())? => Ok(()),
        _ => Err(HoldError::NoSuchTag.into()),
    }
}

/// Releases a hold. Returns true if the snapshot is marked for deferred destruction and this was its last
/// hold: the caller must destroy it now.
///
/// # Errors
/// [`DslError::Hold`] with the [`HoldError`]; or an object of the MOS cannot be read or changed.
pub fn release(m: MosTx<'_>, id: ObjectId, tag: &str) -> Result<bool, DslError> {
    check_release(m, id, tag)?;
    if let Some(refs) = m.dataset(id)?.userrefs {
        m.zap(refs)?.remove(tag.as_bytes())?;
    }
    if let Some(list) = m.entry(names::directory::TMP_USERREFS)? {
        m.zap(list)?.remove_if_present(temporary_key(id, tag).as_bytes())?;
    }
    is_due(m, id)
}

/// Whether a snapshot is marked for deferred destruction and has neither a hold nor a clone.
///
/// # Errors
/// If an object of the MOS cannot be read, or is damaged.
pub(crate) fn is_due(m: MosTx<'_>, id: ObjectId) -> Result<bool, DslError> {
    let phys = m.dataset(id)?;
    let is_marked = phys.flags & DS_FLAG_DEFER_DESTROY != 0;
    Ok(is_marked && phys.num_children == 1 && count(m, id)? == 0)
}

/// Marks a snapshot for deferred destruction, with its last hold or clone.
///
/// # Errors
/// If an object of the MOS cannot be read or changed: the txg must not end then.
pub fn defer(m: MosTx<'_>, id: ObjectId) -> Result<(), DslError> {
    m.change_dataset(id, |phys| phys.flags |= DS_FLAG_DEFER_DESTROY)
}

/// Frees the list of holds of a snapshot that is being destroyed.
///
/// # Errors
/// If an object of the MOS cannot be read or changed: the txg must not end then.
pub(crate) fn free_all(m: MosTx<'_>, id: ObjectId) -> Result<(), DslError> {
    let Some(refs) = m.dataset(id)?.userrefs else { return Ok(()) };
    m.change_dataset(id, |phys| phys.userrefs = None)?;
    m.free(refs)
}

/// Releases all temporary holds, as an import does. Returns the snapshots that must be destroyed now.
///
/// # Errors
/// If an object of the MOS cannot be read or changed: the txg must not end then.
pub fn release_temporary(m: MosTx<'_>) -> Result<Vec<ObjectId>, DslError> {
    let Some(list) = m.entry(names::directory::TMP_USERREFS)? else { return Ok(Vec::new()) };
    let mut due = Vec::new();
    for entry in mos::zap(&m.view(), list)?.entries() {
        let entry = entry?;
        let name = String::from_utf8_lossy(entry.name()).into_owned();
        let parsed =
            name.split_once('-').and_then(|(id, tag)| Some((u64::from_str_radix(id, 16).ok()?, tag)));
        let Some((id, tag)) = parsed else { continue };
        let id = ObjectId(id);
        match release(m, id, tag) {
            Ok(true) => due.push(id),
            // The snapshot may be gone, or software without support for the list has released the hold.
            Ok(false) | Err(DslError::Hold(_) | DslError::Dmu(_) | DslError::WrongType { .. }) => {
                m.zap(list)?.remove_if_present(entry.name())?;
            }
            Err(error) => return Err(error),
        }
    }
    m.remove_entry(names::directory::TMP_USERREFS)?;
    m.free(list)?;
    Ok(due)
}
