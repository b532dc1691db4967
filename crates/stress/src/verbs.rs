//! Administrators: two or three concurrent verbs on a dataset, its parent and its child.
//!
//! The combinations are not left to chance: the pair of verbs tested least, over all rounds, comes next
//! (`Coverage`), and every third combination has a third verb. The objects a verb needs (a dataset, a
//! snapshot, a clone) are made before it, where possible.
//!
//! A verb may be refused because another one was faster. It is a failure when the pool is suspended, or when
//! a command panics or does not end. The state of the datasets is checked at the end of the round.

use crate::Random;
use crate::world::{Completed, Outcome, World, fail, lock};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;

const BASE: &str = "tank/t";

/// An object that a verb needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Dataset,
    Snapshot,
    Clone,
    Hold,
    Bookmark,
    Volume,
}
use Need::{Bookmark, Clone as Cloned, Dataset, Hold, Snapshot, Volume};

impl Need {
    fn line(self) -> &'static str {
        match self {
            Dataset => "zfs create -p {d}/x",
            Snapshot => "zfs snapshot {s}",
            Cloned => "zfs clone {s} {k}",
            Hold => "zfs hold tag {s}",
            Bookmark => "zfs bookmark {s} {p}#{n}",
            Volume => "zfs create -s -V 8M {d}/v",
        }
    }
}

/// The verbs and the objects they need. `{d}`: a dataset; `{p}`: it, its child or its parent; `{s}`, `{s2}`:
/// snapshots of `{p}`, and `{n}`, `{m}` their names; `{k}`: a clone; `{o}`: another dataset, or a clone.
const VERBS: &[(&[Need], &str)] = &[
    (&[], "zfs create -p {d}/x"),
    (&[Dataset], "zfs create {d}/y"),
    (&[Dataset], "zfs create -s -V 8M {d}/v"),
    (&[Dataset], "zfs destroy {d}/x"),
    (&[Dataset], "zfs destroy -r {d}"),
    (&[Dataset, Snapshot, Cloned], "zfs destroy -R {d}"),
    (&[Dataset, Snapshot], "zfs destroy {s}"),
    (&[Dataset, Snapshot], "zfs destroy -r {s}"),
    (&[Dataset, Snapshot, Cloned], "zfs destroy -R {s}"),
    (&[Dataset, Snapshot, Hold], "zfs destroy -d {s}"),
    (&[Dataset], "zfs snapshot {s}"),
    (&[Dataset], "zfs snapshot -r {s}"),
    (&[Dataset, Snapshot], "zfs rollback {s}"),
    (&[Dataset, Snapshot], "zfs rollback -r {s}"),
    (&[Dataset, Snapshot, Cloned], "zfs rollback -R {s}"),
    (&[Dataset, Snapshot], "zfs rename {s} {s2}"),
    (&[Dataset, Snapshot], "zfs rename -r {s} {s2}"),
    (&[Dataset], "zfs rename {d} {o}"),
    (&[Dataset], "zfs rename {d}/x {o}/y"),
    (&[Dataset], "zfs rename -u {d} {o}"),
    (&[Dataset, Snapshot], "zfs clone {s} {k}"),
    (&[Dataset, Snapshot, Cloned], "zfs promote {k}"),
    (&[Dataset, Snapshot, Cloned], "zfs destroy -r {k}"),
    (&[Dataset, Snapshot], "zfs hold tag {s}"),
    (&[Dataset, Snapshot], "zfs hold -r tag {s}"),
    (&[Dataset, Snapshot, Hold], "zfs release -r tag {s}"),
    (&[Dataset, Snapshot], "zfs bookmark {s} {p}#{n}"),
    (&[Dataset, Snapshot, Bookmark], "zfs destroy {p}#{n}"),
    (&[Dataset], "zfs set compression=zstd {p}"),
    (&[Dataset], "zfs set quota=1G {d}"),
    (&[Dataset], "zfs set quota=1M {d}"),
    (&[Dataset], "zfs set reservation=5M {d}/x"),
    (&[Dataset], "zfs set refreservation=3M {d}"),
    (&[Dataset], "zfs set canmount=noauto {d}"),
    (&[Dataset], "zfs set canmount=on {d}"),
    (&[Dataset], "zfs set mountpoint={f}/else {d}"),
    (&[Dataset], "zfs set readonly=on {d}"),
    (&[Dataset], "zfs set checksum=sha256 {d}"),
    (&[Dataset, Snapshot], "zfs set user:x={n} {s}"),
    (&[Dataset, Volume], "zfs set volsize=16M {d}/v"),
    (&[Dataset], "zfs inherit -r compression {p}"),
    (&[Dataset], "zfs inherit -r readonly {p}"),
    (&[Dataset], "zfs inherit mountpoint {d}"),
    (&[Dataset], "zfs inherit quota {d}"),
    (&[Dataset], "zfs unmount {d}"),
    (&[Dataset], "zfs unmount -f {d}"),
    (&[Dataset], "zfs mount {d}"),
    (&[Dataset], "zfs mount -a"),
    (&[Dataset], "zfs allow -u 7 snapshot,mount {p}"),
    (&[Dataset], "zfs unallow -r -u 7 {p}"),
    (&[Dataset], "zfs upgrade -r {d}"),
    (&[Dataset], "zfs get -H -r -t all all {d}"),
    (&[Dataset], "zfs list -H -r -t all {d}"),
    (&[Dataset, Snapshot, Hold], "zfs holds -r {s}"),
    (&[Dataset, Snapshot], "zfs diff {s}"),
    (&[Dataset], "zfs userspace {d}"),
    (&[Dataset, Snapshot], "cp -T {s}:/f {f}/copy"),
    (&[Dataset, Snapshot], "ls {s}:/"),
    (&[], "zpool sync tank"),
    (&[], "zpool scrub tank"),
    (&[], "zpool scrub -p tank"),
    (&[], "zpool scrub -s tank"),
    (&[], "zpool resilver tank"),
    (&[], "zpool clear tank"),
    (&[], "zpool reopen tank"),
    (&[], "zpool reguid tank"),
    (&[], "zpool upgrade tank"),
    (&[], "zpool set comment={n} tank"),
    (&[], "zpool get -H all tank"),
    (&[], "zpool status -v tank"),
    (&[], "zpool history -i tank"),
    (&[], "zpool events"),
    (&[], "zpool iostat -v tank"),
];

