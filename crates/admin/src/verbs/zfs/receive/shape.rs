//! Steps that give a tree of datasets the shape of a package (`-F` with an incremental package of `-R`): clones are
//! promoted, what the package does not have is destroyed, and what it knows by another name is renamed
//! (docs/on-disk/30-send-streams.md, section 9).
//!
//! Datasets are known by the guids of their snapshots. The plan is made of a listing alone; a caller does its steps and
//! plans again, until nothing is left to do.
//!
//! # What always holds
//! - The topmost dataset is neither destroyed nor renamed.
//! - A dataset is destroyed only if nothing below it is in the package.

use super::package::{Package, Sent};
use super::place::{Place, parent};
use std::collections::HashSet;

/// A dataset as it is here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Local {
    /// Full name.
    pub(super) name: String,
    /// Names, without the dataset, and guids of its snapshots, oldest first.
    pub(super) snapshots: Vec<(String, u64)>,
    /// Guid of its origin.
    pub(super) origin: Option<u64>,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// A clone becomes the owner of its origin.
    Promote {
        /// Full name.
        dataset: String,
    },
    /// A snapshot, or a dataset with its snapshots, goes.
    Destroy {
        /// Full name.
        name: String,
    },
    /// A dataset or snapshot gets another name.
    Rename {
        /// Full name.
        from: String,
        /// New full name.
        to: String,
    },
}

/// The next steps, in order; after them the datasets are to be listed again. `is_tried` tells the steps that have
/// failed before and are not to be tried again.
pub(super) fn next(
    local: &[Local],
    package: &Package,
    place: &Place,
    is_tried: &dyn Fn(&Step) -> bool,
) -> Vec<Step> {
    let view = View {
        local,
        package,
        place,
        names: local.iter().map(|one| one.name.as_str()).collect(),
        guids: local.iter().flat_map(|one| &one.snapshots).map(|(_, guid)| *guid).collect(),
    };
    let kinds = [View::promotions, View::destroyed_snapshots, View::renamed_snapshots, View::destroyed];
    for steps in kinds {
        let steps: Vec<Step> = steps(&view).into_iter().filter(|step| !is_tried(step)).collect();
        if !steps.is_empty() {
            return steps;
        }
    }
    // Each renaming changes the names of all below.
    view.renamed().into_iter().find(|step| !is_tried(step)).into_iter().collect()
}

struct View<'a> {
    local: &'a [Local],
    package: &'a Package,
    place: &'a Place,
    /// The names of the datasets that are here.
    names: HashSet<&'a str>,
    /// The guids of the snapshots that are here.
    guids: HashSet<u64>,
}

