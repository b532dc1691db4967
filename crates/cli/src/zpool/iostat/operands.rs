//! `[[pool ...]|[pool vdev ...]|[vdev ...]] [interval [count]]`.

use crate::stop::Stop;
use crate::vdevs::Names;
use admin::{Vdev, Vdevs};

/// Numbers from here on are guids of vdevs, not seconds.
const GUID_MIN: f64 = 4_294_967_296.0;

/// Names and times.
#[derive(Debug, PartialEq)]
pub(super) struct Operands {
    pub(super) names: Vec<String>,
    pub(super) interval: Option<f64>,
    pub(super) count: Option<u64>,
}

/// What is to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Pools.
    Pools,
    /// These vdevs, by whatever name.
    Vdevs(Vec<String>),
}

/// Splits trailing numbers from names.
pub(super) fn split(words: &[String]) -> Result<Operands, Stop> {
    let mut names = words.to_vec();
    let last_number = |names: &mut Vec<String>| {
        let is_time = |n: &f64| n.is_finite() && *n >= 0.0 && *n < GUID_MIN;
        let number: f64 = names.last()?.parse().ok().filter(is_time)?;
        names.pop();
        Some(number)
    };
    let last = last_number(&mut names);
    let before = if last.is_some() { last_number(&mut names) } else { None };
    if last == Some(0.0) || before == Some(0.0) {
        return Err(Stop::usage("interval cannot be zero"));
    }
    let (interval, count) = match (before, last) {
        // A part of a report is none, but one is printed.
        (Some(interval), Some(count)) => (Some(interval), Some((count as u64).max(1))),
        (_, interval) => (interval, None),
    };
    Ok(Operands { names, interval, count })
}

/// Which pools are looked at (none: all), and what is shown of them.
pub(super) fn understand(names: &[String], pools: &[(String, Vdevs)]) -> Result<(Vec<String>, Wanted), Stop> {
    let is_pool = |name: &String| pools.iter().any(|(pool, _)| pool == name);
    let Some((first, rest)) = names.split_first() else { return Ok((Vec::new(), Wanted::Pools)) };
    if names.iter().all(is_pool) {
        return Ok((names.to_vec(), Wanted::Pools));
    }
    let is_in = |vdevs: &Vdevs, name: &str| vdevs_of(vdevs).any(|vdev| is_below(vdev, name));
    if names.iter().all(|name| pools.iter().any(|(_, vdevs)| is_in(vdevs, name))) {
        return Ok((Vec::new(), Wanted::Vdevs(names.to_vec())));
    }
    let Some((pool, vdevs)) = pools.iter().find(|(pool, _)| pool == first) else {
        return Err(Stop::failed("Unable to parse pools/vdevs list.\n"));
    };
    if rest.iter().all(|name| is_in(vdevs, name)) {
        return Ok((vec![pool.clone()], Wanted::Vdevs(rest.to_vec())));
    }
    let mut text = format!("Expected either a list of pools, or list of vdevs in \"{pool}\", but got:\n");
    for name in rest {
        let what = match () {
            () if is_in(vdevs, name) => "vdev in this pool",
            () if is_pool(name) => "pool",
            () => "unknown",
        };
        text.push_str(&format!("\t{name} ({what})\n"));
    }
    text.push('\n');
    say_error!("{}", lines(&text));
    Err(Stop::usage(""))
}

/// A message of several lines, each made safe.
fn lines(text: &str) -> String {
    text.split_inclusive('\n')
        .map(|line| crate::out::message_line(line.trim_end_matches('\n')) + "\n")
        .collect()
}

fn vdevs_of(vdevs: &Vdevs) -> impl Iterator<Item = &Vdev> {
    vdevs.root.children.iter().chain(&vdevs.cache)
}

fn is_below(vdev: &Vdev, name: &str) -> bool {
    is_called(vdev, name) || vdev.children.iter().any(|child| is_below(child, name))
}

/// Whether this is one of the names of a vdev: as shown, its path or its guid.
pub(super) fn is_called(vdev: &Vdev, name: &str) -> bool {
    let plain = Names::default();
    vdev.kind != "hole"
        && (plain.of(vdev) == name
            || vdev.path.as_deref() == Some(name)
            || Names { path: true, ..plain }.of(vdev) == name
            || vdev.guid.to_string() == name)
}
