//! Standard output: the only module that writes to it.
//!
//! # What always holds
//! - Bytes from a pool never reach a terminal as control characters: [`Out::cell`] makes them visible if
//!   standard output is a terminal, and leaves them unchanged in pipes and files.
//! - If the reader has closed standard output, the command ends silently, as SIGPIPE would end it.

use crate::console::{self, Stream};
use std::borrow::Cow;

/// Standard output, and whether it is a terminal.
pub(crate) struct Out {
    terminal: bool,
}

impl Out {
    /// Standard output of the calling thread's console.
    pub(crate) fn new() -> Out {
        Out { terminal: Stream::Out.is_terminal() }
    }

    /// Whether standard output is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Writes text whose parts from a pool went through [`Out::cell`].
    pub(crate) fn print(&self, text: &str) {
        self.print_bytes(text.as_bytes());
    }

    /// [`Out::print`] for bytes: names may be no UTF-8.
    pub(crate) fn print_bytes(&self, bytes: &[u8]) {
        if let Err(e) = console::write(Stream::Out, bytes) {
            // The exit code of a process that SIGPIPE ended.
            let code = if e.kind() == std::io::ErrorKind::BrokenPipe { 141 } else { 1 };
            if code == 1 {
                say_error_line!("cannot write to standard output: {e}");
            }
            console::exit(code);
        }
    }

    /// Text from a pool in a form that is safe to print here.
    pub(crate) fn cell<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.terminal { visible(text) } else { Cow::Borrowed(text) }
    }
}

/// A line of a message: leading tabs are layout, all other control characters are made visible.
pub(crate) fn message_line(line: &str) -> String {
    let text = line.trim_start_matches('\t');
    let (tabs, text) = line.split_at(line.len() - text.len());
    format!("{tabs}{}", visible(text))
}

/// Control characters as `\ooo`, all other characters unchanged.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if c.is_control() {
            let mut bytes = [0; 4];
            for b in c.encode_utf8(&mut bytes).bytes() {
                safe.push_str(&format!("\\{b:03o}"));
            }
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    #[test]
    fn escape_sequences_are_made_visible() {
        assert_eq!(super::visible("a\x1b[2Jb\n"), "a\\033[2Jb\\012");
        assert_eq!(super::visible("tank/ü x"), "tank/ü x");
    }
}
