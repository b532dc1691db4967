//! `zpool list`: properties of pools, and their vdevs with their space.

use super::ReadRefusal;
use crate::verbs::{Right, Verb};
use crate::{PoolFacts, Problem, Property, Session, Vdevs, pool_facts, pool_props, tree};
use format::prop;
use serde::{Deserialize, Serialize};

/// Pools to list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Names of the pools; none: all.
    pub pools: Vec<String>,
    /// The wanted properties by any of their names; `all` stands for each that every pool has.
    pub properties: Vec<String>,
    /// Also the vdevs of each pool (`-v`).
    pub vdevs: bool,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The pools, by name.
    pub pools: Vec<Row>,
    /// What could not be opened or looked at.
    pub problems: Vec<Problem>,
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Name, guid, state and versions.
    pub facts: PoolFacts,
    /// The wanted properties by their own names, in the order of the request.
    pub properties: Vec<(String, Property)>,
    /// The vdevs, if they were asked for.
    pub vdevs: Option<Vdevs>,
}

impl Request {
    /// The own names of the wanted properties, in order.
    ///
    /// # Errors
    /// [`ReadRefusal::Property`].
    pub fn columns(&self) -> Result<Vec<String>, ReadRefusal> {
        let every = || prop::POOL.iter().filter(|prop| prop.visible).map(|prop| prop.name.to_owned());
        let mut columns = Vec::new();
        for name in &self.properties {
            match name.as_str() {
                "all" => columns.extend(every()),
                name => columns.push(property_name(name)?),
            }
        }
        Ok(columns)
    }
}

/// The own name of a property of pools.
///
/// # Errors
/// [`ReadRefusal::Property`].
pub(super) fn property_name(name: &str) -> Result<String, ReadRefusal> {
    let own = prop::pool(name).map(|known| known.name);
    let own = own.or_else(|| (pool_props::is_feature_property(name) || prop::is_user(name)).then_some(name));
    let unknown = || ReadRefusal::Property { property: name.to_owned(), problems: Vec::new() };
    own.map(str::to_owned).ok_or_else(unknown)
}

impl Verb for Request {
    const NAME: &'static str = "zpool list";
    const RIGHT: Right = Right::Anyone;
    type Answer = Answer;
    type Refusal = ReadRefusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, ReadRefusal> {
        let columns = self.columns()?;
        let (opened, problems) = session.pools(&self.pools);
        let mut pools = Vec::new();
        for pool in &opened {
            let unreadable = |error| ReadRefusal::unreadable(pool.name(), error, &problems);
            let property = |name: &String| Ok((name.clone(), pool_props::value_of(pool, name)?));
            pools.push(Row {
                facts: pool_facts(pool).map_err(unreadable)?,
                properties: columns.iter().map(property).collect::<Result<_, _>>().map_err(unreadable)?,
                vdevs: self.vdevs.then(|| tree::vdevs(pool)).transpose().map_err(unreadable)?,
            });
        }
        Ok(Answer { pools, problems })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::carried;
    use crate::{Health, Vdev};

    #[test]
    fn properties_have_their_own_names() {
        let columns = |list: &str| {
            let properties = list.split(',').map(str::to_owned).collect();
            Request { properties, ..Request::default() }.columns()
        };
        assert_eq!(columns("alloc,feature@livelist,a:b").unwrap(), ["allocated", "feature@livelist", "a:b"]);
        assert!(columns("all").unwrap().len() > 10);
        let refusal = columns("name,nosuch").unwrap_err();
        assert_eq!(refusal.to_string(), "bad property list: invalid property 'nosuch'");
    }

    #[test]
    fn requests_and_answers_cross_a_process() {
        carried(&Request { pools: vec!["tank".into()], properties: vec!["size".into()], vdevs: true });
        let facts = PoolFacts {
            name: "tank".into(),
            guid: u64::MAX,
            health: Health::Degraded,
            suspended: false,
            config_txg: 4,
            version: 5000,
            zpl_version: 5,
        };
        let root = Vdev { children: vec![Vdev::new("file", 3)], ..Vdev::new("root", 1) };
        let vdevs = Vdevs { root, cache: Vec::new(), spares: vec![Vdev::new("disk", 2)] };
        let row = Row {
            facts,
            properties: vec![
                ("size".into(), Property::computed(u64::MAX)),
                ("a:b".into(), Property::local("x")),
            ],
            vdevs: Some(vdevs),
        };
        carried(&Answer { pools: vec![row], problems: vec![Problem::missing_pool("pond")] });
    }
}
