//! Pools that stay open in a process, and the verbs of several callers on them.

use cenote::{OpenOptions, Pool, PoolWriter};
use cenote_admin::PoolVerbs;
use cenote_admin::change::{ChangeError, ImportRequest, importable};
use cenote_admin::edit::{self, CloneSpec, EditError, Grant, NewDataset, Scope, Who};
use cenote_admin::verbs::zfs::allow::Holder;
use cenote_admin::verbs::zfs::{allowed, destroy, hold, mount, set};
use cenote_admin::verbs::zpool;
use cenote_admin::verbs::{Code, Reason, Refused, Verb};
use cenote_admin::{
    Caller, ImportSettings, Imported, MountError, MountOptions, Mounted, Mounts, Namespace, Search, Session,
    Unmount, open_pools, settle,
};
use format::config::PoolState;
use pool::ImportOptions;
use pool::LivePool;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

/// Environment variable that tells a test that it runs in a process of its own, with its own state directory.
const INNER: &str = "CENOTE_TEST_INNER";
const MIB: u64 = 1 << 20;
/// User id of a user who is not an administrator.
const JOE: u32 = 54321;

/// Runs a test in a process of its own: where the cache file is, the environment tells.
fn alone(name: &str, body: impl FnOnce(&TestFolder)) {
    if std::env::var_os(INNER).is_some() {
        let folder = std::env::var_os("CENOTE_STATE").expect("set below");
        return body(&TestFolder { folder: Path::new(&folder).to_owned() });
    }
    let folder = tempfile::tempdir().expect("a folder");
    let test = std::env::current_exe().expect("this program");
    let run = Command::new(test)
        .args(["--exact", &format!("namespace::{name}"), "--nocapture", "--test-threads=1"])
        .env(INNER, "1")
        .env("CENOTE_STATE", folder.path())
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{text}");
}

/// A folder for devices and the cache file.
struct TestFolder {
    folder: std::path::PathBuf,
}

impl TestFolder {
    #[allow(clippy::disallowed_types)] // An image file.
    fn file(&self, name: &str) -> String {
        let path = self.folder.join(name);
        std::fs::File::create(&path).and_then(|file| file.set_len(256 * MIB)).expect("a file");
        path.to_str().expect("plain names").to_owned()
    }

    /// A search with a new namespace.
    fn search(&self) -> Search {
        Search {
            paths: vec![self.folder.clone()],
            namespace: Some(Namespace::new(None)),
            ..Search::default()
        }
    }

    /// A search with a new namespace that has a pool `p`.
    fn pool(&self) -> Search {
        let search = self.search();
        run(&search, &self.describe("p")).expect("a pool");
        search
    }

    fn describe(&self, name: &str) -> zpool::create::Request {
        zpool::create::Request {
            name: name.to_owned(),
            vdevs: vec!["mirror".to_owned(), self.file(&format!("{name}0")), self.file(&format!("{name}1"))],
            // Whatever there is at its usual place.
            mountpoint: Some("legacy".to_owned()),
            ..zpool::create::Request::default()
        }
    }

    fn judge(&self, pool: &str) {
        testkit::assert_zdb_clean(&self.folder, pool);
    }
}

/// Mounts that exist in a list only. `meanwhile` runs once, at the next step of the kind that it is for.
#[derive(Default)]
struct ListedMounts {
    all: Mutex<Vec<Mounted>>,
    meanwhile: Mutex<Option<(Step, Meanwhile)>>,
}

type Meanwhile = Box<dyn FnOnce(&ListedMounts) + Send>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Mount,
    RemoveFolder,
}

impl ListedMounts {
    fn at(&self, step: Step) {
        let meanwhile = self.meanwhile.lock().expect("no panic").take_if(|(of, _)| *of == step);
        if let Some((_, meanwhile)) = meanwhile {
            meanwhile(self);
        }
    }

    fn push(&self, dataset: &str, at: &Path) {
        let options = MountOptions::default();
        let mounted = Mounted { dataset: dataset.to_owned(), at: at.to_owned(), options };
        self.all.lock().expect("no panic").push(mounted);
    }

    fn places(&self) -> Vec<(String, String)> {
        self.list().iter().map(|mount| (mount.dataset.clone(), mount.at.display().to_string())).collect()
    }
}

