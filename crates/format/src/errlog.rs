//! Keys of the error log: the blocks that could not be read (docs/on-disk/22-mos-dsl.md, section 11).
//!
//! Pools without the feature `head_errlog` have one ZAP, whose keys begin with the object set. With the feature
//! there is one ZAP per head dataset, whose keys end with the birth of the block. All numbers are hexadecimal.

use crate::{BlockId, DecodeError, ObjectId, Txg};

const WHAT: &str = "error log key";

/// A block of a dataset, as error logs and scans identify it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ErrorKey {
    /// The object set; `None` in a log by head, where the ZAP belongs to one head.
    pub objset: Option<ObjectId>,
    /// The object in which the error is.
    pub object: ObjectId,
    /// The level; negative for the object set block itself and for the intent log.
    pub level: i64,
    /// The block number within its level.
    pub block: BlockId,
    /// Birth txg of the block; only in a log by head.
    pub birth: Option<Txg>,
}

impl ErrorKey {
    /// Decodes a key of the form `objset:object:level:block`, in hexadecimal.
    ///
    /// # Errors
    /// [`DecodeError::Invalid`] if the key is not four hexadecimal numbers.
    pub fn parse(key: &[u8]) -> Result<ErrorKey, DecodeError> {
        let [objset, object, level, block] = numbers(key)?;
        Ok(ErrorKey {
            objset: Some(ObjectId(objset)),
            object: ObjectId(object),
            level: level as i64,
            block: BlockId(block),
            birth: None,
        })
    }

    /// Decodes a key of the form `object:level:block:birth`, in hexadecimal.
    ///
    /// # Errors
    /// [`DecodeError::Invalid`] if the key is not four hexadecimal numbers.
    pub fn parse_by_head(key: &[u8]) -> Result<ErrorKey, DecodeError> {
        let [object, level, block, birth] = numbers(key)?;
        Ok(ErrorKey {
            objset: None,
            object: ObjectId(object),
            level: level as i64,
            block: BlockId(block),
            birth: Some(Txg(birth)),
        })
    }

    /// The key in the form that matches the fields.
    pub fn to_key(&self) -> String {
        let middle = format!("{:x}:{:x}:{:x}", self.object.0, self.level, self.block.0);
        match (self.objset, self.birth) {
            (Some(objset), _) => format!("{:x}:{middle}", objset.0),
            (None, birth) => format!("{middle}:{:x}", birth.unwrap_or_default().0),
        }
    }
}

fn numbers(key: &[u8]) -> Result<[u64; 4], DecodeError> {
    let text = std::str::from_utf8(key).map_err(|_| DecodeError::invalid(WHAT, "not text"))?;
    let mut parts = text.split(':');
    let mut out = [0; 4];
    for slot in &mut out {
        let part = parts.next().ok_or(DecodeError::invalid(WHAT, "fewer than four numbers"))?;
        if part.starts_with('+') {
            return Err(DecodeError::invalid(WHAT, "not a number"));
        }
        *slot = u64::from_str_radix(part, 16).map_err(|_| DecodeError::invalid(WHAT, "not a number"))?;
    }
    if parts.next().is_some() {
        return Err(DecodeError::invalid(WHAT, "more than four numbers"));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_round_trip() {
        let key = ErrorKey::parse(b"36:1f:0:a").unwrap();
        assert_eq!((key.objset, key.object, key.block), (Some(ObjectId(0x36)), ObjectId(0x1f), BlockId(10)));
        assert_eq!(key.to_key(), "36:1f:0:a");
        let key = ErrorKey::parse_by_head(b"2:fffffffffffffffe:0:99").unwrap();
        assert_eq!((key.level, key.birth), (-2, Some(Txg(0x99))));
        assert_eq!(key.to_key(), "2:fffffffffffffffe:0:99");
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in ["", "1:2:3", "1:2:3:4:5", "1:2:3:g", "1:2:3:", "1:2:3:+4", "1:2:3:10000000000000000"] {
            assert!(ErrorKey::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(ErrorKey::parse(&[0xff, b':']).is_err());
    }
}
