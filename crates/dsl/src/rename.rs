//! Renaming directories and snapshots
//! (docs/on-disk/22-mos-dsl.md, section 5).

use crate::block_space::difference;
use crate::charge::{self, DirDelta};
use crate::counts;
use crate::create::check_new_dir;
use crate::dir::Dir;
use crate::error::DslError;
use crate::keys::change::key_root_of;
use crate::limits::{self, LeaveSlop};
use crate::mos_tx::MosTx;
use crate::name::{self, NAME_LIMIT, NESTING_MAX, Name, Tail};
use crate::task::TaskCtx;
use format::ObjectId;
use format::dsl::DirPhys;

/// Checks that no name below becomes too long or too deep.
fn check_below(dir: &Dir, new_name: &str) -> Result<(), DslError> {
    let (old_len, new_len) = (dir.name().len(), new_name.len());
    let levels = |name: &str| name.split('/').count();
    let (old_levels, new_levels) = (levels(dir.name()), levels(new_name));
    let too_long = |name: &str| name.len() - old_len + new_len >= NAME_LIMIT;
    let bad = |name: &str, why| Err(DslError::BadName { name: name.to_owned(), why });
    let mut stack = vec![dir.clone()];
    while let Some(at) = stack.pop() {
        let mut names = vec![at.name().to_owned()];
        if let Some(head) = at.head()? {
            names.extend(head.snapshot_entries()?.iter().map(|(name, _)| format!("{}@{name}", at.name())));
        }
        if let Some(name) = names.iter().find(|name| too_long(name)) {
            return bad(name, "name is too long");
        }
        if levels(at.name()) - old_levels + new_levels > NESTING_MAX {
            return bad(at.name(), "name is nested too deeply");
        }
        stack.extend(at.children()?);
    }
    Ok(())
}

/// Checks encryption: an encryption root may move anywhere, a dataset that inherits its key only below the
/// same key, and an unencrypted dataset only below an unencrypted parent.
fn check_keys(m: MosTx<'_>, name: &str, dir: ObjectId, parent: ObjectId) -> Result<(), DslError> {
    let (own, above) = (key_root_of(m, dir)?, key_root_of(m, parent)?);
    if own == above || own == Some(dir) {
        return Ok(());
    }
    let why = "its key is not that of the new parent";
    Err(DslError::Encrypted { name: name.to_owned(), why })
}

/// Renames a file system or volume and all datasets below it; the new name may have another parent.
///
/// # Errors
/// [`DslError::BadName`] or [`DslError::Exists`] for the new name; if the new parent is missing, is the
/// dataset itself or below it, or has too little space; or if the directory is the pool's root.
pub fn rename(ctx: &mut TaskCtx<'_>, from: &str, to: &str) -> Result<(), DslError> {
    let dsl = ctx.dsl()?;
    let dir = dsl.dir(from)?;
    let head = dir.head()?.ok_or_else(|| DslError::not_found(from))?;
    let Some(old_parent) = dir.parent() else {
        let why = "operation does not apply to pools";
        return Err(DslError::WrongKind { name: from.to_owned(), why });
    };
    if to.starts_with(&format!("{from}/")) {
        return Err(DslError::Descendant { name: to.to_owned() });
    }
    let (parent, component) = check_new_dir(ctx, &dsl, to)?;
    let is_moved = parent.id() != old_parent.id();
    if is_moved {
        check_keys(ctx.m(), from, dir.id(), parent.id())?;
    }
    ctx.heads.check_not_received(from)?;
    limits::check_pool(ctx, LeaveSlop::Half)?;
    check_below(&dir, to)?;
    if is_moved {
        let phys = dir.phys();
        limits::check_transfer(old_parent, &parent, phys.used.max(phys.reserved))?;
        counts::check_move(ctx, &dir, &parent)?;
    }

    let m = ctx.m();
    unhook(m, old_parent.id(), dir.component())?;
    hook(m, parent.id(), component, dir.id())?;
    if is_moved {
        let phys = m.dir(dir.id())?;
        charge_move(m, &phys, old_parent.id(), parent.id())?;
        counts::transfer(m, old_parent.id(), parent.id(), dir.id())?;
        m.change_dir(dir.id(), |phys| phys.parent = Some(parent.id()))?;
    }
    ctx.heads.names_or_limits_changed();
    ctx.note("rename", Some((from, head.id())), format!("-> {to}"));
    Ok(())
}