impl Mounts for ListedMounts {
    fn list(&self) -> Vec<Mounted> {
        self.all.lock().expect("no panic").clone()
    }

    fn below(&self, _: &Path) -> Vec<Mounted> {
        Vec::new()
    }

    fn make_folder(&self, _: &Path) -> std::io::Result<()> {
        Ok(())
    }

    fn remove_folder(&self, _: &Path) {
        self.at(Step::RemoveFolder);
    }

    fn mount(&self, _: &Arc<LivePool>, dataset: &str, at: &Path, _: &MountOptions) -> Result<(), MountError> {
        self.at(Step::Mount);
        self.push(dataset, at);
        Ok(())
    }

    fn unmount(&self, dataset: &str, _: Unmount) -> Result<(), MountError> {
        self.all.lock().expect("no panic").retain(|mount| mount.dataset != dataset);
        Ok(())
    }

    fn remount(&self, _: &str, _: &MountOptions) -> Result<(), MountError> {
        Ok(())
    }

    fn write_back(&self, _: &str) -> Result<(), MountError> {
        Ok(())
    }

    fn renamed(&self, _: &str, _: &str) {}
}

fn namespace(search: &Search) -> &Arc<Namespace> {
    search.namespace.as_ref().expect("these verbs have one")
}

fn by(search: &Search, uid: u32) -> Search {
    let caller = Some(Caller { uid, gid: uid, groups: vec![uid + 1] });
    Search { caller, ..search.clone() }
}

/// Runs a verb in a session of its own.
fn run<V: Verb>(search: &Search, request: &V) -> Result<V::Answer, V::Refusal> {
    Session::of_command(search.clone(), V::NAME).run(request)
}

fn export(search: &Search, pool: &str) -> Result<(), zpool::Refusal> {
    run(search, &zpool::export::Request { pool: pool.to_owned(), force: false })
}

fn sync(search: &Search, pool: &str) -> Result<(), zpool::Refusal> {
    run(search, &zpool::sync::Request { pool: pool.to_owned(), unless_read_only: false })
}

/// Sets a property of the pool `p`.
fn set_pool(search: &Search, property: &str, value: &str) -> Result<(), zpool::set::Refusal> {
    let (property, value) = (property.to_owned(), value.to_owned());
    run(search, &zpool::set::Request { pool: "p".to_owned(), vdev: None, property, value })
}

/// Why a pool cannot be opened for change.
fn not_changed(search: &Search, pool: &str) -> Code {
    let refused = Session::new(search.clone()).writer(pool).map(drop).expect_err("it is not to be changed");
    Reason::from(refused).code
}

fn import(search: &Search, name: &str, request: &ImportRequest) -> Result<(), ChangeError> {
    let found = importable(search).expect("devices");
    let matching = found.matching(name);
    let pool = matching.first().expect("it was exported");
    found.import(pool, request)
}

fn names(search: &Search) -> Vec<String> {
    let (pools, problems) = open_pools(search, &[]);
    assert!(problems.is_empty(), "{problems:?}");
    pools.iter().map(|pool| pool.name().to_owned()).collect()
}

fn datasets(search: &Search) -> Vec<String> {
    let (pools, _) = open_pools(search, &["p".to_owned()]);
    let all = pools[0].pool().datasets().expect("readable");
    all.iter().map(|dataset| dataset.name().to_owned()).collect()
}

fn writer(search: &Search) -> PoolWriter {
    edit::open_pool(search, "p").expect("it is open")
}

/// Destroys a dataset with its dependents.
fn destroy(search: &Search, name: &str) -> Result<destroy::Answer, destroy::Refusal> {
    let request = destroy::Request { recursive: true, clones: true, ..destroy::Request::of(name) };
    Session::over(&writer(search)).run(&request)
}

fn make(search: &Search, name: &str) -> Result<(), EditError> {
    edit::create(&writer(search), &NewDataset::filesystem(name))
}

