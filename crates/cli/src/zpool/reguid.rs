//! `zpool reguid`.

use super::{in_session, texts};
use crate::getopt::Getopt;
use crate::out::visible;
use crate::stop::{Outcome, Stop};
use admin::verbs::zpool::reguid::Request;
use admin::verbs::{Code, Refused};
use std::ffi::OsString;

/// Exit code of a refusal whose status the real tool passes on.
const MINUS_ONE: u8 = 255;

pub(super) fn run(args: &[OsString]) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "g:", &[]);
    let mut guid = None;
    while let Some((_, value)) = walk.next()? {
        let text = value.unwrap_or_default().to_string_lossy().into_owned();
        guid = Some(parse(&text).ok_or_else(|| Stop::usage(format!("invalid GUID: {text}")))?);
    }
    let operands = texts(&walk.operands());
    let [name] = &operands[..] else {
        let why = if operands.is_empty() { "missing pool name" } else { "too many arguments" };
        return Err(Stop::usage(why));
    };
    let request = Request { pool: name.clone(), guid };
    in_session("reguid", args, |session| match session.run(&request) {
        Ok(()) => Ok(0),
        Err(refusal) if refusal.reason().code == Code::NoPool => Err(Stop::failed(refusal)),
        Err(refusal) => {
            say_error_line!("{}", visible(&refusal.to_string()));
            Err(Stop::Code(MINUS_ONE))
        }
    })
}

/// A number as C's `strtoull` reads one in decimal: white space and a sign in front, a negative one counted down from
/// 2^64. Nothing is 0.
fn parse(text: &str) -> Option<u64> {
    let number = text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\u{b}');
    let (is_negative, digits) = match number.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    if text.is_empty() {
        return Some(0);
    }
    let is_decimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let value: u64 = digits.parse().ok().filter(|_| is_decimal)?;
    Some(if is_negative { value.wrapping_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids_are_read_as_by_openzfs() {
        let largest = Some(u64::MAX);
        for (text, guid) in [
            ("42", Some(42)),
            ("010", Some(10)),
            (" 5", Some(5)),
            ("+7", Some(7)),
            ("-1", largest),
            ("18446744073709551615", largest),
            ("-5", Some(u64::MAX - 4)),
            ("0", Some(0)),
            ("", Some(0)),
        ] {
            assert_eq!(parse(text), guid, "{text:?}");
        }
        for bad in
            ["0x10", "12abc", "1.5", "abc", "-", "+-1", "99999999999999999999", "-99999999999999999999"]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
