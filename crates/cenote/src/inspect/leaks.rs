//! Finds unreferenced objects of the meta object set, and counts space maps and structures of removed vdevs, for
//! comparison with feature counts.
//!
//! # What always holds
//! - Any unknown entry of the object directory counts as a reference, so that objects of newer releases are not
//!   reported as leaks.
//! - Every object is marked once, so loops in a damaged pool end.
//!
//! Source: `docs/on-disk/22-mos-dsl.md`, `15-space.md`, `16-features.md` section 6.

use crate::{Error, Pool};
use dmu::zap::Zap;
use dsl::bpobj::Bpobj;
use dsl::deadlist::Deadlist;
use dsl::{Dataset, Dir};
use format::config::VdevNode;
use format::indirect::MappingPhys;
use format::names;
use format::scan::ScanPhys;
use format::space_map::PHYS_SIZE;
use format::{ObjType, ObjectId};
use std::collections::HashSet;

/// Entries of the object directory that are numbers, not object ids.
const NUMBERS: [&str; 3] =
    [names::directory::DEFLATE, names::directory::CREATION_VERSION, names::directory::LAST_SCRUBBED_TXG];
/// Entries of the object directory that are lists of block pointers.
const BPOBJS: [&str; 3] =
    [names::directory::FREE_BPOBJ, names::directory::SYNC_BPLIST, names::directory::OBSOLETE_BPOBJ];
/// Entries of the object directory that are ZAPs of object ids.
const OBJECT_ZAPS: [&str; 3] =
    [names::directory::LOG_SPACEMAP_ZAP, names::directory::ERRLOG_LAST, names::directory::ERRLOG_SCRUB];
/// Entries of a vdev ZAP that are object ids.
const VDEV_OBJECTS: [&str; 3] =
    [names::top_vdev::UNFLUSHED_TXGS, names::top_vdev::CHECKPOINT_SM, names::top_vdev::OBSOLETE_SM];
/// Entries of a directory ZAP that are object ids.
const DIR_OBJECTS: [&str; 1] = [names::dir::CRYPTO_KEY_OBJ];
/// Maximum depth of directories and of nested lists.
const DEPTH_MAX: usize = 256;

/// An object without references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeakedObject {
    /// Object id in the meta object set.
    pub id: ObjectId,
    /// Type of the object.
    pub kind: ObjType,
}

/// The objects of the meta object set without references.
///
/// # Errors
/// An object that may contain references cannot be read.
pub fn leaked_objects(pool: &Pool) -> Result<Vec<LeakedObject>, Error> {
    let mut marks = Marks { pool, seen: HashSet::new(), dirs: HashSet::new() };
    marks.directory()?;
    marks.vdev(&pool.spa().config().vdev_tree)?;
    marks.dir(&pool.dsl().root()?, 0)?;
    for table in pool.spa().clone_tables()? {
        marks.mark(table.phys.entries);
    }
    let mut leaked = Vec::new();
    let mut next = ObjectId(1);
    while let Some(object) = pool.mos().next_object(next)? {
        if !marks.seen.contains(&object.id()) {
            leaked.push(LeakedObject { id: object.id(), kind: object.dnode().obj_type });
        }
        next = ObjectId(object.id().0 + object.dnode().slots() as u64);
    }
    Ok(leaked)
}

struct Marks<'a> {
    pool: &'a Pool,
    seen: HashSet<ObjectId>,
    /// Directories already walked, so that loops end.
    dirs: HashSet<ObjectId>,
}

