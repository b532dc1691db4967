//! `zfs set`: sets properties of a dataset.
//!
//! # Order
//! Names and values are checked -> what moves is unmounted -> the caller's permissions -> the properties are stored in
//! one transaction group -> what was unmounted is mounted where it belongs now, and other mounts follow the properties.
//!
//! # What always holds
//! - Where the caller is denied it, mounts have the options that they had before.
//!
//! Source: docs/on-disk/33-cli.md (sections 1.3, 7), 22-mos-dsl.md (section 7).

use super::operand::NotOpened;
use super::{lines, mounts};
use crate::Session;
use crate::edit::names::{self, Form};
use crate::edit::values::{self, Setting, ValueError};
use crate::edit::{self, EditError};
use crate::mounting::MountRefusal;
use crate::verbs::{Code, Denied, Reason, Refused, Right, Verb, Warning};
use cenote::Pool;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Properties to set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full name of the dataset.
    pub dataset: String,
    /// Names and values, as users type them.
    pub properties: Vec<(String, String)>,
    /// File systems stay mounted where they are (`-u`).
    pub stay_mounted: bool,
}

/// The properties are set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// What is strange about the properties.
    pub warnings: Vec<Warning>,
    /// Where the file system is mounted, if its mount point was set and only root mounts there.
    pub mounted_elsewhere: Option<PathBuf>,
}

/// Why not all properties are set, or not all that was mounted is mounted again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{}{why}", lines(warnings))]
pub struct Refusal {
    /// What is strange about the properties.
    pub warnings: Vec<Warning>,
    /// Why.
    pub why: Why,
}

/// Why not all properties are set, or not all that was mounted is mounted again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Why {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// The dataset cannot be opened.
    #[error("{0}")]
    Open(NotOpened),
    /// A file system cannot be unmounted; nothing was set.
    #[error("{0}")]
    Mount(MountRefusal),
    /// A property cannot be set. Where several were to be set, some may be.
    #[error("cannot set property for '{dataset}': {reason}")]
    NotSet {
        /// Full name of the dataset.
        dataset: String,
        /// Why.
        reason: Reason,
    },
    /// The properties are set, and these are not mounted.
    #[error("{}", lines(refusals).trim_end())]
    NotMounted {
        /// What is not mounted, and why.
        refusals: Vec<MountRefusal>,
    },
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Refusal {
        Refusal { warnings: Vec::new(), why: Why::Denied(denied.into()) }
    }
}

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match &self.why {
            Why::Denied(reason) | Why::Open(NotOpened { reason, .. }) | Why::NotSet { reason, .. } => {
                reason.clone()
            }
            Why::Mount(refusal) => refusal.into(),
            Why::NotMounted { refusals } => {
                refusals.first().map_or_else(|| Reason::new(Code::Mount, ""), Reason::from)
            }
        }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs set";
    const RIGHT: Right = Right::Delegated(&["userprop"]);
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let mut warnings = Vec::new();
        match self.set(session, &mut warnings) {
            Ok(mounted_elsewhere) => Ok(Answer { warnings, mounted_elsewhere }),
            Err(why) => Err(Refusal { warnings, why }),
        }
    }
}

impl Request {
    fn closed(&self, error: impl Into<EditError>) -> Why {
        Why::Open(NotOpened::new(self.dataset.as_str(), Into::<EditError>::into(error)))
    }

    fn refused(&self, error: impl Into<EditError>) -> Why {
        let mut reason = Reason::from(error.into());
        if reason.code == Code::NoSpace {
            // For a dataset that exists, a reservation is meant.
            reason.message = "size is greater than available space".into();
        }
        Why::NotSet { dataset: self.dataset.clone(), reason }
    }

    fn set(&self, session: &mut Session<'_>, warnings: &mut Vec<Warning>) -> Result<Option<PathBuf>, Why> {
        let name = self.dataset.as_str();
        names::check(name, Form::Any).map_err(|error| self.closed(error))?;
        let view = session.view(name).map_err(|error| self.closed(error))?;
        let dataset = view.dataset(name).map_err(|error| self.closed(error))?;
        if self.properties.is_empty() {
            return Ok(None);
        }
        let subject = edit::subject(&dataset).map_err(|error| self.refused(error))?;
        let pool = match session.writer(name) {
            Err(error) if !error.is_read_only() => return Err(self.closed(error)),
            pool => pool,
        };
        let features = pool.as_ref().ok().map(|pool| pool.live().features());
        let is_enabled = |feature: &str| features.as_ref().is_none_or(|f| f.is_enabled(feature));
        let settings: Result<Vec<Setting>, ValueError> = self
            .properties
            .iter()
            .map(|(property, text)| values::resolve(property, text, &subject, &is_enabled))
            .collect();
        if matches!(settings, Ok(_) | Err(ValueError::SmallBlocks { .. })) {
            warnings.extend(small_blocks(&self.properties, &view));
        }
        let settings = settings.map_err(|error| self.refused(error))?;
        let pool = pool.map_err(|error| self.refused(error))?;
        let change = self.begin(session).map_err(Why::Mount)?;
        let done = edit::set(&pool, name, &settings);
        let refusals = change.finish(&done);
        done.map_err(|error| self.refused(error))?;
        session.note_change(name);
        if !refusals.is_empty() {
            return Err(Why::NotMounted { refusals });
        }
        Ok(match self.stay_mounted {
            true => None,
            false => mounts::elsewhere(session, name, &self.properties),
        })
    }

    /// Unmounts what moves.
    fn begin(&self, session: &Session<'_>) -> Result<mounts::PropertyChange, MountRefusal> {
        let properties = self.properties.iter().map(|(name, _)| name.as_str());
        let properties: Vec<&str> =
            properties.filter(|name| !self.stay_mounted || *name != "mountpoint").collect();
        let is_off = |(name, value): &(String, String)| name == "canmount" && value == "off";
        let is_canmount_off = self.properties.iter().any(is_off);
        mounts::PropertyChange::begin(session, &self.dataset, &properties, is_canmount_off)
    }
}

/// A warning of small blocks for which the pool has no devices.
pub(super) fn small_blocks(properties: &[(String, String)], pool: &Pool) -> Option<Warning> {
    let is_given = properties.iter().any(|(name, _)| name == "special_small_blocks");
    (is_given && !edit::has_special(pool)).then_some(Warning::NoSpecialDevice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::carried;

    #[test]
    fn refusals_are_in_the_words_of_openzfs() {
        let request = Request { dataset: "tank/a".into(), ..Request::default() };
        let text =
            |warnings: &[Warning], why| carried(&Refusal { warnings: warnings.to_vec(), why }).to_string();
        assert_eq!(
            text(&[Warning::NoSpecialDevice], request.refused(EditError::NoSpace)),
            "special_small_blocks: property requires a special device in the pool\n\
             cannot set property for 'tank/a': size is greater than available space"
        );
        assert_eq!(
            text(&[], request.closed(EditError::NoPool { pool: "tank".into() })),
            "cannot open 'tank/a': dataset does not exist"
        );
    }
}
