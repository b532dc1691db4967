//! When a name of a ZAP is the name looked for.

use super::normalize::prepare;
use format::zap::NORM_UPPER;
use std::borrow::Cow;

/// When a name of the ZAP is the name looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Match {
    /// Byte for byte.
    #[default]
    Exact,
    /// As normalized by the ZAP's flags, case included if they say so.
    Normalized,
    /// As normalized by the ZAP's flags, but upper and lower case differ.
    NormalizedMatchCase,
}

/// A name looked for, prepared once.
pub(super) struct Matcher<'n> {
    pub(super) name: &'n [u8],
    /// What its hash is made of.
    pub(super) hashed: Cow<'n, [u8]>,
    /// How names are prepared for comparison, and the result for this one; `None`: byte for byte.
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
