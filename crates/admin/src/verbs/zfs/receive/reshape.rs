//! Doing the steps of `shape`, with the verbs that do them for users.

use super::package::Package;
use super::refusal::{Problem, Refusal};
use super::shape::{self, Local, Step};
use super::{Event, Receiving};
use crate::edit::{self, EditError};
use crate::verbs::zfs::{destroy, promote, rename};
use std::collections::BTreeSet;

impl Receiving<'_, '_, '_> {
    /// Whether datasets are to have the shape that they have at the sender: with `-F` for an incremental package of all
    /// datasets.
    pub(super) fn has_shape(&self) -> bool {
        let is_wanted = |package: &Package| package.is_recursive && package.from_snapshot.is_some();
        self.package.as_ref().is_some_and(is_wanted) && self.request.force && !self.request.heal
    }

    /// Whether they get it.
    pub(super) fn is_reshaped(&self) -> bool {
        self.has_shape() && !self.request.dry_run
    }

    /// Gives the datasets here the shape that they have at the sender, if that is wanted. What cannot be done is told; a
    /// stream that needed it is refused later.
    pub(super) fn reshape(&mut self) -> Result<(), Refusal> {
        let Some(package) = self.package.clone().filter(|_| self.is_reshaped()) else { return Ok(()) };
        let failed = |error: EditError| Problem::from(error).of(None);
        let mut tried: BTreeSet<Step> = BTreeSet::new();
        let mut local = self.local().map_err(failed)?;
        let snapshots = |local: &[Local]| local.iter().map(|one| one.snapshots.len()).sum::<usize>();
        // Names that are exchanged take three steps.
        let limit = 4 * (local.len() + snapshots(&local)) + 16;
        for _ in 0..limit {
            let steps = shape::next(&local, &package, &self.place, &|step| tried.contains(step));
            if steps.is_empty() {
                break;
            }
            for step in steps {
                let done = self.step(&step);
                // A snapshot that is held is destroyed later.
                if done.is_err() || !matches!(step, Step::Rename { .. }) {
                    tried.insert(step.clone());
                }
                self.tell(match (done, step) {
                    (Ok(()), Step::Promote { dataset }) => Event::Promoted { dataset },
                    (Ok(()), Step::Destroy { name }) => Event::Destroyed { name },
                    (Ok(()), Step::Rename { from, to }) => Event::Renamed { from, to },
                    (
                        Err(message),
                        Step::Promote { dataset: name }
                        | Step::Destroy { name }
                        | Step::Rename { from: name, .. },
                    ) => Event::Unchanged { name, message },
                });
            }
            local = self.local().map_err(failed)?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Promote { dataset } => {
                let request = promote::Request { dataset: dataset.clone() };
                self.session.run(&request).map_err(|refusal| refusal.to_string())
            }
            Step::Destroy { name } => {
                let is_snapshot = name.contains('@');
                let request = destroy::Request {
                    recursive: !is_snapshot,
                    defer: is_snapshot,
                    ..destroy::Request::of(name.as_str())
                };
                self.session.run(&request).map(drop).map_err(|refusal| refusal.to_string())
            }
            Step::Rename { from, to } => {
                let request = rename::Request::of(from.as_str(), to.as_str());
                self.session.run(&request).map(drop).map_err(|refusal| refusal.to_string())
            }
        }
    }

    /// The datasets that are here, from the topmost one of the package on.
    fn local(&mut self) -> Result<Vec<Local>, EditError> {
        let Some(top) = self.place.dataset(self.place.top()) else { return Ok(Vec::new()) };
        let view = self.session.view(&top)?;
        let names = match edit::with_descendants(&view, &top) {
            Err(EditError::NoDataset { .. }) => return Ok(Vec::new()),
            names => names?,
        };
        let mut local = Vec::new();
        for name in names {
            let dir = view.dsl().dir(&name)?;
            let Some(head) = dir.head()? else { continue };
            let snapshots = head.snapshots()?;
            let snapshots = snapshots
                .iter()
                .filter_map(|one| Some((one.snapshot_name()?.to_owned(), one.phys().guid)))
                .collect();
            let origin = dir.origin()?.map(|origin| origin.phys().guid);
            local.push(Local { name, snapshots, origin });
        }
        Ok(local)
    }
}
