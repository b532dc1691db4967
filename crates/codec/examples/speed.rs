use cenote_codec as codec;
use aws_lc_rs::digest as aws;
use std::hint::black_box;
use std::time::Instant;
fn rate(name: &str, len: usize, mut f: impl FnMut()) {
    f();
    let mut n = 0u32;
    let t = Instant::now();
    while t.elapsed().as_millis() < 300 {
        f();
        n += 1;
    }
    println!("{name:28} {:9.1} MB/s", len as f64 * f64::from(n) / t.elapsed().as_secs_f64() / 1e6);
}
fn main() {
    for ndata in [4usize, 8] {
        let cols: Vec<Vec<u8>> = (0..ndata).map(|c| (0..131072u32 / ndata as u32).map(|i| (i * 7 + c as u32) as u8).collect()).collect();
        let data: Vec<&[u8]> = cols.iter().map(|c| &c[..]).collect();
        for np in 1..=3 {
            let mut par = vec![vec![0u8; 131072 / ndata]; np];
            rate(&format!("gen {np} + {ndata}"), 131072, || {
                let mut p: Vec<&mut [u8]> = par.iter_mut().map(|p| &mut p[..]).collect();
                codec::gf256::generate(black_box(&data), &mut p).unwrap();
            });
            let mut all: Vec<Vec<u8>> = par.iter().cloned().chain(cols.iter().cloned()).collect();
            for m in 1..=np {
            let missing: Vec<usize> = (np..np + m).collect();
            rate(&format!("rec {m} of {np} + {ndata}"), 131072, || {
                let mut p: Vec<&mut [u8]> = all.iter_mut().map(|p| &mut p[..]).collect();
                codec::gf256::reconstruct(&mut p, np, &missing).unwrap();
            });
            }
        }
    }
    for len in [4096usize, 131072] {
    println!("-- {len}");
    let data: Vec<u8> = (0..len as u32).map(|i| (i.wrapping_mul(i) >> 3) as u8).collect();
    rate("sha256 aws", len, || { black_box(aws::digest(&aws::SHA256, black_box(&data))); });
    rate("sha512-256 aws", len, || { black_box(aws::digest(&aws::SHA512_256, black_box(&data))); });
    let salt = codec::checksum::Salt([3; 32]);
    use format::{ChecksumId as C, Endian as E};
    for id in [C::Fletcher2, C::Fletcher4, C::Sha256, C::Sha512, C::Skein, C::Edonr, C::Blake3] {
        for o in [E::Little, E::Big] {
        rate(&format!("{id} {o:?}"), len, || { black_box(codec::checksum::compute(id, black_box(&data), o, Some(&salt)).unwrap()); });
        }
    }
    }
}
