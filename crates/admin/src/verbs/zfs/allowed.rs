//! `zfs allow DATASET`: the permissions that hold at a dataset.
//!
//! Source: docs/on-disk/33-cli.md (section 8).

use super::allow::Holder;
pub use super::operand::OpenRefusal as Refusal;
use super::operand::{self, NotOpened};
use crate::Session;
use crate::edit;
use crate::verbs::{Right, Verb};
use dsl::delegation::{Allow, Scope};
use serde::{Deserialize, Serialize};

/// A dataset whose permissions are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full name of a file system or volume.
    pub dataset: String,
}

/// The permissions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// The dataset, then those above it, nearest first, as far as they have any.
    pub datasets: Vec<Permissions>,
}

/// The permissions that a dataset has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permissions {
    /// Full name.
    pub dataset: String,
    /// By holder.
    pub permits: Vec<Permit>,
}

/// Permissions of one holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permit {
    /// Who holds them.
    pub holder: Holder,
    /// Where they hold.
    pub place: Place,
    /// Names of permissions and, with `@` in front, of sets of them; sorted.
    pub permissions: Vec<String>,
}

/// Where permissions hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// At the dataset itself.
    Local,
    /// At the datasets below it.
    Descendent,
    /// Nowhere by themselves: they are a set, or are given to the user that makes a dataset below.
    Nowhere,
}

impl From<Allow> for Permit {
    fn from(allow: Allow) -> Permit {
        let place = match allow.scope {
            Scope::Local => Place::Local,
            Scope::Descendent => Place::Descendent,
            Scope::NotApplicable => Place::Nowhere,
        };
        Permit { holder: allow.who.into(), place, permissions: allow.permissions }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs allowed";
    const RIGHT: Right = Right::Anyone;
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let name = self.dataset.as_str();
        let view = operand::open_head(session, name).map_err(Refusal::Open)?;
        let all = edit::allowed(&view, name).map_err(|error| Refusal::Open(NotOpened::new(name, error)))?;
        let datasets = all.into_iter().map(|(dataset, permits)| {
            let permits = permits.into_iter().map(Permit::from).collect();
            Permissions { dataset, permits }
        });
        Ok(Answer { datasets: datasets.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{Code, Reason, carried};
    use dsl::delegation::Who;

    #[test]
    fn requests_answers_and_refusals_cross_a_process() {
        carried(&Request { dataset: "p/a".into() });
        let permissions = vec!["create".to_owned(), "@ops".to_owned()];
        let allow = Allow { who: Who::Everyone, scope: Scope::Descendent, permissions };
        let permits = vec![Permit::from(allow)];
        let answer = Answer { datasets: vec![Permissions { dataset: "p".into(), permits }] };
        let permit = &carried(&answer).datasets[0].permits[0];
        assert_eq!((&permit.holder, permit.place), (&Holder::Everyone, Place::Descendent));
        let reason = Reason::new(Code::NoPool, "no such pool 'p'");
        let refusal = Refusal::Open(NotOpened { name: "p/a".into(), reason });
        assert_eq!(carried(&refusal).to_string(), "cannot open 'p/a': dataset does not exist");
    }
}
