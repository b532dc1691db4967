//! Properties given by a user: from `name=value` to the change that it asks for (docs/on-disk/33-cli.md, section
//! 7).

use crate::{Owner, identity};
use dsl::prop;
use dsl::prop::PropValue;
use dsl::prop::change::PropError;
use format::nicenum::nicenum;
use format::prop::{self as table, Class};

/// The largest block size, as messages show it.
const BLOCK_MAX_TEXT: &str = "16M";
/// Exclusive upper bound of a volume's size in bytes: offsets into devices are signed.
pub(super) const VOLUME_LIMIT: u64 = 1 << 63;
/// Version of the file systems that are made.
pub(crate) const VERSION: u64 = 5;

/// Why a property cannot be set to a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// The value breaks a rule of the property itself.
    #[error(transparent)]
    Prop(#[from] PropError),
    /// Only user properties can be set on snapshots.
    #[error("this property can not be modified for snapshots")]
    OfSnapshot,
    /// The property is computed: one that exists for each owner or snapshot.
    #[error("'{name}' is readonly")]
    ReadOnly {
        /// Name of the property.
        name: String,
    },
    /// Quotas of owners apply to file systems only; the last project id is not valid.
    #[error("invalid property value")]
    NoOwners,
    /// There is no user or group of this name.
    #[error("'{name}' has an invalid user/group name")]
    Owner {
        /// Name of the property.
        name: String,
    },
    /// The value of `special_small_blocks` is neither a block size nor 0.
    #[error("invalid '{name}={value}' property: must be zero or a power of 2 from 512B to {BLOCK_MAX_TEXT}")]
    SmallBlocks {
        /// Name of the property.
        name: &'static str,
        /// The given value in bytes.
        value: u64,
    },
    /// The new size of a volume is 0.
    #[error("'volsize' cannot be zero")]
    VolumeZero,
    /// The size of a volume that is created is 0.
    #[error("volume size cannot be zero")]
    NewVolumeZero,
    /// The size of the volume exceeds the maximum.
    #[error("volume size is too large")]
    VolumeTooLarge,
    /// The size of the volume is not a multiple of its block size.
    #[error("'volsize' must be a multiple of volume block size ({})", nicenum(*block))]
    VolumeBlocks {
        /// Block size in bytes.
        block: u64,
    },
    /// `auto` is valid only for `refreservation` of volumes.
    #[error("'{name}=auto' only allowed on volumes")]
    AutoReservation {
        /// Name of the property.
        name: &'static str,
    },
    /// The version of a file system cannot be lowered.
    #[error("Can not downgrade; already at version {version}")]
    Downgrade {
        /// Its present version.
        version: u64,
    },
    /// Normalization needs `utf8only=on`.
    #[error("'utf8only' must be set 'on' if normalization chosen")]
    Normalization,
    /// This system does not support `mlslabel`.
    #[error("mlslabels are unsupported")]
    Mlslabel,
    /// Properties of encryption keys need an encrypted dataset.
    #[error("Encryption must be turned on to set encryption properties.")]
    NotEncrypted,
    /// `keylocation` can be changed only on encrypted datasets.
    #[error("keylocation must be 'none' for unencrypted datasets")]
    KeyLocation,
    /// This version of Cenote does not support the value.
    #[error("'{name}={value}' is not supported by this version of Cenote")]
    Unsupported {
        /// Name of the property.
        name: &'static str,
        /// The rejected value.
        value: String,
    },
}

/// The dataset that a property is checked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject {
    /// Kind of the dataset: `format::prop::FS`, `VOL` or `SNAP`.
    pub kind: u8,
    /// The dataset is being created.
    pub creating: bool,
    /// Block size of a volume in bytes.
    pub block_size: u64,
    /// Version of an existing file system.
    pub version: u64,
}

