//! RAID-Z parity: the field of 256 elements with polynomial 0x11D and generator 2
//! (docs/on-disk/14-vdevs.md, section 3).
//!
//! With data columns `D[0]` to `D[N-1]`, bytewise: `P` is their sum, `Q` the sum of `2^(N-1-i) D[i]`, `R` of
//! `4^(N-1-i) D[i]`. Columns shorter than the parity count as padded with zeros.
//!
//! # What always holds
//! - Any set of missing columns, data and parity, is reconstructed if it is not larger than the number of parity
//!   columns: each square submatrix of the three rows of factors has an inverse if there are at most 255 data
//!   columns.
//! - Reconstruction reads only the columns that are present, each once.
//!
//! The loop is in `kernels`, its vector types in `simd::gf`.

pub(crate) mod kernels;

use crate::simd;
pub(crate) use kernels::PARITY_MAX;
use kernels::{Goal, Job};

/// Maximum number of data columns: powers of the generator repeat after 255.
pub(crate) const DATA_MAX: usize = 255;

/// Why columns cannot be a RAID-Z map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParityError {
    /// There are not 1 to 3 parity columns and 1 to 255 data columns.
    #[error("{data} data and {parity} parity columns")]
    Shape {
        /// Number of data columns that were given.
        data: usize,
        /// Number of parity columns that were given.
        parity: usize,
    },
    /// Parity columns differ in length, or a data column is longer than them.
    #[error("column {column} has {len} bytes, parity has {parity}")]
    Length {
        /// Index of the column, parity columns first.
        column: usize,
        /// Number of bytes of the column.
        len: usize,
        /// Length of the first parity column in bytes.
        parity: usize,
    },
    /// More columns are missing than there is parity, or an index is out of range or repeated.
    #[error("{missing} missing columns cannot be reconstructed from {parity} parity columns")]
    Missing {
        /// Number of columns that are missing.
        missing: usize,
        /// Number of parity columns that were given.
        parity: usize,
    },
}

/// Computes the one to three `parity` columns (P, Q, R) of `data`.
///
/// # Errors
/// [`ParityError`] if there are too few or too many columns, or a column is longer than the parity.
pub fn generate(data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), ParityError> {
    check_shape(data.len(), parity.len())?;
    let lens = parity.iter().map(|column| column.len()).chain(data.iter().map(|column| column.len()));
    check_lengths(lens, parity.len())?;
    let (rows, len) = (first_rows(parity.len()), parity.first().map_or(0, |column| column.len()));
    simd::gf::run(&mut Job { data, len, rows, goal: Goal::Parity(parity) });
    Ok(())
}

/// Reconstructs the `missing` columns of `columns`: first the `nparity` parity columns, then the data, as in a
/// RAID-Z map. Each missing column has its full length; its contents are ignored.
///
/// # Errors
/// [`ParityError`] if more columns are missing than there is parity, or the lengths of columns are not consistent.
pub fn reconstruct(columns: &mut [&mut [u8]], nparity: usize, missing: &[usize]) -> Result<(), ParityError> {
    check_shape(columns.len().saturating_sub(nparity), nparity)?;
    check_lengths(columns.iter().map(|column| column.len()), nparity)?;
    let is_missing = |column: usize| missing.contains(&column);
    let distinct = missing.iter().enumerate().all(|(i, column)| !missing[..i].contains(column));
    if missing.len() > nparity || !distinct || missing.iter().any(|column| *column >= columns.len()) {
        return Err(ParityError::Missing { missing: missing.len(), parity: nparity });
    }
    let (parity, data) = columns.split_at_mut(nparity);
    let lost: Vec<usize> = (0..data.len()).filter(|i| is_missing(nparity + i)).collect();
    if !lost.is_empty() {
        let rows: Vec<usize> = (0..nparity).filter(|row| !is_missing(*row)).take(lost.len()).collect();
        solve(parity, data, &rows, &lost);
    }
    recompute(parity, data, &is_missing);
    Ok(())
}

fn check_shape(data: usize, parity: usize) -> Result<(), ParityError> {
    if (1..=PARITY_MAX).contains(&parity) && (1..=DATA_MAX).contains(&data) {
        Ok(())
    } else {
        Err(ParityError::Shape { data, parity })
    }
}

fn check_lengths(lens: impl Iterator<Item = usize>, nparity: usize) -> Result<(), ParityError> {
    let mut parity = 0;
    for (column, len) in lens.enumerate() {
        if column == 0 {
            parity = len;
        }
        if len > parity || (column < nparity && len != parity) {
            return Err(ParityError::Length { column, len, parity });
        }
    }
    Ok(())
}

