//! `cargo xtask bench codec`: speed of the block codecs in GB/s per core, compared with the best other
//! implementations on the same data: `raidz_test -B`, `lz4 -b`, `zstd -b`, `openssl speed`, the blake3 crate.
//!
//! Cenote's numbers are CPU time of one thread; those of the others are what they print.

use crate::Failure;
use crate::pools::noise;
use crate::report::{Goal, Line, Report};
use clap::Args;
use codec::checksum::{self, Salt};
use codec::compress::{compress, decompress};
use codec::crypt::{DataKey, Suite};
use codec::gf256;
use format::{ChecksumId, CompressionId, Endian};
use std::hint::black_box;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Block size in bytes.
const BLOCK: usize = 128 << 10;
/// Size in bytes of the data to compress: the beginning of this program, as realistic data.
const CORPUS: u64 = 16 << 20;
/// Duration of each measurement. It is repeated several times, and the best result counts.
const EACH: Duration = Duration::from_millis(150);
const ROUNDS: u32 = 4;
/// Goal: at most 1.2 times the time of OpenZFS's best SIMD code (docs: ARCHITECTURE.md, speed).
const PARITY: Goal = Goal::AtLeast(1.0 / 1.2);
/// Goal: the speed of the library, within measurement noise.
const LIBRARY: Goal = Goal::AtLeast(0.9);
/// Number of data columns of RAID-Z, and their size in bytes, as in one of the sizes of `raidz_test`.
const COLUMNS: usize = 8;
const COLUMN: usize = 128 << 10;

/// What to measure, and how.
#[derive(Debug, Args)]
pub(crate) struct Choices {
    /// Only what has this in its name
    #[arg(long, default_value = "")]
    filter: String,
    /// OpenZFS's own measurement of RAID-Z takes minutes: do without
    #[arg(long)]
    no_raidz_test: bool,
    /// The folder where the table and the JSON are kept
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

/// Runs all measurements that `choices` selects.
pub(crate) fn run(dir: &Path, choices: &Choices) -> Result<(), Failure> {
    let mut bench = Bench { filter: &choices.filter, report: Report::new("codec") };
    bench.checksums()?;
    bench.compression(dir)?;
    bench.encryption()?;
    let theirs = if choices.no_raidz_test { String::new() } else { said("raidz_test", &["-B"]) };
    bench.raidz(&theirs)?;
    bench.report.keep(&choices.out)
}

struct Bench<'c> {
    filter: &'c str,
    report: Report,
}

