//! Fuzz targets for command lines and patterns. The modules are included from the program, which has no
//! library.

/// The items of the program that the modules use.
mod console {
    pub(crate) fn env(_name: &str) -> Option<std::ffi::OsString> {
        None
    }
}
#[allow(dead_code)]
#[path = "../src/getopt.rs"]
mod getopt;
#[path = "../src/cenote/glob.rs"]
mod glob;

use getopt::{Getopt, Long};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use testkit::alloc::Counting;
use testkit::fuzz::Target;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LONG: &[Long] = &[
    Long::flag("json", 'j'),
    Long::flag("json-int", '1'),
    Long { name: "output", letter: 'o', value: true },
];

fn target(name: &str) -> Target {
    Target::new(env!("CARGO_MANIFEST_DIR"), name)
}

/// Arguments, each ended by a NUL.
#[test]
fn options() {
    // Each argument is a string of its own.
    bolero::check!().for_each(target("options").bound(64 << 10, 160).checked(|input| {
        let args: Vec<OsString> =
            input.split(|byte| *byte == 0).map(|arg| OsString::from_vec(arg.to_vec())).collect();
        let count = args.len();
        let mut walk = Getopt::new(args, "Hpo:d:", LONG);
        let mut options = 0;
        loop {
            match walk.next() {
                Ok(Some((letter, value))) => {
                    options += 1;
                    assert!("Hpodj1".contains(letter));
                    assert_eq!(value.is_some(), "od".contains(letter));
                }
                Ok(None) => break,
                Err(bad) => return !bad.to_string().is_empty() && options > 0,
            }
        }
        assert!(options <= input.len() && walk.operands().len() <= count);
        true
    }));
}

/// A pattern and a text, separated by a NUL.
#[test]
fn patterns() {
    bolero::check!().for_each(target("patterns").checked(|input| {
        let at = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
        let (pattern, text) = input.split_at(at);
        let text = text.get(1..).unwrap_or(&[]);
        // Inputs that take long are longer than any name.
        let (pattern, text) = (&pattern[..pattern.len().min(300)], &text[..text.len().min(300)]);
        let found = glob::matches(pattern, text);
        let has_no_wildcard = !pattern.iter().any(|byte| b"*?[\\".contains(byte));
        assert!(!has_no_wildcard || found == (pattern == text));
        assert!(glob::matches(&[b"*", pattern].concat(), text) || !found);
        found
    }));
}
