//! What the vdevs of a pool have read and written: the data of `zpool iostat` and of the kstat files.

use super::{AdminError, OpenPool, Vdev, Vdevs, vdevs};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Duration;

pub use ::vdev::tree::{IoStats, Op, PRIORITIES, Priority, SIZE_BUCKETS, Sizes, TIME_BUCKETS, Times};

/// What a vdev has done since it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevIo {
    /// How long ago that was.
    pub age: Duration,
    /// What it did; of a vdev with others below it, what these did.
    #[serde(with = "stats")]
    pub stats: IoStats,
}

/// Counters as serde data: serde has no arrays of more than 32 elements.
mod stats {
    use super::{IoStats, Sizes, Times};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// [`IoStats`] in vectors, field by field.
    #[derive(Serialize, Deserialize)]
    struct Plain {
        ops: Vec<u64>,
        bytes: Vec<u64>,
        total_wait: Vec<Vec<u64>>,
        disk_wait: Vec<Vec<u64>>,
        queue_wait: Vec<Vec<u64>>,
        individual: Vec<Vec<u64>>,
        aggregated: Vec<Vec<u64>>,
        pending: Vec<u64>,
        active: Vec<u64>,
    }

    pub(super) fn serialize<S: Serializer>(stats: &IoStats, serializer: S) -> Result<S::Ok, S::Error> {
        let times = |all: &[Times]| all.iter().map(|one| one.to_vec()).collect();
        let sizes = |all: &[Sizes]| all.iter().map(|one| one.to_vec()).collect();
        let plain = Plain {
            ops: stats.ops.to_vec(),
            bytes: stats.bytes.to_vec(),
            total_wait: times(&stats.total_wait),
            disk_wait: times(&stats.disk_wait),
            queue_wait: times(&stats.queue_wait),
            individual: sizes(&stats.individual),
            aggregated: sizes(&stats.aggregated),
            pending: stats.pending.to_vec(),
            active: stats.active.to_vec(),
        };
        plain.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IoStats, D::Error> {
        let plain = Plain::deserialize(deserializer)?;
        Ok(IoStats {
            ops: array(plain.ops)?,
            bytes: array(plain.bytes)?,
            total_wait: table(plain.total_wait)?,
            disk_wait: table(plain.disk_wait)?,
            queue_wait: table(plain.queue_wait)?,
            individual: table(plain.individual)?,
            aggregated: table(plain.aggregated)?,
            pending: array(plain.pending)?,
            active: array(plain.active)?,
        })
    }

    fn array<T, const N: usize, E: Error>(values: Vec<T>) -> Result<[T; N], E> {
        values.try_into().map_err(|values: Vec<T>| E::custom(format!("{} values, not {N}", values.len())))
    }

    fn table<const N: usize, const M: usize, E: Error>(rows: Vec<Vec<u64>>) -> Result<[[u64; N]; M], E> {
        array(rows.into_iter().map(array).collect::<Result<Vec<_>, E>>()?)
    }
}

impl VdevIo {
    /// What was done since an earlier sample of the same vdev. If there is none, or that one is of an earlier life of
    /// the vdev, all counts.
    pub(crate) fn since(&self, earlier: Option<&VdevIo>) -> VdevIo {
        match earlier.filter(|earlier| earlier.age <= self.age) {
            Some(earlier) => {
                VdevIo { age: self.age.saturating_sub(earlier.age), stats: self.stats.since(&earlier.stats) }
            }
            None => self.clone(),
        }
    }

    /// How many a second, of a number of this sample.
    pub fn per_second(&self, number: u64) -> u64 {
        let nanos = self.age.as_nanos().max(1);
        u64::try_from(u128::from(number) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
    }
}

/// One pool at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolIo {
    /// Its name.
    pub name: String,
    /// Its vdevs, with their space.
    pub vdevs: Vdevs,
    /// What they have done, by guid. The root has the guid of the pool. Cache devices and spares are not in it.
    pub io: HashMap<u64, VdevIo>,
}

impl PoolIo {
    /// What was done since an earlier sample.
    #[must_use]
    pub fn since(&self, earlier: Option<&PoolIo>) -> PoolIo {
        let before = |guid: &u64| earlier.and_then(|earlier| earlier.io.get(guid));
        let io = self.io.iter().map(|(guid, io)| (*guid, io.since(before(guid)))).collect();
        PoolIo { name: self.name.clone(), vdevs: self.vdevs.clone(), io }
    }
}

/// What the vdevs of a pool have done so far.
///
/// # Errors
/// If its space cannot be read.
pub(crate) fn pool_io(pool: &OpenPool) -> Result<PoolIo, AdminError> {
    let leaves = pool.pool.spa().tree().io_stats();
    let leaves = leaves.into_iter().map(|(guid, leaf)| (guid.0, VdevIo { age: leaf.age, stats: leaf.stats }));
    let vdevs = vdevs(pool)?;
    let mut io = HashMap::new();
    sum(&vdevs.root, &leaves.collect(), &mut io);
    Ok(PoolIo { name: pool.name().to_owned(), vdevs, io })
}

/// Adds up what is below a vdev, and notes it. A vdev is as old as the oldest leaf below it.
fn sum(vdev: &Vdev, leaves: &HashMap<u64, VdevIo>, all: &mut HashMap<u64, VdevIo>) -> VdevIo {
    let blank = || VdevIo { age: Duration::ZERO, stats: IoStats::default() };
    let mut own = leaves.get(&vdev.guid).cloned().unwrap_or_else(blank);
    for child in &vdev.children {
        let child = sum(child, leaves, all);
        own.age = own.age.max(child.age);
        own.stats.add(&child.stats);
    }
    all.insert(vdev.guid, own.clone());
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(seconds: u64, reads: u64) -> VdevIo {
        let mut stats = IoStats::default();
        stats.ops[Op::Read as usize] = reads;
        VdevIo { age: Duration::from_secs(seconds), stats }
    }

    #[test]
    fn counters_cross_a_process() {
        let mut one = io(u64::MAX, u64::MAX);
        one.stats.total_wait[1][TIME_BUCKETS - 1] = 7;
        one.stats.aggregated[PRIORITIES - 1][SIZE_BUCKETS - 1] = 9;
        assert_eq!(crate::verbs::carried(&one), one);
        let text = serde_json::to_string(&one).expect("data").replace("\"bytes\":[0,", "\"bytes\":[");
        let error = serde_json::from_str::<VdevIo>(&text).expect_err("one is missing").to_string();
        assert!(error.starts_with("2 values, not 3"), "{error}");
    }

    #[test]
    fn rates_are_of_the_time_between_samples() {
        let later = io(12, 350).since(Some(&io(10, 250)));
        assert_eq!(later.per_second(later.stats.ops[0]), 50);
        let first = io(10, 250).since(None);
        assert_eq!(first.per_second(first.stats.ops[0]), 25);
        let again = io(1, 5).since(Some(&io(10, 250)));
        assert_eq!(again.stats.ops[0], 5, "the pool was exported and imported meanwhile");
        assert_eq!(io(0, 3).per_second(3), 3_000_000_000, "no time at all is no division by zero");
    }
}
