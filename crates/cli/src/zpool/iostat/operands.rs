//! `[[pool ...]|[pool vdev ...]|[vdev ...]] [interval [count]]`.

use crate::stop::Stop;

/// Numbers from here on are guids of vdevs, not seconds.
const GUID_MIN: f64 = 4_294_967_296.0;

/// Names and times.
#[derive(Debug, PartialEq)]
pub(super) struct Operands {
    pub(super) names: Vec<String>,
    pub(super) interval: Option<f64>,
    pub(super) count: Option<u64>,
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
