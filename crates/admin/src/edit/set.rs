//! Sets properties of existing datasets.

use super::values::{Setting, Subject};
use super::volume::AutoReservation;
use super::{EditError, permit, run, view};
use crate::Owner;
use ::pool::LivePool;
use cenote::{Dataset, DatasetKind, PoolWriter};
use dsl::DslError;
use dsl::TaskCtx;
use dsl::prop::{self, PropValue};
use format::prop as table;
use std::collections::BTreeMap;
use zpl::SpaceKind;
use zpl::{HeadFs, HeadVolume, QuotaOf, options_of};

/// The kind of a dataset as a bit of the property table.
///
/// # Errors
/// [`EditError`] if the dataset cannot be read.
pub fn kind_of(dataset: &Dataset) -> Result<u8, EditError> {
    Ok(match dataset.kind()? {
        DatasetKind::Filesystem => table::FS,
        DatasetKind::Volume => table::VOL,
        DatasetKind::Snapshot => table::SNAP,
    })
}

/// The facts of a dataset that its properties are checked against.
///
/// # Errors
/// [`EditError`] if the dataset cannot be read.
pub fn subject(dataset: &Dataset) -> Result<Subject, EditError> {
    let kind = kind_of(dataset)?;
    let number = |name| -> Result<u64, EditError> {
        let value = prop::get(dataset.dsl(), name)?;
        Ok(value.and_then(|v| v.raw.number()).unwrap_or(0))
    };
    let block_size = if kind == table::VOL { number("volblocksize")? } else { 0 };
    let version = if kind == table::FS { number("version")? } else { 0 };
    Ok(Subject { kind, creating: false, block_size, version })
}

/// Sets properties of a dataset.
///
/// # Errors
/// Why one of them cannot be set. As with `zfs set`, those before it may have been set.
pub fn set(pool: &PoolWriter, name: &str, settings: &[Setting]) -> Result<(), EditError> {
    let needed: Vec<String> = settings.iter().map(permit::for_setting).collect();
    permit::ask(pool, name, &needed.iter().map(String::as_str).collect::<Vec<_>>())?;
    let dataset = view(pool)?.dataset(name)?;
    let plan = Plan::make(pool.live(), &dataset, settings)?;
    let (target, props, size) = (name.to_owned(), plan.props, plan.size);
    if !props.is_empty() || size.is_some() {
        run(pool, move |ctx| store(ctx, &target, &props, size))?.map_or(Ok(()), Err)?;
    }
    if let Some((size, _)) = size {
        resize(pool, &dataset, size)?;
    }
    if !plan.limits.is_empty() {
        set_limits(pool, &dataset, &plan.limits)?;
    }
    if let Some(version) = plan.version {
        super::upgrade::upgrade(pool, name, version)?;
    }
    Ok(())
}

/// Quota of an owner: kind, id, whether it counts objects, and limit.
pub(super) type OwnerLimit = (Owner, u64, bool, u64);

/// The changes, grouped by how they are made.
#[derive(Default)]
struct Plan {
    props: Vec<(String, PropValue)>,
    /// New and old size of a volume in bytes.
    size: Option<(u64, u64)>,
    version: Option<u64>,
    limits: Vec<OwnerLimit>,
}

impl Plan {
    fn make(pool: &LivePool, dataset: &Dataset, settings: &[Setting]) -> Result<Plan, EditError> {
        let mut plan = Plan::default();
        let mut is_auto = false;
        for setting in settings {
            match setting {
                Setting::Property { name, value } => plan.props.push((name.clone(), value.clone())),
                Setting::AutoReservation => is_auto = true,
                Setting::VolumeSize(size) => plan.size = Some((*size, dataset.volume()?.size())),
                Setting::Version(version) => plan.version = Some(*version),
                Setting::OwnerLimit { owner, id, objects, limit } => {
                    plan.limits.push((*owner, *id, *objects, *limit));
                }
            }
        }
        if plan.size.is_some() || is_auto {
            plan.reserve(pool, dataset, is_auto)?;
        }
        Ok(plan)
    }

