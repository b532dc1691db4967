//! Creation of file systems, volumes and clones (docs/on-disk/22-mos-dsl.md, section 5).

use crate::dataset::Dataset;
use crate::deadlist::Deadlist;
use crate::delegation;
use crate::dir::Dir;
use crate::error::DslError;
use crate::heads::head::open_set;
use crate::keys::change::{key_object_of, share_key};
use crate::ledger::sync_set;
use crate::limits::{self, LeaveSlop};
use crate::mos_tx::MosTx;
use crate::name::{self, Name, Tail};
use crate::policy::policy_of;
use crate::prop;
use crate::prop::PropValue;
use crate::task::TaskCtx;
use crate::tree::Dsl;
use crate::{counts, livelist, zapify};
use dmu::zap::ZapValue;
use dmu::{KeyState, ObjSet};
use dmu::{LiveSet, NewObject, SyncTx};
use format::dsl::{
    DATASET_PHYS_SIZE, DIR_FLAG_USED_BREAKDOWN, DIR_PHYS_SIZE, DS_FLAG_CASE_INSENSITIVE,
    DS_FLAG_INCONSISTENT, DS_FLAG_UNIQUE_ACCURATE, DatasetPhys, DirPhys,
};
use format::objset::{ObjsetType, ZilHeader};
use format::{BlockPtr, ObjType, ObjectId, Txg};
use std::sync::Arc;

/// Normalization of snapshot names in their ZAP.
pub(crate) const SNAPSHOT_NORMALIZATION: u64 = format::zap::NORM_UPPER;
/// Bits of a file system id (`fsid`).
const FSID_BITS: u32 = 56;

/// Fills the object set of a new head.
pub(crate) type Fill<'f> = &'f mut dyn FnMut(&Arc<LiveSet>, &SyncTx) -> Result<(), DslError>;

/// Description of a new head.
#[derive(Debug, Clone, Copy)]
pub struct NewHead<'n> {
    /// Full name of the new dataset: `pool/a/b`.
    pub name: &'n str,
    /// Local properties, in stored form. Quotas and reservations among them take effect.
    pub props: &'n [(String, PropValue)],
    /// User that gets the create-time permissions of the directories above; `None`: no user gets them.
    pub creator: Option<u32>,
    /// Names in the dataset are compared without case.
    pub case_insensitive: bool,
}

impl<'n> NewHead<'n> {
    /// A head without local properties.
    pub fn named(name: &'n str) -> NewHead<'n> {
        NewHead { name, props: &[], creator: None, case_insensitive: false }
    }
}

fn string(name: &str) -> String {
    name.to_owned()
}

/// Checks that a head of this name can be created. Returns its parent directory and the last component of its
/// name.
pub(crate) fn check_new_dir<'n>(
    ctx: &TaskCtx<'_>,
    dsl: &Dsl,
    name: &'n str,
) -> Result<(Dir, &'n str), DslError> {
    let Name { dir, tail: Tail::None } = name::check_new(name)? else {
        let why = "snapshot delimiter '@' is not expected here";
        return Err(DslError::BadName { name: string(name), why });
    };
    if dir.split('/').next() != Some(ctx.pool_name) {
        return Err(DslError::Crosses { name: string(name), why: "no such pool" });
    }
    let Some((above, component)) = dir.rsplit_once('/') else {
        return Err(DslError::Exists { name: string(name) });
    };
    let parent = match dsl.dir(above) {
        Ok(parent) => parent,
        Err(DslError::NotFound { .. }) => return Err(DslError::NoParent { name: string(name) }),
        Err(error) => return Err(error),
    };
    if parent.child(component)?.is_some() {
        return Err(DslError::Exists { name: string(name) });
    }
    let no_parent = || DslError::NoParent { name: string(name) };
    let head = parent.head()?.ok_or_else(no_parent)?;
    if head.is_volume()? {
        return Err(DslError::ParentNotFilesystem { name: string(name) });
    }
    Ok((parent, component))
}

/// Creates a directory below `parent`, without a head and without charges.
pub(crate) fn create_dir(
    m: MosTx<'_>,
    parent: Option<ObjectId>,
    component: &str,
) -> Result<ObjectId, DslError> {
    let new = NewObject::of(ObjType::DSL_DIR).with_bonus(ObjType::DSL_DIR, vec![0; DIR_PHYS_SIZE]);
    let dir = m.allocate(&new)?.id();
    let props = m.create_plain_zap(ObjType::DSL_PROPS)?;
    let children = m.create_plain_zap(ObjType::DSL_DIR_CHILD_MAP)?;
    let now = m.env.clock().wall().as_secs();
    m.change_dir(dir, |phys: &mut DirPhys| {
        phys.creation_time = now;
        phys.parent = parent;
        phys.props = Some(props);
        phys.children = Some(children);
        phys.flags = DIR_FLAG_USED_BREAKDOWN;
    })?;
    if let Some(parent) = parent {
        let missing = || DslError::Mismatch { what: "child map", object: parent, found: 0, expected: dir.0 };
        let map = m.dir(parent)?.children.ok_or_else(missing)?;
        m.zap(map)?.insert(component.as_bytes(), dir.0)?;
    }
    Ok(dir)
}

