//! Counters in the layout of the files that OpenZFS has in `/proc/spl/kstat`: a directory `zfs` with one directory
//! for each pool, and files that all pools share. The same counters are available as OpenMetrics text.
//!
//! # What always holds
//! - A file holds only values that Cenote counts. Lines of OpenZFS that Cenote does not count are left out; they
//!   are not shown as zero.
//! - A file is generated when it is read, from the values at that moment.
//!
//! Layouts: docs/on-disk/33-cli.md, section 18.

use super::{
    AdminError, FileOp, FileOps, Mounts, Namespace, Op, OpenPool, Priority, Search, VdevIo, open_pools,
    pool_io,
};
use ::pool::LivePool;
use ::pool::events::EventRing;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

/// Value type of unsigned 64-bit numbers in a file of named values.
const UINT64: u32 = 4;
const STRING: u32 = 7;

/// The counters of all pools.
pub struct Kstats {
    search: Search,
}

/// A pool and its counters.
struct Subject {
    open: OpenPool,
    live: Option<Arc<LivePool>>,
}

impl Kstats {
    /// Counters of the pools that a search finds; with a namespace, of its imported pools.
    pub fn new(search: Search) -> Kstats {
        Kstats { search }
    }

    /// Counters of the pools in a namespace.
    pub fn of(namespace: &Arc<Namespace>) -> Kstats {
        Kstats::new(Search { namespace: Some(Arc::clone(namespace)), ..Search::default() })
    }

    fn subjects(&self, name: Option<&str>) -> Vec<Subject> {
        let names: Vec<String> = name.into_iter().map(str::to_owned).collect();
        let (pools, _) = open_pools(&self.search, &names);
        let live = |name: &str| {
            let writer = self.search.namespace.as_ref()?.get(name)?;
            Some(Arc::clone(writer.live()))
        };
        pools.into_iter().map(|open| Subject { live: live(open.name()), open }).collect()
    }

    fn mounts(&self) -> Option<&Arc<dyn Mounts>> {
        self.search.namespace.as_ref()?.mounts()
    }

    /// Names of the pools, which are the names of the directories beside [`Kstats::shared_files`].
    pub fn pools(&self) -> Vec<String> {
        match &self.search.namespace {
            Some(namespace) => namespace.names(),
            None => self.subjects(None).iter().map(|subject| subject.open.name().to_owned()).collect(),
        }
    }

