//! `zfs upgrade`.

use super::session::in_session;
use super::{complain, reading};
use crate::getopt::{BadOption, Getopt};
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use admin::Session;
use admin::edit::FilesystemVersion;
use admin::verbs::zfs::outdated;
use admin::verbs::zfs::upgrade::{self, Target};
use std::ffi::OsString;

/// The newest version.
const NEWEST: u64 = 5;

/// What the versions brought.
const VERSIONS: [&str; 5] = [
    "Initial ZFS filesystem version",
    "Enhanced directory entries",
    "Case insensitive and filesystem user identifier (FUID)",
    "userquota, groupquota properties",
    "System attributes",
];

#[derive(Default)]
struct Options {
    all: bool,
    list: bool,
    below: bool,
    version: Option<u64>,
}

/// Runs the verb.
pub(super) fn run(args: &[OsString], out: &Out) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "rvV:a", &[]);
    let mut options = Options::default();
    // Without its version, this option is told as if there were none.
    let missing = |bad| match bad {
        BadOption::Missing(letter) => BadOption::Invalid(letter),
        other => other,
    };
    while let Some((letter, value)) = walk.next().map_err(missing)? {
        match letter {
            'r' => options.below = true,
            'v' => options.list = true,
            'a' => options.all = true,
            _ => options.version = Some(version(value)?),
        }
    }
    let operands = crate::zpool::texts(&walk.operands());
    let Options { all, list, below, version } = options;
    let is_wrong = match (all, list) {
        (true, true) => true,
        (true, false) => !operands.is_empty() || below,
        (false, true) => !operands.is_empty() || below || version.is_some(),
        (false, false) => operands.is_empty() && (below || version.is_some()),
    };
    if is_wrong {
        return Err(Stop::usage(""));
    }
    if list {
        out.print(&versions());
        return Ok(0);
    }
    if !all && operands.is_empty() {
        return old_ones(out);
    }
    in_session("upgrade", args, |session| upgrade(session, &options, operands, out))
}

fn version(value: Option<OsString>) -> Result<u64, Stop> {
    let text = value.unwrap_or_default().to_string_lossy().into_owned();
    match text.as_str() {
        "current" => Ok(NEWEST),
        text => text
            .parse()
            .ok()
            .filter(|version| (1..=NEWEST).contains(version))
            .ok_or_else(|| Stop::usage(format!("invalid version {text}"))),
    }
}

fn versions() -> String {
    let mut text = String::from(
        "The following filesystem versions are supported:\n\nVER  DESCRIPTION\n\
         ---  --------------------------------------------------------\n",
    );
    for (number, what) in (1..).zip(VERSIONS) {
        text += &format!(" {number}   {what}\n");
    }
    text + "\nFor more information on a particular version, including supported releases,\n\
            see the ZFS Administration Guide.\n\n"
}

/// Lists what could be upgraded.
fn old_ones(out: &Out) -> Outcome {
    let answer = reading().run(&outdated::Request {}).map_err(Stop::failed)?;
    answer.problems.iter().for_each(|problem| complain(&problem.to_string()));
    out.print(&old_text(&answer.filesystems));
    Ok(u8::from(!answer.problems.is_empty()))
}

fn old_text(old: &[FilesystemVersion]) -> String {
    let mut text = format!("This system is currently running ZFS filesystem version {NEWEST}.\n\n");
    if old.is_empty() {
        return text + "All filesystems are formatted with the current version.\n";
    }
    text += "The following filesystems are out of date, and can be upgraded.  After being\n\
             upgraded, these filesystems (and any 'zfs send' streams generated from\n\
             subsequent snapshots) will no longer be accessible by older software versions.\n\n\n\
             VER  FILESYSTEM\n---  ------------\n";
    for fs in old {
        text += &format!("{:2}   {}\n", fs.version, fs.name);
    }
    text
}

fn upgrade(session: &mut Session<'_>, options: &Options, filesystems: Vec<String>, out: &Out) -> Outcome {
    let target = match options.all {
        true => Target::All,
        false => Target::Named { filesystems, recursive: options.below },
    };
    let request = upgrade::Request { target, version: options.version.unwrap_or(NEWEST) };
    let answer = session.run(&request).map_err(Stop::failed)?;
    answer.refused.iter().for_each(|refused| complain(&refused.to_string()));
    let mut text = format!("{} filesystems upgraded\n", answer.upgraded.len());
    if !answer.already.is_empty() {
        text += &format!("{} filesystems already at this version\n", answer.already.len());
    }
    out.print(&text);
    Ok(u8::from(!answer.refused.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_those_of_openzfs() {
        let all = include_str!("../../../../fixtures/cli-transcripts/03-listing.txt");
        let real = |command: &str| {
            let start = format!("$ {command}\n");
            let from = all.find(&start).expect("in the transcript") + start.len();
            let rest = all.get(from..).expect("a boundary");
            rest.get(..rest.find("[exit ").expect("ends")).expect("a boundary").to_owned()
        };
        assert_eq!(versions(), real("zfs upgrade -v"));
        assert_eq!(old_text(&[]), real("zfs upgrade"));
        let old = [FilesystemVersion { name: "tank/old".into(), version: 4 }];
        assert!(old_text(&old).ends_with("\n\n\nVER  FILESYSTEM\n---  ------------\n 4   tank/old\n"));
    }

    #[test]
    fn versions_that_are_none() {
        for text in ["99", "abc", "0"] {
            let Err(Stop::Usage(message)) = version(Some(text.into())) else { panic!("{text}") };
            assert_eq!(message, format!("invalid version {text}"));
        }
        assert_eq!(version(Some("current".into())).expect("good"), 5);
    }
}
