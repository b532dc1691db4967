//! How often each feature of the pool is in use
//! (docs/on-disk/16-features.md, sections 1 to 4 and 9).
//!
//! The counts are read once and kept in memory, so that asking costs nothing and is allowed on any
//! thread; changing them happens in syncing context and writes the ZAPs of the MOS at once.
//!
//! # What always holds
//! - What is in memory is what the newest state of the MOS says.
//! - A count changes in the same txg as the format change that it announces, and never falls below 0:
//!   that is an error, upon which the txg must not end.
//! - A feature that is enabled has its dependencies enabled.

use super::mos_tx::{DIRECTORY, MosTx};
use crate::{DslError, mos};
use dmu::ObjSet;
use dmu::live::{LiveSet, NewObject, SyncTx};
use format::feature::{self, FEATURES, Feature};
use format::{ObjType, ObjectId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use zio::Env;

/// Entries of the object directory.
const FOR_READ: &str = "features_for_read";
const FOR_WRITE: &str = "features_for_write";
const DESCRIPTIONS: &str = "feature_descriptions";
const ENABLED_TXG: &str = "feature_enabled_txg";

/// The ZAPs of the features. A pool of a version before features has none.
#[derive(Debug, Clone, Copy)]
struct Objects {
    for_read: ObjectId,
    for_write: ObjectId,
    descriptions: ObjectId,
}

/// The counts of all features of a pool.
#[derive(Debug)]
pub struct FeatureCounts {
    objects: Option<Objects>,
    /// By guid, features that nobody knows included.
    counts: RwLock<BTreeMap<String, u64>>,
    /// The labels must name other features than before.
    label_changed: AtomicBool,
    deflates: bool,
}

fn known(name: &str) -> &'static Feature {
    feature::by_name(name).unwrap_or_else(|| panic!("{name} is not in the table of features"))
}

impl FeatureCounts {
    /// The counts as the MOS has them.
    ///
    /// # Errors
    /// If a ZAP cannot be read, or a count is not one number.
    pub fn load(view: &Arc<ObjSet>) -> Result<Arc<FeatureCounts>, DslError> {
        let directory = mos::zap(view, DIRECTORY)?;
        let object = |name| mos::lookup_object(&directory, DIRECTORY, name);
        let mut counts = BTreeMap::new();
        let objects = match (object(FOR_READ)?, object(FOR_WRITE)?, object(DESCRIPTIONS)?) {
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
        let deflates = crate::space::deflates(view)?;
        Ok(Arc::new(FeatureCounts {
            objects,
            counts: RwLock::new(counts),
            label_changed: AtomicBool::new(false),
            deflates,
        }))
    }

    /// Makes the ZAPs of a new pool, with no feature enabled, in its object directory.
    pub fn create(set: &Arc<LiveSet>, tx: &SyncTx, env: &Env) -> Result<Arc<FeatureCounts>, DslError> {
        let zap = || -> Result<ObjectId, DslError> {
            let object = set.allocate(&NewObject::of(ObjType::ZAP_METADATA), tx)?;
            object.create_zap(tx, env.random(), 0)?;
            Ok(object.id())
        };
        let objects = Objects { for_read: zap()?, for_write: zap()?, descriptions: zap()? };
        let directory = set.object(DIRECTORY)?.zap(tx)?;
        directory.insert(FOR_READ.as_bytes(), objects.for_read.0)?;
        directory.insert(FOR_WRITE.as_bytes(), objects.for_write.0)?;
        directory.insert(DESCRIPTIONS.as_bytes(), objects.descriptions.0)?;
        Ok(Arc::new(FeatureCounts {
            objects: Some(objects),
            counts: RwLock::default(),
            label_changed: AtomicBool::new(false),
            deflates: true,
        }))
    }

    /// Space is counted in deflated bytes, as in all pools but those of the first versions.
    pub fn deflates(&self) -> bool {
        self.deflates
    }

    /// May be used, or is. `name` is the short name of a feature of the table.
    pub fn is_enabled(&self, name: &str) -> bool {
        self.with(|counts| counts.contains_key(known(name).guid))
    }

    /// Is in use.
    pub fn is_active(&self, name: &str) -> bool {
        self.count(name) > 0
    }

    /// How often it is in use; 0 also if it is not enabled.
    pub fn count(&self, name: &str) -> u64 {
        self.with(|counts| counts.get(known(name).guid).copied().unwrap_or(0))
    }

    /// All counts by guid.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.with(BTreeMap::clone)
    }

