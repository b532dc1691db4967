//! Numbers in the form that users read and write (docs/on-disk/33-cli.md, section 1.1).
//!
//! `1536` prints as `1.50K`; exact multiples print without decimals. The text has at most five characters for any
//! `u64`.

use std::fmt;

/// Units of 1024, smallest first.
const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];

/// Why a size cannot be parsed; the text is that of the tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParseError {
    /// The text does not begin with a number.
    Bad(String),
    /// The suffix is not a unit.
    Suffix(String),
    /// The size exceeds 2^64-1 bytes.
    TooLarge,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::Bad(text) => write!(f, "bad numeric value '{text}'"),
            ParseError::Suffix(text) => write!(f, "invalid numeric suffix '{text}'"),
            ParseError::TooLarge => f.write_str("numeric value is too large"),
        }
    }
}

impl std::error::Error for ParseError {}

/// A count or a size without a unit below 1024: `0`, `1.50K`, `20M`.
pub fn nicenum(number: u64) -> String {
    scaled(number, "")
}

/// A size in bytes: like [`nicenum`], with `B` below 1024.
pub fn nicebytes(bytes: u64) -> String {
    scaled(bytes, "B")
}

fn scaled(number: u64, unit_below_1024: &str) -> String {
    let mut whole = number;
    let mut power = 0;
    while whole >= 1024 && power + 1 < UNITS.len() {
        whole >>= 10;
        power += 1;
    }
    let unit = UNITS.get(power).copied().unwrap_or_default();
    if power == 0 {
        return format!("{whole}{unit_below_1024}");
    }
    let divisor = 1u64 << (10 * power);
    if number.is_multiple_of(divisor) {
        return format!("{whole}{unit}");
    }
    // The value is below 1024 units, so rounding to a double changes less than one digit.
    let value = number as f64 / divisor as f64;
    (0..=2usize)
        .rev()
        .map(|decimals| format!("{value:.decimals$}{unit}"))
        .find(|text| text.len() <= 5)
        .unwrap_or_else(|| format!("{value:.0}{unit}"))
}

/// A ratio given in hundredths, with the suffix `x`: `1.00x`.
pub fn ratio(hundredths: u64) -> String {
    format!("{}x", exact_ratio(hundredths))
}

/// A ratio given in hundredths, as `-p` prints it: `1.00`.
pub fn exact_ratio(hundredths: u64) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Nanoseconds in units of 1000, rounded down: `-`, `17us`, `3s`.
pub fn nicetime(nanoseconds: u64) -> String {
    if nanoseconds == 0 {
        return "-".into();
    }
    let mut whole = nanoseconds;
    for unit in ["ns", "us", "ms"] {
        if whole < 1000 {
            return format!("{whole}{unit}");
        }
        whole /= 1000;
    }
    format!("{whole}s")
}

/// Parses a size: digits, optionally a fraction, optionally a unit (`B K M G T P E Z`, `KB`, `KiB`, any case).
///
/// # Errors
/// [`ParseError`] if the text is not a size, or the size exceeds 64 bits.
pub fn parse(text: &str) -> Result<u64, ParseError> {
    let bad = || ParseError::Bad(text.into());
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = text.split_at(digits);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(tail) => tail.split_at(tail.bytes().take_while(u8::is_ascii_digit).count()),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(bad());
    }
    let shift = shift_of(suffix).ok_or_else(|| ParseError::Suffix(suffix.into()))?;
    if rest.starts_with('.') {
        let value: f64 = format!("0{whole}.{fraction}0").parse().map_err(|_| bad())?;
        let bytes = value * 2f64.powi(shift as i32);
        // 2^64 as a double: every smaller value fits.
        return if bytes < 18_446_744_073_709_551_616.0 {
            Ok(bytes as u64)
        } else {
            Err(ParseError::TooLarge)
        };
    }
    let number: u64 = whole.parse().map_err(|_| ParseError::TooLarge)?;
    let shifted = u128::from(number).checked_shl(shift).unwrap_or(u128::MAX);
    u64::try_from(shifted).map_err(|_| ParseError::TooLarge)
}

/// The power of two that a unit stands for.
fn shift_of(suffix: &str) -> Option<u32> {
    let upper = suffix.to_ascii_uppercase();
    let Some(letter) = upper.chars().next() else { return Some(0) };
    let power = "BKMGTPEZ".find(letter)?;
    match upper.get(1..)? {
        "" => {}
        "B" | "IB" if power > 0 => {}
        _ => return None,
    }
    u32::try_from(10 * power).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_the_tools_print_them() {
        for (number, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1K"),
            (1536, "1.50K"),
            (10239, "10.0K"),
            (1_048_575, "1024K"),
            (20_971_520, "20M"),
            (4_397_056, "4.19M"),
            (121_432_064, "116M"),
            (24_576, "24K"),
            (3_043_328, "2.90M"),
            (48_368_640, "46.1M"),
            (251_556_864, "240M"),
            (1_207_959_552, "1.12G"),
            (5_250_048, "5.01M"),
        ] {
            assert_eq!(nicenum(number), text, "{number}");
        }
        assert_eq!(nicenum(u64::MAX), "16.0E");
        assert_eq!(nicebytes(0), "0B");
        assert_eq!(nicebytes(512), "512B");
        assert_eq!(nicebytes(1024), "1K");
        assert_eq!(ratio(101), "1.01x");
        assert_eq!(exact_ratio(100), "1.00");
    }

    #[test]
    fn never_wider_than_five() {
        let mut number = 1u64;
        while let Some(next) = number.checked_mul(3) {
            assert!(nicenum(next).len() <= 5, "{next}: {}", nicenum(next));
            number = next;
        }
    }

    #[test]
    fn times_are_floored() {
        assert_eq!(nicetime(0), "-");
        assert_eq!(nicetime(999), "999ns");
        assert_eq!(nicetime(17_999), "17us");
        assert_eq!(nicetime(3_999_999_999), "3s");
    }

    #[test]
    fn sizes_are_parsed_with_any_unit() {
        assert_eq!(parse("50M"), Ok(52_428_800));
        assert_eq!(parse("1.5k"), Ok(1536));
        assert_eq!(parse("1KiB"), Ok(1024));
        assert_eq!(parse("16EB"), Err(ParseError::TooLarge));
        assert_eq!(parse("10Z"), Err(ParseError::TooLarge));
        assert_eq!(parse("BB"), Err(ParseError::Bad("BB".into())));
        assert_eq!(parse("1BB"), Err(ParseError::Suffix("BB".into())));
        assert_eq!(parse("1X"), Err(ParseError::Suffix("X".into())));
        assert_eq!(parse("-1"), Err(ParseError::Bad("-1".into())));
        assert_eq!(parse("abc").map_err(|e| e.to_string()), Err("bad numeric value 'abc'".into()));
        assert_eq!(parse("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse("18446744073709551616"), Err(ParseError::TooLarge));
    }
}
