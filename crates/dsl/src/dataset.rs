//! Datasets: heads (file systems and volumes) and their snapshots
//! (docs/on-disk/22-mos-dsl.md, sections 3, 5, 8).

use crate::deadlist::Deadlist;
use crate::dir::Dir;
use crate::error::DslError;
use crate::mos;
use crate::name::{Name, Tail, is_hidden, stored};
use crate::stored_props::StoredProps;
use crate::tree::Dsl;
use dmu::zap::Zap;
use dmu::{KeyState, ObjSet, Object};
use format::dsl::{DS_FLAG_DEFER_DESTROY, DS_FLAG_INCONSISTENT, DatasetPhys};
use format::feature::{self, Feature};
use format::names;
use format::objset::ObjsetType;
use format::{ObjType, ObjectId};
use std::sync::Arc;

/// Why the contents of encrypted datasets are not changed, except by a raw receive.
pub(crate) const ENCRYPTED: &str = "encrypted datasets cannot be written";

/// Most snapshots that are followed along a chain. No pool can hold so many, so only a loop exceeds it.
pub(crate) const CHAIN_LIMIT: usize = 1 << 26;

/// Kind of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DatasetKind {
    /// A file system.
    Filesystem,
    /// A volume.
    Volume,
    /// A snapshot of either.
    Snapshot,
}

impl DatasetKind {
    /// Name of the kind as the tools print it: `filesystem`, `volume`, `snapshot`.
    pub fn name(self) -> &'static str {
        match self {
            DatasetKind::Filesystem => "filesystem",
            DatasetKind::Volume => "volume",
            DatasetKind::Snapshot => "snapshot",
        }
    }
}

/// A head or a snapshot. Cheap to clone.
#[derive(Clone)]
pub struct Dataset(Arc<Inner>);

struct Inner {
    dir: Dir,
    object: Object,
    phys: DatasetPhys,
    name: String,
}

pub(crate) fn read(dsl: &Dsl, id: ObjectId) -> Result<(Object, DatasetPhys), DslError> {
    let object = mos::object_with_bonus(dsl.mos(), id, ObjType::DSL_DATASET, "DSL dataset")?;
    let phys = DatasetPhys::decode(object.bonus(), object.order()).map_err(DslError::decode(id))?;
    Ok((object, phys))
}

impl Dataset {
    fn open(dir: &Dir, id: ObjectId, snapshot: Option<&str>) -> Result<Dataset, DslError> {
        let (object, phys) = read(dir.dsl(), id)?;
        if phys.dir != dir.id() {
            let (found, expected) = (phys.dir.0, dir.id().0);
            return Err(DslError::Mismatch { what: "directory of a dataset", object: id, found, expected });
        }
        if phys.is_snapshot() != snapshot.is_some() {
            let (found, expected) = (phys.num_children, u64::from(snapshot.is_some()));
            return Err(DslError::Mismatch { what: "children of a dataset", object: id, found, expected });
        }
        let name = match snapshot {
            Some(snapshot) => format!("{}@{snapshot}", dir.name()),
            None => dir.name().to_owned(),
        };
        Ok(Dataset(Arc::new(Inner { dir: dir.clone(), object, phys, name })))
    }

    fn by_object(dsl: &Dsl, id: ObjectId) -> Result<Dataset, DslError> {
        let (_, phys) = read(dsl, id)?;
        let dir = dsl.dir_by_object(phys.dir)?;
        if !phys.is_snapshot() {
            return Dataset::open(&dir, id, None);
        }
        let unnamed = || DslError::Mismatch { what: "snapshot names", object: id, found: 0, expected: id.0 };
        let map = dir.head()?.and_then(|head| head.phys().snapshot_names).ok_or_else(unnamed)?;
        let name = mos::reverse_lookup(&mos::zap(dsl.mos(), map)?, map, id)?.ok_or_else(unnamed)?;
        Dataset::open(&dir, id, Some(&name))
    }

    /// The [`Dsl`] of the pool.
    pub fn dsl(&self) -> &Dsl {
        self.0.dir.dsl()
    }

    /// The directory that the dataset belongs to.
    pub fn dir(&self) -> &Dir {
        &self.0.dir
    }

    /// Number of the dataset's object in the MOS. Also identifies its object set.
    pub fn id(&self) -> ObjectId {
        self.0.object.id()
    }