/// Creates a dataset object with this bonus.
pub(crate) fn create_dataset(m: MosTx<'_>, phys: &DatasetPhys) -> Result<ObjectId, DslError> {
    let mut bonus = vec![0; DATASET_PHYS_SIZE];
    phys.encode_into(&mut bonus);
    let new = NewObject::of(ObjType::DSL_DATASET).with_bonus(ObjType::DSL_DATASET, bonus);
    Ok(m.allocate(&new)?.id())
}

/// The bonus of a new dataset: random ids, all other fields 0.
pub(crate) fn new_phys(m: MosTx<'_>, dir: ObjectId) -> DatasetPhys {
    DatasetPhys {
        dir,
        prev_snap: None,
        prev_snap_txg: Txg(0),
        next_snap: None,
        snapshot_names: None,
        num_children: 0,
        creation_time: m.env.clock().wall().as_secs(),
        creation_txg: m.txg(),
        deadlist: None,
        referenced: 0,
        compressed: 0,
        uncompressed: 0,
        unique: 0,
        fsid_guid: (m.env.random() & ((1 << FSID_BITS) - 1)).max(1),
        guid: m.env.random(),
        flags: DS_FLAG_UNIQUE_ACCURATE,
        bp: BlockPtr::HOLE,
        next_clones: None,
        props: None,
        userrefs: None,
    }
}

/// Creates the head of a directory. With an origin it begins as a copy of that snapshot.
pub(crate) fn create_head(
    m: MosTx<'_>,
    dir: ObjectId,
    origin: Option<ObjectId>,
    flags: u64,
) -> Result<ObjectId, DslError> {
    let mut phys = new_phys(m, dir);
    phys.flags |= flags;
    let head = create_dataset(m, &phys)?;
    let names = m.create_zap(ObjType::DSL_DS_SNAP_MAP, ObjType::NONE, Vec::new(), SNAPSHOT_NORMALIZATION)?;
    phys.snapshot_names = Some(names);
    match origin {
        None => phys.deadlist = Some(Deadlist::create(m)?),
        Some(origin) => descend_from(m, &mut phys, head, origin)?,
    }
    m.change_dataset(head, |stored| *stored = phys)?;
    m.change_dir(dir, |phys| {
        phys.head = Some(head);
        phys.origin = origin;
    })?;
    Ok(head)
}

/// Links a new head to its origin snapshot.
fn descend_from(
    m: MosTx<'_>,
    phys: &mut DatasetPhys,
    head: ObjectId,
    origin: ObjectId,
) -> Result<(), DslError> {
    let from = m.dataset(origin)?;
    phys.prev_snap = Some(origin);
    phys.prev_snap_txg = from.creation_txg;
    phys.referenced = from.referenced;
    phys.compressed = from.compressed;
    phys.uncompressed = from.uncompressed;
    phys.bp = from.bp;
    phys.flags |= from.flags & (DS_FLAG_INCONSISTENT | DS_FLAG_CASE_INSENSITIVE);
    // Older blocks of the origin may die here in any of the ranges that its own head distinguishes.
    let own_head = m.dir(from.dir)?.head;
    let keys = own_head.map(|id| m.dataset(id)).transpose()?.and_then(|head| head.deadlist);
    phys.deadlist = Some(match keys {
        Some(keys) => Deadlist::clone_keys(m, keys, from.creation_txg)?,
        None => Deadlist::create(m)?,
    });
    let next_clones = m.set_insert(from.next_clones, ObjType::NEXT_CLONES, head.0)?;
    m.change_dataset(origin, |phys| {
        phys.num_children += 1;
        phys.next_clones = Some(next_clones);
    })?;
    let clones = m.set_insert(m.dir(from.dir)?.clones, ObjType::DSL_CLONES, head.0)?;
    m.change_dir(from.dir, |phys| phys.clones = Some(clones))
}