#[test]
fn pools_stay_until_they_are_exported_and_come_back() {
    alone("pools_stay_until_they_are_exported_and_come_back", |place| {
        let search = place.pool();
        assert_eq!(names(&search), ["p"]);
        make(&search, "p/a").expect("made");
        assert_eq!(datasets(&search), ["p", "p/a"]);
        let listed = Imported::load().expect("a cache file");
        assert!(listed.by_name("p").is_some());
        assert!(importable(&search).expect("devices").pools.is_empty(), "it is imported");
        let again = zpool::create::Request { name: "p".into(), ..place.describe("q") };
        let again = run(&search, &again).expect_err("it is there").reason();
        assert_eq!(again.code, Code::Exists, "{again}");

        export(&search, "p").expect("exported");
        assert!(names(&search).is_empty());
        assert!(Imported::load().expect("none").pools.is_empty());
        let (none, problems) = open_pools(&search, &["p".to_owned()]);
        assert!(none.is_empty() && problems[0].is_missing_pool());
        assert_eq!(not_changed(&search, "p"), Code::NoPool);
        place.judge("p");

        let request = ImportRequest { new_name: Some("r".into()), ..ImportRequest::default() };
        import(&search, "p", &request).expect("imported");
        assert_eq!(names(&search), ["r"]);
        edit::create(&edit::open_pool(&search, "r/a").expect("open"), &NewDataset::filesystem("r/b"))
            .expect("made");
        run(&search, &zpool::destroy::Request { pool: "r".into() }).expect("destroyed");
        assert!(names(&search).is_empty());
        let search = Search { destroyed: true, ..search };
        assert_eq!(importable(&search).expect("devices").pools.len(), 1);
    });
}

#[test]
fn a_pool_is_not_exported_while_a_verb_is_at_work() {
    alone("a_pool_is_not_exported_while_a_verb_is_at_work", |place| {
        let search = place.pool();
        let at_work = writer(&search);
        let refused = export(&search, "p").expect_err("busy").reason();
        assert_eq!((refused.code, refused.message.as_str()), (Code::Busy, "pool is busy"));
        at_work.create_filesystem("p/a", &[]).expect("it is still open");
        std::thread::scope(|scope| {
            let export = scope.spawn(|| export(&search, "p"));
            std::thread::yield_now();
            drop(at_work);
            export.join().expect("no panic").expect("nobody uses it");
        });
        place.judge("p");
    });
}

#[test]
fn a_pool_is_not_exported_from_under_a_mount_that_began_meanwhile() {
    alone("a_pool_is_not_exported_from_under_a_mount_that_began_meanwhile", |folder| {
        let mounts = Arc::new(ListedMounts::default());
        let search = with_mounts(folder, &mounts);
        let at_work = writer(&search);
        std::thread::scope(|scope| {
            let export = scope.spawn(|| export(&search, "p"));
            // The export has ended the mounts, and waits for the pool's users.
            std::thread::sleep(Duration::from_millis(200));
            mounts.push("p/a", Path::new("/late"));
            drop(at_work);
            let refused = export.join().expect("no panic").expect_err("it is mounted").reason();
            assert_eq!((refused.code, refused.message.as_str()), (Code::Busy, "pool is busy"));
        });
        assert_eq!(datasets(&search), ["p", "p/a"], "it stays");
        mounts.unmount("p/a", Unmount::Normal).expect("unmounted");
        export(&search, "p").expect("nobody uses it");
        folder.judge("p");
    });
}

#[test]
fn an_export_lets_who_is_at_work_look_again() {
    alone("an_export_lets_who_is_at_work_look_again", |place| {
        let search = place.pool();
        let (at_work, asked) = (Barrier::new(2), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let pool = writer(&search);
                at_work.wait();
                while !asked.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                // Views the pool as verbs do that read mounts and properties.
                for i in 0..20 {
                    assert_eq!(datasets(&search).len(), 1 + i);
                    pool.create_filesystem(&format!("p/d{i}"), &[]).expect("made");
                }
            });
            at_work.wait();
            asked.store(true, Ordering::Relaxed);
            export(&search, "p").expect("it waits");
        });
        place.judge("p");
    });
}

