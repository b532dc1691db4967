//! dRAID: groups of columns spread over all children by permutations, with distributed spare space
//! (docs/on-disk/14-vdevs.md, section 5).

use super::draid_maps::DRAID_MAPS;
use super::map::{BlockMap, Column, Row, split};
use format::{AllocOffset, Ashift, Asize, Psize};

/// Height of a row on each child: 16 MiB.
const ROW_HEIGHT: u64 = 1 << 24;
/// Space at the end of each child that is not used for data.
const RESERVED: u64 = 32 << 20;

/// Parameters of a dRAID, as in its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraidParams {
    /// Number of children of the dRAID.
    pub children: usize,
    /// Data columns of a group.
    pub ndata: usize,
    /// Parity columns of a group, 1 to 3.
    pub nparity: u8,
    /// Number of distributed spares of the vdev.
    pub nspares: usize,
    /// Redundancy groups in each permutation of the children.
    pub ngroups: u64,
    /// log2 of the bytes of a sector.
    pub ashift: Ashift,
}

/// Why a dRAID is not possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DraidError {
    /// A parameter is out of its range or contradicts the others.
    #[error("dRAID parameters {0:?} are impossible")]
    Params(DraidParams),
    /// The permutations have the wrong checksum: a bug or bad memory.
    #[error("dRAID permutations for {children} children have checksum {found:#x}, expected {expected:#x}")]
    Map {
        /// Number of children of the dRAID.
        children: usize,
        /// The checksum of the generated permutations.
        found: u64,
        /// The checksum of the format.
        expected: u64,
    },
}

/// Shape of a dRAID, with the permutations of its children.
#[derive(Debug, Clone)]
pub struct Draid {
    params: DraidParams,
    sector: u64,
    /// Columns of a redundancy group: data and parity.
    group: u64,
    /// Children that hold data in each permutation.
    disks: u64,
    /// Base permutations, one byte an entry.
    base: Vec<u8>,
}

impl Draid {
    /// Checks the parameters and generates the permutations.
    ///
    /// # Errors
    /// [`DraidError`] if no such dRAID is possible.
    pub fn new(params: DraidParams) -> Result<Draid, DraidError> {
        let bad = DraidError::Params(params);
        let group = params.ndata as u64 + u64::from(params.nparity);
        let disks = params.children.checked_sub(params.nspares).ok_or(bad)? as u64;
        let sane = (1..=3).contains(&params.nparity)
            && (2..=255).contains(&params.children)
            && params.nspares <= 100
            && params.ndata >= 1
            && params.ndata <= 255
            && disks >= group
            && params.ngroups >= 1
            && params.ngroups <= 1 << 16
            && (9..=16).contains(&params.ashift.0)
            && (params.ngroups * group).is_multiple_of(disks);
        if !sane {
            return Err(bad);
        }
        let base = permutations(params.children)?;
        Ok(Draid { params, sector: params.ashift.sector(), group, disks, base })
    }

    /// The parameters of the dRAID.
    pub(crate) fn params(&self) -> &DraidParams {
        &self.params
    }

    /// Columns of a group, `nparity` of which may be lost.
    pub fn group_width(&self) -> usize {
        self.group as usize
    }

    /// Smallest allocation: one sector on every data column.
    pub(crate) fn min_alloc(&self) -> u64 {
        self.params.ndata as u64 * self.sector
    }

    /// Allocated bytes of a block.
    pub(crate) fn asize(&self, psize: Psize) -> Option<Asize> {
        let rows = psize.0.div_ceil(self.min_alloc());
        Some(Asize(rows.checked_mul(self.group)?.checked_mul(self.sector)?))
    }

    /// Allocatable bytes of the vdev when its smallest child has `child_asize`.
    pub(crate) fn top_asize(&self, child_asize: u64) -> u64 {
        let usable = child_asize.saturating_sub(RESERVED) / ROW_HEIGHT;
        (usable.saturating_mul(self.disks) / self.group) * self.group * ROW_HEIGHT
    }

    /// Rows of 16 MiB that each child gives to one permutation.
    fn slice_rows(&self) -> u64 {
        self.params.ngroups * self.group / self.disks
    }

    /// Child at a column index of a permutation.
    fn child(&self, permutation: u64, index: u64) -> usize {
        let children = self.params.children as u64;
        let rows = self.base.len() as u64 / children;
        let p = permutation % (rows * children);
        let (row, rotation) = (p / children, p % children);
        let base = self.base.get((row * children + index) as usize).copied().unwrap_or(0);
        ((u64::from(base) + rotation) % children) as usize
    }

    /// The child that holds distributed spare `spare` at a byte of its allocatable space.
    pub fn spare_child(&self, spare: usize, at: u64) -> Option<usize> {
        if spare >= self.params.nspares {
            return None;
        }
        let permutation = at / (self.slice_rows() * ROW_HEIGHT);
        Some(self.child(permutation, (self.params.children - 1 - spare) as u64))
    }

    /// The first byte after `at` at which a distributed spare may be on another child.
    pub(crate) fn spare_end(&self, at: u64) -> u64 {
        let slice = self.slice_rows() * ROW_HEIGHT;
        (at / slice + 1).saturating_mul(slice)
    }

