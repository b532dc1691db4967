//! Healing an existing snapshot with a stream of it: blocks whose copies are damaged are written again, in place
//! (docs/on-disk/30-send-streams.md, section 9).
//!
//! # What always holds
//! - Only bytes that match the checksum of a block's pointer are written, and only over copies that do not.
//! - Blocks that cannot be made from the stream exactly as they were stored stay damaged, and are counted.

use super::{Receive, ReceiveError, Received, Watch};
use crate::PoolWriter;
use codec::compress::{compress, decompress};
use dmu::ObjSet;
use dsl::Dataset;
use format::stream::{Begin, Record, Write};
use format::{BlockId, BlockPtr, BpKind, CompressionId, Level};
use std::io::Read;
use std::sync::Arc;
use stream::{Frame, Reader, StreamError};
use zio::ReadPolicy;

/// The highest level of zstd, and of the other algorithms none.
const ZSTD_LEVELS: i32 = 19;

impl PoolWriter {
    /// Heals the snapshot that the stream was made of.
    pub(super) fn heal<R: Read>(
        &self,
        start: &Begin,
        reader: &mut Reader<R>,
        how: &Receive,
        watch: &mut dyn Watch,
    ) -> Result<Received, ReceiveError> {
        let view = self.view()?;
        let snapshot = find(view.dsl(), how, start.to_guid)?;
        let held = self.live().heads().hold_snapshot(snapshot.id(), &snapshot.phys().bp)?;
        let set = snapshot.objset(dmu::KeyState::Locked)?;
        let mut received = Received::default();
        loop {
            match reader.next_frame()? {
                None => return Err(StreamError::Cut { at: reader.position() }.into()),
                Some(Frame { header, payload, .. }) => match header.record {
                    Record::End(_) => break,
                    Record::Write(write) => heal_block(&set, &write, &payload, &mut received),
                    _ => {}
                },
            }
            watch.bytes(reader.position());
        }
        drop(held);
        received.bytes = reader.position();
        Ok(received)
    }
}

/// The snapshot with this guid, of the dataset that is to be healed.
fn find(dsl: &dsl::Dsl, how: &Receive, guid: u64) -> Result<Dataset, ReceiveError> {
    let missing = || ReceiveError::Missing(how.dataset.clone());
    let head = dsl.dir(&how.dataset)?.head()?.ok_or_else(missing)?;
    let found = head.snapshots()?.into_iter().find(|snapshot| snapshot.phys().guid == guid);
    found.ok_or(ReceiveError::NoSource)
}

/// Heals one block, if its snapshot has it and it is damaged.
fn heal_block(set: &Arc<ObjSet>, write: &Write, payload: &[u8], received: &mut Received) {
    let Some(bp) = pointer_of(set, write) else { return };
    let zio = set.store().zio();
    let checked = zio.check(&bp, &ReadPolicy::SCRUB);
    if checked.data.is_ok() {
        // A scrub of one block: other copies were repaired from the good one.
        return;
    }
    let is_healed = images(&bp, write, payload).into_iter().any(|image| zio.rewrite(&bp, &image));
    if is_healed {
        received.healed += 1;
    } else {
        received.unhealed += 1;
    }
}

/// The pointer to the block that a record holds, if the block is stored by itself.
fn pointer_of(set: &Arc<ObjSet>, write: &Write) -> Option<BlockPtr> {
    let object = set.object(write.object).ok()?;
    let size = object.dnode().data_block_size();
    if size != write.logical_size || !write.offset.is_multiple_of(size) {
        return None;
    }
    let bp = object.block_ptr(Level(0), BlockId(write.offset / size)).ok()?;
    (bp.kind() == BpKind::Normal).then_some(bp)
}

/// What the stored block may have been: as it was sent, or compressed as its pointer says.
fn images(bp: &BlockPtr, write: &Write, payload: &[u8]) -> Vec<Vec<u8>> {
    let psize = bp.psize().0 as usize;
    let Ok(wanted) = bp.compression() else { return Vec::new() };
    let sent = match write.compression {
        0 => CompressionId::Off,
        id => CompressionId::from_id(id).unwrap_or(CompressionId::Off),
    };
    let mut images = Vec::new();
    if sent == wanted && payload.len() == psize {
        images.push(payload.to_vec());
    }
    let mut plain = vec![0; write.logical_size as usize];
    if bp.uses_crypt() || decompress(sent, payload, &mut plain).is_err() {
        return images;
    }
    if wanted == CompressionId::Off {
        images.push(plain);
        return images;
    }
    let levels = if wanted == CompressionId::Zstd { 1..=ZSTD_LEVELS } else { 0..=0 };
    for level in levels {
        if let Some(mut image) = compress(wanted, level, &plain, psize) {
            image.resize(psize, 0);
            images.push(image);
        }
    }
    images
}