#[test]
fn after_a_crash_it_is_opened_again_without_force() {
    alone("after_a_crash_it_is_opened_again_without_force", |place| {
        let search = place.pool();
        make(&search, "p/a").expect("made");
        let fs = writer(&search).filesystem("p/a").expect("open");
        let file = fs.create(b"/log").expect("made");
        file.append(b"acknowledged").expect("written");
        file.sync().expect("durable");
        drop((file, fs, search));

        let search = place.search();
        let open = |found: &Search| importable(found).expect("devices").pools[0].config.state;
        assert_eq!(open(&search), PoolState::Active);
        let failed = namespace(&search).import_all(None);
        assert!(failed.is_empty(), "{failed:?}");
        assert_eq!(datasets(&search), ["p", "p/a"]);
        let fs = writer(&search).filesystem("p/a").expect("open");
        assert_eq!(fs.read(b"/log").expect("replayed"), b"acknowledged");
        drop(fs);

        let failed = namespace(&search).leave_all();
        assert!(failed.is_empty(), "{failed:?}");
        assert!(names(&search).is_empty());
        let search = place.search();
        assert_eq!(open(&search), PoolState::Active);
        assert!(namespace(&search).import_all(None).is_empty());
        assert_eq!(names(&search), ["p"]);
        export(&search, "p").expect("exported");
        place.judge("p");
    });
}

#[test]
fn logs_of_many_datasets_are_replayed_with_few_txgs() {
    const MANY: u64 = 24;
    alone("logs_of_many_datasets_are_replayed_with_few_txgs", |place| {
        let search = place.pool();
        let names: Vec<String> = (0..MANY).map(|n| format!("p/d{n}")).collect();
        for name in &names {
            make(&search, name).expect("made");
            let file = writer(&search).filesystem(name).expect("open").create(b"/log").expect("made");
            file.append(b"acknowledged").expect("written");
            // The first record of a log may wait for a txg, which puts it on disk in any case.
            file.sync().expect("durable");
        }
        sync(&search, "p").expect("synced");
        for name in &names {
            let file = writer(&search).filesystem(name).expect("open").open_file(b"/log").expect("there");
            file.append(b" twice").expect("written");
            file.sync().expect("durable");
        }
        let txg = |search: &Search| writer(search).live().view().expect("readable").txg().0;
        let before = txg(&search);
        drop(search);

        let search = place.search();
        assert!(namespace(&search).import_all(None).is_empty());
        let txgs = txg(&search) - before;
        for name in &names {
            let fs = writer(&search).filesystem(name).expect("open");
            assert_eq!(fs.read(b"/log").expect("replayed"), b"acknowledged twice", "{name}");
        }
        assert!(txgs < MANY / 2, "{txgs} txgs");
        export(&search, "p").expect("exported");
        place.judge("p");
    });
}

#[test]
fn who_has_the_devices_is_not_disturbed() {
    alone("who_has_the_devices_is_not_disturbed", |place| {
        let search = place.pool();
        let direct = Pool::open_rw("p", &OpenOptions::new().search(&place.folder));
        assert!(direct.is_err(), "somebody else has it");
        let direct = Search { namespace: None, ..search.clone() };
        assert_eq!(not_changed(&direct, "p"), Code::Busy);
        make(&search, "p/a").expect("nothing has happened to it");
        sync(&search, "p").expect("synced");
        set_pool(&search, "comment", "x").expect("set");
    });
}

#[test]
fn what_was_imported_for_reading_is_not_changed() {
    alone("what_was_imported_for_reading_is_not_changed", |place| {
        let search = place.pool();
        make(&search, "p/a").expect("made");
        export(&search, "p").expect("exported");
        let settings = ImportSettings { readonly: true, ..ImportSettings::default() };
        import(&search, "p", &ImportRequest { settings, ..ImportRequest::default() }).expect("imported");
        assert_eq!(datasets(&search), ["p", "p/a"]);
        assert_eq!(not_changed(&search, "p"), Code::ReadOnly);
        export(&search, "p").expect("exported");
        assert!(names(&search).is_empty());

        let settings = ImportSettings { temporary: true, ..ImportSettings::default() };
        let request = ImportRequest { new_name: Some("t".into()), settings, ..ImportRequest::default() };
        import(&search, "p", &request).expect("imported");
        assert_eq!(names(&search), ["t"]);
        edit::create(&edit::open_pool(&search, "t/b").expect("open"), &NewDataset::filesystem("t/b"))
            .expect("made");
        export(&search, "t").expect("exported");
        import(&search, "p", &ImportRequest::default()).expect("it has its own name again");
        assert_eq!(datasets(&search), ["p", "p/a", "p/b"]);
    });
}

