//! Creates file systems and volumes, and clones snapshots.

use super::names::{self, NameError};
use super::operation::{self, Operation};
use super::set::{for_new, set_limits};
use super::values::{self, Setting, Subject, VOLUME_LIMIT, ValueError};
use super::volume::{AutoReservation, DEFAULT_VOLUME_BLOCK};
use super::{EditError, permit, run, view};
use ::pool::LivePool;
use cenote::{DatasetKind, Pool, PoolWriter};
use dsl::DslError;
use dsl::TaskCtx;
use dsl::create;
use dsl::create::NewHead;
use dsl::prop;
use dsl::prop::PropValue;
use format::nvlist::{NvList, NvValue};
use format::objset::ObjsetType;
use format::prop as table;
use serde::{Deserialize, Serialize};
use zpl::{CaseSensitivity, ZplError};
use zpl::{NewFilesystem, make_filesystem, make_volume};

/// Kind of a new dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewKind {
    /// A file system.
    Filesystem,
    /// A volume.
    Volume {
        /// Size in bytes; rounded up to whole blocks.
        size: u64,
        /// True if it reserves no space.
        sparse: bool,
    },
}

/// Description of a new file system or volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDataset {
    /// Full name of the dataset.
    pub name: String,
    /// File system or volume.
    pub kind: NewKind,
    /// Properties as given: name and value.
    pub props: Vec<(String, String)>,
}

impl NewDataset {
    /// Describes a file system without properties.
    pub fn filesystem(name: &str) -> NewDataset {
        NewDataset { name: name.to_owned(), kind: NewKind::Filesystem, props: Vec::new() }
    }

    /// Block size of a volume in bytes: the given one or the default.
    ///
    /// # Errors
    /// [`EditError::Value`] if the given block size is not valid.
    pub(crate) fn block_size(&self) -> Result<u64, EditError> {
        match self.props.iter().find(|(name, _)| name == "volblocksize" || name == "volblock") {
            Some((_, text)) => Ok(dsl::prop::change::parse_number(text)?),
            None => Ok(DEFAULT_VOLUME_BLOCK),
        }
    }

    /// Size of the volume in bytes, rounded up to whole blocks; 0 for a file system.
    ///
    /// # Errors
    /// [`EditError::Value`] if the size or the block size is not valid.
    pub fn volume_size(&self) -> Result<u64, EditError> {
        let NewKind::Volume { size, .. } = self.kind else { return Ok(0) };
        let block = self.block_size()?.max(1);
        let size = size.checked_next_multiple_of(block).filter(|size| *size < VOLUME_LIMIT);
        size.ok_or_else(|| ValueError::VolumeTooLarge.into())
    }

    /// Bytes that a volume reserves if it is not sparse and the properties do not say otherwise.
    ///
    /// # Errors
    /// [`EditError::Value`] if the size or the block size is not valid.
    pub(crate) fn reservation(&self, pool: &LivePool) -> Result<Option<u64>, EditError> {
        let given = |name: &str| self.props.iter().any(|(given, _)| given == name);
        match self.kind {
            NewKind::Volume { sparse: false, .. } if !given("refreservation") && !given("refreserv") => {
                let auto = AutoReservation::new(&pool.tree(), self.block_size()?);
                Ok(Some(auto.of(self.volume_size()?)))
            }
            _ => Ok(None),
        }
    }

    /// Checks the properties as far as that is possible without creating the dataset.
    ///
    /// # Errors
    /// [`EditError::Value`] for the first property that cannot be set.
    pub(crate) fn settings(&self, pool: &LivePool) -> Result<Vec<Setting>, EditError> {
        let is_volume = self.kind != NewKind::Filesystem;
        let subject = Subject {
            kind: if is_volume { table::VOL } else { table::FS },
            creating: true,
            // The size is rounded up by the caller.
            block_size: 1,
            version: 0,
        };
        let features = pool.features();
        let mut settings = Vec::new();
        for (name, text) in &self.props {
            let setting = values::resolve(name, text, &subject, &|feature| features.is_enabled(feature))?;
            settings.push(setting);
        }
        let normalization = index(&settings, "normalization").is_some_and(|n| n != 0);
        if normalization && index(&settings, "utf8only") == Some(0) {
            return Err(ValueError::Normalization.into());
        }
        if is_volume && self.volume_size()? == 0 {
            return Err(ValueError::NewVolumeZero.into());
        }
        Ok(settings)
    }
}

