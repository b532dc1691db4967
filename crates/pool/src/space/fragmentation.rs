//! Fragmentation of free space, as `zpool list` shows it: how small the free segments are.
//!
//! The formula was found by experiment, from the histograms of golden pools and the percentages that OpenZFS
//! printed for them:
//! - A free segment counts with a percentage by the power of two of its length; a metaslab is the mean over
//!   its free bytes, rounded down. A bucket of the histogram counts as many bytes as its shortest segment
//!   has.
//! - A vdev is the mean over the free bytes of all its metaslabs, each with its percentage, rounded down; one
//!   without a map counts as 0. What is free is what the maps say, without the logs: so do all 87 vdevs of
//!   the golden pools come out exactly, and 12 of them differ from the plain mean.
//! - A class is the mean over its vdevs by size.
//!
//! `zdb -mm` prints the percentage of each metaslab: the 262 different histograms of the golden pools and
//! those of new pools of 1 to 256 GiB all come out exactly. They leave no choice between 8 KiB and 256 MiB,
//! but for one or two percent; below that the curve is smooth, with 100 % at its start.

use crate::space::{Class, MetaslabSpace, VdevSpace};

/// Percentages of segments of 512 bytes, 1 KiB, 2 KiB, …
const PERCENT: [u64; 22] =
    [100, 99, 97, 93, 88, 83, 77, 71, 64, 57, 50, 43, 36, 29, 23, 17, 12, 7, 3, 1, 0, 0];
/// log2 of the first of these lengths.
const FIRST_SHIFT: u32 = 9;

fn percent(shift: u32) -> u64 {
    let index = usize::try_from(shift.saturating_sub(FIRST_SHIFT)).unwrap_or(usize::MAX);
    PERCENT.get(index).copied().unwrap_or(0)
}

impl MetaslabSpace {
    /// Fragmentation in percent, with sectors of `1 << ashift` bytes; `None`: unknown.
    pub fn fragmentation(&self, ashift: u32) -> Option<u64> {
        of_metaslab(self, ashift)
    }
}

/// Fragmentation of a metaslab; `None` if its map has no histogram.
fn of_metaslab(metaslab: &MetaslabSpace, ashift: u32) -> Option<u64> {
    if metaslab.space_map.is_none() {
        return Some(0);
    }
    let histogram = metaslab.histogram?;
    let (mut weighted, mut bytes) = (0_u128, 0_u128);
    for (shift, count) in (ashift..).zip(histogram) {
        // An impossible count must not overflow the sums.
        let space = u128::from(count.min(1 << 48)) << shift.min(63);
        bytes += space;
        weighted += space * u128::from(percent(shift));
    }
    Some(weighted.checked_div(bytes).map_or(0, |mean| u64::try_from(mean).unwrap_or(100)))
}

/// Fragmentation of a top-level vdev, in percent, from the space maps of its metaslabs alone; `None` if the
/// maps have no histograms.
pub(crate) fn of_vdev(metaslabs: &[MetaslabSpace], ashift: u32) -> Option<u64> {
    let mapped = || metaslabs.iter().filter(|m| m.space_map.is_some());
    if mapped().next().is_some() && mapped().all(|m| m.histogram.is_none()) {
        return None;
    }
    let (mut weighted, mut bytes) = (0_u128, 0_u128);
    for metaslab in metaslabs {
        let Some(percent) = of_metaslab(metaslab, ashift) else { continue };
        let free = u128::from(metaslab.size.saturating_sub(metaslab.allocated));
        bytes += free;
        weighted += free * u128::from(percent);
    }
    Some(u64::try_from(weighted.checked_div(bytes)?).unwrap_or(100))
}

/// Fragmentation of a class; `None` if it is unknown for all its vdevs.
pub(crate) fn of_class(vdevs: &[VdevSpace], class: Class) -> Option<u64> {
    let known = || vdevs.iter().filter(|v| v.class == class).filter_map(|v| Some((v.fragmentation?, v.size)));
    let size: u128 = known().map(|(_, size)| u128::from(size)).sum();
    let weighted: u128 = known().map(|(percent, size)| u128::from(percent) * u128::from(size)).sum();
    Some(u64::try_from(weighted.checked_div(size)?).unwrap_or(100))
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::space_map::BUCKETS;
    use format::{ObjectId, Txg};

    fn metaslab(segments: &[(usize, u64)]) -> MetaslabSpace {
        let mut histogram = [0; BUCKETS];
        for (bucket, count) in segments {
            histogram[*bucket] = *count;
        }
        MetaslabSpace {
            start: 0,
            size: 16 << 20,
            space_map: Some(ObjectId(7)),
            allocated: 0,
            unflushed_txg: Txg(0),
            histogram: Some(histogram),
        }
    }

    #[test]
    fn what_openzfs_printed() {
        let untouched = MetaslabSpace { space_map: None, histogram: None, ..metaslab(&[]) };
        let written = metaslab(&[(0, 1), (1, 2), (2, 5), (3, 6), (4, 1), (5, 1), (14, 1)]);
        assert_eq!(of_vdev(&[written, untouched, untouched], 9), Some(7));
        assert_eq!(of_vdev(&[written, written, untouched], 9), Some(15));
        assert_eq!(of_vdev(&[written; 3], 9), Some(23));
    }

    #[test]
    fn a_vdev_is_the_mean_of_what_is_free() {
        // Half full with small segments, untouched, untouched: a plain mean would be 33 %.
        let half = MetaslabSpace { allocated: 8 << 20, ..metaslab(&[(0, 1000)]) };
        let untouched = MetaslabSpace { space_map: None, histogram: None, ..metaslab(&[]) };
        assert_eq!(of_vdev(&[half, untouched, untouched], 9), Some(20));
    }

    #[test]
    fn maps_without_histograms_tell_nothing() {
        let old = MetaslabSpace { histogram: None, ..metaslab(&[]) };
        let untouched = MetaslabSpace { space_map: None, ..old };
        assert_eq!(of_vdev(&[old, untouched], 9), None);
    }

    #[test]
    fn extremes() {
        assert_eq!(of_vdev(&[metaslab(&[(0, 1000)])], 9), Some(100));
        assert_eq!(of_vdev(&[metaslab(&[(31, u64::MAX)])], 16), Some(0));
        assert_eq!(of_vdev(&[], 9), None);
    }
}
