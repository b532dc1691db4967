//! Writes a large file sequentially.

use crate::Failure;
use crate::cost::{Meter, bytes_written, memory_peak};
use crate::pools::{Bench, Wanted, noise};
use pool::Layout;
use std::path::Path;
use zpl::FileKind;
use zpl::{NewFile, WriteHow};

const CALL: usize = 1 << 20;

/// Runs `sequential`: one sequential write.
pub(crate) fn write(dir: &Path, bytes: u64, raidz: bool) -> Result<(), Failure> {
    let (disks, layout) = if raidz { (4, Layout::Raidz(1)) } else { (1, Layout::Single) };
    let size = if raidz { bytes / 3 * 5 / 4 } else { bytes / 4 * 5 } + (1 << 30);
    let record_size = 128 << 10;
    // Like the raw file that it is compared with, which fio fills first.
    let prefill = (bytes + bytes / 16) / if raidz { 3 } else { 1 };
    let wanted = Wanted { disks, size, layout, record_size, cache_bytes: 256 << 20, prefill };
    let bench = Bench::new(dir, &wanted)?;
    let fs = &bench.fs.fs;
    let file = fs.create(fs.root(), b"stream", &NewFile::of(FileKind::Regular, 0o644))?.id;
    let buffers: Vec<Vec<u8>> = (0..8).map(|seed| noise(CALL, seed)).collect();
    bench.sync()?;
    let before = bytes_written();
    let meter = Meter::start();
    for n in 0..bytes / CALL as u64 {
        fs.write(file, n * CALL as u64, &buffers[(n % 8) as usize], &WriteHow::default())?;
    }
    bench.sync()?;
    let cost = meter.stop();
    let written = bytes_written() - before;
    cost.report("MiB written", bytes >> 20);
    println!(
        "devices: {:.0} MB/s, {:.3} bytes for each; {:.2} CPU seconds a second",
        written as f64 / 1e6 / cost.wall.as_secs_f64(),
        written as f64 / bytes as f64,
        cost.cpu.as_secs_f64() / cost.wall.as_secs_f64()
    );
    println!("memory: {} MiB at most", memory_peak() >> 20);
    Ok(())
}
