//! Messages and progress of `cp` and `tar`.

use std::collections::HashMap;
use std::time::Duration;

use ::cenote::copy::{Lost, Observer, Problem, Summary};
use indicatif::{ProgressBar, ProgressStyle};

use super::{term, writing};
use crate::console;

/// Prints problems, and counts those that are the same for every file.
pub(super) struct Teller {
    verbose: bool,
    bar: ProgressBar,
    files: u64,
    /// Attributes that the host does not store: how often, and the first file, for each kind.
    lost: HashMap<String, (u64, String)>,
}

impl Teller {
    pub(super) fn new(verbose: bool) -> Teller {
        // The bar hides itself if standard error is no terminal.
        let bar = ProgressBar::with_draw_target(None, console::progress_target());
        let style = ProgressStyle::with_template("{spinner} {msg} {bytes}, {bytes_per_sec}, {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        if !verbose {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Teller { verbose, bar, files: 0, lost: HashMap::new() }
    }

    fn say(&self, text: impl std::fmt::Display) {
        self.bar.suspend(|| term::complain(text));
    }

    /// Prints the problems that were only counted, and ends the progress bar.
    pub(super) fn finish(&mut self, summary: &Summary) {
        self.bar.finish_and_clear();
        let mut lost: Vec<_> = self.lost.drain().collect();
        lost.sort();
        for (what, (times, first)) in lost {
            let more = if times > 1 { format!(" and {} more", times - 1) } else { String::new() };
            term::complain(format_args!("warning: {first}{more}: {what}"));
        }
        if summary.failures > 0 {
            let plural = if summary.failures == 1 { "problem" } else { "problems" };
            term::complain(format_args!(
                "not everything was copied: {} {plural}, see above",
                summary.failures
            ));
        }
    }
}

/// The kind of a loss, which is the same for all files with this loss.
fn kind_of(lost: &Lost) -> String {
    match lost {
        Lost::Owner => "owner not kept: only root can give files away".to_owned(),
        Lost::Xattr(name, why) => {
            let space = name.split(|&byte| byte == b'.').next().unwrap_or_default();
            format!("extended attributes {}.* not kept: {why}", term::escape(space))
        }
        Lost::Acl => "NFSv4 ACLs not kept: Linux has none; `cenote tar` keeps them".to_owned(),
        Lost::Mode(why) => format!("permissions not kept: {why}"),
        Lost::Times(why) => format!("times not kept: {why}"),
        // Kinds that later versions of the library may add.
        _ => "something of it not kept".to_owned(),
    }
}

impl Observer for Teller {
    fn begins(&mut self, path: &[u8]) {
        self.files += 1;
        if self.verbose {
            self.bar.suspend(|| term::tell(term::escape(path)));
        } else if self.files.is_multiple_of(64) {
            self.bar.set_message(format!("{} files,", self.files));
        }
    }

    fn copied(&mut self, bytes: u64) {
        self.bar.inc(bytes);
    }

    fn problem(&mut self, path: &[u8], problem: &Problem) {
        let shown = term::escape(path);
        match problem {
            Problem::Lost(lost) => {
                let entry = self.lost.entry(kind_of(lost)).or_insert((0, shown));
                entry.0 += 1;
            }
            minor if minor.is_minor() => self.say(format_args!("warning: {shown}: {minor}")),
            Problem::Target(error) => self.say(format_args!("{shown}: {}", writing::zpl_words(error))),
            failure => self.say(format_args!("{shown}: {}", term::chain(failure))),
        }
    }
}
