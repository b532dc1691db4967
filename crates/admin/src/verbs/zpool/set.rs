//! `zpool set`: sets a property of a pool, enables a feature, or sets a property of a vdev.

use crate::change::{self, ChangeError, Compatibility, PoolSetting, SetWhen, VdevProp, check_pool_setting};
use crate::verbs::{Code, Reason, Refused, Right, Verb, Warning};
use crate::{OpenPool, Session, pool_property};
use cenote::FeatureState;
use serde::{Deserialize, Serialize};

/// A property to set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
    /// The vdev; `None`: the property is the pool's.
    #[serde(default)]
    pub vdev: Option<String>,
    /// Name of the property, or `feature@` and a feature.
    pub property: String,
    /// Its value as text.
    pub value: String,
}

/// Why the property is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller is no administrator.
    #[error("{0}")]
    Denied(Reason),
    /// There is no such pool.
    #[error("cannot open '{pool}': is not a pool")]
    NoPool {
        /// Name of the pool.
        pool: String,
    },
    /// The pool has no such vdev.
    #[error("cannot find '{vdev}' in '{pool}': device not in pool")]
    NoVdev {
        /// Name of the pool.
        pool: String,
        /// The vdev as it was named.
        vdev: String,
    },
    /// The properties of the pool cannot be read.
    #[error("{0}")]
    Unreadable(Reason),
    /// A feature set cannot be used.
    #[error("Error: {0}")]
    Compatibility(Reason),
    /// The pool's `compatibility` leaves the feature out.
    #[error(
        "Error: cannot enable feature '{feature}' on pool '{pool}'\n\
         as it is not specified in this pool's current compatibility set.\n\
         Consider setting 'compatibility' to a less restrictive set, or to 'off'."
    )]
    FeatureOutsideSet {
        /// Name of the pool.
        pool: String,
        /// Short name of the feature.
        feature: String,
    },
    /// The property of the pool cannot be set, or not to this value.
    #[error("cannot set property for '{pool}': {reason}")]
    Pool {
        /// Name of the pool.
        pool: String,
        /// Why.
        reason: Reason,
    },
    /// The property of the vdev cannot be set, or not to this value.
    #[error("cannot set property {property} for {vdev} on {pool}: {reason}")]
    Vdev {
        /// Name of the pool.
        pool: String,
        /// The vdev as it was named.
        vdev: String,
        /// Name of the property.
        property: String,
        /// Why.
        reason: Reason,
    },
}

from_denied!(Refusal, Refusal::Denied);

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason)
            | Refusal::Unreadable(reason)
            | Refusal::Compatibility(reason)
            | Refusal::Pool { reason, .. }
            | Refusal::Vdev { reason, .. } => reason.clone(),
            Refusal::NoPool { .. } => Reason::new(Code::NoPool, self),
            Refusal::NoVdev { .. } | Refusal::FeatureOutsideSet { .. } => Reason::new(Code::Refused, self),
        }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zpool set";
    const RIGHT: Right = Right::Administrator;
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        let (pools, _) = crate::open_pools(session.search(), std::slice::from_ref(&self.pool));
        let Some(pool) = pools.into_iter().next() else {
            return Err(Refusal::NoPool { pool: self.pool.clone() });
        };
        match &self.vdev {
            Some(vdev) => self.set_vdev(session, pool, vdev),
            None => self.set_pool(session, pool),
        }
    }
}

impl Request {
    fn set_pool(&self, session: &mut Session<'_>, pool: OpenPool) -> Result<(), Refusal> {
        let unreadable = |error: crate::AdminError| Refusal::Unreadable(Reason::new(Code::Failed, error));
        let limits = pool_property(&pool, "compatibility").map_err(unreadable)?;
        let limits = limits.and_then(|found| found.value.text().map(str::to_owned)).unwrap_or_default();
        if self.property == "compatibility" {
            check_compatibility(&pool, &self.value, session)?;
        }
        let setting = check_pool_setting(&self.property, &self.value, SetWhen::Set)
            .map_err(|message| self.refused(Reason::new(Code::Value, message)))?;
        if let PoolSetting::Stored(known, dataset) = &setting
            && known == "bootfs"
            && !dataset.is_empty()
            && dataset.split(['/', '@']).next() != Some(pool.name())
        {
            let message = format!("'{dataset}' is an invalid name");
            return Err(self.refused(Reason::new(Code::Name, message)));
        }
        // It is opened again for change.
        drop(pool);
        self.apply(setting, &limits, session)
    }

    /// Does what the setting says. `limits`: the feature sets of the pool.
    fn apply(&self, setting: PoolSetting, limits: &str, session: &Session<'_>) -> Result<(), Refusal> {
        let (search, pool, command) = (session.search(), self.pool.as_str(), session.command_line());
        let store = |name: &str, value: String| {
            change::set_pool_props(search, pool, &[(name.to_owned(), value)], command)
        };
        let outcome = match setting {
            PoolSetting::Stored(known, value) => store(&known, value),
            PoolSetting::Compatibility(value) => store("compatibility", value),
            PoolSetting::Feature(feature) => {
                let allowed = Compatibility::load(limits).unwrap_or(Compatibility::Off);
                if !allowed.allows(feature) {
                    let (pool, feature) = (pool.to_owned(), feature.to_owned());
                    return Err(Refusal::FeatureOutsideSet { pool, feature });
                }
                change::enable_features(search, pool, &[feature], command).map(drop)
            }
            PoolSetting::CacheFile(value) => change::set_cachefile(search, pool, &value, command),
            // A pool that has features has this version; an older one can only be read.
            PoolSetting::Version(_) => {
                let message = "invalid argument for this pool operation";
                return Err(self.refused(Reason::new(Code::Value, message)));
            }
            _ => Ok(()),
        };
        outcome.map_err(|error| self.refused(error.into()))
    }

    fn refused(&self, reason: Reason) -> Refusal {
        Refusal::Pool { pool: self.pool.clone(), reason }
    }

    fn set_vdev(&self, session: &Session<'_>, pool: OpenPool, vdev: &str) -> Result<(), Refusal> {
        let found = crate::find_vdev(&pool, vdev)
            .map_err(|error| Refusal::Unreadable(Reason::new(Code::Failed, error)))?;
        let Some(found) = found else {
            return Err(Refusal::NoVdev { pool: self.pool.clone(), vdev: vdev.to_owned() });
        };
        drop(pool);
        let refused = |error: ChangeError| Refusal::Vdev {
            pool: self.pool.clone(),
            vdev: vdev.to_owned(),
            property: self.property.clone(),
            reason: error.into(),
        };
        let property = VdevProp::parse(&self.property, &self.value).map_err(|error| refused(error.into()))?;
        change::set_vdev_prop(session.search(), &self.pool, &found, property).map_err(refused)
    }
}

/// A feature set must exist; features that it leaves out stay enabled, which is worth a warning.
fn check_compatibility(pool: &OpenPool, value: &str, session: &mut Session<'_>) -> Result<(), Refusal> {
    let set = Compatibility::load(value)
        .map_err(|error| Refusal::Compatibility(Reason::new(Code::Value, error)))?;
    let mut enabled =
        pool.pool().spa().features().iter().filter(|(_, state)| *state != FeatureState::Disabled);
    if enabled.any(|(feature, _)| !set.allows(feature.name)) {
        session.warn(Warning::EnabledOutsideSet { pool: pool.name().to_owned() });
    }
    Ok(())
}