/// Counts of the combinations of verbs, and of their outcomes.
#[derive(Debug, Default)]
pub(crate) struct Coverage(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// By pair: the number of runs, and of runs in which both verbs succeeded.
    pairs: BTreeMap<(usize, usize), (u32, u32)>,
    triples: BTreeSet<Vec<usize>>,
    refusals: u64,
}

impl Coverage {
    /// Chooses the pair that has run least often, sometimes with a third verb.
    fn draw(&self, random: &mut Random) -> Vec<usize> {
        let mut counts = lock(&self.0);
        let all = || (0..VERBS.len()).flat_map(|one| (one..VERBS.len()).map(move |two| (one, two)));
        let times = |pair| counts.pairs.get(&pair).map_or(0, |(times, _)| *times);
        let least = all().map(times).min().unwrap_or(0);
        let rare: Vec<(usize, usize)> = all().filter(|pair| times(*pair) == least).collect();
        let pair = *random.of(&rare);
        counts.pairs.entry(pair).or_default().0 += 1;
        let mut combination = vec![pair.0, pair.1];
        if random.one_in(3) {
            combination.push(random.below(VERBS.len() as u64) as usize);
            let mut triple = combination.clone();
            triple.sort_unstable();
            counts.triples.insert(triple);
        }
        combination
    }

    fn note(&self, combination: &[usize], is_done: &[bool]) {
        let mut counts = lock(&self.0);
        counts.refusals += is_done.iter().filter(|done| !**done).count() as u64;
        if let ([one, two, ..], [true, true, ..]) = (combination, is_done) {
            counts.pairs.entry((*one, *two)).or_default().1 += 1;
        }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = lock(&self.0);
        let all = VERBS.len() * (VERBS.len() + 1) / 2;
        let done = counts.pairs.values().filter(|(_, done)| *done > 0).count();
        write!(
            f,
            "{} of {all} pairs of {} verbs have met, {done} with both done; {} triples; {} refusals",
            counts.pairs.len(),
            VERBS.len(),
            counts.triples.len(),
            counts.refusals
        )?;
        let together: u64 = counts.pairs.values().map(|(times, _)| u64::from(*times)).sum();
        write!(f, " in {together} bouts")
    }
}