impl Marks<'_> {
    /// Marks an object as referenced. Returns true the first time.
    fn mark(&mut self, id: ObjectId) -> bool {
        id != ObjectId(0) && self.seen.insert(id)
    }

    fn zap(&mut self, id: ObjectId) -> Result<Option<Zap>, Error> {
        self.mark(id);
        if id == ObjectId(0) {
            return Ok(None);
        }
        Ok(Some(Zap::open(&self.pool.mos().object(id)?)?))
    }

    /// Marks a ZAP and the objects that its entries name.
    fn zap_of_objects(&mut self, id: ObjectId) -> Result<(), Error> {
        let Some(zap) = self.zap(id)? else { return Ok(()) };
        for entry in zap.entries() {
            if let Some(id) = entry?.u64() {
                self.mark(ObjectId(id));
            }
        }
        Ok(())
    }

    fn directory(&mut self) -> Result<(), Error> {
        self.mark(ObjectId(1));
        for entry in self.pool.spa().directory().entries() {
            let entry = entry?;
            let name = String::from_utf8_lossy(entry.name()).into_owned();
            let words = entry.u64s();
            if entry.int_size != 8 || NUMBERS.contains(&name.as_str()) {
                continue;
            }
            match words[..] {
                [id] => self.directory_entry(&name, ObjectId(id))?,
                [_, map, mapping] if name == names::directory::CONDENSING_INDIRECT => {
                    self.mark(ObjectId(map));
                    self.mark(ObjectId(mapping));
                }
                _ if name == names::directory::SCAN => {
                    if let Ok(scan) = ScanPhys::from_words(&words) {
                        self.mark(scan.queue);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn directory_entry(&mut self, name: &str, id: ObjectId) -> Result<(), Error> {
        self.mark(id);
        let is_dedup_folder =
            name.starts_with("DDT-") && self.pool.mos().object(id)?.dnode().obj_type == ObjType::ZAP_METADATA;
        if BPOBJS.contains(&name) {
            self.bpobj(id, 0)
        } else if OBJECT_ZAPS.contains(&name) || is_dedup_folder {
            self.zap_of_objects(id)
        } else if name == names::directory::DELETED_CLONES {
            let Some(zap) = self.zap(id)? else { return Ok(()) };
            for entry in zap.entries() {
                if let Some(list) = entry?.u64() {
                    self.deadlist(ObjectId(list))?;
                }
            }
            Ok(())
        } else {
            Ok(())
        }
    }

    fn bpobj(&mut self, id: ObjectId, depth: usize) -> Result<(), Error> {
        self.mark(id);
        let bpobj = Bpobj::open(self.pool.mos(), id)?;
        if let Some(list) = bpobj.phys().subobjs {
            self.mark(list);
        }
        if depth < DEPTH_MAX {
            for sub in bpobj.subobjs()? {
                if !self.seen.contains(&sub) {
                    self.bpobj(sub, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    fn deadlist(&mut self, id: ObjectId) -> Result<(), Error> {
        self.mark(id);
        let list = Deadlist::open(self.pool.mos(), id)?;
        if let Some(bpobj) = list.bare() {
            return self.bpobj(bpobj.object().id(), 0);
        }
        for (_, bpobj) in list.buckets() {
            if !self.seen.contains(bpobj) {
                self.bpobj(*bpobj, 0)?;
            }
        }
        Ok(())
    }

    fn vdev(&mut self, node: &VdevNode) -> Result<(), Error> {
        for id in [node.dtl, node.zap_leaf, node.zap_top, node.zap_root, node.indirect_births] {
            self.mark(id);
        }
        if node.indirect_object != ObjectId(0) {
            self.mark(node.indirect_object);
            if let Some(counts) = mapping(self.pool, node)?.counts {
                self.mark(counts);
            }
        }
        if node.metaslab_array != ObjectId(0) {
            self.mark(node.metaslab_array);
            for vdev in
                self.pool.spa().vdev_spaces()?.iter().filter(|v| u64::from(v.vdev.0) == u64::from(node.id))
            {
                for id in vdev.metaslabs.iter().filter_map(|metaslab| metaslab.space_map) {
                    self.mark(id);
                }
            }
        }
        for name in VDEV_OBJECTS {
            if let Some(id) = top_zap_number(self.pool, node, name)? {
                self.mark(ObjectId(id));
            }
        }
        // Depth and number of children were bounded when the configuration was decoded.
        node.children.iter().try_for_each(|child| self.vdev(child))
    }

    fn dir(&mut self, dir: &Dir, depth: usize) -> Result<(), Error> {
        let phys = dir.phys();
        self.mark(dir.id());
        if !self.dirs.insert(dir.id()) || depth > DEPTH_MAX {
            return Ok(());
        }
        for id in [phys.children, phys.props, phys.delegation, phys.clones].into_iter().flatten() {
            self.mark(id);
        }
        if let Some(own) = dir.zap()? {
            for name in DIR_OBJECTS {
                if let Some(id) = own.lookup_u64(name.as_bytes())? {
                    self.mark(ObjectId(id));
                }
            }
        }
        if let Some(livelist) = dir.livelist()? {
            self.deadlist(livelist)?;
        }
        if let Some(head) = dir.head()? {
            for snapshot in head.snapshots()? {
                self.dataset(&snapshot)?;
            }
            self.dataset(&head)?;
        }
        for children in [dir.children()?, dir.hidden_children()?] {
            children.iter().try_for_each(|child| self.dir(child, depth + 1))?;
        }
        Ok(())
    }

    fn dataset(&mut self, dataset: &Dataset) -> Result<(), Error> {
        let phys = dataset.phys();
        self.mark(dataset.id());
        for id in [phys.snapshot_names, phys.userrefs, phys.next_clones, phys.props].into_iter().flatten() {
            self.mark(id);
        }
        if let Some(list) = phys.deadlist {
            self.deadlist(list)?;
        }
        let Some(own) = dataset.zap()? else { return Ok(()) };
        if let Some(list) = own.lookup_u64(names::dataset::REMAP_DEADLIST.as_bytes())? {
            self.deadlist(ObjectId(list))?;
        }
        if let Some(map) = own.lookup_u64(names::dataset::BOOKMARKS.as_bytes())? {
            self.mark(ObjectId(map));
            for bookmark in dataset.bookmarks()? {
                if let Some(list) = bookmark.redaction_list() {
                    self.mark(list);
                }
            }
        }
        Ok(())
    }
}

fn mapping(pool: &Pool, node: &VdevNode) -> Result<MappingPhys, Error> {
    let object = pool.mos().object(node.indirect_object)?;
    let corrupt = |_| object.corrupt("the header of the mapping of a removed vdev");
    Ok(MappingPhys::decode(object.bonus(), object.order()).map_err(corrupt)?)
}

fn top_zap_number(pool: &Pool, node: &VdevNode, name: &str) -> Result<Option<u64>, Error> {
    if node.zap_top == ObjectId(0) {
        return Ok(None);
    }
    Ok(Zap::open(&pool.mos().object(node.zap_top)?)?.lookup_u64(name.as_bytes())?)
}

/// Number of structures of removed vdevs, as the feature `obsolete_counts` counts them: for each vdev the flag for
/// precise counts, the counts, and the map of obsolete ranges; and the lists of remapped blocks.
pub(super) fn obsolete_counts(pool: &Pool) -> Result<u64, Error> {
    let mut count = 0;
    for node in &pool.spa().config().vdev_tree.children {
        if node.indirect_object != ObjectId(0) {
            count += u64::from(mapping(pool, node)?.counts.is_some());
        }
        for name in [names::top_vdev::OBSOLETE_COUNTS_ARE_PRECISE, names::top_vdev::OBSOLETE_SM] {
            count += u64::from(top_zap_number(pool, node, name)?.is_some_and(|value| value != 0));
        }
    }
    let directory = pool.spa().directory();
    count += u64::from(directory.object(names::directory::OBSOLETE_BPOBJ)?.is_some());
    count += u64::from(
        directory.words(names::directory::CONDENSING_INDIRECT)?.get(1).is_some_and(|map| *map != 0),
    );
    for dir in pool.dsl().dirs()? {
        if let Some(head) = dir.head()? {
            count += u64::from(head.remap_deadlist()?.is_some());
        }
    }
    Ok(count)
}

/// Number of space maps with a histogram, as recorded by the feature and as found. `None`: the pool has not enabled
/// the feature.
///
/// # Errors
/// A space map cannot be read.
pub fn space_map_counts(pool: &Pool) -> Result<Option<(u64, u64)>, Error> {
    let Some(feature) = format::feature::by_name("spacemap_histogram") else { return Ok(None) };
    let Some(recorded) = pool.spa().features().counts().get(feature.guid).copied() else { return Ok(None) };
    let mut maps: Vec<ObjectId> = pool.spa().log_space_maps()?.into_iter().map(|(_, id)| id).collect();
    for vdev in pool.spa().vdev_spaces()? {
        maps.extend(vdev.metaslabs.iter().filter_map(|metaslab| metaslab.space_map));
    }
    let tree = &pool.spa().config().vdev_tree;
    for node in &tree.children {
        for name in [names::top_vdev::CHECKPOINT_SM, names::top_vdev::OBSOLETE_SM] {
            maps.extend(top_zap_number(pool, node, name)?.filter(|id| *id != 0).map(ObjectId));
        }
    }
    if let Some(map) = pool.spa().directory().words(names::directory::CONDENSING_INDIRECT)?.get(1) {
        maps.extend(Some(ObjectId(*map)).filter(|id| id.0 != 0));
    }
    dirty_time_logs(tree, &mut maps);
    let mut found = 0;
    for id in maps {
        found += u64::from(pool.mos().object(id)?.bonus().len() == PHYS_SIZE);
    }
    Ok(Some((recorded, found)))
}

fn dirty_time_logs(node: &VdevNode, maps: &mut Vec<ObjectId>) {
    maps.extend(Some(node.dtl).filter(|id| id.0 != 0));
    node.children.iter().for_each(|child| dirty_time_logs(child, maps));
}
