//! Model test of volumes against an array.

use super::world::{new_set, reopened, sync};
use cenote_zpl::Volume;
use cenote_zpl::{Backing, VolumeWriter, make_volume};
use dmu::Limits;
use format::objset::ObjsetType;
use std::sync::Arc;
use vdev::env::{Env, Random};

#[test]
fn a_volume_reads_what_was_written() {
    let (env, _) = Env::simulated(1);
    let (store, home, tx) = new_set(ObjsetType::Zvol, Limits::default());
    let size = 4 << 20;
    make_volume(home.set(), size, 16 << 10, &env, &tx).expect("made");
    assert!(make_volume(home.set(), 1000, 16 << 10, &env, &tx).is_err());
    drop(tx);
    let volume = VolumeWriter::open(Arc::clone(&home) as Arc<dyn Backing>).expect("opened");
    let mut model = vec![0_u8; size as usize];
    let mut random = Random::from_seed(5);
    for round in 0..200 {
        let offset = random.below(size - 1);
        let len = (random.below(100_000) + 1).min(size - offset);
        match random.below(4) {
            0 => {
                volume.write_zeroes(offset, len).expect("zeroed");
                model[offset as usize..(offset + len) as usize].fill(0);
            }
            1 => {
                volume.trim(offset, len).expect("trimmed");
                let start = offset.next_multiple_of(16 << 10);
                let end = (offset + len) / (16 << 10) * (16 << 10);
                if start < end {
                    model[start as usize..end as usize].fill(0);
                }
            }
            _ => {
                let mut data = vec![0; len as usize];
                random.fill(&mut data);
                volume.write_at(offset, &data).expect("written");
                model[offset as usize..(offset + len) as usize].copy_from_slice(&data);
            }
        }
        if round % 20 == 19 {
            sync(&store, &home);
            let read = Volume::open(&reopened(&store, &home)).expect("a volume");
            let mut bytes = vec![0; size as usize];
            read.read_at(0, &mut bytes).expect("read");
            assert!(bytes == model, "round {round}");
        }
    }
    assert!(volume.write_at(size - 1, &[1, 2]).is_err());
    volume.set_size(2 << 20).expect("smaller");
    assert!(volume.set_size(1000).is_err());
    sync(&store, &home);
    volume.free_beyond().expect("freed");
    volume.set_size(3 << 20).expect("larger");
    sync(&store, &home);
    let read = Volume::open(&reopened(&store, &home)).expect("a volume");
    assert_eq!(read.size(), 3 << 20);
    let mut bytes = vec![0; 3 << 20];
    read.read_at(0, &mut bytes).expect("read");
    model[2 << 20..].fill(0);
    assert!(bytes == model[..3 << 20]);
}