/// The change that `name=value` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// Store a property.
    Property {
        /// Full name of the property.
        name: String,
        /// The value to store.
        value: PropValue,
    },
    /// Reserve the maximum space that the volume can use.
    AutoReservation,
    /// Change the size of a volume, in bytes.
    VolumeSize(u64),
    /// Raise the version of a file system.
    Version(u64),
    /// Set a quota of an owner.
    OwnerLimit {
        /// Kind of the owner.
        owner: Owner,
        /// User, group or project id.
        id: u64,
        /// The quota counts objects; otherwise bytes.
        objects: bool,
        /// The quota in bytes or objects; 0: no limit.
        limit: u64,
    },
}

/// Parses a number with an optional unit, as the options `-V` and `-b` take it.
///
/// # Errors
/// [`PropError`] if the text is not such a number.
pub fn parse_number(text: &str) -> Result<u64, PropError> {
    prop::change::parse_number(text)
}

/// Checks the name and value of a user property.
///
/// # Errors
/// [`ValueError::Prop`] if the name or the value is not valid.
pub(crate) fn check_user(name: &str, value: &str) -> Result<(), ValueError> {
    Ok(prop::change::validate_user(name, value)?)
}

/// Splits `name=value`. `None`: there is no `=`.
pub fn split(text: &str) -> Option<(&str, &str)> {
    text.split_once('=')
}

/// Parses and checks `name=value` for a dataset. `is_enabled` tells whether the pool has a feature enabled.
///
/// # Errors
/// [`ValueError`] if the property does not exist, cannot be set on this dataset, or not to this value.
pub(crate) fn resolve(
    name: &str,
    text: &str,
    subject: &Subject,
    is_enabled: &dyn Fn(&str) -> bool,
) -> Result<Setting, ValueError> {
    if table::is_user(name) || (name.contains(':') && table::dataset(name).is_none()) {
        prop::change::validate_user(name, text)?;
        return Ok(property(name, PropValue::String(text.to_owned())));
    }
    if subject.kind == table::SNAP {
        return Err(ValueError::OfSnapshot);
    }
    if let Some((prefix, owner)) = table::per_owner(name) {
        return owner_limit(name, prefix, owner, text, subject, is_enabled);
    }
    if name.starts_with("written@") || name.starts_with("written#") {
        return Err(ValueError::ReadOnly { name: name.to_owned() });
    }
    let prop = prop::change::settable(name, subject.kind, subject.creating)?;
    let value = prop::change::parse(prop, text)?;
    if matches!((prop.name, &value), ("quota" | "refquota", PropValue::Number(0))) && text != "none" {
        return Err(PropError::NoQuota.into());
    }
    special(prop.name, text, &value, subject)?;
    if let Some(setting) = elsewhere(prop.name, &value, subject)? {
        return Ok(setting);
    }
    prop::change::validate_for(prop, &value, is_enabled)?;
    Ok(property(prop.name, value))
}

fn property(name: &str, value: PropValue) -> Setting {
    Setting::Property { name: name.to_owned(), value }
}

/// The feature that files with project ids need.
const PROJECTS: &str = "project_quota";

fn owner_limit(
    name: &str,
    prefix: &str,
    owner: &str,
    text: &str,
    subject: &Subject,
    is_enabled: &dyn Fn(&str) -> bool,
) -> Result<Setting, ValueError> {
    if !prefix.ends_with("quota@") {
        return Err(ValueError::ReadOnly { name: name.to_owned() });
    }
    let kind = match prefix {
        p if p.starts_with("user") => Owner::User,
        p if p.starts_with("group") => Owner::Group,
        _ => Owner::Project,
    };
    if kind == Owner::Project && !is_enabled(PROJECTS) {
        return Err(PropError::NeedsFeature { name: "projectquota", feature: PROJECTS }.into());
    }
    // An owner of a Windows domain would need an entry in the file system's table of domains.
    let (None, id) =
        identity::parse(kind, owner).ok_or_else(|| ValueError::Owner { name: name.to_owned() })?
    else {
        return Err(ValueError::Owner { name: name.to_owned() });
    };
    if kind == Owner::Project && id >= u64::from(u32::MAX) {
        return Err(ValueError::NoOwners);
    }
    let limit = if text == "none" { 0 } else { prop::change::parse_number(text)? };
    if subject.kind != table::FS {
        return Err(ValueError::NoOwners);
    }
    Ok(Setting::OwnerLimit { owner: kind, id, objects: prefix.contains("obj"), limit })
}

