//! Base64, hexadecimal and SHA-256, in the forms of the manifests; sums of images.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use sha2::{Digest, Sha256};

/// Decodes standard base64, padded or not; `None` when `text` is not base64.
#[must_use]
pub fn base64_decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').bytes();
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut held, mut bits) = (0u32, 0u32);
    for digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        held = held << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((held >> bits & 0xff) as u8);
        }
    }
    Some(out)
}

/// Bytes as lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 in lower-case hexadecimal: the form of `sha256` in the manifests.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Whether all bytes are zero. It compares slices, because loops over bytes are slow in programs that are built for
/// tests.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROS.len()).all(|chunk| *chunk == ZEROS[..chunk.len()])
}

/// SHA-256 of the length and content of a file, in lower-case hexadecimal. It is not that of `sha256sum`: holes of the
/// file are not read, and a hole and zeros are the same.
///
/// # Panics
/// If the file cannot be read.
#[must_use]
pub fn sparse_sha256(path: &Path) -> String {
    let failure = |error: std::io::Error| -> ! { panic!("{}: {error}", path.display()) };
    let file = File::open(path).unwrap_or_else(|error| failure(error));
    let length = file.metadata().unwrap_or_else(|error| failure(error)).len();
    let mut digest = Sha256::new_with_prefix(length.to_le_bytes());
    let mut block = vec![0; 64 << 10];
    let mut at = 0;
    loop {
        match rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => at = data - data % block.len() as u64,
            Err(rustix::io::Errno::NXIO) => return hex(&digest.finalize()),
            Err(error) => failure(error.into()),
        }
        let take = (length - at).min(block.len() as u64) as usize;
        file.read_exact_at(&mut block[..take], at).unwrap_or_else(|error| failure(error));
        if !is_zero(&block[..take]) {
            digest.update(at.to_le_bytes());
            digest.update(&block[..take]);
        }
        at += take as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_zeros_have_one_sum() {
        let folder = tempfile::tempdir().expect("a folder");
        let (hole, zeros) = (folder.path().join("hole"), folder.path().join("zeros"));
        let mut bytes = vec![0; 300_000];
        bytes[200_000..200_003].copy_from_slice(b"one");
        std::fs::write(&zeros, &bytes).expect("written");
        let file = File::create(&hole).expect("a file");
        file.set_len(bytes.len() as u64).expect("longer");
        file.write_all_at(b"one", 200_000).expect("written");
        let sum = sparse_sha256(&hole);
        assert_eq!(sparse_sha256(&zeros), sum);
        file.write_all_at(b"O", 200_000).expect("written");
        assert_ne!(sparse_sha256(&hole), sum);
        file.write_all_at(b"o", 200_000).expect("written");
        assert_eq!(sparse_sha256(&hole), sum);
        file.write_all_at(b"e", 299_999).expect("written");
        assert_ne!(sparse_sha256(&hole), sum);
        file.set_len(300_001).expect("longer");
        assert_ne!(sparse_sha256(&hole), sum);
    }

    #[test]
    fn base64_of_every_padding() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg", "foob")] {
            assert_eq!(base64_decode(text).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        assert_eq!(base64_decode("-/4="), None);
        assert_eq!(base64_decode("+/4="), Some(vec![0xfb, 0xfe]));
    }

    #[test]
    fn sha256_of_nothing() {
        assert!(sha256(b"").starts_with("e3b0c44298fc1c14"));
    }
}
