//! `zpool wait`: what a pool is busy with in the background. The caller asks again until nothing is left.

use super::ReadRefusal;
use crate::Session;
use crate::change::{self, Activities};
use crate::verbs::{Right, Verb};
use serde::{Deserialize, Serialize};

/// A pool to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
}

impl Verb for Request {
    const NAME: &'static str = "zpool wait";
    const RIGHT: Right = Right::Anyone;
    type Answer = Activities;
    type Refusal = ReadRefusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Activities, ReadRefusal> {
        let pool = super::open(session, &self.pool)?;
        change::activities(&pool)
            .map_err(|error| ReadRefusal::NoProgress { pool: self.pool.clone(), reason: error.into() })
    }
}
