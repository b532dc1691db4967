//! Names and values from a pool as text.
//!
//! # What always holds
//! - Names are printed byte for byte, as the real tool does; on a terminal, [`Visible`] makes their control
//!   characters visible.

use std::fmt;
use std::io::{self, Write};

/// Writes a name between a head and a tail.
pub(super) fn put(out: &mut dyn Write, head: fmt::Arguments<'_>, name: &[u8], tail: &str) -> io::Result<()> {
    out.write_fmt(head)?;
    out.write_all(name)?;
    out.write_all(tail.as_bytes())
}

/// A value: unchanged if it is text, else every byte in octal.
pub(super) struct Octal<'a>(pub(super) &'a [u8]);

impl fmt::Display for Octal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (true, Ok(text)) = (self.0.iter().all(is_printable), std::str::from_utf8(self.0)) {
            return f.write_str(text);
        }
        self.0.iter().try_for_each(|byte| write!(f, "\\{byte:03o}"))
    }
}

fn is_printable(byte: &u8) -> bool {
    matches!(byte, b' '..=b'~')
}

/// Writes text to a terminal, with control characters other than tabs and line ends as `\ooo`.
pub(crate) struct Visible<W>(pub(crate) W);

impl<W: Write> Write for Visible<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for run in bytes.chunk_by(|a, b| is_control(*a) == is_control(*b)) {
            match run {
                [first, ..] if is_control(*first) => {
                    run.iter().try_for_each(|byte| write!(self.0, "\\{byte:03o}"))?;
                }
                _ => self.0.write_all(run)?,
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn is_control(byte: u8) -> bool {
    (byte < b' ' && byte != b'\n' && byte != b'\t') || byte == 0x7f
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_text_or_octal() {
        assert_eq!(Octal(b"plain text").to_string(), "plain text");
        assert_eq!(Octal(b"a\x00").to_string(), "\\141\\000");
    }

    #[test]
    fn a_terminal_gets_no_control_characters() {
        let mut seen = Vec::new();
        Visible(&mut seen).write_all(b"a\x1b[2J\tb\n").expect("memory");
        assert_eq!(seen, b"a\\033[2J\tb\n");
    }
}
