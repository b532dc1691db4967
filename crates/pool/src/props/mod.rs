//! Pool properties: those stored in the MOS, those of the configuration, and the computed ones
//! (docs/on-disk/11-labels-config.md, section 3.3; docs/on-disk/33-cli.md, section 11).

pub(crate) mod change;

use crate::dedup;
use crate::error::PoolError;
use crate::space::SpaceTotals;
use crate::view::Pool;
use dmu::zap::{Zap, ZapEntry};
use dsl::prop::{PropValue, Source, Value};
use format::names;
use format::prop::{self as table, Fallback, Kind, PoolProp};
use format::units::OLD_MAX_BLOCK;
use format::{ObjectId, prop};
use std::cell::OnceCell;
use vdev::tree::VdevState;

/// Version of pools with feature flags: the property then has no value.
const VERSION_FEATURES: u64 = 5000;

const NEW_MAX_BLOCK: u64 = 16 << 20;
const OLD_MAX_DNODE: u64 = 512;
const NEW_MAX_DNODE: u64 = 16 << 10;

fn computed(raw: PropValue) -> Option<Value> {
    Some(Value { raw, source: Source::None, received: None })
}

fn number(n: u64) -> Option<Value> {
    computed(PropValue::Number(n))
}

fn local(raw: PropValue) -> Option<Value> {
    Some(Value { raw, source: Source::Local, received: None })
}

fn text(text: &str) -> Option<Value> {
    computed(PropValue::String(text.to_owned()))
}

fn default(prop: &PoolProp) -> Option<Value> {
    let raw = match prop.fallback {
        Fallback::Number(n) => PropValue::Number(n),
        Fallback::Text(text) if !text.is_empty() => PropValue::String(text.to_owned()),
        _ => return None,
    };
    Some(Value { raw, source: Source::Default, received: None })
}

fn of_entry(entry: &ZapEntry) -> Option<PropValue> {
    match entry.int_size {
        8 => entry.u64().map(PropValue::Number),
        _ => entry.string().map(|s| PropValue::String(String::from_utf8_lossy(&s).into_owned())),
    }
}

/// The state of a pool, as the tools print it.
pub(crate) fn health_name(state: VdevState) -> &'static str {
    match state {
        VdevState::Offline => "OFFLINE",
        VdevState::Removed => "REMOVED",
        VdevState::Unavail => "UNAVAIL",
        VdevState::Faulted => "FAULTED",
        VdevState::Degraded => "DEGRADED",
        VdevState::Online => "ONLINE",
    }
}

/// Facts for several properties, computed once because they are costly.
struct Context<'a> {
    pool: &'a Pool,
    stored: Option<Zap>,
    space: OnceCell<SpaceTotals>,
}