fn index(settings: &[Setting], wanted: &str) -> Option<u64> {
    settings.iter().find_map(|setting| match setting {
        Setting::Property { name, value } if name == wanted => value.number(),
        _ => None,
    })
}

/// Checks that a dataset can be created under this name: its parent is a file system, and the name is free.
fn check_place(pool: &Pool, name: &str) -> Result<(), EditError> {
    names::check_new(name)?;
    let (above, _) = name.rsplit_once('/').ok_or(NameError::PoolOnly)?;
    let owned = || name.to_owned();
    match pool.dataset(above) {
        Ok(parent) if parent.kind()? == DatasetKind::Filesystem => {}
        Ok(_) => return Err(EditError::ParentNotFilesystem { name: owned() }),
        Err(error) => {
            return Err(match error.into() {
                EditError::NoDataset { .. } => EditError::NoParent { name: owned() },
                other => other,
            });
        }
    }
    match pool.dataset(name).map_err(EditError::from) {
        Ok(_) => Err(EditError::Exists { name: owned() }),
        Err(EditError::NoDataset { .. }) => Ok(()),
        Err(other) => Err(other),
    }
}

/// Creates the missing ancestors of a name as file systems. Returns their names.
///
/// # Errors
/// An ancestor is a volume, or cannot be created.
pub fn create_ancestors(pool: &PoolWriter, name: &str) -> Result<Vec<String>, EditError> {
    names::check_new(name)?;
    let mut made = Vec::new();
    let parts: Vec<&str> = name.split('/').collect();
    for depth in 2..parts.len() {
        let above = parts.get(..depth).unwrap_or_default().join("/");
        match view(pool)?.dataset(&above).map_err(EditError::from) {
            Ok(found) if found.kind()? == DatasetKind::Filesystem => {}
            Ok(_) => return Err(EditError::ParentNotFilesystem { name: name.to_owned() }),
            Err(EditError::NoDataset { .. }) => {
                create(pool, &NewDataset::filesystem(&above))?;
                made.push(above);
            }
            Err(other) => return Err(other),
        }
    }
    Ok(made)
}

/// The parameters of the creation task.
struct Work {
    name: String,
    /// Uid of the creator, who owns the root directory.
    creator: u32,
    /// Properties to store with the new head.
    props: Vec<(String, PropValue)>,
    /// Properties that begin to count something when they are set.
    counted: Vec<(String, PropValue)>,
    contents: Contents,
}

#[derive(Clone, Copy)]
enum Contents {
    Filesystem(NewFilesystem),
    Volume { size: u64, block_size: u64 },
}

/// Creates a file system or volume.
///
/// # Errors
/// Why it cannot be created; then the pool is unchanged.
pub fn create(pool: &PoolWriter, new: &NewDataset) -> Result<(), EditError> {
    let live = pool.live();
    check_place(&view(pool)?, &new.name)?;
    let settings = new.settings(live)?;
    let needed: Vec<String> = settings.iter().map(permit::for_setting).collect();
    permit::ask_new(pool, &new.name, &needed.iter().map(String::as_str).collect::<Vec<_>>())?;
    let (mut props, limits) = for_new(&settings);
    let contents = contents(pool, new, &props)?;
    if let Some(bytes) = new.reservation(live)? {
        permit::ask_new(pool, &new.name, &["refreservation"])?;
        props.push(("refreservation".into(), PropValue::Number(bytes)));
    } else if settings.contains(&Setting::AutoReservation) {
        let auto = AutoReservation::new(&live.tree(), new.block_size()?);
        props.push(("refreservation".into(), PropValue::Number(auto.of(new.volume_size()?))));
    }
    check_footprint(live, &props)?;
    let (operation, input) = (Operation::begin("create"), input(new, &props)?);
    // These properties are stored in the contents of the dataset.
    props.retain(|(name, _)| {
        !matches!(
            name.as_str(),
            "utf8only" | "normalization" | "casesensitivity" | "volblocksize" | "encryption"
        )
    });
    let is_counted = |(name, _): &(String, PropValue)| name == "filesystem_limit" || name == "snapshot_limit";
    let (counted, props) = props.into_iter().partition(is_counted);
    let creator = pool.caller().uid;
    let work = Work { name: new.name.clone(), creator, props, counted, contents };
    run(pool, move |ctx| make(ctx, &work)).map_err(no_room)?;
    operation.done(pool, input)?;
    if !limits.is_empty() {
        set_limits(pool, &view(pool)?.dataset(&new.name)?, &limits)?;
    }
    Ok(())
}

