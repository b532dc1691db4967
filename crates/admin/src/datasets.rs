//! Datasets by name, lists of them, and what the commands tell about each.

use super::{
    AdminError, Hold, ImportSettings, Kind, Mounted, OpenPool, Owner, Property, Source, SpaceRow, Value,
    identity,
};
use cenote::Error;
use dmu::ObjSet;
use dsl::prop as stored;
use dsl::{Bookmark, Dataset, Dir, DslError};
use format::prop;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use zpl::{Filesystem, SpaceKind};

/// Object set flags: the objects of every user and group, and of every project, have been counted
/// (docs/on-disk/20-dmu.md, section 8).
const OBJECTS_COMPLETE: u64 = 2;
const PROJECTS_COMPLETE: u64 = 4;

/// A file system, volume, snapshot or bookmark of an open pool.
#[derive(Clone)]
pub(crate) struct Entry {
    pool: String,
    /// How the pool was imported.
    settings: Arc<ImportSettings>,
    mounted: Option<Arc<BTreeMap<String, Mounted>>>,
    kind: Kind,
    what: What,
}

#[derive(Clone)]
enum What {
    Dataset { dataset: Dataset, of_volume: bool },
    Bookmark(Bookmark),
}

/// Which datasets, and how deep.
#[derive(Debug, Clone)]
pub(crate) struct Walk {
    /// Kinds wanted.
    pub(crate) kinds: Vec<Kind>,
    /// Levels below the root, where snapshots and bookmarks are one level below their dataset; `None`:
    /// all.
    pub(crate) depth: Option<u64>,
}

impl Walk {
    fn wants(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }
}

fn failed(error: impl Into<Error>) -> AdminError {
    AdminError::from(error.into())
}

impl Entry {
    fn of_dataset(pool: &OpenPool, dataset: Dataset) -> Result<Entry, AdminError> {
        let of_volume = dataset.is_volume().map_err(failed)?;
        let kind = match (dataset.is_snapshot(), of_volume) {
            (true, _) => Kind::Snapshot,
            (false, true) => Kind::Volume,
            (false, false) => Kind::Filesystem,
        };
        let mounted = pool.mounted.clone();
        let (pool, settings) = (pool.name().to_owned(), Arc::clone(&pool.settings));
        Ok(Entry { pool, settings, mounted, kind, what: What::Dataset { dataset, of_volume } })
    }

    fn of_bookmark(pool: &OpenPool, mark: Bookmark) -> Entry {
        let (pool, settings) = (pool.name().to_owned(), Arc::clone(&pool.settings));
        Entry { pool, settings, mounted: None, kind: Kind::Bookmark, what: What::Bookmark(mark) }
    }

    /// Full name.
    pub(crate) fn name(&self) -> &str {
        match &self.what {
            What::Dataset { dataset, .. } => dataset.name(),
            What::Bookmark(mark) => mark.name(),
        }
    }

    /// Name of its pool.
    pub(crate) fn pool_name(&self) -> &str {
        &self.pool
    }

    /// What it is.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// A snapshot of a volume: no file system in it.
    pub(crate) fn is_volume_snapshot(&self) -> bool {
        matches!(&self.what, What::Dataset { of_volume: true, .. } if self.kind == Kind::Snapshot)
    }

    /// Txg of its creation; of a bookmark, that of its snapshot.
    pub(crate) fn create_txg(&self) -> u64 {
        match &self.what {
            What::Dataset { dataset, .. } => dataset.phys().creation_txg.0,
            What::Bookmark(mark) => mark.phys().creation_txg.0,
        }
    }