    /// The decoded bonus of the dataset's object.
    pub fn phys(&self) -> &DatasetPhys {
        &self.0.phys
    }

    /// Full name of the dataset: `pool/a/b`, `pool/a@s`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether the dataset is a snapshot.
    pub fn is_snapshot(&self) -> bool {
        self.0.phys.is_snapshot()
    }

    /// The part of the name behind the `@`.
    pub fn snapshot_name(&self) -> Option<&str> {
        self.name().get(self.0.dir.name().len() + 1..)
    }

    /// Whether a receive or a destroy is unfinished, so that the contents are incomplete.
    pub fn is_inconsistent(&self) -> bool {
        self.0.phys.flags & DS_FLAG_INCONSISTENT != 0
    }

    /// Whether the snapshot is destroyed with its last hold or clone.
    pub fn is_deferred(&self) -> bool {
        self.0.phys.flags & DS_FLAG_DEFER_DESTROY != 0
    }

    /// The kind of the dataset. Reads the root block of the object set.
    ///
    /// # Errors
    /// If the root block of the object set cannot be read.
    pub fn kind(&self) -> Result<DatasetKind, DslError> {
        if self.is_snapshot() {
            return Ok(DatasetKind::Snapshot);
        }
        Ok(if self.is_volume()? { DatasetKind::Volume } else { DatasetKind::Filesystem })
    }

    /// Whether the dataset is a volume or a snapshot of one. Reads the root block of the object set.
    ///
    /// # Errors
    /// If the root block of the object set cannot be read.
    pub fn is_volume(&self) -> Result<bool, DslError> {
        Ok(self.objset(KeyState::Locked)?.kind() == ObjsetType::Zvol)
    }

    /// The object set, opened with this key. The key state of an unencrypted dataset is ignored.
    ///
    /// # Errors
    /// If the root block of the object set cannot be read, or the key is wrong.
    pub fn objset(&self, key: KeyState) -> Result<Arc<ObjSet>, DslError> {
        let key = if self.is_encrypted()? { key } else { KeyState::None };
        Ok(self.dsl().mos().open_other(&self.0.phys.bp, self.id().0, key)?)
    }

    // ---- snapshots --------------------------------------------------------------------------

    fn snapshot_map(&self) -> Result<Option<(ObjectId, Zap)>, DslError> {
        match self.0.phys.snapshot_names {
            Some(map) => Ok(Some((map, mos::zap(self.dsl().mos(), map)?))),
            None => Ok(None),
        }
    }