    /// Names of the files that all pools share.
    pub fn shared_files(&self) -> &'static [&'static str] {
        &["arcstats", "fm"]
    }

    /// Names of a pool's files.
    pub fn pool_files(&self, pool: &str) -> Vec<String> {
        let mut files: Vec<String> =
            ["guid", "iostats", "multihost", "state", "txgs"].map(str::to_owned).to_vec();
        files.extend(self.objsets(pool).into_iter().map(|(file, ..)| file));
        files
    }

    /// Mounted file systems of a pool: file name, dataset name and request counts of each.
    fn objsets(&self, pool: &str) -> Vec<(String, String, FileOps)> {
        let Some(mounts) = self.mounts() else { return Vec::new() };
        let is_here = |name: &str| name.split('/').next() == Some(pool);
        let mounted = mounts.list().into_iter().filter(|mount| is_here(&mount.dataset));
        let of = |mount: super::Mounted| Some((mounts.stats(&mount.dataset)?, mount.dataset));
        let counted: Vec<_> = mounted.filter_map(of).collect();
        let Some(subject) = self.subjects(Some(pool)).pop().filter(|_| !counted.is_empty()) else {
            return Vec::new();
        };
        let id = |name: &str| {
            let dataset = subject.open.pool().dataset(name).ok()?;
            Some(dataset.dsl().id().0)
        };
        let file = |(ops, name): (FileOps, String)| Some((format!("objset-{:#x}", id(&name)?), name, ops));
        counted.into_iter().filter_map(file).collect()
    }

    /// Contents of a file that all pools share. `None`: there is no such file.
    pub fn shared_file(&self, file: &str) -> Option<String> {
        match file {
            "arcstats" => Some(self.arcstats()),
            "fm" => Some(named(&[("erpt-dropped", EventRing::process().dropped())])),
            _ => None,
        }
    }

    /// Contents of a file of a pool. `None`: there is no such file.
    pub fn pool_file(&self, pool: &str, file: &str) -> Option<String> {
        if file.starts_with("objset-") {
            let (_, name, ops) = self.objsets(pool).into_iter().find(|(known, ..)| known == file)?;
            return Some(objset(&name, &ops));
        }
        let subject = self.subjects(Some(pool)).pop()?;
        Some(match file {
            "guid" => format!("{}\n", subject.open.pool().guid().0),
            "state" => format!("{}\n", subject.state()),
            "iostats" => subject.iostats().ok()?,
            "multihost" => subject.multihost(),
            "txgs" => subject.txgs(),
            _ => return None,
        })
    }

    /// Every file: its path below `zfs`, and its contents.
    pub fn all(&self) -> Vec<(String, String)> {
        let shared =
            self.shared_files().iter().filter_map(|file| Some(((*file).to_owned(), self.shared_file(file)?)));
        let mut all: Vec<_> = shared.collect();
        for pool in self.pools() {
            for file in self.pool_files(&pool) {
                if let Some(text) = self.pool_file(&pool, &file) {
                    all.push((format!("{pool}/{file}"), text));
                }
            }
        }
        all
    }

    fn arcstats(&self) -> String {
        let (mut hits, mut misses, mut size) = (0, 0, 0);
        for subject in self.subjects(None) {
            let cache = subject.cache();
            hits += cache.0;
            misses += cache.1;
            size += cache.2;
        }
        named(&[("hits", hits), ("misses", misses), ("size", size)])
    }

    /// All counters in the text format of OpenMetrics.
    ///
    /// # Errors
    /// The space of a pool cannot be read.
    pub fn metrics(&self) -> Result<String, AdminError> {
        let mut text = Metrics::default();
        let pools = self.subjects(None);
        for subject in &pools {
            let pool = subject.open.name();
            let io = pool_io(&subject.open)?;
            let of_pool = [("pool", pool)];
            let root = &io.vdevs.root;
            text.gauge("zfs_pool_allocated_bytes", "Space in use.", &of_pool, root.alloc);
            text.gauge("zfs_pool_size_bytes", "Space that there is.", &of_pool, root.space);
            text.gauge(
                "zfs_pool_online",
                "The pool has all its devices.",
                &of_pool,
                u64::from(subject.is_online()),
            );
            let (hits, misses, size) = subject.cache();
            text.counter("zfs_cache_hits", "Blocks found in memory.", &of_pool, hits);
            text.counter("zfs_cache_misses", "Blocks read from devices.", &of_pool, misses);
            text.gauge("zfs_cache_bytes", "Blocks in memory.", &of_pool, size);
            for leaf in leaves(root) {
                let guid = leaf.guid.to_string();
                let path = leaf.path.clone().unwrap_or_default();
                let labels = [("pool", pool), ("vdev", path.as_str()), ("guid", guid.as_str())];
                if let Some(io) = io.io.get(&leaf.guid) {
                    vdev_metrics(&mut text, &labels, io);
                }
                for (kind, count) in [
                    ("read", leaf.read_errors),
                    ("write", leaf.write_errors),
                    ("checksum", leaf.checksum_errors),
                ] {
                    let labels = [&labels[..], &[("kind", kind)]].concat();
                    text.counter("zfs_vdev_errors", "Errors of devices.", &labels, count);
                }
            }
        }
        for mount in self.mounts().map(|mounts| mounts.list()).unwrap_or_default() {
            let Some(ops) = self.mounts().and_then(|mounts| mounts.stats(&mount.dataset)) else { continue };
            for (name, op) in MOUNT_OPS {
                let labels = [("dataset", mount.dataset.as_str()), ("op", *name)];
                text.counter("zfs_mount_requests", "Requests of programs.", &labels, ops.of(*op));
            }
            let of = [("dataset", mount.dataset.as_str())];
            text.counter("zfs_mount_read_bytes", "Bytes that programs read.", &of, ops.of(FileOp::ReadBytes));
            text.counter(
                "zfs_mount_written_bytes",
                "Bytes that programs wrote.",
                &of,
                ops.of(FileOp::WriteBytes),
            );
        }
        Ok(text.end())
    }
}

