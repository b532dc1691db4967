//! Colours of lines, for a user at a terminal who enables them with `ZFS_COLOR`.
//!
//! Colour is added to complete lines: their text and layout do not depend on it.

use crate::console;
use crate::out::Out;
use std::ffi::OsString;

/// A colour; its value is its number on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
    Blue = 34,
}

/// Whether standard output is a terminal with colours, and its user wants them.
pub(crate) fn are_wanted(out: &Out) -> bool {
    out.is_terminal() && are_asked_for(&|name| console::env(name))
}

fn are_asked_for(env: &dyn Fn(&str) -> Option<OsString>) -> bool {
    let refuses = env("NO_COLOR").is_some_and(|value| !value.is_empty());
    let can = env("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
    env("ZFS_COLOR").is_some() && can && !refuses
}

/// Colours the lines of a text. `colour` returns the colour of a line; `None`: the line stays as it is.
pub(crate) fn paint(text: &[u8], colour: impl Fn(&[u8]) -> Option<Colour>) -> Vec<u8> {
    let mut painted = Vec::with_capacity(text.len() + 64);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let (bare, end) = line.strip_suffix(b"\n").map_or((line, &b""[..]), |bare| (bare, &b"\n"[..]));
        match colour(bare) {
            Some(colour) => {
                painted.extend(format!("\x1b[{}m", colour as u8).into_bytes());
                painted.extend_from_slice(bare);
                painted.extend_from_slice(b"\x1b[0m");
            }
            None => painted.extend_from_slice(bare),
        }
        painted.extend_from_slice(end);
    }
    painted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_those_who_ask_and_can_see_them() {
        let asked = |pairs: &[(&str, &str)]| {
            are_asked_for(&|name| {
                pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
            })
        };
        assert!(asked(&[("ZFS_COLOR", "1"), ("TERM", "xterm")]));
        assert!(asked(&[("ZFS_COLOR", ""), ("TERM", "xterm"), ("NO_COLOR", "")]));
        assert!(!asked(&[("TERM", "xterm")]));
        assert!(!asked(&[("ZFS_COLOR", "1")]) && !asked(&[("ZFS_COLOR", "1"), ("TERM", "dumb")]));
        assert!(!asked(&[("ZFS_COLOR", "1"), ("TERM", "xterm"), ("NO_COLOR", "1")]));
    }

    #[test]
    fn lines_are_painted_and_their_ends_are_not() {
        let painted = paint(b"a\nb\nc", |line| (line == b"b").then_some(Colour::Red));
        assert_eq!(painted, b"a\n\x1b[31mb\x1b[0m\nc");
    }
}
