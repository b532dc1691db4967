//! Property values as text and as JSON.
//!
//! `exact` corresponds to `-p`: bytes, seconds and plain numbers instead of units and dates.

use crate::stop::Stop;
use crate::time;
use admin::{Health, Property, Source, Value};
use format::nicenum::{exact_ratio, nicebytes, nicenum, ratio};
use format::prop::{self, Kind, Prop};
use serde_json::{Value as Json, json};

/// Most columns of a listing, and properties that `get` shows: each is a value of each dataset, in memory at once.
const PROPERTIES_MAX: usize = 1000;

/// Refuses more properties than a listing can have.
///
/// # Errors
/// A usage error.
pub(crate) fn check_number(properties: usize) -> Result<(), Stop> {
    match properties > PROPERTIES_MAX {
        true => Err(Stop::usage(format!("bad property list: more than {PROPERTIES_MAX} properties"))),
        false => Ok(()),
    }
}

/// Text for a missing value.
pub(crate) const ABSENT: &str = "-";

/// Whether a property is a ratio, whose column has a fixed width.
pub(crate) fn is_ratio(name: &str) -> bool {
    matches!(name, "compressratio" | "refcompressratio" | "dedupratio" | "bcloneratio")
}

/// Most characters of a value: a longer list of clones is cut off.
const TEXT_MAX: usize = 8191;

/// The value of a dataset property as text.
pub(crate) fn dataset(name: &str, value: &Value, exact: bool) -> String {
    let number = match value {
        Value::Absent => return ABSENT.into(),
        Value::Text(text) => return text.chars().take(TEXT_MAX).collect(),
        Value::Number(number) => *number,
    };
    let known = prop::dataset(name);
    if let Some(text) = known.and_then(|p| index_name(p, number)) {
        return text;
    }
    match known.map_or(name, |p| p.name) {
        "creation" if !exact => time::creation(number),
        "snapshots_changed" if !exact => time::creation_seconds(number),
        "compressratio" | "refcompressratio" if exact => exact_ratio(number),
        "compressratio" | "refcompressratio" => ratio(number),
        "quota" | "refquota" | "reservation" | "refreservation" | "volsize" => {
            none_if_zero(number, exact, nicebytes)
        }
        "filesystem_limit" | "snapshot_limit" | "filesystem_count" | "snapshot_count"
            if number == u64::MAX =>
        {
            "none".into()
        }
        "guid" | "createtxg" | "objsetid" | "userrefs" | "numclones" | "keyguid" | "ivsetguid"
        | "pbkdf2salt" | "remaptxg" | "redacted" | "inconsistent" | "useraccounting" | "version"
        | "pbkdf2iters" => number.to_string(),
        _ if exact => number.to_string(),
        "used"
        | "available"
        | "referenced"
        | "usedbysnapshots"
        | "usedbydataset"
        | "usedbychildren"
        | "usedbyrefreservation"
        | "logicalused"
        | "logicalreferenced" => nicebytes(number),
        other => match prop::per_owner(other) {
            Some(("userquota@" | "groupquota@" | "projectquota@", _)) => {
                none_if_zero(number, exact, nicebytes)
            }
            Some(("userobjquota@" | "groupobjquota@" | "projectobjquota@", _)) => {
                none_if_zero(number, exact, nicenum)
            }
            Some(("userused@" | "groupused@" | "projectused@", _)) => nicebytes(number),
            None if other.starts_with("written@") || other.starts_with("written#") => nicebytes(number),
            _ => nicenum(number),
        },
    }
}

fn none_if_zero(number: u64, exact: bool, nice: fn(u64) -> String) -> String {
    match (number, exact) {
        (0, false) => "none".into(),
        (_, true) => number.to_string(),
        (_, false) => nice(number),
    }
}

fn index_name(p: &Prop, number: u64) -> Option<String> {
    (p.kind == Kind::Index).then(|| p.index_name(number).map_or_else(|| number.to_string(), str::to_owned))
}

/// The value of a pool property as text.
pub(crate) fn pool(name: &str, value: &Value, exact: bool) -> String {
    let number = match value {
        Value::Absent => return ABSENT.into(),
        Value::Text(text) if text.is_empty() => return ABSENT.into(),
        Value::Text(text) => return text.clone(),
        Value::Number(number) => *number,
    };
    let known = prop::pool(name);
    if let Some(text) = known.and_then(|p| index_name(p, number)) {
        return text;
    }
    match known.map_or(name, |p| p.name) {
        "dedup_table_quota" if number == u64::MAX => "auto".into(),
        "dedup_table_quota" if number == 0 && !exact => "none".into(),
        "dedupratio" | "bcloneratio" if exact => exact_ratio(number),
        "dedupratio" | "bcloneratio" => ratio(number),
        "expandsize" | "checkpoint" if number == 0 => ABSENT.into(),
        "guid" | "load_guid" | "version" | "ashift" | "last_scrubbed_txg" | "maxblocksize"
        | "maxdnodesize" => number.to_string(),
        _ if exact => number.to_string(),
        "capacity" | "fragmentation" => format!("{number}%"),
        _ => nicenum(number),
    }
}

