//! Errors of setting and inheriting properties.

/// Fewest iterations of a key derivation.
pub(crate) const ITERATIONS_MIN: u64 = 100_000;

/// Why a property cannot have a value, or cannot be set or inherited. The messages are those of `zfs`, after
/// `cannot set property for 'x': `.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PropError {
    /// No property of this name.
    #[error("invalid property '{name}'")]
    Unknown {
        /// Name of the property.
        name: String,
    },
    /// The property is computed, or fixed at creation.
    #[error("'{name}' is readonly")]
    ReadOnly {
        /// Name of the property.
        name: &'static str,
    },
    /// The property does not apply to this kind of dataset.
    #[error("'{name}' does not apply to datasets of this type")]
    WrongType {
        /// Name of the property.
        name: &'static str,
    },
    /// The text is no value of an index property.
    #[error("'{name}' must be one of '{values}'")]
    NotOneOf {
        /// Name of the property.
        name: &'static str,
        /// The names of its values.
        values: &'static str,
    },
    /// A number was given for a string.
    #[error("'{name}' must be a string")]
    NotString {
        /// Name of the property.
        name: String,
    },
    /// A string was given for a number.
    #[error("'{name}' must be a number")]
    NotNumber {
        /// Name of the property.
        name: String,
    },
    /// The text is no number.
    #[error("bad numeric value '{text}'")]
    BadNumber {
        /// The rejected text.
        text: String,
    },
    /// A number followed by text that is no unit.
    #[error("invalid numeric suffix '{suffix}'")]
    BadSuffix {
        /// The text after the digits.
        suffix: String,
    },
    /// A number that does not fit into 64 bits.
    #[error("numeric value is too large")]
    TooLarge,
    /// An invalid block size.
    #[error("'{name}' must be power of 2 from 512B to {max}")]
    BlockSize {
        /// Name of the property.
        name: &'static str,
        /// The largest size as text: `16M`.
        max: &'static str,
    },
    /// An invalid mount point.
    #[error("'{name}' must be an absolute path, 'none', or 'legacy'")]
    MountPoint {
        /// Name of the property.
        name: &'static str,
    },
    /// An invalid `keylocation`.
    #[error("invalid keylocation")]
    KeyLocation,
    /// Fewer iterations than the minimum of a key derivation.
    #[error("minimum pbkdf2iters is {ITERATIONS_MIN}")]
    Iterations,
    /// A text longer than the format allows.
    #[error("property value too long")]
    TooLong {
        /// Name of the property.
        name: String,
    },
    /// A name that no user property can have.
    #[error("invalid property '{name}'")]
    BadUserName {
        /// Name of the property.
        name: String,
    },
    /// A user property name longer than the format allows.
    #[error("property name '{name}' is too long")]
    LongUserName {
        /// Name of the property.
        name: String,
    },
    /// The number 0 for a limit that is removed with `none`.
    #[error("use 'none' to disable quota/refquota")]
    NoQuota,
    /// Invalid options of a share.
    #[error("'{name}' cannot be set to invalid options")]
    Share {
        /// Name of the property.
        name: &'static str,
    },
    /// A path component longer than a name may be.
    #[error("component of '{name}' is too long")]
    LongComponent {
        /// Name of the property.
        name: &'static str,
    },
    /// The value needs a feature that the pool has not enabled.
    #[error("pool must be upgraded to set this property or value")]
    NeedsFeature {
        /// Name of the property.
        name: &'static str,
        /// Short name of the feature that is needed.
        feature: &'static str,
    },
    /// The property is not inheritable.
    #[error("'{name}' property cannot be inherited")]
    NotInheritable {
        /// Name of the property.
        name: &'static str,
    },
    /// The property is stored in the contents of the dataset, which other layers change.
    #[error("'{name}' is not stored with the dataset's properties")]
    Elsewhere {
        /// Name of the property.
        name: &'static str,
    },
}
