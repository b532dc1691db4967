//! `zfs holds`.

use super::{reading, tell_unopened};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::table::{self, Column};
use crate::time;
use admin::Hold;
use admin::verbs::zfs::holds::Request;
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
    let answer = reading().run(&Request { snapshots: operands, recursive }).map_err(Stop::failed)?;
    let code = tell_unopened(&answer.unopened);
    if answer.snapshots.is_empty() {
        say_error_line!("no datasets available");
    }
    let width = answer.snapshots.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    out.print(&text(&answer.holds, width, scripted, exact, out));
    Ok(code)
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