impl Bench<'_> {
    /// Adds a line: the speed at which `work` processes `len` bytes.
    fn rate(
        &mut self,
        what: &str,
        len: usize,
        peer: Option<(&str, f64)>,
        goal: Goal,
        mut work: impl FnMut(),
    ) {
        if !what.contains(self.filter) {
            return;
        }
        work();
        let mut best = 0f64;
        for _ in 0..ROUNDS {
            let (begun, mut runs) = (thread_time(), 0u32);
            let mut taken = Duration::ZERO;
            while taken < EACH {
                work();
                runs += 1;
                taken = thread_time() - begun;
            }
            best = best.max(len as f64 * f64::from(runs) / taken.as_secs_f64() / 1e9);
        }
        self.report.add(Line {
            what: what.to_owned(),
            unit: "GB/s",
            ours: best,
            peer: peer.map(|(name, rate)| (name.to_owned(), rate)),
            goal: Some(goal),
            note: String::new(),
        });
    }

    fn checksums(&mut self) -> Result<(), Failure> {
        let (data, salt) = (noise(BLOCK, 1), Salt([3; 32]));
        let sha256 = openssl("sha256").map(|rate| ("openssl", rate));
        let blake3 = {
            let begun = thread_time();
            let runs = 4000u32;
            for _ in 0..runs {
                black_box(blake3::hash(black_box(&data)));
            }
            BLOCK as f64 * f64::from(runs) / (thread_time() - begun).as_secs_f64() / 1e9
        };
        let all = [
            (ChecksumId::Fletcher4, "fletcher4", None),
            (ChecksumId::Sha256, "sha256", sha256),
            (ChecksumId::Sha512, "sha512", None),
            (ChecksumId::Blake3, "blake3", Some(("blake3 crate", blake3))),
            (ChecksumId::Skein, "skein", None),
            (ChecksumId::Edonr, "edonr", None),
        ];
        for (id, name, peer) in all {
            self.rate(name, BLOCK, peer, LIBRARY, || {
                let _ = black_box(checksum::compute(id, black_box(&data), Endian::Little, Some(&salt)));
            });
        }
        Ok(())
    }

    fn compression(&mut self, dir: &Path) -> Result<(), Failure> {
        let mut corpus = Vec::new();
        std::fs::File::open(std::env::current_exe()?)?.take(CORPUS).read_to_end(&mut corpus)?;
        let file = tempfile::NamedTempFile::new_in(dir)?;
        std::fs::write(file.path(), &corpus)?;
        let blocks: Vec<&[u8]> = corpus.chunks_exact(BLOCK).collect();
        let path = file.path().to_string_lossy().into_owned();
        let lz4 = benchmark(&said("lz4", &["-b1", "-i2", "-B131072", &path]));
        let zstd = benchmark(&said("zstd", &["-b3", "-i2", "-B131072", &path]));
        let all = [
            (CompressionId::Lz4, 0, "lz4", lz4.map(|rates| ("lz4", rates))),
            (CompressionId::Zstd, 3, "zstd-3", zstd.map(|rates| ("zstd", rates))),
            (CompressionId::Gzip6, 6, "gzip-6", None),
            (CompressionId::Lzjb, 0, "lzjb", None),
        ];
        for (id, level, name, peer) in all {
            let len = blocks.len() * BLOCK;
            let [pack, unpack] =
                [0, 1].map(|side| peer.map(|(name, rates): (_, [f64; 2])| (name, rates[side])));
            self.rate(&format!("{name} compress"), len, pack, LIBRARY, || {
                blocks.iter().for_each(|block| drop(black_box(compress(id, level, block, 2 * BLOCK))));
            });
            let images: Vec<Vec<u8>> =
                blocks.iter().filter_map(|block| compress(id, level, block, 2 * BLOCK)).collect();
            if images.len() != blocks.len() {
                return Err(format!("{name}: not all blocks could be compressed").into());
            }
            let mut block = vec![0; BLOCK];
            self.rate(&format!("{name} decompress"), len, unpack, LIBRARY, || {
                images.iter().for_each(|image| {
                    let _ = black_box(decompress(id, black_box(image), &mut block));
                });
            });
        }
        Ok(())
    }

    fn encryption(&mut self) -> Result<(), Failure> {
        for (suite, name, theirs) in [
            (Suite::Aes256Gcm, "aes-256-gcm", openssl("aes-256-gcm")),
            (Suite::Aes128Gcm, "aes-128-gcm", openssl("aes-128-gcm")),
            (Suite::Aes256Ccm, "aes-256-ccm", None),
        ] {
            let key = DataKey::new(suite, 1, 1, &[5; 32][..suite.key_len()], &[6; 64])?;
            let mut data = noise(BLOCK, 2);
            let peer = theirs.map(|rate| ("openssl", rate));
            self.rate(&format!("{name} encrypt"), BLOCK, peer, LIBRARY, || {
                let _ = black_box(key.encrypt(&[1; 8], &[2; 12], &[], black_box(&mut data)));
            });
            let mac = key.encrypt(&[1; 8], &[2; 12], &[], &mut data)?;
            let sealed = data.clone();
            self.rate(&format!("{name} decrypt"), BLOCK, peer, LIBRARY, || {
                data.copy_from_slice(&sealed);
                let _ = black_box(key.decrypt(&[1; 8], &[2; 12], &mac, &[], black_box(&mut data)));
            });
        }
        Ok(())
    }

    fn raidz(&mut self, theirs: &str) -> Result<(), Failure> {
        let data: Vec<Vec<u8>> = (0..COLUMNS).map(|seed| noise(COLUMN, seed as u64)).collect();
        for nparity in 1..=3 {
            let mut parity = vec![vec![0; COLUMN]; nparity];
            let sources: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let peer = |math: &str| best_raidz(theirs, math).map(|rate| ("raidz_test", rate));
            let name = ["gen_p", "gen_pq", "gen_pqr"][nparity - 1];
            self.rate(&format!("raidz{nparity} generate"), COLUMNS * COLUMN, peer(name), PARITY, || {
                let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
                let _ = gf256::generate(black_box(&sources), &mut targets);
            });
            let name = ["rec_p", "rec_pq", "rec_pqr"][nparity - 1];
            let mut columns: Vec<Vec<u8>> = parity.iter().chain(&data).cloned().collect();
            let lost: Vec<usize> = (nparity..2 * nparity).collect();
            self.rate(
                &format!("raidz{nparity} rebuild {nparity}"),
                COLUMNS * COLUMN,
                peer(name),
                PARITY,
                || {
                    let mut all: Vec<&mut [u8]> = columns.iter_mut().map(Vec::as_mut_slice).collect();
                    let _ = gf256::reconstruct(&mut all, nparity, &lost);
                },
            );
        }
        Ok(())
    }
}

