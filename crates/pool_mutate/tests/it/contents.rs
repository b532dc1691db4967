//! The contents of a pool as lines of text: two pools are equal if their lines are.

use cenote::{Dataset, Node, Pool};
use codec::checksum::compute;
use format::{ChecksumId, Endian};
use testkit::{Fixture, keys};

/// Bytes of a file in one read.
const PIECE: usize = 1 << 20;
/// Bytes of a file or volume that are compared.
const FILE_MAX: u64 = 64 << 20;

/// Loads the keys of the fixture's datasets.
pub(crate) fn load_keys(pool: &Pool, fixture: &Fixture) {
    for dataset in &fixture.manifest().datasets {
        let is_root = dataset.property("encryptionroot") == Some(dataset.name.as_str());
        if let (true, Some(material)) = (is_root, dataset.property("keyformat").and_then(keys::material)) {
            let _ = pool.load_key(&dataset.name, &material);
        }
    }
}

/// All datasets with their properties, all files with their attributes and contents, and the facts of the
/// pool.
pub(crate) fn of(pool: &Pool) -> Vec<String> {
    let spa = pool.spa();
    let mut lines = vec![
        format!("{:?}", spa.space()),
        format!("{:?}", spa.properties()),
        format!("{:?}", spa.history()),
        format!("{:?}", spa.dedup_tables()),
        format!("{:?}", spa.clone_tables()),
        format!("{:?}", spa.removal()),
        format!("{:?}", spa.error_log()),
        format!("{:?}", spa.scan()),
    ];
    for dataset in pool.datasets().expect("datasets") {
        of_dataset(&dataset, &mut lines);
    }
    lines
}

fn of_dataset(dataset: &Dataset, lines: &mut Vec<String>) {
    let dsl = dataset.dsl();
    let name = dataset.name();
    lines.push(format!("{name} {:?} {:?}", dsl::prop::all(dsl), dsl::prop::all_user(dsl)));
    lines.push(format!("{name} {:?} {:?} {:?}", dsl.holds(), dsl.bookmarks(), dsl.dir().allowed()));
    let mut dead = Vec::new();
    if let Ok(Some(list)) = dsl.deadlist() {
        let walked = list.for_each(&mut |bp, _| {
            dead.push(bp.words()[..11].to_vec());
            Ok(())
        });
        lines.push(format!("{name} deadlist {walked:?} {dead:?}"));
    }
    if let Ok(volume) = dataset.volume() {
        let mut at = 0;
        while at < volume.size().min(FILE_MAX) {
            let mut buf = vec![0; PIECE.min((volume.size() - at) as usize)];
            let read = volume.read_at(at, &mut buf);
            lines.push(format!("{name} at {at} {read:?} {}", digest(&buf)));
            at += buf.len() as u64;
        }
    }
    let fs = match dataset.filesystem() {
        Ok(fs) => fs,
        Err(error) => return lines.push(format!("{name}: {error}")),
    };
    let root = fs.node(fs.root()).expect("a root");
    let mut todo = vec![(name.as_bytes().to_vec(), root)];
    while let Some((path, node)) = todo.pop() {
        lines.push(of_node(&path, &node));
        if !node.is_dir() {
            continue;
        }
        for entry in node.entries().expect("entries") {
            let entry = entry.expect("an entry");
            let path = [&path[..], b"/", &entry.name].concat();
            match fs.node(entry.id) {
                Ok(node) => todo.push((path, node)),
                Err(error) => lines.push(format!("{}: {error}", path.escape_ascii())),
            }
        }
    }
}

fn of_node(path: &[u8], node: &Node) -> String {
    let mut line = format!(
        "{} {:?} {} {:?} {:?} {:?}",
        path.escape_ascii(),
        node.attrs(),
        node.blocks_512(),
        node.xattr_values(),
        node.acl(),
        node.readlink().ok()
    );
    let mut at = 0;
    while let Ok(Some(data)) = node.next_data(at) {
        let end = node.next_hole(data).ok().flatten().unwrap_or(node.attrs().size).min(data + PIECE as u64);
        let mut buf = vec![0; (end - data) as usize];
        let read = node.read_at(data, &mut buf).map_err(|error| error.to_string().len());
        line.push_str(&format!(" {data}+{read:?}:{}", digest(&buf)));
        at = end;
        if at > FILE_MAX {
            break;
        }
    }
    line
}

fn digest(bytes: &[u8]) -> String {
    compute(ChecksumId::Sha256, bytes, Endian::Little, None).expect("SHA-256").to_string()
}
