//! Reference counts of the pool's features (docs/on-disk/16-features.md, sections 1 to 4 and 9).
//!
//! The counts are read once and kept in memory, so a query does no I/O and is allowed on any thread. A change
//! happens in syncing context and writes the ZAPs of the MOS at once.
//!
//! # What always holds
//! - The counts in memory are those of the newest state of the MOS.
//! - A count changes in the same txg as the format change that it announces. A count below 0 is an error,
//!   after which the txg must not end.
//! - An enabled feature has its dependencies enabled.

use crate::block_space::deflates;
use crate::error::DslError;
use crate::mos;
use crate::sync::read;
use dmu::ObjSet;
use dmu::{LiveSet, NewObject, SyncTx};
use format::feature::{self, FEATURES, Feature};
use format::names;
use format::{ObjType, ObjectId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use zio::Env;

/// The feature ZAPs. A pool of a version before features has none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Objects {
    pub(crate) for_read: ObjectId,
    pub(crate) for_write: ObjectId,
    pub(crate) descriptions: ObjectId,
}

/// Reference counts of all features of a pool.
#[derive(Debug)]
pub struct FeatureCounts {
    objects: Option<Objects>,
    /// Count by guid, unknown features included.
    pub(crate) counts: RwLock<BTreeMap<String, u64>>,
    /// Whether the feature list in the labels is out of date.
    pub(crate) label_changed: AtomicBool,
    deflates: bool,
}

pub(crate) fn known(name: &str) -> &'static Feature {
    feature::by_name(name).unwrap_or_else(|| panic!("{name} is not in the table of features"))
}

impl FeatureCounts {
    /// Reads the counts from the MOS.
    ///
    /// # Errors
    /// If a ZAP cannot be read, or a count is not one number.
    pub fn load(view: &Arc<ObjSet>) -> Result<Arc<FeatureCounts>, DslError> {
        let directory = mos::zap(view, names::directory::OBJECT)?;
        let object = |name| mos::lookup_object(&directory, names::directory::OBJECT, name);
        let mut counts = BTreeMap::new();
        let objects = match (
            object(names::directory::FEATURES_FOR_READ)?,
            object(names::directory::FEATURES_FOR_WRITE)?,
            object(names::directory::FEATURE_DESCRIPTIONS)?,
        ) {
            (Some(for_read), Some(for_write), Some(descriptions)) => {
                for id in [for_read, for_write] {
                    for entry in mos::zap(view, id)?.entries() {
                        let entry = entry?;
                        let count = mos::number(id, &entry)?;
                        counts.insert(String::from_utf8_lossy(entry.name()).into_owned(), count);
                    }
                }
                Some(Objects { for_read, for_write, descriptions })
            }
            _ => None,
        };
        let deflates = deflates(view)?;
        Ok(Arc::new(FeatureCounts {
            objects,
            counts: RwLock::new(counts),
            label_changed: AtomicBool::new(false),
            deflates,
        }))
    }

    /// Creates the feature ZAPs of a new pool, with no feature enabled, in its object directory.
    ///
    /// # Errors
    /// If an object cannot be created.
    pub fn create(set: &Arc<LiveSet>, tx: &SyncTx, env: &Env) -> Result<Arc<FeatureCounts>, DslError> {
        let zap = || -> Result<ObjectId, DslError> {
            let object = set.allocate(&NewObject::of(ObjType::ZAP_METADATA), tx)?;
            object.create_zap(tx, env.random(), 0)?;
            Ok(object.id())
        };
        let objects = Objects { for_read: zap()?, for_write: zap()?, descriptions: zap()? };
        let directory = set.object(names::directory::OBJECT)?.zap(tx)?;
        directory.insert(names::directory::FEATURES_FOR_READ.as_bytes(), objects.for_read.0)?;
        directory.insert(names::directory::FEATURES_FOR_WRITE.as_bytes(), objects.for_write.0)?;
        directory.insert(names::directory::FEATURE_DESCRIPTIONS.as_bytes(), objects.descriptions.0)?;
        Ok(Arc::new(FeatureCounts {
            objects: Some(objects),
            counts: RwLock::default(),
            label_changed: AtomicBool::new(false),
            deflates: true,
        }))
    }

    /// Whether space is counted in deflated bytes. All pools do, except those of the first versions.
    pub(crate) fn deflates(&self) -> bool {
        self.deflates
    }

    /// Whether the feature is enabled or active. `name` is its short name: `livelist`.
    pub fn is_enabled(&self, name: &str) -> bool {
        self.with(|counts| counts.contains_key(known(name).guid))
    }

    /// Whether the feature is active.
    pub fn is_active(&self, name: &str) -> bool {
        self.count(name) > 0
    }

    /// Reference count of the feature; 0 also if it is not enabled.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.with(|counts| counts.get(known(name).guid).copied().unwrap_or(0))
    }

    /// Reference counts of all features, by guid.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.with(BTreeMap::clone)
    }

    pub(crate) fn with<R>(&self, look: impl FnOnce(&BTreeMap<String, u64>) -> R) -> R {
        look(&read(&self.counts))
    }

    /// Guids of the features that the labels must name: active ones without which the MOS cannot be read.
    pub fn label_features(&self) -> Vec<&'static str> {
        self.with(|counts| {
            let in_use = |f: &&Feature| f.mos && counts.get(f.guid).is_some_and(|n| *n > 0);
            FEATURES.iter().filter(in_use).map(|f| f.guid).collect()
        })
    }

    /// Whether [`FeatureCounts::label_features`] has changed since the last call.
    pub fn take_label_change(&self) -> bool {
        self.label_changed.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn objects(&self) -> Result<Objects, DslError> {
        self.objects.ok_or(DslError::FeatureDisabled { name: "features" })
    }
}
