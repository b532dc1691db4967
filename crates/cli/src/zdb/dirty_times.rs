//! Dirty time logs: the txgs that each vdev has missed.

use super::{Options, chain, metaslabs};
use admin::debug::{DirtyTimes, dirty_times};
use cenote::Pool;
use std::io::{self, Write};

/// Prints the dirty time logs of all vdevs, with children indented.
pub(super) fn print(pool: &Pool, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    match dirty_times(pool) {
        Ok(root) => {
            writeln!(out, "\nDirty time logs:\n")?;
            print_vdev(pool, options, &root, 0, out)
        }
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            Ok(())
        }
    }
}

fn print_vdev(
    pool: &Pool,
    options: &Options,
    vdev: &DirtyTimes,
    indent: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let word = if vdev.required { "required" } else { "expendable" };
    writeln!(out, "\t{:indent$}{} [DTL-{word}]", "", vdev.name)?;
    let below = indent + 2;
    for (name, set) in [("missing", &vdev.missing), ("partial", &vdev.partial), ("outage", &vdev.outage)] {
        for range in set.iter() {
            let length = range.end - range.start;
            writeln!(out, "\t{:below$}{name} [{},{}) length {length}", "", range.start, range.end)?;
        }
        if !set.is_empty() && options.detail('d') > 5 && vdev.map.0 != 0 {
            metaslabs::print_map_of(pool, options, vdev.map, out)?;
        }
    }
    vdev.children.iter().try_for_each(|child| print_vdev(pool, options, child, indent + 4, out))
}
