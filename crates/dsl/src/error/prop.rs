//! Properties that cannot have a value, or cannot be set or inherited.

/// Iterations of a key derivation, at least.
pub(crate) const ITERATIONS_MIN: u64 = 100_000;

/// Why a property cannot have a value, or cannot be set or inherited. The texts are those of the tools,
/// behind `cannot set property for 'x': `.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PropError {
    /// No property of this name.
    #[error("invalid property '{name}'")]
    Unknown {
        /// Name of the property.
        name: String,
    },
    /// It is computed, or fixed at creation.
    #[error("'{name}' is readonly")]
    ReadOnly {
        /// Name of the property.
        name: &'static str,
    },
    /// Datasets of this kind do not have it.
    #[error("'{name}' does not apply to datasets of this type")]
    WrongType {
        /// Name of the property.
        name: &'static str,
    },
    /// It is an index, and this is no name of a value.
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
    /// Not a number at all.
    #[error("bad numeric value '{text}'")]
    BadNumber {
        /// Text that was given.
        text: String,
    },
    /// A number with something behind that is no unit.
    #[error("invalid numeric suffix '{suffix}'")]
    BadSuffix {
        /// What stands behind the digits.
        suffix: String,
    },
    /// A number does not fit into 64 bits.
    #[error("numeric value is too large")]
    TooLarge,
    /// A block size that is none.
    #[error("'{name}' must be power of 2 from 512B to {max}")]
    BlockSize {
        /// Name of the property.
        name: &'static str,
        /// The largest size, for people.
        max: &'static str,
    },
    /// A mount point that is none.
    #[error("'{name}' must be an absolute path, 'none', or 'legacy'")]
    MountPoint {
        /// Name of the property.
        name: &'static str,
    },
    /// A place of a key that is none.
    #[error("invalid keylocation")]
    KeyLocation,
    /// Fewer iterations than a key derivation needs.
    #[error("minimum pbkdf2iters is {ITERATIONS_MIN}")]
    Iterations,
    /// A text longer than can be stored.
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
    /// A name longer than can be stored.
    #[error("property name '{name}' is too long")]
    LongUserName {
        /// Name of the property.
        name: String,
    },
    /// A limit is taken away by its own word.
    #[error("use 'none' to disable quota/refquota")]
    NoQuota,
    /// Options of a share that are none.
    #[error("'{name}' cannot be set to invalid options")]
    Share {
        /// Name of the property.
        name: &'static str,
    },
    /// A part of a path longer than names can be.
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
    /// The property is not one that is inherited.
    #[error("'{name}' property cannot be inherited")]
    NotInheritable {
        /// Name of the property.
        name: &'static str,
    },
    /// The property is part of the contents of the dataset, which other layers change.
    #[error("'{name}' is not stored with the dataset's properties")]
    Elsewhere {
        /// Name of the property.
        name: &'static str,
    },
}