/// CPU time of this thread.
fn thread_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// Output of a program on either stream; empty, with a message, if the program is missing or fails.
fn said(program: &str, words: &[&str]) -> String {
    match Command::new(program).args(words).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {
            let [out, err] =
                [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
            out + &err
        }
        Ok(output) => {
            println!("{program}: {}", output.status);
            String::new()
        }
        Err(error) => {
            println!("{program} is not here: {error}");
            String::new()
        }
    }
}

/// Speed of `openssl speed` in GB/s with blocks of this size.
fn openssl(algorithm: &str) -> Option<f64> {
    let block = BLOCK.to_string();
    rate_of_openssl(&said("openssl", &["speed", "-seconds", "1", "-bytes", &block, "-evp", algorithm]))
}

/// Parses the last line, which ends with thousands of bytes per second: `AES-256-GCM    4735631.36k`.
fn rate_of_openssl(text: &str) -> Option<f64> {
    let last = text.lines().rev().find_map(|line| line.split_whitespace().last()?.strip_suffix('k'))?;
    Some(last.parse::<f64>().ok()? * 1e3 / 1e9)
}

/// Speeds of compression and decompression in GB/s from `lz4 -b` and `zstd -b`: `… 466.9 MB/s, 2626.1 MB/s`.
fn benchmark(text: &str) -> Option<[f64; 2]> {
    let line = text.split(['\r', '\n']).rev().find(|line| line.matches("MB/s").count() == 2)?;
    let rates: Vec<f64> = line
        .split("MB/s")
        .filter_map(|part| part.trim_end().rsplit([' ', ',']).next()?.parse::<f64>().ok())
        .collect();
    Some([rates.first()? / 1e3, rates.get(1)? / 1e3])
}

/// Speed in GB/s of data of the fastest implementation in the output of `raidz_test -B`, for these columns. The
/// output has MiB/s of each disk.
fn best_raidz(text: &str, math: &str) -> Option<f64> {
    let rate = |line: &str| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let (columns, size) = (fields.get(2)?.parse::<usize>().ok()?, fields.get(3)?.parse::<usize>().ok()?);
        let fits = *fields.get(1)? == math && columns == COLUMNS && size == COLUMNS * COLUMN;
        if fits { fields.get(4)?.parse::<f64>().ok() } else { None }
    };
    let best = text.lines().filter_map(rate).fold(0.0, f64::max);
    (best > 0.0).then(|| best * COLUMNS as f64 * f64::from(1 << 20) / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_print_is_read() {
        let lz4 = " 1#corp :  16777216 ->   9729980 (1.724), 466.9 MB/s\r 1#corp :  16777216 ->   9729980 (1.724), 466.9 MB/s ,2626.1 MB/s \n";
        assert_eq!(benchmark(lz4), Some([0.4669, 2.6261]));
        let zstd = " 3#corp              :  16777216 ->   7374183 (x2.275),   57.4 MB/s,  350.2 MB/s\n";
        assert_eq!(benchmark(zstd), Some([0.0574, 0.3502]));
        assert_eq!(benchmark("nothing"), None);
        let openssl = "type         131072 bytes\nAES-256-GCM    4735631.36k\n";
        assert_eq!(rate_of_openssl(openssl), Some(4.73563136));
        let raidz = "impl, math, dcols, iosize, disk_bw, total_bw, iter\n  scalar, gen_p, 8, 1048576, 1000.0, 9000.0, 4096\n    avx2, gen_p, 8, 1048576, 2000.0, 18000.0, 4096\n    avx2, gen_p, 8, 4096, 9000.0, 18000.0, 4096\n";
        assert_eq!(best_raidz(raidz, "gen_p"), Some(2000.0 * 8.0 * 1.048576 / 1000.0));
        assert_eq!(best_raidz(raidz, "gen_pq"), None);
    }
}
