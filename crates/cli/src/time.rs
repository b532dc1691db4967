//! Points in time in the formats of the tools: local time, in the layouts of docs/on-disk/33-cli.md, section
//! 1.2. The time zone is that of `TZ` or `/etc/localtime`, else UTC.

use std::cell::RefCell;
use std::ffi::OsString;
use std::rc::Rc;
use tz::{DateTime, TimeZone};

const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

thread_local! {
    /// The time zone that this thread used last, and the value of `TZ` then: each thread of a command has its
    /// own.
    static ZONE: RefCell<Option<(Option<OsString>, Rc<TimeZone>)>> = const { RefCell::new(None) };
}

fn zone() -> Rc<TimeZone> {
    let named = crate::console::env("TZ").filter(|tz| !tz.is_empty());
    ZONE.with_borrow_mut(|last| match last {
        Some((tz, zone)) if *tz == named => Rc::clone(zone),
        _ => {
            let found = match &named {
                Some(tz) => TimeZone::from_posix_tz(&tz.to_string_lossy()),
                None => TimeZone::local(),
            };
            let zone = Rc::new(found.unwrap_or_else(|_| TimeZone::utc()));
            *last = Some((named, Rc::clone(&zone)));
            zone
        }
    })
}

/// Local time less UTC at a time, in seconds.
pub(crate) fn utc_offset(seconds: u64) -> i64 {
    let zone = zone();
    let at = i64::try_from(seconds).unwrap_or(i64::MAX);
    let local = TimeZone::as_ref(&zone).find_local_time_type(at).map(tz::LocalTimeType::ut_offset);
    local.map_or(0, i64::from)
}

/// The parts of a date that the layouts need.
struct Parts {
    weekday: &'static str,
    month: &'static str,
    month_number: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
    year: i32,
    zone: String,
}

/// The date of a time; `None` if the calendar does not reach that far.
fn parts(seconds: u64) -> Option<Parts> {
    parts_of(i64::try_from(seconds).ok()?)
}

fn parts_of(seconds: i64) -> Option<Parts> {
    let date = DateTime::from_timespec(seconds, 0, TimeZone::as_ref(&zone())).ok()?;
    Some(Parts {
        weekday: DAYS.get(usize::from(date.week_day())).copied()?,
        month: MONTHS.get(usize::from(date.month()).checked_sub(1)?).copied()?,
        month_number: date.month(),
        day: date.month_day(),
        hour: date.hour(),
        minute: date.minute(),
        second: date.second(),
        year: date.year(),
        zone: date.local_time_type().time_zone_designation().to_owned(),
    })
}

fn laid_out(seconds: u64, layout: impl Fn(&Parts) -> String) -> String {
    parts(seconds).map_or_else(|| seconds.to_string(), |p| layout(&p))
}

/// `Fri Nov 20  8:35 2026`, for creation times.
pub(crate) fn creation(seconds: u64) -> String {
    laid_out(seconds, |p| {
        format!("{} {} {:>2} {:>2}:{:02} {}", p.weekday, p.month, p.day, p.hour, p.minute, p.year)
    })
}

/// `Fri Nov 20  8:35:07 2026`, for changes of snapshots.
pub(crate) fn creation_seconds(seconds: u64) -> String {
    laid_out(seconds, |p| {
        let clock = format!("{:>2}:{:02}:{:02}", p.hour, p.minute, p.second);
        format!("{} {} {:>2} {clock} {}", p.weekday, p.month, p.day, p.year)
    })
}

/// `Fri Nov 20 08:35 2026`, for holds.
pub(crate) fn hold(seconds: u64) -> String {
    laid_out(seconds, |p| {
        format!("{} {} {:>2} {:02}:{:02} {}", p.weekday, p.month, p.day, p.hour, p.minute, p.year)
    })
}

/// `Fri Nov 20 08:35:07 2026`, as C's `ctime`, for scans.
pub(crate) fn ctime(seconds: u64) -> String {
    laid_out(seconds, |p| format!("{} {} {:>2} {} {}", p.weekday, p.month, p.day, clock(p), p.year))
}

/// [`ctime`] for times that may lie before 1970, for files.
pub(crate) fn ctime_signed(seconds: i64) -> String {
    let layout = |p: Parts| format!("{} {} {:>2} {} {}", p.weekday, p.month, p.day, clock(&p), p.year);
    parts_of(seconds).map_or_else(|| seconds.to_string(), layout)
}

/// `Fri Nov 20 08:35:07 UTC 2026`, for lines with dates and times in JSON.
pub(crate) fn dated(seconds: u64) -> String {
    laid_out(seconds, |p| {
        format!("{} {} {:>2} {} {} {}", p.weekday, p.month, p.day, clock(p), p.zone, p.year)
    })
}

fn clock(p: &Parts) -> String {
    format!("{:02}:{:02}:{:02}", p.hour, p.minute, p.second)
}

/// `08:35:07`: the present time, for reports.
pub(crate) fn clock_now() -> String {
    laid_out(now(), clock)
}

/// `2026-11-20.08:35:07`, for records of the history.
pub(crate) fn history(seconds: u64) -> String {
    laid_out(seconds, |p| format!("{}-{:02}-{:02}.{}", p.year, p.month_number, p.day, clock(p)))
}

/// `Nov 20 2026 08:35:07`, for events.
pub(crate) fn event(seconds: u64) -> String {
    laid_out(seconds, |p| format!("{} {:02} {} {}", p.month, p.day, p.year, clock(p)))
}

/// `01:02:03`, preceded by `4 days ` for durations of a day and more.
pub(crate) fn duration(seconds: u64) -> String {
    let (days, rest) = (seconds / 86400, seconds % 86400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    if days == 0 { clock } else { format!("{days} days {clock}") }
}

/// The current time in seconds since 1970.
pub(crate) fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    // No test sets TZ, because the zone is read once for the process. The tests hold in any zone.
    #[test]
    fn layouts_keep_their_width() {
        let t = 1_795_168_408;
        assert_eq!(creation(t).len(), 21);
        assert_eq!(creation_seconds(t).len(), 24);
        assert_eq!(ctime(t).len(), 24);
        assert!(hold(t).len() == 21 && ctime(t).ends_with("2026"));
    }

    #[test]
    fn times_beyond_the_calendar_are_numbers() {
        assert_eq!(ctime(u64::MAX), u64::MAX.to_string());
    }

    #[test]
    fn durations_count_days() {
        assert_eq!(duration(3), "00:00:03");
        assert_eq!(duration(90_061), "1 days 01:01:01");
    }
}
