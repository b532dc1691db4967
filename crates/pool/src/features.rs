//! The pool's features: enabled, active and unknown ones (docs/on-disk/16-features.md, sections 1 and 2).

use crate::directory::Directory;
use crate::error::PoolError;
use format::feature::{self, FEATURES, Feature};
use format::names;
use std::collections::BTreeMap;

/// State of a feature in one pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeatureState {
    /// The pool does not have the feature.
    Disabled,
    /// The feature may be used, but is not.
    Enabled,
    /// The feature is active, with this reference count.
    Active(u64),
}

impl FeatureState {
    /// The word that the tools print: `disabled`, `enabled`, `active`.
    pub fn name(self) -> &'static str {
        match self {
            FeatureState::Disabled => "disabled",
            FeatureState::Enabled => "enabled",
            FeatureState::Active(_) => "active",
        }
    }
}

/// A feature that Cenote does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownFeature {
    /// Guid of the feature: `org.openzfs:blake3`.
    pub guid: String,
    /// Description of the feature, as stored in the pool.
    pub description: String,
    /// Reference count of the feature.
    pub refcount: u64,
    /// Whether the pool can be read without support for the feature.
    pub read_only_compatible: bool,
}

/// The features of an open pool.
#[derive(Debug, Clone, Default)]
pub struct Features {
    counts: BTreeMap<String, u64>,
    unknown: Vec<UnknownFeature>,
}

impl Features {
    pub(crate) fn load(directory: &Directory) -> Result<Features, PoolError> {
        let mut features = Features::default();
        for (name, read_only_compatible) in
            [(names::directory::FEATURES_FOR_READ, false), (names::directory::FEATURES_FOR_WRITE, true)]
        {
            for (guid, refcount) in numbers(directory, name)? {
                if feature::by_guid(&guid).is_none_or(|f| !f.is_supported()) {
                    let (guid, description) = (guid.clone(), describe(directory, &guid)?);
                    features.unknown.push(UnknownFeature {
                        guid,
                        description,
                        refcount,
                        read_only_compatible,
                    });
                }
                features.counts.insert(guid, refcount);
            }
        }
        Ok(features)
    }

    /// State of this feature in the pool.
    pub(crate) fn state(&self, feature: &Feature) -> FeatureState {
        match self.counts.get(feature.guid) {
            None => FeatureState::Disabled,
            Some(0) => FeatureState::Enabled,
            Some(n) => FeatureState::Active(*n),
        }
    }

    /// State of the feature with this short name.
    pub fn state_of(&self, name: &str) -> FeatureState {
        feature::by_name(name).map_or(FeatureState::Disabled, |f| self.state(f))
    }

    /// Whether the feature is in use.
    pub fn is_active(&self, name: &str) -> bool {
        matches!(self.state_of(name), FeatureState::Active(_))
    }

    /// Whether the feature is enabled, active or not.
    pub fn is_enabled(&self, name: &str) -> bool {
        self.state_of(name) != FeatureState::Disabled
    }

    /// Every known feature and its state, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Feature, FeatureState)> {
        FEATURES.iter().filter(|f| f.is_supported()).map(|f| (f, self.state(f)))
    }

    /// Reference counts by feature guid, of all features that the pool's ZAPs list.
    pub fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// Features that Cenote does not know.
    pub fn unknown(&self) -> &[UnknownFeature] {
        &self.unknown
    }

    /// Guids of the active features that Cenote does not know: those that prevent reading (`for_write`
    /// false), or those that prevent writing.
    pub fn unsupported(&self, for_write: bool) -> Vec<String> {
        let wanted = |f: &&UnknownFeature| f.refcount > 0 && f.read_only_compatible == for_write;
        self.unknown.iter().filter(wanted).map(|f| f.guid.clone()).collect()
    }
}

fn numbers(directory: &Directory, name: &str) -> Result<BTreeMap<String, u64>, PoolError> {
    let mut all = BTreeMap::new();
    let Some((object, zap)) = directory.zap(name)? else { return Ok(all) };
    for entry in zap.entries() {
        let entry = entry?;
        if entry.int_size != 8 || entry.value.len() != 8 {
            return Err(PoolError::Corrupt { object, why: "a feature count is not one number" });
        }
        all.insert(String::from_utf8_lossy(entry.name()).into_owned(), entry.u64().unwrap_or(0));
    }
    Ok(all)
}

fn describe(directory: &Directory, guid: &str) -> Result<String, PoolError> {
    let Some((_, zap)) = directory.zap(names::directory::FEATURE_DESCRIPTIONS)? else {
        return Ok(String::new());
    };
    let text = zap.lookup(guid.as_bytes())?.and_then(|entry| entry.string()).unwrap_or_default();
    Ok(String::from_utf8_lossy(&text).into_owned())
}
