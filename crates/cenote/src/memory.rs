//! The memory that this process may use, and the share of it for one pool.
//!
//! The bound is the smallest of the memory of the machine, the limits of the cgroups of the process, and its
//! resource limits. An allocation that fails nevertheless ends the process.

use dmu::Limits;
use std::path::Path;

/// Mount points of cgroups: of version 2, and of the memory controller of version 1.
const CGROUP_V2: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
const CGROUP_V1: &str = "/sys/fs/cgroup/memory";

/// Bytes of memory that this process may use; 0 if it cannot be determined.
#[must_use]
pub fn allowed() -> u64 {
    let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let groups = text(Path::new("/proc/self/cgroup"));
    of_machine(&text(Path::new("/proc/meminfo")))
        .into_iter()
        .chain(of_groups(&groups, &text))
        .chain(of_limits())
        .min()
        .unwrap_or(0)
}

/// The block cache of a pool takes this fraction of the memory, and at least the minimum in bytes.
const CACHE_SHARE: u64 = 8;
const CACHE_MIN: u64 = 16 << 20;
/// The same for dirty data, which is also bounded by the default. A txg that is being written takes as much
/// again for a moment: compressed data, copies for the devices, and data kept until it is durable.
const DIRTY_SHARE: u64 = 12;
const DIRTY_MIN: u64 = 16 << 20;
/// Largest block cache and largest dirty data, in bytes, of a pool that is open for one command: with the copies that are
/// being written, a command that receives blocks of 16 MiB stays below 256 MiB.
const COMMAND_CACHE: usize = 64 << 20;
const COMMAND_DIRTY: u64 = 64 << 20;
/// Share of its dirty data, in percent, at which a command's txg is closed: small txgs cost many flushes.
const COMMAND_SYNC_PERCENT: u64 = 50;

/// The share of the memory that a pool opened for writing may take.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Upper bound of the block cache in bytes.
    pub cache_bytes: usize,
    /// Bounds of the dirty data.
    pub limits: Limits,
}

impl Budget {
    /// The budget of a pool that stays open.
    pub fn to_stay() -> Budget {
        Budget::of(allowed())
    }

    /// The budget of a pool that is open for one command.
    pub fn of_command() -> Budget {
        let budget = Budget::to_stay();
        let dirty_max = budget.limits.dirty_max.min(COMMAND_DIRTY);
        Budget {
            cache_bytes: budget.cache_bytes.min(COMMAND_CACHE),
            limits: Limits { dirty_max, sync_percent: COMMAND_SYNC_PERCENT, ..budget.limits },
        }
    }

    fn of(memory: u64) -> Budget {
        let cache = (memory / CACHE_SHARE).max(CACHE_MIN);
        let usual = Limits::default();
        let dirty_max = (memory / DIRTY_SHARE).clamp(DIRTY_MIN, usual.dirty_max);
        Budget {
            cache_bytes: usize::try_from(cache).unwrap_or(usize::MAX),
            limits: Limits { dirty_max, ..usual },
        }
    }
}

/// Half of the limits of address space and data segment (`ulimit -v`, `-d`), because stacks of threads and free
/// memory of the allocator count too.
fn of_limits() -> Option<u64> {
    use rustix::process::{Resource, getrlimit};
    let limits = [Resource::As, Resource::Data].map(|resource| getrlimit(resource).current);
    limits.into_iter().flatten().min().map(|least| least / 2)
}

/// Memory of the machine in bytes, from the text of `/proc/meminfo`.
fn of_machine(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1 << 10)
}

/// The smallest limit of the groups in `/proc/self/cgroup` and of their ancestors.
fn of_groups(groups: &str, text: &dyn Fn(&Path) -> String) -> Option<u64> {
    let mut least = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (roots, file) = match controllers {
            "" => (&CGROUP_V2[..], "memory.max"),
            all if all.split(',').any(|one| one == "memory") => (&[CGROUP_V1][..], "memory.limit_in_bytes"),
            _ => continue,
        };
        // Each group is limited by its ancestors too. A container shows its own group as the root.
        for group in Path::new(group).ancestors() {
            let group = group.strip_prefix("/").unwrap_or(group);
            let limit =
                |root: &&str| text(&Path::new(root).join(group).join(file)).trim().parse::<u64>().ok();
            least = roots.iter().filter_map(limit).chain(least).min();
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_address_space_counts() {
        use rustix::process::{Resource, getrlimit, setrlimit};
        // Limits this process to more than any test needs.
        let before = getrlimit(Resource::As);
        let mut narrow = before;
        narrow.current = Some(before.maximum.unwrap_or(u64::MAX >> 8).min(1 << 40));
        setrlimit(Resource::As, narrow).expect("lowered");
        let found = of_limits();
        setrlimit(Resource::As, before).expect("raised again");
        assert!(found.is_some_and(|found| found <= 1 << 39), "{found:?}");
    }

    #[test]
    fn the_narrowest_group_counts_of_both_kinds_and_of_those_above() {
        let text = |path: &Path| match path.to_str() {
            Some("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes") => "9223372036854771712\n".to_owned(),
            Some("/sys/fs/cgroup/memory/a/memory.limit_in_bytes") => "1073741824\n".to_owned(),
            Some("/sys/fs/cgroup/c/memory.max") => "max\n".to_owned(),
            Some("/sys/fs/cgroup/d/memory.max") => "4096\n".to_owned(),
            _ => String::new(),
        };
        assert_eq!(of_groups("4:cpu,memory:/a/b\n0::/c\n", &text), Some(1 << 30));
        assert_eq!(of_groups("0::/d/e/f\n", &text), Some(4096));
        assert_eq!(of_groups("3:cpu:/a\n0::/c\nodd\n", &text), None);
    }

    #[test]
    fn a_pool_takes_less_than_a_quarter_of_scarce_memory_and_the_usual_of_much() {
        for memory in [128 << 20, 384 << 20, 1 << 30, 3 << 30] {
            let budget = Budget::of(memory);
            let taken = budget.cache_bytes as u64 + budget.limits.dirty_max;
            assert!(taken <= memory / 4, "{taken} of {memory}");
        }
        assert_eq!(Budget::of(64 << 30).limits.dirty_max, Limits::default().dirty_max);
        assert_eq!(Budget::of(64 << 30).cache_bytes, 8 << 30);
        // The memory could not be determined.
        assert_eq!(Budget::of(0).limits.dirty_max, DIRTY_MIN);
    }

    #[test]
    fn this_machine_has_some() {
        assert_eq!(of_machine("MemFree: 1 kB\nMemTotal:       2048 kB\n"), Some(2 << 20));
        assert!(allowed() > 0);
    }
}
