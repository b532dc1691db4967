//! Resume tokens (docs/on-disk/30-send-streams.md, section 7): what a sender needs to go on where an interrupted
//! receive stopped.

use crate::error::TokenError;
use codec::checksum::compute;
use codec::compress::{compress, decompress};
use format::{ChecksumId, CompressionId, Endian, NvList};

/// Version of the tokens that are written.
const VERSION: u64 = 1;
/// Largest packed list in bytes.
const LIST_MAX: usize = 1 << 20;
/// Compression of the list.
const ZLIB: CompressionId = CompressionId::Gzip6;

/// The list of a resume token: where to go on, and with which flags.
#[derive(Debug, Clone, PartialEq)]
pub struct ResumeToken {
    /// Names and values, as in the table of the chapter.
    pub list: NvList,
}

impl ResumeToken {
    /// Reads a token.
    ///
    /// # Errors
    /// [`TokenError`]: what is wrong with the text.
    pub fn parse(text: &str) -> Result<ResumeToken, TokenError> {
        let mut parts = text.splitn(4, '-');
        let version = number(parts.next(), 10)?;
        let (checksum, len, payload) =
            (number(parts.next(), 16)?, number(parts.next(), 16)?, parts.next().ok_or(TokenError::Format)?);
        if version != VERSION {
            return Err(TokenError::Version { version });
        }
        let image = from_hex(payload).ok_or(TokenError::Hex)?;
        if checksum_of(&image) != checksum {
            return Err(TokenError::Checksum);
        }
        let len = usize::try_from(len).ok().filter(|len| *len <= LIST_MAX).ok_or(TokenError::Decompress)?;
        let mut packed = vec![0; len];
        decompress(ZLIB, &image, &mut packed).map_err(|_| TokenError::Decompress)?;
        NvList::decode(&packed).map(|list| ResumeToken { list }).map_err(TokenError::List)
    }
}

impl std::fmt::Display for ResumeToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let packed = self.list.encode_native();
        // What cannot be compressed becomes longer by a few bytes for each 16 KiB.
        let limit = packed.len() + packed.len() / 1024 + 64;
        let image = compress(ZLIB, 0, &packed, limit).ok_or(std::fmt::Error)?;
        write!(f, "{VERSION}-{:x}-{:x}-", checksum_of(&image), packed.len())?;
        image.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn number(part: Option<&str>, radix: u32) -> Result<u64, TokenError> {
    part.and_then(|part| u64::from_str_radix(part, radix).ok()).ok_or(TokenError::Format)
}

/// The first word of the checksum of the whole words of `image`.
fn checksum_of(image: &[u8]) -> u64 {
    let whole = image.get(..image.len() / 4 * 4).unwrap_or_default();
    compute(ChecksumId::Fletcher4, whole, Endian::Little, None).map_or(0, |sum| sum.0[0])
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| Some(digit(high)? << 4 | digit(low)?);
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_is_written_is_read_again() {
        let mut list = NvList::new();
        list.push("object", 16u64);
        list.push("offset", 131_072u64);
        list.push("toname", "src/fs@c");
        let token = ResumeToken { list };
        let text = token.to_string();
        assert_eq!(ResumeToken::parse(&text), Ok(token));
    }

    #[test]
    fn what_is_wrong_with_a_token_is_told() {
        let mut list = NvList::new();
        list.push("object", 16u64);
        let text = ResumeToken { list }.to_string();
        for (wrong, why) in [
            ("abc".to_owned(), TokenError::Format),
            (String::new(), TokenError::Format),
            ("1-2-3".to_owned(), TokenError::Format),
            (text.replacen('1', "2", 1), TokenError::Version { version: 2 }),
            (format!("{text}0"), TokenError::Hex),
            (text.replace("78", "7g"), TokenError::Hex),
            (format!("{text}00000000ff"), TokenError::Checksum),
            ("1-0-10-00000000".to_owned(), TokenError::Decompress),
            ("1-0-ffffffffffffffff-00000000".to_owned(), TokenError::Decompress),
        ] {
            assert_eq!(ResumeToken::parse(&wrong), Err(why), "{wrong}");
        }
    }
}
