//! A golden pool on this machine: found, unpacked once, shared by all tests.
//!
//! # Order
//! lock `target/fixtures/NAME.lock` -> unpack into a temporary folder -> check sizes -> rename to
//! `target/fixtures/NAME` -> write `NAME.stamp`. A second process finds the stamp. A run
//! that is killed leaves a temporary folder at worst, never a half pool under the name.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::entries::Entries;
use crate::error::FixtureError;
use crate::manifest::Manifest;
use crate::unpack::{sha256_of_file, sparse_copy, unpack};

/// The root of the project.
#[must_use]
pub fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Folder of the packed fixtures.
#[must_use]
pub fn fixtures_root() -> PathBuf {
    workspace_root().join("fixtures/openzfs-2.3.2")
}

/// Folder of a fixture: one of those that [`Fixture::names`] lists, or one of the further ones that only
/// tests use which name them.
fn source_of(name: &str) -> PathBuf {
    let usual = fixtures_root().join(name);
    if usual.exists() { usual } else { workspace_root().join("fixtures/openzfs-2.3.2-more").join(name) }
}

/// Where fixtures are unpacked: `fixtures` in cargo's target folder.
pub(crate) fn unpacked_root() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    workspace_root().join(target).join("fixtures")
}

/// A golden pool, unpacked.
#[derive(Debug, Clone)]
pub struct Fixture {
    source: PathBuf,
    dir: PathBuf,
    manifest: Manifest,
}

impl Fixture {
    /// The fixture of that name, which is unpacked if necessary.
    ///
    /// # Panics
    /// If it does not exist or cannot be unpacked; [`Fixture::try_open`] returns the reason.
    #[must_use]
    pub fn open(name: &str) -> Fixture {
        Fixture::try_open(name).unwrap_or_else(|error| {
            let cause =
                std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
            panic!("fixture {name}: {error}{cause}")
        })
    }

