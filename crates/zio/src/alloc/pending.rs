//! Changes of a metaslab in one txg that were not taken yet.

use super::range_tree::Run;

/// Runs allocated and freed in one txg, in order.
///
/// Freed space is not reused in the same txg, so a unit is in each list at most once, and one that is in both
/// was allocated first: on disk it does not change.
#[derive(Debug, Default)]
pub(super) struct Pending {
    allocs: Vec<Run>,
    frees: Vec<Run>,
}

impl Pending {
    /// Notes that a run was allocated.
    pub(super) fn alloc(&mut self, run: Run) {
        push(&mut self.allocs, run);
    }

    /// Notes that a run was freed.
    pub(super) fn free(&mut self, run: Run) {
        push(&mut self.frees, run);
    }

    /// Removes an allocation that was undone.
    pub(super) fn undo_alloc(&mut self, (start, len): Run) {
        let holds = |&(first, count): &Run| first <= start && first + count >= start + len;
        let index = self.allocs.iter().rposition(holds).expect("only what was taken in this pass is undone");
        let (first, count) = self.allocs.swap_remove(index);
        let after = (start + len, first + count - (start + len));
        for part in [(first, start - first), after] {
            if part.1 > 0 {
                self.allocs.push(part);
            }
        }
    }

    /// Allocated runs, as recorded.
    pub(super) fn allocs(&self) -> &[Run] {
        &self.allocs
    }

    /// Freed runs, as recorded.
    pub(super) fn frees(&self) -> &[Run] {
        &self.frees
    }

    /// The net change: allocated and freed runs, each ascending, no unit in both.
    pub(super) fn net(self) -> (Vec<Run>, Vec<Run>) {
        let (allocs, frees) = (joined(self.allocs), joined(self.frees));
        (without(&allocs, &frees), without(&frees, &allocs))
    }
}

/// Adds a run, extending one of the last two if it continues that: small and large blocks of a txg are each
/// sequential, but interleaved.
fn push(list: &mut Vec<Run>, run: Run) {
    match list.iter_mut().rev().take(2).find(|last| last.0 + last.1 == run.0) {
        Some(last) => last.1 += run.1,
        None => list.push(run),
    }
}

/// Sorts runs that do not overlap and joins those that touch.
fn joined(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_unstable();
    runs.dedup_by(|next, last| {
        let touch = last.0 + last.1 == next.0;
        if touch {
            last.1 += next.1;
        }
        touch
    });
    runs
}

/// The units of `runs` that are not in `holes`; both ascending.
fn without(runs: &[Run], holes: &[Run]) -> Vec<Run> {
    let mut left = Vec::with_capacity(runs.len());
    let mut holes = holes.iter().peekable();
    for &(start, len) in runs {
        let (mut at, end) = (start, start + len);
        while let Some(&&(hole, count)) = holes.peek()
            && hole < end
        {
            if hole > at {
                left.push((at, hole - at));
            }
            at = at.max(hole + count);
            if hole + count > end {
                break; // it may reach into the next run
            }
            holes.next();
        }
        if at < end {
            left.push((at, end - at));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use vdev::env::Random;

    #[test]
    fn taken_and_given_back_is_nothing() {
        let mut pending = Pending::default();
        pending.alloc((10, 5));
        pending.alloc((100, 8));
        pending.alloc((15, 5));
        pending.free((12, 3));
        pending.free((50, 10));
        pending.free((100, 8));
        assert_eq!(pending.net(), (vec![(10, 2), (15, 5)], vec![(50, 10)]));
    }

    #[test]
    fn undoing_leaves_the_rest() {
        let mut pending = Pending::default();
        pending.alloc((10, 10));
        pending.alloc((40, 4));
        pending.undo_alloc((12, 3));
        pending.undo_alloc((40, 4));
        assert_eq!(pending.net(), (vec![(10, 2), (15, 5)], vec![]));
    }

    #[test]
    fn difference_agrees_with_a_bitmap() {
        for seed in 0..300 {
            let mut random = Random::from_seed(seed);
            let mut make = || {
                let (mut at, mut runs) = (0, Vec::new());
                while at < 100 {
                    let len = 1 + random.below(9) as u32;
                    runs.push((at + random.below(6) as u32, len));
                    at = runs[runs.len() - 1].0 + len;
                }
                runs
            };
            let (runs, holes) = (make(), make());
            let has = |runs: &[Run], unit: u32| runs.iter().any(|run| (run.0..run.0 + run.1).contains(&unit));
            let left = without(&runs, &holes);
            for unit in 0..130 {
                let wanted = has(&runs, unit) && !has(&holes, unit);
                assert_eq!(has(&left, unit), wanted, "seed {seed} unit {unit}: {runs:?} {holes:?}");
            }
        }
    }
}