#[test]
fn readers_see_whole_states_while_metadata_is_rewritten() {
    alone("readers_see_whole_states_while_metadata_is_rewritten", |place| {
        let search = place.pool();
        for i in 0..20 {
            make(&search, &format!("p/d{i}")).expect("made");
        }
        let is_over = AtomicBool::new(false);
        let listings = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        let (pools, problems) = open_pools(&search, &["p".to_owned()]);
                        assert!(problems.is_empty(), "{problems:?}");
                        let pool = pools[0].pool();
                        // Longer than many txgs: the view stays consistent.
                        for _ in 0..5 {
                            let all = pool.datasets().expect("a view that is held can be read");
                            assert!(all.len() >= 21, "{}", all.len());
                            for dataset in &all {
                                dataset.property("compression").expect("readable");
                                dataset.property("used").expect("readable");
                            }
                        }
                        listings.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let pool = writer(&search);
            for turn in 0..150 {
                let name = format!("p/d{}", turn % 20);
                let value = if turn % 2 == 0 { "lz4" } else { "zstd" };
                pool.set(&name, &[("compression", value), ("a:note", &"x".repeat(turn + 1))]).expect("set");
                if turn % 5 == 0 {
                    pool.snapshot(&[format!("{name}@s{turn}")]).expect("taken");
                    pool.destroy_dataset(&format!("{name}@s{turn}")).expect("destroyed");
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(listings.into_inner() > 0);
        export(&search, "p").expect("exported");
        place.judge("p");
    });
}

#[test]
fn a_view_that_is_held_stays_whole_without_a_cache() {
    alone("a_view_that_is_held_stays_whole_without_a_cache", |place| {
        let search = place.pool();
        for i in 0..20 {
            make(&search, &format!("p/d{i}")).expect("made");
        }
        export(&search, "p").expect("exported");
        let found =
            vdev::scan::Search { paths: vec![place.folder.clone()], ..vdev::scan::Search::default() }.run();
        let open = pool::OpenOptions { cache_bytes: 0, ..pool::OpenOptions::default() };
        let options = ImportOptions { open, ..ImportOptions::default() };
        let live = LivePool::import(&found, &pool::Which::Name("p".into()), &options, vdev::Env::system());
        let pool = PoolWriter::of(live.expect("imported"));
        let view = pool.view().expect("a view");
        for turn in 0..60 {
            let name = format!("p/d{}", turn % 20);
            pool.set(&name, &[("a:note", &"x".repeat(turn + 1))]).expect("set");
        }
        let all = view.datasets().expect("a view that is held can be read");
        assert_eq!(all.len(), 21);
        for dataset in &all {
            assert_eq!(dataset.property("a:note").expect("readable"), None, "it is of before");
            dataset.objset().expect("its contents are there too");
        }
        drop((all, view));
        pool.close().expect("closed");
        place.judge("p");
    });
}

#[test]
fn verbs_of_many_threads_on_one_pool() {
    alone("verbs_of_many_threads_on_one_pool", |place| {
        let search = place.pool();
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let search = &search;
                scope.spawn(move || {
                    for turn in 0..6 {
                        let name = format!("p/w{worker}t{turn}");
                        make(search, &name).expect("made");
                        let snapshot = format!("{name}@s");
                        writer(search).snapshot(std::slice::from_ref(&snapshot)).expect("taken");
                        let clone =
                            CloneSpec { origin: snapshot, name: format!("{name}c"), props: Vec::new() };
                        edit::clone(&writer(search), &clone).expect("cloned");
                        if turn % 2 == 0 {
                            destroy(search, &name).expect("destroyed");
                        }
                        assert_eq!(datasets(search)[0], "p");
                    }
                });
            }
        });
        // For each worker, three pairs of a dataset and a snapshot.
        assert_eq!(datasets(&search).len(), 1 + 4 * 3 * 3);
        export(&search, "p").expect("exported");
        place.judge("p");
    });
}