    /// A property by its name: one of the tables of `format::prop`, a user property, one per owner
    /// (`userquota@1000`), or `written@…`. `None` where it does not apply or has no value.
    pub(crate) fn property(&self, name: &str) -> Result<Option<Property>, AdminError> {
        let dataset = match &self.what {
            What::Dataset { dataset, .. } => dataset,
            What::Bookmark(mark) => {
                let all = stored::all_of_bookmark(mark).map_err(failed)?;
                return Ok(all.into_iter().find(|(known, _)| known == name).map(|(_, v)| property_of(v)));
            }
        };
        if let Some((prefix, owner)) = prop::per_owner(name) {
            return self.of_owner(prefix, owner);
        }
        if name.starts_with("written@") || name.starts_with("written#") {
            return match stored::get(dataset, name) {
                // The tools call this number local, although it is counted.
                Ok(found) => Ok(found.map(|value| Property { source: Source::Local, ..property_of(value) })),
                // Not in this dataset's history: as if it had no such property.
                Err(DslError::NotFound { .. } | DslError::NotAncestor { .. } | DslError::BadName { .. }) => {
                    Ok(None)
                }
                Err(e) => Err(failed(e)),
            };
        }
        let stored = stored::get(dataset, name).map_err(failed)?.map(property_of);
        Ok(stored.map(|stored| self.as_imported(name, stored)))
    }

    /// The received value of a user property that has no value in effect.
    pub(crate) fn received(&self, name: &str) -> Result<Option<Value>, AdminError> {
        match &self.what {
            What::Dataset { dataset, .. } if name.contains(':') => {
                Ok(stored::received(dataset, name).map_err(failed)?.map(value_of))
            }
            _ => Ok(None),
        }
    }

    /// How it is mounted, if it is.
    fn mount(&self) -> Option<&Mounted> {
        self.mounted.as_ref()?.get(self.name())
    }

    /// A property as the import of the pool and the mount make it.
    fn as_imported(&self, name: &str, mut property: Property) -> Property {
        let temporary = self.mount().and_then(|mount| {
            mount.options.temporary.iter().find(|(known, _)| known == name).map(|(_, value)| value == "on")
        });
        if let Some(is_on) = temporary {
            let value = Value::Number(is_on.into());
            return Property { value, source: Source::Temporary, received: None };
        }
        match (name, &property.value) {
            ("mounted", _) if self.mounted.is_some() => {
                property.value = Value::Number(self.mount().is_some().into());
            }
            ("mountpoint", Value::Text(path)) => {
                if let Some(path) = self.settings.mountpoint(path) {
                    property.value = Value::Text(path);
                }
            }
            ("readonly", Value::Number(0)) if self.settings.readonly => {
                property = Property { value: Value::Number(1), source: Source::Temporary, received: None };
            }
            _ => {}
        }
        property
    }

    /// User properties, by name.
    pub(crate) fn user_properties(&self) -> Result<Vec<(String, Property)>, AdminError> {
        let What::Dataset { dataset, .. } = &self.what else { return Ok(Vec::new()) };
        let all = stored::all_user(dataset).map_err(failed)?;
        Ok(all.into_iter().map(|(name, value)| (name, property_of(value))).collect())
    }

    /// The holds on a snapshot, by tag.
    pub(crate) fn holds(&self) -> Result<Vec<Hold>, AdminError> {
        let What::Dataset { dataset, .. } = &self.what else { return Ok(Vec::new()) };
        let holds = dataset.holds().map_err(failed)?;
        let hold = |h: dsl::holds::Hold| Hold { snapshot: self.name().to_owned(), tag: h.tag, time: h.time };
        Ok(holds.into_iter().map(hold).collect())
    }

    /// What users, groups or projects use and may use, by number.
    ///
    /// # Errors
    /// [`AdminError::NotAFilesystem`] for anything but file systems and their snapshots; [`Error::Locked`]
    /// if the key of an encrypted one is not loaded.
    pub(crate) fn space(&self, owner: Owner) -> Result<Vec<SpaceRow>, AdminError> {
        let fs = self.filesystem()?;
        let kind = match owner {
            Owner::User => SpaceKind::User,
            Owner::Group => SpaceKind::Group,
            Owner::Project => SpaceKind::Project,
        };
        // Until every object has been counted once, the counts mean nothing.
        let flag = if owner == Owner::Project { PROJECTS_COMPLETE } else { OBJECTS_COMPLETE };
        let all_counted = fs.objset().phys().flags & flag != 0;
        let mut rows = Vec::new();
        for row in fs.space(kind).map_err(failed)? {
            let domain = match owner {
                Owner::Project => None,
                _ => fs.domain(row.id).map_err(failed)?.map(str::to_owned),
            };
            let id = if owner == Owner::Project { row.id } else { row.id & u64::from(u32::MAX) };
            let counted = all_counted && (row.objects.is_some() || row.objquota != 0);
            // Who has neither used any nor a limit has nothing to say of it.
            let is_measured = row.used != 0 || row.quota != 0 || !counted || row.objects.is_some();
            rows.push(SpaceRow {
                owner,
                domain,
                id,
                used: is_measured.then_some(row.used),
                quota: is_measured.then_some(row.quota),
                objects: counted.then_some(row.objects.unwrap_or(0)),
                object_quota: counted.then_some(row.objquota),
            });
        }
        Ok(rows)
    }

