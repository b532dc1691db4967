//! `zpool add`.

use super::{in_session, layout, texts};
use crate::getopt::{Getopt, Long};
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::vdevs::Names;
use admin::change::{Allow, parse_ashift};
use admin::verbs::zpool::add::Request;
use std::ffi::OsString;

const ALLOW_IN_USE: char = '\u{1}';
const ALLOW_REPLICATION: char = '\u{2}';
const ALLOW_ASHIFT: char = '\u{3}';
const LONG: &[Long] = &[
    Long::flag("allow-in-use", ALLOW_IN_USE),
    Long::flag("allow-replication-mismatch", ALLOW_REPLICATION),
    Long::flag("allow-ashift-mismatch", ALLOW_ASHIFT),
];

pub(super) fn run(args: &[OsString], out: &Out) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "fgLno:P", LONG);
    let mut names = Names::from_env();
    let (mut allow, mut dry, mut ashift) = (Allow::default(), false, None);
    while let Some((letter, value)) = walk.next()? {
        match letter {
            'f' => allow = Allow::ALL,
            'g' => names.guid = true,
            'L' => names.follow = true,
            'P' => names.path = true,
            'n' => dry = true,
            'o' => {
                ashift = Some(super::ashift_option(&value.unwrap_or_default().to_string_lossy())?.to_owned())
            }
            ALLOW_IN_USE => allow.in_use = true,
            ALLOW_REPLICATION => allow.mismatch = true,
            ALLOW_ASHIFT => allow.ashift = true,
            _ => {}
        }
    }
    let operands = texts(&walk.operands());
    let Some((name, words)) = operands.split_first() else {
        return Err(Stop::usage("missing pool name argument"));
    };
    if words.is_empty() {
        return Err(Stop::usage("missing vdev specification"));
    }
    let ashift = ashift.map(|text| parse_ashift(&text)).transpose().map_err(Stop::failed)?;
    super::check_opens(name)?;
    let request = Request { pool: name.clone(), vdevs: words.to_vec(), ashift, allow };
    if dry {
        let plan = request.plan(&mut super::reading()).map_err(Stop::failed)?;
        out.print(&layout::larger_pool(name, &plan.added, &plan.pool, names, out));
        return Ok(0);
    }
    in_session("add", args, |session| session.run(&request).map(|()| 0).map_err(Stop::failed))
}