    /// The snapshot of this head with this name.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn snapshot(&self, name: &str) -> Result<Option<Dataset>, DslError> {
        let Some((map, zap)) = self.snapshot_map()? else { return Ok(None) };
        let Some(id) = mos::lookup_object(&zap, map, name)? else { return Ok(None) };
        stored(map, id, name.as_bytes())?;
        Ok(Some(Dataset::open(&self.0.dir, id, Some(name))?))
    }

    /// Names and objects of this head's snapshots, in the order of the ZAP, without opening them.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn snapshot_entries(&self) -> Result<Vec<(String, ObjectId)>, DslError> {
        let Some((map, zap)) = self.snapshot_map()? else { return Ok(Vec::new()) };
        let mut entries = Vec::new();
        for entry in zap.entries() {
            let entry = entry?;
            let id = ObjectId(mos::number(map, &entry)?);
            match stored(map, id, entry.name()) {
                Ok(name) => entries.push((name.to_owned(), id)),
                Err(cause) => tracing::warn!(dataset = self.name(), "{cause}"),
            }
        }
        Ok(entries)
    }

    /// The snapshots of this head, oldest first.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn snapshots(&self) -> Result<Vec<Dataset>, DslError> {
        let mut all = Vec::new();
        for (name, id) in self.snapshot_entries()? {
            all.push(Dataset::open(&self.0.dir, id, Some(&name))?);
        }
        all.sort_by_key(|s| (s.phys().creation_txg, s.id()));
        Ok(all)
    }

    /// The previous snapshot in the chain. If it belongs to another directory, it is the origin.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn previous(&self) -> Result<Option<Dataset>, DslError> {
        let Some(id) = self.0.phys.prev_snap else { return Ok(None) };
        let previous = Dataset::by_object(self.dsl(), id)?;
        Ok((!is_hidden(previous.dir().component())).then_some(previous))
    }

    /// The previous snapshots with their objects and bonuses, newest first, origins included.
    pub fn chain(&self) -> Chain {
        Chain { dsl: self.dsl().clone(), from: self.id(), next: self.0.phys.prev_snap, below: None, steps: 0 }
    }

    /// The heads of the clones of this snapshot.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn clones(&self) -> Result<Vec<Dataset>, DslError> {
        if !self.is_snapshot() || self.0.phys.num_children < 2 {
            return Ok(Vec::new());
        }
        let mut clones = Vec::new();
        if let Some(set) = self.0.phys.next_clones {
            for id in mos::int_set(self.dsl().mos(), set)? {
                // The set holds the oldest dataset of the clone, which may be a snapshot of it.
                let (_, phys) = read(self.dsl(), id)?;
                clones.extend(self.dsl().dir_by_object(phys.dir)?.head()?);
            }
        } else {
            // Pools before version 11 have no such set.
            for dir in self.dsl().dirs()? {
                if dir.phys().origin == Some(self.id()) {
                    clones.extend(dir.head()?);
                }
            }
        }
        clones.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(clones)
    }

    // ---- objects attached to a dataset ------------------------------------------------------

    /// Blocks of the previous snapshot that this dataset no longer references.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn deadlist(&self) -> Result<Option<Deadlist>, DslError> {
        self.0.phys.deadlist.map(|id| Deadlist::open(self.dsl().mos(), id)).transpose()
    }

    /// Deadlist of blocks that were remapped after a device removal.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn remap_deadlist(&self) -> Result<Option<Deadlist>, DslError> {
        let Some(own) = self.zap()? else { return Ok(None) };
        let id = mos::lookup_object(&own, self.id(), names::dataset::REMAP_DEADLIST)?;
        id.map(|id| Deadlist::open(self.dsl().mos(), id)).transpose()
    }

    /// The property ZAP of a snapshot.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub(crate) fn stored_props(&self) -> Result<Arc<StoredProps>, DslError> {
        Ok(Arc::new(StoredProps::read(self.dsl().mos(), self.0.phys.props)?))
    }

    /// The dataset's own ZAP; `None` until an entry was needed.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn zap(&self) -> Result<Option<Zap>, DslError> {
        mos::own_zap(&self.0.object)
    }

    /// The per-dataset features in use.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn features(&self) -> Result<Vec<&'static Feature>, DslError> {
        let Some(own) = self.zap()? else { return Ok(Vec::new()) };
        let mut used = Vec::new();
        for feature in feature::FEATURES.iter().filter(|f| f.per_dataset) {
            if own.lookup(feature.guid.as_bytes())?.is_some() {
                used.push(feature);
            }
        }
        Ok(used)
    }

    /// Whether the dataset uses this per-dataset feature.
    #[cfg(test)]
    pub(crate) fn has_feature(&self, name: &str) -> Result<bool, DslError> {
        let (Some(own), Some(feature)) = (self.zap()?, feature::by_name(name)) else { return Ok(false) };
        Ok(own.lookup(feature.guid.as_bytes())?.is_some())
    }

    /// Why the contents of this head are read, and not changed. `None`: they can be changed.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn unwritten(&self) -> Result<Option<&'static str>, DslError> {
        if self.is_encrypted()? {
            return Ok(Some(ENCRYPTED));
        }
        Ok(self.redact_snaps()?.map(|_| "redacted datasets cannot be written"))
    }

    /// Guids of the snapshots that the dataset was redacted against; `None`: it is not redacted.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn redact_snaps(&self) -> Result<Option<Vec<u64>>, DslError> {
        let Some(own) = self.zap()? else { return Ok(None) };
        Ok(own.lookup(names::dataset::REDACTED_DATASETS.as_bytes())?.map(|entry| entry.u64s()))
    }

    /// Whether the dataset is encrypted: its directory has a key object.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn is_encrypted(&self) -> Result<bool, DslError> {
        Ok(self.0.dir.key_object()?.is_some())
    }

    /// The IV set guid of an encrypted snapshot.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn ivset_guid(&self) -> Result<Option<u64>, DslError> {
        let Some(own) = self.zap()? else { return Ok(None) };
        mos::lookup_number(&own, self.id(), names::dataset::IVSET_GUID)
    }
}