fn grant(search: &Search, at: &str, who: Who, scopes: &[Scope], permissions: &[&str]) {
    let permissions = permissions.iter().map(|text| (*text).to_owned()).collect();
    let grant = Grant { who: vec![who], scopes: scopes.to_vec(), permissions };
    edit::allow(&writer(search), at, &grant).expect("granted");
}

fn denied_by_right<T: std::fmt::Debug, R: Refused>(outcome: Result<T, R>) {
    let reason = outcome.map_err(|refusal| refusal.reason()).expect_err("denied");
    assert_eq!(reason.code, Code::Denied);
}

fn denied<T: std::fmt::Debug>(outcome: &Result<T, EditError>) {
    assert!(matches!(outcome, Err(EditError::Denied)), "{outcome:?}");
}

#[test]
fn others_do_what_they_are_allowed_to() {
    alone("others_do_what_they_are_allowed_to", |place| {
        let search = place.pool();
        for name in ["p/a", "p/a/b", "p/c"] {
            make(&search, name).expect("made");
        }
        let joe = by(&search, JOE);
        sync(&joe, "p").expect("everybody may");
        assert_eq!(datasets(&joe).len(), 4, "everybody may look");
        denied(&make(&joe, "p/a/x"));
        let pool_verbs = [
            export(&joe, "p").expect_err("denied").reason(),
            run(&joe, &zpool::destroy::Request { pool: "p".into() }).expect_err("denied").reason(),
            run(&joe, &place.describe("q")).expect_err("denied").reason(),
        ];
        for refused in pool_verbs {
            assert_eq!((refused.code, refused.message.as_str()), (Code::Denied, "permission denied"));
        }

        // Grants for the dataset only, for descendants only, to a group, to everyone, and through sets.
        grant(&search, "p/a", Who::User(JOE.into()), &[Scope::Local], &["snapshot"]);
        let snapshot = |name: &str| writer(&joe).snapshot(&[name]);
        snapshot("p/a@1").expect("allowed here");
        denied_by_right(snapshot("p/a/b@1"));
        grant(&search, "p/a", Who::Group(u64::from(JOE) + 1), &[Scope::Descendent], &["@ops"]);
        grant(&search, "p", Who::Set("@ops".into()), &[Scope::NotApplicable], &["snapshot", "@more"]);
        grant(&search, "p", Who::Set("@more".into()), &[Scope::NotApplicable], &["hold"]);
        snapshot("p/a/b@1").expect("allowed below");
        let (snapshots, tag) = (vec!["p/a/b@1".to_owned()], "tag".to_owned());
        let request = hold::Request { snapshots, tag, recursive: false };
        Session::over(&writer(&joe)).run(&request).expect("a set in a set");
        denied_by_right(snapshot("p/c@1"));

        // Grants for single properties, and create-time permissions.
        let set = |name: &str, prop: &str, value: &str| writer(&joe).set(name, &[(prop, value)]);
        denied_by_right(set("p/c", "compression", "lz4"));
        grant(&search, "p", Who::Everyone, &[Scope::Local, Scope::Descendent], &["compression", "userprop"]);
        set("p/c", "compression", "lz4").expect("allowed");
        set("p/c", "a:b", "c").expect("allowed");
        denied_by_right(set("p/c", "quota", "1G"));
        grant(&search, "p/c", Who::User(JOE.into()), &[Scope::Local], &["create", "mount"]);
        grant(&search, "p/c", Who::CreateTime, &[Scope::NotApplicable], &["quota", "destroy", "mount"]);
        let new =
            NewDataset { props: vec![("quota".into(), "100M".into())], ..NewDataset::filesystem("p/c/own") };
        edit::create(&writer(&joe), &new).expect("makers may");
        set("p/c/own", "quota", "50M").expect("the maker may");
        denied(&make(&by(&search, JOE + 7), "p/c/other"));
        let owner = Pool::open("p", &OpenOptions::new().search(&place.folder));
        assert!(owner.is_ok(), "reading takes no lock");
        destroy(&joe, "p/c/own").expect("the maker may");
        let refused = destroy(&joe, "p/c").expect_err("not his");
        assert_eq!(refused.reason().code, Code::Denied);

        // A user with the permission `allow` grants the permissions that he has.
        let mine = |permission: &str| {
            let who = vec![Who::User(1)];
            let grant = Grant { who, scopes: vec![Scope::Local], permissions: vec![permission.to_owned()] };
            edit::allow(&writer(&joe), "p/a", &grant)
        };
        denied(&mine("snapshot"));
        grant(&search, "p/a", Who::User(JOE.into()), &[Scope::Local], &["allow"]);
        mine("snapshot").expect("he has it");
        denied(&mine("destroy"));
        denied(&mine("@ops"));
        denied(&mine("@nosuch"));

        // A set granted here has the definitions in force here, and those of descendants below.
        grant(&search, "p", Who::Set("@set".into()), &[Scope::NotApplicable], &["reservation"]);
        grant(&search, "p/c", Who::Set("@set".into()), &[Scope::NotApplicable], &["checksum"]);
        let anywhere = [Scope::Local, Scope::Descendent];
        grant(&search, "p/c", Who::User(JOE.into()), &anywhere, &["@set"]);
        make(&search, "p/c/d").expect("made");
        let may = |name: &str| {
            [("reservation", "none"), ("checksum", "on")].map(|(prop, value)| set(name, prop, value).is_ok())
        };
        assert_eq!((may("p"), may("p/c"), may("p/c/d")), ([false; 2], [false, true], [false, true]));
        grant(&search, "p", Who::User(JOE.into()), &anywhere, &["@set"]);
        assert_eq!((may("p"), may("p/c"), may("p/c/d")), ([true, false], [false, true], [false, true]));
        let who = vec![Who::Set("@set".into())];
        let unmasked = Grant { who, scopes: vec![Scope::NotApplicable], permissions: vec![] };
        edit::unallow(&writer(&search), "p/c", &unmasked, false).expect("taken back");
        assert_eq!((may("p"), may("p/c"), may("p/c/d")), ([true, false], [true, false], [true, false]));
        let request = allowed::Request { dataset: "p/a".into() };
        let allowed = Session::over(&writer(&search)).run(&request).expect("read").datasets;
        assert!(allowed[0].permits.iter().any(|permit| permit.holder == Holder::User(1)));

        set_pool(&search, "delegation", "off").expect("set");
        let refusal = snapshot("p/a@2").expect_err("delegation is off");
        assert_eq!(refusal.reason().code, Code::DelegationOff);
    });
}

