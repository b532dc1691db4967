//! Where progress bars are drawn: on standard error, if it is a terminal.

use super::{Console, Stream, current};
use indicatif::{ProgressDrawTarget, TermLike};
use std::io;
use std::sync::Arc;

/// Greatest number of redraws per second.
const HZ: u8 = 5;

/// Draw target for an `indicatif` bar; hidden if standard error is no terminal.
pub(crate) fn progress_target() -> ProgressDrawTarget {
    match current() {
        None => ProgressDrawTarget::stderr_with_hz(HZ),
        Some(console) if Stream::Err.is_terminal() => {
            ProgressDrawTarget::term_like_with_hz(Box::new(Screen(console)), HZ)
        }
        Some(_) => ProgressDrawTarget::hidden(),
    }
}

/// The terminal of a client.
#[derive(Debug)]
struct Screen(Arc<Console>);

impl Screen {
    /// Columns and lines of the terminal.
    fn size(&self) -> (u16, u16) {
        self.0.screen.size.filter(|size| size.0 > 0).unwrap_or((80, 24))
    }

    fn send(&self, text: &str) -> io::Result<()> {
        self.0.write(Stream::Err, text.as_bytes())
    }

    /// Writes a sequence that moves the cursor by `n`.
    fn go(&self, n: usize, letter: char) -> io::Result<()> {
        if n == 0 { Ok(()) } else { self.send(&format!("\x1b[{n}{letter}")) }
    }
}

impl TermLike for Screen {
    fn width(&self) -> u16 {
        self.size().0
    }

    fn height(&self) -> u16 {
        self.size().1
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.go(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.go(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.go(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.go(n, 'D')
    }

    fn write_line(&self, s: &str) -> io::Result<()> {
        self.send(&format!("{s}\n"))
    }

    fn write_str(&self, s: &str) -> io::Result<()> {
        self.send(s)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.send("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