const MOUNT_OPS: &[(&str, FileOp)] = &[
    ("create", FileOp::Create),
    ("mkdir", FileOp::MakeDir),
    ("symlink", FileOp::Symlink),
    ("link", FileOp::Link),
    ("remove", FileOp::Remove),
    ("rmdir", FileOp::RemoveDir),
    ("rename", FileOp::Rename),
    ("lookup", FileOp::Lookup),
    ("readdir", FileOp::ReadDir),
    ("getattr", FileOp::GetAttr),
    ("setattr", FileOp::SetAttr),
    ("open", FileOp::Open),
    ("read", FileOp::Read),
    ("write", FileOp::Write),
    ("fsync", FileOp::Sync),
];

const PRIORITY_NAMES: [&str; 7] =
    ["sync_read", "sync_write", "async_read", "async_write", "scrub", "trim", "rebuild"];

fn vdev_metrics(text: &mut Metrics, labels: &[(&str, &str)], io: &VdevIo) {
    for (name, op) in [("read", Op::Read), ("write", Op::Write), ("trim", Op::Trim)] {
        let labels = [labels, &[("op", name)]].concat();
        text.counter("zfs_vdev_ops", "Operations of devices.", &labels, io.stats.ops[op as usize]);
        text.counter("zfs_vdev_bytes", "Bytes of these.", &labels, io.stats.bytes[op as usize]);
    }
    for priority in Priority::ALL {
        let i = priority.index();
        let labels = [labels, &[("priority", PRIORITY_NAMES[i])]].concat();
        text.gauge("zfs_vdev_active", "Operations in devices.", &labels, io.stats.active[i]);
    }
    for (name, op) in [("read", Op::Read), ("write", Op::Write)] {
        let labels = [labels, &[("op", name)]].concat();
        let times = &io.stats.disk_wait[op as usize];
        text.histogram("zfs_vdev_latency_seconds", "Time in devices.", &labels, times);
    }
}

impl Subject {
    fn is_online(&self) -> bool {
        self.open.pool().spa().tree().status().state == vdev::tree::VdevState::Online
    }

