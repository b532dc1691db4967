//! Compares with the definition, byte by byte, for every set of missing columns.

use super::*;

fn slow_multiply(mut a: u8, b: u8) -> u8 {
    let mut product = 0;
    for bit in 0..8 {
        if b >> bit & 1 == 1 {
            product ^= a;
        }
        a = kernels::double(a);
    }
    product
}

fn slow_parity(data: &[Vec<u8>], row: usize, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    for (i, column) in data.iter().enumerate() {
        let mut factor = 1;
        for _ in 0..row * (data.len() - 1 - i) {
            factor = kernels::double(factor);
        }
        for (to, byte) in out.iter_mut().zip(column) {
            *to ^= slow_multiply(*byte, factor);
        }
    }
    out
}

/// Parity and data columns; the first `long` data columns have `len` bytes, the others `short`.
fn columns(nparity: usize, ndata: usize, long: usize, len: usize, short: usize) -> Vec<Vec<u8>> {
    let mut x = 0x2545_f491_4f6c_dd1du64.wrapping_add((ndata * 31 + len) as u64);
    let data: Vec<Vec<u8>> = (0..ndata)
        .map(|i| {
            (0..if i < long { len } else { short })
                .map(|_| {
                    x ^= x << 13;
                    x ^= x >> 7;
                    x ^= x << 17;
                    x as u8
                })
                .collect()
        })
        .collect();
    (0..nparity).map(|row| slow_parity(&data, row, len)).chain(data.iter().cloned()).collect()
}

fn slices(columns: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    columns.iter_mut().map(Vec::as_mut_slice).collect()
}

#[test]
fn tables_agree_with_the_definition() {
    for a in 0..=255 {
        for b in 0..=255 {
            assert_eq!(multiply(a, b), slow_multiply(a, b));
        }
        if a != 0 {
            assert_eq!(multiply(a, reciprocal(a)), 1);
        }
    }
}

#[test]
fn parity_is_that_of_the_definition() {
    for nparity in 1..=3 {
        for (ndata, long, len, short) in [
            (1, 1, 512, 0),
            (2, 1, 1024, 512),
            (5, 3, 4096, 3584),
            (17, 0, 512, 512),
            (4, 4, 777, 1),
            (255, 9, 600, 88),
        ] {
            let whole = columns(nparity, ndata, long, len, short);
            let mut made = vec![vec![0xee; len]; nparity];
            let data: Vec<&[u8]> = whole[nparity..].iter().map(Vec::as_slice).collect();
            generate(&data, &mut slices(&mut made)).unwrap();
            assert!(made[..] == whole[..nparity], "{nparity} of {ndata}");
        }
    }
}

#[test]
fn every_set_of_missing_columns_is_reconstructed() {
    for nparity in 1..=3 {
        for ndata in [1, 2, 3, 5, 9] {
            let whole = columns(nparity, ndata, ndata.div_ceil(2), 1024, 512);
            for set in 0..1u32 << (nparity + ndata) {
                let missing: Vec<usize> = (0..nparity + ndata).filter(|i| set >> i & 1 == 1).collect();
                if missing.len() > nparity {
                    continue;
                }
                let mut damaged = whole.clone();
                for column in &missing {
                    damaged[*column].fill(0x99);
                }
                reconstruct(&mut slices(&mut damaged), nparity, &missing).unwrap();
                assert!(damaged == whole, "{nparity}+{ndata}: {missing:?}");
            }
        }
    }
}

#[test]
fn the_widest_vdev_is_reconstructed() {
    let whole = columns(3, 252, 252, 64, 64);
    for missing in [[3, 100, 254], [0, 3, 4], [1, 253, 254], [2, 30, 200], [0, 1, 2]] {
        let mut damaged = whole.clone();
        for column in missing {
            damaged[column].fill(1);
        }
        reconstruct(&mut slices(&mut damaged), 3, &missing).unwrap();
        assert!(damaged == whole, "{missing:?}");
    }
}

