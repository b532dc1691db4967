//! The usual verbs as methods of an open pool ([`PoolVerbs`]), for programs that embed the library.
//!
//! Each is one call of [`crate::change`] or [`crate::edit`], where the less usual ones are. Values are texts, as
//! `zfs set` takes them.

use crate::change::{
    Allow, ChangeError, Compatibility, NewPool, PoolLayout, check_layout, find_device, make_pool,
};
use crate::edit::{self, CloneSpec, EditError, NewKind};
use crate::verbs::zfs::{create, destroy, inherit, promote, rename, rollback, set, snapshot};
use crate::{ImportSettings, Session};
use cenote::PoolWriter;

impl NewPool {
    /// A pool with the features of OpenZFS 2.3. `vdevs` are the words of `zpool create`, paths absolute:
    /// `["mirror", "/images/a", "/images/b", "log", "/images/c"]`. Files must be there, of 64 MiB or more.
    ///
    /// # Errors
    /// [`ChangeError::Vdevs`] for devices that are not there, are used, or do not go together.
    pub fn new(name: &str, vdevs: &[impl AsRef<str>]) -> Result<NewPool, ChangeError> {
        let words: Vec<String> = vdevs.iter().map(|word| word.as_ref().to_owned()).collect();
        let lines = |error: &dyn std::fmt::Display| vec![error.to_string()];
        let layout = PoolLayout::parse(&words, &mut find_device)
            .map_err(|error| ChangeError::Vdevs { forced: true, lines: lines(&error) })?;
        check_layout(&layout, None, Allow::default())?;
        Ok(NewPool {
            name: name.to_owned(),
            layout,
            ashift: None,
            features: Compatibility::Off.features().into_iter().map(str::to_owned).collect(),
            props: Vec::new(),
            dataset_props: Vec::new(),
            temporary: None,
            settings: ImportSettings::default(),
            command: None,
        })
    }

    /// Sets a property of the root file system, which all others inherit.
    #[must_use]
    pub fn with(mut self, prop: &str, value: &str) -> NewPool {
        self.dataset_props.push((prop.to_owned(), value.to_owned()));
        self
    }

    /// Makes the pool and opens it for change. No cache file lists it, as after [`PoolWriter::close`].
    ///
    /// # Errors
    /// [`ChangeError`]; what was on the devices is still there unless a device has failed.
    pub fn create(&self) -> Result<PoolWriter, ChangeError> {
        let pool = make_pool(self)?;
        pool.live().start();
        Ok(pool)
    }
}

/// Datasets. Names are full ones, the pool's first; what a name stands for is looked up at every call.
///
/// Each verb is done, and on disk, when it returns; or it has changed nothing. Files, writers and readers that
/// are open stay what they are: a dataset that is renamed keeps its writers, one that somebody has
/// open for writing cannot be destroyed or rolled back ([`EditError::Busy`]).
pub trait PoolVerbs {
    /// Makes a file system.
    ///
    /// # Errors
    /// [`EditError::Exists`], [`EditError::NoParent`], or what is wrong with its name or properties.
    fn create_filesystem(&self, name: &str, props: &[(&str, &str)]) -> Result<(), create::Refusal>;

    /// Makes a volume of `size` bytes, rounded up to whole blocks, that reserves what it can take at most;
    /// with `refreservation=none` among `props`, nothing.
    ///
    /// # Errors
    /// As of [`PoolWriter::create_filesystem`]; [`EditError::NoSpace`].
    fn create_volume(&self, name: &str, size: u64, props: &[(&str, &str)]) -> Result<(), create::Refusal>;

    /// Sets properties of a dataset, all or none. What is open already follows at once.
    ///
    /// # Errors
    /// Which property cannot be set, and why.
    fn set(&self, dataset: &str, props: &[(&str, &str)]) -> Result<(), set::Refusal>;

    /// Lets a dataset inherit a property again.
    ///
    /// # Errors
    /// The property does not apply to the dataset, or there is no such dataset.
    fn inherit(&self, dataset: &str, prop: &str) -> Result<(), inherit::Refusal>;

    /// Takes snapshots (`tank/home@monday`), all at the same instant, or none.
    ///
    /// # Errors
    /// Why one of them cannot be taken.
    fn snapshot(&self, names: &[impl AsRef<str>]) -> Result<(), snapshot::Refusal>;

    /// Makes a file system or volume that begins as a snapshot was.
    ///
    /// # Errors
    /// As of [`PoolWriter::create_filesystem`].
    fn clone_snapshot(&self, snapshot: &str, name: &str, props: &[(&str, &str)]) -> Result<(), EditError>;