    /// The pool's health, or `SUSPENDED`.
    fn state(&self) -> &'static str {
        let has_stopped = |live: &Arc<LivePool>| live.suspended().is_some() || live.has_stopped();
        if self.live.as_ref().is_some_and(has_stopped) {
            return "SUSPENDED";
        }
        super::tree::health(self.open.pool().spa().tree().status().state).word()
    }

    /// Hits, misses and size in bytes of the pool's cache.
    fn cache(&self) -> (u64, u64, u64) {
        let store = match &self.live {
            Some(live) => live.store(),
            None => self.open.pool().spa().store(),
        };
        let stats = store.cache().stats();
        (stats.hits, stats.misses, store.cache().bytes() as u64)
    }

    /// Reads, writes and trims of the pool's devices.
    fn iostats(&self) -> Result<String, AdminError> {
        let io = pool_io(&self.open)?;
        let root = io.io.get(&io.vdevs.root.guid);
        let of = |op: Op| root.map_or((0, 0), |io| (io.stats.ops[op as usize], io.stats.bytes[op as usize]));
        let (reads, read) = of(Op::Read);
        let (writes, written) = of(Op::Write);
        let (trims, trimmed) = of(Op::Trim);
        Ok(named(&[
            ("trim_extents_written", trims),
            ("trim_bytes_written", trimmed),
            ("arc_read_count", reads),
            ("arc_read_bytes", read),
            ("arc_write_count", writes),
            ("arc_write_bytes", written),
        ]))
    }

    /// The last multihost writes. There are none while `zfs_multihost_history` is 0.
    fn multihost(&self) -> String {
        let mut text = format!(
            "{:<10} {:<10} {:<10} {:<6} {:<10} {:<16} {:<24} {:<10} {}\n",
            "id",
            "txg",
            "timestamp",
            "error",
            "duration",
            "mmp_delay",
            "vdev_guid",
            "vdev_label",
            "vdev_path"
        );
        for record in self.live.iter().flat_map(|live| live.multihost_history()) {
            let (guid, label, path) = match &record.target {
                Some(target) => (target.vdev.0, target.label, target.path.as_str()),
                None => (0, 0, "-"),
            };
            let _ = writeln!(
                text,
                "{:<10} {:<10} {:<10} {:<6} {:<10} {:<16} {guid:<24} {label:<10} {path}",
                record.id,
                record.txg.0,
                record.timestamp,
                record.error,
                record.duration.as_nanos(),
                record.mmp_delay.as_nanos(),
            );
        }
        text
    }

    /// The txgs: the last one on disk, and the open one.
    fn txgs(&self) -> String {
        let mut text = String::from(
            "txg      birth            state ndirty       nread        nwritten     reads    writes   otime        qtime        wtime        stime       \n",
        );
        if let Some(live) = &self.live {
            for record in live.txg_history() {
                let _ = writeln!(
                    text,
                    "{:<8} {:<16} {:<5} {:<12} {:<12} {:<12} {:<8} {:<8} {:<12} {:<12} {:<12} {:<12}",
                    record.txg.0,
                    record.birth.as_nanos(),
                    record.state,
                    record.dirty,
                    record.read_bytes,
                    record.written_bytes,
                    record.reads,
                    record.writes,
                    record.open.as_nanos(),
                    0,
                    0,
                    record.sync.as_nanos()
                );
            }
        }
        text
    }
}

fn leaves(vdev: &super::Vdev) -> Vec<&super::Vdev> {
    if vdev.children.is_empty() && vdev.path.is_some() {
        return vec![vdev];
    }
    vdev.children.iter().flat_map(leaves).collect()
}

fn objset(name: &str, ops: &FileOps) -> String {
    let unlinks = ops.sum(&[FileOp::Remove, FileOp::RemoveDir]);
    let numbers = [
        ("writes", ops.of(FileOp::Write)),
        ("nwritten", ops.of(FileOp::WriteBytes)),
        ("reads", ops.of(FileOp::Read)),
        ("nread", ops.of(FileOp::ReadBytes)),
        ("nunlinks", unlinks),
        // Removed names are processed at once here, so both numbers are equal.
        ("nunlinked", unlinks),
    ];
    let mut lines = vec![format!("{:<31} {STRING:<4} {name}\n", "dataset_name")];
    lines.extend(numbers.iter().map(|(name, number)| line(name, *number)));
    header(lines.len()) + &lines.concat()
}

fn line(name: &str, number: u64) -> String {
    format!("{name:<31} {UINT64:<4} {number}\n")
}

/// A file of named values.
fn named(numbers: &[(&str, u64)]) -> String {
    let lines: String = numbers.iter().map(|(name, number)| line(name, *number)).collect();
    header(numbers.len()) + &lines
}

/// The header lines: module, instance, type, flags, number and bytes of the entries, creation time and present
/// time; then the column headings.
fn header(lines: usize) -> String {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let now = START.get_or_init(Instant::now).elapsed().as_nanos();
    let bytes = lines * 272;
    format!("1 1 0x01 {lines} {bytes} 0 {now}\n{:<31} {:<4} {}\n", "name", "type", "data")
}

/// OpenMetrics text; metric families are in the order of their first use.
#[derive(Default)]
struct Metrics(Vec<Family>);

struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    lines: String,
}

