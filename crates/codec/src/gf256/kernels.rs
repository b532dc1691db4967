//! The loop of RAID-Z arithmetic, generic over the type of vector.
//!
//! The loop processes all columns in strips of two vectors: the sums, and the solution for lost columns, stay in
//! registers while the columns are read. No byte is read twice.

/// Largest number of parity columns.
pub(crate) const PARITY_MAX: usize = 3;

/// The polynomial x^8 + x^4 + x^3 + x^2 + 1 without its highest term.
pub(crate) const POLYNOMIAL: u8 = 0x1d;
/// Message of an impossible error: kernels only pass whole vectors.
pub(crate) const WHOLE_VECTOR: &str = "kernels pass whole vectors";
/// Number of vectors in a strip.
const VECTORS: usize = 2;
/// Maximum size of a strip in bytes.
const STRIP_MAX: usize = VECTORS * 64;

/// Doubles each element of the field.
#[inline(always)]
pub(crate) const fn double(x: u8) -> u8 {
    (x << 1) ^ (if x & 0x80 != 0 { POLYNOMIAL } else { 0 })
}

/// A vector of field elements, processed together.
pub(crate) trait Vector: Copy {
    /// Proof that the processor has the instructions of the vector.
    type Proof: Copy;
    /// A factor in the form that the multiplication needs.
    type Factor: Copy;
    /// Number of field elements (bytes) of a vector.
    const BYTES: usize;

    fn zero(proof: Self::Proof) -> Self;
    /// Loads the first bytes of `from`, which has enough.
    fn load(proof: Self::Proof, from: &[u8]) -> Self;
    /// Stores to the first bytes of `to`, which has enough.
    fn store(self, to: &mut [u8]);
    fn add(self, other: Self) -> Self;
    fn double(self) -> Self;
    #[inline(always)]
    fn quadruple(self) -> Self {
        self.double().double()
    }
    fn factor(proof: Self::Proof, factor: u8) -> Self::Factor;
    fn times(self, factor: Self::Factor) -> Self;
}

/// The computation of a kernel.
pub(crate) struct Job<'a, 'b> {
    /// The data columns in order; an empty slice for each lost one.
    pub(crate) data: &'a [&'a [u8]],
    /// Length of the longest column in bytes.
    pub(crate) len: usize,
    /// The rows (P, Q, R) in use, as bits: those to compute, or those from which lost columns are reconstructed.
    pub(crate) rows: u8,
    /// Use of the sums of the rows.
    pub(crate) goal: Goal<'a, 'b>,
}

/// Use of the sums of the rows.
pub(crate) enum Goal<'a, 'b> {
    /// They are stored as parity: one column per row in use, in order.
    Parity(&'a mut [&'b mut [u8]]),
    /// Added to the parity of the same rows, they give the contribution of the lost columns.
    Lost {
        /// Parity columns of the rows in use, in order.
        parity: &'a [&'a [u8]],
        /// Matrix that gives the lost columns as combinations of the rows in use.
        inverse: [[u8; PARITY_MAX]; PARITY_MAX],
        /// The lost columns, which are filled in.
        lost: &'a mut [&'b mut [u8]],
    },
}

/// The sums of the rows in use for one strip; the others are zero.
type Sums<V> = [[V; VECTORS]; PARITY_MAX];

/// Runs the job for all columns.
#[inline(always)]
pub(crate) fn run<V: Vector>(proof: V::Proof, job: &mut Job<'_, '_>) {
    match job.rows {
        0b001 => run_rows::<V, 0b001>(proof, job),
        0b010 => run_rows::<V, 0b010>(proof, job),
        0b011 => run_rows::<V, 0b011>(proof, job),
        0b100 => run_rows::<V, 0b100>(proof, job),
        0b101 => run_rows::<V, 0b101>(proof, job),
        0b110 => run_rows::<V, 0b110>(proof, job),
        0b111 => run_rows::<V, 0b111>(proof, job),
        _ => {}
    }
}