    fn filesystem(&self) -> Result<Arc<Filesystem>, AdminError> {
        let What::Dataset { dataset, of_volume: false } = &self.what else {
            return Err(AdminError::NotAFilesystem { name: self.name().to_owned() });
        };
        let objset: Arc<ObjSet> = dataset.open_objset().map_err(failed)?;
        if objset.is_locked() {
            let root = dsl::keys::encryption_root(dataset.dir()).map_err(failed)?;
            let root = root.map_or_else(String::new, |dir| dir.name().to_owned());
            return Err(failed(Error::Locked { dataset: self.name().to_owned(), root }));
        }
        Filesystem::open(objset).map_err(failed)
    }

    /// One number of one owner, who is given by name, number or Windows identity.
    fn of_owner(&self, prefix: &str, owner: &str) -> Result<Option<Property>, AdminError> {
        if !matches!(self.kind, Kind::Filesystem | Kind::Snapshot) || self.is_volume_snapshot() {
            return Ok(None);
        }
        let kind = match prefix {
            p if p.starts_with("user") => Owner::User,
            p if p.starts_with("group") => Owner::Group,
            _ => Owner::Project,
        };
        let Some((domain, id)) = identity::parse(kind, owner) else { return Ok(None) };
        let rows = self.space(kind)?;
        let row = rows.into_iter().find(|r| r.id == id && r.domain == domain);
        let number = row.and_then(|row| match prefix {
            p if p.ends_with("objused@") => row.objects,
            p if p.ends_with("objquota@") => row.object_quota,
            p if p.ends_with("used@") => row.used,
            _ => row.quota,
        });
        // The tools call these numbers local, also those that are counted.
        Ok(Some(Property::local(number.unwrap_or(0))))
    }
}

fn value_of(value: stored::PropValue) -> Value {
    match value {
        stored::PropValue::Number(number) => Value::Number(number),
        stored::PropValue::String(text) => Value::Text(text),
    }
}

pub(super) fn property_of(value: stored::Value) -> Property {
    let source = match value.source {
        stored::Source::Default => Source::Default,
        stored::Source::Local => Source::Local,
        stored::Source::Inherited(from) => Source::Inherited(from),
        stored::Source::Received => Source::Received,
        stored::Source::Temporary => Source::Temporary,
        stored::Source::None => Source::None,
    };
    Property { value: value_of(value.raw), source, received: value.received.map(value_of) }
}

/// The dataset, snapshot or bookmark with this name; a path stands for the file system whose mount point
/// is nearest above it.
pub(crate) fn find(pools: &[OpenPool], name: &str) -> Result<Entry, AdminError> {
    // No pool's name begins so.
    if name.starts_with(['/', '.']) {
        return at_path(pools, name);
    }
    let no_dataset = || AdminError::NoDataset { name: name.to_owned() };
    let pool_name = name.split(['/', '@', '#']).next().unwrap_or_default();
    let pool = pools.iter().find(|p| p.name() == pool_name).ok_or_else(no_dataset)?;
    let missing = |e| match e {
        DslError::NotFound { .. } => no_dataset(),
        DslError::BadName { why, .. } => AdminError::BadName { name: name.to_owned(), why },
        other => failed(other),
    };
    if name.contains('#') {
        return Ok(Entry::of_bookmark(pool, pool.pool.dsl().bookmark(name).map_err(missing)?));
    }
    Entry::of_dataset(pool, pool.pool.dsl().dataset(name).map_err(missing)?)
}

