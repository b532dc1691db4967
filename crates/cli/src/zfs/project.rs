//! `zfs project`. Files are named by their paths where they are mounted (`files.rs`), or, whether mounted or not, as
//! `POOL/dataset:/path`.

mod files;

use super::properties::MINUS_ONE;
use super::session::in_session;
use super::{CHUNK, complain};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use admin::Session;
use admin::verbs::zfs::project::{Action, Reach, Refusal, Request};
use cenote::Target;
use std::ffi::OsString;
use std::ops::ControlFlow;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Do {
    #[default]
    List,
    Check,
    Set,
    Clear,
}

#[derive(Debug, Default)]
struct Options {
    what: Do,
    /// `-d`.
    own: bool,
    /// `-r`.
    below: bool,
    keep: bool,
    nul: bool,
    id: Option<u32>,
    inherit: bool,
    operands: Vec<OsString>,
}

impl Options {
    fn parse(args: Vec<OsString>) -> Result<Options, Stop> {
        let mut walk = Getopt::new(args, "0Ccdkp:rs", &[]);
        let mut options = Options::default();
        let mut asked = Vec::new();
        while let Some((letter, value)) = walk.next()? {
            match letter {
                '0' => options.nul = true,
                'C' => asked.push(Do::Clear),
                'c' => asked.push(Do::Check),
                's' => {
                    asked.push(Do::Set);
                    options.inherit = true;
                }
                'd' => (options.own, options.below) = (true, false),
                'k' => options.keep = true,
                'r' => (options.own, options.below) = (false, true),
                _ => options.id = Some(project_id(value)?),
            }
        }
        asked.dedup();
        if asked.len() > 1 {
            return Err(Stop::usage("cannot specify '-C' '-c' '-s' together"));
        }
        options.what = match (asked.first(), options.id) {
            (Some(what), _) => *what,
            (None, Some(_)) => Do::Set,
            (None, None) => Do::List,
        };
        options.operands = walk.operands();
        options.check().map_or(Ok(()), |message| Err(Stop::usage(message)))?;
        Ok(options)
    }

    /// What does not go together.
    fn check(&self) -> Option<&'static str> {
        match self.what {
            Do::Clear if self.id.is_some() => Some("'-p' is useless together with '-C'"),
            _ if self.keep && self.what != Do::Clear => Some("'-k' is only valid together with '-C'"),
            _ if self.nul && self.what != Do::Check => Some("'-0' is only valid together with '-c'"),
            Do::Set | Do::Clear if self.own => Some("'-d' is only valid when listing or checking"),
            Do::List if self.operands.is_empty() => Some(""),
            _ if self.operands.is_empty() => Some("missing file or directory target(s)"),
            _ => None,
        }
    }

    fn names_files(&self) -> bool {
        self.operands.iter().all(|operand| files::is_path(operand))
    }

    /// What is done with the files.
    fn action(&self) -> Action {
        match self.what {
            Do::List | Do::Check => Action::Look,
            Do::Set => Action::Set { id: self.id, inherit: self.inherit },
            Do::Clear => Action::Clear { keep: self.keep },
        }
    }

    fn reach(&self) -> Reach {
        match (self.own, self.below, self.what) {
            (true, ..) => Reach::Own,
            (_, true, _) => Reach::All,
            (_, _, Do::List | Do::Check) => Reach::Entries,
            _ => Reach::Own,
        }
    }
}

fn project_id(value: Option<OsString>) -> Result<u32, Stop> {
    let text = value.unwrap_or_default().to_string_lossy().into_owned();
    match text.parse::<i64>() {
        Ok(id) => u32::try_from(id)
            .ok()
            .filter(|id| *id != u32::MAX)
            .ok_or_else(|| Stop::usage("invalid project ID")),
        Err(_) => Err(Stop::usage(format!("project ID must be less than {}", u32::MAX))),
    }
}

/// Whether this command line names files by their paths only: then no pool is needed.
pub(crate) fn names_files(args: &[OsString]) -> bool {
    Options::parse(args.to_vec()).is_ok_and(|options| options.names_files())
}