/// Checks that only some properties need.
fn special(name: &'static str, text: &str, value: &PropValue, subject: &Subject) -> Result<(), ValueError> {
    let unsupported = || Err(ValueError::Unsupported { name, value: text.to_owned() });
    match (name, value) {
        ("mlslabel", _) => Err(ValueError::Mlslabel),
        ("dedup" | "encryption", PropValue::Number(n)) if *n != 2 => unsupported(),
        ("keyformat", PropValue::Number(n)) if *n != 0 => Err(ValueError::NotEncrypted),
        ("pbkdf2iters", PropValue::Number(n)) if *n != 0 => Err(ValueError::NotEncrypted),
        ("keylocation", _) if text != "none" && subject.creating => Err(ValueError::NotEncrypted),
        ("keylocation", _) if text != "none" => Err(ValueError::KeyLocation),
        ("special_small_blocks", PropValue::Number(n))
            if *n != 0 && !(n.is_power_of_two() && (512..=format::units::MAX_BLOCK).contains(n)) =>
        {
            Err(ValueError::SmallBlocks { name, value: *n })
        }
        ("refreservation", PropValue::Number(u64::MAX)) if text == "auto" && subject.kind != table::VOL => {
            Err(ValueError::AutoReservation { name })
        }
        // Has this message, not that of a pool without the feature.
        ("version", PropValue::Number(n)) if subject.creating && *n != VERSION => unsupported(),
        _ => Ok(()),
    }
}

/// Properties that are stored elsewhere than in the property ZAP.
fn elsewhere(
    name: &'static str,
    value: &PropValue,
    subject: &Subject,
) -> Result<Option<Setting>, ValueError> {
    let PropValue::Number(number) = *value else { return Ok(None) };
    match name {
        "volsize" if number == 0 && subject.creating => Err(ValueError::NewVolumeZero),
        "volsize" if number == 0 => Err(ValueError::VolumeZero),
        "volsize" if number >= VOLUME_LIMIT => Err(ValueError::VolumeTooLarge),
        "volsize" if !number.is_multiple_of(subject.block_size.max(1)) => {
            Err(ValueError::VolumeBlocks { block: subject.block_size })
        }
        "volsize" => Ok(Some(Setting::VolumeSize(number))),
        "version" if number < subject.version => Err(ValueError::Downgrade { version: subject.version }),
        "version" => Ok(Some(Setting::Version(number))),
        "refreservation" if number == u64::MAX => Ok(Some(Setting::AutoReservation)),
        _ => Ok(None),
    }
}

/// Why `zfs inherit` refuses a property, whatever the dataset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum InheritError {
    /// There is no property of this name; the command prints its usage.
    #[error("invalid property '{name}'")]
    Unknown {
        /// The given name.
        name: String,
    },
    /// The property is computed or fixed at creation.
    #[error("{name} property is read-only")]
    ReadOnly {
        /// Name of the property.
        name: &'static str,
    },
    /// The property cannot have a received value.
    #[error("'{name}' property cannot be reverted to a received value")]
    NotReceived {
        /// Name of the property.
        name: &'static str,
    },
    /// The property is not inherited.
    #[error("'{name}' property cannot be inherited{}", hints(name))]
    NotInherited {
        /// Name of the property.
        name: &'static str,
    },
}

fn hints(name: &str) -> String {
    match name {
        "quota" | "reservation" | "refquota" | "refreservation" => format!(
            "\nuse 'zfs set {name}=none' to clear\nuse 'zfs inherit -S {name}' to revert to received value"
        ),
        _ => String::new(),
    }
}

