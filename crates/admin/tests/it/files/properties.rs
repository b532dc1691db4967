//! Changed properties take effect at once in open file systems and volumes.

use cenote::files::{Allocate, BeginError, XattrHow, ZplError};
use cenote::{Error, PoolWriter};
use cenote_admin::Owner;
use cenote_admin::edit::values::Setting;
use cenote_admin::edit::{self, NewDataset, NewKind};
use dmu::RedundantMetadata;
use dsl::SyncMode;
use dsl::prop;
use dsl::prop::PropValue;
use format::acl::{PosixEntry, PosixWho};
use format::{ChecksumId, CompressionId};
use pool::space::Class;
use zpl::AccessTimes;

use super::support::Image;

const SIZE: u64 = 256 << 20;

fn set(writer: &PoolWriter, name: &'static str, prop: &'static str, value: u64) {
    let done = writer.run(move |ctx| prop::change::set(ctx, name, prop, &PropValue::Number(value)));
    done.unwrap_or_else(|error| panic!("{prop}={value}: {error}"));
}

fn is_read_only<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Path { source: ZplError::Begin(BeginError::ReadOnly), .. }))
}

#[test]
fn what_decides_how_blocks_are_written() {
    let (image, writer) = Image::new(SIZE, &[]);
    let fs = writer.filesystem("p").unwrap();
    let policy = || fs.fs().set().policy();
    set(&writer, "p", "compression", 400);
    assert_eq!((policy().compression, policy().level), (CompressionId::Zstd, 3));
    set(&writer, "p", "checksum", 8);
    assert_eq!(policy().checksum, ChecksumId::Sha256);
    set(&writer, "p", "copies", 2);
    assert_eq!(policy().copies, 2);
    set(&writer, "p", "redundant_metadata", 1);
    assert_eq!(policy().redundant_metadata, RedundantMetadata::Most);
    set(&writer, "p", "special_small_blocks", 4096);
    assert_eq!(policy().special_small_blocks, 4096);
    writer.run(|ctx| prop::change::inherit(ctx, "p", "copies", false)).unwrap();
    assert_eq!(policy().copies, 1);

    // Existing files keep their block size.
    let whole = vec![7; 256 << 10];
    fs.write(b"/old", &whole).unwrap();
    set(&writer, "p", "recordsize", 1 << 20);
    fs.write(b"/new", &whole).unwrap();
    fs.open_file(b"/old").unwrap().append(&whole).unwrap();
    let block = |path: &[u8]| fs.node(fs.resolve(path).unwrap()).unwrap().block_size();
    assert_eq!((block(b"/old"), block(b"/new")), (128 << 10, 256 << 10));
    set(&writer, "p", "recordsize", 4096);
    fs.write(b"/small", &whole).unwrap();
    fs.open_file(b"/new").unwrap().append(&whole).unwrap();
    assert_eq!((block(b"/small"), block(b"/new")), (4096, 256 << 10));
    set(&writer, "p", "dnodesize", 2048);
    let made = fs.create(b"/slots").unwrap();
    assert_eq!(made.node().unwrap().object().dnode().slots(), 4);
    drop((made, fs));
    writer.close().unwrap();
    image.judge();
}

#[test]
fn what_decides_how_files_are_changed() {
    let (image, writer) = Image::new(SIZE, &[]);
    let fs = writer.filesystem("p").unwrap();
    let other = writer.filesystem("p").unwrap();
    let file = fs.create(b"/file").unwrap();
    let times = || fs.fs().options().access_times;
    set(&writer, "p", "atime", 0);
    assert_eq!(times(), AccessTimes::Never);
    set(&writer, "p", "atime", 1);
    set(&writer, "p", "relatime", 0);
    assert_eq!(times(), AccessTimes::Always);
    set(&writer, "p", "relatime", 1);
    assert_eq!(times(), AccessTimes::Relative);

    let tag = |value: &[u8]| fs.set_xattr(b"/file", b"user.tag", value, XattrHow::Either);
    tag(b"1").unwrap();
    set(&writer, "p", "xattr", 0);
    assert!(tag(b"2").is_err());
    set(&writer, "p", "xattr", 1);
    tag(b"3").unwrap();
    assert!(fs.attrs(b"/file").unwrap().xattr_dir.is_some());

    let entry = |who, perm| PosixEntry { who, perm };
    let acl = [
        entry(PosixWho::UserObj, 6),
        entry(PosixWho::User(7), 4),
        entry(PosixWho::GroupObj, 4),
        entry(PosixWho::Mask, 4),
        entry(PosixWho::Other, 0),
    ];
    assert!(fs.set_acl(b"/file", &acl, false).is_err());
    set(&writer, "p", "acltype", 1);
    fs.set_acl(b"/file", &acl, false).unwrap();

    set(&writer, "p", "readonly", 1);
    assert!(is_read_only(&file.write_at(0, b"no")));
    assert!(is_read_only(&file.allocate(0, 10, Allocate::Punch)));
    assert!(is_read_only(&fs.create(b"/other")));
    assert!(is_read_only(&other.remove(b"/file")));
    assert!(writer.filesystem("p").is_err());
    assert_eq!(fs.read(b"/file").unwrap(), b"");
    set(&writer, "p", "readonly", 0);
    file.write_at(0, b"yes").unwrap();
    // A file without names is freed, whatever the property is by then.
    other.remove(b"/file").unwrap();
    set(&writer, "p", "readonly", 1);
    let id = file.id();
    drop(file);
    assert!(matches!(fs.fs().attrs(id), Err(ZplError::Stale { .. })));
    drop((fs, other));
    writer.close().unwrap();
    image.judge();
}

