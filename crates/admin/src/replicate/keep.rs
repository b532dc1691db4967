//! Retention: which snapshots a rule keeps. Pure: names, times and a rule in, a choice out.
//!
//! # What always holds
//! - The newest snapshot is kept, whatever the rule says.
//! - Of several snapshots in one period the oldest is kept, so what is kept does not change as new ones come.
//! - Periods of the calendar are those of UTC, so that both sides of a policy agree.

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// Longest list of intervals in a grid.
const GRID_MAX: usize = 64;

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Keep {
    /// Every snapshot is kept.
    #[default]
    All,
    /// So many periods of the calendar.
    Counts(Counts),
    /// Intervals of the past, counted back from the newest snapshot.
    Grid(Vec<Interval>),
}

/// The number of periods of which one snapshot each is kept. Only periods that have a snapshot count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Counts {
    /// The newest snapshots, whatever their age.
    pub last: u64,
    /// Hours.
    pub hourly: u64,
    /// Days.
    pub daily: u64,
    /// Weeks, which begin on Mondays.
    pub weekly: u64,
    /// Months.
    pub monthly: u64,
    /// Years.
    pub yearly: u64,
}

/// A part of a grid: `24x1h(keep=1)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// How many intervals follow each other.
    pub times: u32,
    /// Length of each in seconds.
    pub seconds: u64,
    /// How many snapshots each keeps, the oldest first; `None`: all.
    pub keep: Option<u32>,
}

/// A snapshot as retention sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taken {
    /// Time of its creation in seconds since 1970.
    pub creation: u64,
    /// Its guid.
    pub guid: u64,
}

/// Why a text is no grid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{part}' is not a part of a grid such as '1x1h(keep=all) | 24x1h | 30x1d'")]
pub struct GridError {
    /// The part that is wrong.
    pub part: String,
}

impl Keep {
    /// The guids of the snapshots that the rule keeps.
    pub fn kept(&self, snapshots: &[Taken]) -> BTreeSet<u64> {
        let mut sorted = snapshots.to_vec();
        sorted.sort_unstable();
        let newest = sorted.last().map(|taken| taken.guid);
        let mut kept: BTreeSet<u64> = match self {
            Keep::All => sorted.iter().map(|taken| taken.guid).collect(),
            Keep::Counts(counts) => counts.kept(&sorted),
            Keep::Grid(grid) => kept_by_grid(grid, &sorted),
        };
        kept.extend(newest);
        kept
    }
}

impl Counts {
    fn kept(&self, sorted: &[Taken]) -> BTreeSet<u64> {
        let mut kept = BTreeSet::new();
        let last = usize::try_from(self.last).unwrap_or(usize::MAX);
        kept.extend(sorted.iter().rev().take(last).map(|taken| taken.guid));
        let rules: [(u64, Period); 5] = [
            (self.hourly, |time| time / HOUR),
            (self.daily, |time| time / DAY),
            // 1970 began on a Thursday.
            (self.weekly, |time| (time / DAY).saturating_add(3) / 7),
            (self.monthly, |time| month_of(time / DAY)),
            (self.yearly, |time| month_of(time / DAY) / 12),
        ];
        for (count, period) in rules {
            kept.extend(firsts(sorted, count, period));
        }
        kept
    }
}

/// The number of the period in which a time is.
type Period = fn(u64) -> u64;