#[test]
fn impossible_requests_are_errors() {
    let mut whole = columns(2, 3, 3, 64, 64);
    let mut request = |nparity, missing: &[usize]| reconstruct(&mut slices(&mut whole), nparity, missing);
    assert_eq!(request(2, &[0, 1, 2]), Err(ParityError::Missing { missing: 3, parity: 2 }));
    assert_eq!(request(2, &[5]), Err(ParityError::Missing { missing: 1, parity: 2 }));
    assert_eq!(request(2, &[1, 1]), Err(ParityError::Missing { missing: 2, parity: 2 }));
    assert_eq!(request(0, &[]), Err(ParityError::Shape { data: 5, parity: 0 }));
    assert_eq!(request(4, &[]), Err(ParityError::Shape { data: 1, parity: 4 }));
    assert_eq!(request(5, &[]), Err(ParityError::Shape { data: 0, parity: 5 }));
    let mut parity = [0; 8];
    let long = Err(ParityError::Length { column: 1, len: 9, parity: 8 });
    assert_eq!(generate(&[&[1; 9]], &mut [&mut parity]), long);
}

#[test]
fn columns_of_no_bytes_are_nothing_to_do() {
    let mut empty = vec![vec![]; 4];
    assert_eq!(reconstruct(&mut slices(&mut empty), 2, &[0, 3]), Ok(()));
}

#[test]
fn every_kind_of_vector_gives_the_same() {
    for (ndata, long, len, short) in [(1, 1, 1, 0), (3, 2, 64, 32), (5, 2, 777, 130), (9, 9, 4096, 4096)] {
        let whole = columns(3, ndata, long, len, short);
        let data: Vec<&[u8]> = whole[3..].iter().map(Vec::as_slice).collect();
        for rows in 1..8u8 {
            let wanted: Vec<usize> = (0..3).filter(|row| rows >> row & 1 == 1).collect();
            let mut made = vec![vec![0; len]; wanted.len()];
            let mut targets = slices(&mut made);
            let mut job = Job { data: &data, len, rows, goal: Goal::Parity(&mut targets) };
            simd::gf::run_each(&mut job, |kind, job| {
                let Goal::Parity(made) = &mut job.goal else { unreachable!() };
                for (column, row) in made.iter_mut().zip(&wanted) {
                    assert!(**column == whole[*row], "{kind}: rows {rows}, {ndata} columns of {len}");
                    column.fill(0xa5);
                }
            });
        }
    }
}

#[test]
fn every_kind_of_vector_solves() {
    let whole = columns(3, 5, 3, 700, 500);
    let lost = [1, 2, 4];
    for rows in 1..8u8 {
        let used: Vec<usize> = (0..3).filter(|row| rows >> row & 1 == 1).collect();
        let lost = &lost[..used.len()];
        let mut factors = [[0; PARITY_MAX]; PARITY_MAX];
        for (i, row) in used.iter().enumerate() {
            for (j, column) in lost.iter().enumerate() {
                factors[i][j] = power(*row, 4 - column);
            }
        }
        let known: Vec<&[u8]> =
            (0..5).map(|i| if lost.contains(&i) { &[][..] } else { &whole[3 + i][..] }).collect();
        let parity: Vec<&[u8]> = used.iter().map(|row| whole[*row].as_slice()).collect();
        let mut made: Vec<Vec<u8>> = lost.iter().map(|i| vec![0; whole[3 + i].len()]).collect();
        let mut targets = slices(&mut made);
        let inverse = invert(factors, lost.len());
        let goal = Goal::Lost { parity: &parity, inverse, lost: &mut targets };
        simd::gf::run_each(&mut Job { data: &known, len: 700, rows, goal }, |kind, job| {
            let Goal::Lost { lost: made, .. } = &mut job.goal else { unreachable!() };
            for (column, i) in made.iter_mut().zip(lost) {
                assert!(**column == whole[3 + i], "{kind}: rows {rows}");
                column.fill(0x5a);
            }
        });
    }
}
