//! Time of creating files: printed, not checked.

use super::world::World;
use cenote_zpl::FileKind;
use cenote_zpl::{FsOptions, NewFile, WriteHow};
use dmu::Limits;
use std::time::Instant;

#[test]
#[ignore = "a measurement"]
fn many_small_files() {
    let limits = Limits { dirty_max: 8 << 30, ..Limits::default() };
    let world = World::with(FsOptions::default(), &Default::default(), limits);
    let fs = &world.fs;
    let data = [7_u8; 512];
    let start = Instant::now();
    let mut made = 0;
    let dirs: u32 = std::env::var("DIRS").ok().and_then(|dirs| dirs.parse().ok()).unwrap_or(2500);
    for d in 0..dirs {
        let new = NewFile::of(FileKind::Directory, 0o755);
        let dir = fs.create(fs.root(), format!("dir{d}").as_bytes(), &new).expect("made").id;
        for f in 0..40_u32 {
            let new = NewFile::of(FileKind::Regular, 0o644);
            let file = fs.create(dir, format!("file{f}").as_bytes(), &new).expect("made").id;
            fs.write(file, 0, &data, &WriteHow::default()).expect("written");
            made += 1;
        }
    }
    let spent = start.elapsed();
    println!("{made} files in {spent:?}: {:?} each", spent / made);
    let start = Instant::now();
    world.sync();
    println!("sync {:?}", start.elapsed());
    let start = Instant::now();
    for d in 0..dirs {
        let dir = fs.lookup(fs.root(), format!("dir{d}").as_bytes()).expect("read").expect("there");
        for f in 0..40_u32 {
            fs.unlink(dir, format!("file{f}").as_bytes()).expect("removed");
        }
        fs.rmdir(fs.root(), format!("dir{d}").as_bytes()).expect("removed");
    }
    println!("removed in {:?}", start.elapsed());
}
