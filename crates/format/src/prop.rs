//! Properties of datasets, pools and vdevs as static tables: names, kinds, defaults, values, and the kinds of
//! objects that they apply to (docs/on-disk/33-cli.md, sections 10 to 12).
//!
//! `dsl::prop` uses defaults and inheritance, the commands use column headers, alignment and value names. How a
//! value is stored in a ZAP or computed is defined elsewhere.
//!
//! # What always holds
//! - The order of each table is the order in which `get all` prints.
//! - A name is unique in its table. A lower-cased column header may be used instead of a name.
//! - An index number has one printed name, the first in the list; other names of the same number are accepted by
//!   parsing.

mod tables;

pub use tables::{DATASET, POOL, VDEV};

/// Type of a property's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number: a size, a count, a ratio in hundredths, a time.
    Number,
    /// The value is a string.
    Text,
    /// One of a list of names, which is stored as a number.
    Index,
}

/// Whether a property can be set, and whether children inherit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The value is computed and never set.
    ReadOnly,
    /// The property can be set and is not inherited.
    Default,
    /// The property can be set and is inherited.
    Inherit,
    /// The property can be set at creation only.
    OneTime,
    /// Can be set at creation or by a change of keys, and is not inherited.
    OneTimeDefault,
}

/// The value of a property that is set nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// No value (computed properties).
    None,
    /// A number, or the number of an index value.
    Number(u64),
    /// A string as the default value.
    Text(&'static str),
}

/// The property applies to file systems.
pub const FS: u8 = 1;
/// The property applies to snapshots.
pub const SNAP: u8 = 2;
/// The property applies to volumes.
pub const VOL: u8 = 4;
/// The property applies to bookmarks.
pub const MARK: u8 = 8;
/// The property applies to pools.
pub(crate) const POOL_WIDE: u8 = 16;
/// The property applies to vdevs.
pub(crate) const LEAF_OR_TOP: u8 = 32;

/// A row of the property table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prop {
    /// The name as users type it.
    pub name: &'static str,
    /// Header of its column in `zfs list` and `zpool list`.
    pub column: &'static str,
    /// The type of the value.
    pub kind: Kind,
    /// Whether the property can be set, and whether it is inherited.
    pub class: Class,
    /// The value where the property is set nowhere.
    pub fallback: Fallback,
    /// Kinds of objects that it applies to: a sum of [`FS`], [`SNAP`], [`VOL`], [`MARK`], [`POOL_WIDE`],
    /// [`LEAF_OR_TOP`].
    pub(crate) applies: u8,
    /// The values as usage texts and error messages list them.
    pub values: &'static str,
    /// Names of index values and their stored numbers.
    pub index: &'static [(&'static str, u64)],
    /// Printed right-aligned in listings.
    pub right_aligned: bool,
    /// Printed by `get all` and in usage texts.
    pub visible: bool,
}

/// A property of a file system, volume, snapshot or bookmark.
pub type DatasetProp = Prop;
/// A property of a pool.
pub type PoolProp = Prop;
/// A property of a vdev.
pub(crate) type VdevProp = Prop;

impl Prop {
    /// The printed name of a stored number. `None`: not an index property, or the number is unknown.
    pub fn index_name(&self, number: u64) -> Option<&'static str> {
        self.index.iter().find(|(_, n)| *n == number).map(|(name, _)| *name)
    }

    /// The number stored for a name.
    pub fn index_number(&self, name: &str) -> Option<u64> {
        self.index.iter().find(|(n, _)| *n == name).map(|(_, number)| *number)
    }

    /// Whether children inherit the property.
    pub fn inherits(&self) -> bool {
        matches!(self.class, Class::Inherit)
    }

    /// True if the property can be set on an existing object.
    pub fn editable(&self) -> bool {
        matches!(self.class, Class::Default | Class::Inherit)
    }

    /// True if the property applies to one of the given kinds.
    pub fn applies_to(&self, what: u8) -> bool {
        self.applies & what != 0
    }

    /// Minimum width of its column: that of the header; five for sizes and counts; the longest name of an index;
    /// eight for a pool's health.
    pub fn width(&self) -> usize {
        let header = self.column.len();
        match self.kind {
            _ if self.name == "health" => header.max(8),
            Kind::Number => header.max(5),
            Kind::Text => header,
            Kind::Index => self.index.iter().map(|(name, _)| name.len()).fold(header, usize::max),
        }
    }
}