impl Dir {
    /// The head dataset of the directory; `None` for `$MOS` and `$FREE`.
    ///
    /// # Errors
    /// If the dataset cannot be read.
    pub fn head(&self) -> Result<Option<Dataset>, DslError> {
        self.phys().head.map(|id| Dataset::open(self, id, None)).transpose()
    }

    /// The snapshot that this directory is a clone of; `None`: it is no clone.
    ///
    /// # Errors
    /// If the snapshot cannot be read.
    pub fn origin(&self) -> Result<Option<Dataset>, DslError> {
        let Some(id) = self.phys().origin else { return Ok(None) };
        let origin = Dataset::by_object(self.dsl(), id)?;
        // Ordinary file systems are clones of the empty snapshot of a hidden directory.
        Ok((!is_hidden(origin.dir().component())).then_some(origin))
    }

    /// Creation txg of the origin snapshot: blocks born up to it are charged to the origin's directory.
    ///
    /// # Errors
    /// If that snapshot cannot be read.
    pub fn origin_txg(&self) -> Result<format::Txg, DslError> {
        match self.phys().origin {
            Some(id) => Ok(read(self.dsl(), id)?.1.creation_txg),
            None => Ok(format::Txg(0)),
        }
    }
}

impl Dsl {
    /// The file system, volume (`pool/a`) or snapshot (`pool/a@s`) with this full name.
    ///
    /// # Errors
    /// [`DslError::BadName`] if no dataset can have this name, [`DslError::NotFound`] if none has it.
    pub fn dataset(&self, name: &str) -> Result<Dataset, DslError> {
        let parsed = Name::parse(name)?;
        let head = self.dir(parsed.dir)?.head()?.ok_or_else(|| DslError::not_found(name))?;
        match parsed.tail {
            Tail::None => Ok(head),
            Tail::Snapshot(snapshot) => head.snapshot(snapshot)?.ok_or_else(|| DslError::not_found(name)),
            Tail::Bookmark(_) => Err(DslError::BadName {
                name: name.to_owned(),
                why: "bookmark delimiter '#' is not expected here",
            }),
        }
    }

    /// The head in this object. `likely` is its full name before directories were renamed, which saves
    /// reading all names of each directory.
    ///
    /// # Errors
    /// Those of [`Dsl::dataset_by_object`].
    pub(crate) fn head_by_object(&self, id: ObjectId, likely: &str) -> Result<Dataset, DslError> {
        let (_, phys) = read(self, id)?;
        Dataset::open(&self.dir_by_object_named(phys.dir, likely)?, id, None)
    }

    /// The dataset in this object, at any place in the tree.
    ///
    /// # Errors
    /// If the dataset or a directory above it cannot be read or has no name.
    pub fn dataset_by_object(&self, id: ObjectId) -> Result<Dataset, DslError> {
        Dataset::by_object(self, id)
    }
}

impl std::fmt::Debug for Dataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dataset({} = object {})", self.name(), self.id())
    }
}

/// Iterator of [`Dataset::chain`].
pub struct Chain {
    dsl: Dsl,
    from: ObjectId,
    next: Option<ObjectId>,
    /// Creation txg of the previous element: txgs must descend, which also rules out loops.
    below: Option<u64>,
    steps: usize,
}

impl Chain {
    fn step(&mut self, id: ObjectId) -> Result<(ObjectId, DatasetPhys), DslError> {
        self.steps += 1;
        if self.steps > CHAIN_LIMIT {
            return Err(DslError::Endless { what: "snapshots", object: self.from, limit: CHAIN_LIMIT });
        }
        let (_, phys) = read(&self.dsl, id)?;
        if let Some(expected) = self.below
            && phys.creation_txg.0 >= expected
        {
            let found = phys.creation_txg.0;
            return Err(DslError::Mismatch { what: "order of snapshots", object: id, found, expected });
        }
        self.below = Some(phys.creation_txg.0);
        self.next = phys.prev_snap;
        Ok((id, phys))
    }
}

impl Iterator for Chain {
    type Item = Result<(ObjectId, DatasetPhys), DslError>;

    fn next(&mut self) -> Option<Self::Item> {
        let id = self.next.take()?;
        Some(self.step(id))
    }
}
