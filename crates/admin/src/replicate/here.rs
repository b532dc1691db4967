//! A side in this process: the verbs of `admin`, over pools that stay open meanwhile.
//!
//! Both sides of a policy may share one value, and with it the pools: a send and a receive run beside each other, each
//! in a session of its own.
//!
//! # What always holds
//! - Nothing is mounted or unmounted, and no history line is written ([`Session::over`]).
//! - Pools are opened when they are first needed, and exported by [`Here::close`].

use super::policy::SOURCE;
use super::side::{
    Dataset, Done, Point, Side, SideError, Stream, Style, Target, UserProperties, drop_inherited,
};
use super::targets::PROPERTY;
use crate::verbs::zfs::receive::abort;
use crate::verbs::zfs::{
    DatasetRow, Depth, Operand, Selection, bookmark, destroy, get, hold, holds, list, receive, release,
    rename, send, set, snapshot,
};
use crate::verbs::{Code, Verb};
use crate::{Kind, Search, Session, Source, Value, edit};
use cenote::PoolWriter;
use std::collections::BTreeMap;
use std::io::{PipeReader, Write};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use vdev::sync::lock;

/// Pools that are open in this process; see the module.
pub struct Here {
    search: Search,
    pools: Mutex<BTreeMap<String, Arc<PoolWriter>>>,
}

/// The property of encrypted datasets alone.
const ENCRYPTION_ROOT: &str = "encryptionroot";
/// Properties of datasets and snapshots that are listed.
const LISTED: [&str; 6] = ["guid", "createtxg", "creation", "userrefs", "receive_resume_token", SOURCE];

impl Here {
    /// A side that finds pools with this search.
    pub fn new(search: Search) -> Here {
        Here { search, pools: Mutex::default() }
    }

    /// Exports the pools.
    ///
    /// # Errors
    /// The first pool that could not be exported in order. Pools that something still uses are left to it.
    pub fn close(self) -> Done {
        let pools = self.pools.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut first = Ok(());
        for (name, pool) in pools {
            let closed = Arc::into_inner(pool).map_or(Ok(()), PoolWriter::close);
            if let Err(error) = closed {
                let message = cenote::error::chain(&error);
                first = first.and(Err(SideError::Refused { at: name, message }));
            }
        }
        first
    }

    fn pool(&self, dataset: &str) -> Done<Arc<PoolWriter>> {
        let name = edit::pool_of(dataset);
        let mut pools = lock(&self.pools);
        if let Some(pool) = pools.get(name) {
            return Ok(Arc::clone(pool));
        }
        let pool = Arc::new(edit::open_pool(&self.search, dataset).map_err(refused)?);
        pools.insert(name.to_owned(), Arc::clone(&pool));
        Ok(pool)
    }

    /// Runs a verb on the pool of a dataset.
    fn run<V: Verb>(&self, dataset: &str, request: &V) -> Done<V::Answer> {
        let pool = self.pool(dataset)?;
        Session::over(&pool).run(request).map_err(refused)
    }
}

fn refused(why: impl std::fmt::Display) -> SideError {
    SideError::Refused { at: "zfs".to_owned(), message: why.to_string() }
}

fn selection(root: &str, kinds: &[Kind]) -> Selection {
    Selection { operands: vec![Operand::name(root)], kinds: Some(kinds.to_vec()), depth: Depth::All }
}

/// The values of a row by name.
fn value<'r>(row: &'r DatasetRow, name: &str) -> Option<&'r Value> {
    row.properties.iter().find(|(known, _)| known == name).map(|(_, property)| &property.value)
}

fn number(row: &DatasetRow, name: &str) -> u64 {
    value(row, name).and_then(Value::number).unwrap_or(0)
}

fn text(row: &DatasetRow, name: &str) -> Option<String> {
    value(row, name).and_then(Value::text).map(str::to_owned)
}

impl Side for Here {
    fn describe(&self) -> String {
        "this machine".to_owned()
    }

