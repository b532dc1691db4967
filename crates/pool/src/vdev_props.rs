//! Setting properties of vdevs (docs/on-disk/15-space.md, section 7). They are stored in the ZAPs of the
//! root, of a top-level vdev, or of a leaf below one.
//!
//! # What always holds
//! - A value is checked before any write.
//! - A comment that was set and then cleared is stored as empty; a user property is removed.

use crate::config::find_mut;
use crate::error::PoolError;
use crate::live::LivePool;
use crate::refusal::PropertyRefusal;
use dmu::zap::ZapValue;
use format::prop::{self as table, Class, Kind};
use format::{ObjectId, VdevGuid, nicenum};

/// Longest text, in bytes.
const TEXT_MAX: usize = 8191;
/// Number that means `none`.
const NONE: u64 = u64::MAX;

/// A property of a vdev with a checked value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VdevProp {
    /// A number or index value; `u64::MAX`: none.
    Number(&'static str, u64),
    /// A native property with a text.
    Text(&'static str, String),
    /// A user property; an empty text removes it.
    User(String, String),
}

impl VdevProp {
    /// Parses the name and value that a user gives.
    ///
    /// # Errors
    /// [`PoolError::Property`] if there is no such property, it cannot be set, or not to this value.
    pub fn parse(name: &str, value: &str) -> Result<VdevProp, PoolError> {
        let bad = |why: PropertyRefusal| PoolError::Property { name: name.to_owned(), why };
        if value.len() > TEXT_MAX {
            return Err(bad(PropertyRefusal::TooLong));
        }
        if table::is_user(name) {
            return Ok(VdevProp::User(name.to_owned(), value.to_owned()));
        }
        let unknown = || PropertyRefusal::UnknownOfVdev { name: name.to_owned() };
        let known = table::vdev(name).ok_or_else(|| bad(unknown()))?;
        if known.class == Class::ReadOnly {
            return Err(bad(PropertyRefusal::ReadOnlyOfVdev { name: known.name }));
        }
        match known.kind {
            _ if known.name == "path" => Err(bad(PropertyRefusal::InvalidForOperation)),
            Kind::Text => Ok(VdevProp::Text(known.name, value.to_owned())),
            Kind::Index => match known.index_number(value).filter(|number| *number <= 1) {
                Some(number) => Ok(VdevProp::Number(known.name, number)),
                None => {
                    Err(bad(PropertyRefusal::NotOneOf { name: known.name.to_owned(), values: "on | off" }))
                }
            },
            Kind::Number if value == "none" => Ok(VdevProp::Number(known.name, NONE)),
            Kind::Number => match nicenum::parse(value) {
                Ok(number) => Ok(VdevProp::Number(known.name, number)),
                Err(error) => Err(bad(PropertyRefusal::Number(error))),
            },
        }
    }

    /// The value as the history has it: numbers are signed.
    fn text(&self) -> String {
        match self {
            VdevProp::Number(name, number) => format!("{name}={}", number.cast_signed()),
            VdevProp::Text(name, value) => format!("{name}={value}"),
            VdevProp::User(name, value) => format!("{name}={value}"),
        }
    }
}

impl LivePool {
    /// Sets a property of a vdev. The guid of the root is that of the pool.
    ///
    /// # Errors
    /// [`PoolError::Property`] if this vdev has no properties of its own.
    pub fn set_vdev_prop(&self, vdev: VdevGuid, prop: VdevProp) -> Result<(), PoolError> {
        self.run_on_pool(move |ctx, pool| {
            let zap = find_mut(&mut pool.state.config.vdev_tree, vdev)
                .map(|node| [node.zap_root, node.zap_top, node.zap_leaf])
                .and_then(|zaps| zaps.into_iter().find(|zap| *zap != ObjectId(0)));
            let zap = zap
                .ok_or_else(|| PoolError::Property { name: prop.text(), why: PropertyRefusal::NotOnVdev })?;
            let zap = ctx.m().zap(zap)?;
            match &prop {
                VdevProp::Number(name, number) => zap.upsert(name.as_bytes(), *number)?,
                VdevProp::Text(name, text) => zap.upsert(name.as_bytes(), ZapValue::Str(text.as_bytes()))?,
                VdevProp::User(name, text) if text.is_empty() => {
                    zap.remove_if_present(name.as_bytes())?;
                }
                VdevProp::User(name, text) => zap.upsert(name.as_bytes(), ZapValue::Str(text.as_bytes()))?,
            }
            ctx.note("vdev set", None, format!("vdev_guid={}: {}", vdev.0, prop.text()));
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_as_by_openzfs() {
        let good = |name: &str, value: &str| VdevProp::parse(name, value).expect("good");
        assert_eq!(good("comment", ""), VdevProp::Text("comment", String::new()));
        assert_eq!(good("x:y", "z"), VdevProp::User("x:y".into(), "z".into()));
        assert_eq!(good("failfast", "off"), VdevProp::Number("failfast", 0));
        assert_eq!(good("checksum_n", "1K"), VdevProp::Number("checksum_n", 1024));
        assert_eq!(good("io_t", "none").text(), "io_t=-1");
        for (name, value, why) in [
            ("checksum_n", "abc", "bad numeric value 'abc'"),
            ("checksum_n", "-1", "bad numeric value '-1'"),
            ("allocating", "maybe", "'allocating' must be one of 'on | off'"),
            ("allocating", "-", "'allocating' must be one of 'on | off'"),
            ("path", "/x", "invalid argument for this pool operation"),
            ("size", "1", "'size' is readonly"),
            ("nosuch", "1", "invalid property: 'nosuch'"),
            ("x:Y", "1", "invalid property: 'x:Y'"),
        ] {
            let Err(PoolError::Property { why: told, .. }) = VdevProp::parse(name, value) else {
                panic!("{name}={value}");
            };
            assert_eq!(told.to_string(), why, "{name}={value}");
        }
    }
}