/// Stores local properties of a new head. Quotas and reservations take effect.
pub(crate) fn store_props(
    ctx: &mut TaskCtx<'_>,
    name: &str,
    dir: ObjectId,
    props: &[(String, PropValue)],
) -> Result<(), DslError> {
    let m = ctx.m();
    let Some(map) = m.dir(dir)?.props else { return Ok(()) };
    for (prop, value) in props {
        match (prop.as_str(), value) {
            ("quota", PropValue::Number(bytes)) => limits::set_quota(ctx, name, *bytes)?,
            ("reservation", PropValue::Number(bytes)) => limits::set_reservation(ctx, name, *bytes)?,
            ("refquota", PropValue::Number(bytes)) => limits::set_refquota(ctx, name, *bytes)?,
            ("refreservation", PropValue::Number(bytes)) => limits::set_refreservation(ctx, name, *bytes)?,
            (prop, PropValue::Number(n)) => m.zap(map)?.upsert(prop.as_bytes(), *n)?,
            (prop, PropValue::String(text)) => {
                m.zap(map)?.upsert(prop.as_bytes(), ZapValue::Str(text.as_bytes()))?;
            }
        }
        if let Some(head) = m.dir(dir)?.head {
            prop::change::activate(m, head, prop, value)?;
        }
    }
    Ok(())
}

/// Checks that the space which a new dataset reserves is available, and that its quota allows its initial
/// references.
fn check_limits(
    parent: &Dir,
    name: &str,
    props: &[(String, PropValue)],
    referenced: u64,
) -> Result<(), DslError> {
    let number = |wanted: &str| {
        let found = props.iter().find(|(prop, _)| prop == wanted);
        found.and_then(|(_, value)| value.number()).unwrap_or(0)
    };
    let (quota, reservation) = (number("quota"), number("reservation"));
    let (refquota, refreservation) = (number("refquota"), number("refreservation"));
    let bad = |why| Err(DslError::BadLimit { name: string(name), why });
    if quota != 0 && (reservation > quota || refreservation > quota) {
        return bad(limits::ABOVE_AVAILABLE);
    }
    if refquota != 0 && refreservation.max(referenced) > refquota {
        return bad(limits::BELOW_USED);
    }
    if reservation.max(refreservation) > parent.available()? {
        return bad(limits::ABOVE_AVAILABLE);
    }
    Ok(())
}

/// Runs the last checks of a new head, then creates its directory. The steps after this must not be refused.
fn create_checked_dir(
    ctx: &TaskCtx<'_>,
    new: &NewHead<'_>,
    parent: &Dir,
    component: &str,
    referenced: u64,
) -> Result<ObjectId, DslError> {
    counts::check(ctx, parent.id(), 1, 0)?;
    limits::check_pool(ctx, LeaveSlop::All)?;
    check_limits(parent, new.name, new.props, referenced)?;
    let dir = create_dir(ctx.m(), Some(parent.id()), component)?;
    counts::adjust(ctx.m(), dir, 1, 0)?;
    Ok(dir)
}

/// Creates a file system or volume with an object set of its own, which `fill` fills.
///
/// # Errors
/// [`DslError::BadName`] or [`DslError::Exists`] for the name; if the parent is missing, encrypted or no file
/// system; [`DslError::CountLimit`]; or if the space that the dataset reserves is not available.
pub fn create(
    ctx: &mut TaskCtx<'_>,
    new: NewHead<'_>,
    kind: ObjsetType,
    fill: Fill<'_>,
) -> Result<ObjectId, DslError> {
    let dsl = ctx.dsl()?;
    let (parent, component) = check_new_dir(ctx, &dsl, new.name)?;
    if key_object_of(ctx.m(), parent.id())?.is_some() {
        let why = "an encrypted dataset cannot be made";
        return Err(DslError::Encrypted { name: string(new.name), why });
    }
    let dir = create_checked_dir(ctx, &new, &parent, component, 0)?;
    let m = ctx.m();
    let flags = if new.case_insensitive { DS_FLAG_CASE_INSENSITIVE } else { 0 };
    let head = create_head(m, dir, m.origin_snapshot()?, flags)?;
    store_props(ctx, new.name, dir, new.props)?;
    fill_head(ctx, head, kind, fill)?;
    delegation::change::inherit_create_time(m, parent.id(), dir, new.creator)?;
    ctx.note("create", Some((new.name, head)), " ");
    note_props(ctx, new.name, head, new.props);
    Ok(head)
}

/// Adds the properties that were set at creation to the pool's history.
pub(crate) fn note_props(ctx: &mut TaskCtx<'_>, name: &str, head: ObjectId, props: &[(String, PropValue)]) {
    for (prop, value) in props {
        ctx.note("set", Some((name, head)), format!("{prop}={}", crate::prop::change::raw(value)));
    }
}

