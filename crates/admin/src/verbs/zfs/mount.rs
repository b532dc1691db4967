//! `zfs mount`: mounts file systems where their properties say, or one where the caller says.
//!
//! # Order
//! The target is looked up -> the caller's right to mount -> the file systems are mounted, those above before those
//! below.
//!
//! # What always holds
//! - Only the administrator mounts; a directory that another caller names is not looked up.
//!
//! Source: docs/on-disk/33-cli.md (sections 1.3, 7); [`crate::mounting`].

use crate::mounting::{MountAction, MountRefusal, MountRequest, Mounting, Obstacle};
use crate::verbs::{Code, Denied, Reason, Refused, Right, Verb};
use crate::{OpenPool, Session, open_pools, pool_io};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What is to be mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// All file systems of all pools that mount by themselves (`-a`).
    All,
    /// A file system and all below it that mount by themselves (`-R`).
    Below(String),
    /// One file system, where its properties say.
    One(String),
    /// A file system or snapshot in a directory of the caller's choice, as `mount(8)` does it.
    At {
        /// Its full name, or the path of a device, for the root file system of the device's pool.
        source: String,
        /// The directory.
        directory: PathBuf,
    },
}

/// File systems to mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// What is to be mounted.
    pub target: Target,
    /// Directories that are not empty are mounted over (`-O`).
    #[serde(default)]
    pub overlay: bool,
    /// File systems that were received from redacted streams are mounted, too (`-f`).
    #[serde(default)]
    pub force: bool,
    /// Mount options (`-o`), in order.
    #[serde(default)]
    pub options: Vec<String>,
    /// Nothing is mounted: only whether the target exists is checked.
    #[serde(default)]
    pub check_only: bool,
}

/// The file systems are mounted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Those of several that are not, and why.
    pub not_mounted: Vec<MountRefusal>,
}

/// Why nothing is mounted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// This process mounts nothing.
    #[error("cannot mount: mounts need the daemon (unset CENOTE_DIRECT to use it)")]
    NoMounts,
    /// A device belongs to no imported pool.
    #[error("'{device}' is in no imported pool")]
    NotInPool {
        /// Path of the device.
        device: String,
    },
    /// The file system is not mounted.
    #[error("{0}")]
    Mount(MountRefusal),
}

impl Refusal {
    /// True if the key of the file system is missing, and nothing else is known to be in the way.
    pub fn is_locked(&self) -> bool {
        matches!(self, Refusal::Mount(refusal) if refusal.is_locked())
    }
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Refusal {
        Refusal::Denied(denied.into())
    }
}

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason) => reason.clone(),
            Refusal::NoMounts => Reason::new(Code::Unsupported, self),
            Refusal::NotInPool { .. } => Reason::new(Code::NoPool, self),
            Refusal::Mount(refusal) => refusal.into(),
        }
    }
}

impl Request {
    /// A target with its own options.
    pub fn of(target: Target) -> Request {
        Request { target, overlay: false, force: false, options: Vec::new(), check_only: false }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs mount";
    const RIGHT: Right = Right::Delegated(&["mount"]);
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let mounting = session.mounting().ok_or(Refusal::NoMounts)?;
        let request =
            MountRequest { overlay: self.overlay, force: self.force, options: self.options.clone() };
        let below = match &self.target {
            Target::All => None,
            Target::Below(name) => Some(name.as_str()),
            Target::One(name) if self.check_only => return place(&mounting, name),
            Target::One(name) => return done(mounting.mount(name, &request)),
            Target::At { source, directory } => return self.mount_at(session, &mounting, source, directory),
        };
        match below {
            Some(name) if self.check_only => place(&mounting, name),
            None if self.check_only => Ok(Answer::default()),
            below => {
                let mut tell = session.progress_listener();
                let not_mounted = mounting.mount_all_telling(below, &request, &mut tell);
                Ok(Answer { not_mounted })
            }
        }
    }
}

impl Request {
    fn mount_at(
        &self,
        session: &Session<'_>,
        mounting: &Mounting,
        source: &str,
        directory: &Path,
    ) -> Result<Answer, Refusal> {
        // The directory is named by the caller, not by the dataset.
        if !session.is_administrator() {
            let (what, why) = (source.to_owned(), Obstacle::Denied);
            return Err(Refusal::Mount(MountRefusal { action: MountAction::Mount, what, why }));
        }
        let name = match source.starts_with('/') {
            true => {
                pool_with(session, source).ok_or_else(|| Refusal::NotInPool { device: source.to_owned() })?
            }
            false => source.to_owned(),
        };
        match self.check_only {
            true => place(mounting, &name),
            false => done(mounting.mount_at(&name, directory, &self.options)),
        }
    }
}

fn done(outcome: Result<(), MountRefusal>) -> Result<Answer, Refusal> {
    outcome.map(|()| Answer::default()).map_err(Refusal::Mount)
}

/// Checks that a file system exists.
fn place(mounting: &Mounting, name: &str) -> Result<Answer, Refusal> {
    done(mounting.properties(name).map(drop))
}

/// The imported pool that has a device.
fn pool_with(session: &Session<'_>, device: &str) -> Option<String> {
    let (pools, _) = open_pools(session.search(), &[]);
    let has_it = |pool: &&OpenPool| {
        pool_io(pool).is_ok_and(|io| io.vdevs.root.walk().iter().any(|v| v.path.as_deref() == Some(device)))
    };
    pools.iter().find(has_it).map(|pool| pool.name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::carried;

    #[test]
    fn refusals_cross_a_process() {
        let refusal = Refusal::NotInPool { device: "/dev/sda".into() };
        assert_eq!(carried(&refusal).to_string(), "'/dev/sda' is in no imported pool");
        let text = "cannot mount: mounts need the daemon (unset CENOTE_DIRECT to use it)";
        assert_eq!(carried(&Refusal::NoMounts).to_string(), text);
        let request = Request::of(Target::At { source: "tank".into(), directory: "/mnt".into() });
        assert_eq!(carried(&request), request);
    }
}