/// The value of a vdev property as text.
pub(crate) fn vdev(name: &str, value: &Value, exact: bool) -> String {
    let number = match value {
        Value::Absent => return ABSENT.into(),
        Value::Text(text) => return text.clone(),
        Value::Number(number) => *number,
    };
    let known = prop::vdev(name);
    if let Some(text) = known.and_then(|p| index_name(p, number)) {
        return text;
    }
    match known.map_or(name, |p| p.name) {
        "checksum_n" | "checksum_t" | "io_n" | "io_t" | "slow_io_n" | "slow_io_t" if number == u64::MAX => {
            ABSENT.into()
        }
        "expandsize" if number == 0 => ABSENT.into(),
        "state" if !exact => {
            Health::from_number(number).map_or_else(|| number.to_string(), |h| h.word().into())
        }
        // With a percent sign even with -p, as the tool prints it.
        "fragmentation" => format!("{number}%"),
        "guid" | "ashift" | "parity" | "numchildren" => number.to_string(),
        _ if exact => number.to_string(),
        "capacity" => format!("{number}%"),
        _ => nicenum(number),
    }
}

/// Text of the source column of `get`.
pub(crate) fn source(source: &Source) -> String {
    match source {
        Source::None => ABSENT.into(),
        Source::Default => "default".into(),
        Source::Local => "local".into(),
        Source::Temporary => "temporary".into(),
        Source::Inherited(from) => format!("inherited from {from}"),
        Source::Received => "received".into(),
    }
}

/// The source as JSON.
pub(crate) fn source_json(source: &Source) -> Json {
    let (kind, data) = match source {
        Source::None => ("NONE", ABSENT),
        Source::Default => ("DEFAULT", ABSENT),
        Source::Local => ("LOCAL", ABSENT),
        Source::Temporary => ("TEMPORARY", ABSENT),
        Source::Inherited(from) => ("INHERITED", from.as_str()),
        Source::Received => ("RECEIVED", ABSENT),
    };
    json!({"type": kind, "data": data})
}

/// One property as JSON: its text and its source.
pub(crate) fn json(text: &str, property: &Property, as_int: bool) -> Json {
    json!({"value": scalar(text, as_int), "source": source_json(&property.source)})
}

/// A text as JSON; with `--json-int`, whole numbers become integers.
pub(crate) fn scalar(text: &str, as_int: bool) -> Json {
    match text.parse::<u64>() {
        Ok(number) if as_int && number.to_string() == text => json!(number),
        _ => json!(text),
    }
}

/// A number as JSON: an exact integer with `--json-int`, else the given text.
pub(crate) fn number(value: u64, as_int: bool, text: impl FnOnce(u64) -> String) -> Json {
    if as_int { json!(value) } else { json!(text(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ds(name: &str, number: u64) -> (String, String) {
        (dataset(name, &Value::Number(number), false), dataset(name, &Value::Number(number), true))
    }

    #[test]
    fn dataset_values_as_in_the_transcripts() {
        for (name, number, nice, exact) in [
            ("used", 4_397_056, "4.19M", "4397056"),
            ("used", 0, "0B", "0"),
            ("written", 0, "0", "0"),
            ("quota", 0, "none", "0"),
            ("quota", 52_428_800, "50M", "52428800"),
            ("compressratio", 101, "1.01x", "1.01"),
            ("recordsize", 131_072, "128K", "131072"),
            ("filesystem_limit", u64::MAX, "none", "none"),
            ("compression", 16, "zstd", "zstd"),
            ("mounted", 1, "yes", "yes"),
            ("userquota@1000", 1_048_576, "1M", "1048576"),
            ("userused@1000", 0, "0B", "0"),
            ("guid", 9_571_222_209_612_433_963, "9571222209612433963", "9571222209612433963"),
        ] {
            assert_eq!(ds(name, number), (nice.to_owned(), exact.to_owned()), "{name}");
        }
    }

    #[test]
    fn pool_values_as_in_the_transcripts() {
        let text = |name, number, exact| pool(name, &Value::Number(number), exact);
        assert_eq!(text("capacity", 1, false), "1%");
        assert_eq!(text("capacity", 1, true), "1");
        assert_eq!(text("expandsize", 0, true), "-");
        assert_eq!(text("dedup_table_quota", u64::MAX, true), "auto");
        assert_eq!(text("freeing", 0, false), "0");
        assert_eq!(text("dedupratio", 100, false), "1.00x");
        assert_eq!(text("failmode", 0, false), "wait");
    }

    #[test]
    fn only_whole_numbers_become_integers() {
        assert_eq!(scalar("4397056", true), json!(4_397_056));
        assert_eq!(scalar("1.00", true), json!("1.00"));
        assert_eq!(scalar("4397056", false), json!("4397056"));
        assert_eq!(scalar("007", true), json!("007"));
    }
}
