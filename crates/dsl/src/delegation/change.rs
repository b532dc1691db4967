//! Granting and revoking delegated permissions (docs/on-disk/22-mos-dsl.md, section 8;
//! docs/on-disk/33-cli.md, section 8).
//!
//! # What always holds
//! - No holder has an empty list, and no directory an empty map: both are freed with their last entry.

use crate::delegation::{Scope, Who};
use crate::error::DslError;
use crate::mos;
use crate::mos_tx::MosTx;
use crate::name::DEPTH_LIMIT;
use format::prop::PER_OWNER;
use format::{ObjType, ObjectId, prop};

/// Longest name of a permission set in bytes, its NUL included.
const SET_LIMIT: usize = 64;

/// Permissions other than names of properties.
const PERMISSIONS: [&str; 40] = [
    "allow",
    "bookmark",
    "change-key",
    "clone",
    "create",
    "destroy",
    "diff",
    "groupobjquota",
    "groupobjused",
    "groupquota",
    "groupused",
    "hold",
    "load-key",
    "mount",
    "projectobjquota",
    "projectobjused",
    "projectquota",
    "projectused",
    "promote",
    "receive",
    "release",
    "rename",
    "rollback",
    "send",
    "share",
    "snapshot",
    "userobjquota",
    "userobjused",
    "userprop",
    "userquota",
    "userused",
    "defaultgroupobjquota",
    "defaultgroupquota",
    "defaultprojectobjquota",
    "defaultprojectquota",
    "defaultuserobjquota",
    "defaultuserquota",
    "send:raw",
    "receive:append",
    "rewrite",
];

/// Whether this is a name that can be delegated: a permission, or `@` and the name of a set.
pub(crate) fn is_permission(name: &str) -> bool {
    if let Some(set) = name.strip_prefix('@') {
        return is_set_name(set);
    }
    let settable = |prop: &prop::Prop| prop.class != prop::Class::ReadOnly;
    PERMISSIONS.contains(&name)
        || prop::DATASET.iter().any(|p| p.name == name && settable(p))
        || PER_OWNER.iter().any(|prefix| prefix.trim_end_matches('@') == name)
}

fn is_set_name(set: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"-_.: ".contains(&b);
    !set.is_empty() && set.len() + 1 < SET_LIMIT && set.bytes().all(legal)
}

/// Key of an entry: its holder, its scope, and whether it names sets.
pub fn key(who: &Who, scope: Scope, sets: bool) -> String {
    let (kind, id) = match who {
        Who::Set(name) => ('s', name.clone()),
        Who::CreateTime => ('c', String::new()),
        Who::User(id) => ('u', id.to_string()),
        Who::Group(id) => ('g', id.to_string()),
        Who::Everyone => ('e', String::new()),
    };
    let kind = if sets { kind.to_ascii_uppercase() } else { kind };
    let scope = match scope {
        Scope::Local => 'l',
        Scope::Descendent => 'd',
        Scope::NotApplicable => '-',
    };
    format!("{kind}{scope}${id}")
}

/// The permission map of a directory; created if there is none.
fn map_of(m: MosTx<'_>, dir: ObjectId) -> Result<ObjectId, DslError> {
    if let Some(map) = m.dir(dir)?.delegation {
        return Ok(map);
    }
    let map = m.create_plain_zap(ObjType::DSL_PERMS)?;
    m.change_dir(dir, |phys| phys.delegation = Some(map))?;
    Ok(map)
}

/// Grants permissions at a directory. Names of sets begin with `@`.
///
/// # Errors
/// [`DslError::BadPermission`]; or an object of the MOS cannot be read or changed.
pub fn allow(
    m: MosTx<'_>,
    dir: ObjectId,
    who: &Who,
    scope: Scope,
    permissions: &[&str],
) -> Result<(), DslError> {
    check(who, permissions)?;
    for sets in [false, true] {
        let names: Vec<&str> =
            permissions.iter().copied().filter(|name| name.starts_with('@') == sets).collect();
        if !names.is_empty() {
            grant(m, map_of(m, dir)?, &key(who, scope, sets), &names)?;
        }
    }
    Ok(())
}

/// Checks that these permissions exist, and that the names of sets are valid.
///
/// # Errors
/// [`DslError::BadPermission`].
pub fn check(who: &Who, permissions: &[&str]) -> Result<(), DslError> {
    if let Who::Set(name) = who
        && !name.strip_prefix('@').is_some_and(is_set_name)
    {
        return Err(DslError::BadPermission { name: name.clone() });
    }
    match permissions.iter().find(|p| !is_permission(p)) {
        Some(name) => Err(DslError::BadPermission { name: (*name).to_owned() }),
        None => Ok(()),
    }
}

