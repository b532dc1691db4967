//! Bytes in memory, kept in pages that exist only where data were written.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Bytes of a page: the unit in which memory is taken.
pub(super) const PAGE: u64 = 16 << 10;
/// A page that was never written.
static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];

/// A sparse array of bytes; unwritten pages do not exist. A clone shares the pages until one of the two is
/// written.
#[derive(Debug, Default, Clone)]
pub(super) struct SparseBytes {
    pages: HashMap<u64, Arc<[u8]>>,
}

/// The part of a range that lies in one page.
pub(super) struct Piece {
    /// Number of the page, counted from the start of the array.
    pub(super) page: u64,
    /// First byte in the page.
    pub(super) within: usize,
    /// First byte in the range.
    pub(super) start: usize,
    /// Number of bytes of the piece.
    pub(super) len: usize,
}

/// Cuts `len` bytes at `at` along the pages.
pub(super) fn pieces(at: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let left = len.checked_sub(start).filter(|left| *left > 0)?;
        let pos = at + start as u64;
        let within = (pos % PAGE) as usize;
        let take = left.min(PAGE as usize - within);
        let piece = Piece { page: pos / PAGE, within, start, len: take };
        start += take;
        Some(piece)
    })
}

impl SparseBytes {
    /// The page, if it was ever written.
    pub(super) fn get(&self, page: u64) -> Option<&[u8]> {
        self.pages.get(&page).map(|bytes| &**bytes)
    }

    /// Copies a range out; `missing` fills the parts without a page.
    pub(super) fn read<E>(
        &self,
        buf: &mut [u8],
        at: u64,
        mut missing: impl FnMut(&mut [u8], u64) -> Result<(), E>,
    ) -> Result<(), E> {
        for piece in pieces(at, buf.len()) {
            let out = &mut buf[piece.start..piece.start + piece.len];
            match self.get(piece.page) {
                Some(page) => out.copy_from_slice(&page[piece.within..piece.within + piece.len]),
                None => missing(out, at + piece.start as u64)?,
            }
        }
        Ok(())
    }

    /// Copies a range in; `missing` fills a page that is needed and not there, unless it is
    /// overwritten whole.
    pub(super) fn write<E>(
        &mut self,
        buf: &[u8],
        at: u64,
        mut missing: impl FnMut(&mut [u8], u64) -> Result<(), E>,
    ) -> Result<(), E> {
        for piece in pieces(at, buf.len()) {
            let bytes = &buf[piece.start..piece.start + piece.len];
            match self.pages.entry(piece.page) {
                Entry::Occupied(mut there) => match Arc::get_mut(there.get_mut()) {
                    Some(page) => page[piece.within..piece.within + piece.len].copy_from_slice(bytes),
                    None if bytes.len() == PAGE as usize => *there.get_mut() = bytes.into(),
                    None => Arc::make_mut(there.get_mut())[piece.within..piece.within + piece.len]
                        .copy_from_slice(bytes),
                },
                Entry::Vacant(place) if bytes.len() == PAGE as usize => {
                    place.insert(bytes.into());
                }
                Entry::Vacant(place) => {
                    let mut page: Arc<[u8]> = ZEROS[..].into();
                    let fresh = Arc::make_mut(&mut page);
                    missing(fresh, piece.page * PAGE)?;
                    fresh[piece.within..piece.within + piece.len].copy_from_slice(bytes);
                    place.insert(page);
                }
            }
        }
        Ok(())
    }

    /// Reads with zeros where nothing was written.
    pub(super) fn read_or_zero(&self, buf: &mut [u8], at: u64) {
        let zeros: Result<(), std::convert::Infallible> = self.read(buf, at, |out, _| {
            out.fill(0);
            Ok(())
        });
        let Ok(()) = zeros;
    }

    /// Writes into pages that start as zeros.
    pub(super) fn write_over_zero(&mut self, buf: &[u8], at: u64) {
        let written: Result<(), std::convert::Infallible> = self.write(buf, at, |_, _| Ok(()));
        let Ok(()) = written;
    }

    /// Drops the pages that lie wholly within a range and clears the rest of it.
    pub(super) fn clear(&mut self, at: u64, len: u64) {
        let end = at.saturating_add(len);
        self.pages.retain(|number, page| {
            let start = number * PAGE;
            let (from, to) = (at.clamp(start, start + PAGE), end.clamp(start, start + PAGE));
            if to - from == PAGE {
                return false;
            }
            if from < to {
                Arc::make_mut(page)[(from - start) as usize..(to - start) as usize].fill(0);
            }
            true
        });
    }
}