/// The input of the operation, for the pool's history.
fn input(new: &NewDataset, props: &[(String, PropValue)]) -> Result<NvList, EditError> {
    let (kind, mut given) = match new.kind {
        NewKind::Filesystem => (ObjsetType::Zfs, NvList::new()),
        NewKind::Volume { .. } => (ObjsetType::Zvol, operation::pair("volsize", new.volume_size()?)),
    };
    for (name, value) in operation::properties(props).iter() {
        given.push(name, value.clone());
    }
    let mut input = operation::pair("type", NvValue::Int32(i32::try_from(kind.id()).unwrap_or(0)));
    input.push("props", given);
    Ok(input)
}

/// During creation, quotas and reservations that cannot be met are reported as a lack of space.
fn no_room(error: EditError) -> EditError {
    match error {
        EditError::Refused(DslError::BadLimit { .. }) => EditError::NoSpace,
        other => other,
    }
}

/// Refuses a quota that is too small for an empty file system.
fn check_footprint(pool: &LivePool, props: &[(String, PropValue)]) -> Result<(), EditError> {
    let tree = pool.tree();
    let sector =
        tree.tops().filter_map(|(vdev, _)| tree.ashift(vdev)).map(|a| 1_u64 << a.0).min().unwrap_or(512);
    // 24 blocks, counting copies, of one sector or 1 KiB each.
    let footprint = 24 * sector.max(1 << 10);
    let too_small = |(name, value): &(String, PropValue)| {
        matches!(name.as_str(), "quota" | "refquota")
            && value.number().is_some_and(|n| n != 0 && n < footprint)
    };
    if props.iter().any(too_small) { Err(EditError::NoSpace) } else { Ok(()) }
}

fn contents(
    pool: &PoolWriter,
    new: &NewDataset,
    props: &[(String, PropValue)],
) -> Result<Contents, EditError> {
    let number = |wanted: &str| {
        props.iter().find(|(name, _)| name == wanted).and_then(|(_, value)| value.number()).unwrap_or(0)
    };
    Ok(match new.kind {
        NewKind::Volume { .. } => {
            Contents::Volume { size: new.volume_size()?, block_size: new.block_size()? }
        }
        NewKind::Filesystem => Contents::Filesystem(NewFilesystem {
            normalization: number("normalization"),
            utf8only: number("utf8only") != 0,
            case: match number("casesensitivity") {
                1 => CaseSensitivity::Insensitive,
                2 => CaseSensitivity::Mixed,
                _ => CaseSensitivity::Sensitive,
            },
            projects: pool.live().features().is_enabled("project_quota"),
            uid: pool.caller().uid,
            gid: pool.caller().gid,
            ..NewFilesystem::default()
        }),
    })
}

