//! Finds the files that damaged blocks belong to.
//!
//! A block of a snapshot also belongs to later snapshots, clones and heads until it is replaced. The search
//! continues in each later set and ends where the block is not found, because a freed block never returns.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use dmu::traverse::Bookmark;
use dmu::{ObjSet, Object};
use format::objset::ObjsetType;
use format::{BlockId, BlockPtr, Level, ObjType, ObjectId, VdevGuid};
use vdev::tree::VdevState;
use zpl::{Filesystem, Node};

use super::check::{Found, Hit, ObjectShape};
use super::plan::Plan;
use super::{Damage, DamagedPart, DatasetReport, DeviceReport, HITS_MAX, Report};
use crate::Pool;
use crate::error::Cause;

/// The object of a volume's data (docs/on-disk/25-zvol.md, section 1).
const VOLUME_DATA: ObjectId = ObjectId(1);
/// Maximum number of directories of a dataset that are searched for names of files whose dnodes are lost.
const SEARCH_MAX: usize = 1 << 20;

pub(super) fn report(pool: &Pool, plan: &Plan, found: Found) -> Report {
    let datasets =
        plan.sets.iter().zip(&found.counts).filter(|(set, _)| set.objset.is_some()).map(|(set, counts)| {
            DatasetReport {
                name: set.name.clone(),
                blocks: counts.blocks.load(std::sync::atomic::Ordering::Relaxed),
                bytes: counts.bytes.load(std::sync::atomic::Ordering::Relaxed),
                damaged: counts.damaged.load(std::sync::atomic::Ordering::Relaxed),
                degraded: counts.degraded.load(std::sync::atomic::Ordering::Relaxed),
                encryption: set.encryption,
                failed: set.failed().cloned(),
            }
        });
    let mut namer = Namer { plan, sets: HashMap::new(), damage: Vec::new(), index: HashMap::new() };
    for hit in &found.hits {
        namer.everywhere(hit);
    }
    namer.lost_dnodes();
    let mut damage = namer.damage;
    damage.iter_mut().for_each(|damage| merge(&mut damage.ranges));
    Report {
        datasets: datasets.collect(),
        damage,
        damage_untold: found.hits_untold,
        devices: devices(pool, found.devices),
        totals: found.totals,
        space: None,
        cut_short: found.cut_short,
    }
}

/// Adds paths and states to the errors of devices, and adds missing devices that no block needed.
fn devices(pool: &Pool, mut found: HashMap<VdevGuid, DeviceReport>) -> Vec<DeviceReport> {
    let mut all = Vec::new();
    for vdev in pool.vdevs().status().walk() {
        let met = found.remove(&vdev.guid);
        let is_bad_leaf = vdev.children.is_empty() && vdev.kind.is_leaf() && vdev.state != VdevState::Online;
        if met.is_none() && !is_bad_leaf {
            continue;
        }
        let mut device = met.unwrap_or_default();
        device.guid = vdev.guid;
        device.path = vdev.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        device.state = state_word(vdev.state).to_owned();
        all.push(device);
    }
    all
}

fn state_word(state: VdevState) -> &'static str {
    match state {
        VdevState::Offline => "offline",
        VdevState::Removed => "removed",
        VdevState::Unavail => "unavailable",
        VdevState::Faulted => "faulted",
        VdevState::Degraded => "degraded",
        VdevState::Online => "online",
    }
}

/// Joins adjacent ranges.
fn merge(ranges: &mut Vec<Range<u64>>) {
    ranges.sort_by_key(|range| (range.start, range.end));
    ranges.dedup_by(|next, last| {
        let touches = next.start <= last.end;
        if touches {
            last.end = last.end.max(next.end);
        }
        touches
    });
}

/// An object set during the search for names.
struct SetState {
    filesystem: Option<Arc<Filesystem>>,
    /// Names found so far.
    paths: HashMap<ObjectId, DamagedPart>,
    /// Objects whose dnodes are lost, and why.
    lost: Vec<(Range<u64>, Cause)>,
}

struct Namer<'a> {
    plan: &'a Plan,
    sets: HashMap<usize, SetState>,
    damage: Vec<Damage>,
    /// Where in `damage` a place is.
    index: HashMap<(usize, DamagedPart), usize>,
}

