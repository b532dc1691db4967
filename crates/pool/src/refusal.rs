//! Reasons of refusals, with the facts in fields. Each `Display` gives the words that the commands print.

use dmu::log::ClaimError;
use format::nicenum;
use vdev::device::DeviceError;

/// Longest name of a pool, in bytes.
pub(crate) const NAME_MAX: usize = 255;
/// Most devices of a vdev.
pub(crate) const CHILDREN_MAX: usize = 255;
/// Longest comment of a pool, in bytes.
pub(crate) const COMMENT_MAX: usize = 32;

/// Why a specification makes no pool or no vdev.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecRefusal {
    /// The name of the pool is empty or too long.
    #[error("a pool's name has 1 to {NAME_MAX} bytes")]
    NameLength,
    /// The name of the pool does not begin with a letter.
    #[error("cannot create '{name}': name must begin with a letter")]
    NameStart {
        /// Name of the pool.
        name: String,
    },
    /// The name of the pool has a character that names cannot have.
    #[error("cannot create '{name}': invalid character '{character}' in pool name")]
    NameCharacter {
        /// Name of the pool.
        name: String,
        /// The first character that is not allowed.
        character: char,
    },
    /// The name of the pool is a keyword of the commands.
    #[error("cannot create '{name}': name is reserved")]
    NameReserved {
        /// Name of the pool.
        name: String,
    },
    /// No vdev is for data.
    #[error("a pool needs a vdev for data")]
    NoDataVdev,
    /// Special and dedup vdevs need a feature that is not enabled.
    #[error("special and dedup vdevs need feature 'allocation_classes'")]
    NeedsAllocationClasses,
    /// A requested feature does not exist.
    #[error("unknown feature '{feature}'")]
    UnknownFeature {
        /// Short name of the feature.
        feature: String,
    },
    /// A vdev without redundancy has not exactly one device.
    #[error("a vdev that is neither mirror nor raidz has one device")]
    SingleCount,
    /// A mirror has fewer than two devices.
    #[error("invalid vdev specification: mirror requires at least 2 devices")]
    MirrorCount,
    /// There is no RAID-Z with this parity.
    #[error("raidz{parity} does not exist")]
    RaidzParity {
        /// Number of parity columns.
        parity: u8,
    },
    /// A log device cannot be RAID-Z.
    #[error("log devices cannot be raidz")]
    RaidzLog,
    /// A RAID-Z vdev has too few devices.
    #[error("invalid vdev specification: raidz{parity} requires at least {} devices", u16::from(*parity) + 1)]
    RaidzCount {
        /// Number of parity columns.
        parity: u8,
    },
    /// A vdev has too many devices.
    #[error("a vdev has at most {CHILDREN_MAX} devices")]
    TooManyDevices,
    /// The devices have larger sectors, or this sector size is not supported.
    #[error("ashift {ashift} is not possible on these devices")]
    Ashift {
        /// log2 of the sector size.
        ashift: u8,
    },
    /// A spare to be removed is in use for another device.
    #[error("spare is currently in use")]
    SpareInUse,
}

/// Why a device cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceRefusal {
    /// The device is smaller than the smallest device of a pool.
    #[error("device is too small: the minimum is 64M")]
    TooSmall,
    /// The device cannot be written.
    #[error("the device is read-only")]
    ReadOnly,
    /// The device is a spare of this pool already.
    #[error("it is a spare of this pool already")]
    OwnSpare,
    /// The device cannot be opened; [`DeviceError::Busy`]: another process has it.
    #[error("{0}")]
    Open(DeviceError),
}

/// Why a device is not attached, replaced or detached. The words are OpenZFS's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeRefusal {
    /// The pool has no such vdev.
    #[error("no such device in pool")]
    NoSuchDevice,
    /// Only a leaf that is a top-level vdev or a side of a mirror gets another side.
    #[error("can only attach to mirrors and top-level disks")]
    OnlyMirrors,
    /// A RAID-Z vdev would be expanded.
    #[error("raidz expansion is not supported by this version of Cenote")]
    Expansion,
    /// The vdev is not a device, or it is one of several spares that stand in for another one.
    #[error("already in replacing/spare config; wait for completion or use 'zpool detach'")]
    InReplacing,
    /// The vdev is a spare that stands in for another one.
    #[error("can only be replaced by another hot spare")]
    SpareOnly,
    /// The new device is smaller than the vdev.
    #[error("device is too small")]
    TooSmall,
    /// The new device has larger sectors than the vdev.
    #[error(
        "new device has a different optimal sector size; use the option '-o ashift=N' to override the optimal size"
    )]
    Sectors,
    /// The spare is in use, or another process has it.
    #[error("{path} is busy")]
    SpareBusy {
        /// Path of the spare.
        path: String,
    },
    /// The vdev is no side of a mirror, replacement or spare.
    #[error("only applicable to mirror and replacing vdevs")]
    NotDetachable,
    /// The other devices do not have all data.
    #[error("no valid replicas")]
    NoReplicas,
}

