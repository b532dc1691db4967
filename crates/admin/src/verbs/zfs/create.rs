//! `zfs create`: makes a file system or volume, and mounts it.
//!
//! # Order
//! The name is checked -> what is made is worked out ([`Plan`]) -> missing ancestors are made and mounted (`-p`) ->
//! the properties and the caller's permissions are checked -> the dataset is made in one transaction group -> it is
//! mounted (not with `-u`).
//!
//! # What always holds
//! - A dry run looks at the properties only, and changes nothing.
//!
//! Source: docs/on-disk/33-cli.md (sections 1.3, 7), 22-mos-dsl.md (section 5), 25-zvol.md (section 5).

use super::{NotMounted, lines, mounts, set};
use crate::Session;
use crate::edit::names;
use crate::edit::{self, DEFAULT_VOLUME_BLOCK, EditError, NewDataset, NewKind};
use crate::verbs::{Code, Denied, Reason, Refused, Right, Verb, Warning};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A dataset to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Full name.
    pub name: String,
    /// A file system or a volume.
    pub kind: NewKind,
    /// Properties (`-o`, `-b`), without the size of a volume.
    #[serde(default)]
    pub properties: Vec<(String, String)>,
    /// Missing file systems above it are made; a dataset that exists already is no error (`-p`).
    #[serde(default)]
    pub parents: bool,
    /// The file system is not mounted (`-u`).
    #[serde(default)]
    pub unmounted: bool,
    /// Only the plan is wanted (`-n`).
    #[serde(default)]
    pub dry_run: bool,
}

/// The figures of what is made, or would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// Size of the volume in bytes, rounded up to whole blocks; 0 of a file system.
    pub volume_size: u64,
    /// Bytes that the volume reserves by itself.
    pub reservation: Option<u64>,
}

/// The dataset exists; after a dry run, it could be made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// What was made, or would be; `None`: the dataset existed.
    pub plan: Option<Plan>,
    /// Ancestors that were made and are not mounted.
    pub ancestors_not_mounted: Vec<NotMounted>,
    /// The dataset, if it is not mounted and should be.
    pub not_mounted: Vec<NotMounted>,
    /// Where the file system is mounted, if its mount point was given and only root mounts there.
    pub mounted_elsewhere: Option<PathBuf>,
}

/// Why the dataset was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{}{why}", lines(ancestors_not_mounted))]
pub struct Refusal {
    /// What was to be made, if that was worked out.
    pub plan: Option<Plan>,
    /// Ancestors that were made and are not mounted.
    pub ancestors_not_mounted: Vec<NotMounted>,
    /// Why.
    pub why: Why,
}

/// Why a dataset was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Why {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// The pool cannot be opened for a dry run.
    #[error("{}", match reason.code {
        Code::NoPool => format!("cannot open '{pool}': no such pool"),
        _ => reason.cannot_open(pool),
    })]
    Open {
        /// Name of the pool.
        pool: String,
        /// Why.
        reason: Reason,
    },
    /// A dry run found a property that cannot be set.
    #[error("cannot verify '{name}': {reason}")]
    NotVerified {
        /// Full name.
        name: String,
        /// Why.
        reason: Reason,
    },
    /// It cannot be made.
    #[error("cannot create '{name}': {reason}")]
    NotMade {
        /// Full name of the dataset, or of the ancestor that would have been made first.
        name: String,
        /// Why.
        reason: Reason,
    },
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Refusal {
        Refusal { plan: None, ancestors_not_mounted: Vec::new(), why: Why::Denied(denied.into()) }
    }
}

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match &self.why {
            Why::Denied(reason)
            | Why::Open { reason, .. }
            | Why::NotVerified { reason, .. }
            | Why::NotMade { reason, .. } => reason.clone(),
        }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs create";
    const RIGHT: Right = Right::Delegated(&["create", "mount"]);
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let mut answer = Answer::default();
        let outcome = match self.dry_run {
            true => self.verify(session, &mut answer),
            false => self.create(session, &mut answer),
        };
        match outcome {
            Ok(()) => Ok(answer),
            Err(why) => {
                let Answer { plan, ancestors_not_mounted, .. } = answer;
                Err(Refusal { plan, ancestors_not_mounted, why })
            }
        }
    }
}

impl Request {
    /// A file system without properties of its own.
    pub fn filesystem(name: impl Into<String>) -> Request {
        Request {
            name: name.into(),
            kind: NewKind::Filesystem,
            properties: Vec::new(),
            parents: false,
            unmounted: false,
            dry_run: false,
        }
    }

    fn not_made(&self, error: impl Into<EditError>) -> Why {
        Why::NotMade { name: self.name.clone(), reason: error.into().into() }
    }

    fn new_dataset(&self) -> NewDataset {
        NewDataset { name: self.name.clone(), kind: self.kind, props: self.properties.clone() }
    }

    fn is_volume(&self) -> bool {
        self.kind != NewKind::Filesystem
    }