#[test]
fn the_history_names_the_caller() {
    alone("the_history_names_the_caller", |place| {
        let search = place.pool();
        writer(&by(&search, JOE)).record("zfs snapshot p@x").expect("written");
        // The line is on disk with the txg after that of its command.
        settle(&search, &["p".to_owned()]);
        let (pools, _) = open_pools(&search, &["p".to_owned()]);
        let history = pools[0].pool().spa().history().expect("readable");
        let text = format!("{history:?}");
        assert!(text.contains("zfs snapshot p@x") && text.contains(&JOE.to_string()), "{text}");
    });
}

#[test]
fn a_pool_of_commands_without_a_daemon_is_not_opened_by_one() {
    alone("a_pool_of_commands_without_a_daemon_is_not_opened_by_one", |place| {
        let in_process = Search { paths: vec![place.folder.clone()], ..Search::default() };
        run(&in_process, &place.describe("p")).expect("a pool");
        let is_listed = || Imported::load().expect("readable").by_name("p").is_some();
        assert!(is_listed());
        // A verb in process does not change the mark.
        sync(&in_process, "p").expect("written");
        set_pool(&in_process, "comment", "ours").expect("set");
        let daemon = place.search();
        assert!(namespace(&daemon).import_all(None).is_empty());
        assert!(names(&daemon).is_empty() && is_listed());
        set_pool(&in_process, "comment", "still").expect("not busy");
        // A daemon that is told to import the pool takes it, then and at every later start.
        import(&daemon, "p", &ImportRequest::default()).expect("nobody has it");
        assert_eq!(names(&daemon), ["p"]);
        assert!(namespace(&daemon).leave_all().is_empty());
        let daemon = place.search();
        assert!(namespace(&daemon).import_all(None).is_empty());
        assert_eq!(names(&daemon), ["p"]);
        export(&daemon, "p").expect("nobody uses it");
        assert!(!is_listed());
        // The same holds for a pool that is imported without a daemon.
        import(&in_process, "p", &ImportRequest::default()).expect("nobody has it");
        let daemon = place.search();
        assert!(namespace(&daemon).import_all(None).is_empty());
        assert!(names(&daemon).is_empty() && is_listed());
    });
}

