//! Output for people: names as they can be shown, times, sizes, messages.

use std::fmt::Write as _;
use std::io;

use crate::console::Stream;

/// The bytes of a name for an output. On a terminal, control characters and bytes that are no text are
/// written as escapes; in a file or pipe the name is unchanged.
pub(super) fn name(bytes: &[u8], to_terminal: bool) -> Vec<u8> {
    if to_terminal { escape(bytes).into_bytes() } else { bytes.to_vec() }
}

/// Writes control characters and bytes that are no UTF-8 as `\n`, `\x1b` and the like.
pub(super) fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                '\\' => out.push_str("\\\\"),
                c if is_steering(c) => {
                    let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
                }
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// Whether a character is a control character or changes the direction of text.
fn is_steering(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes `cenote: TEXT` to standard error. Text from a pool is escaped there even if standard error is a
/// file: people read messages sooner or later.
pub(super) fn complain(text: impl std::fmt::Display) {
    tell(format_args!("cenote: {text}"));
}

/// A line to standard error.
pub(super) fn tell(text: impl std::fmt::Display) {
    say_error_line!("{text}");
}

/// Removes the error number that Rust appends to messages of the system.
fn words(mut text: String) -> String {
    if let Some(at) = text.find(" (os error ").filter(|_| text.ends_with(')')) {
        text.truncate(at);
    }
    text
}

/// The system's message for an error.
pub(crate) fn io_words(error: &io::Error) -> String {
    words(error.to_string())
}

/// An error and its causes in one line, in the system's messages.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    cenote::error::chain_with(error, |error| words(error.to_string()))
}

/// Whether standard output is a terminal.
pub(super) fn out_is_terminal() -> bool {
    Stream::Out.is_terminal()
}

/// Seconds since 1970 as `2026-11-20 10:57:01`, in UTC: a pool does not record a time zone.
pub(super) fn date(secs: i64) -> String {
    let (days, second) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    let (year, month, day) = admin::replicate::date(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// A mode as `drwxr-sr-t`.
pub(super) fn mode(mode: u32) -> String {
    let kind = match mode & 0o170_000 {
        0o010_000 => 'p',
        0o020_000 => 'c',
        0o040_000 => 'd',
        0o060_000 => 'b',
        0o120_000 => 'l',
        0o140_000 => 's',
        _ => '-',
    };
    let mut text = String::from(kind);
    for (shift, special, letters) in
        [(6, 0o4000, ['s', 'S']), (3, 0o2000, ['s', 'S']), (0, 0o1000, ['t', 'T'])]
    {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letters[0],
            (false, true) => letters[1],
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_escaped() {
        assert_eq!(escape(b"a\x1b[2J\n\xffb\\"), "a\\u{1b}[2J\\n\\xffb\\\\");
        assert_eq!(escape("\u{202e}ä".as_bytes()), "\\u{202e}ä");
        assert_eq!(name(b"\x1b", false), b"\x1b");
    }

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01 00:00:00");
        assert_eq!(date(951_827_696), "2000-02-29 12:34:56");
        assert_eq!(date(-1), "1969-12-31 23:59:59");
        assert_eq!(date(4_107_542_399), "2100-02-28 23:59:59");
        let _ = (date(i64::MAX), date(i64::MIN));
    }

    #[test]
    fn modes() {
        assert_eq!(mode(0o100_644), "-rw-r--r--");
        assert_eq!(mode(0o041_777), "drwxrwxrwt");
        assert_eq!(mode(0o106_610), "-rwS--s---");
        assert_eq!(mode(0o120_777), "lrwxrwxrwx");
    }
}