/// The oldest snapshot of each of the newest `count` periods that have one.
fn firsts(sorted: &[Taken], count: u64, period: Period) -> Vec<u64> {
    let mut firsts: Vec<(u64, u64)> = Vec::new();
    for taken in sorted {
        let number = period(taken.creation);
        if firsts.last().is_none_or(|(last, _)| *last != number) {
            firsts.push((number, taken.guid));
        }
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    firsts.iter().rev().take(count).map(|(_, guid)| *guid).collect()
}

/// Number of the month, counted from year 0, of a day since 1970.
fn month_of(day: u64) -> u64 {
    let (year, month, _) = super::calendar::date(day as i64);
    year as u64 * 12 + month - 1
}

fn kept_by_grid(grid: &[Interval], sorted: &[Taken]) -> BTreeSet<u64> {
    let mut kept = BTreeSet::new();
    let Some(newest) = sorted.last().map(|taken| taken.creation) else { return kept };
    let mut start = 0u64;
    for part in grid {
        let length = part.seconds.saturating_mul(part.times.into());
        let end = start.saturating_add(length);
        let mut used: Option<(u64, u32)> = None;
        // Oldest first: each interval keeps the first that it meets.
        for taken in sorted {
            let age = newest - taken.creation;
            if age < start || age >= end {
                continue;
            }
            let number = (age - start) / part.seconds;
            let count = match used {
                Some((last, count)) if last == number => count,
                _ => 0,
            };
            if part.keep.is_none_or(|keep| count < keep) {
                kept.insert(taken.guid);
            }
            used = Some((number, count.saturating_add(1)));
        }
        start = end;
    }
    kept
}

/// A length of time: a number with `s`, `m`, `h`, `d` or `w`; in seconds. `None`: it is none, or zero.
pub fn seconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => HOUR,
        "d" => DAY,
        "w" => 7 * DAY,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).filter(|seconds| *seconds > 0)
}

impl FromStr for Keep {
    type Err = GridError;

    fn from_str(text: &str) -> Result<Keep, GridError> {
        if text.trim() == "all" {
            return Ok(Keep::All);
        }
        let parts: Vec<&str> = text.split('|').map(str::trim).collect();
        if parts.len() > GRID_MAX {
            return Err(GridError { part: text.to_owned() });
        }
        let read = |part: &&str| interval(part).ok_or_else(|| GridError { part: (*part).to_owned() });
        Ok(Keep::Grid(parts.iter().map(read).collect::<Result<_, _>>()?))
    }
}

fn interval(part: &str) -> Option<Interval> {
    let (range, keep) = match part.split_once('(') {
        None => (part, Some(1)),
        Some((range, rest)) => match rest.strip_suffix(')')?.trim().strip_prefix("keep=")?.trim() {
            "all" => (range, None),
            number => (range, Some(number.parse().ok()?)),
        },
    };
    let (times, length) = range.split_once('x')?;
    let times = times.trim().parse().ok().filter(|times| *times > 0)?;
    Some(Interval { times, seconds: seconds(length)?, keep })
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Keep::All => f.write_str("all"),
            Keep::Counts(counts) => {
                let Counts { last, hourly, daily, weekly, monthly, yearly } = counts;
                let names = ["last", "hourly", "daily", "weekly", "monthly", "yearly"];
                let counts = [last, hourly, daily, weekly, monthly, yearly];
                let told: Vec<String> = names
                    .iter()
                    .zip(counts)
                    .filter(|(_, count)| **count > 0)
                    .map(|(name, count)| format!("{name}={count}"))
                    .collect();
                f.write_str(if told.is_empty() { "the newest" } else { "" })?;
                f.write_str(&told.join(" "))
            }
            Keep::Grid(grid) => {
                for (i, part) in grid.iter().enumerate() {
                    f.write_str(if i > 0 { " | " } else { "" })?;
                    write!(f, "{}x{}s", part.times, part.seconds)?;
                    match part.keep {
                        None => f.write_str("(keep=all)")?,
                        Some(1) => {}
                        Some(keep) => write!(f, "(keep={keep})")?,
                    }
                }
                Ok(())
            }
        }
    }
}

impl Serialize for Keep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Keep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Keep, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Keep;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"all\", a grid, or a table of counts")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Keep, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Keep, A::Error> {
                Counts::deserialize(de::value::MapAccessDeserializer::new(map)).map(Keep::Counts)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Snapshots at these times, whose guids are their numbers from 1.
    fn taken(times: &[u64]) -> Vec<Taken> {
        let numbered = times.iter().zip(1..);
        numbered.map(|(creation, guid)| Taken { creation: *creation, guid }).collect()
    }

