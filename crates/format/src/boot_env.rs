//! The boot environment: 8 KiB in every label for the boot loader
//! (docs/on-disk/11-labels-config.md, section 5).
//!
//! Cenote preserves it: a block in an unknown format is kept as it is.

use crate::label::{BOOT_ENV_SIZE, TRAILER_SIZE};
use crate::{DecodeError, Endian, NvList};

/// Maximum size of the contents of a boot environment block in bytes.
pub(crate) const BOOT_ENV_MAX: usize = BOOT_ENV_SIZE - TRAILER_SIZE - 8;

const WHAT: &str = "boot environment";

/// The contents of the boot environment block of a label.
#[derive(Debug, Clone, PartialEq)]
pub enum BootEnv {
    /// The block holds no environment.
    Empty,
    /// Text, as GRUB writes it.
    Text(Vec<u8>),
    /// A name-value list, in XDR encoding.
    List(NvList),
    /// An unknown format: version and contents, as stored.
    Other(u64, Vec<u8>),
}

impl BootEnv {
    /// Reads the block of 8 KiB, with or without its trailer, which is verified elsewhere. The version is
    /// big-endian in pools of either byte order.
    ///
    /// # Errors
    /// [`DecodeError::Short`], or the error of the name-value list of version 1.
    pub fn decode(bytes: &[u8]) -> Result<BootEnv, DecodeError> {
        DecodeError::need(WHAT, BOOT_ENV_SIZE - TRAILER_SIZE, bytes.len())?;
        let version = Endian::Big.u64(WHAT, bytes, 0)?;
        let payload = bytes.get(8..8 + BOOT_ENV_MAX).unwrap_or(&[]);
        let text = payload.split(|b| *b == 0).next().unwrap_or(&[]);
        Ok(match version {
            0 if text.is_empty() => BootEnv::Empty,
            0 => BootEnv::Text(text.to_vec()),
            1 => BootEnv::List(NvList::decode(payload)?),
            _ => BootEnv::Other(version, payload.to_vec()),
        })
    }

    /// The block up to its trailer.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if the contents are larger than the block.
    pub fn encode(&self) -> Result<Vec<u8>, DecodeError> {
        let (version, payload) = match self {
            BootEnv::Empty => (0, Vec::new()),
            BootEnv::Text(text) => (0, text.clone()),
            BootEnv::List(list) => (1, list.encode_xdr()),
            BootEnv::Other(version, payload) => (*version, payload.clone()),
        };
        if payload.len() > BOOT_ENV_MAX {
            return Err(DecodeError::field(WHAT, "size", payload.len() as u64));
        }
        let mut out = u64::to_be_bytes(version).to_vec();
        out.extend(payload);
        out.resize(BOOT_ENV_SIZE - TRAILER_SIZE, 0);
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_round_trips() {
        let list: NvList = [("bootonce", "pool/fs")].into_iter().collect();
        for env in [
            BootEnv::Empty,
            BootEnv::Text(b"saved_entry=1".to_vec()),
            BootEnv::List(list),
            BootEnv::Other(9, vec![1; BOOT_ENV_MAX]),
        ] {
            assert_eq!(BootEnv::decode(&env.encode().unwrap()), Ok(env));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(BootEnv::Text(vec![b'x'; BOOT_ENV_MAX + 1]).encode().is_err());
        assert!(BootEnv::decode(&[0; 100]).is_err());
    }
}
