//! Options as C's `getopt_long` reads them, on which scripts around the ZFS tools rely: clustered letters,
//! values attached or separate, operands anywhere, `--` ends the options, long names may be shortened while
//! they are unambiguous.
//!
//! Options are returned one by one, in order, so that a bad value is reported before a later bad option.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A long option and the letter that it stands for.
pub(crate) struct Long {
    /// Name without dashes.
    pub(crate) name: &'static str,
    /// The character that [`Getopt::next`] returns for it: its letter, if it has one.
    pub(crate) letter: char,
    /// Whether the option takes a value.
    pub(crate) value: bool,
}

impl Long {
    /// A long option without a value.
    pub(crate) const fn flag(name: &'static str, letter: char) -> Long {
        Long { name, letter, value: false }
    }
}

/// Why an argument is no valid option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadOption {
    /// There is no option with this letter.
    Invalid(char),
    /// There is no such long option, or several begin with this name, or it takes no value.
    InvalidLong(String),
    /// The value of this letter is missing.
    Missing(char),
}

impl fmt::Display for BadOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadOption::Invalid(c) => write!(f, "invalid option '{c}'"),
            BadOption::InvalidLong(name) => write!(f, "invalid option '{name}'"),
            BadOption::Missing(c) => write!(f, "missing argument for '{c}' option"),
        }
    }
}

/// A walk over the arguments of one command.
pub(crate) struct Getopt {
    short: &'static str,
    long: &'static [Long],
    rest: VecDeque<OsString>,
    /// Remaining letters of a cluster.
    cluster: VecDeque<u8>,
    operands: Vec<OsString>,
    /// `POSIXLY_CORRECT` is set: options end at the first operand.
    is_posix: bool,
}

/// Letter of an option, and its value.
pub(crate) type Opt = (char, Option<OsString>);

impl Getopt {
    /// A walk over `args`. `short` lists the option letters, each followed by `:` if it takes a value.
    pub(crate) fn new(args: Vec<OsString>, short: &'static str, long: &'static [Long]) -> Getopt {
        let is_posix = crate::console::env("POSIXLY_CORRECT").is_some();
        Getopt { short, long, rest: args.into(), cluster: VecDeque::new(), operands: Vec::new(), is_posix }
    }

    /// The next option; `None` if only operands are left.
    pub(crate) fn next(&mut self) -> Result<Option<Opt>, BadOption> {
        if let Some(letter) = self.cluster.pop_front() {
            return self.letter(char::from(letter)).map(Some);
        }
        while let Some(arg) = self.rest.pop_front() {
            let bytes = arg.as_bytes();
            match bytes {
                b"--" => {
                    self.operands.extend(self.rest.drain(..));
                }
                [b'-', b'-', name @ ..] => return self.long(name).map(Some),
                [b'-', letter, more @ ..] => {
                    self.cluster = more.iter().copied().collect();
                    return self.letter(char::from(*letter)).map(Some);
                }
                _ => {
                    self.operands.push(arg);
                    if self.is_posix {
                        self.operands.extend(self.rest.drain(..));
                    }
                }
            }
        }
        Ok(None)
    }

    /// The operands, in order.
    pub(crate) fn operands(self) -> Vec<OsString> {
        self.operands
    }

    fn letter(&mut self, letter: char) -> Result<Opt, BadOption> {
        let mut known = self.short.chars().skip_while(|c| *c != letter || *c == ':');
        if known.next().is_none() {
            return Err(BadOption::Invalid(letter));
        }
        if known.next() != Some(':') {
            return Ok((letter, None));
        }
        let value = if self.cluster.is_empty() {
            self.rest.pop_front().ok_or(BadOption::Missing(letter))?
        } else {
            OsString::from_vec(self.cluster.drain(..).collect())
        };
        Ok((letter, Some(value)))
    }

    fn long(&mut self, text: &[u8]) -> Result<Opt, BadOption> {
        let shown = || BadOption::InvalidLong(format!("--{}", String::from_utf8_lossy(text)));
        let mut parts = text.splitn(2, |b| *b == b'=');
        let name = parts.next().unwrap_or_default();
        let attached = parts.next();
        let exact = self.long.iter().find(|l| l.name.as_bytes() == name);
        let mut similar = self.long.iter().filter(|l| l.name.as_bytes().starts_with(name));
        let option = match (exact, similar.next(), similar.next()) {
            (Some(option), ..) | (None, Some(option), None) => option,
            _ => return Err(shown()),
        };
        match (option.value, attached) {
            (false, None) => Ok((option.letter, None)),
            (false, Some(_)) => Err(shown()),
            (true, Some(value)) => Ok((option.letter, Some(OsStr::from_bytes(value).into()))),
            (true, None) => match self.rest.pop_front() {
                Some(value) => Ok((option.letter, Some(value))),
                None => Err(BadOption::Missing(option.letter)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &[Long] = &[Long::flag("json", 'j'), Long::flag("json-int", '1')];

    /// Options with their values, and operands.
    type Split = (Vec<(char, String)>, Vec<String>);

    fn all(args: &[&str]) -> Result<Split, BadOption> {
        let mut walk = Getopt::new(args.iter().map(OsString::from).collect(), "Hpo:d:", LONG);
        let mut options = Vec::new();
        while let Some((letter, value)) = walk.next()? {
            options.push((letter, value.map(|v| v.to_string_lossy().into_owned()).unwrap_or_default()));
        }
        let operands = walk.operands().iter().map(|o| o.to_string_lossy().into_owned()).collect();
        Ok((options, operands))
    }

    #[test]
    fn clusters_values_and_operands_anywhere() {
        let (options, operands) = all(&["-Hp", "tank", "-oname,used", "-d", "1", "--", "-x"]).expect("good");
        let flat: Vec<String> = options.iter().map(|(c, v)| format!("{c}{v}")).collect();
        assert_eq!(flat, ["H", "p", "oname,used", "d1"]);
        assert_eq!(operands, ["tank", "-x"]);
    }

    #[test]
    fn a_lone_dash_is_an_operand() {
        assert_eq!(all(&["-"]).expect("good").1, ["-"]);
    }

    #[test]
    fn long_names_may_be_shortened() {
        assert_eq!(all(&["--json"]).expect("good").0, [('j', String::new())]);
        assert_eq!(all(&["--json-i"]).expect("good").0, [('1', String::new())]);
        assert_eq!(all(&["--js"]), Err(BadOption::InvalidLong("--js".into())));
    }

    #[test]
    fn messages_are_the_tools_own() {
        let text = |args: &[&str]| all(args).expect_err("bad").to_string();
        assert_eq!(text(&["-z"]), "invalid option 'z'");
        assert_eq!(text(&["-:"]), "invalid option ':'");
        assert_eq!(text(&["-Ho"]), "missing argument for 'o' option");
    }
}
