//! Property values: parsing a user's text, and checking that a dataset of a pool can have the value
//! (docs/on-disk/22-mos-dsl.md, section 6; docs/on-disk/33-cli.md, sections 1.1, 7 and 10).

use crate::error::{ITERATIONS_MIN, PropError};
use crate::features::FeatureCounts;
use crate::prop::PropValue;
use format::prop::{self as table, Class, DatasetProp, Kind};
use format::units::OLD_MAX_BLOCK;

/// Bytes of the value of a user property, its NUL included.
const USER_VALUE_LIMIT: usize = 8192;
/// Bytes of the name of a user property and of a part of a path, terminator included.
const USER_NAME_LIMIT: usize = 256;
/// Bytes of the value of a native text property, its NUL included.
const TEXT_LIMIT: usize = 4096;
/// Smallest block size in bytes.
const BLOCK_MIN: u64 = 512;
const BLOCK_MAX: u64 = 16 << 20;
/// First character of names of units, by power of 1024.
const UNITS: &[u8] = b"BKMGTPEZ";

/// Parses a number with an optional unit: `128K`, `1.5G`, `10MiB`, `512`.
///
/// # Errors
/// [`PropError::BadNumber`], [`PropError::BadSuffix`] or [`PropError::TooLarge`].
pub fn parse_number(text: &str) -> Result<u64, PropError> {
    let bad = || PropError::BadNumber { text: text.to_owned() };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = text.split_at(digits);
    // `.5G` is a number, `.` is none.
    let is_fraction =
        rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if whole.is_empty() && !is_fraction {
        return Err(bad());
    }
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (fraction, suffix) = rest.split_at(digits);
            (Some(fraction), suffix)
        }
        None => (None, rest),
    };
    let shift = unit_shift(suffix).ok_or_else(|| PropError::BadSuffix { suffix: suffix.to_owned() })?;
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| PropError::TooLarge)? };
    let mut value = whole.checked_shl(shift).filter(|v| v >> shift == whole).ok_or(PropError::TooLarge)?;
    if let Some(fraction) = fraction.filter(|digits| !digits.is_empty()) {
        value += fraction_of(fraction, shift);
    }
    u64::try_from(value).map_err(|_| PropError::TooLarge)
}

/// The value of decimal digits after the point, in the unit `2^shift`, rounded down.
fn fraction_of(digits: &str, shift: u32) -> u128 {
    // Further digits are below one byte of the largest unit.
    let digits = digits.get(..digits.len().min(18)).unwrap_or(digits);
    let scale = 10_u128.pow(u32::try_from(digits.len()).unwrap_or(18));
    digits.parse::<u128>().unwrap_or(0).saturating_mul(1 << shift.min(64)) / scale
}

/// log2 of a unit: a letter of either case, optionally followed by `B` or `iB`.
fn unit_shift(suffix: &str) -> Option<u32> {
    let upper = suffix.to_ascii_uppercase();
    let (first, rest) = match upper.as_bytes() {
        [] => return Some(0),
        [first, rest @ ..] => (*first, rest),
    };
    let power = UNITS.iter().position(|unit| *unit == first)?;
    let ends = rest.is_empty() || (power > 0 && matches!(rest, b"B" | b"IB"));
    ends.then(|| 10 * u32::try_from(power).unwrap_or(0))
}

/// Finds a native property that may be set on a dataset of this kind (a sum of `format::prop::FS`, `VOL`,
/// `SNAP`); `creating`: while the dataset is being created.
///
/// # Errors
/// [`PropError`].
pub fn settable(name: &str, kind: u8, creating: bool) -> Result<&'static DatasetProp, PropError> {
    let prop = table::dataset(name).ok_or_else(|| PropError::Unknown { name: name.to_owned() })?;
    let fixed = match prop.class {
        Class::ReadOnly => true,
        Class::OneTime | Class::OneTimeDefault => !creating,
        Class::Default | Class::Inherit => false,
    };
    if !prop.applies_to(kind) {
        return Err(PropError::WrongType { name: prop.name });
    }
    if fixed {
        return Err(PropError::ReadOnly { name: prop.name });
    }
    Ok(prop)
}

/// Parses a user's text. The `auto` of `refreservation` becomes `u64::MAX`: the caller, which knows the size
/// of the volume, replaces it.
///
/// # Errors
/// [`PropError`].
pub fn parse(prop: &'static DatasetProp, text: &str) -> Result<PropValue, PropError> {
    let name = prop.name;
    match prop.kind {
        Kind::Index => {
            let number = prop.index_number(text).or_else(|| unnamed_index(name, text));
            number.map(PropValue::Number).ok_or(PropError::NotOneOf { name, values: prop.values })
        }
        Kind::Text => Ok(PropValue::String(text.to_owned())),
        Kind::Number => {
            let number = match (name, text) {
                ("filesystem_limit" | "snapshot_limit", "none") => u64::MAX,
                ("quota" | "reservation" | "refquota" | "refreservation" | "volsize", "none") => 0,
                ("refreservation", "auto") => u64::MAX,
                _ => parse_number(text)?,
            };
            Ok(PropValue::Number(number))
        }
    }
}

