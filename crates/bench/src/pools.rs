//! Pools on files, created for a measurement.

use crate::Failure;
use dsl::prop::PropValue;
use pool::LivePool;
use pool::space::Class;
use pool::{CreateSpec, Layout, LeafSpec, Leave, TopSpec};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use vdev::device::file::{Access, open_exclusive};
use vdev::env::Env;
use zpl::{FileKind, HeadFs, NewFile, NewFilesystem, WriteHow, make_filesystem, options_of};

/// The name of the pool.
pub(crate) const NAME: &str = "bench";

/// A pool with its root file system open.
pub(crate) struct Bench {
    pub(crate) fs: Arc<HeadFs>,
    pub(crate) pool: Arc<LivePool>,
    dir: tempfile::TempDir,
}

/// Parameters of a measured pool.
pub(crate) struct Wanted {
    /// Number of image files.
    pub(crate) disks: usize,
    /// Size of each image file in bytes.
    pub(crate) size: u64,
    pub(crate) layout: Layout,
    pub(crate) record_size: u64,
    pub(crate) cache_bytes: usize,
    /// Writes the first bytes of each image file, so that the file system below need not allocate them during the
    /// measurement.
    pub(crate) prefill: u64,
}

impl Bench {
    pub(crate) fn new(dir: &Path, wanted: &Wanted) -> Result<Bench, Failure> {
        let dir = tempfile::Builder::new().prefix("bench").tempdir_in(dir)?;
        let mut leaves = Vec::new();
        for i in 0..wanted.disks {
            let path = dir.path().join(format!("disk{i}"));
            prefill(&path, wanted.prefill)?;
            std::fs::OpenOptions::new().write(true).open(&path)?.set_len(wanted.size)?;
            let device = open_exclusive(&path, Access::Auto)?;
            leaves.push(LeafSpec::file(path.to_string_lossy(), device));
        }
        let ashift = None;
        let top = TopSpec { layout: wanted.layout, class: Class::Normal, ashift, leaves };
        let env = Env::system();
        let mut spec = CreateSpec::new(NAME, vec![top]);
        spec.cache_bytes = wanted.cache_bytes;
        spec.root.props = vec![("recordsize".to_owned(), PropValue::Number(wanted.record_size))];
        let fill_env = env.clone();
        spec.root.fill = Box::new(move |set, tx| {
            make_filesystem(set, &NewFilesystem::default(), &fill_env, tx)
                .map(drop)
                .map_err(|error| dsl::DslError::Fill { source: Box::new(error) })
        });
        let pool = LivePool::create(spec, env.clone())?;
        pool.start();
        let head = pool.heads().open_by_name(NAME)?;
        let options = options_of(&pool.view()?.dsl().dataset(NAME)?, pool.features())?;
        let fs = HeadFs::open(&head, options, &env)?;
        Ok(Bench { fs, pool, dir })
    }

    /// Exports the pool. Its files exist until the returned value is dropped.
    pub(crate) fn close(self) -> Result<tempfile::TempDir, Failure> {
        let Bench { fs, pool, dir } = self;
        drop(fs);
        pool.export(Leave::Exported)?;
        Ok(dir)
    }

    /// Writes all changes to disk.
    pub(crate) fn sync(&self) -> Result<(), Failure> {
        self.pool.sync()?;
        Ok(())
    }
}

impl Bench {
    /// Takes a snapshot of the file system.
    pub(crate) fn snapshot(&self, name: &str) -> Result<(), Failure> {
        let name = format!("{NAME}@{name}");
        self.pool.run(move |ctx| dsl::snapshot::snapshot(ctx, &[name], &[]))?;
        Ok(())
    }

    /// Makes a file of this many incompressible bytes.
    pub(crate) fn fill(&self, name: &str, bytes: u64) -> Result<(), Failure> {
        let fs = &self.fs.fs;
        let file = fs.create(fs.root(), name.as_bytes(), &NewFile::of(FileKind::Regular, 0o644))?.id;
        let data = noise(1 << 20, 5);
        for at in (0..bytes).step_by(data.len()) {
            fs.write(file, at, &data, &WriteHow::default())?;
        }
        Ok(())
    }
}

/// Creates a file whose first bytes are written.
fn prefill(path: &Path, bytes: u64) -> Result<(), Failure> {
    let mut file = std::fs::File::create(path)?;
    let zeros = vec![0; 1 << 20];
    for _ in 0..bytes >> 20 {
        file.write_all(&zeros)?;
    }
    file.sync_all()?;
    Ok(())
}

/// Incompressible bytes.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    vdev::env::Random::from_seed(seed).fill(&mut bytes);
    bytes
}

/// Drops the system's cache of the files in a directory.
pub(crate) fn cool(folder: &Path) -> Result<(), Failure> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() {
            let file = File::open(&path)?;
            file.sync_all()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// A pool with one file of this many incompressible bytes.
pub(crate) fn one_file(dir: &Path, name: &str, bytes: u64, record_size: u64) -> Result<TempDir, Failure> {
    // Allowance for reserved space and indirect blocks.
    let size = bytes + bytes / 8 + (512 << 20);
    let (layout, cache_bytes) = (Layout::Single, 512 << 20);
    let wanted = Wanted { disks: 1, size, layout, record_size, cache_bytes, prefill: size };
    let bench = Bench::new(dir, &wanted)?;
    bench.fill(name, bytes)?;
    bench.close()
}