/// Runs the verb.
pub(super) fn run(args: &[OsString], out: &Out) -> Outcome {
    let options = Options::parse(args.to_vec())?;
    // The daemon opens nothing for others.
    if crate::console::current().is_none() && options.names_files() {
        return files::run(&options, out);
    }
    in_session("project", args, |session| {
        let mut code = 0;
        for operand in &options.operands {
            if let Err(message) = one(session, &options, operand, out) {
                complain(&message);
                code = MINUS_ONE;
            }
        }
        Ok(code)
    })
}

fn one(session: &mut Session<'_>, options: &Options, operand: &OsString, out: &Out) -> Result<(), String> {
    let shown = operand.to_string_lossy().into_owned();
    let missing = || format!("failed to stat {shown}: No such file or directory");
    let target = Target::parse(operand).ok_or_else(missing)?;
    let (dataset, path) = (target.dataset, target.path.ok_or_else(missing)?);
    let request = Request { dataset, path, reach: options.reach(), action: options.action() };
    let (mut first, mut text) = (None, String::new());
    let outcome = session.each(&request, &mut |file| {
        if request.action == Action::Look {
            let expected = options.id.map_or_else(|| *first.get_or_insert(file.project), u64::from);
            let path = format!("{}:{}", request.dataset, String::from_utf8_lossy(&file.path));
            text += &told_line(options, &path, file.project, file.inherits, expected);
            if text.len() >= CHUNK {
                out.print(&std::mem::take(&mut text));
            }
        }
        ControlFlow::Continue(())
    });
    out.print(&text);
    outcome.map_err(|refusal| match refusal {
        Refusal::Unreadable { reason, .. } => format!("{shown}: {reason}"),
        other => other.to_string(),
    })
}

/// What is told of a file: nothing, if it is checked and as it should be.
fn told_line(options: &Options, path: &str, project: u64, inherits: bool, expected: u64) -> String {
    let path = crate::out::visible(path);
    if options.what == Do::List {
        let flag = if inherits { 'P' } else { '-' };
        return format!("{project:5} {flag} {path}\n");
    }
    let is_right = project == expected;
    if options.nul {
        return if is_right && inherits { String::new() } else { format!("{path}\0") };
    }
    let mut text = String::new();
    if !is_right {
        text += &format!("{path} - project ID is not set properly ({project}/{expected})\n");
    }
    if !inherits {
        text += &format!("{path} - project inherit flag is not set\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_go_together() {
        for (words, message) in [
            ("-C -p 5 x", "'-p' is useless together with '-C'"),
            ("-p abc x", "project ID must be less than 4294967295"),
            ("-k x", "'-k' is only valid together with '-C'"),
            ("-0 x", "'-0' is only valid together with '-c'"),
            ("-s -C x", "cannot specify '-C' '-c' '-s' together"),
            ("-r", ""),
        ] {
            let args = words.split(' ').map(OsString::from).collect();
            let Err(Stop::Usage(text)) = Options::parse(args) else { panic!("{words}") };
            assert_eq!(text, message, "{words}");
        }
    }

    #[test]
    fn lists_and_checks() {
        let told = |options: &Options, expected| {
            let files = [("p/a:/d", 5, true), ("p/a:/d/f", 0, false)];
            let line = |(path, project, inherits)| told_line(options, path, project, inherits, expected);
            files.into_iter().map(line).collect::<String>()
        };
        let list = Options::default();
        assert_eq!(told(&list, 5), "    5 P p/a:/d\n    0 - p/a:/d/f\n");
        let check = Options { what: Do::Check, ..Options::default() };
        assert_eq!(
            told(&check, 5),
            "p/a:/d/f - project ID is not set properly (0/5)\np/a:/d/f - project inherit flag is not set\n"
        );
        let check = Options { what: Do::Check, nul: true, id: Some(6), ..Options::default() };
        assert_eq!(told(&check, 6), "p/a:/d\0p/a:/d/f\0");
    }
}