    /// Makes a clone the owner of the snapshots that it shares with its origin.
    ///
    /// # Errors
    /// It is no clone, or snapshots of both have the same name.
    fn promote(&self, clone: &str) -> Result<(), promote::Refusal>;

    /// Makes a dataset what it was when its newest snapshot was taken. What was written since is lost.
    ///
    /// # Errors
    /// There are newer ones, or the dataset is open for writing.
    fn rollback(&self, snapshot: &str) -> Result<(), rollback::Refusal>;

    /// Renames a file system or volume, with all below it.
    ///
    /// # Errors
    /// The new name is taken, has no parent, or is none that a dataset can have.
    fn rename(&self, from: &str, to: &str) -> Result<(), rename::Refusal>;

    /// Destroys a file system, volume, snapshot or bookmark.
    ///
    /// # Errors
    /// Other datasets depend on it, it is held, or it is open.
    fn destroy_dataset(&self, name: &str) -> Result<(), destroy::Refusal>;

    /// Destroys a file system or volume with everything below it, and its snapshots.
    ///
    /// # Errors
    /// What was destroyed and what was not: clones elsewhere, holds and open datasets are in the way.
    fn destroy_all_below(&self, name: &str) -> Result<(), destroy::Refusal>;

    /// The value of a property of a dataset, as of the last transaction group that is on disk; see
    /// [`cenote::Dataset::property`].
    ///
    /// # Errors
    /// [`EditError::NoDataset`], or it cannot be read.
    fn property(&self, dataset: &str, prop: &str) -> Result<Option<String>, EditError>;
}

impl PoolVerbs for PoolWriter {
    fn create_filesystem(&self, name: &str, props: &[(&str, &str)]) -> Result<(), create::Refusal> {
        let request = create::Request { properties: owned(props), ..create::Request::filesystem(name) };
        Session::over(self).run(&request).map(drop)
    }

    fn create_volume(&self, name: &str, size: u64, props: &[(&str, &str)]) -> Result<(), create::Refusal> {
        let kind = NewKind::Volume { size, sparse: false };
        let request = create::Request { kind, properties: owned(props), ..create::Request::filesystem(name) };
        Session::over(self).run(&request).map(drop)
    }

    fn set(&self, dataset: &str, props: &[(&str, &str)]) -> Result<(), set::Refusal> {
        let (dataset, properties) = (dataset.to_owned(), owned(props));
        let request = set::Request { dataset, properties, stay_mounted: false };
        Session::over(self).run(&request).map(drop)
    }

    fn inherit(&self, dataset: &str, prop: &str) -> Result<(), inherit::Refusal> {
        Session::over(self).run(&inherit::Request::of(dataset, prop)).map(drop)
    }

    fn snapshot(&self, names: &[impl AsRef<str>]) -> Result<(), snapshot::Refusal> {
        let names = names.iter().map(|name| name.as_ref().to_owned()).collect();
        Session::over(self).run(&snapshot::Request { names, ..Default::default() }).map(drop)
    }

    fn clone_snapshot(&self, snapshot: &str, name: &str, props: &[(&str, &str)]) -> Result<(), EditError> {
        let spec = CloneSpec { origin: snapshot.to_owned(), name: name.to_owned(), props: owned(props) };
        edit::clone(self, &spec)
    }

    fn promote(&self, clone: &str) -> Result<(), promote::Refusal> {
        Session::over(self).run(&promote::Request { dataset: clone.to_owned() })
    }

    fn rollback(&self, snapshot: &str) -> Result<(), rollback::Refusal> {
        Session::over(self).run(&rollback::Request::of(snapshot)).map(drop)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), rename::Refusal> {
        Session::over(self).run(&rename::Request::of(from, to)).map(drop)
    }

    fn destroy_dataset(&self, name: &str) -> Result<(), destroy::Refusal> {
        Session::over(self).run(&destroy::Request::of(name)).map(drop)
    }

    fn destroy_all_below(&self, name: &str) -> Result<(), destroy::Refusal> {
        let request = destroy::Request { recursive: true, ..destroy::Request::of(name) };
        Session::over(self).run(&request).map(drop)
    }

    fn property(&self, dataset: &str, prop: &str) -> Result<Option<String>, EditError> {
        Ok(self.view()?.dataset(dataset)?.property(prop)?)
    }
}

fn owned(props: &[(&str, &str)]) -> Vec<(String, String)> {
    props.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
