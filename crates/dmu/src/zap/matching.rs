//! When a name of a ZAP is the name looked for.

use super::normalize::prepare;
use format::zap::NORM_UPPER;
use std::borrow::Cow;

/// Comparison of names in a ZAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Match {
    /// Names are compared byte for byte.
    #[default]
    Exact,
    /// Names are normalized by the ZAP's flags, including case if they say so.
    Normalized,
    /// Names are normalized by the ZAP's flags, except that case is significant.
    NormalizedMatchCase,
}

/// A name to be found, prepared once.
pub(super) struct Matcher<'n> {
    pub(super) name: &'n [u8],
    /// The bytes that are hashed.
    pub(super) hashed: Cow<'n, [u8]>,
    /// Normalization flags for comparisons, and the normalized name; `None`: names are compared byte for
    /// byte.
    pub(super) wanted: Option<(u64, Cow<'n, [u8]>)>,
}

impl<'n> Matcher<'n> {
    pub(super) fn new(name: &'n [u8], how: Match, normalization: u64) -> Matcher<'n> {
        let compare = match how {
            Match::Exact => 0,
            Match::Normalized => normalization,
            Match::NormalizedMatchCase => normalization & !NORM_UPPER,
        };
        Matcher {
            name,
            hashed: prepare(name, normalization),
            wanted: (compare != 0).then(|| (compare, prepare(name, compare))),
        }
    }

    pub(super) fn accepts(&self, name: &[u8]) -> bool {
        match &self.wanted {
            None => name == self.name,
            Some((flags, wanted)) => name == self.name || prepare(name, *flags) == *wanted,
        }
    }
}
