//! Open handles during changes by others.

use super::support::{Images, noise};
use cenote::Pool;
use cenote_admin::PoolVerbs;
use cenote_admin::verbs::{Code, Refused};

const SIZE: u64 = 256 << 20;

#[test]
fn open_writers_follow_properties() {
    let images = Images::new();
    let pool = images.pool(SIZE, "a", &[]);
    pool.create_filesystem("p/fs", &[]).expect("made");
    let fs = pool.filesystem("p/fs").expect("opened");
    let block = |fs: &cenote::files::FilesystemWriter, name: &[u8]| {
        let file = fs.create(name).expect("made");
        file.write_at(0, &noise(1, 300_000)).expect("written");
        file.node().expect("readable").block_size()
    };
    assert_eq!(block(&fs, b"/a"), 128 << 10);
    pool.set("p/fs", &[("recordsize", "16k")]).expect("set");
    assert_eq!(block(&fs, b"/b"), 16 << 10, "of the same writer");
    let again = pool.filesystem("p/fs").expect("opened");
    assert_eq!(block(&again, b"/c"), 16 << 10, "of a second writer");
    pool.set("p", &[("recordsize", "32k")]).expect("set");
    assert_eq!(block(&fs, b"/d"), 16 << 10);
    pool.inherit("p/fs", "recordsize").expect("inherited");
    assert_eq!(block(&fs, b"/e"), 32 << 10, "from above");
    pool.set("p", &[("recordsize", "64k")]).expect("set");
    assert_eq!(block(&fs, b"/f"), 64 << 10, "set above");
    // Replaced by a rename.
    pool.create_filesystem("p/other", &[("recordsize", "8k")]).expect("made");
    pool.rename("p/fs", "p/other/fs").expect("renamed");
    assert_eq!(block(&fs, b"/g"), 8 << 10, "elsewhere");
    drop((fs, again));
    pool.close().expect("closed");
    images.judge();
}

#[test]
fn open_writers_follow_limits_of_owners() {
    let images = Images::new();
    let pool = images.pool(SIZE, "a", &[]);
    let fs = pool.filesystem("p").expect("opened").as_owner(77, 77);
    fs.write(b"/before", &noise(1, 2 << 20)).expect("written");
    fs.sync().expect("synced");
    pool.set("p", &[("userquota@77", "1M")]).expect("set");
    let error = fs.write(b"/after", &noise(2, 1 << 20)).expect_err("the limit is reached");
    let cause = std::error::Error::source(&error).expect("a cause").to_string();
    assert!(cause.contains("quota"), "{cause}");
    pool.set("p", &[("userquota@77", "none")]).expect("set");
    fs.write(b"/after", &noise(2, 1 << 20)).expect("written");
    drop(fs);
    pool.close().expect("closed");
    images.judge();
}

#[test]
fn open_volumes_follow_their_size() {
    let images = Images::new();
    let pool = images.pool(SIZE, "a", &[]);
    pool.create_volume("p/vol", 8 << 20, &[("volblocksize", "16k")]).expect("made");
    let volume = pool.volume("p/vol").expect("opened");
    volume.write_at((8 << 20) - 4096, &noise(3, 4096)).expect("written");
    volume.write_at(8 << 20, &[1]).expect_err("beyond the end");
    pool.set("p/vol", &[("volsize", "16M")]).expect("set");
    assert_eq!(volume.size(), 16 << 20);
    volume.write_at(12 << 20, &noise(4, 4096)).expect("inside now");
    pool.set("p/vol", &[("volsize", "10M")]).expect("set");
    assert_eq!(volume.size(), 10 << 20);
    volume.read_at(12 << 20, &mut [0; 10]).expect_err("beyond the end");
    drop(volume);
    pool.close().expect("closed");
    images.judge();
}

#[test]
fn read_only_from_now_on() {
    let images = Images::new();
    let pool = images.pool(SIZE, "a", &[]);
    let fs = pool.filesystem("p").expect("opened");
    let file = fs.create(b"/a").expect("made");
    pool.set("p", &[("readonly", "on")]).expect("set");
    file.write_at(0, b"x").expect_err("read-only");
    fs.create(b"/b").expect_err("read-only");
    fs.remove(b"/a").expect_err("read-only");
    pool.filesystem("p").expect_err("read-only");
    pool.set("p", &[("readonly", "off")]).expect("set");
    fs.remove(b"/a").expect("removed");
    drop((fs, file));
    pool.close().expect("closed");
}

#[test]
fn what_is_open_is_not_destroyed() {
    let images = Images::new();
    let pool = images.pool(SIZE, "a", &[]);
    pool.create_filesystem("p/fs", &[]).expect("made");
    pool.snapshot(&["p/fs@a"]).expect("taken");
    let fs = pool.filesystem("p/fs").expect("opened");
    fs.write(b"/x", b"1").expect("written");
    assert_eq!(pool.rollback("p/fs@a").expect_err("it is open").reason().code, Code::Busy);
    let stopped = pool.destroy_all_below("p/fs").expect_err("it is open");
    assert_eq!(stopped.reason().code, Code::Busy, "{stopped:?}");
    // A rename is allowed, and the writers keep working.
    pool.rename("p/fs", "p/moved").expect("renamed");
    fs.write(b"/x", b"22").expect("written");
    assert!(matches!(pool.filesystem("p/fs"), Err(cenote::Error::Dsl(_))));
    assert_eq!(pool.filesystem("p/moved").expect("there").read(b"/x").expect("read"), b"22");
    drop(fs);
    pool.destroy_all_below("p/moved").expect("nobody has it");
    pool.close().expect("closed");
    images.judge();
}

