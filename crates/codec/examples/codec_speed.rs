//! How fast this crate is on this machine: MB/s of block data per algorithm.
//!
//! `cargo run --release -p cenote-codec --example codec_speed [FILTER]`

use cenote_codec::checksum::{self, Salt};
use cenote_codec::compress::{compress, decompress};
use cenote_codec::crypt::{DataKey, Suite, WrappingKey};
use cenote_codec::gf256;
use format::{ChecksumId, CompressionId, Endian};
use std::hint::black_box;
use std::time::{Duration, Instant};

const BLOCK: usize = 131_072;

struct Bench {
    filter: String,
}

impl Bench {
    /// Runs `work` on `len` bytes for a while and prints the rate.
    fn rate(&self, name: &str, len: usize, mut work: impl FnMut()) {
        if !name.contains(&self.filter) {
            return;
        }
        work();
        let (start, before, mut runs) = (Instant::now(), cpu_time(), 0u32);
        while start.elapsed() < Duration::from_millis(200) {
            work();
            runs += 1;
        }
        let taken = match (before, cpu_time()) {
            (Some(before), Some(after)) => after - before,
            _ => start.elapsed(),
        };
        println!("{name:32} {:9.0} MB/s", len as f64 * f64::from(runs) / taken.as_secs_f64() / 1e6);
    }

    fn checksums(&self) {
        let salt = Salt([3; 32]);
        for len in [4096, BLOCK] {
            let data = text(len);
            for id in (6..=14).filter_map(|id| ChecksumId::from_id(id).ok()) {
                let sum = |order| checksum::compute(id, black_box(&data), order, Some(&salt));
                if id.is_none() || sum(Endian::Little).is_err() {
                    continue;
                }
                self.rate(&format!("{id} of {len}"), len, || {
                    black_box(sum(Endian::Little).expect("a checksum"));
                });
            }
            self.rate(&format!("fletcher4 of {len}, big order"), len, || {
                let _ =
                    black_box(checksum::compute(ChecksumId::Fletcher4, black_box(&data), Endian::Big, None));
            });
        }
    }

    fn compression(&self) {
        let data = text(BLOCK);
        for id in [3, 5, 10, 13, 14, 15, 16].into_iter().filter_map(|id| CompressionId::from_id(id).ok()) {
            let image = compress(id, 3, &data, 2 * BLOCK).expect("room");
            let mut block = vec![0; BLOCK];
            self.rate(&format!("{id} compress"), BLOCK, || {
                black_box(compress(id, 3, black_box(&data), 2 * BLOCK));
            });
            self.rate(&format!("{id} decompress"), BLOCK, || {
                decompress(id, black_box(&image), &mut block).expect("valid");
            });
        }
    }

    fn encryption(&self) {
        for suite in Suite::ALL {
            let key = DataKey::new(suite, 1, 1, &[5; 32][..suite.key_len()], &[6; 64]).expect("lengths");
            let mut data = text(BLOCK);
            self.rate(&format!("{suite} encrypt"), BLOCK, || {
                black_box(key.encrypt(&[1; 8], &[2; 12], &[], &mut data).expect("short enough"));
            });
            let plain = data.clone();
            let mac = key.encrypt(&[1; 8], &[2; 12], &[], &mut data).expect("short enough");
            let sealed = data.clone();
            self.rate(&format!("{suite} copy and decrypt"), BLOCK, || {
                data.copy_from_slice(&sealed);
                key.decrypt(&[1; 8], &[2; 12], &mac, &[], &mut data).expect("the right key");
            });
            assert!(data == plain || !suite.name().contains(&self.filter));
        }
        self.rate("pbkdf2 rounds (MB: millions)", 350_000, || {
            black_box(WrappingKey::from_passphrase(b"password", 1, 350_000).expect("rounds"));
        });
    }

    fn raidz(&self) {
        for ndata in [4, 8] {
            let len = BLOCK / ndata;
            let data: Vec<Vec<u8>> = (0..ndata).map(|i| text(len + i)[i..].to_vec()).collect();
            for nparity in 1..=3 {
                let mut parity = vec![vec![0; len]; nparity];
                let sources: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
                self.rate(&format!("raidz{nparity} of {ndata}: generate"), BLOCK, || {
                    let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
                    gf256::generate(black_box(&sources), &mut targets).expect("a shape");
                });
                let mut columns: Vec<Vec<u8>> = parity.iter().chain(&data).cloned().collect();
                for missing in 1..=nparity {
                    let lost: Vec<usize> = (nparity..nparity + missing).collect();
                    self.rate(&format!("raidz{nparity} of {ndata}: reconstruct {missing}"), BLOCK, || {
                        let mut all: Vec<&mut [u8]> = columns.iter_mut().map(Vec::as_mut_slice).collect();
                        gf256::reconstruct(&mut all, nparity, &lost).expect("a shape");
                    });
                }
            }
        }
    }
}

/// Time that this thread was on a processor: other work on the machine does not count.
fn cpu_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    stat.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// Something that compresses to about half.
fn text(len: usize) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let mut out = Vec::with_capacity(len + 16);
    while out.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let back = (x >> 40) as usize % 4000 + 8;
        match out.len().checked_sub(back) {
            Some(from) if x & 3 != 0 => out.extend_from_within(from..from + 8),
            _ => out.extend_from_slice(&x.to_le_bytes()),
        }
    }
    out.truncate(len);
    out
}

fn main() {
    let bench = Bench { filter: std::env::args().nth(1).unwrap_or_default() };
    bench.checksums();
    bench.compression();
    bench.encryption();
    bench.raidz();
}