/// The bits of the first `count` rows.
fn first_rows(count: usize) -> u8 {
    (0..count).fold(0, |bits, row| bits | 1 << row)
}

/// Reconstructs the `lost` data columns from as many parity `rows`.
fn solve(parity: &[&mut [u8]], data: &mut [&mut [u8]], rows: &[usize], lost: &[usize]) {
    let count = data.len();
    let mut factors = [[0; PARITY_MAX]; PARITY_MAX];
    for (line, row) in factors.iter_mut().zip(rows) {
        for (factor, column) in line.iter_mut().zip(lost) {
            *factor = power(*row, count - 1 - column);
        }
    }
    let mut targets: Vec<&mut [u8]> = Vec::with_capacity(lost.len());
    let mut known: Vec<&[u8]> = Vec::with_capacity(count);
    for (i, column) in data.iter_mut().enumerate() {
        if lost.contains(&i) {
            known.push(&[]);
            targets.push(column);
        } else {
            known.push(column);
        }
    }
    let used: Vec<&[u8]> = rows.iter().map(|row| &*parity[*row]).collect();
    simd::gf::run(&mut Job {
        data: &known,
        len: used.first().map_or(0, |column| column.len()),
        rows: rows.iter().fold(0, |bits, row| bits | 1 << row),
        goal: Goal::Lost { parity: &used, inverse: invert(factors, lost.len()), lost: &mut targets },
    });
}

/// Computes the missing parity columns from complete data columns.
fn recompute(parity: &mut [&mut [u8]], data: &[&mut [u8]], is_missing: &dyn Fn(usize) -> bool) {
    let len = parity.first().map_or(0, |column| column.len());
    let rows = (0..parity.len()).filter(|row| is_missing(*row)).fold(0, |bits, row| bits | 1 << row);
    if rows == 0 {
        return;
    }
    let data: Vec<&[u8]> = data.iter().map(|column| &**column).collect();
    let mut targets: Vec<&mut [u8]> = parity
        .iter_mut()
        .enumerate()
        .filter(|(row, _)| is_missing(*row))
        .map(|(_, column)| &mut **column)
        .collect();
    simd::gf::run(&mut Job { data: &data, len, rows, goal: Goal::Parity(&mut targets) });
}

/// `(2^row)^exponent`: the factor of the data column that is followed by `exponent` others.
fn power(row: usize, exponent: usize) -> u8 {
    EXP[(row * exponent) % 255]
}

/// Powers of the generator of the field, 2.
const EXP: [u8; 255] = {
    let mut table = [0; 255];
    let mut x: u8 = 1;
    let mut i = 0;
    while i < 255 {
        table[i] = x;
        x = kernels::double(x);
        i += 1;
    }
    table
};

/// Logarithms of the elements; zero has none.
const LOG: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 255 {
        table[EXP[i] as usize] = i as u8;
        i += 1;
    }
    table
};

fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[(usize::from(LOG[usize::from(a)]) + usize::from(LOG[usize::from(b)])) % 255]
}

/// The inverse of an element that is not zero.
fn reciprocal(a: u8) -> u8 {
    EXP[(255 - usize::from(LOG[usize::from(a)])) % 255]
}

type Matrix = [[u8; PARITY_MAX]; PARITY_MAX];

/// Inverse of the upper left `n` by `n` part, by elimination. Every matrix made in [`solve`] has one.
fn invert(mut matrix: Matrix, n: usize) -> Matrix {
    let mut inverse: Matrix = std::array::from_fn(|i| std::array::from_fn(|j| u8::from(i == j)));
    for column in 0..n {
        let pivot = (column..n).find(|row| matrix[*row][column] != 0);
        let pivot = pivot.expect("factors of distinct columns are independent");
        matrix.swap(column, pivot);
        inverse.swap(column, pivot);
        let scale = reciprocal(matrix[column][column]);
        for j in 0..n {
            matrix[column][j] = multiply(matrix[column][j], scale);
            inverse[column][j] = multiply(inverse[column][j], scale);
        }
        for row in (0..n).filter(|row| *row != column) {
            let factor = matrix[row][column];
            for j in 0..n {
                matrix[row][j] ^= multiply(factor, matrix[column][j]);
                inverse[row][j] ^= multiply(factor, inverse[column][j]);
            }
        }
    }
    inverse
}

#[cfg(test)]
mod tests;
