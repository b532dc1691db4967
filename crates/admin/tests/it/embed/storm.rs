//! Runs many threads with mixed operations on one pool, each with a model of its own dataset; and tests pools that
//! are full, lose their device, or refuse requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::support::{Images, noise};
use cenote::{OpenOptions, Pool, PoolWriter};
use cenote_admin::PoolVerbs;
use cenote_admin::verbs::{Code, Refused};

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

type Tree = BTreeMap<Vec<u8>, Vec<u8>>;

/// A thread's dataset, and the expected contents of it and of its snapshots.
struct Actor {
    pool: Arc<PoolWriter>,
    name: String,
    dice: Dice,
    model: Tree,
    snapshots: BTreeMap<String, Tree>,
    counter: u64,
}

const PROPS: [(&str, &[&str]); 8] = [
    ("compression", &["off", "lz4", "zstd", "gzip-1", "zle"]),
    ("recordsize", &["512", "4k", "16k", "128k", "1m"]),
    ("checksum", &["fletcher4", "sha256", "blake3"]),
    ("copies", &["1", "2"]),
    ("sync", &["standard", "always", "disabled"]),
    ("logbias", &["latency", "throughput"]),
    ("redundant_metadata", &["all", "most", "some", "none"]),
    ("user:note", &["a", "b"]),
];

impl Actor {
    fn run(&mut self, end: &dyn Fn() -> bool, beat: &AtomicU64) {
        self.pool.create_filesystem(&self.name, &[]).expect("made");
        while !end() {
            self.files();
            self.datasets();
            beat.fetch_add(1, Ordering::Relaxed);
        }
        self.check();
    }

    fn files(&mut self) {
        let fs = self.pool.filesystem(&self.name).expect("opened");
        for _ in 0..self.dice.below(60) {
            let path = format!("/f{}", self.dice.below(30)).into_bytes();
            match self.dice.below(10) {
                0..=4 => {
                    let (at, len) = (self.dice.below(200_000), self.dice.below(60_000));
                    let bytes = noise(self.dice.below(1 << 40), len as usize);
                    let file = match self.model.contains_key(&path) {
                        true => fs.open_file(&path),
                        false => fs.create_new(&path),
                    };
                    let file = file.expect("there");
                    file.write_at(at, &bytes).expect("written");
                    let content = self.model.entry(path).or_default();
                    if len > 0 {
                        let end = (at + len) as usize;
                        content.resize(content.len().max(end), 0);
                        content[at as usize..end].copy_from_slice(&bytes);
                    }
                    if self.dice.below(4) == 0 {
                        file.sync().expect("durable");
                    }
                }
                5 => {
                    let removed = fs.remove(&path);
                    assert_eq!(removed.is_ok(), self.model.remove(&path).is_some());
                }
                6 => {
                    let to = format!("/f{}", self.dice.below(30)).into_bytes();
                    let moved = fs.rename(&path, &to);
                    assert_eq!(moved.is_ok(), self.model.contains_key(&path));
                    if let Some(content) = self.model.remove(&path) {
                        self.model.insert(to, content);
                    }
                }
                7 => {
                    let len = self.dice.below(250_000);
                    if let Some(content) = self.model.get_mut(&path) {
                        fs.open_file(&path).expect("there").set_len(len).expect("cut");
                        content.resize(len as usize, 0);
                    }
                }
                8 => {
                    if let Some(content) = self.model.get(&path) {
                        assert!(fs.read(&path).expect("read") == *content, "{}", self.name);
                    }
                }
                _ => {
                    if self.dice.below(10) == 0 {
                        fs.sync().expect("synced");
                    }
                }
            }
        }
    }

