//! Key material that a user supplies, and the derivation of a wrapping key from it
//! (docs/on-disk/31-encryption.md, section 2).

use crate::error::KeyError;
use codec::crypt::WrappingKey;
use std::fmt;

/// Bytes of a wrapping key.
pub(crate) const WRAPPING_KEY_LEN: usize = 32;
/// Allowed length of a passphrase, in bytes.
pub(crate) const PASSPHRASE_LEN: std::ops::RangeInclusive<usize> = 8..=512;
/// Digits of a hex key.
const HEX_LEN: usize = 2 * WRAPPING_KEY_LEN;

/// Format of a user's key: the property `keyformat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyFormat {
    /// 32 raw bytes.
    Raw,
    /// 64 hex digits.
    Hex,
    /// 8 to 512 bytes on a line, from which the key is derived.
    Passphrase,
}

impl KeyFormat {
    /// Decodes the number that a key object holds; `None`: unknown.
    pub(crate) fn from_id(id: u64) -> Option<KeyFormat> {
        match id {
            1 => Some(KeyFormat::Raw),
            2 => Some(KeyFormat::Hex),
            3 => Some(KeyFormat::Passphrase),
            _ => None,
        }
    }

    /// The number that key objects hold.
    pub fn id(self) -> u64 {
        match self {
            KeyFormat::Raw => 1,
            KeyFormat::Hex => 2,
            KeyFormat::Passphrase => 3,
        }
    }

    /// The value of the property `keyformat`.
    pub fn name(self) -> &'static str {
        match self {
            KeyFormat::Raw => "raw",
            KeyFormat::Hex => "hex",
            KeyFormat::Passphrase => "passphrase",
        }
    }

    fn noun(self) -> &'static str {
        match self {
            KeyFormat::Raw => "Raw key",
            KeyFormat::Hex => "Hex key",
            KeyFormat::Passphrase => "Passphrase",
        }
    }

    /// Derives the key that wraps the master key from the user's material. A newline at the end of a
    /// passphrase or a hex key is not part of it. `salt` and `iterations` are those of the key object and
    /// matter only for a passphrase.
    ///
    /// # Errors
    /// [`KeyError`] if the material is not a key of this format.
    pub fn wrapping_key(self, material: &[u8], salt: u64, iterations: u64) -> Result<WrappingKey, KeyError> {
        let line = material.strip_suffix(b"\n").unwrap_or(material);
        match self {
            KeyFormat::Raw => Ok(WrappingKey::new(self.exactly(material, WRAPPING_KEY_LEN)?)),
            KeyFormat::Hex => {
                let digits: [u8; HEX_LEN] = self.exactly(line, HEX_LEN)?;
                Ok(WrappingKey::new(unhex(&digits).ok_or(KeyError::NotHex)?))
            }
            KeyFormat::Passphrase => {
                let (least, most) = (*PASSPHRASE_LEN.start(), *PASSPHRASE_LEN.end());
                if line.len() < least {
                    return Err(KeyError::TooShort { what: self.noun(), limit: least, is_minimum: true });
                }
                if line.len() > most {
                    return Err(KeyError::TooLong { what: self.noun(), limit: most, is_maximum: true });
                }
                Ok(WrappingKey::from_passphrase(line, salt, iterations)?)
            }
        }
    }

    fn exactly<const N: usize>(self, bytes: &[u8], limit: usize) -> Result<[u8; N], KeyError> {
        bytes.try_into().map_err(|_| match bytes.len() < limit {
            true => KeyError::TooShort { what: self.noun(), limit, is_minimum: false },
            false => KeyError::TooLong { what: self.noun(), limit, is_maximum: false },
        })
    }
}

impl fmt::Display for KeyFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn unhex(digits: &[u8; HEX_LEN]) -> Option<[u8; WRAPPING_KEY_LEN]> {
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|n| n as u8);
    let mut key = [0; WRAPPING_KEY_LEN];
    let (pairs, _) = digits.as_chunks::<2>();
    for (byte, [high, low]) in key.iter_mut().zip(pairs) {
        *byte = nibble(*high)? << 4 | nibble(*low)?;
    }
    Some(key)
}

/// Location of a key: the property `keylocation`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyLocation {
    /// No key: the dataset is not encrypted.
    None,
    /// Prompted for, or read from standard input.
    Prompt,
    /// A file with this absolute path.
    File(String),
    /// An `https:` or `http:` address.
    Url(String),
}

impl KeyLocation {
    /// Parses the value of the property.
    ///
    /// # Errors
    /// [`KeyError`] if the text names no location.
    pub fn parse(value: &str) -> Result<KeyLocation, KeyError> {
        let bad = || KeyError::BadLocation { value: value.to_owned() };
        match value {
            "none" => Ok(KeyLocation::None),
            "prompt" => Ok(KeyLocation::Prompt),
            _ if value.starts_with("https://") || value.starts_with("http://") => {
                Ok(KeyLocation::Url(value.to_owned()))
            }
            _ => match value.strip_prefix("file://") {
                Some(path) if path.starts_with('/') => Ok(KeyLocation::File(path.to_owned())),
                _ => Err(bad()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(format: KeyFormat, material: &[u8]) -> String {
        match format.wrapping_key(material, 1, 1) {
            Ok(_) => panic!("accepted"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn refusals_read_as_those_of_the_tools() {
        assert_eq!(refusal(KeyFormat::Passphrase, b"short\n"), "Passphrase too short (min 8).");
        assert_eq!(refusal(KeyFormat::Passphrase, &[b'x'; 513]), "Passphrase too long (max 512).");
        assert_eq!(refusal(KeyFormat::Hex, b"abc\n"), "Hex key too short (expected 64).");
        assert_eq!(refusal(KeyFormat::Hex, &[b'a'; 65]), "Hex key too long (expected 64).");
        assert_eq!(refusal(KeyFormat::Raw, &[0; 31]), "Raw key too short (expected 32).");
        assert_eq!(refusal(KeyFormat::Raw, &[0; 33]), "Raw key too long (expected 32).");
        assert_eq!(refusal(KeyFormat::Hex, &[b'g'; 64]), "Invalid hex key provided.");
    }

    #[test]
    fn a_raw_key_may_end_in_a_newline_byte() {
        assert!(KeyFormat::Raw.wrapping_key(&[b'\n'; 32], 0, 0).is_ok());
    }

    #[test]
    fn hex_digits_of_either_case() {
        let digits: [u8; 64] = std::array::from_fn(|i| if i % 2 == 0 { b'A' } else { b'f' });
        assert_eq!(unhex(&digits), Some([0xaf; 32]));
        assert!(KeyFormat::Hex.wrapping_key(&[&digits[..], b"\n"].concat(), 0, 0).is_ok());
    }

    #[test]
    fn locations() {
        assert_eq!(KeyLocation::parse("prompt").unwrap(), KeyLocation::Prompt);
        assert_eq!(KeyLocation::parse("file:///k").unwrap(), KeyLocation::File("/k".into()));
        assert!(KeyLocation::parse("https://host/k").is_ok());
        assert!(KeyLocation::parse("file://k").is_err() && KeyLocation::parse("/k").is_err());
    }
}
