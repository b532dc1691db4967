//! Deadlists: blocks of the previous snapshot that a dataset no longer references, grouped by birth
//! (docs/on-disk/22-mos-dsl.md, section 4.2; docs/on-disk/15-space.md, section 6.2).

pub(crate) mod change;
#[cfg(test)]
mod tests;

use crate::block_space::Space;
use crate::bpobj::Bpobj;
use crate::error::DslError;
use crate::mos;
use dmu::ObjSet;
use dmu::zap::{Zap, ZapKey};
use format::dsl::DeadlistPhys;
use format::{BlockPtr, ObjType, ObjectId, Txg};
use std::sync::Arc;

/// A deadlist that is open for reading.
pub struct Deadlist {
    mos: Arc<ObjSet>,
    form: Form,
}

enum Form {
    /// One bpobj per range of births, ascending.
    Sorted { totals: Space, buckets: Vec<(Txg, ObjectId)> },
    /// One bpobj for all blocks, in pools before version 26.
    Bare(Bpobj),
}

impl Deadlist {
    /// Opens the deadlist in object `id` of the MOS.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn open(mos: &Arc<ObjSet>, id: ObjectId) -> Result<Deadlist, DslError> {
        let object = mos.object(id)?;
        let form = if object.dnode().bonus_type == ObjType::BPOBJ_HDR {
            Form::Bare(Bpobj::open(mos, id)?)
        } else {
            let object = mos::object_with_bonus(mos, id, ObjType::DEADLIST_HDR, "deadlist")?;
            let phys = DeadlistPhys::decode(object.bonus(), object.order()).map_err(DslError::decode(id))?;
            let totals = Space { used: phys.used, compressed: phys.comp, uncompressed: phys.uncomp };
            let mut buckets = Vec::new();
            for entry in Zap::open(&object)?.entries() {
                let entry = entry?;
                let key = match &entry.key {
                    ZapKey::Name(name) => parse_hex(name),
                    ZapKey::Words(_) => None,
                };
                let key = key.ok_or_else(|| mos::stored_value(id, &entry))?;
                buckets.push((Txg(key), ObjectId(mos::number(id, &entry)?)));
            }
            buckets.sort_unstable();
            Form::Sorted { totals, buckets }
        };
        Ok(Deadlist { mos: mos.clone(), form })
    }

    /// Total charge of all blocks in all lists.
    pub fn space(&self) -> Space {
        match &self.form {
            Form::Sorted { totals, .. } => *totals,
            Form::Bare(bpobj) => bpobj.space(),
        }
    }

    /// Lower bounds of births (exclusive), each with the bpobj of the blocks up to the next bound.
    pub fn buckets(&self) -> &[(Txg, ObjectId)] {
        match &self.form {
            Form::Sorted { buckets, .. } => buckets,
            Form::Bare(_) => &[],
        }
    }

    /// The single list of a deadlist of a pool before version 26.
    pub fn bare(&self) -> Option<&Bpobj> {
        match &self.form {
            Form::Sorted { .. } => None,
            Form::Bare(bpobj) => Some(bpobj),
        }
    }

    /// Total charge of the blocks born after `after` and up to `until`, both bounds of buckets.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn space_between(&self, after: Txg, until: Txg) -> Result<Space, DslError> {
        let mut sum = Space::default();
        match &self.form {
            Form::Sorted { buckets, .. } => {
                for (_, id) in buckets.iter().filter(|(key, _)| *key >= after && *key < until) {
                    sum = sum.plus(Bpobj::open(&self.mos, *id)?.space());
                }
            }
            Form::Bare(bpobj) => {
                let zio = self.mos.store().zio().clone();
                let deflate = crate::block_space::deflates(&self.mos)?;
                bpobj.for_each(&mut |bp, _| {
                    let birth = bp.accounting_birth();
                    if birth > after && birth <= until {
                        sum = sum.plus(crate::block_space::of_pointer(&zio, deflate, bp));
                    }
                    Ok(())
                })?;
            }
        }
        Ok(sum)
    }

    /// Calls `visit` with each block; the flag is the freed mark of livelists.
    ///
    /// # Errors
    /// Those of the callback; or a list cannot be read.
    pub fn for_each(
        &self,
        visit: &mut dyn FnMut(&BlockPtr, bool) -> Result<(), DslError>,
    ) -> Result<(), DslError> {
        match &self.form {
            Form::Sorted { buckets, .. } => {
                for (_, id) in buckets {
                    Bpobj::open(&self.mos, *id)?.for_each(visit)?;
                }
                Ok(())
            }
            Form::Bare(bpobj) => bpobj.for_each(visit),
        }
    }
}

/// Parses a ZAP key that is a number in hex.
pub(crate) fn parse_hex(name: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(name).ok()?;
    if text.starts_with('+') { None } else { u64::from_str_radix(text, 16).ok() }
}
