//! Places: where a policy replicates from and to.
//!
//! # What always holds
//! - No part of a place can become an option of `ssh` or `zfs`, or a command of a remote shell: names and hosts have
//!   few characters and begin with none that options begin with.

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// One side of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A dataset of this machine: `pool/fs`.
    Here {
        /// Full name of the dataset.
        dataset: String,
    },
    /// A dataset of another machine, by the system's ssh: `ssh://[user@]host[:port]/pool/fs`.
    Ssh {
        /// Name to log in with; `None`: what ssh chooses.
        user: Option<String>,
        /// Name or address of the machine.
        host: String,
        /// Port; `None`: what ssh chooses.
        port: Option<u16>,
        /// Full name of the dataset there.
        dataset: String,
    },
    /// A dataset behind any command, to which the words of `zfs …` are appended.
    Command {
        /// The command and its first arguments.
        command: Vec<String>,
        /// Full name of the dataset there.
        dataset: String,
    },
    /// A folder of streams: `file:///folder`.
    Files {
        /// Absolute path of the folder.
        folder: PathBuf,
    },
}

/// Why a text is no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// The name of a dataset has other characters than names have.
    #[error("'{name}' is not the name of a dataset")]
    Dataset {
        /// The name.
        name: String,
    },
    /// The host or user of an ssh address.
    #[error("'{host}' is not a host, or user@host, with an optional port")]
    Host {
        /// What stands there.
        host: String,
    },
    /// A folder that is not named from the root on.
    #[error("'{path}' is not an absolute path: file:///folder")]
    Folder {
        /// What stands there.
        path: String,
    },
    /// The command has no words.
    #[error("the command is empty")]
    NoCommand,
}

/// Checks the full name of a dataset: words of letters, digits, `_`, `-`, `.`, `:` and space, separated by `/`, the
/// first beginning with a letter.
///
/// # Errors
/// [`PlaceError::Dataset`].
pub fn check_dataset(name: &str) -> Result<(), PlaceError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.: ".contains(c);
    let is_word = |word: &str| !word.is_empty() && word != "." && word != ".." && word.chars().all(is_plain);
    let is_good = name.len() < 256
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.split('/').all(is_word);
    if is_good { Ok(()) } else { Err(PlaceError::Dataset { name: name.to_owned() }) }
}

fn check_host(text: &str) -> Result<(Option<String>, String, Option<u16>), PlaceError> {
    let wrong = || PlaceError::Host { host: text.to_owned() };
    let (user, rest) = match text.split_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, text),
    };
    let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or_else(wrong)?)),
        None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
    };
    let is_good = |word: &str, also: &str| {
        let begins = word.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':');
        begins && word.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c))
    };
    if !is_good(host, "._-:%") || user.is_some_and(|user| !is_good(user, "._-")) {
        return Err(wrong());
    }
    let port = port.map(|port| port.parse::<u16>().map_err(|_| wrong())).transpose()?;
    Ok((user.map(str::to_owned), host.to_owned(), port))
}

impl Place {
    /// Full name of the dataset at this place; of a folder of streams, the name of its first dataset.
    pub fn dataset(&self) -> &str {
        match self {
            Place::Here { dataset } | Place::Ssh { dataset, .. } | Place::Command { dataset, .. } => dataset,
            Place::Files { .. } => super::files::ROOT,
        }
    }

    /// The place of a dataset below: `below` is empty, or begins with a slash.
    ///
    /// # Errors
    /// [`PlaceError::Dataset`]: the name is too long, or none.
    pub(super) fn below(&self, below: &str) -> Result<Place, PlaceError> {
        let mut place = self.clone();
        match &mut place {
            Place::Here { dataset } | Place::Ssh { dataset, .. } | Place::Command { dataset, .. } => {
                dataset.push_str(below);
                check_dataset(dataset)?;
            }
            Place::Files { folder } => {
                // Words of names of datasets are names of folders, `..` is none.
                check_dataset(&format!("folder{below}"))?;
                folder.extend(below.split('/').filter(|word| !word.is_empty()));
            }
        }
        Ok(place)
    }

    /// True if a process is started for it that can be anything.
    pub fn is_command(&self) -> bool {
        matches!(self, Place::Command { .. })
    }
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Place, PlaceError> {
        if let Some(rest) = text.strip_prefix("file://") {
            let folder = PathBuf::from(rest);
            let is_good = folder.is_absolute() && !rest.contains('\0');
            return match is_good {
                true => Ok(Place::Files { folder }),
                false => Err(PlaceError::Folder { path: rest.to_owned() }),
            };
        }
        if let Some(rest) = text.strip_prefix("ssh://") {
            let (host, dataset) = rest.split_once('/').unwrap_or((rest, ""));
            let (user, host, port) = check_host(host)?;
            check_dataset(dataset)?;
            return Ok(Place::Ssh { user, host, port, dataset: dataset.to_owned() });
        }
        check_dataset(text)?;
        Ok(Place::Here { dataset: text.to_owned() })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Here { dataset } => f.write_str(dataset),
            Place::Ssh { user, host, port, dataset } => {
                f.write_str("ssh://")?;
                user.iter().try_for_each(|user| write!(f, "{user}@"))?;
                if host.contains(':') {
                    write!(f, "[{host}]")?
                } else {
                    f.write_str(host)?
                }
                port.iter().try_for_each(|port| write!(f, ":{port}"))?;
                write!(f, "/{dataset}")
            }
            Place::Command { command, dataset } => write!(f, "{} zfs: {dataset}", command.join(" ")),
            Place::Files { folder } => write!(f, "file://{}", folder.display()),
        }
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The table `{ command = ["…"], dataset = "pool/fs" }`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandTable {
    command: Vec<String>,
    dataset: String,
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Place, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Place;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a dataset, ssh://host/dataset, file:///folder, or { command, dataset }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Place, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Place, A::Error> {
                let table = CommandTable::deserialize(de::value::MapAccessDeserializer::new(map))?;
                check_dataset(&table.dataset).map_err(de::Error::custom)?;
                if table.command.first().is_none_or(String::is_empty) {
                    return Err(de::Error::custom(PlaceError::NoCommand));
                }
                Ok(Place::Command { command: table.command, dataset: table.dataset })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_told() {
        for text in [
            "tank/home",
            "tank/a b:c.d-e_f",
            "ssh://host/tank",
            "ssh://root@host.example:2222/tank/x",
            "ssh://[fe80::1%eth0]:22/tank",
            "file:///backup/home",
        ] {
            assert_eq!(text.parse::<Place>().map(|place| place.to_string()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn nothing_becomes_an_option_or_a_command() {
        for text in [
            "",
            "-r",
            "tank//a",
            "tank/../a",
            "tank/a@b",
            "tank/$(id)",
            "tank/a;id",
            "1tank",
            "ssh://-oProxyCommand=id/tank",
            "ssh://-l@host/tank",
            "ssh://ho st/tank",
            "ssh://host:x/tank",
            "ssh://host:99999/tank",
            "ssh://host/-tank",
            "ssh://host",
            "file://folder",
        ] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
