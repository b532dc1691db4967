//! Keys of the encrypted golden pools (`encryption`, `zil-encrypted`).

/// The passphrase of datasets with `keyformat=passphrase`.
pub(crate) const PASSPHRASE: &str = "correct horse battery staple";

/// The key of datasets with `keyformat=hex`: the bytes of `RAW`.
pub const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// The key of datasets with `keyformat=raw`.
pub(crate) const RAW: [u8; 32] = {
    let mut key = [0u8; 32];
    let mut at = 0;
    while at < key.len() {
        key[at] = at as u8;
        at += 1;
    }
    key
};

/// The bytes of a key file for `keyformat` (a value of that property); `None` for `none` and
/// for a format not known here.
#[must_use]
pub fn material(keyformat: &str) -> Option<Vec<u8>> {
    match keyformat {
        "passphrase" => Some(PASSPHRASE.as_bytes().to_vec()),
        "hex" => Some(HEX.as_bytes().to_vec()),
        "raw" => Some(RAW.to_vec()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn raw_and_hex_are_the_same_key() {
        assert_eq!(crate::hex(&super::RAW), super::HEX);
        assert_eq!(super::material("raw").map(|key| key.len()), Some(32));
        assert_eq!(super::material("none"), None);
    }
}
