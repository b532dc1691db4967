//! Setting pool properties (docs/on-disk/11-labels-config.md, section 3.3).
//!
//! # What always holds
//! - A value is checked before any write; several properties are set together, or none.
//! - Only values that differ from the default are stored. `cachefile`, `altroot` and the like belong to an
//!   import and are not stored.

use crate::error::PoolError;
use crate::expand::Grow;
use crate::live::{LivePool, PoolTask};
use crate::refusal::{COMMENT_MAX, PropertyRefusal};
use crate::status::FailMode;
use crate::{upgrade, vdev_zaps};
use dmu::zap::ZapValue;
use dsl::{MosTx, TaskCtx};
use format::feature::{self, PROPERTY_PREFIX};
use format::names;
use format::prop::{self as table, Kind};
use format::{ObjType, ObjectId};
use std::sync::atomic::Ordering;

/// Longest value of a user property, in bytes.
const TEXT_MAX: usize = 8191;
/// Properties that other verbs set, or that are set only when a pool is created or imported.
const NOT_HERE: [&str; 6] = ["altroot", "cachefile", "tname", "readonly", "version", "load_guid"];

/// A pool property with a checked value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolProp {
    /// A number or index value.
    Number(&'static str, u64),
    /// The comment; an empty one removes it.
    Comment(String),
    /// Names of the feature sets that limit upgrades; empty: `off`.
    Compatibility(String),
    /// The dataset to boot from; empty: none.
    BootFs(String),
    /// A user property; an empty text removes it.
    User(String, String),
    /// A feature to be enabled.
    Feature(&'static str),
}

fn bad(name: &str, why: PropertyRefusal) -> PoolError {
    PoolError::Property { name: name.to_owned(), why }
}

impl PoolProp {
    /// Parses the name and value that a user gives.
    ///
    /// # Errors
    /// [`PoolError::Property`] if there is no such property, it cannot be set, or not to this value.
    pub(crate) fn parse(name: &str, value: &str) -> Result<PoolProp, PoolError> {
        if let Some(feature) = name.strip_prefix(PROPERTY_PREFIX) {
            let known = feature::by_name(feature).filter(|f| f.is_supported());
            let unsupported = || PropertyRefusal::UnsupportedFeature { feature: feature.to_owned() };
            let known = known.ok_or_else(|| bad(name, unsupported()))?;
            return match value {
                "enabled" => Ok(PoolProp::Feature(known.name)),
                _ => Err(bad(name, PropertyRefusal::FeatureValue { name: name.to_owned() })),
            };
        }
        if table::is_user(name) {
            return match value.len() <= TEXT_MAX {
                true => Ok(PoolProp::User(name.to_owned(), value.to_owned())),
                false => Err(bad(name, PropertyRefusal::TooLong)),
            };
        }
        let unknown = || PropertyRefusal::Unknown { name: name.to_owned() };
        let known = table::pool(name).ok_or_else(|| bad(name, unknown()))?;
        if !known.editable() || NOT_HERE.contains(&known.name) {
            return Err(bad(name, PropertyRefusal::ReadOnly { name: name.to_owned() }));
        }
        match (known.name, known.kind) {
            ("comment", _) if value.len() > COMMENT_MAX => Err(bad(name, PropertyRefusal::CommentLength)),
            ("comment", _) if value.chars().any(|c| !c.is_ascii_graphic() && c != ' ') => {
                Err(bad(name, PropertyRefusal::CommentCharacters))
            }
            ("comment", _) => Ok(PoolProp::Comment(value.to_owned())),
            ("compatibility", _) if value == "off" => Ok(PoolProp::Compatibility(String::new())),
            ("compatibility", _) => Ok(PoolProp::Compatibility(value.to_owned())),
            ("bootfs", _) => Ok(PoolProp::BootFs(value.to_owned())),
            (stored, Kind::Index) => match known.index_number(value) {
                Some(number) => Ok(PoolProp::Number(stored, number)),
                None => {
                    Err(bad(name, PropertyRefusal::NotOneOf { name: name.to_owned(), values: known.values }))
                }
            },
            ("dedup_table_quota", _) if value == "auto" => {
                Ok(PoolProp::Number("dedup_table_quota", u64::MAX))
            }
            ("dedup_table_quota", _) if value == "none" => Ok(PoolProp::Number("dedup_table_quota", 0)),
            (stored, Kind::Number) => match value.parse() {
                Ok(number) => Ok(PoolProp::Number(stored, number)),
                Err(_) => Err(bad(name, PropertyRefusal::NoNumber { value: value.to_owned() })),
            },
            (_, Kind::Text) => Err(bad(name, PropertyRefusal::NotSettable)),
        }
    }

    /// The value as the history has it.
    fn text(&self) -> String {
        match self {
            PoolProp::Number(name, number) => format!("{name}={number}"),
            PoolProp::Comment(text) => format!("comment={text}"),
            PoolProp::Compatibility(text) => format!("compatibility={text}"),
            PoolProp::BootFs(name) => format!("bootfs={name}"),
            PoolProp::User(name, value) => format!("{name}={value}"),
            PoolProp::Feature(name) => format!("feature@{name}=enabled"),
        }
    }

    fn check(&self, ctx: &TaskCtx<'_>) -> Result<(), PoolError> {
        match self {
            PoolProp::BootFs(name) if !name.is_empty() && ctx.dsl()?.dataset(name)?.is_volume()? => {
                return Err(bad("bootfs", PropertyRefusal::NotOnDataset));
            }
            PoolProp::Feature(name) if *name == "draid_failure_domains" => {
                return Err(bad(name, PropertyRefusal::UnsupportedHere));
            }
            _ => {}
        }
        Ok(())
    }

    fn apply(&self, ctx: &mut TaskCtx<'_>, pool: &mut PoolTask<'_>) -> Result<(), PoolError> {
        let m = ctx.m();
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        match self {
            PoolProp::Comment(text) => {
                pool.state.config.comment = some(text);
                pool.state.mark_all();
            }
            PoolProp::Compatibility(text) => {
                pool.state.config.compatibility = some(text);
                pool.state.mark_all();
            }
            PoolProp::Number(name, number) => {
                m.zap(stored(m)?)?.upsert(name.as_bytes(), *number)?;
                if *name == "multihost" {
                    pool.set_multihost(*number != 0);
                }
                if *name == "autoexpand" {
                    pool.pool.set_grows_by_itself(*number != 0);
                }
                if *name == "failmode" {
                    pool.pool.outages.set_mode(FailMode::of_number(*number));
                }
            }
            PoolProp::BootFs(name) if name.is_empty() => {
                m.zap(stored(m)?)?.remove_if_present(b"bootfs")?;
            }
            PoolProp::BootFs(name) => {
                let dataset = ctx.dsl()?.dataset(name)?;
                m.zap(stored(m)?)?.upsert(b"bootfs", dataset.id().0)?;
            }
            PoolProp::User(name, value) if value.is_empty() => {
                m.zap(stored(m)?)?.remove_if_present(name.as_bytes())?;
            }
            PoolProp::User(name, value) => {
                m.zap(stored(m)?)?.upsert(name.as_bytes(), ZapValue::Str(value.as_bytes()))?;
            }
            PoolProp::Feature(name) => {
                upgrade::enable(ctx, &[*name])?;
                vdev_zaps::create_root(m, &mut pool.state.config.vdev_tree)?;
                pool.state.mark_all();
            }
        }
        Ok(())
    }
}

/// The ZAP of properties; created if there is none.
fn stored(m: MosTx<'_>) -> Result<ObjectId, PoolError> {
    if let Some(id) = m.entry(names::directory::POOL_PROPS)? {
        return Ok(id);
    }
    let id = m.create_plain_zap(ObjType::POOL_PROPS)?;
    m.set_entry(names::directory::POOL_PROPS, id.0)?;
    Ok(id)
}

/// Checks that these properties can be set.
pub(crate) fn check_all(props: &[(String, String)]) -> Result<(), PoolError> {
    props.iter().try_for_each(|(name, value)| PoolProp::parse(name, value).map(|_| ()))
}

impl PoolTask<'_> {
    /// Turns multihost protection on or off, effective from the next uberblock.
    fn set_multihost(&mut self, is_on: bool) {
        let host_id = self.pool.host_id();
        if is_on && self.state.config.hostid != host_id {
            // The host id may have been unknown when the pool was opened, and other machines identify the
            // user of the pool by it.
            self.state.config.hostid = host_id;
            self.state.mark_all();
        }
        self.pool.mmp.set(is_on, self.pool.env.clock().monotonic());
        self.state.is_forced = true;
    }
}

