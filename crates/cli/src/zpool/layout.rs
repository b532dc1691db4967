//! The vdevs that a command asks for, as `-n` shows them.

use crate::out::Out;
use crate::vdevs::{GROUPS, Names, tops};
use admin::change::{DeviceName, LayoutClass, LayoutKind, LayoutTop, PoolLayout};
use admin::{Class, Vdev, Vdevs};
use std::fmt::Write as _;

/// The layout of a new pool.
pub(super) fn new_pool(name: &str, layout: &PoolLayout, out: &Out) -> String {
    let mut text = format!("would create '{name}' with the following layout:\n\n");
    tree(name, layout, None, Names::default(), out, &mut text);
    text
}

/// A pool with what would be added.
pub(super) fn larger_pool(name: &str, layout: &PoolLayout, pool: &Vdevs, names: Names, out: &Out) -> String {
    let mut text = format!("would update '{name}' to the following configuration:\n\n");
    tree(name, layout, Some(pool), names, out, &mut text);
    text
}

fn tree(name: &str, layout: &PoolLayout, pool: Option<&Vdevs>, names: Names, out: &Out, text: &mut String) {
    let _ = writeln!(text, "\t{}", out.cell(name));
    group(layout, pool, Class::Normal, LayoutClass::Normal, names, out, text);
    for (class, heading) in GROUPS {
        let new = match class {
            Class::Dedup => LayoutClass::Dedup,
            Class::Special => LayoutClass::Special,
            _ => LayoutClass::Log,
        };
        let mut below = String::new();
        group(layout, pool, class, new, names, out, &mut below);
        if !below.is_empty() {
            let _ = write!(text, "\t{heading}\n{below}");
        }
    }
    let cache = pool.map_or(&[][..], |pool| &pool.cache);
    let spares = pool.map_or(&[][..], |pool| &pool.spares);
    for (heading, old, new) in [("cache", cache, &layout.cache), ("spares", spares, &layout.spares)] {
        if !old.is_empty() || !new.is_empty() {
            let _ = writeln!(text, "\t{heading}");
            old.iter().for_each(|vdev| existing(vdev, 1, names, out, text));
            new.iter().for_each(|device| line(&device_name(device, names), 1, out, text));
        }
    }
}

/// The vdevs of one class: those that the pool has, then the new ones.
fn group(
    layout: &PoolLayout,
    pool: Option<&Vdevs>,
    old: Class,
    new: LayoutClass,
    names: Names,
    out: &Out,
    text: &mut String,
) {
    if let Some(pool) = pool {
        for vdev in tops(&pool.root, old).filter(|vdev| vdev.kind != "indirect") {
            // Groups of the other classes go without their numbers.
            if old != Class::Normal && vdev.path.is_none() && !names.guid {
                line(names.of(vdev).rsplit_once('-').map_or("", |(kind, _)| kind), 1, out, text);
                vdev.children.iter().for_each(|child| existing(child, 2, names, out, text));
            } else {
                existing(vdev, 1, names, out, text);
            }
        }
    }
    for top in layout.tops.iter().filter(|top| top.class == new) {
        added(top, names, out, text);
    }
}

fn existing(vdev: &Vdev, depth: usize, names: Names, out: &Out, text: &mut String) {
    line(&names.of(vdev), depth, out, text);
    vdev.children.iter().for_each(|child| existing(child, depth + 1, names, out, text));
}

fn added(top: &LayoutTop, names: Names, out: &Out, text: &mut String) {
    let depth = match top.kind {
        LayoutKind::Single => 1,
        LayoutKind::Mirror => {
            line("mirror", 1, out, text);
            2
        }
        LayoutKind::Raidz(parity) => {
            line(&format!("raidz{parity}"), 1, out, text);
            2
        }
    };
    top.leaves.iter().for_each(|leaf| line(&device_name(leaf, names), depth, out, text));
}

/// New devices have no guid yet, so `-g` names them by their paths too.
fn device_name(device: &DeviceName, names: Names) -> String {
    let path = if names.follow { std::fs::canonicalize(&device.path).ok() } else { None };
    let path = path.unwrap_or_else(|| device.path.clone());
    let text = path.to_string_lossy().into_owned();
    match text.strip_prefix("/dev/").filter(|_| device.is_disk && !names.path) {
        Some(short) => short.rsplit('/').next().unwrap_or(short).to_owned(),
        None => text,
    }
}

fn line(name: &str, depth: usize, out: &Out, text: &mut String) {
    let _ = writeln!(text, "\t{}{}", "  ".repeat(depth), out.cell(name));
}