fn make(ctx: &mut TaskCtx<'_>, work: &Work) -> Result<(), DslError> {
    check_counted(ctx, &work.counted)?;
    let case_insensitive =
        matches!(work.contents, Contents::Filesystem(fs) if fs.case == CaseSensitivity::Insensitive);
    let creator = Some(work.creator);
    let new = NewHead { name: &work.name, props: &work.props, creator, case_insensitive };
    let env = ctx.env;
    match work.contents {
        Contents::Filesystem(fs) => create::create(ctx, new, ObjsetType::Zfs, &mut |set, tx| {
            make_filesystem(set, &fs, env, tx).map(drop).map_err(not_filled)
        })?,
        Contents::Volume { size, block_size } => {
            create::create(ctx, new, ObjsetType::Zvol, &mut |set, tx| {
                make_volume(set, size, block_size, env, tx).map_err(not_filled)
            })?
        }
    };
    set_counted(ctx, &work.name, &work.counted)
}

/// Error for contents that could not be created.
fn not_filled(error: ZplError) -> DslError {
    match error {
        ZplError::Dmu(error) => error.into(),
        other => unreachable!("sizes and forms of new contents were checked: {other}"),
    }
}

/// Checks whether [`set_counted`] can succeed, before any change.
fn check_counted(ctx: &TaskCtx<'_>, counted: &[(String, PropValue)]) -> Result<(), DslError> {
    counted.iter().try_for_each(|(prop, value)| prop::change::check_counts(ctx, prop, value))
}

/// Sets limits on the number of descendants, which begin to count them.
fn set_counted(ctx: &mut TaskCtx<'_>, name: &str, counted: &[(String, PropValue)]) -> Result<(), DslError> {
    counted.iter().try_for_each(|(prop, value)| prop::change::set(ctx, name, prop, value))
}

/// Description of a new clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloneSpec {
    /// Full name of the origin snapshot.
    pub origin: String,
    /// Full name of the clone.
    pub name: String,
    /// Properties as given: name and value.
    pub props: Vec<(String, String)>,
}

/// Clones a snapshot.
///
/// # Errors
/// Why it cannot be cloned; then the pool is unchanged.
pub fn clone(pool: &PoolWriter, spec: &CloneSpec) -> Result<(), EditError> {
    let pool_view = view(pool)?;
    let origin = pool_view.dataset(&spec.origin)?;
    check_place(&pool_view, &spec.name)?;
    let is_volume = origin.dsl().is_volume()?;
    let subject = Subject {
        kind: if is_volume { table::VOL } else { table::FS },
        creating: false,
        block_size: 1,
        version: 0,
    };
    let features = pool.live().features();
    let mut settings = Vec::new();
    for (name, text) in &spec.props {
        settings.push(values::resolve(name, text, &subject, &|feature| features.is_enabled(feature))?);
    }
    let needed: Vec<String> = settings.iter().map(permit::for_setting).collect();
    permit::ask(pool, &spec.origin, &["clone"])?;
    permit::ask_new(pool, &spec.name, &needed.iter().map(String::as_str).collect::<Vec<_>>())?;
    let (mut props, limits) = for_new(&settings);
    if settings.contains(&Setting::AutoReservation) {
        // A clone of a volume has the size of its origin.
        let volume = origin.volume()?;
        let auto = AutoReservation::new(&pool.live().tree(), volume.block_size());
        props.push(("refreservation".into(), PropValue::Number(auto.of(volume.size()))));
    }
    let is_counted = |(name, _): &(String, PropValue)| name == "filesystem_limit" || name == "snapshot_limit";
    let (counted, props): (Vec<_>, Vec<_>) = props.into_iter().partition(is_counted);
    let (origin, name) = (spec.origin.clone(), spec.name.clone());
    let creator = Some(pool.caller().uid);
    let operation = Operation::begin("clone");
    let mut input = operation::pair("origin", origin.as_str());
    input.push("props", operation::properties(props.iter().chain(&counted)));
    run(pool, move |ctx| {
        check_counted(ctx, &counted)?;
        let new = NewHead { name: &name, props: &props, creator, case_insensitive: false };
        create::clone(ctx, &origin, new)?;
        set_counted(ctx, &name, &counted)
    })
    .map_err(no_room)?;
    operation.done(pool, input)?;
    if !limits.is_empty() {
        set_limits(pool, &view(pool)?.dataset(&spec.name)?, &limits)?;
    }
    Ok(())
}