impl LivePool {
    fn host_id(&self) -> u64 {
        self.host_id.load(Ordering::Relaxed)
    }

    /// Sets properties, with values as `zpool set` takes them; all or none.
    ///
    /// # Errors
    /// [`PoolError::Property`] if one of them cannot be set.
    pub fn set_props(&self, props: Vec<(String, String)>) -> Result<(), PoolError> {
        if props.is_empty() {
            return Ok(());
        }
        let parsed: Vec<PoolProp> = props
            .into_iter()
            .map(|(name, value)| PoolProp::parse(&name, &value))
            .collect::<Result<_, _>>()?;
        if parsed.contains(&PoolProp::Number("multihost", 1)) && self.host_id() == 0 {
            return Err(bad("multihost", PropertyRefusal::NeedsHostId));
        }
        let grows = parsed.contains(&PoolProp::Number("autoexpand", 1));
        self.run_on_pool(move |ctx, pool| {
            parsed.iter().try_for_each(|prop| prop.check(ctx))?;
            for prop in &parsed {
                prop.apply(ctx, pool)?;
                if !matches!(prop, PoolProp::Feature(_)) {
                    ctx.note("set", None, prop.text());
                }
            }
            Ok(())
        })?;
        if grows {
            self.grow(Grow::Everything)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked() {
        let parse = PoolProp::parse;
        assert_eq!(parse("autotrim", "on").unwrap(), PoolProp::Number("autotrim", 1));
        assert_eq!(parse("comment", "x").unwrap(), PoolProp::Comment("x".into()));
        assert_eq!(parse("compatibility", "off").unwrap(), PoolProp::Compatibility(String::new()));
        assert_eq!(parse("org.me:x", "y").unwrap(), PoolProp::User("org.me:x".into(), "y".into()));
        assert_eq!(parse("feature@livelist", "enabled").unwrap(), PoolProp::Feature("livelist"));
        for (name, value) in [("size", "1"), ("autotrim", "maybe"), ("nosuch", "1"), ("feature@x", "enabled")]
        {
            assert!(parse(name, value).is_err(), "{name}={value}");
        }
    }
}
