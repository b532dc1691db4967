//! Unpacks `images.zst` into one sparse file for each vdev.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::bytes::{hex, is_zero};
use crate::manifest::Image;

/// Binary logarithm of the window with which the images were packed.
const WINDOW_LOG: u32 = 27;

/// A run of zeros of this length and alignment becomes a hole: the block size of common file systems.
const HOLE: usize = 4096;

/// A decoder for the packed stream in `file`.
pub(crate) fn decoder(file: File) -> io::Result<zstd::stream::read::Decoder<'static, BufReader<File>>> {
    let mut decoder = zstd::stream::read::Decoder::new(file)?;
    decoder.window_log_max(WINDOW_LOG)?;
    Ok(decoder)
}

/// Writes every image of `images` (ascending and adjacent, as in the manifest) from the packed
/// stream at `packed` into `folder`, which exists.
pub(crate) fn unpack(packed: &Path, images: &[Image], folder: &Path) -> io::Result<()> {
    let mut stream = decoder(File::open(packed)?)?;
    let mut at = 0;
    for image in images {
        if image.offset != at {
            return Err(io::Error::other(format!("{} does not follow its predecessor", image.name)));
        }
        sparse_copy(&mut stream, image.size, &folder.join(&image.name))?;
        at += image.size;
    }
    match stream.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(io::Error::other("more bytes than the manifest names")),
    }
}

/// Copies `size` bytes of `from` into a new file, leaving holes for zeros.
pub(crate) fn sparse_copy(from: &mut dyn Read, size: u64, to: &Path) -> io::Result<()> {
    let mut file = File::create_new(to)?;
    file.set_len(size)?;
    let mut chunk = vec![0; 1 << 20];
    let mut left = size;
    while left > 0 {
        let take = left.min(chunk.len() as u64) as usize;
        from.read_exact(&mut chunk[..take])?;
        write_data(&mut file, &chunk[..take])?;
        left -= take as u64;
    }
    Ok(())
}

/// Writes the parts of `bytes` that are not zero, and moves the file's position past all of them.
fn write_data(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    for run in bytes.chunks(HOLE).collect::<Vec<_>>().chunk_by(|a, b| is_zero(a) == is_zero(b)) {
        let length: usize = run.iter().map(|block| block.len()).sum();
        if is_zero(run[0]) {
            file.seek(SeekFrom::Current(length as i64))?;
        } else {
            for block in run {
                file.write_all(block)?;
            }
        }
    }
    Ok(())
}

/// SHA-256 of a whole file, hexadecimal.
pub(crate) fn sha256_of_file(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 1 << 20];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hex(&hash.finalize())),
            n => hash.update(&chunk[..n]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn zeros_become_holes_and_data_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut bytes = vec![0u8; 3 << 20];
        bytes[5] = 1;
        bytes[(2 << 20) + 4095] = 2;
        bytes.push(7);
        let path = folder.path().join("image");
        sparse_copy(&mut bytes.as_slice(), bytes.len() as u64, &path).expect("copied");
        assert_eq!(std::fs::read(&path).expect("readable"), bytes);
        assert!(std::fs::metadata(&path).expect("there").blocks() * 512 < 1 << 20);
        assert_eq!(sha256_of_file(&path).expect("readable"), crate::sha256(&bytes));
    }
}
