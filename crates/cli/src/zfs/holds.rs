//! `zfs holds`.

use super::{complain, open_message};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::table::{self, Column};
use crate::time;
use admin::{self, Hold, Kind, OpenPool, Walk};
use std::ffi::OsString;

pub(super) fn run(args: Vec<OsString>, out: &Out) -> Outcome {
    let mut walk = Getopt::new(args, "rHp", &[]);
    let (mut recursive, mut scripted, mut exact) = (false, false, false);
    while let Some((letter, _)) = walk.next()? {
        match letter {
            'r' => recursive = true,
            'H' => scripted = true,
            _ => exact = true,
        }
    }
    let operands = crate::zpool::texts(&walk.operands());
    if operands.is_empty() {
        return Err(Stop::usage(""));
    }
    let pools = operands.iter().map(|o| o.split(['/', '@', '#']).next().unwrap_or_default().to_owned());
    let (pools, problems) = admin::open_pools(&crate::search::from_env(), &pools.collect::<Vec<_>>());
    let mut code = 0;
    for problem in problems.iter().filter(|p| !p.is_missing_pool()) {
        complain(&problem.to_string());
        code = 1;
    }
    let mut holds = Vec::new();
    let mut width = 0;
    for operand in &operands {
        let Some((dataset, snapshot)) = operand.split_once('@') else {
            complain(&format!("'{operand}' is not a snapshot"));
            code = 1;
            continue;
        };
        match of(&pools, dataset, snapshot, recursive, &mut width) {
            Ok(found) => holds.extend(found),
            Err(message) => {
                complain(&message);
                code = 1;
            }
        }
    }
    if holds.is_empty() && width == 0 {
        say_error_line!("no datasets available");
    }
    out.print(&text(&holds, width, scripted, exact, out));
    Ok(code)
}

/// The holds of a snapshot, with `recursive` of those of the same name below. `width` becomes that of the
/// longest name looked at.
fn of(
    pools: &[OpenPool],
    dataset: &str,
    snapshot: &str,
    recursive: bool,
    width: &mut usize,
) -> Result<Vec<Hold>, String> {
    let name = format!("{dataset}@{snapshot}");
    let entry = admin::find(pools, &name).map_err(|e| open_message(&name, &e))?;
    let mut entries = vec![entry];
    if let (true, Some(pool)) =
        (recursive, pools.iter().find(|p| dataset.split('/').next() == Some(p.name())))
    {
        let all = admin::walk(pool, dataset, &Walk { kinds: vec![Kind::Snapshot], depth: None });
        entries = all.map_err(|e| open_message(&name, &e))?;
        entries.retain(|e| e.name().split_once('@').is_some_and(|(_, s)| s == snapshot));
    }
    let mut holds = Vec::new();
    for entry in entries {
        *width = (*width).max(entry.name().chars().count());
        holds.extend(entry.holds().map_err(|e| open_message(entry.name(), &e))?);
    }
    Ok(holds)
}

fn text(holds: &[Hold], width: usize, scripted: bool, exact: bool, out: &Out) -> String {
    let mut columns =
        vec![Column::new("NAME", false), Column::new("TAG", false), Column::new("TIMESTAMP", false)];
    if let Some(name) = columns.first_mut() {
        name.width = name.width.max(width);
    }
    // Tags shorter than their header do not make room for it.
    if let Some(tag) = columns.get_mut(1) {
        tag.width = 0;
    }
    let when = |time: u64| if exact { time.to_string() } else { time::hold(time) };
    let rows: Vec<Vec<String>> =
        holds.iter().map(|h| vec![h.snapshot.clone(), h.tag.clone(), when(h.time)]).collect();
    table::whole(out, columns, &rows, scripted)
}
