//! Livelists of destroyed clones, whose blocks wait to be freed: `zdb -y` checks that they can be freed.
//!
//! # What always holds
//! - A wrong list is reported, and is no failure: the pool may be right.

use super::{Verdict, chain};
use admin::debug::{Deadlist, Zap};
use cenote::{Error, Pool};
use format::names;
use format::{BlockPtr, Dva, ObjectId};
use std::collections::HashMap;
use std::io::{self, Write};

/// Checks the lists by themselves, then whether their blocks agree with all space maps.
pub(super) fn verify(pool: &Pool, out: &mut dyn Write) -> io::Result<Verdict> {
    writeln!(out, "Verifying deleted livelist entries")?;
    let mut strange = Vec::new();
    let waiting = waiting(pool, &mut strange);
    print_strange(&mut strange, out)?;
    writeln!(out, "Verifying metaslab entries")?;
    let checked = waiting.and_then(|waiting| compare(pool, &waiting, &mut strange));
    print_strange(&mut strange, out)?;
    match checked {
        Ok(()) => Ok(Verdict::Clean),
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            Ok(Verdict::Unreadable)
        }
    }
}

fn print_strange(strange: &mut Vec<String>, out: &mut dyn Write) -> io::Result<()> {
    strange.drain(..).try_for_each(|line| writeln!(out, "\t{line}"))
}

/// The blocks that are to be freed: those that the lists record as allocated and not freed since.
fn waiting(pool: &Pool, strange: &mut Vec<String>) -> Result<Vec<BlockPtr>, Error> {
    let Some((_, lists)) = pool.spa().directory().zap(names::directory::DELETED_CLONES)? else {
        return Ok(Vec::new());
    };
    let mut waiting = Vec::new();
    for list in numbers(&lists)? {
        let mut live: HashMap<[u64; 2], BlockPtr> = HashMap::new();
        Deadlist::open(pool.spa().mos(), list)?.for_each(&mut |bp, freed| {
            let Some(place) = bp.dvas().next().map(Dva::to_words) else { return Ok(()) };
            let known = if freed { live.remove(&place) } else { live.insert(place, *bp) };
            match (freed, known) {
                (true, None) => note(strange, format!("livelist {list}: freed, but not allocated: {bp:?}")),
                (false, Some(_)) => note(strange, format!("livelist {list}: allocated twice: {bp:?}")),
                _ => {}
            }
            Ok(())
        })?;
        waiting.extend(live.into_values());
    }
    Ok(waiting)
}

/// Most lines about wrong lists.
const STRANGE_MAX: usize = 10_000;

fn note(strange: &mut Vec<String>, line: String) {
    if strange.len() < STRANGE_MAX {
        strange.push(line);
    }
}

fn numbers(lists: &Zap) -> Result<Vec<ObjectId>, Error> {
    let entries = lists.entries().map(|entry| entry.map(|entry| entry.u64()));
    Ok(entries.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().map(ObjectId).collect())
}

/// Reads all space maps, and checks that the blocks to be freed are allocated. Space maps that contradict
/// themselves are an error.
fn compare(pool: &Pool, waiting: &[BlockPtr], strange: &mut Vec<String>) -> Result<(), Error> {
    let allocated = pool.spa().allocated()?;
    for dva in waiting.iter().flat_map(BlockPtr::dvas) {
        if !allocated.take(&dva) {
            note(strange, format!("to be freed, but not allocated: {dva}"));
        }
    }
    Ok(())
}
