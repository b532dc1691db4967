//! Compatibility sets: the features that the property `compatibility` allows in a pool
//! (docs/on-disk/16-features.md, section 7).

use format::feature::{FEATURES, Since};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Directories of the sets; the administrator's own is first.
const FOLDERS: [&str; 2] = ["/etc/zfs/compatibility.d", "/usr/share/zfs/compatibility.d"];
/// Maximum size of a set's file in bytes.
const SIZE_MAX: u64 = 16 << 10;

/// The features that a pool may enable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compatibility {
    /// All features.
    Off,
    /// No features.
    Legacy,
    /// The features with these short names.
    Features(BTreeSet<String>),
}

/// Why a compatibility set cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompatError {
    /// A file does not exist, is not a regular file, or is too large.
    #[error("could not read/parse feature file(s): {names} ")]
    Unreadable {
        /// The given value of the property.
        names: String,
    },
    /// A file contains a word that is not a feature.
    #[error("could not read/parse feature file(s): {names} ({word})")]
    UnknownFeature {
        /// The given value of the property.
        names: String,
        /// The unknown word.
        word: String,
    },
}

impl Compatibility {
    /// Loads the sets of a property value: `off`, `legacy`, or names of files separated by commas. A feature is
    /// allowed if all files list it.
    ///
    /// # Errors
    /// A file cannot be read, or contains an unknown word.
    pub(crate) fn load(value: &str) -> Result<Compatibility, CompatError> {
        Compatibility::load_from(value, &FOLDERS.map(Path::new))
    }

    fn load_from(value: &str, folders: &[&Path]) -> Result<Compatibility, CompatError> {
        match value {
            "" | "off" => return Ok(Compatibility::Off),
            "legacy" => return Ok(Compatibility::Legacy),
            _ => {}
        }
        let unreadable = || CompatError::Unreadable { names: value.to_owned() };
        let mut common: Option<BTreeSet<String>> = None;
        for name in value.split(',').filter(|name| !name.is_empty()) {
            let text = read(name, folders).ok_or_else(unreadable)?;
            let words = words(&text, value)?;
            common = Some(match common {
                None => words,
                Some(before) => before.intersection(&words).cloned().collect(),
            });
        }
        common.map(Compatibility::Features).ok_or_else(unreadable)
    }

    /// True if the feature, given by its short name, may be enabled.
    pub(crate) fn allows(&self, feature: &str) -> bool {
        match self {
            Compatibility::Off => true,
            Compatibility::Legacy => false,
            Compatibility::Features(names) => names.contains(feature),
        }
    }

    /// The features of OpenZFS 2.3 that may be enabled, in the order of the tools.
    pub(crate) fn features(&self) -> Vec<&'static str> {
        let known = FEATURES.iter().filter(|feature| feature.since == Since::V2_3);
        known.map(|feature| feature.name).filter(|name| self.allows(name)).collect()
    }
}

/// Contents of a set's file. `None`: there is no such file. A name cannot lead out of the directories.
fn read(name: &str, folders: &[&Path]) -> Option<String> {
    if name.contains('/') {
        return None;
    }
    let paths = folders.iter().map(|folder| folder.join(name));
    let path: PathBuf = paths.into_iter().find(|path| path.is_file())?;
    let size = std::fs::metadata(&path).ok()?.len();
    if size == 0 || size > SIZE_MAX {
        return None;
    }
    std::fs::read_to_string(path).ok()
}

/// Parses the words of a file. Features that OpenZFS knows and Cenote does not are skipped; any other unknown word
/// is an error.
fn words(text: &str, names: &str) -> Result<BTreeSet<String>, CompatError> {
    let mut words = BTreeSet::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        for word in line.split([' ', '\t', ',']).filter(|word| !word.is_empty()) {
            if format::feature::by_name(word).is_none() {
                return Err(CompatError::UnknownFeature { names: names.to_owned(), word: word.to_owned() });
            }
            words.insert(word.to_owned());
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_all_files_may_be_enabled() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("a"), "# a set\nasync_destroy lz4_compress\nlivelist # new\n")
            .expect("written");
        std::fs::write(folder.path().join("b"), "livelist\nasync_destroy\nblake3\n").expect("written");
        std::fs::write(folder.path().join("bad"), "nosuch\n").expect("written");
        let load = |value: &str| Compatibility::load_from(value, &[folder.path()]);
        let both = load("a,b").expect("two sets");
        assert_eq!(both.features(), ["async_destroy", "livelist"]);
        assert!(!both.allows("blake3"));
        assert_eq!(load("off"), Ok(Compatibility::Off));
        assert!(!load("legacy").expect("a word").allows("livelist"));
        for wrong in ["nosuch", "/etc/passwd", "a,nosuch", ",", "bad"] {
            assert!(load(wrong).is_err(), "{wrong}");
        }
        let text = load("nosuch").expect_err("missing").to_string();
        assert_eq!(text, "could not read/parse feature file(s): nosuch ");
    }
}