fn grant(m: MosTx<'_>, map: ObjectId, key: &str, permissions: &[&str]) -> Result<(), DslError> {
    let zap = m.zap(map)?;
    let list = match zap.lookup(key.as_bytes())? {
        Some(entry) => ObjectId(mos::number(map, &entry)?),
        None => {
            let list = m.create_plain_zap(ObjType::DSL_PERMS)?;
            zap.insert(key.as_bytes(), list.0)?;
            list
        }
    };
    let list = m.zap(list)?;
    for permission in permissions {
        list.upsert(permission.as_bytes(), 0)?;
    }
    Ok(())
}

/// Revokes permissions at a directory; without names, all that the holder has there. Permissions that were
/// not granted are ignored.
///
/// # Errors
/// [`DslError::BadPermission`]; or an object of the MOS cannot be read or changed.
pub fn unallow(
    m: MosTx<'_>,
    dir: ObjectId,
    who: &Who,
    scope: Scope,
    permissions: Option<&[&str]>,
) -> Result<(), DslError> {
    check(who, permissions.unwrap_or_default())?;
    let Some(map) = m.dir(dir)?.delegation else { return Ok(()) };
    for sets in [false, true] {
        let key = key(who, scope, sets);
        let Some(entry) = m.zap(map)?.lookup(key.as_bytes())? else { continue };
        let id = ObjectId(mos::number(map, &entry)?);
        let list = m.zap(id)?;
        for permission in permissions.unwrap_or_default() {
            list.remove_if_present(permission.as_bytes())?;
        }
        if permissions.is_none() || list.count()? == 0 {
            m.zap(map)?.remove(key.as_bytes())?;
            m.free(id)?;
        }
    }
    if m.zap(map)?.count()? == 0 {
        m.change_dir(dir, |phys| phys.delegation = None)?;
        m.free(map)?;
    }
    Ok(())
}

/// Frees the map of permissions of a directory that is being destroyed.
///
/// # Errors
/// If an object of the MOS cannot be read or changed: the txg must not end then.
pub(crate) fn free_all(m: MosTx<'_>, map: ObjectId) -> Result<(), DslError> {
    for entry in mos::zap(&m.view(), map)?.entries() {
        m.free(ObjectId(mos::number(map, &entry?)?))?;
    }
    m.free(map)
}

/// Grants the creator of `dir`, if known, the create-time permissions of the directories above.
pub(crate) fn inherit_create_time(
    m: MosTx<'_>,
    parent: ObjectId,
    dir: ObjectId,
    creator: Option<u32>,
) -> Result<(), DslError> {
    let Some(creator) = creator else { return Ok(()) };
    let mut above = Some(parent);
    for _ in 0..=DEPTH_LIMIT {
        let Some(at) = above else { return Ok(()) };
        let phys = m.dir(at)?;
        if let Some(map) = phys.delegation {
            for sets in [false, true] {
                inherit_entry(m, map, dir, creator, sets)?;
            }
        }
        above = phys.parent;
    }
    Err(DslError::Endless { what: "parents", object: dir, limit: DEPTH_LIMIT })
}

fn inherit_entry(
    m: MosTx<'_>,
    map: ObjectId,
    dir: ObjectId,
    creator: u32,
    sets: bool,
) -> Result<(), DslError> {
    let from = key(&Who::CreateTime, Scope::NotApplicable, sets);
    let Some(entry) = m.zap(map)?.lookup(from.as_bytes())? else { return Ok(()) };
    let list = ObjectId(mos::number(map, &entry)?);
    let mut names = Vec::new();
    for permission in mos::zap(&m.view(), list)?.entries() {
        names.push(String::from_utf8_lossy(permission?.name()).into_owned());
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let to = key(&Who::User(creator.into()), Scope::Local, sets);
    if names.is_empty() { Ok(()) } else { grant(m, map_of(m, dir)?, &to, &names) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delegation::parse_key;

    #[test]
    fn keys_are_what_reading_takes_apart() {
        let all = [
            (Who::User(1000), Scope::Local),
            (Who::Group(7), Scope::Descendent),
            (Who::Everyone, Scope::Descendent),
            (Who::CreateTime, Scope::NotApplicable),
            (Who::Set("@backup".into()), Scope::NotApplicable),
        ];
        for (who, scope) in all {
            for sets in [false, true] {
                assert_eq!(parse_key(key(&who, scope, sets).as_bytes()), Some((who.clone(), scope, sets)));
            }
        }
    }

    #[test]
    fn permissions_are_verbs_properties_and_sets() {
        for good in ["snapshot", "compression", "userquota", "@backup", "userprop"] {
            assert!(is_permission(good), "{good}");
        }
        for bad in ["", "@", "used", "nosuch", "@a/b"] {
            assert!(!is_permission(bad), "{bad}");
        }
    }
}
