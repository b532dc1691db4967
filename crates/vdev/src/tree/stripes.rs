//! Damage that no set of whole children explains: one leaf is wrong in one stripe of a block, another leaf in
//! the next.
//!
//! The stripes of a block (one sector of each column) have independent parity. A stripe whose parity fits its
//! data is taken as right. For each other stripe, the sets of columns are listed whose reconstruction makes
//! it fit; if such a set leaves parity over, that check alone rules out most sets. The remaining ones are
//! combined over the stripes, within the budget.

use super::candidates::{Budget, next_set};
use super::columns::Columns;
use codec::gf256;

/// Most sets of columns that are examined in one block.
const EXAMINED_MAX: usize = 100_000;

/// A stripe with more than one possible content, or one that had to be reconstructed.
struct Stripe {
    row: usize,
    /// First byte in each column.
    at: usize,
    /// Columns, each cut to this stripe; columns that could not be read are empty.
    columns: Vec<Vec<u8>>,
    /// Sets of columns that may be wrong, most plausible first.
    sets: Vec<Vec<usize>>,
}

/// The right block, or the error of the search.
pub(super) fn search(
    columns: &Columns<'_, '_>,
    budget: &mut Budget,
    verify: &mut dyn FnMut(&[u8]) -> bool,
) -> Option<Vec<u8>> {
    let stripes = list(columns)?;
    let mut combinations: usize = 1;
    for stripe in &stripes {
        combinations = combinations.checked_mul(stripe.sets.len())?;
        if combinations > budget.left() {
            return None; // could only be tried in part, and hopes are low
        }
    }
    let mut block = vec![0; columns.map.size as usize];
    let mut choice = vec![0; stripes.len()];
    for stripe in &stripes {
        stripe.put(columns, stripe.sets.first()?, &mut block)?;
    }
    loop {
        if !budget.take() {
            return None;
        }
        if verify(&block) {
            return Some(block);
        }
        let changed = advance(&mut choice, &stripes)?;
        for (stripe, now) in stripes.iter().zip(&choice).take(changed) {
            stripe.put(columns, stripe.sets.get(*now)?, &mut block)?;
        }
    }
}

/// Advances to the next combination. Returns how many of the first stripes changed; `None` after the last.
fn advance(choice: &mut [usize], stripes: &[Stripe]) -> Option<usize> {
    for (i, (now, stripe)) in choice.iter_mut().zip(stripes).enumerate() {
        *now += 1;
        if *now < stripe.sets.len() {
            return Some(i + 1);
        }
        *now = 0;
    }
    None
}

/// All stripes of the block. `None` if one cannot be made right or there are too many sets to examine.
fn list(columns: &Columns<'_, '_>) -> Option<Vec<Stripe>> {
    let sector = columns.map.sector as usize;
    let mut stripes = Vec::new();
    let mut examined = 0;
    for (r, row) in columns.map.rows.iter().enumerate() {
        for at in (0..row.height() as usize).step_by(sector) {
            let lost: Vec<usize> = (0..row.columns.len()).filter(|c| columns.versions(r, *c) == 0).collect();
            if lost.len() > row.nparity {
                return None;
            }
            let cut = |c: usize| {
                let bytes = if lost.contains(&c) { &[][..] } else { columns.bytes(r, c, 0) };
                let len = if c < row.nparity { sector } else { data_in_stripe(columns, r, c, at) };
                let mut part =
                    bytes.get(at.min(bytes.len())..bytes.len().min(at + len)).unwrap_or_default().to_vec();
                part.resize(len, 0);
                part
            };
            let mut stripe =
                Stripe { row: r, at, columns: (0..row.columns.len()).map(cut).collect(), sets: Vec::new() };
            stripe.sets = stripe.plausible(row.nparity, &lost, &mut examined)?;
            stripes.push(stripe);
        }
    }
    Some(stripes)
}

/// Bytes of the block that a data column has in a stripe.
fn data_in_stripe(columns: &Columns<'_, '_>, r: usize, c: usize, at: usize) -> usize {
    let data =
        columns.map.rows.get(r).and_then(|row| row.columns.get(c)).map_or(0, |column| column.data as usize);
    data.saturating_sub(at).min(columns.map.sector as usize)
}

impl Stripe {
    /// Sets of columns whose reconstruction makes the stripe fit; at least one, or `None` if there are too
    /// many sets to examine.
    fn plausible(&self, nparity: usize, lost: &[usize], examined: &mut usize) -> Option<Vec<Vec<usize>>> {
        if self.fits(nparity, lost)? {
            return Some(vec![lost.to_vec()]);
        }
        let others: Vec<usize> = (0..self.columns.len())
            .filter(|c| !lost.contains(c) && self.columns.get(*c).is_some_and(|bytes| !bytes.is_empty()))
            .collect();
        let spare = nparity - lost.len();
        for size in 1..=spare {
            let mut sets = Vec::new();
            let mut set: Vec<usize> = (0..size.min(others.len())).collect();
            loop {
                *examined += 1;
                if *examined > EXAMINED_MAX {
                    return None;
                }
                let mut wrong = lost.to_vec();
                wrong.extend(set.iter().filter_map(|i| others.get(*i)));
                wrong.sort_unstable();
                if self.fits(nparity, &wrong)? {
                    sets.push(wrong);
                }
                if !next_set(&mut set, others.len()) {
                    break;
                }
            }
            // Fewer wrong columns are likelier: larger sets are examined only if no smaller one fits.
            if !sets.is_empty() {
                return Some(sets);
            }
        }
        Some(vec![lost.to_vec()])
    }

    /// The columns after reconstructing a set of them.
    fn solve(&self, nparity: usize, wrong: &[usize]) -> Option<Vec<Vec<u8>>> {
        let mut columns = self.columns.clone();
        let mut slices: Vec<&mut [u8]> = columns.iter_mut().map(Vec::as_mut_slice).collect();
        gf256::reconstruct(&mut slices, nparity, wrong).ok()?;
        Some(columns)
    }

    /// Whether all parity fits after reconstructing a set. Always so if the set uses up the parity.
    fn fits(&self, nparity: usize, wrong: &[usize]) -> Option<bool> {
        let columns = self.solve(nparity, wrong)?;
        let (parity, data) = columns.split_at_checked(nparity)?;
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut expected = vec![vec![0; parity.first()?.len()]; nparity];
        let mut targets: Vec<&mut [u8]> = expected.iter_mut().map(Vec::as_mut_slice).collect();
        gf256::generate(&data, &mut targets).ok()?;
        Some(parity == expected)
    }

    /// Puts the stripe into the block, a set of its columns reconstructed.
    fn put(&self, columns: &Columns<'_, '_>, wrong: &[usize], block: &mut [u8]) -> Option<()> {
        let row = columns.map.rows.get(self.row)?;
        let solved = self.solve(row.nparity, wrong)?;
        for (column, bytes) in row.columns.iter().zip(&solved).skip(row.nparity) {
            let start = column.block_at as usize + self.at;
            if !bytes.is_empty() {
                block.get_mut(start..start + bytes.len())?.copy_from_slice(bytes);
            }
        }
        Some(())
    }
}