impl Metrics {
    fn family(&mut self, name: &'static str, kind: &'static str, help: &'static str) -> &mut String {
        let at = self.0.iter().position(|family| family.name == name).unwrap_or_else(|| {
            self.0.push(Family { name, kind, help, lines: String::new() });
            self.0.len() - 1
        });
        &mut self.0[at].lines
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: u64) {
        let labels = label_set(labels);
        let _ = writeln!(self.family(name, "gauge", help), "{name}{labels} {value}");
    }

    fn counter(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: u64) {
        let labels = label_set(labels);
        let _ = writeln!(self.family(name, "counter", help), "{name}_total{labels} {value}");
    }

    /// A histogram of times in nanoseconds, counted by the highest bit. The sum of all times is not known.
    fn histogram(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], counts: &[u64]) {
        let mut sum = 0;
        let mut lines = String::new();
        // Buckets begin at a microsecond; shorter times are in the first bucket.
        for (bit, count) in counts.iter().enumerate() {
            sum += count;
            if bit >= 9 && bit + 1 < counts.len() {
                let bound = format!("{:e}", (2u64 << bit) as f64 / 1e9);
                let labels = label_set(&[labels, &[("le", bound.as_str())]].concat());
                let _ = writeln!(lines, "{name}_bucket{labels} {sum}");
            }
        }
        let infinite = label_set(&[labels, &[("le", "+Inf")]].concat());
        let _ = writeln!(lines, "{name}_bucket{infinite} {sum}");
        self.family(name, "histogram", help).push_str(&lines);
    }

    fn end(self) -> String {
        let mut text = String::new();
        for Family { name, kind, help, lines } in self.0 {
            let _ = write!(text, "# TYPE {name} {kind}\n# HELP {name} {help}\n{lines}");
        }
        text + "# EOF\n"
    }
}

fn label_set(labels: &[(&str, &str)]) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs: Vec<String> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_numbers_have_a_header_and_three_columns() {
        let text = named(&[("hits", 9336), ("demand_hit_predictive_prefetch", 0)]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("1 1 0x01 2 544 "), "{}", lines[0]);
        assert_eq!(lines[1], "name                            type data");
        assert_eq!(lines[2], "hits                            4    9336");
        assert_eq!(lines[3], "demand_hit_predictive_prefetch  4    0");
    }

    #[test]
    fn a_file_system_is_named_in_its_file() {
        let mut ops = FileOps::default();
        ops.0[FileOp::Write as usize] = 1;
        ops.0[FileOp::WriteBytes as usize] = 938;
        let text = objset("tq/a b", &ops);
        assert!(text.contains("\ndataset_name                    7    tq/a b\n"));
        assert!(text.contains(
            "\nwrites                          4    1\nnwritten                        4    938\n"
        ));
    }

    #[test]
    fn metrics_are_grouped_by_family() {
        let mut text = Metrics::default();
        text.counter("a_things", "Things.", &[("x", "1")], 5);
        text.gauge("b_level", "Level.", &[("x", "with \"quotes\" and \\")], 7);
        text.counter("a_things", "Things.", &[("x", "2")], 6);
        let mut counts = [0; 37];
        (counts[3], counts[10], counts[36]) = (1, 2, 3);
        text.histogram("c_seconds", "Time.", &[], &counts);
        let text = text.end();
        assert!(text.starts_with(
            "# TYPE a_things counter\n# HELP a_things Things.\na_things_total{x=\"1\"} 5\na_things_total{x=\"2\"} 6\n# TYPE b_level gauge\n"
        ));
        assert!(text.contains("b_level{x=\"with \\\"quotes\\\" and \\\\\"} 7\n"));
        assert!(text.contains("c_seconds_bucket{le=\"1.024e-6\"} 1\nc_seconds_bucket{le=\"2.048e-6\"} 3\n"));
        assert!(text.ends_with("c_seconds_bucket{le=\"+Inf\"} 6\n# EOF\n"));
    }
}