impl View<'_> {
    /// The place in the package of the dataset that is `local` here: the one with the newest of its snapshots.
    fn index(&self, local: &Local) -> Option<usize> {
        local.snapshots.iter().rev().find_map(|(_, guid)| self.package.index_of(*guid))
    }

    /// That dataset.
    fn sent(&self, local: &Local) -> Option<&Sent> {
        self.package.datasets.get(self.index(local)?)
    }

    fn is_top(&self, local: &Local) -> bool {
        self.place.dataset(&self.package.top).is_some_and(|top| top == local.name)
    }

    /// A clone whose origin is a snapshot of the clone itself at the sender.
    fn promotions(&self) -> Vec<Step> {
        let wanted = self.local.iter().find(|local| {
            let origin = local.origin.filter(|origin| self.guids.contains(origin));
            let of_clone = self.index(local);
            origin.is_some_and(|origin| of_clone.is_some() && self.package.index_of(origin) == of_clone)
        });
        wanted.map(|local| Step::Promote { dataset: local.name.clone() }).into_iter().collect()
    }

    fn destroyed_snapshots(&self) -> Vec<Step> {
        let known = self.local.iter().filter(|local| self.sent(local).is_some());
        let gone = known.flat_map(|local| {
            let gone = local.snapshots.iter().filter(|(_, guid)| self.package.index_of(*guid).is_none());
            gone.map(|(name, _)| Step::Destroy { name: format!("{}@{name}", local.name) })
        });
        gone.collect()
    }

    fn renamed_snapshots(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for local in self.local {
            let Some(index) = self.index(local) else { continue };
            let wrong: Vec<(&str, &str)> = local
                .snapshots
                .iter()
                .filter(|(_, guid)| self.package.index_of(*guid) == Some(index))
                .filter_map(|(name, guid)| Some((name.as_str(), self.package.snapshot_name(*guid)?)))
                .filter(|(name, wanted)| name != wanted)
                .collect();
            let is_taken = |wanted: &str| local.snapshots.iter().any(|(name, _)| name == wanted);
            let free = wrong.iter().find(|(_, wanted)| !is_taken(wanted));
            let to = match (free, wrong.first()) {
                (Some((from, to)), _) => Some((*from, (*to).to_owned())),
                // Names that were exchanged.
                (None, Some((from, _))) => Some((*from, spare(&is_taken))),
                (None, None) => None,
            };
            steps.extend(to.map(|(from, to)| Step::Rename {
                from: format!("{}@{from}", local.name),
                to: format!("{}@{to}", local.name),
            }));
        }
        steps
    }

    /// What is not in the package, lower datasets first.
    fn destroyed(&self) -> Vec<Step> {
        let mut needed: HashSet<&str> = HashSet::new();
        for local in self.local.iter().filter(|local| self.is_top(local) || self.sent(local).is_some()) {
            let mut name = Some(local.name.as_str());
            while let Some(above) = name {
                needed.insert(above);
                name = parent(above);
            }
        }
        let gone = self.local.iter().rev().filter(|local| !needed.contains(local.name.as_str()));
        gone.map(|local| Step::Destroy { name: local.name.clone() }).collect()
    }

    fn renamed(&self) -> Vec<Step> {
        let is_taken = |name: &str| self.names.contains(name);
        let mut wrong: Vec<(&str, String)> = Vec::new();
        for local in self.local.iter().filter(|local| !self.is_top(local)) {
            let wanted = self.sent(local).and_then(|sent| self.place.dataset(&sent.name));
            wrong.extend(wanted.filter(|to| *to != local.name).map(|to| (local.name.as_str(), to)));
        }
        // Upper ones first: those below move along.
        wrong.sort_by_key(|(_, to)| to.matches('/').count());
        let has_place = |from: &str, to: &str| {
            parent(to).is_some_and(is_taken)
                && !to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/'))
        };
        let step = |from: &str, to: String| Step::Rename { from: from.to_owned(), to };
        let free = wrong.iter().filter(|(from, to)| !is_taken(to) && has_place(from, to));
        let mut steps: Vec<Step> = free.map(|(from, to)| step(from, to.clone())).collect();
        // Names that were exchanged: one steps aside.
        let blocked = wrong.iter().filter(|(from, to)| is_taken(to) && has_place(from, to));
        let top = self.place.dataset(&self.package.top).unwrap_or_default();
        steps.extend(blocked.filter(|(from, _)| !is_aside(from)).map(|(from, _)| {
            let aside = spare(&|name| is_taken(&format!("{top}/{name}")));
            step(from, format!("{top}/{aside}"))
        }));
        steps
    }
}

/// Start of the names of what steps aside.
const ASIDE: &str = "recv-";

fn is_aside(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|last| last.starts_with(ASIDE))
}