    fn datasets(&mut self) {
        let snapshots: Vec<String> = self.snapshots.keys().cloned().collect();
        let pick = |dice: &mut Dice| {
            (!snapshots.is_empty()).then(|| snapshots[dice.below(snapshots.len() as u64) as usize].clone())
        };
        match self.dice.below(12) {
            0..=2 if snapshots.len() < 6 => {
                self.counter += 1;
                let name = format!("{}@s{:06}", self.name, self.counter);
                self.pool.snapshot(&[&name]).expect("taken");
                self.snapshots.insert(name, self.model.clone());
            }
            3 | 4 => {
                if let Some(name) = pick(&mut self.dice) {
                    self.pool.destroy_dataset(&name).expect("destroyed");
                    self.snapshots.remove(&name);
                }
            }
            5 => {
                if let Some(name) = snapshots.last() {
                    self.pool.rollback(name).expect("rolled back");
                    self.model = self.snapshots[name].clone();
                }
            }
            6 => {
                let Some(name) = pick(&mut self.dice) else { return };
                let clone = format!("{}-clone", self.name);
                self.pool.clone_snapshot(&name, &clone, &[]).expect("cloned");
                let fs = self.pool.filesystem(&clone).expect("opened");
                for (path, content) in self.snapshots[&name].iter().take(3) {
                    assert!(fs.read(path).expect("read") == *content, "{clone}");
                }
                fs.write(b"/new", &noise(5, 50_000)).expect("written");
                drop(fs);
                if self.dice.below(2) == 0 {
                    self.pool.promote(&clone).expect("promoted");
                    self.pool.promote(&self.name).expect("promoted");
                }
                self.pool.destroy_dataset(&clone).expect("destroyed");
            }
            7 | 8 => {
                let (prop, values) = PROPS[self.dice.below(PROPS.len() as u64) as usize];
                let value = values[self.dice.below(values.len() as u64) as usize];
                self.pool.set(&self.name, &[(prop, value)]).expect("set");
            }
            9 => {
                let view = self.pool.view().expect("a view");
                for dataset in view.datasets().unwrap_or_default() {
                    let _ = dataset.property("used");
                }
            }
            10 => {
                let to = format!("{}r", self.name.trim_end_matches('r'));
                let to = if to == self.name { self.name.trim_end_matches('r').to_owned() } else { to };
                self.pool.rename(&self.name, &to).expect("renamed");
                let snapshots = std::mem::take(&mut self.snapshots);
                self.snapshots =
                    snapshots.into_iter().map(|(name, tree)| (name.replace(&self.name, &to), tree)).collect();
                self.name = to;
            }
            _ => {}
        }
    }

    fn check(&self) {
        let fs = self.pool.filesystem(&self.name).expect("opened");
        for (path, content) in &self.model {
            assert!(fs.read(path).expect("read") == *content, "{}", self.name);
        }
    }
}

/// Ends the process and prints the stacks of its threads if no thread makes progress.
fn watchdog(beats: Arc<Vec<AtomicU64>>, done: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let sum = || beats.iter().map(|beat| beat.load(Ordering::Relaxed)).sum::<u64>();
        let (mut last, mut since) = (sum(), Instant::now());
        while !done.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(200));
            if sum() != last {
                (last, since) = (sum(), Instant::now());
            }
            if since.elapsed() > Duration::from_secs(120) {
                let own = std::process::id().to_string();
                let args = ["-p", &own, "-batch", "-ex", "thread apply all bt 25"];
                let _ = std::process::Command::new("gdb").args(args).status();
                std::process::abort();
            }
        }
    })
}