#[test]
fn an_import_that_cannot_be_noted_is_noted_nowhere() {
    alone("an_import_that_cannot_be_noted_is_noted_nowhere", |place| {
        let search = place.pool();
        export(&search, "p").expect("exported");
        // The second of the two files cannot be written.
        let imports = place.folder.join("imports");
        std::fs::create_dir(&imports).expect("a folder");
        let settings = ImportSettings { altroot: Some("/mnt".into()), ..ImportSettings::default() };
        let request = ImportRequest { settings, ..ImportRequest::default() };
        import(&search, "p", &request).expect_err("it cannot be noted");
        std::fs::remove_dir(&imports).expect("removed");
        assert!(Imported::load().expect("readable").by_name("p").is_none());
        assert!(namespace(&search).names().is_empty());
        import(&search, "p", &request).expect("nobody has it");
        assert_eq!(names(&search), ["p"]);
    });
}

/// A search whose mounts are these, with a pool `p` and a file system `p/a`; nothing is mounted.
fn with_mounts(folder: &TestFolder, mounts: &Arc<ListedMounts>) -> Search {
    let namespace = Namespace::new(Some(Arc::clone(mounts) as Arc<dyn Mounts>));
    let search = Search { namespace: Some(namespace), ..folder.search() };
    run(&search, &folder.describe("p")).expect("a pool");
    let pool = Session::new(search.clone()).writer("p").expect("open");
    pool.create_filesystem("p/a", &[]).expect("made");
    search
}

/// Sets a property and leaves the mounts as they are.
fn set_alone(search: &Search, dataset: &str, name: &str, value: &str) {
    let pool = Session::new(search.clone()).writer("p").expect("open");
    pool.set(dataset, &[(name, value)]).expect("set");
}

#[test]
fn a_mount_follows_properties_that_change_while_it_begins() {
    alone("a_mount_follows_properties_that_change_while_it_begins", |folder| {
        let mounts = Arc::new(ListedMounts::default());
        let search = with_mounts(folder, &mounts);
        set_alone(&search, "p/a", "mountpoint", "/old");
        let mount_beside = |name: &'static str, value: &'static str| {
            let set_by = search.clone();
            let set: Meanwhile = Box::new(move |_| set_alone(&set_by, "p/a", name, value));
            *mounts.meanwhile.lock().expect("no panic") = Some((Step::Mount, set));
            run(&search, &mount::Request::of(mount::Target::One("p/a".to_owned())))
        };
        mount_beside("mountpoint", "/new").expect("mounted");
        assert_eq!(mounts.places(), [("p/a".to_owned(), "/new".to_owned())]);
        mounts.unmount("p/a", Unmount::Normal).expect("unmounted");
        let refused = mount_beside("canmount", "off").expect_err("it is off by now").to_string();
        assert_eq!(refused, "cannot mount 'p/a': 'canmount' property is set to 'off'");
        assert!(mounts.places().is_empty());
    });
}

#[test]
fn a_changed_mount_point_holds_for_a_mount_that_began_meanwhile() {
    alone("a_changed_mount_point_holds_for_a_mount_that_began_meanwhile", |folder| {
        let mounts = Arc::new(ListedMounts::default());
        let search = with_mounts(folder, &mounts);
        let set_to = |at: &str| {
            let properties = vec![("mountpoint".to_owned(), at.to_owned())];
            let request = set::Request { dataset: "p".to_owned(), properties, stay_mounted: false };
            run(&search, &request).expect("set");
        };
        set_to("/p");
        // The old folder is removed after the file system was unmounted and the property set.
        let begins: Meanwhile = Box::new(|mounts| mounts.push("p/a", Path::new("/p/a")));
        *mounts.meanwhile.lock().expect("no panic") = Some((Step::RemoveFolder, begins));
        set_to("/q");
        let expected = [("p", "/q"), ("p/a", "/q/a")].map(|(name, at)| (name.to_owned(), at.to_owned()));
        assert_eq!(mounts.places(), expected);
    });
}
