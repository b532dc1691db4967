//! `zfs upgrade`: raises the version of file systems. Without operands the command asks which could be upgraded:
//! [`super::outdated`].
//!
//! Source: docs/on-disk/33-cli.md (section 7).

use super::operand::{self, NotOpened};
use crate::Session;
use crate::edit::values::Setting;
use crate::edit::{self, EditError, FilesystemVersion};
use crate::verbs::{Denied, Reason, Right, Verb};
use serde::{Deserialize, Serialize};

/// File systems to upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Which.
    pub target: Target,
    /// The version that they get, 1 to 5.
    pub version: u64,
}

/// Which file systems are meant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Target {
    /// All file systems of all pools that can be opened (`-a`).
    #[default]
    All,
    /// These, by their full names.
    Named {
        /// Full names of file systems.
        filesystems: Vec<String>,
        /// Also all file systems below (`-r`).
        recursive: bool,
    },
}

/// What became of the file systems.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Full names of those that were upgraded.
    pub upgraded: Vec<String>,
    /// Full names of those that had the version.
    pub already: Vec<String>,
    /// Those that keep their version, and why.
    pub refused: Vec<NotUpgraded>,
}

/// Why a file system keeps its version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum NotUpgraded {
    /// It cannot be opened, or is none.
    #[error("{0}")]
    Open(NotOpened),
    /// It has a newer version.
    #[error("{name}: can not be downgraded; it is already at version {version}")]
    Newer {
        /// Full name of the file system.
        name: String,
        /// Its version.
        version: u64,
    },
    /// It cannot be changed.
    #[error("cannot set property for '{name}': {reason}")]
    Failed {
        /// Full name of the file system.
        name: String,
        /// Why.
        reason: Reason,
    },
}

impl Verb for Request {
    const NAME: &'static str = "zfs upgrade";
    const RIGHT: Right = Right::Delegated(&["version"]);
    type Answer = Answer;
    type Refusal = Denied;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Denied> {
        let mut answer = Answer::default();
        match &self.target {
            Target::All => {
                let (pools, _) = session.pools(&[]);
                let roots: Vec<String> = pools.iter().map(|pool| pool.name().to_owned()).collect();
                drop(pools);
                roots.iter().for_each(|root| self.upgrade_from(session, root, true, &mut answer));
            }
            Target::Named { filesystems, recursive } => {
                filesystems.iter().for_each(|name| self.upgrade_from(session, name, *recursive, &mut answer));
            }
        }
        Ok(answer)
    }
}

impl Request {
    /// Upgrades a file system and, with `recursive`, those below it.
    fn upgrade_from(&self, session: &mut Session<'_>, root: &str, recursive: bool, answer: &mut Answer) {
        let found = match versions(session, root, recursive) {
            Ok(found) => found,
            Err(closed) => return answer.refused.push(NotUpgraded::Open(closed)),
        };
        for FilesystemVersion { name, version } in found {
            if version == self.version {
                answer.already.push(name);
            } else if version > self.version {
                answer.refused.push(NotUpgraded::Newer { name, version });
            } else {
                match self.upgrade(session, &name) {
                    Ok(()) => answer.upgraded.push(name),
                    Err(error) => answer.refused.push(NotUpgraded::Failed { name, reason: error.into() }),
                }
            }
        }
    }

    fn upgrade(&self, session: &mut Session<'_>, name: &str) -> Result<(), EditError> {
        let pool = session.writer(name)?;
        edit::set(&pool, name, &[Setting::Version(self.version)])?;
        session.note_change(name);
        Ok(())
    }
}

/// The file systems that are meant, with their versions. The one that is named must be a file system.
fn versions(
    session: &mut Session<'_>,
    root: &str,
    recursive: bool,
) -> Result<Vec<FilesystemVersion>, NotOpened> {
    let view = operand::open_head(session, root)?;
    let closed = |error: EditError| NotOpened::new(root, error);
    let own = edit::filesystem_versions(&view, root, false).map_err(closed)?;
    if recursive { edit::filesystem_versions(&view, root, true).map_err(closed) } else { Ok(own) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{Code, carried};

    #[test]
    fn requests_and_answers_cross_a_process() {
        let target = Target::Named { filesystems: vec!["tank/a".into()], recursive: true };
        carried(&Request { target, version: 5 });
        let reason = Reason::new(Code::NoDataset, "dataset does not exist");
        let closed = NotOpened { name: "tank/b".into(), reason };
        let refused = [
            NotUpgraded::Open(closed),
            NotUpgraded::Newer { name: "tank".into(), version: 5 },
            NotUpgraded::Failed { name: "tank/c".into(), reason: Denied.into() },
        ];
        let answer = Answer { refused: refused.to_vec(), ..Answer::default() };
        let told: Vec<String> = carried(&answer).refused.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "cannot open 'tank/b': dataset does not exist",
                "tank: can not be downgraded; it is already at version 5",
                "cannot set property for 'tank/c': permission denied",
            ]
        );
    }
}
