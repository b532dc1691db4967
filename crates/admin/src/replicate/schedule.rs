//! Schedules: when a policy runs next. Pure.
//!
//! # What always holds
//! - A time in local terms (`cron`, windows) is computed with the offset from UTC that is in force now.
//! - A run that is overdue is due now, once, however many were missed.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

const MINUTE: u64 = 60;
const DAY: u64 = 86_400;
/// Time after which a run that has failed is tried again, unless the next one is due before, in seconds.
const RETRY: u64 = 600;
/// Days that are searched for a time that a cron line describes: February 29 comes after at most eight years.
const SEARCH_DAYS: u64 = 366 * 8 + 2;

/// The hours of the day at which a run may begin: `22:00-06:00`. Minutes since midnight, the end excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The first minute.
    pub start: u64,
    /// The minute after the last one; before `start`: of the next day.
    pub end: u64,
}

/// Five fields as in crontab(5): minute, hour, day of the month, month, day of the week (0 and 7: Sunday); each `*` or
/// a list of numbers and ranges, with steps. One bit each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    text: String,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both days are restricted: either may match.
    is_either_day: bool,
}

/// Why a text is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// Not two times of day.
    #[error("'{text}' is no window: HH:MM-HH:MM")]
    Window {
        /// The text.
        text: String,
    },
    /// Not five fields, or one that is no list of numbers in its range.
    #[error("'{text}' has no five fields: minute hour day month weekday")]
    Cron {
        /// The text.
        text: String,
    },
}

/// What is known of the runs of a policy, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Past {
    /// Begin of the last run.
    pub begun: Option<u64>,
    /// It has failed.
    pub has_failed: bool,
}

/// The time of the next run, in seconds since 1970; `None`: it has no schedule. `offset`: local time less UTC, in
/// seconds.
pub fn next_run(
    every: Option<u64>,
    cron: Option<&Cron>,
    window: Option<&Window>,
    past: Past,
    now: u64,
    offset: i64,
) -> Option<u64> {
    if every.is_none() && cron.is_none() {
        return None;
    }
    let planned = match past.begun {
        // A begin in the future: the clock was set back.
        Some(begun) if begun <= now => match (every, cron) {
            (Some(every), _) => begun.saturating_add(every),
            (None, Some(cron)) => cron.after(begun, offset)?,
            (None, None) => return None,
        },
        _ => match cron {
            Some(cron) => cron.after(now.saturating_sub(1), offset)?,
            None => now,
        },
    };
    let retry = past.begun.filter(|_| past.has_failed).map(|begun| begun.saturating_add(RETRY));
    let due = retry.map_or(planned, |retry| retry.min(planned)).max(now);
    Some(window.map_or(due, |window| window.first_from(due, offset)))
}

impl Window {
    /// Whether a run may begin at this time.
    pub fn contains(&self, time: u64, offset: i64) -> bool {
        let minute = local(time, offset) % DAY / MINUTE;
        match self.start <= self.end {
            true => self.start <= minute && minute < self.end,
            false => minute >= self.start || minute < self.end,
        }
    }

    /// The first time, from this one on, at which a run may begin.
    fn first_from(&self, time: u64, offset: i64) -> u64 {
        if self.contains(time, offset) {
            return time;
        }
        let since_midnight = local(time, offset) % DAY;
        let start = self.start * MINUTE;
        let wait =
            if start >= since_midnight { start - since_midnight } else { start + DAY - since_midnight };
        time.saturating_add(wait)
    }
}

fn local(time: u64, offset: i64) -> u64 {
    time.saturating_add_signed(offset)
}

impl Cron {
    /// The first minute after this time that matches; `None`: there is none (February 30).
    pub fn after(&self, time: u64, offset: i64) -> Option<u64> {
        let start = local(time, offset) / MINUTE + 1;
        let first_day = start * MINUTE / DAY;
        for day in first_day..first_day + SEARCH_DAYS {
            if !self.has_day(day) {
                continue;
            }
            let from = if day == first_day { start % (DAY / MINUTE) } else { 0 };
            let is_match = |minute: &u64| has(self.hours, minute / 60) && has(self.minutes, minute % 60);
            if let Some(minute) = (from..DAY / MINUTE).find(is_match) {
                return Some((day * DAY + minute * MINUTE).saturating_add_signed(-offset));
            }
        }
        None
    }

    fn has_day(&self, day: u64) -> bool {
        let (_, month, of_month) = super::calendar::date(day as i64);
        let weekday = (day + 4) % 7;
        let (by_month, by_week) = (has(self.days, of_month), has(self.weekdays, weekday));
        let is_day = if self.is_either_day { by_month || by_week } else { by_month && by_week };
        has(self.months, month) && is_day
    }
}

fn has(bits: u64, number: u64) -> bool {
    number < 64 && bits >> number & 1 == 1
}

/// The bits of one field, whose numbers are from `low` to `high`.
fn field(text: &str, low: u64, high: u64) -> Option<u64> {
    let mut bits = 0;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, step.parse::<u64>().ok().filter(|step| *step > 0)?),
            None => (part, 1),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (low, high),
            Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
            None => {
                let number: u64 = range.parse().ok()?;
                (number, if step > 1 { high } else { number })
            }
        };
        if first < low || last > high || first > last {
            return None;
        }
        let step = usize::try_from(step).ok()?;
        (first..=last).step_by(step).for_each(|number| bits |= 1 << number);
    }
    Some(bits)
}