#[test]
fn limits_of_owners() {
    let (_image, writer) = Image::new(SIZE, &[]);
    let fs = writer.filesystem("p").unwrap().as_owner(5, 6);
    fs.create(b"/one").unwrap();
    fs.sync().unwrap();
    let limit = |limit| {
        let setting = Setting::OwnerLimit { owner: Owner::User, id: 5, objects: true, limit };
        edit::set(&writer, "p", &[setting]).unwrap();
    };
    limit(1);
    let refused = fs.create(b"/two");
    assert!(matches!(refused, Err(Error::Path { source: ZplError::OverQuota { id: 5, .. }, .. })));
    limit(0);
    fs.create(b"/two").unwrap();
}

#[test]
fn volumes_hear_of_them_too() {
    let (image, writer) = Image::new(SIZE, &[]);
    let kind = NewKind::Volume { size: 4 << 20, sparse: true };
    edit::create(&writer, &NewDataset { kind, ..NewDataset::filesystem("p/v") }).unwrap();
    let volume = writer.volume("p/v").unwrap();
    volume.write_at(0, &[1; 8192]).unwrap();
    set(&writer, "p/v", "readonly", 1);
    assert!(is_read_only(&volume.write_at(0, &[2; 8192])));
    assert!(is_read_only(&volume.trim(0, 1 << 20)));
    writer.run(|ctx| prop::change::inherit(ctx, "p/v", "readonly", false)).unwrap();
    volume.write_at(3 << 20, &[3; 8192]).unwrap();

    // The size takes effect too, and is durable at once.
    edit::set(&writer, "p/v", &[Setting::VolumeSize(2 << 20)]).unwrap();
    assert_eq!(volume.size(), 2 << 20);
    assert_eq!(writer.view().unwrap().dataset("p/v").unwrap().volume().unwrap().size(), 2 << 20);
    assert!(volume.write_at(3 << 20, &[3; 8192]).is_err());
    volume.set_size(8 << 20).unwrap();
    assert_eq!(writer.view().unwrap().dataset("p/v").unwrap().volume().unwrap().size(), 8 << 20);
    let mut there = [9; 8192];
    volume.read_at(3 << 20, &mut there).unwrap();
    assert_eq!(there, [0; 8192]);
    drop(volume);
    writer.close().unwrap();
    image.judge();
}

/// A commit makes changes durable that were made while logging was off.
#[test]
fn commits_count_again() {
    let (_image, writer) = Image::new(SIZE, &[]);
    let fs = writer.filesystem("p").unwrap();
    let mode = || fs.pool().heads().open_by_name("p").unwrap().sync_mode();
    set(&writer, "p", "sync", 1);
    assert_eq!(mode(), SyncMode::Always);
    set(&writer, "p", "sync", 2);
    let file = fs.create(b"/file").unwrap();
    file.write_at(0, b"in memory only").unwrap();
    let before = fs.pool().txgs().synced_txg();
    file.sync().unwrap();
    assert_eq!(fs.pool().txgs().synced_txg(), before);
    // The property is set in the txg in which the file was created; its commit still has to wait.
    set(&writer, "p", "sync", 0);
    file.write_at(0, b"more").unwrap();
    file.sync().unwrap();
    let there = writer.view().unwrap().dataset("p").unwrap().filesystem().unwrap().open(b"/file");
    assert_eq!(there.unwrap().attrs().size, 14);
}

#[test]
fn log_devices_are_left_alone() {
    let (image, writer) = Image::of(&[("disk", Class::Normal), ("log", Class::Log)], SIZE, &[]);
    let fs = writer.filesystem("p").unwrap();
    let file = fs.create(b"/file").unwrap();
    let at = || {
        for _ in 0..3 {
            file.write_at(0, b"x").unwrap();
            file.sync().unwrap();
            fs.sync().unwrap();
        }
        fs.fs().set().zil_header().log.dvas().next().unwrap().vdev.0
    };
    assert_eq!(at(), 1);
    set(&writer, "p", "logbias", 1);
    assert_eq!(at(), 0);
    set(&writer, "p", "logbias", 0);
    assert_eq!(at(), 1);
    drop((file, fs));
    writer.close().unwrap();
    image.judge();
}
