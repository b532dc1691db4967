//! `zpool add`.

use super::{command_line, layout, texts};
use crate::getopt::{Getopt, Long};
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::vdevs::Names;
use admin::change::{
    Allow, ChangeError, NewVdevs, PoolLayout, add_vdevs, check_layout, config_tree, find_device,
};
use std::ffi::OsString;

const ALLOW_IN_USE: char = '\u{1}';
const ALLOW_REPLICATION: char = '\u{2}';
const ALLOW_ASHIFT: char = '\u{3}';
const LONG: &[Long] = &[
    Long::flag("allow-in-use", ALLOW_IN_USE),
    Long::flag("allow-replication-mismatch", ALLOW_REPLICATION),
    Long::flag("allow-ashift-mismatch", ALLOW_ASHIFT),
];

pub(super) fn run(args: Vec<OsString>, out: &Out) -> Outcome {
    let command = command_line("add", &args);
    let mut walk = Getopt::new(args, "fgLno:P", LONG);
    let mut names = Names::from_env();
    let (mut allow, mut dry, mut ashift) = (Allow::default(), false, None);
    while let Some((letter, value)) = walk.next()? {
        match letter {
            'f' => allow = Allow::ALL,
            'g' => names.guid = true,
            'L' => names.follow = true,
            'P' => names.path = true,
            'n' => dry = true,
            'o' => ashift = Some(option(&value.unwrap_or_default().to_string_lossy())?.to_owned()),
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
    let ashift = ashift.map(|text| super::check_ashift(&text)).transpose().map_err(Stop::failed)?;
    let opened = super::open(std::slice::from_ref(name));
    let Some(pool) = opened.pools.into_iter().next() else { return Err(Stop::Code(1)) };
    let vdevs = PoolLayout::parse(words, &mut find_device).map_err(Stop::failed)?;
    check_layout(&vdevs, Some(config_tree(&pool)), allow).map_err(|e| stop(name, &e))?;
    if dry {
        let tree = admin::vdevs(&pool).map_err(Stop::failed)?;
        out.print(&layout::larger_pool(name, &vdevs, &tree, names, out));
        return Ok(0);
    }
    drop(pool);
    let new = NewVdevs { layout: vdevs, ashift, allow };
    add_vdevs(&crate::search::from_env(), name, &new, &command).map_err(|e| stop(name, &e))?;
    Ok(0)
}

/// `-o`: only the sector size can be given.
fn option(text: &str) -> Result<&str, Stop> {
    let (name, value) = text.split_once('=').ok_or_else(|| Stop::usage("missing '=' for -o option"))?;
    if name == "ashift" { Ok(value) } else { Err(Stop::usage("")) }
}

fn stop(name: &str, error: &ChangeError) -> Stop {
    match error {
        ChangeError::Vdevs { .. } => Stop::failed(error),
        error => Stop::failed(format!("cannot add to '{name}': {error}")),
    }
}
