//! Properties of a vdev, as `zpool get` shows them.

use super::tree::interior_name;
use super::{AdminError, OpenPool, Property, Source, Value, Vdev};
use cenote::Error;
use dmu::zap::{Zap, ZapEntry};
use format::config::VdevNode;
use format::prop::{self, Class, Fallback, Kind};
use format::{ObjectId, VdevGuid};
use vdev::tree::VdevStatus;

fn failed(error: impl Into<Error>) -> AdminError {
    AdminError::from(error.into())
}

/// Names of the properties that `zpool get all POOL VDEV` shows, in its order.
///
/// # Errors
/// [`AdminError::Cenote`] if the vdev's ZAP cannot be read.
pub(crate) fn vdev_property_names(pool: &OpenPool, vdev: &Vdev) -> Result<Vec<String>, AdminError> {
    let mut names: Vec<String> = Vec::new();
    for known in prop::VDEV.iter().filter(|p| p.visible && p.name != "name") {
        if vdev_property(pool, vdev, known.name)?.is_some() {
            names.push(known.name.to_owned());
        }
    }
    let mut user = Vec::new();
    if let Some(zap) = zap_of(pool, vdev)? {
        for entry in zap.entries() {
            let entry = entry.map_err(failed)?;
            let name = String::from_utf8_lossy(entry.name()).into_owned();
            // Keys of the implementation contain a colon, as user properties do; they begin with the name of a
            // known vendor.
            let internal =
                ["com.delphix:", "org.zfsonlinux:", "org.openzfs:", "com.klarasystems:", "com.fudosecurity:"];
            if prop::is_user(&name) && !internal.iter().any(|p| name.starts_with(p)) {
                user.push(name);
            }
        }
    }
    user.sort();
    names.extend(user);
    Ok(names)
}

/// A property of a vdev; `None` if it has no property of this name.
///
/// # Errors
/// [`AdminError::Cenote`] if the vdev's ZAP cannot be read.
pub(crate) fn vdev_property(
    pool: &OpenPool,
    vdev: &Vdev,
    name: &str,
) -> Result<Option<Property>, AdminError> {
    if prop::is_user(name) {
        let text = entry(pool, vdev, name)?.and_then(|e| e.string());
        return Ok(text.map(|t| Property::local(String::from_utf8_lossy(&t).into_owned())));
    }
    let Some(known) = prop::vdev(name) else { return Ok(None) };
    if let Some(value) = computed(pool, vdev, known.name)? {
        let default = value == Value::Absent && matches!(known.kind, Kind::Text);
        let source = if default || known.name == "bootsize" { Source::Default } else { Source::None };
        return Ok(Some(Property { value, source, received: None }));
    }
    if known.class == Class::ReadOnly {
        return Ok(None);
    }
    let found = entry(pool, vdev, known.name)?.and_then(|e| match known.kind {
        Kind::Text => e.string().map(|t| Value::Text(String::from_utf8_lossy(&t).into_owned())),
        Kind::Number | Kind::Index => e.u64().map(Value::Number),
    });
    let default = match known.fallback {
        Fallback::None => Value::Absent,
        Fallback::Number(number) => Value::Number(number),
        Fallback::Text("") => Value::Absent,
        Fallback::Text(text) => Value::Text(text.to_owned()),
    };
    Ok(Some(match found {
        // A stored number equal to the default cannot be told from the default.
        Some(value @ Value::Number(_)) if value == default => Property::default(value),
        Some(value) => Property::local(value),
        None => Property::default(default),
    }))
}