    fn kept(rule: &Keep, times: &[u64]) -> Vec<u64> {
        rule.kept(&taken(times)).into_iter().collect()
    }

    #[test]
    fn counts_keep_the_first_of_each_period() {
        let quarter = |n: u64| 1_000_000 * HOUR + n * HOUR / 4;
        let times: Vec<u64> = (0..12).map(quarter).collect();
        let hourly = |hourly| Keep::Counts(Counts { hourly, ..Counts::default() });
        assert_eq!(kept(&hourly(2), &times), [5, 9, 12]);
        assert_eq!(kept(&hourly(9), &times), [1, 5, 9, 12]);
        assert_eq!(kept(&hourly(0), &times), [12]);
        let last = Keep::Counts(Counts { last: 3, ..Counts::default() });
        assert_eq!(kept(&last, &times), [10, 11, 12]);
        assert!(kept(&last, &[]).is_empty());
    }

    #[test]
    fn what_is_kept_does_not_depend_on_how_often_it_is_asked() {
        // A year of snapshots every six hours, pruned after each, keeps what pruning once keeps.
        let rule = Keep::Counts(Counts { hourly: 8, daily: 7, weekly: 4, monthly: 12, ..Counts::default() });
        let all = taken(&(0..1460).map(|n| 1_700_000_000 + n * 6 * HOUR).collect::<Vec<_>>());
        let mut left: Vec<Taken> = Vec::new();
        for new in &all {
            left.push(*new);
            let kept = rule.kept(&left);
            left.retain(|taken| kept.contains(&taken.guid));
        }
        let once = rule.kept(&all);
        let stepwise: BTreeSet<u64> = left.iter().map(|taken| taken.guid).collect();
        assert_eq!(stepwise, once);
    }

    #[test]
    fn weeks_months_and_years_are_those_of_the_calendar() {
        // 2024-02-29, 2024-03-01, 2024-03-03 (Sunday), 2024-03-04 (Monday), 2025-01-01.
        let days = [19_782, 19_783, 19_785, 19_786, 20_089].map(|day| day * DAY);
        let rule = |counts| Keep::Counts(counts);
        assert_eq!(kept(&rule(Counts { monthly: 9, ..Counts::default() }), &days), [1, 2, 5]);
        assert_eq!(kept(&rule(Counts { weekly: 9, ..Counts::default() }), &days), [1, 4, 5]);
        assert_eq!(kept(&rule(Counts { yearly: 9, ..Counts::default() }), &days), [1, 5]);
    }

    #[test]
    fn a_grid_counts_back_from_the_newest() {
        let rule: Keep = "1x1h(keep=all) | 2x1h | 1x1d(keep=2)".parse().expect("a grid");
        let ago = |minutes: u64| 1_700_000_000 - minutes * 60;
        // Newest first: 0 and 59 are in the hour in which all are kept; of 61 and 119 the older; 181 and older: two.
        let times = [ago(1000), ago(900), ago(181), ago(170), ago(119), ago(61), ago(59), ago(0)];
        assert_eq!(kept(&rule, &times), [1, 2, 4, 5, 7, 8]);
        assert_eq!(kept(&rule, &[ago(100_000), ago(0)]), [2]);
    }

    #[test]
    fn what_is_no_grid_is_refused() {
        for text in [
            "",
            "1x",
            "x1h",
            "0x1h",
            "1x0h",
            "1x1y",
            "1x1h(keep=)",
            "1x1h(keep=all",
            "1x1h | ",
            "99999999999x1h",
        ] {
            assert!(text.parse::<Keep>().is_err(), "{text}");
        }
        assert_eq!("all".parse(), Ok(Keep::All));
        assert_eq!(seconds("18446744073709551615w"), None);
        let grid: Keep = "4294967295x99999999999w".parse().expect("long, and harmless");
        assert_eq!(kept(&grid, &[1, 2]), [1, 2]);
    }
}