    fn list(&self, root: &str, recursive: bool) -> Done<Vec<Dataset>> {
        let kinds = [Kind::Filesystem, Kind::Volume, Kind::Snapshot, Kind::Bookmark];
        let mut selection = selection(root, &kinds);
        if !recursive {
            selection.depth = Depth::Levels(1);
        }
        let properties = LISTED.iter().map(|name| (*name).to_owned()).collect();
        let answer = self.run(root, &list::Request { selection, properties, sort: Vec::new() })?;
        if let Some(unopened) = answer.unopened.first() {
            return match unopened {
                crate::verbs::zfs::Unopened::Dataset(closed) if closed.reason.code == Code::NoDataset => {
                    Ok(Vec::new())
                }
                other => Err(refused(other)),
            };
        }
        let mut datasets: Vec<Dataset> = Vec::new();
        for row in &answer.datasets {
            let (dataset, _) = row.name.split_once(['@', '#']).unwrap_or((&row.name, ""));
            if !recursive && dataset != root {
                continue;
            }
            add_row(&mut datasets, row);
        }
        let held: Vec<String> = answer
            .datasets
            .iter()
            .filter(|row| row.kind == Kind::Snapshot && number(row, "userrefs") > 0)
            .map(|row| row.name.clone())
            .collect();
        if !held.is_empty() {
            let answer = self.run(root, &holds::Request { snapshots: held, recursive: false })?;
            answer.holds.iter().for_each(|hold| add_hold(&mut datasets, &hold.snapshot, &hold.tag));
        }
        datasets.iter_mut().for_each(sort_points);
        drop_inherited(&mut datasets);
        Ok(datasets)
    }

    fn snapshot(&self, names: &[String]) -> Done {
        let Some(first) = names.first() else { return Ok(()) };
        let request = snapshot::Request { names: names.to_vec(), ..snapshot::Request::default() };
        self.run(first, &request).map(drop)
    }

    fn send(&self, stream: &Stream, style: Style, out: &mut dyn Write) -> Done {
        let (dataset, request) = match stream {
            Stream::Rest { token } => {
                let request = send::Request { resume: Some(token.clone()), ..send::Request::default() };
                (dataset_of_token(token).ok_or_else(|| refused("the token names no snapshot"))?, request)
            }
            Stream::Of { dataset, to: (to, _), from } => {
                let request = send::Request {
                    from: from.as_ref().map(|(from, _)| from.clone()),
                    raw: style.raw,
                    compressed: style.compressed,
                    large_blocks: style.large_blocks,
                    props: style.props,
                    ..send::Request::of(format!("{dataset}@{to}"))
                };
                (dataset.clone(), request)
            }
        };
        let pool = self.pool(&dataset)?;
        let sent = Session::over(&pool).write(&request, out, &mut |_| ControlFlow::Continue(()));
        sent.map(drop).map_err(refused)
    }

    fn receive(&self, target: &Target, input: PipeReader) -> Done {
        let request = receive::Request {
            target: target.dataset.clone(),
            force: target.rollback,
            resumable: true,
            unmounted: true,
            properties: target.set.clone(),
            excluded: target.exclude.clone(),
            ..receive::Request::default()
        };
        let pool = self.pool(&target.dataset)?;
        let mut session = Session::over(&pool);
        session.set_input(input);
        session.run(&request).map(drop).map_err(refused)
    }

    fn abort(&self, dataset: &str) -> Done {
        self.run(dataset, &abort::Request { dataset: dataset.to_owned() }).map(drop)
    }

    fn destroy_snapshots(&self, dataset: &str, names: &[String]) -> Done {
        let name = format!("{dataset}@{}", names.join(","));
        self.run(dataset, &destroy::Request { name, ..destroy::Request::default() }).map(drop)
    }

    fn destroy_bookmark(&self, name: &str) -> Done {
        let request = destroy::Request { name: name.to_owned(), ..destroy::Request::default() };
        self.run(name, &request).map(drop)
    }

    fn destroy_dataset(&self, name: &str) -> Done {
        let request =
            destroy::Request { name: name.to_owned(), recursive: true, ..destroy::Request::default() };
        self.run(name, &request).map(drop)
    }

    fn hold(&self, snapshot: &str, tag: &str) -> Done {
        let snapshots = vec![snapshot.to_owned()];
        self.run(snapshot, &hold::Request { snapshots, tag: tag.to_owned(), recursive: false }).map(drop)
    }

    fn release(&self, snapshot: &str, tag: &str) -> Done {
        let snapshots = vec![snapshot.to_owned()];
        self.run(snapshot, &release::Request { snapshots, tag: tag.to_owned(), recursive: false }).map(drop)
    }

    fn bookmark(&self, snapshot: &str, bookmark: &str) -> Done {
        let request = bookmark::Request { source: snapshot.to_owned(), name: bookmark.to_owned() };
        self.run(snapshot, &request)
    }

