//! The common verbs as methods of an open pool ([`PoolVerbs`]), for programs that embed the library.
//!
//! Each method is one call of [`crate::change`] or [`crate::edit`], which have the less common verbs. Property
//! values are strings, as `zfs set` takes them.

use crate::change::{
    Allow, ChangeError, Compatibility, NewPool, PoolLayout, check_layout, find_device, make_pool,
};
use crate::edit::{self, CloneSpec, EditError, NewKind};
use crate::verbs::zfs::{create, destroy, inherit, promote, rename, rollback, set, snapshot};
use crate::{ImportSettings, Session};
use cenote::PoolWriter;

impl NewPool {
    /// Describes a pool with the features of OpenZFS 2.3. `vdevs` are the arguments of `zpool create`, with
    /// absolute paths: `["mirror", "/images/a", "/images/b", "log", "/images/c"]`. Image files must exist and have
    /// 64 MiB or more.
    ///
    /// # Errors
    /// [`ChangeError::Vdevs`] for devices that are missing, in use, or cannot be combined.
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

    /// Sets a property of the root file system, which its descendants inherit.
    #[must_use]
    pub fn with(mut self, prop: &str, value: &str) -> NewPool {
        self.dataset_props.push((prop.to_owned(), value.to_owned()));
        self
    }

    /// Creates the pool and opens it for change. No cache file lists it once [`PoolWriter::close`] has closed it.
    ///
    /// # Errors
    /// [`ChangeError`]; the devices keep their previous contents unless a device has failed.
    pub fn create(&self) -> Result<PoolWriter, ChangeError> {
        let pool = make_pool(self)?;
        pool.live().start();
        Ok(pool)
    }
}

/// Operations on datasets. Names are full names that begin with the pool's; each call looks its names up again.
///
/// When a method returns successfully, its change is on disk; when it fails, no change was made unless the method
/// says otherwise. Open files, writers and readers stay valid: a renamed dataset keeps its writers. A dataset that
/// is open for writing cannot be destroyed or rolled back ([`EditError::Busy`]).
pub trait PoolVerbs {
    /// Creates a file system.
    ///
    /// # Errors
    /// [`EditError::Exists`], [`EditError::NoParent`], or a refusal of its name or properties.
    fn create_filesystem(&self, name: &str, props: &[(&str, &str)]) -> Result<(), create::Refusal>;

    /// Creates a volume of `size` bytes, rounded up to whole blocks. It reserves the space that it can use at most;
    /// with `refreservation=none` among `props` it reserves none.
    ///
    /// # Errors
    /// As [`PoolVerbs::create_filesystem`]; [`EditError::NoSpace`].
    fn create_volume(&self, name: &str, size: u64, props: &[(&str, &str)]) -> Result<(), create::Refusal>;

    /// Sets properties of a dataset, all or none. Open file systems and volumes apply them at once.
    ///
    /// # Errors
    /// The properties that cannot be set, and why.
    fn set(&self, dataset: &str, props: &[(&str, &str)]) -> Result<(), set::Refusal>;

    /// Clears the local value of a property, so that the dataset inherits it.
    ///
    /// # Errors
    /// The property does not apply to the dataset, or there is no such dataset.
    fn inherit(&self, dataset: &str, prop: &str) -> Result<(), inherit::Refusal>;

    /// Takes snapshots (`tank/home@monday`) of the same instant, all or none.
    ///
    /// # Errors
    /// The snapshot that cannot be taken, and why.
    fn snapshot(&self, names: &[impl AsRef<str>]) -> Result<(), snapshot::Refusal>;

    /// Creates a file system or volume whose initial contents are those of a snapshot.
    ///
    /// # Errors
    /// As [`PoolVerbs::create_filesystem`].
    fn clone_snapshot(&self, snapshot: &str, name: &str, props: &[(&str, &str)]) -> Result<(), EditError>;

    /// Promotes a clone: it becomes the owner of the snapshots that it shares with its origin.
    ///
    /// # Errors
    /// The dataset is not a clone, or a snapshot of each has the same name.
    fn promote(&self, clone: &str) -> Result<(), promote::Refusal>;

    /// Rolls a dataset back to its newest snapshot. Later changes are lost.
    ///
    /// # Errors
    /// There are newer snapshots, or the dataset is open for writing.
    fn rollback(&self, snapshot: &str) -> Result<(), rollback::Refusal>;

    /// Renames a file system or volume and its descendants.
    ///
    /// # Errors
    /// The new name exists, has no parent, or is not valid.
    fn rename(&self, from: &str, to: &str) -> Result<(), rename::Refusal>;

    /// Destroys a file system, volume, snapshot or bookmark.
    ///
    /// # Errors
    /// Other datasets depend on it, it has holds, or it is open.
    fn destroy_dataset(&self, name: &str) -> Result<(), destroy::Refusal>;

    /// Destroys a file system or volume, its descendants and all their snapshots.
    ///
    /// # Errors
    /// The refusal lists what was destroyed and what remains. Clones elsewhere, holds and open datasets prevent
    /// destruction.
    fn destroy_all_below(&self, name: &str) -> Result<(), destroy::Refusal>;

    /// The value of a property of a dataset, as of the last transaction group that is on disk; see
    /// [`cenote::Dataset::property`].
    ///
    /// # Errors
    /// [`EditError::NoDataset`], or the property cannot be read.
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
