//! `zpool wait`: what a pool is busy with in the background. The caller asks again until nothing is left.

use crate::Session;
use crate::change::{self, Activities};
use crate::verbs::{Code, Reason, Refused, Right, Verb};
use serde::{Deserialize, Serialize};

/// A pool to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
}

/// Why the pool cannot be looked at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may not look.
    #[error("{0}")]
    Denied(Reason),
    /// The pool or some of its devices cannot be opened.
    #[error("{}", messages.join("\n"))]
    Closed {
        /// The lines that say why.
        messages: Vec<String>,
    },
    /// The objects of the pool cannot be read.
    #[error("failed to check progress of {pool}: {reason}")]
    Unreadable {
        /// Name of the pool.
        pool: String,
        /// Why.
        reason: Reason,
    },
}

from_denied!(Refusal, Refusal::Denied);

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason) | Refusal::Unreadable { reason, .. } => reason.clone(),
            Refusal::Closed { .. } => Reason::new(Code::NoPool, self),
        }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zpool wait";
    const RIGHT: Right = Right::Anyone;
    type Answer = Activities;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Activities, Refusal> {
        let (pools, problems) = crate::open_pools(session.search(), std::slice::from_ref(&self.pool));
        let Some(pool) = pools.first() else {
            return Err(Refusal::Closed { messages: problems.iter().map(ToString::to_string).collect() });
        };
        change::activities(pool)
            .map_err(|error| Refusal::Unreadable { pool: self.pool.clone(), reason: error.into() })
    }
}
