//! `zpool get`: properties of pools, or of vdevs of one pool.

use super::{ReadRefusal, list};
use crate::verbs::{Right, Verb};
use crate::{
    OpenPool, PoolFacts, Problem, Property, Session, Source, Value, Vdev, find_vdev, pool_facts, pool_props,
    tree, vdev_props,
};
use format::prop;
use serde::{Deserialize, Serialize};

/// Stands for all vdevs of a pool.
pub const ALL_VDEVS: &str = "all-vdevs";

/// Properties to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The wanted properties by any of their names; `all` stands for each that the pool or vdev has.
    #[serde(default)]
    pub properties: Vec<String>,
    /// Names of the pools (none: all), or a pool and some of its vdevs: if the second is a vdev of the first, or
    /// [`ALL_VDEVS`], all behind the first are.
    #[serde(default)]
    pub operands: Vec<String>,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Properties of pools.
    Pools {
        /// The pools, by name.
        pools: Vec<PoolRow>,
        /// What could not be opened or looked at.
        problems: Vec<Problem>,
    },
    /// Properties of vdevs.
    Vdevs {
        /// The pool that they belong to.
        pool: PoolFacts,
        /// The vdevs in the order in which they were named.
        vdevs: Vec<VdevRow>,
    },
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRow {
    /// Name, guid, state and versions.
    pub facts: PoolFacts,
    /// The wanted properties by their own names, in the order of the request.
    pub properties: Vec<(String, Property)>,
}

/// One vdev.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevRow {
    /// The vdev.
    pub vdev: Vdev,
    /// The wanted properties by their own names, in the order of the request.
    pub properties: Vec<(String, Property)>,
}

impl Request {
    /// Checks that there are such properties, of vdevs if the operands may name some.
    ///
    /// # Errors
    /// [`ReadRefusal::Property`].
    pub fn check(&self) -> Result<(), ReadRefusal> {
        let for_vdevs = self.operands.len() > 1 && self.of_vdev(Vec::new).is_ok();
        self.of_pool(Vec::new).map(drop).or_else(|refusal| if for_vdevs { Ok(()) } else { Err(refusal) })
    }

    /// The own names of the wanted properties of a pool. `all`: what stands for `all`.
    fn of_pool(&self, all: impl Fn() -> Vec<String>) -> Result<Vec<String>, ReadRefusal> {
        self.names(all, list::property_name)
    }

    /// The own names of the wanted properties of a vdev.
    fn of_vdev(&self, all: impl Fn() -> Vec<String>) -> Result<Vec<String>, ReadRefusal> {
        self.names(all, |name| {
            let own =
                prop::vdev(name).map(|known| known.name).or_else(|| prop::is_user(name).then_some(name));
            let unknown = || ReadRefusal::Property { property: name.to_owned(), problems: Vec::new() };
            own.map(str::to_owned).ok_or_else(unknown)
        })
    }

    fn names(
        &self,
        all: impl Fn() -> Vec<String>,
        own_name: impl Fn(&str) -> Result<String, ReadRefusal>,
    ) -> Result<Vec<String>, ReadRefusal> {
        let mut names = Vec::new();
        for name in &self.properties {
            match name.as_str() {
                "all" => names.extend(all()),
                name => names.push(own_name(name)?),
            }
        }
        Ok(names)
    }

    /// The answer about vdevs of a pool.
    fn read_vdevs(&self, pool: &OpenPool, names: &[String]) -> Result<Answer, ReadRefusal> {
        let unreadable = |error| ReadRefusal::unreadable(pool.name(), error, &[]);
        let mut vdevs = Vec::new();
        for name in names {
            if name == ALL_VDEVS {
                let tree = tree::vdevs(pool).map_err(unreadable)?;
                vdevs.extend(tree.root.walk().into_iter().filter(|vdev| vdev.kind != "hole").cloned());
            } else {
                let found = find_vdev(pool, name).map_err(unreadable)?;
                let (pool, vdev) = (pool.name().to_owned(), name.clone());
                vdevs.push(found.ok_or(ReadRefusal::NoVdev { pool, vdev })?);
            }
        }
        let mut rows = Vec::new();
        for vdev in vdevs {
            let all = vdev_props::vdev_property_names(pool, &vdev).map_err(unreadable)?;
            let mut properties = Vec::new();
            for name in self.of_vdev(|| all.clone())? {
                let found = vdev_props::vdev_property(pool, &vdev, &name).map_err(unreadable)?;
                let source = if prop::is_user(&name) { Source::Default } else { Source::None };
                let property = found.unwrap_or(Property { value: Value::Absent, source, received: None });
                properties.push((name, property));
            }
            rows.push(VdevRow { vdev, properties });
        }
        Ok(Answer::Vdevs { pool: pool_facts(pool).map_err(unreadable)?, vdevs: rows })
    }

    /// The answer about a pool.
    fn read_pool(&self, pool: &OpenPool, problems: &[Problem]) -> Result<PoolRow, ReadRefusal> {
        let unreadable = |error| ReadRefusal::unreadable(pool.name(), error, problems);
        let facts = pool_facts(pool).map_err(unreadable)?;
        let all = pool_props::pool_property_names(pool).map_err(unreadable)?;
        let names = self.of_pool(|| all.clone()).map_err(|refusal| match refusal {
            ReadRefusal::Property { property, .. } => {
                ReadRefusal::Property { property, problems: problems.to_vec() }
            }
            other => other,
        })?;
        let mut properties = Vec::new();
        for name in names {
            let property = pool_props::value_of(pool, &name).map_err(unreadable)?;
            properties.push((name, property));
        }
        Ok(PoolRow { facts, properties })
    }
}

impl Verb for Request {
    const NAME: &'static str = "zpool get";
    const RIGHT: Right = Right::Anyone;
    type Answer = Answer;
    type Refusal = ReadRefusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, ReadRefusal> {
        self.check()?;
        if let [name, vdevs @ ..] = &self.operands[..]
            && let Some(first) = vdevs.first()
            && let Some(pool) = session.pools(std::slice::from_ref(name)).0.first()
        {
            let unreadable = |error| ReadRefusal::unreadable(pool.name(), error, &[]);
            if first == ALL_VDEVS || find_vdev(pool, first).map_err(unreadable)?.is_some() {
                return self.read_vdevs(pool, vdevs);
            }
        }
        let (opened, problems) = session.pools(&self.operands);
        let pools = opened.iter().map(|pool| self.read_pool(pool, &problems)).collect::<Result<_, _>>()?;
        Ok(Answer::Pools { pools, problems })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::carried;

    #[test]
    fn properties_are_those_of_pools_or_vdevs() {
        let check = |list: &str, operands: &[&str]| {
            let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
            let properties = list.split(',').map(str::to_owned).collect();
            carried(&Request { properties, operands: words(operands) }).check()
        };
        assert!(check("all,size", &["tank"]).is_ok());
        // No pool has it, but a vdev has.
        assert!(check("path", &["tank"]).is_err());
        assert!(check("path", &["tank", "sda"]).is_ok());
        assert!(check("path,nosuch", &["tank", "sda"]).is_err());
    }

    #[test]
    fn answers_cross_a_process() {
        let row = VdevRow {
            vdev: Vdev::new("file", u64::MAX),
            properties: vec![("guid".into(), Property::computed(u64::MAX))],
        };
        carried(&row);
        carried(&Answer::Pools { pools: Vec::new(), problems: vec![Problem::missing_pool("tank")] });
    }
}
