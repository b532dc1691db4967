//! `zfs wait`: what a file system is busy with in the background. The caller asks again until nothing is left.
//!
//! Source: docs/on-disk/33-cli.md (section 2).

pub use super::operand::OpenRefusal as Refusal;
use super::operand::{self, NotOpened};
use crate::verbs::{Right, Verb};
use crate::{AdminError, Kind, Session};
use serde::{Deserialize, Serialize};

/// A file system to look at.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full name.
    pub filesystem: String,
}

/// What is left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Number of files that have lost their last name and wait to be freed: they are large, or a program has them open.
    /// None if the file system is not mounted, as nothing frees them then.
    pub files_to_free: u64,
}

impl Verb for Request {
    const NAME: &'static str = "zfs wait";
    const RIGHT: Right = Right::Anyone;
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let files_to_free = self
            .files_to_free(session)
            .map_err(|error| Refusal::Open(NotOpened::new(self.filesystem.as_str(), error)))?;
        Ok(Answer { files_to_free })
    }
}

impl Request {
    fn files_to_free(&self, session: &mut Session<'_>) -> Result<u64, AdminError> {
        let name = self.filesystem.as_str();
        let pool = name.split('/').next().unwrap_or_default();
        // What was removed a moment ago is in the set on disk then.
        session.sync(pool)?;
        let (pools, _) = session.pools(&[pool.to_owned()]);
        if operand::find_name(session, &pools, name)?.kind() != Kind::Filesystem {
            return Err(AdminError::NotAFilesystem { name: name.to_owned() });
        }
        let is_mounted = |mounted: &std::collections::BTreeMap<_, _>| mounted.contains_key(name);
        let Some(pool) = pools.first().filter(|pool| pool.mounted.as_deref().is_some_and(is_mounted)) else {
            return Ok(0);
        };
        let files = pool.pool().dataset(name).and_then(|dataset| dataset.filesystem())?;
        Ok(files.filesystem().unlinked().map_err(cenote::Error::from)?.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{Code, Refused, carried};

    #[test]
    fn requests_answers_and_refusals_cross_a_process() {
        carried(&Request { filesystem: "tank/a".into() });
        carried(&Answer { files_to_free: 3 });
        let error = AdminError::NotAFilesystem { name: "tank/v".into() };
        let refusal = Refusal::Open(NotOpened::new("tank/v", error));
        assert_eq!(
            carried(&refusal).to_string(),
            "cannot open 'tank/v': operation not applicable to datasets of this type"
        );
        assert_eq!(refusal.reason().code, Code::WrongKind);
    }
}