    /// The columns of a block. `None` if its numbers overflow or the offset is not at a full stripe.
    pub fn map(&self, offset: AllocOffset, psize: Psize) -> Option<BlockMap> {
        let stripe = self.group * self.sector;
        let size = psize.0.checked_next_multiple_of(self.sector)?;
        let asize = self.asize(psize)?.0;
        if !offset.0.is_multiple_of(stripe) || size == 0 || offset.0.checked_add(asize)? > i64::MAX as u64 {
            return None;
        }
        let group_size = self.group * ROW_HEIGHT;
        let mut rows = Vec::with_capacity(1);
        let (mut at, mut block_at) = (offset.0, 0);
        while block_at < size {
            let room = group_size - at % group_size;
            let fits = room / stripe * self.min_alloc();
            let piece = (size - block_at).min(fits);
            rows.push(self.row(at, block_at, piece));
            at += room;
            block_at += piece;
        }
        Some(BlockMap { rows, size, sector: self.sector, in_order: true })
    }

    /// One row: `size` bytes within one group.
    fn row(&self, offset: u64, mut block_at: u64, size: u64) -> Row {
        let (sector, nparity) = (self.sector, u64::from(self.params.nparity));
        let group_size = self.group * ROW_HEIGHT;
        let group = offset / group_size;
        let (permutation, within) = (group / self.params.ngroups, group % self.params.ngroups);
        let in_group = (offset % group_size) / sector;
        let start = (within * self.group) % self.disks;
        let row = permutation * self.slice_rows() + (within * self.group) / self.disks;
        let at = row * ROW_HEIGHT + (in_group / self.group) * sector;
        let (short, extra, big) = split(size / sector, self.group, nparity);
        let stored = (short + u64::from(extra != 0)) * sector;
        let columns = (0..self.group)
            .map(|i| {
                let wrapped = start + i >= self.disks;
                let data = if i < nparity { 0 } else { (short + u64::from(i < big)) * sector };
                let column = Column {
                    child: self.child(permutation, (start + i) % self.disks),
                    at: (at + if wrapped { ROW_HEIGHT } else { 0 }) as i64,
                    stored,
                    block_at,
                    data,
                };
                block_at += data;
                column
            })
            .collect();
        Row { nparity: nparity as usize, columns }
    }
}

/// The base permutations for a number of children, verified (section 5.2).
fn permutations(children: usize) -> Result<Vec<u8>, DraidError> {
    let Some(&(seed, expected)) = children.checked_sub(2).and_then(|i| DRAID_MAPS.get(i)) else {
        return Err(DraidError::Map { children, found: 0, expected: 0 });
    };
    let rows = if children < 32 { 256 } else { 512 };
    let mut random = Xoroshiro { s0: 0x000d_7a1d_5eed, s1: seed };
    let mut row: Vec<u8> = (0..children).map(|i| i as u8).collect();
    let mut all = Vec::with_capacity(rows * children);
    for _ in 0..rows {
        for j in (1..children).rev() {
            let k = (random.next() % (j as u64 + 1)) as usize;
            row.swap(j, k);
        }
        all.extend_from_slice(&row);
    }
    let found = fletcher4_first(&all);
    if found == expected { Ok(all) } else { Err(DraidError::Map { children, found, expected }) }
}

/// First word of a little-endian fletcher4.
fn fletcher4_first(bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).fold(0, u64::wrapping_add)
}

/// The generator xoroshiro128++ of the permutations.
struct Xoroshiro {
    s0: u64,
    s1: u64,
}

impl Xoroshiro {
    fn next(&mut self) -> u64 {
        let result = self.s0.wrapping_add(self.s1).rotate_left(17).wrapping_add(self.s0);
        let t = self.s1 ^ self.s0;
        self.s0 = self.s0.rotate_left(49) ^ t ^ (t << 21);
        self.s1 = t.rotate_left(28);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_map_of_the_spec_has_its_checksum() {
        let spec = include_str!("../../../../docs/on-disk/14-draid-maps.tsv");
        let mut seen = 0;
        for line in spec.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
            let children: usize = fields[0].parse().unwrap();
            assert_eq!(DRAID_MAPS[children - 2], (hex(fields[2]), hex(fields[3])));
            let map = permutations(children).unwrap();
            assert_eq!(map.len(), children * fields[1].parse::<usize>().unwrap());
            seen += 1;
        }
        assert_eq!(seen, 254);
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let good =
            DraidParams { children: 11, ndata: 4, nparity: 2, nspares: 2, ngroups: 3, ashift: Ashift(12) };
        assert!(Draid::new(good).is_ok());
        for bad in [
            DraidParams { children: 1, ..good },
            DraidParams { children: 256, ..good },
            DraidParams { ndata: 0, ..good },
            DraidParams { ndata: 8, ..good },
            DraidParams { nparity: 0, ..good },
            DraidParams { nparity: 4, ..good },
            DraidParams { nspares: 12, ..good },
            DraidParams { ngroups: 0, ..good },
            DraidParams { ngroups: 2, ..good },
            DraidParams { ngroups: u64::MAX, ..good },
            DraidParams { ashift: Ashift(63), ..good },
        ] {
            assert_eq!(Draid::new(bad).unwrap_err(), DraidError::Params(bad));
        }
    }
}
