//! Changes of features in syncing context: enabling them, and their reference counts
//! (docs/on-disk/16-features.md, sections 2 to 4).

use super::MosTx;
use crate::error::DslError;
use crate::features::{FeatureCounts, known};
use crate::sync::write;
use format::feature::Feature;
use format::{ObjType, ObjectId, names};
use std::sync::atomic::Ordering;

impl FeatureCounts {
    /// Enables a feature and its dependencies. Has no effect on one that is enabled.
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
            let id = match m.entry(names::directory::FEATURE_ENABLED_TXG)? {
                Some(id) => id,
                None => {
                    let id = m.create_plain_zap(ObjType::ZAP_METADATA)?;
                    m.set_entry(names::directory::FEATURE_ENABLED_TXG, id.0)?;
                    id
                }
            };
            m.zap(id)?.upsert(feature.guid.as_bytes(), m.txg().0)?;
            self.add(m, "enabled_txg", 1)?;
        }
        Ok(())
    }

    /// Increments the reference count of a feature.
    ///
    /// # Errors
    /// [`DslError::FeatureDisabled`] if the feature is not enabled.
    pub fn incr(&self, m: MosTx<'_>, name: &str) -> Result<(), DslError> {
        self.add(m, name, 1)
    }

    /// Decrements the reference count of a feature.
    ///
    /// # Errors
    /// Those of `FeatureCounts::add`.
    pub fn decr(&self, m: MosTx<'_>, name: &str) -> Result<(), DslError> {
        self.add(m, name, -1)
    }

    /// Adds `delta` to the reference count of a feature.
    ///
    /// # Errors
    /// [`DslError::FeatureDisabled`] if the feature is not enabled, [`DslError::Mismatch`] if the count would
    /// fall below 0: the txg must not end then.
    pub(crate) fn add(&self, m: MosTx<'_>, name: &str, delta: i64) -> Result<(), DslError> {
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
        write(&self.counts).insert(feature.guid.to_owned(), count);
        Ok(())
    }
}