fn find(table: &'static [Prop], name: &str) -> Option<&'static Prop> {
    let by_name = table.iter().find(|p| p.name == name);
    by_name.or_else(|| table.iter().find(|p| p.column.eq_ignore_ascii_case(name) && !is_upper(name)))
}

/// A column header counts only when it is written in lower case, as a property is.
fn is_upper(name: &str) -> bool {
    name.bytes().any(|b| b.is_ascii_uppercase())
}

/// The dataset property of this name or (lower-cased) column header.
pub fn dataset(name: &str) -> Option<&'static DatasetProp> {
    find(&DATASET, name)
}

/// The pool property of this name or (lower-cased) column header.
pub fn pool(name: &str) -> Option<&'static PoolProp> {
    find(&POOL, name)
}

/// The vdev property of this name or (lower-cased) column header.
pub fn vdev(name: &str) -> Option<&'static VdevProp> {
    find(&VDEV, name)
}

/// True if the name is valid for a user property: it has a colon and only allowed characters.
pub fn is_user(name: &str) -> bool {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b":-._".contains(&b);
    name.contains(':') && name.len() < 256 && name.bytes().all(legal)
}

/// The prefixes of properties that exist once per user, group or project, in usage order.
pub const PER_OWNER: [&str; 12] = [
    "userused@",
    "groupused@",
    "projectused@",
    "userobjused@",
    "groupobjused@",
    "projectobjused@",
    "userquota@",
    "groupquota@",
    "projectquota@",
    "userobjquota@",
    "groupobjquota@",
    "projectobjquota@",
];

/// The prefix of [`PER_OWNER`] that `name` has, and what follows it.
pub fn per_owner(name: &str) -> Option<(&'static str, &str)> {
    PER_OWNER.iter().find_map(|prefix| name.strip_prefix(prefix).map(|rest| (*prefix, rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_headers_find_the_same_property() {
        for (alias, name) in [("avail", "available"), ("refer", "referenced"), ("compress", "compression")] {
            assert_eq!(dataset(alias).map(|p| p.name), Some(name));
        }
        assert_eq!(pool("cap").map(|p| p.name), Some("capacity"));
        assert_eq!(pool("alloc").map(|p| p.name), Some("allocated"));
        assert!(dataset("AVAIL").is_none());
        assert!(dataset("nosuch").is_none());
    }

    #[test]
    fn names_are_unique_and_defaults_are_values() {
        for table in [&DATASET[..], &POOL[..], &VDEV[..]] {
            for (i, p) in table.iter().enumerate() {
                assert!(table.iter().skip(i + 1).all(|q| q.name != p.name), "{}", p.name);
                if let (Kind::Index, Fallback::Number(n)) = (p.kind, p.fallback) {
                    assert!(p.index_name(n).is_some() || p.name == "version", "{}", p.name);
                }
                assert_eq!(p.kind == Kind::Index, !p.index.is_empty(), "{}", p.name);
            }
        }
    }

    #[test]
    fn index_values_print_their_first_name() {
        let compression = dataset("compression").expect("there");
        assert_eq!(compression.index_name(10), Some("gzip"));
        assert_eq!(compression.index_number("gzip-6"), Some(10));
        assert_eq!(compression.width(), 14);
        assert_eq!(dataset("mounted").and_then(|p| p.index_name(1)), Some("yes"));
    }

    #[test]
    fn user_properties_need_a_colon() {
        assert!(is_user("com.example:note"));
        assert!(!is_user("compression"));
        assert!(!is_user("Com:x"));
        assert_eq!(per_owner("userquota@1000"), Some(("userquota@", "1000")));
    }
}