impl<'a> Context<'a> {
    fn new(pool: &'a Pool) -> Result<Context<'a>, PoolError> {
        let stored = pool.directory().zap(names::directory::POOL_PROPS)?.map(|(_, zap)| zap);
        Ok(Context { pool, stored, space: OnceCell::new() })
    }

    fn space(&self) -> Result<&SpaceTotals, PoolError> {
        if let Some(space) = self.space.get() {
            return Ok(space);
        }
        let space = self.pool.space()?;
        Ok(self.space.get_or_init(|| space))
    }

    fn stored(&self, name: &str) -> Result<Option<PropValue>, PoolError> {
        let Some(zap) = &self.stored else { return Ok(None) };
        Ok(zap.lookup(name.as_bytes())?.and_then(|entry| of_entry(&entry)))
    }

    fn value(&self, prop: &PoolProp) -> Result<Option<Value>, PoolError> {
        let pool = self.pool;
        Ok(match prop.name {
            "name" => text(pool.name()),
            "guid" => number(pool.guid().0),
            "health" if pool.suspended().is_some() => text("SUSPENDED"),
            "health" => text(health_name(pool.tree().status().state)),
            "version" if pool.version() == VERSION_FEATURES => None,
            "version" => local(PropValue::Number(pool.version())),
            "size" => number(self.space()?.size),
            "capacity" => number(self.space()?.capacity),
            "free" => number(self.space()?.free),
            "allocated" => number(self.space()?.allocated),
            "fragmentation"
                if pool.features().state_of("spacemap_histogram")
                    == crate::features::FeatureState::Disabled =>
            {
                None
            }
            "fragmentation" => self.space()?.fragmentation.and_then(number),
            "expandsize" => some_number(self.space()?.expandable),
            "checkpoint" => match pool.checkpoint()? {
                Some(_) => number(self.space()?.checkpoint),
                None => None,
            },
            "readonly" => number(u64::from(!pool.is_live())),
            "freeing" => number(pool.hidden_space(names::hidden::FREE)?),
            "leaked" => number(pool.hidden_space("$LEAK")?),
            "dedupratio" => number(dedup::ratio(&pool.dedup_histogram()?.total())),
            "dedup_table_size" => number(pool.dedup_table_size()?),
            "bcloneused" => number(self.clones()?.0),
            "bclonesaved" => number(self.clones()?.1),
            "bcloneratio" => number(self.clone_ratio()?),
            "last_scrubbed_txg" => number(pool.last_scrubbed_txg()?.0),
            "maxblocksize" => number(self.by_feature("large_blocks", OLD_MAX_BLOCK, NEW_MAX_BLOCK)),
            "maxdnodesize" => number(self.by_feature("large_dnode", OLD_MAX_DNODE, NEW_MAX_DNODE)),
            "comment" => pool.config().comment.clone().and_then(|c| local(PropValue::String(c))),
            "compatibility" => match pool.config().compatibility.clone() {
                Some(set) => local(PropValue::String(set)),
                None => default(prop),
            },
            "bootfs" => self.bootfs()?,
            // These belong to an import, not to the pool.
            "altroot" | "cachefile" | "tname" | "load_guid" | "dedupcached" => None,
            _ => self.plain(prop)?,
        })
    }

    fn plain(&self, prop: &PoolProp) -> Result<Option<Value>, PoolError> {
        let usable = |value: &PropValue| match (prop.kind, value) {
            (Kind::Index, PropValue::Number(n)) => prop.index_name(*n).is_some(),
            (Kind::Number, PropValue::Number(_)) | (Kind::Text, PropValue::String(_)) => true,
            _ => false,
        };
        Ok(match self.stored(prop.name)?.filter(usable) {
            Some(raw) if prop.fallback == Fallback::Number(raw.number().unwrap_or(0)) => default(prop),
            Some(raw) => local(raw),
            None => default(prop),
        })
    }

    fn bootfs(&self) -> Result<Option<Value>, PoolError> {
        let Some(id) = self.stored("bootfs")?.and_then(|v| v.number()).filter(|id| *id != 0) else {
            return Ok(None);
        };
        // The dataset may have been destroyed since.
        let dataset = self.pool.dsl().dataset_by_object(ObjectId(id)).ok();
        Ok(dataset.and_then(|d| local(PropValue::String(d.name().to_owned()))))
    }

    fn clones(&self) -> Result<(u64, u64), PoolError> {
        let tables = self.pool.clone_tables()?;
        let sum = |of: &dyn Fn(&crate::clones::CloneTable) -> u64| {
            tables.iter().map(of).fold(0, u64::saturating_add)
        };
        Ok((sum(&|t| t.phys.used), sum(&|t| t.phys.saved)))
    }

    fn clone_ratio(&self) -> Result<u64, PoolError> {
        let (used, saved) = self.clones()?;
        let whole = u128::from(used) + u128::from(saved);
        Ok(if used == 0 { 100 } else { u64::try_from(whole * 100 / u128::from(used)).unwrap_or(u64::MAX) })
    }

    fn by_feature(&self, name: &str, without: u64, with: u64) -> u64 {
        let enabled = self.pool.features().state_of(name) != crate::FeatureState::Disabled;
        if enabled { with } else { without }
    }
}

fn some_number(n: u64) -> Option<Value> {
    if n == 0 { None } else { number(n) }
}

impl Pool {
    /// All visible properties with their values, in the order of the table; `None` is shown as `-`.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`] or
    /// [`PoolError::Directory`] if it is malformed.
    pub fn properties(&self) -> Result<Vec<(String, Option<Value>)>, PoolError> {
        let context = Context::new(self)?;
        let visible = table::POOL.iter().filter(|p| p.visible);
        visible.map(|p| Ok((p.name.to_owned(), context.value(p)?))).collect()
    }

    /// The value of a property, of a feature (`feature@NAME`) or of a user property
    /// (`module:name`). The outer `None`: there is no such property; the inner one: it has no value.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`] or
    /// [`PoolError::Directory`] if it is malformed.
    #[allow(clippy::option_option)]
    pub fn property(&self, name: &str) -> Result<Option<Option<Value>>, PoolError> {
        let context = Context::new(self)?;
        if let Some(feature) = name.strip_prefix(format::feature::PROPERTY_PREFIX) {
            let known = format::feature::by_name(feature);
            let value = known.map(|f| self.features().state(f).name());
            return Ok(value.map(|state| local(PropValue::String(state.to_owned()))));
        }
        if prop::is_user(name) {
            return Ok(Some(context.stored(name)?.and_then(local)));
        }
        table::pool(name).map(|p| context.value(p)).transpose()
    }

    /// The user properties, by name.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if an object of the MOS cannot be read, [`PoolError::Decode`] or
    /// [`PoolError::Directory`] if it is malformed.
    pub fn user_properties(&self) -> Result<Vec<(String, Value)>, PoolError> {
        let mut all = Vec::new();
        let Some((_, zap)) = self.directory().zap(names::directory::POOL_PROPS)? else { return Ok(all) };
        for entry in zap.entries() {
            let entry = entry?;
            let name = String::from_utf8_lossy(entry.name()).into_owned();
            if name.contains(':') {
                all.extend(of_entry(&entry).and_then(local).map(|value| (name, value)));
            }
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(all)
    }
}

/// A value in the exact form for scripts (`zpool get -p`).
pub fn exact(name: &str, value: Option<&Value>) -> String {
    let n = match value.map(|v| &v.raw) {
        None => return "-".to_owned(),
        Some(PropValue::String(text)) => return text.clone(),
        Some(PropValue::Number(n)) => *n,
    };
    match name {
        "dedupratio" | "bcloneratio" => format!("{}.{:02}", n / 100, n % 100),
        "dedup_table_quota" if n == u64::MAX => "auto".to_owned(),
        "dedup_table_quota" if n == 0 => "none".to_owned(),
        _ => match table::pool(name).and_then(|p| p.index_name(n)) {
            Some(text) => text.to_owned(),
            None => n.to_string(),
        },
    }
}