#[inline(always)]
fn run_rows<V: Vector, const ROWS: u8>(proof: V::Proof, job: &mut Job<'_, '_>) {
    let strip = VECTORS * V::BYTES;
    match &mut job.goal {
        Goal::Parity(parity) => {
            for at in (0..job.len).step_by(strip) {
                let sums = sums::<V, ROWS>(proof, job.data, at);
                for (column, sum) in parity.iter_mut().zip(used::<V, ROWS>(sums)) {
                    store(sum, column, at);
                }
            }
        }
        Goal::Lost { parity, inverse, lost } => {
            let inverse = inverse.map(|line| line.map(|factor| V::factor(proof, factor)));
            for at in (0..job.len).step_by(strip) {
                let sums = sums::<V, ROWS>(proof, job.data, at);
                let mut parts = used::<V, ROWS>(sums);
                for (part, column) in parts.iter_mut().zip(parity.iter()) {
                    let stored = load::<V>(proof, column, at);
                    for (sum, stored) in part.iter_mut().zip(stored) {
                        *sum = sum.add(stored);
                    }
                }
                for (column, line) in lost.iter_mut().zip(inverse) {
                    store(combine::<V, ROWS>(proof, parts, line), column, at);
                }
            }
        }
    }
}

/// The parity of one strip, by Horner's rule.
#[inline(always)]
fn sums<V: Vector, const ROWS: u8>(proof: V::Proof, data: &[&[u8]], at: usize) -> Sums<V> {
    let mut sums = [[V::zero(proof); VECTORS]; PARITY_MAX];
    for column in data {
        let strip = load::<V>(proof, column, at);
        for (row, sums) in sums.iter_mut().enumerate() {
            if ROWS >> row & 1 == 0 {
                continue;
            }
            for (sum, d) in sums.iter_mut().zip(strip) {
                let moved = match row {
                    0 => *sum,
                    1 => sum.double(),
                    _ => sum.quadruple(),
                };
                *sum = moved.add(d);
            }
        }
    }
    sums
}

/// The sums of the rows in use, moved to the front.
#[inline(always)]
fn used<V: Vector, const ROWS: u8>(sums: Sums<V>) -> Sums<V> {
    let [p, q, r] = sums;
    match ROWS {
        0b010 => [q, r, p],
        0b100 => [r, q, p],
        0b101 => [p, r, q],
        0b110 => [q, r, p],
        _ => [p, q, r],
    }
}

/// A lost column, from the contributions of all lost columns to the rows in use.
#[inline(always)]
fn combine<V: Vector, const ROWS: u8>(
    proof: V::Proof,
    parts: Sums<V>,
    line: [V::Factor; PARITY_MAX],
) -> [V; VECTORS] {
    let mut out = [V::zero(proof); VECTORS];
    for i in 0..ROWS.count_ones() as usize {
        for (to, part) in out.iter_mut().zip(parts[i]) {
            *to = to.add(part.times(line[i]));
        }
    }
    out
}

/// The strip of `column` at `at`, padded with zeros after the end of the column.
#[inline(always)]
fn load<V: Vector>(proof: V::Proof, column: &[u8], at: usize) -> [V; VECTORS] {
    let strip = VECTORS * V::BYTES;
    let whole = |bytes: &[u8]| [V::load(proof, bytes), V::load(proof, &bytes[V::BYTES..])];
    if let Some(bytes) = column.get(at..at + strip) {
        return whole(bytes);
    }
    match column.get(at..) {
        None | Some([]) => [V::zero(proof); VECTORS],
        Some(tail) => {
            let mut padded = [0; STRIP_MAX];
            for (to, from) in padded.iter_mut().zip(tail) {
                *to = *from;
            }
            whole(&padded[..strip])
        }
    }
}

/// Writes a strip, up to the end of the column.
#[inline(always)]
fn store<V: Vector>([first, second]: [V; VECTORS], column: &mut [u8], at: usize) {
    let strip = VECTORS * V::BYTES;
    if let Some(bytes) = column.get_mut(at..at + strip) {
        first.store(bytes);
        second.store(&mut bytes[V::BYTES..]);
    } else if let Some(tail) = column.get_mut(at..) {
        let mut padded = [0; STRIP_MAX];
        first.store(&mut padded);
        second.store(&mut padded[V::BYTES..]);
        for (to, from) in tail.iter_mut().zip(padded) {
            *to = from;
        }
    }
}
