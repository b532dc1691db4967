//! `zfs wait`.

use super::open_message;
use crate::console;
use crate::getopt::Getopt;
use crate::stop::{Outcome, Stop};
use admin::{self, AdminError};
use std::ffi::OsString;
use std::time::Duration;

/// All that can be waited for: the files that are removed and not freed yet.
const ACTIVITIES: [&str; 1] = ["deleteq"];
/// How often is looked.
const LOOK: Duration = Duration::from_millis(100);

pub(super) fn run(args: Vec<OsString>) -> Outcome {
    let mut walk = Getopt::new(args, "t:", &[]);
    let mut waits = true;
    while let Some((_, list)) = walk.next()? {
        let list = list.unwrap_or_default().to_string_lossy().into_owned();
        let mut words = list.split(',').filter(|word| !word.is_empty());
        if let Some(unknown) = words.clone().find(|word| !ACTIVITIES.contains(word)) {
            return Err(Stop::usage(format!("invalid activity '{unknown}'")));
        }
        waits = words.next().is_some();
    }
    let operands = crate::zpool::texts(&walk.operands());
    let name = match &operands[..] {
        [] => return Err(Stop::usage("missing 'filesystem' argument")),
        [name] => name,
        _ => return Err(Stop::usage("too many arguments")),
    };
    let search = crate::search::from_env();
    let mut is_first = true;
    loop {
        match admin::files_to_free(&search, name) {
            // It went while we waited.
            Err(AdminError::NoDataset { .. }) if !is_first => return Ok(0),
            Err(error) => return Err(Stop::failed(open_message(name, &error))),
            Ok(left) if left == 0 || !waits => return Ok(0),
            Ok(_) => {}
        }
        is_first = false;
        if !console::sleep(LOOK) {
            return Ok(0);
        }
    }
}
