//! Plans a run: lists the object sets, and the txg after which each has blocks of its own.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use dmu::{DmuError, KeyState, ObjSet};
use dsl::{Dataset, Dir, DslError};
use format::{ObjectId, Txg};
use pool::Pool;

use super::{Encryption, POOL_OBJECTS};
use crate::block_walk::Walk;
use crate::error::Cause;

/// An object set to walk.
pub(crate) struct Set {
    pub(crate) name: String,
    /// Object id of the dataset; 0 for the meta object set.
    pub(crate) id: u64,
    /// Blocks born up to this txg belong to the previous snapshot.
    pub(crate) newer_than: Txg,
    /// The previous snapshot; for the first set of a clone, the origin.
    pub(crate) previous: Option<ObjectId>,
    /// `None`: never written, so there is nothing to do.
    pub(crate) objset: Option<Result<Arc<ObjSet>, Cause>>,
    pub(crate) encryption: Encryption,
}

impl Set {
    /// The object set, if it was written and could be opened.
    pub(crate) fn objset(&self) -> Option<&Arc<ObjSet>> {
        self.objset.as_ref()?.as_ref().ok()
    }

    /// Why it could not be opened.
    pub(crate) fn failed(&self) -> Option<&Cause> {
        self.objset.as_ref()?.as_ref().err()
    }
}

pub(crate) struct Plan {
    pub(crate) sets: Vec<Set>,
    /// The sets that directly follow a snapshot, by the snapshot's object id.
    pub(crate) after: HashMap<ObjectId, Vec<usize>>,
}

impl Plan {
    pub(crate) fn new(pool: &Arc<Pool>, only: &[String]) -> Plan {
        let mut lister = Lister { sets: vec![pool_objects(pool)], seen: HashSet::new(), only };
        match pool.dsl().root() {
            Ok(root) => lister.dir(&root),
            Err(error) => lister.failed(pool.name(), error),
        }
        let mut after: HashMap<ObjectId, Vec<usize>> = HashMap::new();
        for (index, set) in lister.sets.iter().enumerate() {
            if let Some(previous) = set.previous {
                after.entry(previous).or_default().push(index);
            }
        }
        Plan { sets: lister.sets, after }
    }

    /// The walks of the sets that could be opened, by index in the plan.
    pub(crate) fn walks(&self) -> Vec<Walk> {
        let walk = |(set, of): (usize, &Set)| {
            let objset = of.objset()?;
            Some(Walk { set, objset: Arc::clone(objset), newer_than: of.newer_than })
        };
        self.sets.iter().enumerate().filter_map(walk).collect()
    }
}

fn pool_objects(pool: &Arc<Pool>) -> Set {
    Set {
        name: POOL_OBJECTS.to_owned(),
        id: 0,
        newer_than: Txg(0),
        previous: None,
        objset: Some(Ok(Arc::clone(pool.mos()))),
        encryption: Encryption::None,
    }
}

struct Lister<'a> {
    sets: Vec<Set>,
    /// Directories that were listed, so that loops of a damaged pool end.
    seen: HashSet<ObjectId>,
    only: &'a [String],
}

impl Lister<'_> {
    fn dir(&mut self, dir: &Dir) {
        if !self.seen.insert(dir.id()) {
            return;
        }
        if self.only.is_empty() || self.only.iter().any(|name| name == dir.name()) {
            match dir.head() {
                Ok(Some(head)) => self.head(&head),
                Ok(None) => {}
                Err(error) => self.failed(dir.name(), error),
            }
        }
        for children in [dir.children(), dir.hidden_children()] {
            match children {
                Ok(children) => children.iter().for_each(|child| self.dir(child)),
                Err(error) => self.failed(dir.name(), error),
            }
        }
    }

    /// Adds the snapshots of a head, then the head itself.
    fn head(&mut self, head: &Dataset) {
        match head.snapshots() {
            Ok(snapshots) => snapshots.iter().for_each(|snapshot| self.dataset(snapshot)),
            Err(error) => self.failed(head.name(), error),
        }
        self.dataset(head);
    }

    fn dataset(&mut self, dataset: &Dataset) {
        let phys = dataset.phys();
        let (objset, encryption) = match open(dataset) {
            Ok((objset, encryption)) => (Some(Ok(objset)), encryption),
            Err(DslError::Dmu(DmuError::Empty { .. })) => (None, Encryption::None),
            Err(error) => (Some(Err(error.into())), Encryption::None),
        };
        self.sets.push(Set {
            name: dataset.name().to_owned(),
            id: dataset.id().0,
            newer_than: phys.prev_snap_txg,
            previous: phys.prev_snap,
            objset,
            encryption,
        });
    }

    fn failed(&mut self, name: &str, error: DslError) {
        self.sets.push(Set {
            name: name.to_owned(),
            id: 0,
            newer_than: Txg(0),
            previous: None,
            objset: Some(Err(error.into())),
            encryption: Encryption::None,
        });
    }
}

/// Opens an object set, with its key if that is loaded.
fn open(dataset: &Dataset) -> Result<(Arc<ObjSet>, Encryption), DslError> {
    if !dataset.is_encrypted()? {
        return Ok((dataset.objset(KeyState::None)?, Encryption::None));
    }
    let key = dataset.dsl().keyring().key_of(dataset)?;
    let encryption = if key.key().is_some() { Encryption::Verified } else { Encryption::NoKey };
    Ok((dataset.objset(key)?, encryption))
}
