//! The vdev grammar: from the words of a command to the vdevs that they describe (docs/on-disk/33-cli.md, section
//! 3).
//!
//! Words are read from left to right, and each device is looked up when it is read, so that the first error is the
//! one that OpenZFS reports.

use super::pool_draid::DraidError;
use super::pool_path::{DeviceName, PathProblem};

/// Allocation class of a new top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LayoutClass {
    /// Data.
    Normal,
    /// Intent log.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Dedup tables.
    Dedup,
}

/// Type of a new top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutKind {
    /// A single device.
    Single,
    /// Mirror.
    Mirror,
    /// RAID-Z with this number of parity devices, 1 to 3.
    Raidz(u8),
}

/// A new top-level vdev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutTop {
    /// Type of the vdev.
    pub kind: LayoutKind,
    /// The word of the type as given; empty for a single device.
    pub word: String,
    /// Allocation class of the vdev.
    pub class: LayoutClass,
    /// Devices, in the order of the command.
    pub leaves: Vec<DeviceName>,
}

/// The vdevs that a command describes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolLayout {
    /// Top-level vdevs, in the order of the command.
    pub tops: Vec<LayoutTop>,
    /// Hot spares, in the order of the command.
    pub spares: Vec<DeviceName>,
    /// Cache devices, in the order of the command.
    pub cache: Vec<DeviceName>,
}

/// Why words do not describe vdevs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A device cannot be found or used.
    #[error(transparent)]
    Path(#[from] PathProblem),
    /// A vdev has too few devices.
    #[error("invalid vdev specification: {word} requires at least {least} device{}", if *is_plural { "s" } else { "" })]
    TooFew {
        /// Word of the type.
        word: String,
        /// Minimum number of devices.
        least: usize,
        /// True if the message uses the plural "devices".
        is_plural: bool,
    },
    /// There are no devices.
    #[error("invalid vdev specification: at least one toplevel vdev must be specified")]
    Nothing,
    /// A word that may occur only once is repeated.
    #[error("invalid vdev specification: '{word}' can be specified only once")]
    Twice {
        /// The repeated word.
        word: &'static str,
    },
    /// Vdevs of this class cannot have this type.
    #[error("invalid vdev specification: unsupported '{class}' device: {word}")]
    ClassKind {
        /// Word of the class.
        class: &'static str,
        /// Word of the type.
        word: String,
    },
    /// The word of a dRAID vdev has an error.
    #[error(transparent)]
    Draid(#[from] DraidError),
    /// A valid dRAID vdev, which Cenote cannot create.
    #[error("invalid vdev specification: '{word}' is not supported by this version of Cenote")]
    DraidUnsupported {
        /// Word of the type.
        word: String,
    },
}

/// Meaning of a word of the command.
enum Word<'a> {
    Group(LayoutKind),
    Draid,
    Class(LayoutClass, &'static str),
    Spare,
    Cache,
    Device(&'a str),
}

fn word(text: &str) -> Word<'_> {
    match text {
        "mirror" => Word::Group(LayoutKind::Mirror),
        "raidz" | "raidz1" => Word::Group(LayoutKind::Raidz(1)),
        "raidz2" => Word::Group(LayoutKind::Raidz(2)),
        "raidz3" => Word::Group(LayoutKind::Raidz(3)),
        "log" => Word::Class(LayoutClass::Log, "log"),
        "special" => Word::Class(LayoutClass::Special, "special"),
        // As in OpenZFS, messages about dedup vdevs say "special".
        "dedup" => Word::Class(LayoutClass::Dedup, "special"),
        "spare" => Word::Spare,
        "cache" => Word::Cache,
        _ => match text.strip_prefix("draid") {
            Some("") => Word::Draid,
            Some(rest) if rest.starts_with(':') => Word::Draid,
            Some(rest)
                if rest.starts_with(['1', '2', '3']) && (rest.len() == 1 || rest[1..].starts_with(':')) =>
            {
                Word::Draid
            }
            _ => Word::Device(text),
        },
    }
}

impl PoolLayout {
    /// Parses the words of a command. `find` looks up a device.
    ///
    /// # Errors
    /// [`LayoutError`]: the first error in the order of the words.
    pub(crate) fn parse(
        words: &[String],
        find: &mut dyn FnMut(&str) -> Result<DeviceName, PathProblem>,
    ) -> Result<PoolLayout, LayoutError> {
        let mut reader = Reader { rest: words, find, layout: PoolLayout::default() };
        reader.read()?;
        Ok(reader.layout)
    }

    /// All devices with their uses: vdevs, then spares, then cache devices.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (&DeviceName, DeviceUse)> {
        let data = self.tops.iter().flat_map(|top| &top.leaves).map(|leaf| (leaf, DeviceUse::Vdev));
        let spares = self.spares.iter().map(|leaf| (leaf, DeviceUse::Spare));
        data.chain(spares).chain(self.cache.iter().map(|leaf| (leaf, DeviceUse::Cache)))
    }

    /// True if there is a vdev for data.
    pub(crate) fn has_data(&self) -> bool {
        self.tops.iter().any(|top| top.class == LayoutClass::Normal)
    }
}