/// Creates the object set of a head that has none, and writes it.
pub(crate) fn fill_head(
    ctx: &TaskCtx<'_>,
    head: ObjectId,
    kind: ObjsetType,
    fill: Fill<'_>,
) -> Result<(), DslError> {
    let m = ctx.m();
    let dataset = ctx.dsl()?.dataset_by_object(head)?;
    let mut policy = policy_of(&dataset, ctx.features)?;
    if policy.encrypted {
        // Without the key the owners of objects are not known, so these are not counted.
        (policy.user_accounting, policy.object_accounting, policy.project_accounting) = (false, false, false);
    }
    if kind == ObjsetType::Zfs && policy.user_accounting {
        for feature in ["userobj_accounting", "project_quota"] {
            if ctx.features.is_enabled(feature) {
                zapify::activate_feature(m, head, feature)?;
            }
        }
    }
    let meter = ctx.heads.txgs().meter();
    let set = LiveSet::create(ctx.mos.store(), meter, head.0, kind, policy, ctx.tx);
    fill(&set, ctx.tx)?;
    sync_set(ctx.m(), ctx.brt, head, &set)
}

/// Finds the snapshot with this full name.
pub(crate) fn find_snapshot(dsl: &Dsl, name: &str) -> Result<Dataset, DslError> {
    let dataset = dsl.dataset(name)?;
    if !dataset.is_snapshot() {
        return Err(DslError::WrongKind { name: string(name), why: "not a snapshot" });
    }
    Ok(dataset)
}

/// Checks the encryption of a clone: it has the key of its origin, and an unencrypted clone does not go below
/// an encrypted parent.
fn check_same_key(m: MosTx<'_>, origin: &Dataset, parent: &Dir, name: &str) -> Result<(), DslError> {
    let is_encrypted = key_object_of(m, origin.dir().id())?.is_some();
    if !is_encrypted && key_object_of(m, parent.id())?.is_some() {
        let why = "what is not encrypted cannot lie below what is";
        return Err(DslError::Encrypted { name: string(name), why });
    }
    Ok(())
}

/// Whether an object set has an intent log header. The header of an encrypted set is authenticated, so it
/// cannot be cleared without the key.
pub(crate) fn has_foreign_log(ctx: &TaskCtx<'_>, bp: &BlockPtr) -> Result<bool, DslError> {
    if bp.is_hole() {
        return Ok(false);
    }
    let set = ObjSet::open(ctx.mos.store(), bp, 0, KeyState::Locked)?;
    Ok(set.phys().zil != ZilHeader::default())
}

/// Creates a head that begins as a copy of a snapshot.
///
/// # Errors
/// Those of [`create`]; also if the snapshot is missing or encrypted.
pub fn clone(ctx: &mut TaskCtx<'_>, origin: &str, new: NewHead<'_>) -> Result<ObjectId, DslError> {
    let dsl = ctx.dsl()?;
    let origin = find_snapshot(&dsl, origin)?;
    let (parent, component) = check_new_dir(ctx, &dsl, new.name)?;
    if origin.phys().creation_txg >= ctx.txg() {
        return Err(DslError::Again { name: string(new.name) });
    }
    check_same_key(ctx.m(), &origin, &parent, new.name)?;
    if origin.is_encrypted()? && has_foreign_log(ctx, &origin.phys().bp)? {
        let why = "the intent log in an encrypted snapshot cannot be taken out without its key";
        return Err(DslError::Encrypted { name: string(new.name), why });
    }
    let dir = create_checked_dir(ctx, &new, &parent, component, origin.referenced())?;
    let m = ctx.m();
    let head = create_clone_head(ctx, dir, origin.id())?;
    livelist::create(m, dir)?;
    store_props(ctx, new.name, dir, new.props)?;
    forget_log(ctx, head)?;
    delegation::change::inherit_create_time(m, parent.id(), dir, new.creator)?;
    let text = format!("origin={} ({})", origin.name(), origin.id());
    ctx.note("clone", Some((new.name, head)), text);
    note_props(ctx, new.name, head, new.props);
    Ok(head)
}

/// Creates the head of a clone's directory.
pub(crate) fn create_clone_head(
    ctx: &TaskCtx<'_>,
    dir: ObjectId,
    origin: ObjectId,
) -> Result<ObjectId, DslError> {
    let m = ctx.m();
    let head = create_head(m, dir, Some(origin), 0)?;
    zapify::copy_features(m, origin, head)?;
    share_key(m, m.dataset(origin)?.dir, dir)?;
    Ok(head)
}

/// Clears the intent log header that a copied object set has from its original head.
pub(crate) fn forget_log(ctx: &TaskCtx<'_>, head: ObjectId) -> Result<(), DslError> {
    let dsl = ctx.dsl()?;
    let dataset = dsl.dataset_by_object(head)?;
    let bp = dataset.phys().bp;
    if !has_foreign_log(ctx, &bp)? {
        return Ok(());
    }
    let policy = policy_of(&dataset, ctx.features)?;
    let key = dsl.keyring().key_of(&dataset)?;
    let set = open_set(ctx.mos, ctx.heads.txgs(), &bp, head, key, &policy)?;
    set.set_zil_header(ZilHeader::default(), ctx.tx);
    sync_set(ctx.m(), ctx.brt, head, &set)
}