    fn with<R>(&self, look: impl FnOnce(&BTreeMap<String, u64>) -> R) -> R {
        look(&self.counts.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Guids of the features that the labels must name: those in use without which the MOS cannot be read.
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

    fn objects(&self) -> Result<Objects, DslError> {
        self.objects.ok_or(DslError::FeatureDisabled { name: "features" })
    }

    /// Enables a feature and what it depends on. That it is enabled already changes nothing.
    ///
    /// # Errors
    /// [`DslError::FeatureDisabled`] if the pool is of a version without features.
    pub fn enable(&self, m: MosTx<'_>, name: &str) -> Result<(), DslError> {
        let feature = known(name);
        if self.is_enabled(name) {
            return Ok(());
        }
        let objects = self.objects()?;
        for dependency in feature.depends {
            self.enable(m, dependency)?;
        }
        m.zap(objects.descriptions)?.upsert(feature.guid.as_bytes(), feature.description)?;
        self.store(m, feature, u64::from(feature.active_on_enable))?;
        if feature.mos && feature.active_on_enable {
            self.label_changed.store(true, Ordering::Release);
        }
        if self.is_enabled("enabled_txg") {
            let id = match m.entry(ENABLED_TXG)? {
                Some(id) => id,
                None => {
                    let id = m.create_plain_zap(ObjType::ZAP_METADATA)?;
                    m.set_entry(ENABLED_TXG, id.0)?;
                    id
                }
            };
            m.zap(id)?.upsert(feature.guid.as_bytes(), m.txg().0)?;
            self.add(m, "enabled_txg", 1)?;
        }
        Ok(())
    }

    /// One use more.
    ///
    /// # Errors
    /// [`DslError::FeatureDisabled`] if it is not enabled.
    pub fn incr(&self, m: MosTx<'_>, name: &str) -> Result<(), DslError> {
        self.add(m, name, 1)
    }

    /// One use less.
    pub fn decr(&self, m: MosTx<'_>, name: &str) -> Result<(), DslError> {
        self.add(m, name, -1)
    }

    /// Changes how often a feature is in use.
    ///
    /// # Errors
    /// [`DslError::FeatureDisabled`] if it is not enabled, [`DslError::Mismatch`] if the count would fall
    /// below 0: the txg must not end then.
    pub fn add(&self, m: MosTx<'_>, name: &str, delta: i64) -> Result<(), DslError> {
        let feature = known(name);
        if delta == 0 {
            return Ok(());
        }
        let before = self
            .with(|counts| counts.get(feature.guid).copied())
            .ok_or(DslError::FeatureDisabled { name: feature.name })?;
        let object = self.zap_of(feature)?;
        let after = before.checked_add_signed(delta).ok_or(DslError::Mismatch {
            what: "uses of a feature",
            object,
            found: before,
            expected: delta.unsigned_abs(),
        })?;
        self.store(m, feature, after)?;
        if feature.mos && (before == 0) != (after == 0) {
            self.label_changed.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn zap_of(&self, feature: &Feature) -> Result<ObjectId, DslError> {
        let objects = self.objects()?;
        Ok(if feature.read_only_compatible { objects.for_write } else { objects.for_read })
    }

    fn store(&self, m: MosTx<'_>, feature: &Feature, count: u64) -> Result<(), DslError> {
        m.zap(self.zap_of(feature)?)?.upsert(feature.guid.as_bytes(), count)?;
        let mut counts = self.counts.write().unwrap_or_else(PoisonError::into_inner);
        counts.insert(feature.guid.to_owned(), count);
        Ok(())
    }
}
