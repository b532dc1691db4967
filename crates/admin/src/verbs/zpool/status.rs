//! `zpool status`: what ails pools, their vdevs with the errors that were counted, and their background work.
//!
//! # Order
//! What has happened until now is waited for, a little -> the pools are opened -> each is read.

use super::ReadRefusal;
use crate::mounting::Obstacle;
use crate::verbs::{Right, Verb};
use crate::{Diagnosis, PoolStatus, Problem, Session, status};
use serde::{Deserialize, Serialize};

/// Pools to look at.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Names of the pools; none: all.
    pub pools: Vec<String>,
    /// Leaves out the pools with which nothing is wrong (`-x`). A pool that is only old is well.
    pub unhealthy_only: bool,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The pools, by name.
    pub pools: Vec<Row>,
    /// Number of pools that were left out because they are well.
    pub healthy: usize,
    /// What could not be opened or looked at.
    pub problems: Vec<Problem>,
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// State of the pool.
    pub status: PoolStatus,
    /// File systems that were to be mounted by themselves, could not be, and still are not; each with the reason.
    pub not_mounted: Vec<(String, Obstacle)>,
}

impl Row {
    /// True if nothing is wrong with the pool that its owner should look at.
    fn is_healthy(&self) -> bool {
        let is_well = matches!(
            self.status.diagnosis,
            Diagnosis::Healthy
                | Diagnosis::OldVersion
                | Diagnosis::FeaturesDisabled
                | Diagnosis::Incompatible
        );
        is_well && self.not_mounted.is_empty()
    }
}

impl Verb for Request {
    const NAME: &'static str = "zpool status";
    const RIGHT: Right = Right::Anyone;
    type Answer = Answer;
    type Refusal = ReadRefusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, ReadRefusal> {
        session.settle(&self.pools);
        let (opened, problems) = session.pools(&self.pools);
        let mounting = session.mounting();
        let (mut pools, mut healthy) = (Vec::new(), 0);
        for pool in &opened {
            let status = status::pool_status(pool)
                .map_err(|error| ReadRefusal::unreadable(pool.name(), error, &problems))?;
            let not_mounted = mounting.as_ref().map(|mounting| mounting.not_mounted(pool.name()));
            let row = Row { status, not_mounted: not_mounted.unwrap_or_default() };
            if self.unhealthy_only && row.is_healthy() {
                healthy += 1;
            } else {
                pools.push(row);
            }
        }
        Ok(Answer { pools, healthy, problems })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::carried;
    use crate::{Health, PoolFacts, Vdev, Vdevs};

    fn row(diagnosis: Diagnosis) -> Row {
        let facts = PoolFacts {
            name: "tank".into(),
            guid: 7,
            health: Health::Online,
            suspended: false,
            config_txg: 4,
            version: 5000,
            zpl_version: 5,
        };
        let status = PoolStatus {
            facts,
            diagnosis,
            scan: None,
            error_scrub: None,
            removal: None,
            expansion: None,
            checkpoint: None,
            vdevs: Vdevs { root: Vdev::new("root", 7), cache: Vec::new(), spares: Vec::new() },
            error_count: 1,
            errors: vec!["tank:/a".into()],
            dedup: None,
        };
        Row { status, not_mounted: Vec::new() }
    }

    #[test]
    fn pools_that_are_only_old_are_healthy() {
        assert!(row(Diagnosis::FeaturesDisabled).is_healthy());
        assert!(!row(Diagnosis::Offline).is_healthy());
        let not_mounted = vec![("tank/a".to_owned(), Obstacle::NotEmpty)];
        assert!(!Row { not_mounted, ..row(Diagnosis::Healthy) }.is_healthy());
    }

    #[test]
    fn requests_and_answers_cross_a_process() {
        carried(&Request { pools: vec!["tank".into()], unhealthy_only: true });
        let pools = vec![row(Diagnosis::UnsupportedForWrite(vec!["com.example:x".into()]))];
        carried(&Answer { pools, healthy: 2, problems: vec![Problem::missing_pool("pond")] });
    }
}