fn computed(pool: &OpenPool, vdev: &Vdev, name: &str) -> Result<Option<Value>, AdminError> {
    let text = |t: &Option<String>| t.clone().map_or(Value::Absent, Value::Text);
    let top = vdev.space > 0;
    let leaf = vdev.is_leaf();
    let number = |n: u64| Value::Number(n);
    Ok(Some(match name {
        "name" => Value::Text(name_of(vdev)),
        "capacity" => number(if top { vdev.alloc * 100 / vdev.space.max(1) } else { 0 }),
        "state" => number(vdev.health.number()),
        "guid" => number(vdev.guid),
        "asize" => number(if leaf { vdev.psize.saturating_sub(LABELS) } else { vdev.asize }),
        "psize" => number(vdev.psize),
        "ashift" => number(if vdev.ashift == 0 { inherited_ashift(pool, vdev) } else { vdev.ashift }),
        "size" => number(vdev.space),
        "free" => number(vdev.space.saturating_sub(vdev.alloc)),
        "allocated" => number(vdev.alloc),
        "expandsize" => number(vdev.expandsize),
        "fragmentation" => number(0),
        "bootsize" => number(0),
        "parity" => number(vdev.nparity),
        "path" => text(&vdev.path),
        "devid" => text(&vdev.devid),
        "physpath" => text(&vdev.phys_path),
        "encpath" | "fru" => Value::Absent,
        "parent" => parent(pool, vdev).map_or(Value::Absent, Value::Text),
        "children" if vdev.children.is_empty() => Value::Absent,
        "children" => Value::Text(vdev.children.iter().map(name_of).collect::<Vec<_>>().join(",")),
        "numchildren" => number(vdev.children.len() as u64),
        "read_errors" => number(vdev.read_errors),
        "write_errors" => number(vdev.write_errors),
        "checksum_errors" => number(vdev.checksum_errors),
        // Operations that a command in process has not done since its import: their counters are 0.
        "initialize_errors" | "trim_errors" | "null_ops" | "write_ops" | "free_ops" | "claim_ops"
        | "trim_ops" | "null_bytes" | "write_bytes" | "free_bytes" | "claim_bytes" | "trim_bytes" => {
            number(0)
        }
        "read_ops" => number(counters(pool, vdev).0),
        "read_bytes" => number(counters(pool, vdev).1),
        "removing" => number(u64::from(vdev.removing)),
        "raidz_expanding" if vdev.kind == "raidz" => number(u64::from(vdev.expanding)),
        "allocating" if !top => number(2),
        "trim_support" if leaf => number(u64::from(vdev.kind == "file")),
        "trim_support" => Value::Absent,
        "slow_ios" => number(vdev.slow_ios),
        _ => return Ok(None),
    }))
}

const LABELS: u64 = format::units::LABEL_START + format::units::LABEL_END;

fn name_of(vdev: &Vdev) -> String {
    vdev.pool_name
        .clone()
        .or_else(|| interior_name(vdev))
        .or_else(|| vdev.path.clone())
        .unwrap_or_else(|| vdev.guid.to_string())
}

/// Number and bytes of the reads of a vdev and its descendants.
fn counters(pool: &OpenPool, vdev: &Vdev) -> (u64, u64) {
    let status = pool.pool.spa().tree().status();
    let found = if vdev.pool_name.is_some() { Some(&status) } else { status.find(VdevGuid(vdev.guid)) };
    let all = found.map(VdevStatus::walk).unwrap_or_default();
    all.iter().fold((0, 0), |(ops, bytes), v| (ops + v.reads, bytes + v.read_bytes))
}

/// The configuration nodes of a vdev, of its parent, and of its top-level vdev.
fn nodes<'a>(pool: &'a OpenPool, vdev: &Vdev) -> Option<(&'a VdevNode, Option<&'a VdevNode>, &'a VdevNode)> {
    fn search(at: &VdevNode, guid: u64) -> Option<(&VdevNode, Option<&VdevNode>)> {
        if at.guid.0 == guid {
            return Some((at, None));
        }
        at.children.iter().find_map(|child| match search(child, guid) {
            Some((found, None)) => Some((found, Some(at))),
            other => other,
        })
    }
    let root = pool.pool.spa().tree().config();
    root.children.iter().find_map(|top| search(top, vdev.guid).map(|(node, parent)| (node, parent, top)))
}

fn inherited_ashift(pool: &OpenPool, vdev: &Vdev) -> u64 {
    nodes(pool, vdev).and_then(|(_, _, top)| top.ashift).map_or(0, |a| u64::from(a.0))
}

fn parent(pool: &OpenPool, vdev: &Vdev) -> Option<String> {
    let (_, parent, _) = nodes(pool, vdev)?;
    match parent {
        None => Some(pool.name.clone()),
        Some(node) => {
            let status = pool.pool.spa().tree().status();
            let status = status.find(node.guid)?;
            Some(name_of(&super::tree::plain(status, node, vdev.class)))
        }
    }
}

/// The ZAP with the vdev's properties.
fn zap_of(pool: &OpenPool, vdev: &Vdev) -> Result<Option<Zap>, AdminError> {
    let id = if vdev.pool_name.is_some() {
        pool.pool.spa().tree().config().zap_root
    } else {
        match nodes(pool, vdev) {
            // A leaf at top level has two ZAPs; its properties are in that of the top-level vdev.
            Some((node, ..)) if node.zap_top != ObjectId(0) => node.zap_top,
            Some((node, ..)) => node.zap_leaf,
            None => ObjectId(0),
        }
    };
    if id == ObjectId(0) {
        return Ok(None);
    }
    Ok(Some(Zap::open(&pool.pool.spa().mos().object(id).map_err(failed)?).map_err(failed)?))
}

fn entry(pool: &OpenPool, vdev: &Vdev, name: &str) -> Result<Option<ZapEntry>, AdminError> {
    match zap_of(pool, vdev)? {
        Some(zap) => zap.lookup(name.as_bytes()).map_err(failed),
        None => Ok(None),
    }
}