    /// Adapts the reservation of a volume to its new size, if the reservation matches the old size.
    fn reserve(&mut self, pool: &LivePool, dataset: &Dataset, is_auto: bool) -> Result<(), EditError> {
        let auto = auto_reservation(pool, dataset)?;
        let old_size = dataset.volume()?.size();
        let reserved = prop::stored_number(dataset.dsl(), "refreservation")?;
        let follows =
            self.size.is_some() && reserved != 0 && [auto.of(old_size), old_size].contains(&reserved);
        let is_given = self.props.iter().any(|(name, _)| name == "refreservation");
        if is_auto || (follows && !is_given) {
            let bytes = auto.of(self.size.map_or(old_size, |(new, _)| new));
            self.props.push(("refreservation".into(), PropValue::Number(bytes)));
        }
        Ok(())
    }
}

/// The parameters of a volume's reservation.
pub(super) fn auto_reservation(pool: &LivePool, dataset: &Dataset) -> Result<AutoReservation, EditError> {
    Ok(AutoReservation::new(&pool.tree(), subject(dataset)?.block_size))
}

/// Stores properties. If some are refused and others set, returns the first refusal; the others stay set.
fn store(
    ctx: &mut TaskCtx<'_>,
    name: &str,
    values: &[(String, PropValue)],
    size: Option<(u64, u64)>,
) -> Result<Option<DslError>, DslError> {
    let dataset = ctx.dsl()?.dataset(name)?;
    for (prop, value) in values {
        prop::change::check(ctx, &dataset, prop, value)?;
    }
    if let Some(refused) = set_all(ctx, name, values)? {
        return Ok(Some(refused));
    }
    if let Some((size, _)) = size {
        ctx.note("set", Some((name, dataset.id())), format!("volsize={size}"));
    }
    Ok(None)
}

/// Sets properties in any order: refused ones are tried again after the others, because limits may depend on each
/// other. Returns the first final refusal; it is an error if no property was set.
fn set_all(
    ctx: &mut TaskCtx<'_>,
    name: &str,
    values: &[(String, PropValue)],
) -> Result<Option<DslError>, DslError> {
    let mut left: Vec<&(String, PropValue)> = values.iter().collect();
    loop {
        let (before, mut why, mut refused) = (left.len(), None, Vec::new());
        for entry in left {
            if let Err(error) = ctx.step(|ctx| prop::change::set(ctx, name, &entry.0, &entry.1))? {
                refused.push(entry);
                why.get_or_insert(error);
            }
        }
        match why {
            None => return Ok(None),
            Some(error) if refused.len() == values.len() => return Err(error),
            Some(error) if refused.len() == before => return Ok(Some(error)),
            Some(_) => left = refused,
        }
    }
}

fn resize(pool: &PoolWriter, dataset: &Dataset, size: u64) -> Result<(), EditError> {
    let head = pool.live().heads().open(dataset.dsl().id())?;
    let volume = HeadVolume::open(&head).map_err(cenote::Error::from)?;
    volume.resize(size).map_err(cenote::Error::from)?;
    drop((volume, head));
    pool.sync()?;
    Ok(())
}

/// Sets quotas of owners in a file system.
pub(super) fn set_limits(
    pool: &PoolWriter,
    dataset: &Dataset,
    limits: &[OwnerLimit],
) -> Result<(), EditError> {
    let pool = pool.live();
    let options = options_of(dataset.dsl(), pool.features())?;
    let head = pool.heads().open(dataset.dsl().id())?;
    let fs = HeadFs::open(&head, options, pool.env()).map_err(cenote::Error::from)?;
    for (owner, id, objects, limit) in limits {
        let kind = match owner {
            Owner::User => SpaceKind::User,
            Owner::Group => SpaceKind::Group,
            Owner::Project => SpaceKind::Project,
        };
        let of = if *objects { QuotaOf::Objects } else { QuotaOf::Space };
        fs.fs.set_quota(kind, of, *id, *limit).map_err(cenote::Error::from)?;
    }
    drop((fs, head));
    pool.sync()?;
    Ok(())
}

/// Splits the properties of a new dataset: those stored with it, and the quotas of owners.
pub(super) fn for_new(settings: &[Setting]) -> (Vec<(String, PropValue)>, Vec<OwnerLimit>) {
    let mut props = BTreeMap::new();
    let mut limits = Vec::new();
    for setting in settings {
        match setting {
            Setting::Property { name, value } => {
                props.insert(name.clone(), value.clone());
            }
            Setting::OwnerLimit { owner, id, objects, limit } => limits.push((*owner, *id, *objects, *limit)),
            // New file systems have the newest version; the caller handles sizes and reservations.
            Setting::Version(_) | Setting::VolumeSize(_) | Setting::AutoReservation => {}
        }
    }
    (props.into_iter().collect(), limits)
}
