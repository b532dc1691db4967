//! Resume tokens (docs/on-disk/30-send-streams.md, section 7): what a sender needs to go on where an interrupted
//! receive stopped. The text is made and read by `dsl::resume`, which also knows where a dataset keeps the list.

use dsl::resume::{TokenError, decode, encode};
use format::NvList;

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
        decode(text).map(|list| ResumeToken { list })
    }
}

impl std::fmt::Display for ResumeToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&encode(&self.list).ok_or(std::fmt::Error)?)
    }
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
            (format!("{text}0"), TokenError::NotHex),
            (text.replace("78", "7g"), TokenError::NotHex),
            (format!("{text}00000000ff"), TokenError::Checksum),
            ("1-0-10-00000000".to_owned(), TokenError::Decompression),
            ("1-0-ffffffffffffffff-00000000".to_owned(), TokenError::Decompression),
        ] {
            assert_eq!(ResumeToken::parse(&wrong), Err(why), "{wrong}");
        }
    }
}