/// Why a pool cannot be opened for writing by Cenote.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteRefusal {
    /// The format has a version of before features.
    #[error("its format is version {version}, without features")]
    Version {
        /// Version of the format, 1 to 28.
        version: u64,
    },
    /// The newest uberblock is big-endian.
    #[error("it was written by a big-endian machine")]
    BigEndian,
    /// Features are active that Cenote does not know.
    #[error("features are in use that are not supported: {}", features.join(", "))]
    UnknownFeatures {
        /// Guids of the unsupported features.
        features: Vec<String>,
    },
    /// A feature is active whose structures Cenote can read but not write.
    #[error("{state}")]
    Unwritten {
        /// Short name of the feature.
        feature: &'static str,
        /// Consequence of the feature for the pool, in words.
        state: &'static str,
    },
    /// The pool has dedup tables, which no feature announces.
    #[error("it has dedup tables")]
    DedupTables,
    /// The pool is being split.
    #[error("it is being split")]
    Splitting,
    /// The pool has a vdev of a kind or in a state that Cenote does not write.
    #[error("{state}")]
    Vdev {
        /// The state of the pool, in words.
        state: &'static str,
    },
    /// A RAID-Z vdev is being expanded.
    #[error("a raidz expansion is under way")]
    Expansion,
    /// The pool has multihost protection, which needs a host id.
    #[error("multihost is on, and this machine has no hostid")]
    NoHostId,
    /// The intent log of an encrypted dataset must be claimed.
    #[error("{dataset} is encrypted, and has an intent log")]
    EncryptedLog {
        /// Full name of the dataset.
        dataset: String,
    },
    /// The intent log of a dataset cannot be read.
    #[error("{dataset}: {cause}; allow_missing_logs (import -m) gives it up")]
    UnreadableLog {
        /// Full name of the dataset.
        dataset: String,
        /// The error of the first log that cannot be claimed.
        cause: Box<ClaimError>,
    },
    /// An intent log cannot be claimed.
    #[error("{0}")]
    Claim(Box<ClaimError>),
}

/// Why a property of a pool or vdev cannot be set to a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PropertyRefusal {
    /// There is no such property of pools.
    #[error("invalid property '{name}'")]
    Unknown {
        /// Name of the property.
        name: String,
    },
    /// There is no such property of vdevs.
    #[error("invalid property: '{name}'")]
    UnknownOfVdev {
        /// Name of the property.
        name: String,
    },
    /// The property of a pool is read-only.
    #[error("property '{name}' is readonly")]
    ReadOnly {
        /// Name of the property.
        name: String,
    },
    /// The property of a vdev is read-only.
    #[error("'{name}' is readonly")]
    ReadOnlyOfVdev {
        /// Name of the property.
        name: &'static str,
    },
    /// There is no such feature, or Cenote does not support it.
    #[error("feature '{feature}' unsupported by kernel")]
    UnsupportedFeature {
        /// Short name of the feature.
        feature: String,
    },
    /// There is no such feature.
    #[error("there is no such feature")]
    NoSuchFeature,
    /// A feature can only be enabled.
    #[error("property '{name}' can only be set to 'enabled' or 'disabled'")]
    FeatureValue {
        /// Name of the property.
        name: String,
    },
    /// The feature cannot be enabled here.
    #[error("unsupported")]
    UnsupportedHere,
    /// The text is too long.
    #[error("property value too long")]
    TooLong,
    /// The comment is too long.
    #[error("comment must not exceed {COMMENT_MAX} characters")]
    CommentLength,
    /// The comment has characters other than printable ASCII.
    #[error("comment may only have printable characters")]
    CommentCharacters,
    /// The value is not in the property's list.
    #[error("'{name}' must be one of '{values}'")]
    NotOneOf {
        /// Name of the property.
        name: String,
        /// The values, as the commands list them.
        values: &'static str,
    },
    /// The value is not a number.
    #[error("bad numeric value '{value}'")]
    NoNumber {
        /// The rejected value.
        value: String,
    },
    /// The value is not a number with an optional suffix.
    #[error("{0}")]
    Number(nicenum::ParseError),
    /// The property of a pool cannot be set by users.
    #[error("it cannot be set")]
    NotSettable,
    /// The property of a vdev cannot be set by this operation.
    #[error("invalid argument for this pool operation")]
    InvalidForOperation,
    /// A machine cannot boot from the dataset.
    #[error("operation not supported on this dataset")]
    NotOnDataset,
    /// The vdev has no properties of its own.
    #[error("operation not supported on this type of vdev")]
    NotOnVdev,
    /// The machine has no host id, which multihost needs.
    #[error("multihost requires a non-zero hostid")]
    NeedsHostId,
    /// The guid is 0, or already that of the pool or of one of its vdevs.
    #[error("the guid is already in use, or no guid")]
    GuidInUse,
}