/// A name that is not taken.
fn spare(is_taken: &dyn Fn(&str) -> bool) -> String {
    let mut names = (1_u64..).map(|number| format!("{ASIDE}{number}"));
    names.find(|name| !is_taken(name)).unwrap_or_else(|| ASIDE.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::place::Naming;
    use super::*;

    fn snapshots(list: &str) -> Vec<(String, u64)> {
        list.split_whitespace()
            .map(|one| {
                let (name, guid) = one.split_once('=').expect("a guid");
                (name.to_owned(), guid.parse().expect("a number"))
            })
            .collect()
    }

    fn local(name: &str, list: &str, origin: u64) -> Local {
        let origin = Some(origin).filter(|guid| *guid != 0);
        Local { name: name.to_owned(), snapshots: snapshots(list), origin }
    }

    /// Applies the plan to a model until it is done; tells each step.
    fn play(mut here: Vec<Local>, there: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let datasets = there
            .iter()
            .map(|(name, list)| Sent {
                name: (*name).to_owned(),
                snapshots: snapshots(list),
                ..Sent::default()
            })
            .collect();
        let package = Package::of("s", None, true, datasets);
        let place = Place::new("t/r", Naming::Exact, "s");
        let mut told = Vec::new();
        for _ in 0..50 {
            here.sort_by(|a, b| a.name.cmp(&b.name));
            let steps = next(&here, &package, &place, &|_| false);
            if steps.is_empty() {
                break;
            }
            for step in steps {
                told.push(apply(&mut here, step));
            }
        }
        let left = here.iter().map(|local| {
            let names: Vec<&str> = local.snapshots.iter().map(|(name, _)| name.as_str()).collect();
            format!("{} {}", local.name, names.join(","))
        });
        let left = left.collect();
        (told, left)
    }

    fn apply(here: &mut Vec<Local>, step: Step) -> String {
        match step {
            Step::Promote { dataset } => {
                let origin = here.iter().find(|one| one.name == dataset).and_then(|one| one.origin);
                let owner =
                    here.iter_mut().find(|one| one.snapshots.iter().any(|(_, guid)| Some(*guid) == origin));
                let owner = owner.expect("an owner");
                let at =
                    owner.snapshots.iter().position(|(_, guid)| Some(*guid) == origin).expect("its origin");
                let moved: Vec<_> = owner.snapshots.drain(..=at).collect();
                let before = std::mem::replace(&mut owner.origin, origin);
                let clone = here.iter_mut().find(|one| one.name == dataset).expect("there");
                clone.snapshots.splice(0..0, moved);
                clone.origin = before;
                format!("promote {dataset}")
            }
            Step::Destroy { name } => {
                match name.split_once('@') {
                    Some((of, snapshot)) => {
                        let one = here.iter_mut().find(|one| one.name == of).expect("there");
                        one.snapshots.retain(|(known, _)| known != snapshot);
                    }
                    None => here.retain(|one| one.name != name),
                }
                format!("destroy {name}")
            }
            Step::Rename { from, to } => {
                if let (Some((of, old)), Some((_, new))) = (from.split_once('@'), to.split_once('@')) {
                    let one = here.iter_mut().find(|one| one.name == of).expect("there");
                    let known = one.snapshots.iter_mut().find(|(name, _)| name == old).expect("there");
                    known.0 = new.to_owned();
                } else {
                    assert!(!here.iter().any(|one| one.name == to), "{to} is taken");
                    for one in here.iter_mut() {
                        let rest =
                            one.name.strip_prefix(&from).filter(|r| r.is_empty() || r.starts_with('/'));
                        if let Some(name) = rest.map(|rest| format!("{to}{rest}")) {
                            one.name = name;
                        }
                    }
                }
                format!("rename {from} {to}")
            }
        }
    }

    #[test]
    fn what_is_gone_at_the_sender_goes() {
        let here = vec![
            local("t/r", "a=1 b=2", 0),
            local("t/r/x", "a=3", 0),
            local("t/r/x/y", "a=4", 0),
            local("t/r/z", "a=5", 0),
            local("t/r/new", "", 0),
        ];
        let (told, left) = play(here, &[("s", "b=2 c=6"), ("s/z", "a=5 c=7")]);
        let wanted = ["destroy t/r@a", "destroy t/r/x/y", "destroy t/r/x", "destroy t/r/new"];
        assert_eq!(told, wanted);
        assert_eq!(left, ["t/r b", "t/r/z a"]);
    }

    #[test]
    fn what_moved_at_the_sender_moves() {
        let here = vec![
            local("t/r", "a=1", 0),
            local("t/r/x", "a=2", 0),
            local("t/r/x/low", "a=3", 0),
            local("t/r/y", "a=4", 0),
        ];
        let there = [("s", "a=1"), ("s/x", "a=4"), ("s/y", "a=2"), ("s/y/deep", "a=3")];
        let (told, left) = play(here, &there);
        assert_eq!(left, ["t/r a", "t/r/x a", "t/r/y a", "t/r/y/deep a"], "{told:?}");
    }

    #[test]
    fn snapshots_that_exchanged_names_do_so() {
        let here = vec![local("t/r", "a=1 b=2", 0)];
        let (told, left) = play(here, &[("s", "b=1 a=2")]);
        assert_eq!(left, ["t/r b,a"], "{told:?}");
        assert_eq!(told.len(), 3);
    }

    #[test]
    fn clones_are_promoted_as_at_the_sender() {
        let here = vec![local("t/r", "a=1", 0), local("t/r/fs", "a=2 b=3", 0), local("t/r/clone", "c=4", 3)];
        let there = [("s", "a=1"), ("s/clone", "a=2 b=3 c=4"), ("s/fs", "d=9")];
        let (told, _) = play(here, &there);
        assert_eq!(told[0], "promote t/r/clone");
        assert!(!told.iter().any(|step| step == "destroy t/r/clone"), "{told:?}");
    }
}
