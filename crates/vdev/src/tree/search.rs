//! Search for wrong columns: every combination of at most as many children as there is parity is suspected in
//! turn, its columns reconstructed from the others, and the block verified.
//!
//! A child that consists of several leaves (replacing, spare) may have several versions of a column; these
//! are tried as well. If no set of whole children explains the damage, each stripe is examined by itself
//! (`stripes.rs`).

use super::block::How;
use super::candidates::{Budget, next_set};
use super::columns::{Columns, Work};
use super::error::VdevError;
use super::stripes;
use crate::geometry::Row;

/// Most ways to combine versions that are tried for one set of suspects.
const VERSIONS_MAX: usize = 64;
/// Most sets that are examined, whether tried or not.
const SETS_MAX: usize = 200_000;

/// The right block, or the error: [`VdevError::NoCopies`] if no candidate could be made.
pub(super) fn search(
    columns: &Columns<'_, '_>,
    psize: usize,
    verify: &dyn Fn(&[u8]) -> bool,
) -> Result<Vec<u8>, VdevError> {
    let mut search = Search {
        columns,
        psize,
        how: How { every_copy: false, verify },
        budget: Budget::new(psize),
        indices: Vec::new(),
        children: Vec::new(),
        made_one: false,
    };
    search.list_children();
    // The first round ignores untrusted leaves, the second uses them.
    let rounds: &[bool] = if columns.has_untrusted() { &[false, true] } else { &[true] };
    for trusting in rounds {
        if let Some(block) = search.sets(*trusting) {
            return Ok(block);
        }
    }
    let found = stripes::search(columns, &mut search.budget, &mut |block| {
        search.made_one = true;
        block.get(..psize).is_some_and(verify)
    });
    match found {
        Some(block) => Ok(block),
        None if search.made_one => Err(VdevError::WrongChecksum),
        None => Err(VdevError::NoCopies),
    }
}

/// A child that has columns of the block.
struct Suspect {
    child: usize,
    /// Largest number of versions among its columns.
    versions: usize,
}

struct Search<'a, 'm, 't> {
    columns: &'a Columns<'m, 't>,
    psize: usize,
    how: How<'a>,
    budget: Budget,
    children: Vec<Suspect>,
    /// For each column of each row, the index of its child in `children`.
    indices: Vec<Vec<usize>>,
    /// Whether any candidate could be made.
    made_one: bool,
}

impl Search<'_, '_, '_> {
    fn list_children(&mut self) {
        for (r, row) in self.columns.map.rows.iter().enumerate() {
            let mut indices = Vec::with_capacity(row.columns.len());
            for (c, column) in row.columns.iter().enumerate() {
                let versions = self.columns.versions(r, c);
                let known = self.children.iter().position(|suspect| suspect.child == column.child);
                let index = known.unwrap_or_else(|| {
                    self.children.push(Suspect { child: column.child, versions });
                    self.children.len() - 1
                });
                if let Some(suspect) = self.children.get_mut(index) {
                    suspect.versions = suspect.versions.max(versions);
                }
                indices.push(index);
            }
            self.indices.push(indices);
        }
    }

    /// Most children that can be suspected at once: the parity that is not needed for missing columns.
    fn most_suspects(&self) -> usize {
        let left = |(r, row): (usize, &Row)| {
            let lost = (0..row.columns.len()).filter(|c| self.columns.versions(r, *c) == 0).count();
            row.nparity.saturating_sub(lost)
        };
        self.columns.map.rows.iter().enumerate().map(left).max().unwrap_or(0)
    }

    /// Suspects no child, then each one, then each two, and so on.
    fn sets(&mut self, trusting: bool) -> Option<Vec<u8>> {
        let most = self.most_suspects();
        let mut work = Work::new(self.columns);
        let mut seen = 0;
        for size in 0..=most.min(self.children.len()) {
            let mut set: Vec<usize> = (0..size).collect();
            loop {
                seen += 1;
                if seen > SETS_MAX || self.budget.left() == 0 {
                    return None;
                }
                if self.versions(&mut work, &set, trusting) {
                    return Some(work.block);
                }
                if !next_set(&mut set, self.children.len()) {
                    break;
                }
            }
        }
        None
    }

    /// Tries one set of suspects with every choice of versions of the other columns.
    fn versions(&mut self, work: &mut Work<'_, '_, '_>, set: &[usize], trusting: bool) -> bool {
        let open: Vec<usize> = (0..self.children.len())
            .filter(|i| !set.contains(i) && self.children.get(*i).is_some_and(|child| child.versions > 1))
            .collect();
        let mut choice = vec![0; self.children.len()];
        for _ in 0..VERSIONS_MAX {
            if self.attempt(work, set, &choice, trusting) {
                return true;
            }
            if !self.next_choice(&mut choice, &open) {
                return false;
            }
        }
        false
    }

    fn attempt(
        &mut self,
        work: &mut Work<'_, '_, '_>,
        set: &[usize],
        choice: &[usize],
        trusting: bool,
    ) -> bool {
        let pick = |r: usize, c: usize| {
            let index = *self.indices.get(r)?.get(c)?;
            if set.contains(&index) {
                return None;
            }
            let versions = self.columns.versions(r, c);
            if !trusting {
                self.columns.best_good(r, c)?;
            }
            (versions > 0).then(|| choice.get(index).copied().unwrap_or(0).min(versions - 1))
        };
        if !work.attempt(&pick) || !self.budget.take() {
            return false;
        }
        self.made_one = true;
        work.is_right(self.psize, self.how)
    }

    fn next_choice(&self, choice: &mut [usize], open: &[usize]) -> bool {
        for i in open {
            let (Some(now), Some(child)) = (choice.get_mut(*i), self.children.get(*i)) else { continue };
            if *now + 1 < child.versions {
                *now += 1;
                return true;
            }
            *now = 0;
        }
        false
    }
}
