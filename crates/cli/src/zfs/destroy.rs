//! `zfs destroy`.

use super::complain;
use super::session::{in_session, refused};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use admin::verbs::Refused;
use admin::verbs::zfs::destroy::{Plan, Refusal, Request, Why};
use format::nicenum::nicebytes;
use std::ffi::OsString;

/// Exit code of an option that does not go with bookmarks.
const NOT_FOR_BOOKMARKS: u8 = 255;

/// The number of the error of a file system that is read-only, which the real tool passes on.
const READ_ONLY: u8 = 30;

/// How the plan is printed.
#[derive(Default)]
struct Style {
    dry_run: bool,
    /// `-p`: fields separated by tabs, numbers as they are.
    parsable: bool,
    /// `-v` or `-p`: the plan is printed.
    verbose: bool,
}

/// Runs the verb.
pub(super) fn run(args: &[OsString], out: &Out) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "vpndfrR", &[]);
    let (mut request, mut style) = (Request::default(), Style::default());
    while let Some((letter, _)) = walk.next()? {
        match letter {
            'v' => style.verbose = true,
            'p' => (style.verbose, style.parsable) = (true, true),
            'n' => style.dry_run = true,
            'd' => request.defer = true,
            'r' => request.recursive = true,
            'R' => (request.recursive, request.clones) = (true, true),
            // -f changes nothing: see `admin::verbs::zfs::UNMOUNT`.
            _ => {}
        }
    }
    (request.dry_run, request.measure) = (style.dry_run, style.verbose);
    let operands = crate::zpool::texts(&walk.operands());
    request.name = match &operands[..] {
        [] => return Err(Stop::usage("missing dataset argument")),
        [one] => one.clone(),
        _ => return Err(Stop::usage("too many arguments")),
    };
    in_session("destroy", args, |session| {
        // The plan is printed before anything is destroyed, which may take long. Bookmarks have none.
        if style.verbose && !style.dry_run && !request.name.contains('#') {
            match session.run(&Request { dry_run: true, ..request.clone() }) {
                Ok(answer) => style.print(&answer.plan, false, out),
                Err(refusal) => return style.tell(&refusal, out),
            }
            (style.verbose, request.measure) = (false, false);
        }
        match session.run(&request) {
            Ok(answer) => {
                style.print(&answer.plan, false, out);
                Ok(0)
            }
            Err(refusal) => style.tell(&refusal, out),
        }
    })
}

impl Style {
    /// Tells why nothing, or not all, was destroyed; the exit code.
    fn tell(&self, refusal: &Refusal, out: &Out) -> Outcome {
        if let Why::SnapshotHasClones { .. } = refusal.why {
            refusal.to_string().lines().for_each(complain);
            refusal.plan.iter().for_each(|plan| self.print(plan, true, out));
            return Ok(1);
        }
        refusal.plan.iter().for_each(|plan| self.print(plan, false, out));
        let code = match &refusal.why {
            Why::NotForBookmarks { .. } => NOT_FOR_BOOKMARKS,
            Why::BookmarkStays { .. } if refusal.reason().is_read_only() => READ_ONLY,
            _ => return Err(refused(refusal)),
        };
        complain(&refusal.to_string());
        Ok(code)
    }

    /// Prints the plan of snapshots and datasets, if that is asked for; there is nothing to print of a bookmark.
    fn print(&self, plan: &Plan, is_refused: bool, out: &Out) {
        let is_bookmark = plan.names.iter().any(|name| name.contains('#'));
        if self.verbose && !is_bookmark {
            let mut text: String = plan.names.iter().map(|name| self.line(name, is_refused)).collect();
            text.extend(plan.reclaimed.map(|bytes| self.space(bytes)));
            out.print(&text);
        }
    }

    /// A line about something that goes.
    fn line(&self, name: &str, is_refused: bool) -> String {
        match (self.parsable, self.dry_run || is_refused) {
            (true, _) => format!("destroy\t{name}\n"),
            (false, true) => format!("would destroy {name}\n"),
            (false, false) => format!("will destroy {name}\n"),
        }
    }

    /// The line about the space that is freed.
    fn space(&self, bytes: u64) -> String {
        match (self.parsable, self.dry_run) {
            (true, _) => format!("reclaim\t{bytes}\n"),
            (false, true) => format!("would reclaim {}\n", nicebytes(bytes)),
            (false, false) => format!("will reclaim {}\n", nicebytes(bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_openzfs() {
        let mut style = Style { dry_run: true, ..Style::default() };
        assert_eq!(style.line("tank/home@daily", false), "would destroy tank/home@daily\n");
        assert_eq!(style.space(0), "would reclaim 0B\n");
        style.parsable = true;
        assert_eq!(style.line("tank/home@daily", false), "destroy\ttank/home@daily\n");
        assert_eq!(style.space(0), "reclaim\t0\n");
        style = Style::default();
        assert_eq!(style.line("tank/vol@1", false), "will destroy tank/vol@1\n");
        assert_eq!(style.line("tank/fs@1", true), "would destroy tank/fs@1\n");
        assert_eq!(style.space(14_336), "will reclaim 14K\n");
    }
}
