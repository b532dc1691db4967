//! Writes images to volumes.

use std::io;

use crate::Error;
use crate::copy::meta::{Content, Segment, segments};
use crate::copy::tar::{Piece, read_in_blocks};
use crate::files::VolumeFile;

/// Why an image was not written, or only in part.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// The image is larger than the volume.
    #[error("the image has {image} bytes, the volume {volume}")]
    TooLarge {
        /// Size of the image in bytes.
        image: u64,
        /// Size of the volume in bytes.
        volume: u64,
    },
    /// The image cannot be read. The volume is unchanged from this offset on.
    #[error("cannot read the image at byte {at}")]
    Source {
        /// Offset of the read that failed, in bytes.
        at: u64,
        /// The read error.
        #[source]
        source: io::Error,
    },
    /// The callback ended the copy.
    #[error("interrupted: the volume has only a part of the image")]
    Stopped,
    /// The volume cannot be written.
    #[error(transparent)]
    Target(Box<Error>),
}

impl From<Error> for VolumeError {
    fn from(error: Error) -> VolumeError {
        VolumeError::Target(Box::new(error))
    }
}

/// Writes an image to the beginning of a volume; holes of the image become zeros. The volume is unchanged beyond
/// the end of the image. `wrote` is called for each piece; if it returns `false`, the copy ends. The data is
/// durable when the volume is synced.
///
/// # Errors
/// [`VolumeError`]; nothing is written if the image is too large.
pub fn write_volume(
    to: &VolumeFile,
    image: &dyn Content,
    wrote: &mut dyn FnMut(u64) -> bool,
) -> Result<(), VolumeError> {
    let size = image.size();
    if size > to.size() {
        return Err(VolumeError::TooLarge { image: size, volume: to.size() });
    }
    let whole = Segment { offset: 0, len: size };
    let map = segments(image).unwrap_or_else(|_| vec![whole]);
    let mut at = 0;
    for segment in map {
        zero(to, at, segment.offset)?;
        let mut failure = None;
        let read = read_in_blocks(image, segment, &mut |piece| match piece {
            Piece::Data(offset, bytes) => {
                if !wrote(bytes.len() as u64) {
                    failure = Some(VolumeError::Stopped);
                    return Err(io::ErrorKind::Other.into());
                }
                to.write_at(offset, bytes).map_err(|error| {
                    failure = Some(error.into());
                    io::ErrorKind::Other.into()
                })
            }
            Piece::Bad(range) => {
                failure = Some(VolumeError::Source { at: range.offset, source: range.error });
                Err(io::ErrorKind::Other.into())
            }
        });
        if let (Err(_), Some(failure)) = (read, failure) {
            return Err(failure);
        }
        at = segment.offset + segment.len;
    }
    zero(to, at, size)
}

fn zero(to: &VolumeFile, from: u64, until: u64) -> Result<(), VolumeError> {
    if from < until {
        to.write_zeroes(from, until - from)?;
    }
    Ok(())
}