#[test]
fn a_view_is_the_last_txg_and_a_writer_the_newest_state() {
    let images = Images::new();
    let pool = images.pool(SIZE, "a", &[]);
    let fs = pool.filesystem("p").expect("opened");
    fs.write(b"/x", b"old").expect("written");
    fs.sync().expect("synced");
    let view = pool.view().expect("a view");
    let read = |view: &Pool| {
        let node = view.dataset("p").expect("there").filesystem().expect("files").open(b"/x").expect("there");
        let mut bytes = [0; 8];
        let n = node.read_at(0, &mut bytes).expect("readable");
        bytes[..n].to_vec()
    };
    fs.write(b"/x", b"newer").expect("written");
    let newest = fs.reader().resolve(b"/x").expect("readable").expect("there");
    let mut bytes = [0; 8];
    assert_eq!(newest.read_at(0, &mut bytes).expect("readable"), 5);
    assert_eq!(&bytes[..5], b"newer");
    fs.sync().expect("synced");
    assert_eq!(read(&pool.view().expect("a view")), b"newer");
    // The old view stays valid for two more txgs.
    assert_eq!(read(&view), b"old");
    drop((fs, newest));
    pool.close().expect("closed");
}

#[test]
fn one_process_opens_a_pool_once_for_writing() {
    let images = Images::new();
    let pool = images.pool(SIZE, "a", &[]);
    let second = Pool::open_rw("p", &images.search()).expect_err("it is open");
    assert!(second.to_string().contains("p") || second.to_string().contains("in use"), "{second}");
    // The pool is still usable.
    pool.filesystem("p").expect("opened").write(b"/x", b"1").expect("written");
    pool.close().expect("closed");
    images.open_rw().close().expect("closed");
    images.judge();
}

#[test]
fn handles_of_a_closed_pool_say_so() {
    let images = Images::new();
    let pool = images.pool(SIZE, "a", &[]);
    let fs = pool.filesystem("p").expect("opened");
    let file = fs.create(b"/x").expect("made");
    file.write_at(0, b"kept").expect("written");
    pool.close().expect("closed, whoever still has handles");
    let error = file.write_at(0, b"late").expect_err("closed");
    assert!(format!("{error:?}").contains("Closed"), "{error:?}");
    // Closing has synced the earlier writes.
    file.sync().expect("nothing is left to be synced");
    assert!(fs.sync().is_err());
    // The last handle releases the devices.
    Pool::open_rw("p", &images.search()).expect_err("still in use");
    drop((file, fs));
    let again = images.open_rw();
    assert_eq!(again.filesystem("p").expect("opened").read(b"/x").expect("read"), b"kept");
    again.close().expect("closed");
    images.judge();
}

#[test]
fn dropped_pools_are_exported() {
    let images = Images::new();
    let pool = images.pool(SIZE, "a", &[]);
    pool.filesystem("p").expect("opened").write(b"/x", b"kept").expect("written");
    drop(pool);
    let read = Pool::open("p", &images.search()).expect("exported");
    read.dataset("p").expect("there").filesystem().expect("files").open(b"/x").expect("kept");
    images.judge();
}

#[test]
fn a_panic_in_a_task_does_not_take_the_process_along() {
    let images = Images::new();
    let pool = images.pool(SIZE, "a", &[]);
    let fs = pool.filesystem("p").expect("opened");
    fs.write(b"/x", b"kept").expect("written");
    fs.sync().expect("synced");
    let file = fs.open_file(b"/x").expect("there");
    // A panic in a thread that writes leaves the pool usable.
    let thread = std::thread::spawn(move || {
        file.write_at(0, b"KEPT").expect("written");
        panic!("on purpose");
    });
    assert!(thread.join().is_err());
    fs.write(b"/y", b"after").expect("written");
    fs.sync().expect("synced");
    drop(fs);
    pool.close().expect("closed");
    images.judge();
}

/// When a file system is opened again, the log of its previous writer is not replayed.
#[test]
fn a_file_system_is_opened_again_after_an_fsync() {
    let images = Images::new();
    let pool = images.pool(SIZE, "a log b", &[]);
    pool.create_volume("p/vol", 1 << 20, &[]).expect("made");
    for i in 0..20_u64 {
        let fs = pool.filesystem("p").expect("opened");
        let file = fs.create(format!("/{i}").as_bytes()).expect("made");
        file.write_at(0, &noise(i, 3000)).expect("written");
        file.sync().expect("durable");
        let volume = pool.volume("p/vol").expect("opened");
        volume.write_at(i * 512, &noise(i, 512)).expect("written");
        volume.flush().expect("durable");
        if i % 3 == 0 {
            pool.sync().expect("synced");
        }
    }
    pool.close().expect("closed");
    images.judge();
}

/// The example is run as a test; `cargo test` builds it with the tests.
#[test]
fn the_example_runs() {
    let dir = tempfile::tempdir().expect("a folder");
    let own = std::env::current_exe().expect("this program");
    let example =
        own.parent().and_then(|deps| deps.parent()).expect("the target folder").join("examples/tank");
    if !example.exists() {
        return testkit::skip("the example tank was not built");
    }
    let output = std::process::Command::new(example).arg(dir.path()).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text} {}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("written by thread 0") && text.contains("tank/disk"), "{text}");
}
