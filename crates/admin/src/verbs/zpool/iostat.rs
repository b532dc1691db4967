//! `zpool iostat`: what the vdevs of pools have read and written.
//!
//! A verb takes one sample: counters since the pools were opened. A caller that wants rates runs it again, in the same
//! session and for what the first sample has selected, and takes the difference ([`PoolIo::since`]).

use crate::verbs::{Code, Reason, Refused, Right, Verb};
use crate::{PoolIo, Problem, Session, Vdev, Vdevs, iostat};
use serde::{Deserialize, Serialize};

/// A sample to take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Of what these words name: nothing (all pools), pools, vdevs of any pool, or a pool and vdevs of it.
    Named(Vec<String>),
    /// Of what an earlier sample has selected.
    Selected(Selection),
}

/// What a sample is of.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Selection {
    /// Names of the pools; none: all.
    pub pools: Vec<String>,
    /// The vdevs of these pools, each by one of its names; `None`: the pools themselves.
    pub vdevs: Option<Vec<String>>,
}

/// A sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// What the sample is of.
    pub selection: Selection,
    /// The pools, by name, with all their vdevs.
    pub pools: Vec<PoolIo>,
    /// What could not be opened or looked at.
    pub problems: Vec<Problem>,
}

/// What a word names that was to name a vdev of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Named {
    /// A vdev of the pool.
    Vdev,
    /// A pool.
    Pool,
    /// Nothing that there is.
    Unknown,
}

/// Why no sample was taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may not look.
    #[error("{0}")]
    Denied(Reason),
    /// The words name neither pools nor vdevs.
    #[error("Unable to parse pools/vdevs list.\n")]
    Unknown,
    /// The words begin with a pool, but not all others are vdevs of it.
    #[error(
        "Expected either a list of pools, or list of vdevs in \"{pool}\", but got:\n{}",
        words.iter().map(|(word, named)| format!("\t{word} ({named})\n")).collect::<String>()
    )]
    Mixed {
        /// Name of the pool.
        pool: String,
        /// The other words, and what each names.
        words: Vec<(String, Named)>,
    },
    /// The space of a pool cannot be read.
    #[error("{reason}")]
    Unreadable {
        /// Name of the pool.
        pool: String,
        /// Why.
        reason: Reason,
    },
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Named::Vdev => "vdev in this pool",
            Named::Pool => "pool",
            Named::Unknown => "unknown",
        })
    }
}

from_denied!(Refusal, Refusal::Denied);

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason) | Refusal::Unreadable { reason, .. } => reason.clone(),
            Refusal::Unknown => Reason::new(Code::NoPool, self),
            Refusal::Mixed { pool, .. } => {
                Reason { about: vec![pool.clone()], ..Reason::new(Code::Refused, self) }
            }
        }
    }
}

impl Selection {
    /// What words name among these pools.
    ///
    /// # Errors
    /// [`Refusal::Unknown`], [`Refusal::Mixed`].
    pub fn of(words: &[String], pools: &[PoolIo]) -> Result<Selection, Refusal> {
        let is_pool = |word: &String| pools.iter().any(|pool| pool.name == *word);
        let Some((first, rest)) = words.split_first() else { return Ok(Selection::default()) };
        if words.iter().all(is_pool) {
            return Ok(Selection { pools: words.to_vec(), vdevs: None });
        }
        if words.iter().all(|word| pools.iter().any(|pool| has_vdev(&pool.vdevs, word))) {
            return Ok(Selection { pools: Vec::new(), vdevs: Some(words.to_vec()) });
        }
        let pool = pools.iter().find(|pool| pool.name == *first).ok_or(Refusal::Unknown)?;
        if rest.iter().all(|word| has_vdev(&pool.vdevs, word)) {
            return Ok(Selection { pools: vec![pool.name.clone()], vdevs: Some(rest.to_vec()) });
        }
        let named = |word: &String| match () {
            () if has_vdev(&pool.vdevs, word) => Named::Vdev,
            () if is_pool(word) => Named::Pool,
            () => Named::Unknown,
        };
        let words = rest.iter().map(|word| (word.clone(), named(word))).collect();
        Err(Refusal::Mixed { pool: pool.name.clone(), words })
    }