    /// Works out what would be made. Only properties are looked at, as the real tool does it.
    fn verify(&self, session: &mut Session<'_>, answer: &mut Answer) -> Result<(), Why> {
        let pool = session.writer(&self.name).map_err(|error| Why::Open {
            pool: edit::pool_of(&self.name).to_owned(),
            reason: error.into(),
        })?;
        let new = self.new_dataset();
        self.warn_of_block_size(session, &new);
        let not_verified =
            |error: EditError| Why::NotVerified { name: self.name.clone(), reason: error.into() };
        new.settings(pool.live()).map_err(not_verified)?;
        let reservation = new.reservation(pool.live()).map_err(not_verified)?;
        answer.plan = Some(Plan { volume_size: new.volume_size().unwrap_or(0), reservation });
        Ok(())
    }

    fn create(&self, session: &mut Session<'_>, answer: &mut Answer) -> Result<(), Why> {
        let name = self.name.as_str();
        names::check_new(name).map_err(|error| self.not_made(error))?;
        if self.parents && self.exists(session)? {
            return Ok(());
        }
        let pool = session.writer(name).map_err(|error| match self.parent_to_make(session) {
            Some(above) if error.is_read_only() => Why::NotMade { name: above, reason: error.into() },
            _ => self.not_made(error),
        })?;
        let new = self.new_dataset();
        self.warn_of_block_size(session, &new);
        let view = session.view(name).map_err(|error| self.not_made(error))?;
        set::small_blocks(&self.properties, &view).into_iter().for_each(|warning| session.warn(warning));
        let reservation = new.reservation(pool.live()).unwrap_or(None);
        answer.plan = Some(Plan { volume_size: new.volume_size().unwrap_or(0), reservation });
        if self.parents {
            let made = edit::create_ancestors(&pool, name).map_err(|error| self.not_made(error))?;
            if !made.is_empty() {
                session.note_change(name);
            }
            if !self.unmounted {
                answer.ancestors_not_mounted = mounts::mount_new(session, &made);
            }
        }
        edit::create(&pool, &new).map_err(|error| self.not_made(error))?;
        session.note_change(name);
        if !self.is_volume() && !self.unmounted {
            answer.not_mounted = mounts::mount_new(session, std::slice::from_ref(&self.name));
            answer.mounted_elsewhere = mounts::elsewhere(session, name, &self.properties);
        }
        Ok(())
    }

    /// The first of the datasets above the new one that `-p` would make.
    fn parent_to_make(&self, session: &mut Session<'_>) -> Option<String> {
        let view = session.view(&self.name).ok().filter(|_| self.parents)?;
        let slashes = self.name.match_indices('/').map(|(at, _)| at);
        let mut above = slashes.filter_map(|at| self.name.get(..at));
        above.find(|name| view.dataset(name).is_err()).map(str::to_owned)
    }

    fn exists(&self, session: &mut Session<'_>) -> Result<bool, Why> {
        let found = session.view(&self.name).and_then(|pool| Ok(pool.dataset(&self.name)?));
        match found {
            Ok(_) => Ok(true),
            Err(EditError::NoDataset { .. }) => Ok(false),
            Err(other) => Err(self.not_made(other)),
        }
    }

    /// Small blocks of volumes cost space.
    fn warn_of_block_size(&self, session: &mut Session<'_>, new: &NewDataset) {
        let block_size = new.block_size().unwrap_or(DEFAULT_VOLUME_BLOCK);
        let is_block = block_size.is_power_of_two() && block_size >= 512;
        if self.is_volume() && is_block && block_size < DEFAULT_VOLUME_BLOCK {
            session.warn(Warning::SmallVolumeBlock { block_size, recommended: DEFAULT_VOLUME_BLOCK });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::carried;

    #[test]
    fn refusals_are_in_the_words_of_openzfs() {
        let text = |why| {
            let plan = Some(Plan { volume_size: 7, reservation: None });
            carried(&Refusal { plan, ancestors_not_mounted: Vec::new(), why }).to_string()
        };
        let request = Request {
            kind: NewKind::Volume { size: 1 << 20, sparse: true },
            ..Request::filesystem("tank/a")
        };
        assert_eq!(carried(&request), request);
        assert_eq!(text(request.not_made(EditError::NoSpace)), "cannot create 'tank/a': out of space");
        let open = |error: EditError| text(Why::Open { pool: "tank".into(), reason: error.into() });
        assert_eq!(open(EditError::NoPool { pool: "tank".into() }), "cannot open 'tank': no such pool");
        assert_eq!(open(EditError::Denied), "cannot open 'tank': permission denied");
    }

    #[test]
    fn small_blocks_of_volumes_are_warned_of() {
        let warning = Warning::SmallVolumeBlock { block_size: 4096, recommended: DEFAULT_VOLUME_BLOCK };
        assert_eq!(
            carried(&warning).to_string(),
            "Warning: volblocksize (4096) is less than the default minimum block size (16384).\n\
             To reduce wasted space a volblocksize of 16384 is recommended."
        );
    }
}
