//! `zpool reguid`.

use super::{command_line, texts};
use crate::getopt::Getopt;
use crate::stop::{Outcome, Stop};
use cenote::admin::change::{ChangeError, reguid_pool};
use format::PoolGuid;
use std::ffi::OsString;

pub(super) fn run(args: Vec<OsString>) -> Outcome {
    let command = command_line("reguid", &args);
    let mut walk = Getopt::new(args, "g:", &[]);
    let mut guid = None;
    while let Some((_, value)) = walk.next()? {
        let text = value.unwrap_or_default().to_string_lossy().into_owned();
        guid = Some(parse(&text).ok_or_else(|| Stop::usage(format!("invalid GUID '{text}'")))?);
    }
    let operands = texts(&walk.operands());
    let [name] = &operands[..] else {
        let why = if operands.is_empty() { "missing pool name" } else { "too many arguments" };
        return Err(Stop::usage(why));
    };
    reguid_pool(&crate::search::from_env(), name, guid, &command).map(|()| 0).map_err(|error| match error {
        ChangeError::NoPool => Stop::failed(format!("cannot open '{name}': no such pool")),
        error => Stop::failed(format!("cannot reguid '{name}': {error}")),
    })
}

/// A decimal number but 0.
fn parse(text: &str) -> Option<PoolGuid> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|guid| is_decimal && *guid != 0).map(PoolGuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids_are_decimal_numbers_but_zero() {
        assert_eq!(parse("42"), Some(PoolGuid(42)));
        for bad in ["", "0", "0xa", "+1", "-1", "18446744073709551616"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