/// Where it is not known what is mounted, the mount points are those that the pools' properties tell.
fn at_path(pools: &[OpenPool], path: &str) -> Result<Entry, AdminError> {
    if pools.iter().any(|pool| pool.mounted.is_some()) {
        return mounted_at(pools, path);
    }
    let mut best: Option<(usize, Entry)> = None;
    for pool in pools {
        let walk = Walk { kinds: vec![Kind::Filesystem], depth: None };
        for entry in self::walk(pool, pool.name(), &walk)? {
            let mountpoint = entry.property("mountpoint")?.map(|p| p.value);
            let Some(Value::Text(mountpoint)) = mountpoint else { continue };
            let base = mountpoint.trim_end_matches('/');
            let below = path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            if mountpoint.starts_with('/') && below && best.as_ref().is_none_or(|(len, _)| base.len() > *len)
            {
                best = Some((base.len(), entry));
            }
        }
    }
    best.map(|(_, entry)| entry).ok_or_else(|| AdminError::NotInPool { path: path.to_owned() })
}

/// The file system that is mounted nearest above a path.
fn mounted_at(pools: &[OpenPool], path: &str) -> Result<Entry, AdminError> {
    let at = Path::new(path).canonicalize();
    let at = at.map_err(|_| AdminError::NotInPool { path: path.to_owned() })?;
    find_by_text(pools, &at)
}

/// The same, of a whole path whose text tells all: nothing is looked up, so that the caller learns nothing of folders
/// that he cannot see.
///
/// # Errors
/// [`AdminError::NotInPool`].
pub(crate) fn find_by_text(pools: &[OpenPool], at: &Path) -> Result<Entry, AdminError> {
    let nowhere = || AdminError::NotInPool { path: at.display().to_string() };
    let mounts = pools.iter().filter_map(|pool| pool.mounted.as_ref()).flat_map(|mounted| mounted.values());
    let above = mounts.filter(|mount| at.starts_with(&mount.at));
    let nearest = above.max_by_key(|mount| mount.at.as_os_str().len()).ok_or_else(nowhere)?;
    find(pools, &nearest.dataset)
}

/// A dataset and what lies below it, parents first.
pub(crate) fn walk(pool: &OpenPool, root: &str, walk: &Walk) -> Result<Vec<Entry>, AdminError> {
    let dir = pool.pool.dsl().dir(root).map_err(failed)?;
    let mut found = Vec::new();
    let mut stack = vec![(dir, 0)];
    while let Some((dir, depth)) = stack.pop() {
        head_and_points(pool, &dir, walk, depth, &mut found)?;
        if walk.depth.is_none_or(|limit| depth < limit) {
            let mut children = dir.children().map_err(failed)?;
            children.reverse();
            stack.extend(children.into_iter().map(|child| (child, depth + 1)));
        }
    }
    Ok(found)
}

/// One dataset with its snapshots and bookmarks, as far as `walk` wants them.
pub(crate) fn points(pool: &OpenPool, entry: &Entry, walk: &Walk) -> Result<Vec<Entry>, AdminError> {
    let dir = pool.pool.dsl().dir(entry.name()).map_err(failed)?;
    let mut found = Vec::new();
    let walk = Walk { kinds: walk.kinds.clone(), depth: None };
    head_and_points(pool, &dir, &walk, 0, &mut found)?;
    Ok(found)
}

fn head_and_points(
    pool: &OpenPool,
    dir: &Dir,
    walk: &Walk,
    depth: u64,
    found: &mut Vec<Entry>,
) -> Result<(), AdminError> {
    let Some(head) = dir.head().map_err(failed)? else { return Ok(()) };
    if walk.wants(Kind::Filesystem) || walk.wants(Kind::Volume) {
        let entry = Entry::of_dataset(pool, head.clone())?;
        if walk.wants(entry.kind) {
            found.push(entry);
        }
    }
    if walk.depth.is_some_and(|limit| depth >= limit) {
        return Ok(());
    }
    if walk.wants(Kind::Snapshot) {
        for snapshot in head.snapshots().map_err(failed)? {
            found.push(Entry::of_dataset(pool, snapshot)?);
        }
    }
    if walk.wants(Kind::Bookmark) {
        let marks = head.bookmarks().map_err(failed)?;
        found.extend(marks.into_iter().map(|mark| Entry::of_bookmark(pool, mark)));
    }
    Ok(())
}
