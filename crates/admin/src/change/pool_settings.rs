//! Checks pool properties given by a command: whether they exist, can be set at this time, and to this value. The
//! texts are those of OpenZFS; the command prints what precedes them.

use super::state::cache_path;
use format::feature::{self, PROPERTY_PREFIX};
use format::nicenum;
use format::prop::{self as table, Class, Kind};
use std::path::Path;

/// Maximum length of the property `comment` in bytes.
const COMMENT_MAX: usize = 32;
/// Sector sizes that a vdev can have, as binary logarithms.
const ASHIFTS: std::ops::RangeInclusive<u64> = 9..=16;
/// Version of pools with feature flags.
const VERSION: u64 = 5000;

/// Parses the value of `-o ashift=`: the binary logarithm of a sector size, or 0 for a size chosen for the devices.
///
/// # Errors
/// A message that says why the value is not valid.
pub fn parse_ashift(value: &str) -> Result<u8, String> {
    let number = nicenum::parse(value).map_err(|_| "ashift must be a number.".to_owned())?;
    match u8::try_from(number) {
        Ok(ashift) if ashift == 0 || ASHIFTS.contains(&number) => Ok(ashift),
        _ => Err(format!("invalid 'ashift={value}' property: only values between 9 and 16 are allowed.")),
    }
}

/// The command that sets a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetWhen {
    /// `zpool create -o`.
    Create,
    /// `zpool import -o`.
    Import,
    /// `zpool set`.
    Set,
}