/// Runs combinations until the round is over.
pub(crate) fn work(world: &World, coverage: &Coverage, number: u64, mut random: Random) -> Outcome {
    let actor = format!("v{number}");
    while !world.is_over() {
        let names = Names::draw(world, &mut random);
        let verbs = coverage.draw(&mut random);
        let mut made = Vec::new();
        for verb in &verbs {
            for need in VERBS[*verb].0.iter().filter(|_| !random.one_in(12)) {
                if !made.contains(need) {
                    made.push(*need);
                    // The object may exist, or cannot be made: then this command, or the verb, is refused.
                    let line = names.fill(need.line());
                    world.run(&actor, &line.iter().map(String::as_str).collect::<Vec<_>>())?;
                }
            }
        }
        names.write(world, &mut random);
        let combination: Vec<Vec<String>> = verbs.iter().map(|verb| names.fill(VERBS[*verb].1)).collect();
        let changes_identity = combination.iter().any(|line| line.iter().any(|word| word == "reguid"));
        let _identity = changes_identity.then(|| lock(&world.identity));
        let completed = world.run_together(&actor, &combination)?;
        coverage.note(&verbs, &completed.iter().map(Completed::is_success).collect::<Vec<_>>());
        if random.one_in(4) {
            look(world, &actor)?;
        }
    }
    Ok(())
}

/// Checks that the pool is online and that all datasets can be listed.
fn look(world: &World, actor: &str) -> Outcome {
    let health = world.run_ok(actor, &["zpool", "list", "-H", "-o", "health", "tank"])?;
    if !health.is_excused && !matches!(health.out.trim(), "ONLINE" | "DEGRADED") {
        return fail(format!("the pool is {}", health.out.trim()));
    }
    world.run_ok(actor, &["zfs", "list", "-H", "-r", "-t", "all", BASE]).map(drop)
}

/// The names in a combination. They are few, so that the verbs of several administrators act on the same
/// datasets.
struct Names(Vec<(&'static str, String)>);

impl Names {
    fn draw(world: &World, random: &mut Random) -> Names {
        let dataset = format!("{BASE}/{}", random.of(&["a", "b"]));
        let place =
            random.of(&[dataset.clone(), format!("{dataset}/x"), dataset.clone(), BASE.to_owned()]).clone();
        let (one, two) = (random.below(3).to_string(), random.below(3).to_string());
        Names(vec![
            ("{s}", format!("{place}@{one}")),
            ("{s2}", format!("{place}@{two}")),
            ("{o}", format!("{BASE}/{}", random.of(&["a", "b", "k1", "k2"]))),
            ("{k}", format!("{BASE}/k{}", 1 + random.below(2))),
            ("{d}", dataset),
            ("{p}", place),
            ("{n}", one),
            ("{m}", two),
            ("{f}", world.folder.display().to_string()),
        ])
    }

    /// Writes into the dataset's files, if it is mounted at its usual place.
    fn write(&self, world: &World, random: &mut Random) {
        let dataset = self.0.iter().find(|(name, _)| *name == "{d}").map_or("", |(_, text)| text);
        let at = world.mount().join(dataset.trim_start_matches("tank/"));
        let device = |path: &Path| std::fs::metadata(path).ok().map(|data| data.dev());
        let (own, above) = (device(&at), at.parent().and_then(device));
        if own.is_some() && own != above {
            // The dataset may be unmounted at any moment.
            let _ = std::fs::write(at.join("f"), random.bytes(50_000));
        }
    }

    fn fill(&self, line: &str) -> Vec<String> {
        let fill =
            |word: &str| self.0.iter().fold(word.to_owned(), |word, (name, text)| word.replace(name, text));
        line.split(' ').map(fill).collect()
    }
}
