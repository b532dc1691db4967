//! `zfs wait`.

use super::reading;
use crate::console;
use crate::getopt::Getopt;
use crate::stop::{Outcome, Stop};
use admin::verbs::Code;
use admin::verbs::zfs::wait::{Answer, Refusal, Request};
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
    let (mut session, request) = (reading(), Request { filesystem: name.clone() });
    let mut is_first = true;
    loop {
        match session.run(&request) {
            // It went while we waited.
            Err(Refusal::Open(closed)) if closed.reason.code == Code::NoDataset && !is_first => return Ok(0),
            Err(refusal) => return Err(Stop::failed(refusal)),
            Ok(Answer { files_to_free }) if files_to_free == 0 || !waits => return Ok(0),
            Ok(_) => {}
        }
        is_first = false;
        if !console::sleep(LOOK) {
            return Ok(0);
        }
    }
}