    /// True if the pool of this name is looked at.
    fn has_pool(&self, name: &str) -> bool {
        self.pools.is_empty() || self.pools.iter().any(|pool| pool == name)
    }

    /// True if this vdev is one of the selected.
    pub fn has_vdev(&self, vdev: &Vdev) -> bool {
        self.vdevs.iter().flatten().any(|word| is_called(vdev, word))
    }
}

/// True if one of the vdevs that hold data or cache them has this name.
fn has_vdev(vdevs: &Vdevs, word: &str) -> bool {
    let mut tops = vdevs.root.children.iter().chain(&vdevs.cache);
    tops.any(|top| top.walk().into_iter().any(|vdev| is_called(vdev, word)))
}

/// True if this is one of the names of a vdev: as the commands show it, its path or its guid.
fn is_called(vdev: &Vdev, word: &str) -> bool {
    vdev.kind != "hole"
        && (vdev.name() == word || vdev.path.as_deref() == Some(word) || vdev.guid.to_string() == word)
}

impl Verb for Request {
    const NAME: &'static str = "zpool iostat";
    const RIGHT: Right = Right::Anyone;
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let counting = session.counting_pools();
        let (opened, problems) = &*counting;
        let mut pools = Vec::new();
        for pool in opened {
            // Of a pool that was not selected nothing is read.
            if matches!(self, Request::Selected(selection) if !selection.has_pool(pool.name())) {
                continue;
            }
            pools.push(iostat::pool_io(pool).map_err(|error| Refusal::Unreadable {
                pool: pool.name().to_owned(),
                reason: error.into(),
            })?);
        }
        let selection = match self {
            Request::Named(words) => Selection::of(words, &pools)?,
            Request::Selected(selection) => selection.clone(),
        };
        pools.retain(|pool| selection.has_pool(&pool.name));
        Ok(Answer { selection, pools, problems: problems.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::carried;
    use std::collections::HashMap;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn tank() -> PoolIo {
        let disk = |path: &str, guid| Vdev { path: Some(path.to_owned()), ..Vdev::new("file", guid) };
        let mirror =
            Vdev { children: vec![disk("/disks/a", 3), disk("/disks/b", 4)], ..Vdev::new("mirror", 2) };
        let root = Vdev { pool_name: Some("tank".into()), children: vec![mirror], ..Vdev::new("root", 1) };
        let vdevs = Vdevs { root, cache: Vec::new(), spares: Vec::new() };
        PoolIo { name: "tank".into(), vdevs, io: HashMap::new() }
    }

    #[test]
    fn words_name_pools_or_vdevs() {
        let select = |text: &str| Selection::of(&words(text), &[tank()]);
        let selection =
            |pools: &str, vdevs: Option<&str>| Selection { pools: words(pools), vdevs: vdevs.map(words) };
        assert_eq!(select("").unwrap(), selection("", None));
        assert_eq!(select("tank").unwrap(), selection("tank", None));
        assert_eq!(select("mirror-0 4").unwrap(), selection("", Some("mirror-0 4")));
        assert_eq!(select("tank /disks/a").unwrap(), selection("tank", Some("/disks/a")));
        assert_eq!(select("pond").unwrap_err(), Refusal::Unknown);
        let mixed = carried(&select("tank mirror-0 tank x").unwrap_err());
        assert_eq!(
            mixed.to_string(),
            "Expected either a list of pools, or list of vdevs in \"tank\", but got:\n\
             \tmirror-0 (vdev in this pool)\n\ttank (pool)\n\tx (unknown)\n"
        );
    }

    #[test]
    fn requests_and_answers_cross_a_process() {
        let selection = Selection { pools: words("tank"), vdevs: Some(words("mirror-0")) };
        carried(&Request::Named(words("tank")));
        carried(&Request::Selected(selection.clone()));
        carried(&Answer { selection, pools: vec![tank()], problems: vec![Problem::missing_pool("pond")] });
    }
}