/// Use of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceUse {
    /// Part of a top-level vdev.
    Vdev,
    /// A hot spare.
    Spare,
    /// A cache device.
    Cache,
}

struct Reader<'a> {
    rest: &'a [String],
    find: &'a mut dyn FnMut(&str) -> Result<DeviceName, PathProblem>,
    layout: PoolLayout,
}

impl<'a> Reader<'a> {
    fn read(&mut self) -> Result<(), LayoutError> {
        let mut class = (LayoutClass::Normal, "");
        let (mut logs, mut spares, mut caches) = (false, false, false);
        while let Some((text, rest)) = self.rest.split_first() {
            self.rest = rest;
            match word(text) {
                Word::Class(LayoutClass::Log, name) => {
                    once(&mut logs, "log")?;
                    class = (LayoutClass::Log, name);
                }
                Word::Class(new, name) => class = (new, name),
                Word::Spare => {
                    once(&mut spares, "spare")?;
                    self.layout.spares = self.group(text, 1)?;
                }
                Word::Cache => {
                    once(&mut caches, "cache")?;
                    self.layout.cache = self.group(text, 1)?;
                }
                Word::Group(kind) => {
                    if class.0 != LayoutClass::Normal && kind != LayoutKind::Mirror {
                        return Err(LayoutError::ClassKind { class: class.1, word: text.clone() });
                    }
                    let least = match kind {
                        LayoutKind::Raidz(parity) => usize::from(parity) + 1,
                        _ => 2,
                    };
                    let leaves = self.group(text, least)?;
                    self.layout.tops.push(LayoutTop { kind, word: text.clone(), class: class.0, leaves });
                }
                Word::Draid => {
                    if class.0 != LayoutClass::Normal {
                        return Err(LayoutError::ClassKind { class: class.1, word: text.clone() });
                    }
                    let leaves = self.group(text, super::pool_draid::least(text))?;
                    super::pool_draid::check(text, leaves.len())?;
                    return Err(LayoutError::DraidUnsupported { word: text.clone() });
                }
                Word::Device(name) => {
                    let leaves = vec![(self.find)(name)?];
                    let (kind, word) = (LayoutKind::Single, String::new());
                    self.layout.tops.push(LayoutTop { kind, word, class: class.0, leaves });
                }
            }
        }
        let layout = &self.layout;
        if layout.tops.is_empty() && layout.spares.is_empty() && layout.cache.is_empty() {
            return Err(LayoutError::Nothing);
        }
        if logs && !layout.tops.iter().any(|top| top.class == LayoutClass::Log) {
            return Err(LayoutError::TooFew { word: "log".to_owned(), least: 1, is_plural: false });
        }
        Ok(())
    }

    /// Reads devices up to the next word of the grammar.
    fn group(&mut self, text: &str, least: usize) -> Result<Vec<DeviceName>, LayoutError> {
        let mut leaves = Vec::new();
        while let Some((next, rest)) = self.rest.split_first() {
            let Word::Device(name) = word(next) else { break };
            leaves.push((self.find)(name)?);
            self.rest = rest;
        }
        if leaves.len() < least {
            return Err(LayoutError::TooFew { word: text.to_owned(), least, is_plural: true });
        }
        Ok(leaves)
    }
}

