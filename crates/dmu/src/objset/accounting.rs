//! Space and objects of users, groups and projects (docs/on-disk/20-dmu.md, section 8).
//!
//! A sync compares each changed dnode with its old state, sums the differences by owner, and adds them to the
//! three accounting objects once.

use crate::DmuError;
use crate::objset::live::LiveSet;
use format::dnode::{Dnode, FLAG_USEROBJUSED_ACCOUNTED, FLAG_USERUSED_ACCOUNTED, SLOT_SIZE};
use format::sa::SA_MAGIC;
use format::{ObjType, ObjectId};
use std::collections::BTreeMap;
use std::sync::Arc;
use zio::AllocTx;

/// The owners of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    user: u64,
    group: u64,
    project: u64,
}

/// Flag of a file that has a project id.
const HAS_PROJECT: u64 = 1 << 47;

/// Reads the owners from a bonus: system attributes begin with those needed here, always in the same order,
/// so their layout need not be known.
pub(crate) fn owner_of(bonus_type: ObjType, bonus: &[u8]) -> Option<Owner> {
    let word = |at: usize, is_big: bool| -> Option<u64> {
        let bytes = bonus.get(at..at + 8)?.try_into().ok()?;
        Some(if is_big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    };
    match bonus_type {
        ObjType::SA => {
            let magic: [u8; 4] = bonus.get(..4)?.try_into().ok()?;
            let is_big = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
                (SA_MAGIC, _) => false,
                (_, SA_MAGIC) => true,
                _ => return None,
            };
            let info: [u8; 2] = bonus.get(4..6)?.try_into().ok()?;
            let info = if is_big { u16::from_be_bytes(info) } else { u16::from_le_bytes(info) };
            let header = usize::from(info >> 10) * 8;
            let flags = word(header + 48, is_big)?;
            Some(Owner {
                user: word(header + 24, is_big)?,
                group: word(header + 32, is_big)?,
                project: if flags & HAS_PROJECT != 0 { word(header + 128, is_big)? } else { 0 },
            })
        }
        ObjType::ZNODE => Some(Owner { user: word(128, false)?, group: word(136, false)?, project: 0 }),
        _ => None,
    }
}

/// Differences in bytes and objects, by owner id.
type Deltas = BTreeMap<u64, (i64, i64)>;

/// The differences of a sync.
#[derive(Debug, Default)]
pub(crate) struct Accounting {
    users: Deltas,
    groups: Deltas,
    projects: Deltas,
}

impl Accounting {
    /// Notes the change of a dnode from `old` to `new`; `None`: it did not or does not exist.
    pub(crate) fn note(&mut self, old: Option<&Dnode>, new: Option<&Dnode>) {
        for (dnode, sign) in [(old, -1), (new, 1)] {
            let Some(dnode) = dnode else { continue };
            if dnode.flags & FLAG_USERUSED_ACCOUNTED == 0 {
                continue;
            }
            let Some(owner) = owner_of(dnode.bonus_type, dnode.valid_bonus()) else { continue };
            let bytes = sign * (SLOT_SIZE as i64 + dnode.used_bytes() as i64);
            let objects = if dnode.flags & FLAG_USEROBJUSED_ACCOUNTED != 0 { sign } else { 0 };
            let maps = [
                (&mut self.users, owner.user),
                (&mut self.groups, owner.group),
                (&mut self.projects, owner.project),
            ];
            for (deltas, id) in maps {
                let entry = deltas.entry(id).or_default();
                entry.0 += bytes;
                entry.1 += objects;
            }
        }
    }

    /// Adds the differences to the accounting objects of the set.
    pub(crate) fn apply(&self, set: &Arc<LiveSet>, tx: &dyn AllocTx) -> Result<(), DmuError> {
        let with_projects = set.policy().project_accounting;
        let tables = [
            (ObjectId::USER_USED, &self.users, true),
            (ObjectId::GROUP_USED, &self.groups, true),
            (ObjectId::PROJECT_USED, &self.projects, with_projects),
        ];
        for (id, deltas, is_kept) in tables {
            let mut changed = deltas.iter().filter(|(_, delta)| **delta != (0, 0)).peekable();
            if !is_kept || changed.peek().is_none() {
                continue;
            }
            let (object, is_new) = set.accounting_object(id, tx)?;
            if is_new {
                object.create_zap(tx, id.0 | 1, 0)?;
            }
            let zap = object.zap(tx)?;
            for (owner, (bytes, objects)) in changed {
                if *bytes != 0 {
                    zap.increment(format!("{owner:x}").as_bytes(), *bytes)?;
                }
                if *objects != 0 {
                    zap.increment(format!("obj-{owner:x}").as_bytes(), *objects)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_stand_at_fixed_places() {
        let mut bonus = vec![0_u8; 176];
        bonus[..4].copy_from_slice(&SA_MAGIC.to_le_bytes());
        bonus[4..6].copy_from_slice(&(2_u16 | 1 << 10).to_le_bytes());
        for (at, value) in [(24, 1000_u64), (32, 100), (48, HAS_PROJECT), (128, 7)] {
            bonus[8 + at..16 + at].copy_from_slice(&value.to_le_bytes());
        }
        let owner = owner_of(ObjType::SA, &bonus);
        assert_eq!(owner, Some(Owner { user: 1000, group: 100, project: 7 }));
        assert_eq!(owner_of(ObjType::SA, &bonus[..40]), None);
        assert_eq!(owner_of(ObjType::NONE, &bonus), None);
    }
}
