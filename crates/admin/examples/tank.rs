//! Uses a pool from a program: datasets, files written by several threads, snapshots, a volume.
//!
//! `cargo run -p cenote-admin --example tank -- FOLDER` creates the pool `tank` on files in the directory.
#![allow(clippy::disallowed_types)] // it makes the files of its pool

use std::error::Error;
use std::path::Path;

use cenote::{OpenOptions, Pool, PoolWriter};
use cenote_admin::PoolVerbs;
use cenote_admin::change::NewPool;

const DISK: u64 = 128 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("which folder?")?;
    let folder = std::path::absolute(folder)?;
    let mut vdevs = vec!["mirror".to_owned()];
    for name in ["a", "b"] {
        vdevs.push(disk(&folder.join(name))?);
    }
    let pool = NewPool::new("tank", &vdevs)?.with("compression", "zstd").create()?;
    pool.create_filesystem("tank/home", &[("quota", "50M"), ("org.example:owner", "me")])?;
    write_from_threads(&pool)?;

    pool.snapshot(&["tank/home@one"])?;
    pool.filesystem("tank/home")?.remove(b"/0/file")?;
    pool.clone_snapshot("tank/home@one", "tank/copy", &[])?;
    pool.promote("tank/copy")?;
    pool.promote("tank/home")?;
    pool.destroy_dataset("tank/copy")?;
    pool.rollback("tank/home@one")?;

    pool.create_volume("tank/disk", 16 << 20, &[("volblocksize", "8k")])?;
    let disk = pool.volume("tank/disk")?;
    disk.write_at(4096, b"boot")?;
    disk.flush()?;
    drop(disk);
    println!("used: {:?}", pool.property("tank/home", "used")?);
    pool.close()?;

    let pool = Pool::open("tank", &OpenOptions::new().search(&folder))?;
    for dataset in pool.datasets()? {
        println!("{}", dataset.name());
    }
    let file = pool.dataset("tank/home@one")?.filesystem()?.open(b"/0/file")?;
    let mut text = [0; 64];
    let n = file.read_at(0, &mut text)?;
    println!("{}", String::from_utf8_lossy(&text[..n]));
    Ok(())
}

fn disk(path: &Path) -> Result<String, Box<dyn Error>> {
    std::fs::File::create_new(path)?.set_len(DISK)?;
    Ok(path.to_str().ok_or("a plain path is needed")?.to_owned())
}

/// Each thread writes in a directory of its own and returns when its file is durable.
fn write_from_threads(pool: &PoolWriter) -> Result<(), Box<dyn Error>> {
    let fs = pool.filesystem("tank/home")?;
    std::thread::scope(|scope| {
        let write = |i: u32| -> Result<(), cenote::Error> {
            fs.create_dir_all(format!("/{i}").as_bytes(), 0o755)?;
            let file = fs.create(format!("/{i}/file").as_bytes())?;
            file.append(format!("written by thread {i}").as_bytes())?;
            file.sync()
        };
        let threads: Vec<_> = (0..8).map(|i| scope.spawn(move || write(i))).collect();
        threads.into_iter().try_for_each(|thread| Ok(thread.join().map_err(|_| "a thread panicked")??))
    })
}