    fn rename(&self, from: &str, to: &str) -> Done {
        let request =
            rename::Request { from: from.to_owned(), to: to.to_owned(), ..rename::Request::default() };
        self.run(from, &request).map(drop)
    }

    fn set(&self, dataset: &str, property: &str, value: &str) -> Done {
        let properties = vec![(property.to_owned(), value.to_owned())];
        let request = set::Request { dataset: dataset.to_owned(), properties, ..set::Request::default() };
        self.run(dataset, &request).map(drop)
    }

    fn is_encrypted(&self, dataset: &str) -> Done<bool> {
        let mut selection = selection(dataset, &[Kind::Filesystem, Kind::Volume]);
        selection.depth = Depth::Own;
        let request =
            list::Request { selection, properties: vec![ENCRYPTION_ROOT.to_owned()], sort: Vec::new() };
        let answer = self.run(dataset, &request)?;
        let row = answer.datasets.first().ok_or_else(|| refused(format_args!("'{dataset}' is gone")))?;
        Ok(text(row, ENCRYPTION_ROOT).is_some_and(|root| !root.is_empty() && root != "-"))
    }

    fn user_properties(&self, root: &str) -> Done<Vec<UserProperties>> {
        let selection = selection(root, &[Kind::Filesystem, Kind::Volume]);
        let answer = self.run(root, &get::Request { selection, properties: get::Wanted::All })?;
        if let Some(unopened) = answer.unopened.first() {
            return Err(refused(unopened));
        }
        Ok(answer.datasets.iter().filter_map(own_properties).collect())
    }
}

/// The properties of a policy that are set on a dataset itself.
fn own_properties(row: &DatasetRow) -> Option<UserProperties> {
    let own = row
        .properties
        .iter()
        .filter(|(name, property)| name.starts_with(PROPERTY) && property.source == Source::Local);
    let properties: Vec<_> = own
        .map(|(name, property)| (name.clone(), property.value.text().unwrap_or_default().to_owned()))
        .collect();
    let of_row =
        || UserProperties { dataset: row.name.clone(), guid: number(row, "guid"), properties: Vec::new() };
    (!properties.is_empty()).then(|| UserProperties { properties, ..of_row() })
}

/// Full name of the dataset that a token was made for, at the sender.
fn dataset_of_token(token: &str) -> Option<String> {
    let token = stream::ResumeToken::parse(token).ok()?;
    let name = token.list.str("toname")?;
    name.split_once('@').map(|(dataset, _)| dataset.to_owned())
}

fn add_row(datasets: &mut Vec<Dataset>, row: &DatasetRow) {
    let point = || {
        let name = row.name.split_once(['@', '#']).map_or("", |(_, name)| name).to_owned();
        let (guid, creation) = (number(row, "guid"), number(row, "creation"));
        Point { name, guid, createtxg: row.create_txg, creation, holds: Vec::new() }
    };
    let (dataset, _) = row.name.split_once(['@', '#']).unwrap_or((&row.name, ""));
    let of_last = datasets.last_mut().filter(|last| last.name == dataset);
    match (row.kind, of_last) {
        (Kind::Snapshot, Some(last)) => last.snapshots.push(point()),
        (Kind::Bookmark, Some(last)) => last.bookmarks.push(point()),
        (Kind::Filesystem | Kind::Volume, _) => datasets.push(Dataset {
            name: row.name.clone(),
            guid: number(row, "guid"),
            source: text(row, SOURCE).and_then(|text| text.parse().ok()),
            token: text(row, "receive_resume_token").filter(|token| token != "-"),
            ..Dataset::default()
        }),
        _ => {}
    }
}

/// Adds a hold to the snapshot of this full name.
pub(super) fn add_hold(datasets: &mut [Dataset], snapshot: &str, tag: &str) {
    let Some((dataset, name)) = snapshot.split_once('@') else { return };
    let dataset = datasets.iter_mut().find(|known| known.name == dataset);
    let point = dataset.and_then(|dataset| dataset.snapshots.iter_mut().find(|point| point.name == name));
    if let Some(point) = point {
        point.holds.push(tag.to_owned());
    }
}

/// Snapshots and bookmarks in the order in which they were taken.
pub(super) fn sort_points(dataset: &mut Dataset) {
    dataset.snapshots.sort_by_key(|point| point.createtxg);
    dataset.bookmarks.sort_by_key(|point| point.createtxg);
}
