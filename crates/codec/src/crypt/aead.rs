//! Authenticated encryption: GCM of the crypto library, and the CCM of this crate.

use super::ccm::Ccm;
use super::{CryptError, IV_LEN, MAC_LEN, Suite};
use aws_lc_rs::aead::{AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// A key prepared for encryption and decryption.
pub(super) struct Aead {
    suite: Suite,
    mode: Mode,
}

enum Mode {
    Gcm(LessSafeKey),
    Ccm(Box<Ccm>),
}

impl Aead {
    /// `key` has the suite's length; callers cut it from longer fields.
    pub(super) fn new(suite: Suite, key: &[u8]) -> Aead {
        let gcm = |algorithm| {
            let key = UnboundKey::new(algorithm, key).expect("callers pass keys of the suite's length");
            Mode::Gcm(LessSafeKey::new(key))
        };
        let mode = match suite {
            Suite::Aes128Gcm => gcm(&AES_128_GCM),
            Suite::Aes192Gcm => gcm(&AES_192_GCM),
            Suite::Aes256Gcm => gcm(&AES_256_GCM),
            Suite::Aes128Ccm | Suite::Aes192Ccm | Suite::Aes256Ccm => Mode::Ccm(Box::new(Ccm::new(key))),
        };
        Aead { suite, mode }
    }

    /// Decrypts `data` in place; wipes it if the tag is wrong.
    pub(super) fn open(
        &self,
        iv: &[u8; IV_LEN],
        mac: &[u8; MAC_LEN],
        aad: &[u8],
        data: &mut [u8],
    ) -> Result<(), CryptError> {
        let opened = match &self.mode {
            Mode::Gcm(key) => {
                let nonce = Nonce::assume_unique_for_key(*iv);
                let opened = key.open_in_place_separate_tag(nonce, Aad::from(aad), mac, data);
                opened.map(|_| ()).map_err(|_| CryptError::Authentication)
            }
            Mode::Ccm(key) => {
                self.check_len(data.len())?;
                super::check_mac(&key.open(iv, aad, data), mac)
            }
        };
        if opened.is_err() {
            data.fill(0);
        }
        opened
    }

    /// Encrypts `data` in place. Returns the tag.
    pub(super) fn seal(
        &self,
        iv: &[u8; IV_LEN],
        aad: &[u8],
        data: &mut [u8],
    ) -> Result<[u8; MAC_LEN], CryptError> {
        self.check_len(data.len())?;
        match &self.mode {
            Mode::Gcm(key) => {
                let too_long = CryptError::TooLong { suite: self.suite, len: data.len() };
                let nonce = Nonce::assume_unique_for_key(*iv);
                let tag = key
                    .seal_in_place_separate_tag(nonce, Aad::from(aad), data)
                    .map_err(|_| too_long.clone())?;
                tag.as_ref().try_into().map_err(|_| too_long)
            }
            Mode::Ccm(key) => Ok(key.seal(iv, aad, data)),
        }
    }

    /// CCM with a nonce of 12 bytes has a 3-byte length field.
    fn check_len(&self, len: usize) -> Result<(), CryptError> {
        match self.mode {
            Mode::Ccm(_) if len > Ccm::LEN_MAX => Err(CryptError::TooLong { suite: self.suite, len }),
            _ => Ok(()),
        }
    }
}