/// A checked property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PoolSetting {
    /// A property stored in the pool: name and value as [`pool::LivePool::set_props`] takes them.
    Stored(String, String),
    /// Enable the feature with this short name.
    Feature(&'static str),
    /// Leave the feature disabled in a new pool.
    NoFeature(&'static str),
    /// The property `compatibility`: names of feature sets.
    Compatibility(String),
    /// The property `cachefile`; empty: the default file.
    CacheFile(String),
    /// The property `altroot`: a directory that is put before every mount point.
    AltRoot(String),
    /// The property `readonly`: the pool is imported for reading only.
    ReadOnly(bool),
    /// Temporary name of the pool while it is imported.
    TemporaryName(String),
    /// The property `version`: version of the on-disk format.
    Version(u64),
}

/// Checks a property as far as that is possible without the pool.
///
/// # Errors
/// A message that says why the property cannot be set.
pub(crate) fn check_pool_setting(name: &str, value: &str, when: SetWhen) -> Result<PoolSetting, String> {
    if let Some(feature) = name.strip_prefix(PROPERTY_PREFIX) {
        return check_feature(name, feature, value, when);
    }
    if table::is_user(name) {
        return Ok(PoolSetting::Stored(name.to_owned(), value.to_owned()));
    }
    let known = table::pool(name).filter(|_| !value.is_empty() || allows_empty(name));
    let known = known.ok_or_else(|| format!("invalid property '{name}'"))?;
    if known.class == Class::ReadOnly {
        return Err(format!("'{name}' is readonly"));
    }
    let name = known.name;
    let stored = |value: &str| Ok(PoolSetting::Stored(name.to_owned(), value.to_owned()));
    match name {
        "version" => match number(value)? {
            version @ (1..=28 | VERSION) if when != SetWhen::Set || version == VERSION => {
                Ok(PoolSetting::Version(version))
            }
            version => Err(format!("property 'version' number {version} is invalid.")),
        },
        "ashift" => match number(value)? {
            0 => stored("0"),
            shift if ASHIFTS.contains(&shift) => stored(&shift.to_string()),
            shift => Err(format!(
                "property 'ashift' number {shift} is invalid, only values between 9 and 16 are allowed."
            )),
        },
        "bootfs" if when != SetWhen::Set => {
            Err("property 'bootfs' cannot be set at creation or import time".to_owned())
        }
        "altroot" if when == SetWhen::Set => {
            Err("property 'altroot' can only be set during pool creation or import".to_owned())
        }
        "altroot" if !value.starts_with('/') => Err(format!("bad alternate root '{value}'")),
        "altroot" => Ok(PoolSetting::AltRoot(value.to_owned())),
        "cachefile" => check_cachefile(value),
        "comment" if !value.chars().all(|c| c == ' ' || c.is_ascii_graphic()) => {
            Err("comment may only have printable characters".to_owned())
        }
        "comment" if value.len() > COMMENT_MAX => {
            Err(format!("comment must not exceed {COMMENT_MAX} characters"))
        }
        "readonly" if when != SetWhen::Import => {
            Err("property 'readonly' can only be set at import time".to_owned())
        }
        "readonly" => index(known, value).map(|number| PoolSetting::ReadOnly(number != 0)),
        "tname" if when == SetWhen::Set => {
            Err("property 'tname' can only be set at creation time".to_owned())
        }
        "tname" => Ok(PoolSetting::TemporaryName(value.to_owned())),
        "compatibility" => Ok(PoolSetting::Compatibility(value.to_owned())),
        "dedup_table_quota" if matches!(value, "auto" | "none") => stored(value),
        _ => match known.kind {
            Kind::Index => index(known, value).and_then(|_| stored(value)),
            Kind::Number => stored(&number(value)?.to_string()),
            Kind::Text => stored(value),
        },
    }
}

fn allows_empty(name: &str) -> bool {
    matches!(name, "comment" | "cachefile" | "bootfs" | "compatibility")
}

fn check_feature(name: &str, feature: &str, value: &str, when: SetWhen) -> Result<PoolSetting, String> {
    let known = feature::by_name(feature).filter(|known| known.is_supported());
    let known = known.ok_or_else(|| format!("feature '{feature}' unsupported by kernel"))?;
    match value {
        "enabled" => Ok(PoolSetting::Feature(known.name)),
        "disabled" if when == SetWhen::Create => Ok(PoolSetting::NoFeature(known.name)),
        "disabled" => Err(format!("property '{name}' can only be set to 'disabled' at creation time")),
        _ => Err(format!("property '{name}' can only be set to 'enabled' or 'disabled'")),
    }
}

fn check_cachefile(value: &str) -> Result<PoolSetting, String> {
    // The default file is used when the property is not set.
    if Path::new(value) == cache_path() {
        return Ok(PoolSetting::CacheFile(String::new()));
    }
    if !value.is_empty() && value != "none" {
        if !value.starts_with('/') {
            return Err("property 'cachefile' must be empty, an absolute path, or 'none'".to_owned());
        }
        let folder = Path::new(value).parent().unwrap_or(Path::new("/"));
        if !folder.is_dir() {
            return Err(format!("'{}' is not a valid directory", folder.display()));
        }
        if matches!(value.rsplit('/').next(), Some("" | "." | "..")) {
            return Err(format!("'{value}' is not a valid file"));
        }
    }
    Ok(PoolSetting::CacheFile(value.to_owned()))
}

fn index(known: &table::PoolProp, value: &str) -> Result<u64, String> {
    let wrong = || format!("'{}' must be one of '{}'", known.name, known.values);
    known.index_number(value).ok_or_else(wrong)
}

fn number(value: &str) -> Result<u64, String> {
    nicenum::parse(value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(name: &str, value: &str, when: SetWhen) -> String {
        check_pool_setting(name, value, when).expect_err("wrong")
    }

    #[test]
    fn what_the_real_tool_says_of_wrong_values() {
        use SetWhen::{Create, Import, Set};
        for (name, value, when, text) in [
            ("nosuch", "1", Set, "invalid property 'nosuch'"),
            ("", "x", Set, "invalid property ''"),
            ("x", "", Set, "invalid property 'x'"),
            ("A:b", "c", Set, "invalid property 'A:b'"),
            ("size", "1", Set, "'size' is readonly"),
            ("guid", "1", Create, "'guid' is readonly"),
            ("name", "1", Set, "'name' is readonly"),
            ("load_guid", "1", Set, "'load_guid' is readonly"),
            ("autoexpand", "maybe", Set, "'autoexpand' must be one of 'on | off'"),
            ("failmode", "x", Create, "'failmode' must be one of 'wait | continue | panic'"),
            ("listsnapshots", "7", Create, "'listsnapshots' must be one of 'on | off'"),
            (
                "ashift",
                "99",
                Set,
                "property 'ashift' number 99 is invalid, only values between 9 and 16 are allowed.",
            ),
            ("ashift", "abc", Set, "bad numeric value 'abc'"),
            ("version", "28", Set, "property 'version' number 28 is invalid."),
            ("version", "9999", Set, "property 'version' number 9999 is invalid."),
            ("version", "abc", Set, "bad numeric value 'abc'"),
            ("feature@nosuch", "enabled", Set, "feature 'nosuch' unsupported by kernel"),
            (
                "feature@async_destroy",
                "disabled",
                Set,
                "property 'feature@async_destroy' can only be set to 'disabled' at creation time",
            ),
            (
                "feature@async_destroy",
                "active",
                Create,
                "property 'feature@async_destroy' can only be set to 'enabled' or 'disabled'",
            ),
            ("readonly", "on", Set, "property 'readonly' can only be set at import time"),
            ("altroot", "x", Set, "property 'altroot' can only be set during pool creation or import"),
            ("altroot", "relative", Import, "bad alternate root 'relative'"),
            ("cachefile", "relative", Set, "property 'cachefile' must be empty, an absolute path, or 'none'"),
            ("cachefile", "/nosuchdir/x", Create, "'/nosuchdir' is not a valid directory"),
            ("comment", &"a".repeat(40), Create, "comment must not exceed 32 characters"),
            ("comment", "a\u{1}b", Create, "comment may only have printable characters"),
            ("bootfs", "x", Import, "property 'bootfs' cannot be set at creation or import time"),
            ("tname", "x", Set, "property 'tname' can only be set at creation time"),
            ("dedup_table_quota", "abc", Create, "bad numeric value 'abc'"),
        ] {
            assert_eq!(wrong(name, value, when), text, "{name}={value}");
        }
    }

    #[test]
    fn values_that_may_be_set() {
        let good = |name: &str, value: &str| check_pool_setting(name, value, SetWhen::Set).expect("good");
        let stored = |name: &str, value: &str| PoolSetting::Stored(name.to_owned(), value.to_owned());
        assert_eq!(good("comment", ""), stored("comment", ""));
        assert_eq!(good("a:b", ""), stored("a:b", ""));
        assert_eq!(good("ashift", "13"), stored("ashift", "13"));
        assert_eq!(good("dedup_table_quota", "1G"), stored("dedup_table_quota", "1073741824"));
        assert_eq!(good("dedup_table_quota", "auto"), stored("dedup_table_quota", "auto"));
        assert_eq!(good("cachefile", ""), PoolSetting::CacheFile(String::new()));
        assert_eq!(good("feature@livelist", "enabled"), PoolSetting::Feature("livelist"));
        assert_eq!(good("failmode", "continue"), stored("failmode", "continue"));
    }
}
