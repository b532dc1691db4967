//! The contents of new datasets (docs/on-disk/23-zpl.md, section 1; 25-zvol.md, section 1).

use crate::attrs::initial::Fresh;
use crate::attrs::layout::Tables;
use crate::volume::is_size;
use crate::{CaseSensitivity, FileKind, Filesystem, ZplError};
use dmu::AllocTx;
use dmu::Env;
use dmu::{LiveSet, NewObject};
use format::names::{master_node, volume};
use format::zap::{NORM_CANONICAL, NORM_COMPATIBLE, NORM_COMPOSE, NORM_UPPER};
use format::znode::Time;
use format::{ObjType, ObjectId};
use std::sync::Arc;

/// The version of new file systems.
const VERSION: u64 = 5;

/// The settings of a new file system that cannot be changed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewFilesystem {
    /// Normalization of names: 0, or a form of `format::zap::NORM_…`.
    pub normalization: u64,
    /// Names must be UTF-8. Normalization implies it.
    pub utf8only: bool,
    /// Case sensitivity of names.
    pub case: CaseSensitivity,
    /// Files have a project: feature `project_quota` is enabled.
    pub projects: bool,
    /// Permissions of the root directory.
    pub mode: u32,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
}

impl Default for NewFilesystem {
    fn default() -> NewFilesystem {
        NewFilesystem {
            normalization: 0,
            utf8only: false,
            case: CaseSensitivity::Sensitive,
            projects: true,
            mode: 0o755,
            uid: 0,
            gid: 0,
        }
    }
}

/// The time by the clock of `env`.
pub(crate) fn now(env: &Env) -> Time {
    let wall = env.clock().wall();
    Time { secs: i64::try_from(wall.as_secs()).unwrap_or(i64::MAX), nanos: wall.subsec_nanos() }
}

/// Normalization for hashing names in directories.
pub(crate) fn directory_normalization(normalization: u64, case: CaseSensitivity) -> u64 {
    let forms = NORM_CANONICAL | NORM_COMPATIBLE | NORM_COMPOSE;
    normalization & forms | if case == CaseSensitivity::Sensitive { 0 } else { NORM_UPPER }
}

/// Creates the contents of a new file system in an empty object set. Returns the root directory.
///
/// # Errors
/// If an object cannot be created.
pub fn make_filesystem(
    set: &Arc<LiveSet>,
    new: &NewFilesystem,
    env: &Env,
    tx: &dyn AllocTx,
) -> Result<ObjectId, ZplError> {
    let forms =
        [0, NORM_CANONICAL, NORM_COMPATIBLE, NORM_CANONICAL | NORM_COMPOSE, NORM_COMPATIBLE | NORM_COMPOSE];
    if !forms.contains(&new.normalization) {
        return Err(ZplError::Invalid { what: "a form of normalization" });
    }
    let master = set.claim(master_node::OBJECT, &NewObject::of(ObjType::MASTER_NODE), tx)?;
    master.create_zap(tx, env.random(), 0)?;
    let (sa_master, tables) = Tables::make(set, &mut || env.random(), tx)?;
    let unlinked = set.allocate(&NewObject::of(ObjType::UNLINKED_SET), tx)?;
    unlinked.create_zap(tx, env.random(), 0)?;

    let now = now(env);
    let fresh = Fresh {
        kind: FileKind::Directory,
        mode: 0o04_0000 | new.mode & 0o7777,
        uid: new.uid.into(),
        gid: new.gid.into(),
        parent: ObjectId(0),
        rdev: (0, 0),
        project: new.projects.then_some(0),
        flags: 0,
        is_xattr: false,
        links: 2,
        generation: tx.txg().0,
        now,
        crtime: now,
        target: &[],
        xattrs: None,
        slots: 1,
    };
    // The root is its own parent, and its number is known only when it was created.
    let root = set.allocate(&NewObject::of(ObjType::DIRECTORY).with_bonus(ObjType::SA, vec![0; 8]), tx)?;
    let mut attrs = fresh.attrs();
    attrs.parent = root.id();
    let laid = fresh.lay_out(&attrs, &tables, None, tx)?;
    root.set_bonus(&laid.bonus, tx);
    root.create_zap(tx, env.random(), directory_normalization(new.normalization, new.case))?;

    let entries = master.zap(tx)?;
    let case = match new.case {
        CaseSensitivity::Sensitive => 0_u64,
        CaseSensitivity::Insensitive => 1,
        CaseSensitivity::Mixed => 2,
    };
    let values = [
        (master_node::VERSION, VERSION),
        (master_node::NORMALIZATION, new.normalization),
        (master_node::UTF8ONLY, u64::from(new.utf8only || new.normalization != 0)),
        (master_node::CASESENSITIVITY, case),
        (master_node::SA_ATTRS, sa_master.0),
        (master_node::DELETE_QUEUE, unlinked.id().0),
        (master_node::ROOT, root.id().0),
    ];
    for (name, value) in values {
        entries.insert(name.as_bytes(), value)?;
    }
    Ok(root.id())
}

/// Upgrades a file system of an older version to version 5, which can be changed. Each file keeps its form
/// until it is changed.
///
/// # Errors
/// [`ZplError::WrongDataset`] if the object set is no file system; [`ZplError::Version`] if its version is
/// unknown.
pub fn upgrade_filesystem(set: &Arc<LiveSet>, env: &Env, tx: &dyn AllocTx) -> Result<(), ZplError> {
    let reader = Filesystem::open(set.view())?;
    if reader.version() >= VERSION {
        return Ok(());
    }
    let master = set.object(master_node::OBJECT)?;
    if reader.master_value(master_node::DELETE_QUEUE)?.is_none() {
        let unlinked = set.allocate(&NewObject::of(ObjType::UNLINKED_SET), tx)?;
        unlinked.create_zap(tx, env.random(), 0)?;
        master.zap(tx)?.insert(master_node::DELETE_QUEUE.as_bytes(), unlinked.id().0)?;
    }
    let (sa_master, _) = Tables::make(set, &mut || env.random(), tx)?;
    let entries = master.zap(tx)?;
    entries.upsert(master_node::SA_ATTRS.as_bytes(), sa_master.0)?;
    entries.upsert(master_node::VERSION.as_bytes(), VERSION)?;
    Ok(())
}

/// Creates the contents of a new volume in an empty object set.
///
/// # Errors
/// If the sizes are not those of a volume: a block size that is no power of two from 512 to 16 MiB, or a size
/// that is not a multiple of it.
pub fn make_volume(
    set: &Arc<LiveSet>,
    size: u64,
    block_size: u64,
    env: &Env,
    tx: &dyn AllocTx,
) -> Result<(), ZplError> {
    let is_block = block_size.is_power_of_two() && (512..=format::units::MAX_BLOCK).contains(&block_size);
    if !is_block {
        return Err(ZplError::Invalid { what: "the block size of a volume" });
    }
    if !is_size(size) || !size.is_multiple_of(block_size) {
        return Err(ZplError::Invalid { what: "the size of a volume" });
    }
    set.claim(volume::DATA, &NewObject::of(ObjType::ZVOL).with_block_size(block_size), tx)?;
    let properties = set.claim(volume::PROPERTIES, &NewObject::of(ObjType::ZVOL_PROP), tx)?;
    properties.create_zap(tx, env.random(), 0)?;
    properties.zap(tx)?.insert(volume::SIZE.as_bytes(), size)?;
    Ok(())
}