/// Texts that mean an index number without being in the table.
fn unnamed_index(name: &str, text: &str) -> Option<u64> {
    match (name, text) {
        ("compression", "gzip") => Some(10),
        _ => None,
    }
}

/// Checks a value: its type, its range, and that the pool has the features that it needs.
///
/// # Errors
/// [`PropError`].
pub fn validate(
    prop: &'static DatasetProp,
    value: &PropValue,
    features: &FeatureCounts,
) -> Result<(), PropError> {
    validate_for(prop, value, &|feature| features.is_enabled(feature))
}

/// Like [`validate`], for a pool of which only the enabled features are known, such as one to be created.
///
/// # Errors
/// [`PropError`].
pub fn validate_for(
    prop: &'static DatasetProp,
    value: &PropValue,
    is_enabled: &dyn Fn(&str) -> bool,
) -> Result<(), PropError> {
    let name = prop.name;
    match (prop.kind, value) {
        (Kind::Text, PropValue::Number(_)) => Err(PropError::NotString { name: name.to_owned() }),
        (Kind::Number | Kind::Index, PropValue::String(_)) => {
            Err(PropError::NotNumber { name: name.to_owned() })
        }
        (Kind::Text, PropValue::String(text)) => validate_text(name, text),
        (Kind::Index, PropValue::Number(n)) => {
            if prop.index_name(*n).is_none() {
                return Err(PropError::NotOneOf { name, values: prop.values });
            }
            needs(name, *n, is_enabled)
        }
        (Kind::Number, PropValue::Number(n)) => validate_number(name, *n, is_enabled),
    }
}

/// Whether a value of `compression` is zstd, at any level.
pub(crate) fn is_zstd(compression: u64) -> bool {
    compression & 0x7f == 16
}

/// Checks that the pool has the feature that an index value needs.
fn needs(name: &'static str, value: u64, is_enabled: &dyn Fn(&str) -> bool) -> Result<(), PropError> {
    let feature = match (name, value) {
        ("compression", 15) => "lz4_compress",
        ("compression", n) if is_zstd(n) => "zstd_compress",
        ("checksum", n) | ("dedup", n) => match n & 0xff {
            11 => "sha512",
            12 => "skein",
            13 => "edonr",
            14 => "blake3",
            _ => return Ok(()),
        },
        ("dnodesize", n) if n != 0 => "large_dnode",
        ("longname", 1) => "longname",
        _ => return Ok(()),
    };
    need(name, feature, is_enabled)
}

fn need(
    name: &'static str,
    feature: &'static str,
    is_enabled: &dyn Fn(&str) -> bool,
) -> Result<(), PropError> {
    if is_enabled(feature) { Ok(()) } else { Err(PropError::NeedsFeature { name, feature }) }
}

fn validate_number(
    name: &'static str,
    value: u64,
    is_enabled: &dyn Fn(&str) -> bool,
) -> Result<(), PropError> {
    match name {
        "recordsize" | "volblocksize" => validate_block_size(name, value, is_enabled),
        "special_small_blocks" if value != 0 => {
            let max = "16M";
            let fits = value.is_power_of_two() && (BLOCK_MIN..=BLOCK_MAX).contains(&value);
            if fits { Ok(()) } else { Err(PropError::BlockSize { name, max }) }
        }
        "pbkdf2iters" if value != 0 && value < ITERATIONS_MIN => Err(PropError::Iterations),
        "filesystem_limit" | "snapshot_limit" if value != u64::MAX => {
            need(name, "filesystem_limits", is_enabled)
        }
        _ => Ok(()),
    }
}

fn validate_block_size(
    name: &'static str,
    value: u64,
    is_enabled: &dyn Fn(&str) -> bool,
) -> Result<(), PropError> {
    let large = is_enabled("large_blocks");
    if !value.is_power_of_two() || !(BLOCK_MIN..=BLOCK_MAX).contains(&value) {
        let max = if large { "16M" } else { "128K" };
        return Err(PropError::BlockSize { name, max });
    }
    if value > OLD_MAX_BLOCK { need(name, "large_blocks", is_enabled) } else { Ok(()) }
}

fn validate_text(name: &'static str, text: &str) -> Result<(), PropError> {
    if text.len() >= TEXT_LIMIT {
        return Err(PropError::TooLong { name: name.to_owned() });
    }
    match name {
        "mountpoint" if !text.starts_with('/') && !matches!(text, "none" | "legacy") => {
            Err(PropError::MountPoint { name })
        }
        "mountpoint" if text.split('/').any(|part| part.len() >= USER_NAME_LIMIT) => {
            Err(PropError::LongComponent { name })
        }
        "sharesmb" if !matches!(text, "on" | "off") => Err(PropError::Share { name }),
        "sharenfs" if !matches!(text, "on" | "off") && !are_nfs_options(text) => {
            Err(PropError::Share { name })
        }
        "keylocation" if !is_key_location(text) => Err(PropError::KeyLocation),
        _ => Ok(()),
    }
}