fn once(seen: &mut bool, word: &'static str) -> Result<(), LayoutError> {
    if std::mem::replace(seen, true) { Err(LayoutError::Twice { word }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every path is a file of 128 MiB unless the path says otherwise.
    fn parse(words: &str) -> Result<PoolLayout, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let mut find = |name: &str| match name {
            _ if name.contains("nosuch") && name.starts_with('/') => {
                Err(PathProblem::Unresolved { path: name.to_owned() })
            }
            _ if name.starts_with('/') => Ok(DeviceName::file(name, 128 << 20)),
            _ => Err(PathProblem::NoDevice { name: name.to_owned() }),
        };
        PoolLayout::parse(&words, &mut find).map_err(|e| e.to_string())
    }

    #[test]
    fn vdevs_of_all_kinds() {
        let layout = parse(
            "mirror /a /b raidz2 /c /d /e special mirror /f /g dedup /h log /i mirror /j /k cache /l spare /m /n",
        )
        .expect("vdevs");
        let shape: Vec<_> = layout.tops.iter().map(|t| (t.kind, t.class, t.leaves.len())).collect();
        assert_eq!(
            shape,
            [
                (LayoutKind::Mirror, LayoutClass::Normal, 2),
                (LayoutKind::Raidz(2), LayoutClass::Normal, 3),
                (LayoutKind::Mirror, LayoutClass::Special, 2),
                (LayoutKind::Single, LayoutClass::Dedup, 1),
                (LayoutKind::Single, LayoutClass::Log, 1),
                (LayoutKind::Mirror, LayoutClass::Log, 2),
            ]
        );
        assert_eq!((layout.cache.len(), layout.spares.len()), (1, 2));
        assert!(layout.has_data());
    }

    #[test]
    fn what_the_real_tool_says_of_wrong_words() {
        let invalid = |text: &str| format!("invalid vdev specification: {text}");
        let no_device = |name: &str| {
            format!(
                "cannot open '{name}': no such device in /dev\nmust be a full path or shorthand device name"
            )
        };
        for (words, text) in [
            ("mirror", invalid("mirror requires at least 2 devices")),
            ("mirror /a mirror /b", invalid("mirror requires at least 2 devices")),
            ("/a mirror", invalid("mirror requires at least 2 devices")),
            ("raidz /a", invalid("raidz requires at least 2 devices")),
            ("raidz1 /a", invalid("raidz1 requires at least 2 devices")),
            ("raidz2 /a /b", invalid("raidz2 requires at least 3 devices")),
            ("raidz3 /a /b /c", invalid("raidz3 requires at least 4 devices")),
            ("/a log", invalid("log requires at least 1 device")),
            ("log", invalid("at least one toplevel vdev must be specified")),
            ("/a log log", invalid("'log' can be specified only once")),
            ("/a log /b log /c", invalid("'log' can be specified only once")),
            ("/a spare", invalid("spare requires at least 1 devices")),
            ("/a spare cache", invalid("spare requires at least 1 devices")),
            ("/a spare /b spare /c", invalid("'spare' can be specified only once")),
            ("/a cache", invalid("cache requires at least 1 devices")),
            ("/a cache mirror /b /c", invalid("cache requires at least 1 devices")),
            ("/a cache /b cache /c", invalid("'cache' can be specified only once")),
            ("/a log raidz /b /c", invalid("unsupported 'log' device: raidz")),
            ("/a log draid /b /c", invalid("unsupported 'log' device: draid")),
            ("/a special raidz /b /c", invalid("unsupported 'special' device: raidz")),
            ("dedup raidz /a /b /c", invalid("unsupported 'special' device: raidz")),
            ("special draid /a /b /c", invalid("unsupported 'special' device: draid")),
            ("draid /a", invalid("draid requires at least 2 devices")),
            ("draid2:4d:11c:1s /a /b", invalid("draid2:4d:11c:1s requires at least 3 devices")),
            ("mirror /nosuch", "cannot resolve path '/nosuch'".into()),
            ("raidz4 /a /b", no_device("raidz4")),
            ("raidz0 /a /b", no_device("raidz0")),
            ("raidz01 /a", no_device("raidz01")),
            ("raidz10 /a", no_device("raidz10")),
            ("draid4 /a", no_device("draid4")),
            ("MIRROR /a /b", no_device("MIRROR")),
            ("mirror-0 /a /b", no_device("mirror-0")),
            ("replacing /a /b", no_device("replacing")),
        ] {
            assert_eq!(parse(words), Err(text), "{words}");
        }
        let draid = parse("draid:1d /a /b /c").expect_err("not in this version");
        assert!(draid.contains("'draid:1d' is not supported by this version of Cenote"), "{draid}");
    }

    #[test]
    fn classes_may_stand_without_vdevs_and_more_than_once() {
        assert_eq!(parse("/a special").expect("a vdev").tops.len(), 1);
        assert_eq!(parse("mirror /a /b special /c special /d").expect("vdevs").tops.len(), 3);
        assert_eq!(parse("/a special log /b").expect("vdevs").tops.len(), 2);
        assert!(!parse("log /a").expect("a vdev").has_data());
    }
}
