//! Reads from each device so far, and the space of the vdevs: `zdb -s`.

use super::{Options, Verdict, chain};
use admin::debug::{Class, VdevSpace, VdevStatus};
use cenote::Pool;
use std::io::{self, Write};

/// Width of the first column, unless a name is longer.
const NAME_WIDTH: i64 = 25;
/// Width of the columns of space, which only the pool and its top-level vdevs have.
const SPACE_WIDTH: i64 = 12;

/// Used and free bytes.
type Space = (u64, u64);

/// Prints the pool and its vdevs.
pub(super) fn print(pool: &Pool, options: &Options, out: &mut dyn Write) -> io::Result<Verdict> {
    let spaces = match pool.spa().vdev_spaces() {
        Ok(spaces) => spaces,
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            return Ok(Verdict::Unreadable);
        }
    };
    writeln!(out, "{:27} capacity   operations   bandwidth  ---- errors ----", "")?;
    writeln!(out, "{:27}used avail  read write  read write  read write cksum", "description")?;
    let root = pool.spa().tree().status();
    let data = spaces.iter().filter(|space| space.class != Class::Log);
    let all = data.fold((0, 0), |(used, free): Space, space| {
        let (more, rest) = used_and_free(space);
        (used.saturating_add(more), free.saturating_add(rest))
    });
    print_row(pool.name(), 0, "", Some(all), &Sums::of(&root), options, out)?;
    for top in &root.children {
        let space = spaces.iter().find(|space| space.vdev.0 == top.id);
        let suffix = match space.map(|space| space.class) {
            Some(Class::Log) => " (log)",
            Some(Class::Special) => " (special)",
            Some(Class::Dedup) => " (dedup)",
            _ => "",
        };
        print_vdev(top, 2, suffix, space.map(used_and_free), options, out)?;
    }
    Ok(Verdict::Clean)
}

fn used_and_free(space: &VdevSpace) -> Space {
    (space.allocated, space.size.saturating_sub(space.allocated))
}

fn print_vdev(
    vdev: &VdevStatus,
    indent: usize,
    suffix: &str,
    space: Option<Space>,
    options: &Options,
    out: &mut dyn Write,
) -> io::Result<()> {
    let name = match &vdev.path {
        Some(path) => path.display().to_string(),
        None if vdev.nparity > 0 => format!("{}{}", vdev.kind.name(), vdev.nparity),
        None => vdev.kind.name().to_owned(),
    };
    print_row(&name, indent, suffix, space, &Sums::of(vdev), options, out)?;
    // The recursion is as deep as the configuration, whose depth is limited where it is decoded.
    vdev.children.iter().try_for_each(|child| print_vdev(child, indent + 2, "", None, options, out))
}

/// Operations, bytes and errors of a vdev: the sums over its leaves.
#[derive(Default)]
struct Sums([u64; 7]);

impl Sums {
    fn of(vdev: &VdevStatus) -> Sums {
        let leaves = vdev.walk().into_iter().filter(|vdev| vdev.children.is_empty());
        leaves.fold(Sums::default(), |mut sums, leaf| {
            let more = [
                leaf.reads,
                leaf.writes,
                leaf.read_bytes,
                leaf.write_bytes,
                leaf.read_errors,
                leaf.write_errors,
                leaf.checksum_errors,
            ];
            sums.0.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(more));
            sums
        })
    }
}

fn print_row(
    name: &str,
    indent: usize,
    suffix: &str,
    space: Option<Space>,
    sums: &Sums,
    options: &Options,
    out: &mut dyn Write,
) -> io::Result<()> {
    let width = NAME_WIDTH + if space.is_some() { 0 } else { SPACE_WIDTH };
    let taken = i64::try_from(indent + name.len()).unwrap_or(i64::MAX);
    // A name that is too long shifts the following columns by its excess length.
    let pad = usize::try_from(width.saturating_sub(taken).unsigned_abs()).unwrap_or(0);
    match taken > width {
        true => write!(out, "{:indent$}{name}{suffix:>pad$}", "")?,
        false => write!(out, "{:indent$}{name}{suffix:<pad$}", "")?,
    }
    if let Some((used, free)) = space {
        write!(out, "{:>6}{:>6}", options.number(used), options.number(free))?;
    }
    sums.0.iter().try_for_each(|sum| write!(out, "{:>6}", options.number(*sum)))?;
    writeln!(out)
}