/// Whether a text consists of options of NFS shares that OpenZFS accepts on Linux (by experiment), with or
/// without values.
fn are_nfs_options(text: &str) -> bool {
    const KNOWN: [&str; 33] = [
        "ro",
        "rw",
        "anon",
        "anonuid",
        "anongid",
        "sec",
        "nosub",
        "secure",
        "insecure",
        "sync",
        "async",
        "wdelay",
        "no_wdelay",
        "hide",
        "nohide",
        "crossmnt",
        "subtree_check",
        "no_subtree_check",
        "secure_locks",
        "insecure_locks",
        "auth_nlm",
        "no_auth_nlm",
        "no_acl",
        "root_squash",
        "no_root_squash",
        "all_squash",
        "no_all_squash",
        "mountpoint",
        "mp",
        "fsid",
        "refer",
        "replicas",
        "root_mapping",
    ];
    text.split(',').all(|option| {
        let name = option.split('=').next().unwrap_or_default();
        KNOWN.contains(&name)
    })
}

fn is_key_location(text: &str) -> bool {
    let remote = ["https://", "http://"].iter().any(|scheme| {
        text.strip_prefix(scheme).is_some_and(|host| !host.is_empty() && !host.starts_with('/'))
    });
    matches!(text, "prompt" | "none") || text.starts_with("file:///") || remote
}

/// Checks name and value of a user property.
///
/// # Errors
/// [`PropError`].
pub fn validate_user(name: &str, value: &str) -> Result<(), PropError> {
    if name.len() >= USER_NAME_LIMIT {
        return Err(PropError::LongUserName { name: name.to_owned() });
    }
    if !table::is_user(name) {
        return Err(PropError::BadUserName { name: name.to_owned() });
    }
    if value.len() >= USER_VALUE_LIMIT {
        return Err(PropError::TooLong { name: name.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units() {
        for (text, number) in [
            ("0", 0),
            ("512", 512),
            (".5K", 512),
            ("1K", 1024),
            ("1k", 1024),
            ("1KB", 1024),
            ("1KiB", 1024),
            ("3B", 3),
            ("1.5K", 1536),
            ("1.5G", 1536 << 20),
            ("0.5m", 512 << 10),
            ("1.K", 1024),
            // Fractions of a byte are dropped, as OpenZFS does.
            ("1.5", 1),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_number(text), Ok(number), "{text}");
        }
        for text in ["", "K", "-1", "."] {
            assert_eq!(parse_number(text), Err(PropError::BadNumber { text: text.into() }));
        }
        for (text, suffix) in [("1X", "X"), ("1BB", "BB"), ("1KX", "KX"), ("1 K", " K")] {
            assert_eq!(parse_number(text), Err(PropError::BadSuffix { suffix: suffix.into() }));
        }
        for text in ["18446744073709551616", "16E", "1Z", "99999999999999999999999999999999999999999"] {
            assert_eq!(parse_number(text), Err(PropError::TooLarge), "{text}");
        }
    }

    #[test]
    fn what_may_be_set_where() {
        let on = |name, kind| settable(name, kind, false).map(|p| p.name);
        assert_eq!(on("compress", table::FS), Ok("compression"));
        assert_eq!(on("type", table::FS), Err(PropError::ReadOnly { name: "type" }));
        assert_eq!(on("utf8only", table::FS), Err(PropError::ReadOnly { name: "utf8only" }));
        assert_eq!(on("volsize", table::FS), Err(PropError::WrongType { name: "volsize" }));
        // The kind of dataset is checked first.
        assert_eq!(on("volblocksize", table::FS), Err(PropError::WrongType { name: "volblocksize" }));
        assert_eq!(on("utf8only", table::VOL), Err(PropError::WrongType { name: "utf8only" }));
        assert_eq!(on("nosuch", table::FS), Err(PropError::Unknown { name: "nosuch".into() }));
        assert!(settable("utf8only", table::FS, true).is_ok());
    }

    #[test]
    fn texts_of_errors_are_those_of_the_tools() {
        let error = |name: &str, text: &str| {
            let prop = settable(name, table::FS, false).expect("settable");
            parse(prop, text).expect_err("no value").to_string()
        };
        assert!(error("compression", "foo").starts_with("'compression' must be one of 'on | off | lzjb"));
        assert_eq!(error("quota", "1X"), "invalid numeric suffix 'X'");
        let prop = table::dataset("mountpoint").expect("there");
        assert_eq!(
            validate_text(prop.name, "abc").expect_err("no path").to_string(),
            "'mountpoint' must be an absolute path, 'none', or 'legacy'"
        );
    }

    #[test]
    fn places_of_keys() {
        for good in ["prompt", "none", "file:///key", "https://host/key", "http://host"] {
            assert!(is_key_location(good), "{good}");
        }
        for bad in ["", "file://key", "/key", "https://", "ftp://host"] {
            assert!(!is_key_location(bad), "{bad}");
        }
    }
}
