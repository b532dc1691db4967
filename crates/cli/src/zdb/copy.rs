//! `zdb -r`: copies the bytes of a file of a pool into a file outside.
//!
//! # What always holds
//! - Only the named destination is written; it is made, or emptied, only after the file was found.
//! - Holes of the file are holes of the copy: no more bytes are written than are stored.

use super::chain;
use admin::debug::{Object, segments};
use cenote::{Error, Pool};
use format::BlockId;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::ExitCode;

/// Copies the file at `path` of a dataset. The exit code is an error number if the destination is at fault.
#[allow(clippy::disallowed_types)] // The copy is a file of the user's, no device.
pub(super) fn copy(
    pool: &Pool,
    dataset: &str,
    path: &str,
    target: &str,
    out: &mut dyn Write,
) -> io::Result<ExitCode> {
    let (object, size) = match find(pool, dataset, path) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(lookup_failed(dataset, path, "No such file or directory")),
        Err(error) => return Ok(lookup_failed(dataset, path, &chain(&error))),
    };
    let id = object.id();
    writeln!(out, "Copying object {id} to file {target}")?;
    writeln!(out, "Object {id} is {size} bytes")?;
    let written = std::fs::File::create(Path::new(target)).and_then(|mut file| {
        copy_blocks(&object, size, &mut file)?;
        // A hole at the end is part of the size as well.
        file.set_len(size)
    });
    match written {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("zdb: can't copy to '{target}': {}", chain(&error));
            Ok(ExitCode::from(error.raw_os_error().and_then(|errno| u8::try_from(errno).ok()).unwrap_or(1)))
        }
    }
}

fn lookup_failed(dataset: &str, path: &str, why: &str) -> ExitCode {
    eprintln!("failed to lookup dataset={dataset} path=/{path}: {why}");
    super::Verdict::Failed.into()
}

/// The object at a path, relative to the root of the dataset, and the size of the file.
fn find(pool: &Pool, dataset: &str, path: &str) -> Result<Option<(Object, u64)>, Error> {
    if path.starts_with('/') {
        return Ok(None);
    }
    let files = pool.dataset(dataset)?.filesystem()?;
    let Some(node) = files.filesystem().resolve(path.as_bytes())? else { return Ok(None) };
    Ok(Some((node.object().clone(), node.attrs().size)))
}

/// Writes the stored blocks of the first `size` bytes of an object to their places.
fn copy_blocks(object: &Object, size: u64, to: &mut (impl Write + Seek)) -> io::Result<()> {
    let block_size = object.block_size().max(1);
    for segment in segments(object).map_err(|error| io::Error::other(chain(&error)))? {
        let end = segment.end.min(size);
        let mut at = segment.start - segment.start % block_size;
        while at < end {
            let block = object.block(BlockId(at / block_size));
            if let Some(block) = block.map_err(|error| io::Error::other(chain(&error)))? {
                let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(block.bytes().len());
                to.seek(SeekFrom::Start(at))?;
                to.write_all(block.bytes().get(..wanted).unwrap_or_default())?;
            }
            at = at.saturating_add(block_size);
        }
    }
    Ok(())
}