#[test]
fn threads_of_everything() {
    let seed = std::env::var("CENOTE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1_u64);
    let threads: u64 = std::env::var("CENOTE_THREADS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let turns: u64 = std::env::var("CENOTE_TURNS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let images = Images::new();
    let mut pool = images.pool(1 << 30, "raidz1 a b c special mirror d e log f", &[]);
    for round in 0..2 {
        println!("seed {seed}, round {round}");
        let shared = Arc::new(pool);
        let beats: Arc<Vec<AtomicU64>> = Arc::new((0..threads).map(|_| AtomicU64::new(0)).collect());
        let done = Arc::new(AtomicBool::new(false));
        let dog = watchdog(Arc::clone(&beats), Arc::clone(&done));
        let actors: Vec<_> = (0..threads)
            .map(|thread| {
                let (pool, beats) = (Arc::clone(&shared), Arc::clone(&beats));
                std::thread::spawn(move || {
                    let mut actor = Actor {
                        pool,
                        name: format!("p/t{round}-{thread}"),
                        dice: Dice(
                            (seed * 1000 + round * 100 + thread).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
                        ),
                        model: Tree::new(),
                        snapshots: BTreeMap::new(),
                        counter: 0,
                    };
                    let beat = &beats[thread as usize];
                    actor.run(&|| beat.load(Ordering::Relaxed) >= turns, beat);
                    (actor.name, actor.model, actor.snapshots)
                })
            })
            .collect();
        let results: Vec<_> = actors.into_iter().map(|actor| actor.join().expect("no panic")).collect();
        done.store(true, Ordering::Relaxed);
        dog.join().expect("no panic");
        Arc::into_inner(shared).expect("nobody else has it").close().expect("closed");
        images.judge();
        // All data is present after reopening, snapshots included.
        let read = Pool::open("p", &OpenOptions::new().search(images.dir.path())).expect("opened");
        for (name, model, snapshots) in results {
            let all = snapshots.into_iter().chain([(name, model)]);
            for (name, tree) in all {
                let files = read.dataset(&name).expect("there").filesystem().expect("files");
                for (path, content) in tree {
                    let node = files.open(&path).expect("there");
                    let mut bytes = vec![0; content.len() + 1];
                    let n = node.read_at(0, &mut bytes).expect("readable");
                    assert!(bytes[..n] == content[..], "{name}:{}", path.escape_ascii());
                }
            }
        }
        drop(read);
        pool = images.open_rw();
    }
    pool.close().expect("closed");
}

#[test]
fn a_full_pool_says_so_and_lets_people_delete() {
    let images = Images::new();
    let pool = images.pool(96 << 20, "a", &[("compression", "off")]);
    pool.create_filesystem("p/fs", &[]).expect("made");
    let fs = pool.filesystem("p/fs").expect("opened");
    let content = noise(1, 1 << 20);
    let mut count = 0;
    let error = loop {
        match fs.write(format!("/{count}").as_bytes(), &content) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
        assert!(count < 96, "more than fits");
    };
    // Half of the space of such a small pool is reserved.
    assert!(count > 30, "{count} MiB of 96");
    assert!(matches!(
        error,
        cenote::Error::Path { source: zpl::ZplError::Begin(cenote::files::BeginError::NoSpace(_)), .. }
    ));
    let refused = pool.create_filesystem("p/other", &[("reservation", "50m")]).expect_err("no space");
    assert_eq!(refused.reason().code, Code::NoSpace);
    for i in 0..count {
        fs.remove(format!("/{i}").as_bytes()).expect("deleting goes on");
    }
    // Freed space is available two transaction groups later; the writer waits for it.
    fs.write(b"/again", &content).expect("there is room again");
    drop(fs);
    pool.close().expect("closed");
    images.judge();
}

#[test]
fn quotas_are_kept() {
    let images = Images::new();
    let pool = images.pool(256 << 20, "a", &[("compression", "off")]);
    pool.create_filesystem("p/fs", &[("quota", "10m")]).expect("made");
    pool.create_filesystem("p/ref", &[("refquota", "10m")]).expect("made");
    for name in ["p/fs", "p/ref"] {
        let fs = pool.filesystem(name).expect("opened");
        let file = fs.create(b"/x").expect("made");
        let wrote = (0..40).take_while(|i| file.write_at(i << 20, &noise(*i, 1 << 20)).is_ok()).count();
        assert!((8..=11).contains(&wrote), "{name}: {wrote} MiB of 10");
        fs.sync().expect("synced");
        let used: u64 = pool.property(name, "used").expect("read").expect("there").parse().expect("a number");
        assert!(used <= 12 << 20, "{name}: {used}");
        fs.remove(b"/x").expect("deleting goes on");
    }
    pool.close().expect("closed");
    images.judge();
}

#[test]
fn a_device_is_pulled() {
    let images = Images::new();
    let pool = images.pool(256 << 20, "mirror a b", &[]);
    let fs = pool.filesystem("p").expect("opened");
    fs.write(b"/before", &noise(1, 5 << 20)).expect("written");
    drop(fs);
    pool.close().expect("closed");
    let (here, away) = (images.dir.path().join("b"), images.dir.path().join("away"));
    let elsewhere = tempfile::tempdir().expect("a folder");
    let away = elsewhere.path().join(away.file_name().expect("a name"));
    std::fs::rename(&here, &away)
        .or_else(|_| std::fs::copy(&here, &away).and_then(|_| std::fs::remove_file(&here)))
        .expect("moved");
    let pool = images.open_rw();
    let fs = pool.filesystem("p").expect("opened");
    assert!(fs.read(b"/before").expect("read") == noise(1, 5 << 20));
    fs.write(b"/while", &noise(2, 5 << 20)).expect("written on one side");
    fs.open_file(b"/while").expect("there").sync().expect("durable");
    drop(fs);
    pool.close().expect("closed");
    std::fs::copy(&away, &here).expect("it comes back");
    let pool = images.open_rw();
    let fs = pool.filesystem("p").expect("opened");
    for _ in 0..4 {
        assert!(fs.read(b"/while").expect("read") == noise(2, 5 << 20), "never the old bytes");
    }
    drop(fs);
    pool.close().expect("closed");
}