/// Full name of a property that can be inherited or, with `received`, reverted to its received value.
///
/// # Errors
/// [`InheritError`] if there is no such property.
pub(crate) fn inheritable(name: &str, received: bool) -> Result<String, InheritError> {
    let Some(prop) = table::dataset(name) else {
        return match table::is_user(name) {
            true => Ok(name.to_owned()),
            false => Err(InheritError::Unknown { name: name.to_owned() }),
        };
    };
    match prop.class {
        Class::ReadOnly | Class::OneTime | Class::OneTimeDefault => {
            Err(InheritError::ReadOnly { name: prop.name })
        }
        Class::Inherit => Ok(prop.name.to_owned()),
        Class::Default if received && matches!(prop.name, "version" | "volsize") => {
            Err(InheritError::NotReceived { name: prop.name })
        }
        Class::Default if received => Ok(prop.name.to_owned()),
        Class::Default => Err(InheritError::NotInherited { name: prop.name }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, text: &str, kind: u8, creating: bool) -> String {
        let subject = Subject { kind, creating, block_size: 16 << 10, version: 5 };
        match resolve(name, text, &subject, &|_| true) {
            Ok(setting) => format!("{setting:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn values_are_refused_with_the_words_of_openzfs() {
        let (fs, vol, snap) = (table::FS, table::VOL, table::SNAP);
        for (name, text, kind, creating, why) in [
            ("nosuch", "1", fs, true, "invalid property 'nosuch'"),
            ("recordsize", "3000", fs, true, "'recordsize' must be power of 2 from 512B to 16M"),
            ("recordsize", "32M", fs, true, "'recordsize' must be power of 2 from 512B to 16M"),
            ("quota", "abc", fs, true, "bad numeric value 'abc'"),
            ("quota", "0", fs, false, "use 'none' to disable quota/refquota"),
            ("refquota", "0", fs, true, "use 'none' to disable quota/refquota"),
            (
                "dnodesize",
                "512",
                fs,
                false,
                "'dnodesize' must be one of 'legacy | auto | 1k | 2k | 4k | 8k | 16k'",
            ),
            ("sharesmb", "foo", fs, false, "'sharesmb' cannot be set to invalid options"),
            ("sharenfs", "", fs, true, "'sharenfs' cannot be set to invalid options"),
            ("sharenfs", "ro,foo", fs, true, "'sharenfs' cannot be set to invalid options"),
            ("projectquota@4294967295", "1M", fs, false, "invalid property value"),
            ("projectquota@-1", "1M", fs, false, "invalid property value"),
            ("utf8only", "on", vol, false, "'utf8only' does not apply to datasets of this type"),
            ("mlslabel", "none", fs, false, "mlslabels are unsupported"),
            ("volsize", "8E", vol, true, "volume size is too large"),
            ("quota", "10Z", fs, true, "numeric value is too large"),
            ("quota", "-1", fs, false, "bad numeric value '-1'"),
            ("used", "1", fs, true, "'used' is readonly"),
            ("volsize", "1M", fs, true, "'volsize' does not apply to datasets of this type"),
            ("recordsize", "4K", vol, false, "'recordsize' does not apply to datasets of this type"),
            ("volblocksize", "4K", vol, false, "'volblocksize' is readonly"),
            ("casesensitivity", "mixed", fs, false, "'casesensitivity' is readonly"),
            ("atime", "maybe", fs, false, "'atime' must be one of 'on | off'"),
            ("copies", "4", fs, false, "'copies' must be one of '1 | 2 | 3'"),
            ("compression", "on", snap, false, "this property can not be modified for snapshots"),
            ("user:UP", "1", fs, true, "invalid property 'user:UP'"),
            ("written@x", "1", fs, true, "'written@x' is readonly"),
            ("userused@1000", "1", fs, false, "'userused@1000' is readonly"),
            ("userquota@1000", "abc", fs, false, "bad numeric value 'abc'"),
            ("userquota@1000", "1M", vol, false, "invalid property value"),
            ("projectquota@abc", "1M", fs, false, "'projectquota@abc' has an invalid user/group name"),
            ("volsize", "0", vol, false, "'volsize' cannot be zero"),
            ("volsize", "0", vol, true, "volume size cannot be zero"),
            ("volsize", "30000001", vol, false, "'volsize' must be a multiple of volume block size (16K)"),
            ("version", "4", fs, false, "Can not downgrade; already at version 5"),
            ("version", "6", fs, false, "'version' must be one of '1 | 2 | 3 | 4 | 5 | current'"),
            ("refreservation", "auto", fs, false, "'refreservation=auto' only allowed on volumes"),
            ("mlslabel", "foo", fs, false, "mlslabels are unsupported"),
            ("keylocation", "prompt", fs, false, "keylocation must be 'none' for unencrypted datasets"),
            ("keylocation", "prompt", fs, true, "Encryption must be turned on to set encryption properties."),
            (
                "special_small_blocks",
                "3",
                fs,
                true,
                "invalid 'special_small_blocks=3' property: must be zero or a power of 2 from 512B to 16M",
            ),
            (
                "mountpoint",
                "relative",
                fs,
                true,
                "'mountpoint' must be an absolute path, 'none', or 'legacy'",
            ),
            ("dedup", "on", fs, false, "'dedup=on' is not supported by this version of Cenote"),
            ("encryption", "on", fs, true, "'encryption=on' is not supported by this version of Cenote"),
        ] {
            assert_eq!(check(name, text, kind, creating), why, "{name}={text}");
        }
        assert_eq!(check("user:x", &"a".repeat(9000), fs, false), "property value too long");
    }

    #[test]
    fn limits_of_projects_need_their_feature() {
        let subject = Subject { kind: table::FS, creating: false, block_size: 1, version: 5 };
        for name in ["projectquota@5", "projectobjquota@5"] {
            let refused = resolve(name, "1M", &subject, &|feature| feature != PROJECTS).unwrap_err();
            assert_eq!(refused.to_string(), "pool must be upgraded to set this property or value");
        }
        assert!(resolve("userquota@5", "1M", &subject, &|_| false).is_ok());
    }

    #[test]
    fn values_that_are_taken() {
        let stored = |name: &str, number| format!("{:?}", property(name, PropValue::Number(number)));
        assert_eq!(check("compress", "gzip", table::FS, false), stored("compression", 10));
        assert_eq!(check("quota", "1.5G", table::FS, false), stored("quota", 1536 << 20));
        assert_eq!(check("dedup", "off", table::FS, false), stored("dedup", 2));
        assert_eq!(check("refreservation", "auto", table::VOL, false), "AutoReservation");
        assert_eq!(check("volsize", "32K", table::VOL, false), "VolumeSize(32768)");
        let limit = "OwnerLimit { owner: User, id: 7, objects: true, limit: 8 }";
        assert_eq!(check("userobjquota@7", "8", table::FS, false), limit);
        assert!(check("userquota@", "8", table::FS, false).contains("id: 0,"));
        assert!(check("userquota@-1", "8", table::FS, false).contains("id: 4294967295,"));
        assert_eq!(
            check("sharenfs", "rw=@10.0.0.0/8,no_root_squash", table::FS, false).get(..8),
            Some("Property")
        );
        assert!(check("user:a", "b", table::SNAP, false).starts_with("Property"));
    }

    #[test]
    fn what_can_be_inherited() {
        let text = |name, received| match inheritable(name, received) {
            Ok(name) => name,
            Err(error) => error.to_string(),
        };
        assert_eq!(text("compress", false), "compression");
        assert_eq!(text("used", false), "used property is read-only");
        assert_eq!(text("casesensitivity", false), "casesensitivity property is read-only");
        assert_eq!(text("canmount", false), "'canmount' property cannot be inherited");
        assert_eq!(text("volsize", true), "'volsize' property cannot be reverted to a received value");
        assert_eq!(text("quota", true), "quota");
        assert_eq!(
            text("quota", false),
            "'quota' property cannot be inherited\nuse 'zfs set quota=none' to clear\n\
             use 'zfs inherit -S quota' to revert to received value"
        );
        assert_eq!(text("userquota@1000", false), "invalid property 'userquota@1000'");
        assert_eq!(text("all", false), "invalid property 'all'");
    }
}
