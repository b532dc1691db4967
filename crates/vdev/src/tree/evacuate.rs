//! Copying the contents of a vdev that is being removed, without their checksums (docs/on-disk/14-vdevs.md,
//! section 6).
//!
//! # What always holds
//! - A range is read from every leaf that has all of it. If these differ, one of them is wrong, and only the
//!   pointers of the blocks tell which: then each version goes to a leaf of its own, so that a later read finds
//!   the right one.
//! - No version is dropped: if there are more versions than leaves, the range is not copied
//!   ([`VdevError::TooManyVersions`]); a scrub repairs the wrong ones.

use super::block::Extent;
use super::copies::{Pull, pull_all};
use super::error::VdevError;
use super::leaf::{Leaf, Trust};
use super::node::VdevTree;
use super::write::Write;
use format::VdevGuid;

/// The different contents of a range: one, unless leaves of a mirror contradict each other.
pub type Versions = Vec<Vec<u8>>;

impl VdevTree {
    /// Reads ranges of vdevs without parity, all at the same time: of each the different contents on those of
    /// its leaves that lack nothing.
    ///
    /// # Errors
    /// For each range: [`VdevError::NoCopies`] if no leaf could be read.
    pub fn read_versions(&self, ranges: &[Extent]) -> Vec<Result<Versions, VdevError>> {
        let mut bytes = Vec::new();
        for (index, at) in ranges.iter().enumerate() {
            let Ok(top) = self.find_top(at.vdev) else { continue };
            let place = i64::try_from(at.offset.0).unwrap_or(i64::MAX);
            let sources = self.sources(&top.vdev, place, at.psize.0, at.birth);
            let is_whole = |leaf: &Leaf| leaf.memory().missed().is_empty();
            for source in sources.into_iter().filter(|s| s.trust == Trust::Good && is_whole(s.leaf)) {
                bytes.push((index, source, vec![0; at.psize.0 as usize]));
            }
        }
        let mut pulls: Vec<_> = bytes.iter_mut().map(|(_, source, buf)| Pull::new(*source, buf)).collect();
        pull_all(&mut pulls);
        let results: Vec<_> = pulls.into_iter().map(|pull| pull.result).collect();
        let mut versions: Vec<Versions> = vec![Versions::new(); ranges.len()];
        for ((index, _, buf), _) in bytes.into_iter().zip(results).filter(|(_, result)| result.is_ok()) {
            if let Some(of_range) = versions.get_mut(index)
                && !of_range.contains(&buf)
            {
                of_range.push(buf);
            }
        }
        let checked = |found: Versions| if found.is_empty() { Err(VdevError::NoCopies) } else { Ok(found) };
        versions.into_iter().map(checked).collect()
    }

    /// Writes the versions of a range, each to a leaf of its own.
    ///
    /// # Errors
    /// [`VdevError::TooManyVersions`] if there are fewer leaves; [`VdevError`] if a version was written nowhere.
    pub fn write_versions(&self, at: &Extent, versions: &[Vec<u8>]) -> Result<(), VdevError> {
        if let [only] = versions {
            return self.write(at, only);
        }
        let mut leaves = Vec::new();
        self.find_top(at.vdev)?.vdev.leaves(&mut leaves);
        let usable: Vec<VdevGuid> =
            leaves.iter().filter(|leaf| leaf.in_service().is_some()).map(|leaf| leaf.guid).collect();
        if usable.len() < versions.len() {
            return Err(VdevError::TooManyVersions { vdev: at.vdev, offset: at.offset });
        }
        for (index, data) in versions.iter().enumerate() {
            let mine = usable.iter().skip(index).step_by(versions.len());
            let mine: Vec<VdevGuid> = mine.copied().collect();
            let select = |leaf: &Leaf| mine.contains(&leaf.guid);
            let written = self.write_to(&[Write { at: *at, data }], &select, false);
            written.results.into_iter().next().unwrap_or(Err(VdevError::NoCopies))?;
        }
        Ok(())
    }
}