    /// The fixture of that name, which is unpacked if necessary.
    ///
    /// # Errors
    /// [`FixtureError`]: there is no such fixture, or it cannot be unpacked.
    pub fn try_open(name: &str) -> Result<Fixture, FixtureError> {
        let source = source_of(name);
        let path = source.join("manifest.json");
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(FixtureError::Unknown { name: name.to_owned(), root: fixtures_root() });
            }
            Err(source) => return Err(FixtureError::Io { path, source }),
        };
        let manifest =
            serde_json::from_slice(&text).map_err(|source| FixtureError::Manifest { path, source })?;
        let fixture = Fixture { source, dir: unpacked_root().join(name), manifest };
        fixture.ensure_unpacked()?;
        Ok(fixture)
    }

    /// The same images with another manifest, which describes them when they are opened in another way. It is
    /// in a folder of that name in the fixture's folder.
    ///
    /// # Panics
    /// If there is no such manifest.
    #[must_use]
    pub fn variant(&self, folder: &str) -> Fixture {
        let source = self.source.join(folder);
        let text = fs::read(source.join("manifest.json"));
        let manifest = text.ok().and_then(|text| serde_json::from_slice(&text).ok());
        let manifest = manifest.unwrap_or_else(|| panic!("no manifest in {}", source.display()));
        Fixture { source, dir: self.dir.clone(), manifest }
    }

    /// Names of all fixtures, sorted.
    ///
    /// # Panics
    /// If the folder of fixtures cannot be listed.
    #[must_use]
    pub fn names() -> Vec<String> {
        let root = fixtures_root();
        let listing = fs::read_dir(&root).unwrap_or_else(|error| panic!("{}: {error}", root.display()));
        let mut names: Vec<String> = listing
            .filter_map(Result::ok)
            .filter(|entry| entry.path().join("manifest.json").is_file())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// All fixtures in the order of their names, each unpacked when the iterator reaches it.
    pub fn all() -> impl Iterator<Item = Fixture> {
        Fixture::names().into_iter().map(|name| Fixture::open(&name))
    }

    /// Name of the fixture, such as `single`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.manifest.fixture
    }

    /// Read-only folder with the images and no other files, for option `-d` of the commands.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Paths of the images, in the order of the manifest.
    #[must_use]
    pub fn images(&self) -> Vec<PathBuf> {
        self.manifest.images.iter().map(|image| self.dir.join(&image.name)).collect()
    }

    /// The bytes of the image of a pool with one disk. Pages that hold only zeros take no memory.
    ///
    /// # Panics
    /// If the pool has several disks, or the image cannot be read.
    #[must_use]
    pub fn image_bytes(&self) -> Vec<u8> {
        let [path] = &self.images()[..] else { panic!("{} has several images", self.name()) };
        let file = File::open(path).expect("an image");
        let mut image = vec![0; file.metadata().expect("its size").len() as usize];
        let zeros = [0; 64 << 10];
        let mut read = zeros;
        for (index, part) in image.chunks_mut(zeros.len()).enumerate() {
            let read = &mut read[..part.len()];
            file.read_exact_at(read, (index * zeros.len()) as u64).expect("an image");
            if *read != zeros[..read.len()] {
                part.copy_from_slice(read);
            }
        }
        image
    }

    /// The manifest: what the other implementation reported about the pool.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Iterator over the files of all datasets.
    ///
    /// # Panics
    /// If the list cannot be opened.
    #[must_use]
    pub fn entries(&self) -> Entries {
        Entries::open(&self.source, self.name()).unwrap_or_else(|error| panic!("{}: {error}", self.name()))
    }

    /// The text of a file beside the manifest, such as `state.txt`, `damage.txt` or `zil.txt`.
    ///
    /// # Panics
    /// If there is no such file.
    #[must_use]
    pub fn text(&self, file: &str) -> String {
        let path = self.source.join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// A private copy of all images, which a test may change. It is removed when dropped.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn scratch(&self) -> Scratch {
        let names: Vec<&str> = self.manifest.images.iter().map(|image| image.name.as_str()).collect();
        self.scratch_of(&names)
    }

    /// A private copy of the named images only: a pool with missing devices.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn scratch_of(&self, images: &[&str]) -> Scratch {
        let copy = || -> io::Result<TempDir> {
            let folder = tempfile::Builder::new().prefix("scratch-").tempdir_in(unpacked_root())?;
            for image in images {
                let mut from = File::open(self.dir.join(image))?;
                let size = from.metadata()?.len();
                sparse_copy(&mut from, size, &folder.path().join(image))?;
            }
            Ok(folder)
        };
        let folder = copy().unwrap_or_else(|error| panic!("copy of {}: {error}", self.name()));
        Scratch { folder }
    }

    /// Compares each image with its SHA-256 in the manifest, which is slow.
    ///
    /// # Errors
    /// [`FixtureError::Image`] if an image differs, [`FixtureError::Io`] if it cannot be read.
    pub fn check_sha256(&self) -> Result<(), FixtureError> {
        for image in &self.manifest.images {
            let path = self.dir.join(&image.name);
            let actual =
                sha256_of_file(&path).map_err(|source| FixtureError::Io { path: path.clone(), source })?;
            if actual != image.sha256 {
                let expected = image.sha256.clone();
                return Err(FixtureError::Image { path, what: "sha256", expected, actual });
            }
        }
        Ok(())
    }

    fn beside(&self, extension: &str) -> PathBuf {
        unpacked_root().join(format!("{}.{extension}", self.name()))
    }

    /// Contents of the stamp for images that were unpacked from this manifest.
    fn fingerprint(&self) -> String {
        let rows = self
            .manifest
            .images
            .iter()
            .map(|image| format!("{} {} {}\n", image.name, image.size, image.sha256));
        rows.collect()
    }

    fn ensure_unpacked(&self) -> Result<(), FixtureError> {
        if self.is_unpacked() {
            return Ok(());
        }
        let io = |source| FixtureError::Io { path: self.dir.clone(), source };
        fs::create_dir_all(unpacked_root()).map_err(io)?;
        let lock = File::create(self.beside("lock")).map_err(io)?;
        lock.lock().map_err(io)?;
        // Another process may have unpacked it while this one waited.
        if self.is_unpacked() { Ok(()) } else { self.unpack() }
    }

    fn is_unpacked(&self) -> bool {
        let stamped = fs::read_to_string(self.beside("stamp")).is_ok_and(|stamp| stamp == self.fingerprint());
        stamped && self.check_sizes(&self.dir).is_ok()
    }

    fn check_sizes(&self, folder: &Path) -> Result<(), FixtureError> {
        for image in &self.manifest.images {
            let path = folder.join(&image.name);
            let actual =
                fs::metadata(&path).map_err(|source| FixtureError::Io { path: path.clone(), source })?.len();
            if actual != image.size {
                let (expected, actual) = (image.size.to_string(), actual.to_string());
                return Err(FixtureError::Image { path, what: "size", expected, actual });
            }
        }
        Ok(())
    }

    /// Unpacks the images; the caller holds the lock.
    fn unpack(&self) -> Result<(), FixtureError> {
        let io = |source| FixtureError::Io { path: self.dir.clone(), source };
        let fresh = tempfile::Builder::new().prefix("unpacking-").tempdir_in(unpacked_root()).map_err(io)?;
        let packed = self.source.join("images.zst");
        unpack(&packed, &self.manifest.images, fresh.path())
            .map_err(|source| FixtureError::Io { path: packed, source })?;
        self.check_sizes(fresh.path())?;
        for image in &self.manifest.images {
            make_read_only(&fresh.path().join(&image.name)).map_err(io)?;
        }
        make_searchable(fresh.path()).map_err(io)?;
        if self.dir.exists() {
            fs::remove_dir_all(&self.dir).map_err(io)?;
        }
        fs::rename(fresh.path(), &self.dir).map_err(io)?;
        fs::write(self.beside("stamp"), self.fingerprint()).map_err(io)
    }
}

/// Makes a shared image read-only, so that no test writes it by accident.
fn make_read_only(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o444))
}

/// Makes a folder readable by all users: a temporary folder is private to its owner.
fn make_searchable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// A private, writable copy of a fixture's images.
#[derive(Debug)]
pub struct Scratch {
    folder: TempDir,
}

impl Scratch {
    /// Folder with the images.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// Path of one image.
    #[must_use]
    pub fn image(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