fn child_map(m: MosTx<'_>, dir: ObjectId) -> Result<ObjectId, DslError> {
    let missing = || DslError::Mismatch { what: "child map", object: dir, found: 0, expected: 1 };
    m.dir(dir)?.children.ok_or_else(missing)
}

fn unhook(m: MosTx<'_>, parent: ObjectId, component: &str) -> Result<(), DslError> {
    Ok(m.zap(child_map(m, parent)?)?.remove(component.as_bytes())?)
}

fn hook(m: MosTx<'_>, parent: ObjectId, component: &str, dir: ObjectId) -> Result<(), DslError> {
    Ok(m.zap(child_map(m, parent)?)?.insert(component.as_bytes(), dir.0)?)
}

/// Moves the charge of a directory from one parent to another. The sums of common ancestors stay the same.
fn charge_move(m: MosTx<'_>, dir: &DirPhys, from: ObjectId, to: ObjectId) -> Result<(), DslError> {
    let reserved = difference(dir.used.max(dir.reserved), dir.used);
    let (child, compressed) = (difference(dir.used, 0), difference(dir.compressed, 0));
    let uncompressed = difference(dir.uncompressed, 0);
    let gained =
        DirDelta { child, child_reservation: reserved, compressed, uncompressed, ..DirDelta::default() };
    let lost = DirDelta {
        child: -child,
        child_reservation: -reserved,
        compressed: -compressed,
        uncompressed: -uncompressed,
        ..DirDelta::default()
    };
    charge::apply(m, from, lost)?;
    charge::apply(m, to, gained)
}

/// Renames a snapshot (`pool/a@old`) within its dataset; `recursive`: also the snapshots of that name of all
/// datasets below. `new` is the part behind the `@`.
///
/// # Errors
/// [`DslError::BadName`], or [`DslError::Exists`] if the new name is taken in one of the datasets: no
/// snapshot is renamed then.
pub fn rename_snapshot(
    ctx: &mut TaskCtx<'_>,
    from: &str,
    new: &str,
    recursive: bool,
) -> Result<(), DslError> {
    let Name { dir, tail: Tail::Snapshot(old) } = Name::parse(from)? else {
        return Err(DslError::WrongKind { name: from.to_owned(), why: "not a snapshot" });
    };
    let dsl = ctx.dsl()?;
    dsl.dataset(from)?;
    let mut renames = Vec::new();
    let mut stack = vec![dsl.dir(dir)?];
    while let Some(at) = stack.pop() {
        if recursive {
            stack.extend(at.children()?);
        }
        let Some(head) = at.head()? else { continue };
        let Some(snapshot) = head.snapshot(old)? else { continue };
        let new_name = format!("{}@{new}", at.name());
        let Name { tail: Tail::Snapshot(_), .. } = name::check_new(&new_name)? else {
            let why = "not a name of a snapshot";
            return Err(DslError::BadName { name: new_name, why });
        };
        if head.snapshot(new)?.is_some() {
            return Err(DslError::Exists { name: new_name });
        }
        let map = head.phys().snapshot_names.ok_or_else(|| DslError::not_found(from))?;
        renames.push((map, snapshot.id(), snapshot.name().to_owned()));
    }
    for (map, id, name) in renames {
        ctx.m().zap(map)?.rename(old.as_bytes(), new.as_bytes())?;
        ctx.note("rename", Some((&name, id)), format!("-> @{new}"));
    }
    Ok(())
}