impl Namer<'_> {
    /// Reports a damaged block in the set where it was found, and in later sets that contain it.
    fn everywhere(&mut self, hit: &Hit) {
        let mut todo = vec![hit.set];
        let mut seen = std::collections::HashSet::new();
        while let Some(set) = todo.pop() {
            if !seen.insert(set) || (set != hit.set && !self.holds(set, hit)) {
                continue;
            }
            self.add_hit(set, hit);
            if let Some(snapshot) = self.plan.sets.get(set) {
                let after = self.plan.after.get(&ObjectId(snapshot.id));
                todo.extend(after.into_iter().flatten().filter(|_| snapshot.id != 0));
            }
        }
    }

    fn objset(&self, set: usize) -> Option<&Arc<ObjSet>> {
        self.plan.sets.get(set)?.objset()
    }

    /// True if the set has the same block at the same place.
    fn holds(&self, set: usize, hit: &Hit) -> bool {
        let Some(objset) = self.objset(set) else { return false };
        pointer(objset, &hit.at).is_some_and(|bp| bp.words() == hit.bp.words())
    }

    fn state(&mut self, set: usize) -> &mut SetState {
        let filesystem = match self.objset(set) {
            Some(objset) if !self.sets.contains_key(&set) && objset.kind() == ObjsetType::Zfs => {
                Filesystem::open(Arc::clone(objset)).ok()
            }
            _ => None,
        };
        self.sets.entry(set).or_insert_with(|| SetState {
            filesystem,
            paths: HashMap::new(),
            lost: Vec::new(),
        })
    }

    fn add_hit(&mut self, set: usize, hit: &Hit) {
        let Some(objset) = self.objset(set).cloned() else { return };
        if hit.at.level < 0 {
            let place = DamagedPart::Objects(1..u64::MAX);
            return self.add(set, place, None, false, &hit.cause);
        }
        if hit.at.object == ObjectId(0) {
            let lost = dnode_range(&hit.at, hit.object);
            self.state(set).lost.push((lost, hit.cause.clone()));
            return;
        }
        let place = self.place(set, &objset, hit.at.object, hit.object);
        let is_attributes = hit.at.blkid == Bookmark::SPILL;
        let range = match hit.object {
            Some(shape) if !is_attributes && has_bytes(&place) => Some(byte_range(&hit.at, shape)),
            _ => None,
        };
        let range = range.map(|range| self.clipped(set, hit.at.object, range));
        self.add(set, place, range, is_attributes, &hit.cause);
    }

    fn add(
        &mut self,
        set: usize,
        place: DamagedPart,
        range: Option<Range<u64>>,
        attributes: bool,
        cause: &Cause,
    ) {
        let key = (set, place);
        let at = match self.index.get(&key) {
            Some(&at) => at,
            None if self.damage.len() >= HITS_MAX => return,
            None => {
                let dataset = self.plan.sets.get(set).map(|set| set.name.clone()).unwrap_or_default();
                let (place, cause) = (key.1.clone(), cause.clone());
                self.damage.push(Damage { dataset, place, ranges: Vec::new(), attributes: false, cause });
                self.index.insert(key, self.damage.len() - 1);
                self.damage.len() - 1
            }
        };
        if let Some(damage) = self.damage.get_mut(at) {
            damage.ranges.extend(range);
            damage.attributes |= attributes;
        }
    }

    /// Cuts a range at the end of the file, which is known if the dnode is.
    fn clipped(&mut self, set: usize, object: ObjectId, range: Range<u64>) -> Range<u64> {
        let fs = self.state(set).filesystem.clone();
        let size = fs.and_then(|fs| fs.node(object).ok()).map(|node| node.attrs().size);
        match size {
            Some(size) if size > range.start => range.start..range.end.min(size),
            _ => range,
        }
    }

    fn place(
        &mut self,
        set: usize,
        objset: &Arc<ObjSet>,
        object: ObjectId,
        shape: Option<ObjectShape>,
    ) -> DamagedPart {
        let kind = shape.map_or(ObjType::NONE, |shape| shape.kind);
        let internal = || DamagedPart::Internal(object.0, kind.to_string());
        match objset.kind() {
            ObjsetType::Zvol if object == VOLUME_DATA => DamagedPart::Volume,
            ObjsetType::Zfs if is_file(kind) => {
                let state = self.state(set);
                if let Some(known) = state.paths.get(&object) {
                    return known.clone();
                }
                let path = state.filesystem.as_ref().and_then(|fs| fs.path_of(object).ok().flatten());
                let place = path.map_or(DamagedPart::Object(object.0), DamagedPart::File);
                state.paths.insert(object, place.clone());
                place
            }
            _ => internal(),
        }
    }

    /// Finds names of files whose dnodes are lost, in their directories.
    fn lost_dnodes(&mut self) {
        let sets: Vec<usize> = self.sets.keys().copied().collect();
        for set in sets {
            let Some(state) = self.sets.get_mut(&set) else { continue };
            let lost = std::mem::take(&mut state.lost);
            if lost.is_empty() {
                continue;
            }
            let fs = state.filesystem.clone();
            let named = fs.map(|fs| search(&fs, &lost)).unwrap_or_default();
            for (path, cause) in named {
                self.add(set, DamagedPart::File(path), None, true, &cause);
            }
            for (range, cause) in lost {
                self.add(set, DamagedPart::Objects(range), None, false, &cause);
            }
        }
    }
}

