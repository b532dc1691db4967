//! `zfs diff`: changes are printed as they are found.

use super::session::tell_warnings;
use super::{CHUNK, reading};
use crate::colour::{self, Colour};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use admin::verbs::zfs::diff::{Change, FileKind, Request, What};
use std::ffi::OsString;
use std::io::Write as _;
use std::ops::ControlFlow;

/// How changes are shown.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shown {
    /// `-F`: the kind of each file.
    pub(crate) kinds: bool,
    /// `-H`: tabs only.
    pub(crate) scripted: bool,
    /// `-h`: names as they are.
    pub(crate) raw: bool,
    /// `-t`: times.
    pub(crate) times: bool,
    /// It goes to a terminal: control characters are made visible in any case.
    pub(crate) terminal: bool,
}

pub(super) fn run(args: Vec<OsString>, out: &Out) -> Outcome {
    let mut walk = Getopt::new(args, "FHth", &[]);
    let mut shown = Shown { terminal: out.cell("\u{1b}") != "\u{1b}", ..Shown::default() };
    while let Some((letter, _)) = walk.next()? {
        match letter {
            'F' => shown.kinds = true,
            'H' => shown.scripted = true,
            'h' => shown.raw = true,
            _ => shown.times = true,
        }
    }
    let operands = crate::zpool::texts(&walk.operands());
    let (from, to) = match &operands[..] {
        [] => return Err(Stop::usage("must provide at least one snapshot name")),
        [from] => (from, None),
        [from, to] => (from, Some(to.as_str())),
        _ => return Err(Stop::usage("too many arguments")),
    };
    let request = Request { from: from.clone(), to: to.map(str::to_owned) };
    let is_painted = colour::are_wanted(out);
    let print = |text: Vec<u8>| {
        out.print_bytes(&if is_painted { colour::paint(&text, of_change) } else { text });
    };
    let (mut session, mut text) = (reading(), Vec::new());
    let outcome = session.each(&request, &mut |change| {
        line(&change, shown, &mut text);
        if text.len() >= CHUNK {
            print(std::mem::take(&mut text));
        }
        ControlFlow::Continue(())
    });
    tell_warnings(&mut session);
    print(text);
    outcome.map(|()| 0).map_err(Stop::failed)
}

/// The colour of a line, by its sign, which is its first column, or its second behind a time.
pub(crate) fn of_change(line: &[u8]) -> Option<Colour> {
    let mut columns = line.split(|byte| *byte == b'\t').take(2);
    columns.find_map(|column| match column {
        b"+" => Some(Colour::Green),
        b"-" => Some(Colour::Red),
        b"M" => Some(Colour::Yellow),
        b"R" => Some(Colour::Blue),
        _ => None,
    })
}

/// One change, as a line.
pub(crate) fn line(change: &Change, shown: Shown, text: &mut Vec<u8>) {
    if shown.times {
        let _ = write!(text, "{:10}.{:09}\t", change.ctime.secs, change.ctime.nanos);
    }
    text.push(match change.what {
        What::Removed => b'-',
        What::Added => b'+',
        What::Modified { .. } => b'M',
        What::Renamed { .. } => b'R',
    });
    text.push(b'\t');
    if shown.kinds {
        text.extend([kind(change.kind), b'\t']);
    }
    if let What::Renamed { from } = &change.what {
        name(from, shown, text);
        text.extend(if shown.scripted { &b"\t"[..] } else { b" -> " });
    }
    name(&change.path, shown, text);
    if let What::Modified { links } = change.what
        && links != 0
    {
        let _ = write!(text, "\t({links:+})");
    }
    text.push(b'\n');
}

/// A path; bytes that may be none of a text as `\0ooo`.
fn name(path: &[u8], shown: Shown, text: &mut Vec<u8>) {
    for byte in path {
        let is_raw = shown.raw && !(shown.terminal && byte.is_ascii_control());
        if is_raw || (byte.is_ascii_graphic() && *byte != b'\\') {
            text.push(*byte);
        } else {
            let _ = write!(text, "\\{byte:04o}");
        }
    }
}

fn kind(kind: FileKind) -> u8 {
    match kind {
        FileKind::BlockDevice => b'B',
        FileKind::CharDevice => b'C',
        FileKind::Directory => b'/',
        FileKind::Fifo => b'|',
        FileKind::Symlink => b'@',
        FileKind::Socket => b'=',
        FileKind::Regular => b'F',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::verbs::zfs::diff::Time;

    fn change(what: What) -> Change {
        let ctime = Time { secs: 12, nanos: 5 };
        Change { what, kind: FileKind::Regular, ctime, path: "/t/a b\\ü".as_bytes().to_vec() }
    }

    fn shown(what: What, shown: Shown) -> String {
        let mut text = Vec::new();
        line(&change(what), shown, &mut text);
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn lines_have_the_form_of_the_tool() {
        let plain = Shown::default();
        assert_eq!(shown(What::Added, plain), "+\t/t/a\\0040b\\0134\\0303\\0274\n");
        let raw = Shown { raw: true, kinds: true, times: true, ..plain };
        assert_eq!(shown(What::Removed, raw), "        12.000000005\t-\tF\t/t/a b\\ü\n");
        assert_eq!(shown(What::Modified { links: -1 }, Shown { raw: true, ..plain }), "M\t/t/a b\\ü\t(-1)\n");
        let moved = || What::Renamed { from: b"/t/o".to_vec() };
        assert_eq!(shown(moved(), Shown { raw: true, ..plain }), "R\t/t/o -> /t/a b\\ü\n");
        let scripted = Shown { raw: true, scripted: true, ..plain };
        assert_eq!(shown(moved(), scripted), "R\t/t/o\t/t/a b\\ü\n");
    }
}
