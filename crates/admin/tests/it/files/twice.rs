//! Defects that later free space of others are reported by `verify` and by the block count: a block with two
//! owners, and a wrong count of free space.

use cenote::inspect::{Check, CountedBy, blocks};
use cenote::verify::{Options, Report, verify};
use cenote::{Pool, PoolWriter};
use dmu::Tx;
use format::{BlockId, BlockPtr};
use zpl::ZplError;
use zpl::{CloneTable, FileRange};

use super::clones::noise;
use super::support::Image;

const SIZE: u64 = 512 << 20;

/// A clone table that records no references.
struct Forgetful;

impl CloneTable for Forgetful {
    fn note_source(&self, _: u64, _: &Tx) {}

    fn add(&self, _: &[BlockPtr], _: &Tx) -> Result<(), ZplError> {
        Ok(())
    }
}

/// A pool with a file of two blocks, on disk.
fn filled() -> (Image, PoolWriter) {
    let (image, writer) = Image::new(SIZE, &[]);
    let fs = writer.filesystem("p").unwrap();
    fs.write(b"/file", &noise(256 << 10, 1)).unwrap();
    fs.sync().unwrap();
    drop(fs);
    (image, writer)
}

fn pointer(writer: &PoolWriter, path: &[u8], block: u64) -> BlockPtr {
    let id = writer.filesystem("p").unwrap().resolve(path).unwrap();
    let head = writer.live().heads().open_by_name("p").unwrap();
    head.set.object(id).unwrap().pointer_on_disk(BlockId(block)).unwrap().unwrap()
}

/// A pointer of the same form to a place that is not allocated.
fn elsewhere(bp: &BlockPtr) -> BlockPtr {
    let mut words = *bp.words();
    words[1] = (SIZE * 3 / 4) >> 9;
    BlockPtr::from_words(words)
}

fn verified(pool: &Pool) -> Report {
    let report = verify(pool, &Options::default(), &());
    assert!(report.is_whole(), "everything can be read: {report:?}");
    assert_eq!(report.is_clean(), report.is_space_right());
    report
}

#[test]
fn a_block_that_two_files_own_is_told() {
    let (image, writer) = filled();
    let fs = writer.filesystem("p").unwrap();
    fs.write(b"/other", b"").unwrap();
    let range = |path: &[u8]| FileRange { id: fs.resolve(path).unwrap(), offset: 0 };
    let (from, to) = (range(b"/file"), range(b"/other"));
    assert_eq!(fs.fs().clone_range(fs.fs(), from, to, 128 << 10, &Forgetful).unwrap(), 128 << 10);
    drop(fs);
    writer.sync().unwrap();
    let twice = pointer(&writer, b"/file", 0);
    assert_eq!(pointer(&writer, b"/other", 0).dvas().next(), twice.dvas().next());
    writer.close().unwrap();
    let pool = image.read();
    let report = verified(&pool);
    assert!(!report.is_space_right());
    let space = report.space.unwrap().unwrap();
    let counted = blocks(&pool, Check::Nothing, true).unwrap().space.unwrap();
    for space in [space, counted] {
        assert_eq!((space.stray_count, space.miscount_count), (1, 0), "{space}");
        assert_eq!(space.strays[0].dvas().next(), twice.dvas().next());
        assert!(!space.matches() && space.to_string().contains("part of two blocks"), "{space}");
    }
}

#[test]
fn a_count_of_references_that_is_wrong_or_of_free_space_is_told() {
    for is_free in [true, false] {
        let (image, writer) = filled();
        let own = pointer(&writer, b"/file", 1);
        let counted = if is_free { elsewhere(&own) } else { own };
        let live = writer.live();
        assert!(live.brt().add_claim(&counted, live.txgs().open_txg()));
        writer.sync().unwrap();
        writer.close().unwrap();
        let pool = image.read();
        let report = verified(&pool);
        assert!(!report.is_space_right());
        let space = report.space.unwrap().unwrap();
        let found = blocks(&pool, Check::Nothing, true).unwrap().space.unwrap();
        for space in [space, found] {
            assert_eq!((space.stray_count, space.miscount_count), (0, 1), "{space}");
            let (one, place) = (space.miscounted[0], counted.dvas().next().unwrap());
            assert_eq!((one.by, one.vdev, one.offset), (CountedBy::CloneTable, place.vdev, place.offset));
            assert_eq!((one.counted, one.found), (2, u64::from(!is_free)), "{space}");
            assert!(!space.matches() && space.to_string().contains("references are counted"), "{space}");
        }
    }
}

#[test]
fn what_is_right_is_clean() {
    let (image, writer) = filled();
    writer.close().unwrap();
    assert!(verified(&image.read()).is_clean());
}