impl FromStr for Cron {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Cron, ScheduleError> {
        let read = || {
            let fields: Vec<&str> = text.split_whitespace().collect();
            let [minute, hour, day, month, weekday] = fields[..] else { return None };
            let weekdays = field(weekday, 0, 7)?;
            Some(Cron {
                text: text.to_owned(),
                minutes: field(minute, 0, 59)?,
                hours: field(hour, 0, 23)?,
                days: field(day, 1, 31)?,
                months: field(month, 1, 12)?,
                weekdays: weekdays | weekdays >> 7 & 1,
                is_either_day: !day.starts_with('*') && !weekday.starts_with('*'),
            })
        };
        read().ok_or_else(|| ScheduleError::Cron { text: text.to_owned() })
    }
}

impl FromStr for Window {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Window, ScheduleError> {
        let minute = |text: &str| {
            let (hour, minute) = text.trim().split_once(':')?;
            let (hour, minute): (u64, u64) = (hour.parse().ok()?, minute.parse().ok()?);
            (hour < 24 && minute < 60).then(|| hour * 60 + minute)
        };
        let read = || {
            let (start, end) = text.split_once('-')?;
            let window = Window { start: minute(start)?, end: minute(end)? };
            (window.start != window.end).then_some(window)
        };
        read().ok_or_else(|| ScheduleError::Window { text: text.to_owned() })
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Window { start, end } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", start / 60, start % 60, end / 60, end % 60)
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

macro_rules! as_text {
    ($($name:ty),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
as_text!(Window, Cron);

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-28, a Saturday, at midnight UTC.
    const SATURDAY: u64 = 20_785 * DAY;

    fn at(hour: u64, minute: u64) -> u64 {
        SATURDAY + hour * 3600 + minute * 60
    }

    fn cron(text: &str) -> Cron {
        text.parse().expect(text)
    }

    #[test]
    fn cron_lines() {
        for (line, after, expected) in [
            ("* * * * *", at(1, 0), at(1, 1)),
            ("*/15 * * * *", at(1, 0), at(1, 15)),
            ("30 2 * * *", at(1, 0), at(2, 30)),
            ("30 2 * * *", at(2, 30), at(26, 30)),
            ("0 0 * * 1-5", at(1, 0), at(48, 0)),
            ("0 0 * * 7", at(1, 0), at(24, 0)),
            ("0 12 1 * *", at(1, 0), at(3 * 24 + 12, 0)),
            ("0 0 1 * 0", at(1, 0), at(24, 0)),
            ("5,10-12 3 * * *", at(3, 10), at(3, 11)),
        ] {
            assert_eq!(cron(line).after(after, 0), Some(expected), "{line}");
        }
        assert_eq!(cron("0 0 30 2 *").after(SATURDAY, 0), None);
        // 2028-02-29.
        assert_eq!(cron("0 0 29 2 *").after(SATURDAY, 0), Some(21_243 * DAY));
        // At 02:30 in a zone one hour ahead.
        assert_eq!(cron("30 2 * * *").after(at(0, 0), 3600), Some(at(1, 30)));
        for line in ["", "* * * *", "60 * * * *", "* * 0 * *", "a * * * *", "*/0 * * * *", "5-1 * * * *"] {
            assert!(line.parse::<Cron>().is_err(), "{line}");
        }
    }

    #[test]
    fn windows() {
        let night: Window = "22:00-06:00".parse().expect("a window");
        let noon: Window = "12:00-12:30".parse().expect("a window");
        assert!(night.contains(at(23, 0), 0) && night.contains(at(5, 59), 0) && !night.contains(at(6, 0), 0));
        assert!(noon.contains(at(11, 0), 3600) && !noon.contains(at(12, 0), 3600));
        assert_eq!(night.first_from(at(7, 0), 0), at(22, 0));
        assert_eq!(noon.first_from(at(13, 0), 0), at(36, 0));
        assert_eq!(night.to_string().parse(), Ok(night));
        assert!("22:00".parse::<Window>().is_err() && "22:00-22:00".parse::<Window>().is_err());
        assert!("18446744073709551615:00-01:00".parse::<Window>().is_err());
    }

    #[test]
    fn next_runs() {
        let hourly = |past, now| next_run(Some(3600), None, None, past, now, 0);
        let past = |begun, has_failed| Past { begun: Some(begun), has_failed };
        assert_eq!(hourly(Past::default(), at(1, 0)), Some(at(1, 0)));
        assert_eq!(hourly(past(at(1, 0), false), at(1, 5)), Some(at(2, 0)));
        assert_eq!(hourly(past(at(1, 0), false), at(9, 0)), Some(at(9, 0)));
        assert_eq!(hourly(past(at(1, 0), true), at(1, 5)), Some(at(1, 10)));
        assert_eq!(hourly(past(at(9, 0), false), at(1, 5)), Some(at(1, 5)));
        assert_eq!(next_run(None, None, None, Past::default(), at(1, 0), 0), None);
        let night: Window = "22:00-06:00".parse().expect("a window");
        let in_window = next_run(Some(3600), None, Some(&night), past(at(5, 30), false), at(5, 40), 0);
        assert_eq!(in_window, Some(at(22, 0)));
        let daily = cron("30 2 * * *");
        let by_cron = |past, now| next_run(None, Some(&daily), None, past, now, 0);
        assert_eq!(by_cron(past(at(2, 30), false), at(2, 30)), Some(at(26, 30)));
        assert_eq!(by_cron(past(at(2, 30), false), at(50, 0)), Some(at(50, 0)));
        assert_eq!(by_cron(Past::default(), at(2, 30)), Some(at(2, 30)));
    }
}
