//! `zstream`: prints and changes send streams (docs/on-disk/30-send-streams.md, section 12). `zstreamdump` is
//! `zstream dump`.
//!
//! # What always holds
//! - No pool and no daemon is needed: streams come from files or standard input, and go to standard output.
//! - Exit codes: 0 done; 1 failed, or wrong usage; 2 unknown compression algorithm.
//! - A stream that is damaged, or cut within a record, gives a message that names the byte, and exit code 1. (OpenZFS's
//!   `zstream dump` prints the message too, but then returns 0.) A changed stream without an end, as that of a partly
//!   received dataset, gives a warning.
// Zstream always runs in a process of its own, not in the daemon; it reads streams from files.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, clippy::disallowed_types)]

mod convert;
mod dump;
pub(crate) mod list;

use crate::getopt::{BadOption, Getopt};
use crate::zdb::text::Visible;
use ::cenote::error::chain;
use ::cenote::stream::{ResumeToken, StreamError};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;

/// Number of bytes for which streams are buffered: headers are small, and large payloads pass the buffer by.
const BUFFER: usize = 16 << 10;
/// Exit code of a command whose output is closed: that of a program which a signal ends.
const PIPE_CLOSED: u8 = 141;

const USAGE: &str = "usage: zstream command args ...
Available commands are:

\tzstream dump [-vCd] FILE
\t... | zstream dump [-vCd]

\tzstream decompress [-v] [OBJECT,OFFSET[,TYPE]] ...

\tzstream drop_record [-v] [OBJECT,OFFSET] ...

\tzstream recompress [ -l level] TYPE

\tzstream token resume_token

\tzstream redup [-v] FILE | ...
";

/// Why a command ends.
enum Failure {
    /// Wrong usage: a line, if any, and the usage text.
    Usage(Option<String>),
    /// A message and an exit code.
    Message(String, u8),
    /// The output cannot be written.
    Output(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}

impl From<BadOption> for Failure {
    fn from(bad: BadOption) -> Failure {
        let (BadOption::Invalid(letter) | BadOption::Missing(letter)) = bad else {
            return Failure::Usage(Some(bad.to_string()));
        };
        Failure::Usage(Some(format!("invalid option '{letter}'")))
    }
}

impl From<StreamError> for Failure {
    fn from(error: StreamError) -> Failure {
        match error {
            StreamError::Write(cause) => Failure::Output(cause),
            other => Failure::Message(format!("zstream: {}", chain(&other)), 1),
        }
    }
}

/// Runs `zstream` with these arguments, the command's name left out.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    ExitCode::from(match run(args) {
        Ok(code) => code,
        Err(Failure::Usage(line)) => {
            if let Some(line) = line {
                line.lines().for_each(|line| say_error_line!("{}", crate::out::visible(line)));
            }
            say_error!("{USAGE}");
            1
        }
        Err(Failure::Message(line, code)) => {
            line.lines().for_each(|line| say_error_line!("{}", crate::out::visible(line)));
            code
        }
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => PIPE_CLOSED,
        Err(Failure::Output(error)) => {
            say_error_line!("zstream: cannot write the output: {error}");
            1
        }
    })
}

fn run(mut args: Vec<OsString>) -> Result<u8, Failure> {
    if args.is_empty() {
        return Err(Failure::Usage(None));
    }
    let command = args.remove(0);
    match command.to_str() {
        Some("dump") => dump::main(args),
        Some("token") => token(args),
        Some("redup") => convert::redup(args),
        Some("decompress") => convert::decompress(args),
        Some("recompress") => convert::recompress(args),
        Some("drop_record") => convert::drop_record(args),
        _ => Err(Failure::Usage(None)),
    }
}

/// Parses flags without values; returns the given ones and the operands.
fn flags(args: Vec<OsString>, letters: &'static str) -> Result<(Vec<char>, Vec<OsString>), Failure> {
    let mut options = Getopt::new(args, letters, &[]);
    let mut given = Vec::new();
    while let Some((letter, _)) = options.next()? {
        given.push(letter);
    }
    Ok((given, options.operands()))
}

/// Standard output, with control characters made visible on a terminal.
fn output() -> Box<dyn Write> {
    let stdout = io::stdout().lock();
    if stdout.is_terminal() {
        Box::new(Visible(BufWriter::new(stdout)))
    } else {
        Box::new(BufWriter::with_capacity(1 << 16, stdout))
    }
}

fn open(path: &OsStr) -> Result<File, Failure> {
    File::open(path).map_err(|error| {
        let why = ::cenote::error::errno_text(&error);
        Failure::Message(format!("Error while opening file '{}': {why}", path.display()), 1)
    })
}

/// `zstream token`: prints the list of a resume token.
fn token(args: Vec<OsString>) -> Result<u8, Failure> {
    let (_, operands) = flags(args, "")?;
    let Some(text) = operands.first() else {
        return Err(Failure::Usage(Some("Need to pass the resume token".to_owned())));
    };
    let token = ResumeToken::parse(&text.to_string_lossy())
        .map_err(|why| Failure::Message(format!("Unable to parse resume token: {why}"), 1))?;
    let mut out = output();
    list::print(&mut out, &token.list)?;
    out.flush()?;
    Ok(0)
}