/// The pointer at a bookmark. `None`: it cannot be reached.
fn pointer(objset: &Arc<ObjSet>, at: &Bookmark) -> Option<BlockPtr> {
    if at.level < 0 {
        return Some(*objset.root());
    }
    let object: Object =
        if at.object == ObjectId(0) { objset.meta_object() } else { objset.object(at.object).ok()? };
    if at.blkid == Bookmark::SPILL {
        return object.dnode().spill;
    }
    let level = Level(u8::try_from(at.level).ok()?);
    object.block_ptr(level, BlockId(at.blkid)).ok()
}

fn is_file(kind: ObjType) -> bool {
    matches!(kind, ObjType::PLAIN_FILE | ObjType::DIRECTORY) || kind == ObjType::NONE
}

fn has_bytes(place: &DamagedPart) -> bool {
    matches!(place, DamagedPart::File(_) | DamagedPart::Object(_) | DamagedPart::Volume)
}

/// Range of level-0 blocks below a bookmark.
fn leaf_blocks(at: &Bookmark, fan_out: u32) -> Range<u64> {
    let shift = u32::try_from(at.level).unwrap_or(0).saturating_mul(fan_out);
    let scale = |blkid: u64| match 1_u64.checked_shl(shift) {
        Some(fan_out) => blkid.saturating_mul(fan_out),
        None if blkid == 0 => 0,
        None => u64::MAX,
    };
    scale(at.blkid)..scale(at.blkid.saturating_add(1))
}

fn byte_range(at: &Bookmark, shape: ObjectShape) -> Range<u64> {
    let blocks = leaf_blocks(at, shape.fan_out);
    blocks.start.saturating_mul(shape.block_size)..blocks.end.saturating_mul(shape.block_size)
}

/// Range of object ids in a damaged part of the object of dnodes.
fn dnode_range(at: &Bookmark, shape: Option<ObjectShape>) -> Range<u64> {
    let (block_size, fan_out) = shape.map_or((16 << 10, 10), |shape| (shape.block_size, shape.fan_out));
    let per_block = (block_size / format::dnode::SLOT_SIZE as u64).max(1);
    let blocks = leaf_blocks(at, fan_out);
    blocks.start.saturating_mul(per_block)..blocks.end.saturating_mul(per_block)
}

/// Names in all readable directories that lead to lost objects, each with the cause of the loss.
fn search(fs: &Arc<Filesystem>, lost: &[(Range<u64>, Cause)]) -> Vec<(Vec<u8>, Cause)> {
    let mut named = Vec::new();
    let mut visited = std::collections::HashSet::from([fs.root()]);
    let mut todo: Vec<(Node, Vec<u8>)> =
        fs.node(fs.root()).ok().map(|root| (root, Vec::new())).into_iter().collect();
    while let Some((dir, path)) = todo.pop() {
        for entry in dir.entries().into_iter().flatten().filter_map(Result::ok) {
            let full = [path.as_slice(), b"/", &entry.name].concat();
            if let Some((_, cause)) = lost.iter().find(|(range, _)| range.contains(&entry.id.0)) {
                if named.len() < HITS_MAX {
                    named.push((full, cause.clone()));
                }
            } else if entry.kind_hint.is_none_or(|kind| kind == zpl::FileKind::Directory)
                && visited.len() < SEARCH_MAX
                && visited.insert(entry.id)
                && let Some(node) = fs.node(entry.id).ok().filter(Node::is_dir)
            {
                todo.push((node, full));
            }
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(level: i64, blkid: u64) -> Bookmark {
        Bookmark { objset: 1, object: ObjectId(2), level, blkid }
    }

    #[test]
    fn indirect_blocks_cover_ranges() {
        let shape = ObjectShape { kind: ObjType::PLAIN_FILE, block_size: 131_072, fan_out: 10 };
        assert_eq!(byte_range(&at(0, 3), shape), 393_216..524_288);
        assert_eq!(byte_range(&at(1, 2), shape), (2048 << 17)..(3072 << 17));
        assert_eq!(byte_range(&at(7, 0), shape), 0..u64::MAX);
        assert_eq!(dnode_range(&at(0, 4), None), 128..160);
    }

    #[test]
    fn touching_ranges_are_one() {
        let mut ranges = vec![10..20, 0..5, 20..30, 4..6];
        merge(&mut ranges);
        assert_eq!(ranges, [0..6, 10..30]);
    }
}
