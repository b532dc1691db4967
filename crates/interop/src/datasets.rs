//! Operations on datasets.

use crate::Failure;
use crate::content::{Content, Head, Snapshot, dataset_of};
use crate::history::Durable;
use crate::plan::Setting;
use crate::world::{POOL, World, fill_error};
use dsl::bookmark::Bookmark;
use dsl::create;
use dsl::create::NewHead;
use dsl::destroy::{destroy, destroy_if_deferred, destroy_snapshots};
use dsl::holds;
use dsl::promote::promote;
use dsl::prop;
use dsl::prop::PropValue;
use dsl::rename::{rename, rename_snapshot};
use dsl::rollback::rollback;
use dsl::snapshot::snapshot;
use format::objset::ObjsetType;
use format::prop as table;
use std::collections::BTreeSet;
use std::rc::Rc;
use zpl::CaseSensitivity;
use zpl::{NewFilesystem, make_filesystem, make_volume};

/// Greatest numbers of heads and of snapshots.
const HEADS_MAX: usize = 10;
const SNAPSHOTS_MAX: usize = 25;
/// Greatest depth of heads.
const DEPTH_MAX: usize = 4;

const COMPRESSIONS: &str = "on off lzjb gzip gzip-1 gzip-9 zle lz4 zstd zstd-1 zstd-7 zstd-19 zstd-fast \
                            zstd-fast-5 zstd-fast-100 zstd-fast-1000";
const CHECKSUMS: &str = "on fletcher2 fletcher4 sha256 sha512 skein edonr blake3";
/// Properties that affect how data are written, with values to choose from.
const PROPERTIES: [(&str, &str); 17] = [
    ("compression", COMPRESSIONS),
    ("compression", COMPRESSIONS),
    ("checksum", CHECKSUMS),
    ("checksum", CHECKSUMS),
    ("copies", "1 2 3"),
    ("redundant_metadata", "all most some none"),
    ("dnodesize", "legacy auto 1k 2k 4k 8k 16k"),
    ("special_small_blocks", "0 4096 32768 131072"),
    ("xattr", "on dir sa"),
    ("acltype", "off posix"),
    ("atime", "on off"),
    ("sync", "standard always disabled"),
    ("logbias", "latency throughput"),
    ("snapdir", "hidden visible"),
    ("snapshot_limit", "3 30 none"),
    ("filesystem_limit", "2 30 none"),
    ("user:note", "a bb ccc"),
];
const RECORD_SIZES: &str = "512 1024 4096 8192 32768 131072 1048576";

impl World {
    pub(crate) fn change_datasets(&mut self) -> Result<(), Failure> {
        if self.plan.setting == Setting::Clones && self.random.one_in(2) {
            return match self.random.below(7) {
                0..=1 => self.take_snapshots(),
                2..=4 => self.clone_snapshot(),
                _ => {
                    let clones = self.clones();
                    self.destroy_one_of(&clones)
                }
            };
        }
        match self.random.below(100) {
            0..=12 => self.create_head(),
            13..=38 => self.take_snapshots(),
            39..=48 => self.clone_snapshot(),
            49..=54 => self.promote(),
            55..=60 => self.roll_back(),
            61..=70 => self.destroy_some_snapshots(),
            71..=75 => self.destroy_head(),
            76..=79 => self.rename_head(),
            80..=82 => self.rename_snapshot(),
            83..=86 => self.bookmark(),
            87..=89 => self.hold(),
            90 => self.release(),
            91..=92 => self.limit(),
            93..=97 => self.set_property(),
            98 => self.inherit(),
            _ => self.change_pool(),
        }
    }

    fn new_name(&mut self, letter: char) -> String {
        self.counter += 1;
        format!("{letter}{}", self.counter)
    }

    fn add_head(&mut self, name: String, head: Head) {
        self.serial += 1;
        self.model.heads.insert(name, Head { serial: self.serial, ..head });
    }

    fn heads(&self) -> Vec<String> {
        self.model.heads.keys().cloned().collect()
    }

    fn filesystems(&self) -> Vec<String> {
        let is_fs = |head: &Head| matches!(head.content, Content::Files(_));
        self.model.heads.iter().filter(|(_, head)| is_fs(head)).map(|(name, _)| name.clone()).collect()
    }

    /// A random property with a value, in stored form, that the pool allows.
    fn property(&mut self, kind: u8, creating: bool) -> Option<(String, PropValue)> {
        let (name, values) = match self.random.below(6) {
            0 if kind == table::FS => ("recordsize", RECORD_SIZES),
            _ => self.pick(&PROPERTIES)?,
        };
        let text = self.pick(&values.split_whitespace().collect::<Vec<_>>())?;
        if name.contains(':') {
            return Some((name.to_owned(), PropValue::String(text.to_owned())));
        }
        let known = prop::change::settable(name, kind, creating).ok()?;
        let value = prop::change::parse(known, text).ok()?;
        prop::change::validate(known, &value, self.pool().features()).ok()?;
        Some((known.name.to_owned(), value))
    }

    fn create_head(&mut self) -> Result<(), Failure> {
        let parents: Vec<String> =
            self.filesystems().into_iter().filter(|name| name.split('/').count() < DEPTH_MAX).collect();
        let Some(parent) = self.pick(&parents) else { return Ok(()) };
        if self.model.heads.len() >= HEADS_MAX {
            return Ok(());
        }
        let name = format!("{parent}/{}", self.new_name('d'));
        if self.random.one_in(5) { self.create_volume(name) } else { self.create_filesystem(name) }
    }

    fn properties(&mut self, kind: u8) -> Vec<(String, PropValue)> {
        let mut list: Vec<(String, PropValue)> = Vec::new();
        for _ in 0..self.random.below(5) {
            if let Some((name, value)) = self.property(kind, true)
                && list.iter().all(|(known, _)| *known != name)
            {
                list.push((name, value));
            }
        }
        list.retain(|(name, _)| !name.ends_with("_limit"));
        list
    }

    fn create_filesystem(&mut self, name: String) -> Result<(), Failure> {
        let list = self.properties(table::FS);
        let case = match self.random.below(6) {
            0 => CaseSensitivity::Insensitive,
            1 => CaseSensitivity::Mixed,
            _ => CaseSensitivity::Sensitive,
        };
        let normalization = [0x10, 0x20, 0x50, 0x60, 0, 0, 0, 0][self.random.below(8) as usize];
        let projects = self.pool().features().is_enabled("project_quota");
        let new = NewFilesystem { case, normalization, projects, ..NewFilesystem::default() };
        let (env, props) = (self.env.clone(), list.iter().cloned().collect());
        let title = format!("create {name} {case:?} {normalization:x} {list:?}");
        let task_name = name.clone();
        let done = self.attempt(&title, move |ctx| {
            let head = NewHead {
                props: &list,
                case_insensitive: case == CaseSensitivity::Insensitive,
                ..NewHead::named(&task_name)
            };
            create::create(ctx, head, ObjsetType::Zfs, &mut |set, tx| {
                make_filesystem(set, &new, &env, tx).map(drop).map_err(fill_error)
            })
        })?;
        if done.is_some() {
            let ignores_case = case == CaseSensitivity::Insensitive;
            self.add_head(name, Head { ignores_case, props, ..Head::default() });
        }
        Ok(())
    }

    pub(crate) fn create_volume(&mut self, name: String) -> Result<(), Failure> {
        let block = 512_u64 << self.random.below(9);
        let size = block * (1 + self.random.below((4 << 20) / block));
        let mut list = self.properties(table::VOL);
        list.push(("volblocksize".to_owned(), PropValue::Number(block)));
        let (env, props) = (self.env.clone(), list.iter().cloned().collect());
        let title = format!("create {name} -V {size} -b {block} {list:?}");
        let task_name = name.clone();
        let done = self.attempt(&title, move |ctx| {
            let head = NewHead { props: &list, ..NewHead::named(&task_name) };
            create::create(ctx, head, ObjsetType::Zvol, &mut |set, tx| {
                make_volume(set, size, block, &env, tx).map_err(fill_error)
            })
        })?;
        if done.is_some() {
            let content = Content::Volume(Rc::new(vec![0; size as usize]));
            self.add_head(name, Head { content, props, ..Head::default() });
        }
        Ok(())
    }

    fn take_snapshots(&mut self) -> Result<(), Failure> {
        let Some(of) = self.pick(&self.heads()) else { return Ok(()) };
        let heads = if self.random.one_in(3) { self.model.subtree(&of) } else { vec![of] };
        if self.model.snapshots.len() + heads.len() > SNAPSHOTS_MAX {
            return self.destroy_some_snapshots();
        }
        let tail = self.new_name('s');
        let names: Vec<String> = heads.iter().map(|head| format!("{head}@{tail}")).collect();
        let title = format!("snapshot {}", names.join(" "));
        let with_note = self.random.one_in(4);
        let task_names = names.clone();
        let done = self.attempt(&title, move |ctx| {
            let note = [("user:why".to_owned(), PropValue::String("because".to_owned()))];
            snapshot(ctx, &task_names, if with_note { &note } else { &[] })
        })?;
        if done.is_some() {
            self.counter += 1;
            for (head, name) in heads.iter().zip(names) {
                let content = self.model.heads[head].content.clone();
                let order = self.counter;
                let taken = Snapshot { content, order, is_deferred: false, holds: BTreeSet::new() };
                self.model.snapshots.insert(name, taken);
            }
        }
        Ok(())
    }

    fn pick_snapshot(&mut self) -> Option<String> {
        let all: Vec<String> = self.model.snapshots.keys().cloned().collect();
        self.pick(&all)
    }

    fn clone_snapshot(&mut self) -> Result<(), Failure> {
        let (Some(origin), Some(parent)) = (self.pick_snapshot(), self.pick(&self.filesystems())) else {
            return Ok(());
        };
        if self.model.heads.len() >= HEADS_MAX || parent.split('/').count() >= DEPTH_MAX {
            return Ok(());
        }
        let name = format!("{parent}/{}", self.new_name('c'));
        let (from, to) = (origin.clone(), name.clone());
        let done = self.attempt(&format!("clone {origin} {name}"), move |ctx| {
            create::clone(ctx, &from, NewHead::named(&to))
        })?;
        if done.is_some() {
            let content = self.model.snapshots[&origin].content.clone();
            let ignores_case =
                self.model.heads.get(dataset_of(&origin)).is_some_and(|head| head.ignores_case);
            self.add_head(name, Head { content, origin: Some(origin), ignores_case, ..Head::default() });
        }
        Ok(())
    }

    fn clones(&self) -> Vec<String> {
        let clones = self.model.heads.iter().filter(|(_, head)| head.origin.is_some());
        clones.map(|(name, _)| name.clone()).collect()
    }

    fn promote(&mut self) -> Result<(), Failure> {
        let Some(name) = self.pick(&self.clones()) else { return Ok(()) };
        let clone = name.clone();
        let done = self.attempt(&format!("promote {name}"), move |ctx| promote(ctx, &clone))?;
        if done.is_some() {
            self.model.promote(&name);
        }
        Ok(())
    }

    fn roll_back(&mut self) -> Result<(), Failure> {
        let with_snapshots: Vec<String> =
            self.heads().into_iter().filter(|head| !self.model.snapshots_of(head).is_empty()).collect();
        let Some(name) = self.pick(&with_snapshots) else { return Ok(()) };
        let Some(newest) = self.model.snapshots_of(&name).pop() else { return Ok(()) };
        self.close_head(&name)?;
        let head = name.clone();
        let done = self.attempt(&format!("rollback {newest}"), move |ctx| rollback(ctx, &head, None))?;
        if done.is_some() {
            let content = self.model.snapshots[&newest].content.clone();
            if let Some(head) = self.model.heads.get_mut(&name) {
                head.content = content;
                // They were stored with the files.
                head.limits.clear();
            }
        }
        Ok(())
    }

    fn destroy_these(&mut self, names: Vec<String>, defer: bool) -> Result<bool, Failure> {
        let title = format!("destroy {} {}", names.join(" "), if defer { "-d" } else { "" });
        let task_names = names.clone();
        let done = self.attempt(&title, move |ctx| destroy_snapshots(ctx, &task_names, defer))?;
        if done.is_some() {
            for name in names {
                if let (true, Some(snapshot)) = (defer, self.model.snapshots.get_mut(&name)) {
                    snapshot.is_deferred = true;
                } else {
                    self.model.snapshots.remove(&name);
                }
            }
        }
        self.look_for_deferred()?;
        Ok(done.is_some())
    }

    fn destroy_some_snapshots(&mut self) -> Result<(), Failure> {
        let Some(one) = self.pick_snapshot() else { return Ok(()) };
        let mut names = self.model.snapshots_of(dataset_of(&one));
        if self.random.one_in(2) {
            names = vec![one];
        } else {
            let keep = self.random.below(3) + 1;
            let mut n = 0;
            names.retain(|_| {
                n += 1;
                !u64::is_multiple_of(n, keep + 1)
            });
        }
        let defer = self.random.one_in(4);
        self.destroy_these(names, defer).map(drop)
    }

    fn destroy_head(&mut self) -> Result<(), Failure> {
        let heads = self.heads();
        self.destroy_one_of(&heads)
    }

    fn destroy_one_of(&mut self, heads: &[String]) -> Result<(), Failure> {
        let is_leaf = |head: &&String| *head != POOL && self.model.subtree(head).len() == 1;
        let leaves: Vec<String> = heads.iter().filter(is_leaf).cloned().collect();
        let Some(name) = self.pick(&leaves) else { return Ok(()) };
        let own = self.model.snapshots_of(&name);
        if !own.is_empty() && !self.destroy_these(own, false)? {
            return Ok(());
        }
        self.close_head(&name)?;
        let head = name.clone();
        let done = self.attempt(&format!("destroy {name}"), move |ctx| destroy(ctx, &head))?;
        if done.is_some() {
            self.model.heads.remove(&name);
        }
        self.look_for_deferred()
    }

    fn rename_head(&mut self) -> Result<(), Failure> {
        let named: Vec<String> = self.heads().into_iter().filter(|name| name != POOL).collect();
        let (Some(from), Some(parent)) = (self.pick(&named), self.pick(&self.filesystems())) else {
            return Ok(());
        };
        if parent.split('/').count() >= DEPTH_MAX || parent == from {
            return Ok(());
        }
        let to = format!("{parent}/{}", self.new_name('r'));
        let (old, new) = (from.clone(), to.clone());
        let done = self.attempt(&format!("rename {from} {to}"), move |ctx| rename(ctx, &old, &new))?;
        if done.is_some() {
            self.model.rename(&from, &to);
            let old = std::mem::take(&mut self.open);
            self.open = old
                .into_iter()
                .map(|(name, open)| match name.strip_prefix(&from) {
                    Some(rest) if rest.is_empty() || rest.starts_with('/') => (format!("{to}{rest}"), open),
                    _ => (name, open),
                })
                .collect();
        }
        Ok(())
    }

    fn rename_snapshot(&mut self) -> Result<(), Failure> {
        let Some(from) = self.pick_snapshot() else { return Ok(()) };
        let new = self.new_name('t');
        let (old, to) = (from.clone(), new.clone());
        let done = self
            .attempt(&format!("rename {from} @{new}"), move |ctx| rename_snapshot(ctx, &old, &to, false))?;
        if done.is_some() {
            self.model.rename_snapshot(&from, &format!("{}@{new}", dataset_of(&from)));
        }
        Ok(())
    }

    fn bookmark(&mut self) -> Result<(), Failure> {
        if !self.pool().features().is_enabled("bookmarks") {
            return Ok(());
        }
        if self.random.one_in(3) {
            let Some(name) = self.pick(&self.heads()) else { return Ok(()) };
            let id = self.dataset(&name)?.id();
            let draw = self.random.next();
            let done = self.attempt(&format!("destroy a bookmark of {name}"), move |ctx| {
                let list = Bookmark::list(ctx.m(), id)?;
                let Some((mark, _)) = list.get((draw % list.len().max(1) as u64) as usize) else {
                    return Ok(None);
                };
                let mark = String::from_utf8_lossy(mark).into_owned();
                Bookmark::destroy(ctx.m(), id, &mark).map(|()| Some(mark))
            })?;
            if let (Some(Some(mark)), Some(head)) = (done, self.model.heads.get_mut(&name)) {
                head.bookmarks.remove(&mark);
            }
            return Ok(());
        }
        let Some(name) = self.pick_snapshot() else { return Ok(()) };
        let (snapshot, head) = (self.dataset(&name)?.id(), self.dataset(dataset_of(&name))?.id());
        let mark = self.new_name('b');
        let title = format!("bookmark {name} #{mark}");
        let task_mark = mark.clone();
        let done = self.attempt(&title, move |ctx| {
            Bookmark::create_from_snapshot(ctx.m(), head, snapshot, &task_mark)?;
            Bookmark::get(ctx.m(), head, &task_mark)
        })?;
        if let (Some(Some(made)), Some(head)) = (done, self.model.heads.get_mut(dataset_of(&name))) {
            head.bookmarks.insert(mark, (made.guid, made.creation_txg.0, made.creation_time));
        }
        Ok(())
    }

    fn hold(&mut self) -> Result<(), Failure> {
        let Some(name) = self.pick_snapshot() else { return Ok(()) };
        let (id, tag) = (self.dataset(&name)?.id(), self.new_name('h'));
        let task_tag = tag.clone();
        let done = self.attempt(&format!("hold {tag} {name}"), move |ctx| {
            holds::hold(ctx.m(), id, &task_tag, 1, false)
        })?;
        if done.is_some() {
            if let Some(snapshot) = self.model.snapshots.get_mut(&name) {
                snapshot.holds.insert(tag.clone());
            }
            self.holds.push((id, tag));
        }
        if self.holds.len() > 4 { self.release() } else { Ok(()) }
    }

    fn release(&mut self) -> Result<(), Failure> {
        if self.holds.is_empty() {
            return Ok(());
        }
        let (id, tag) = self.holds.remove(0);
        let of = tag.clone();
        let done = self.attempt(&format!("release {tag} of {id}"), move |ctx| {
            if holds::release(ctx.m(), id, &tag)? {
                destroy_if_deferred(ctx, id)?;
            }
            Ok(())
        })?;
        if done.is_some() {
            for snapshot in self.model.snapshots.values_mut() {
                snapshot.holds.remove(&of);
            }
        }
        self.look_for_deferred()
    }

    /// Takes a snapshot of the root, with a hold if it must stay.
    pub(crate) fn snapshot_and_hold(&mut self, stays: bool) -> Result<(), Failure> {
        let name = format!("{POOL}@{}", self.new_name('s'));
        let names = [name.clone()];
        if self.attempt(&format!("snapshot {name}"), move |ctx| snapshot(ctx, &names, &[]))?.is_none() {
            return crate::wrong("no room for a snapshot");
        }
        self.counter += 1;
        let mut holds = BTreeSet::new();
        if stays {
            let (id, tag) = (self.dataset(&name)?.id(), self.new_name('h'));
            holds.insert(tag.clone());
            self.attempt("hold", move |ctx| holds::hold(ctx.m(), id, &tag, 1, false))?;
        }
        let content = self.model.heads[POOL].content.clone();
        let taken = Snapshot { content, order: self.counter, is_deferred: false, holds };
        self.model.snapshots.insert(name, taken);
        Ok(())
    }

    fn set(&mut self, name: &str, prop: &str, value: PropValue) -> Result<(), Failure> {
        let (head, key, new) = (name.to_owned(), prop.to_owned(), value.clone());
        let title = format!("set {prop}={value:?} {name}");
        let done = self.attempt(&title, move |ctx| prop::change::set(ctx, &head, &key, &value))?;
        if let (Some(()), Some(head)) = (done, self.model.heads.get_mut(name)) {
            head.props.insert(prop.to_owned(), new);
        }
        self.options_changed()
    }

    fn limit(&mut self) -> Result<(), Failure> {
        let Some(name) = self.pick(&self.heads()) else { return Ok(()) };
        let prop = ["quota", "refquota", "reservation", "refreservation"][self.random.below(4) as usize];
        let bytes = [0, 3 << 20, 8 << 20, 100 << 20][self.random.below(4) as usize];
        let known = match self.model.heads[&name].content {
            Content::Files(_) => table::FS,
            Content::Volume(_) => table::VOL,
        };
        if prop::change::settable(prop, known, false).is_err() {
            return Ok(());
        }
        self.set(&name, prop, PropValue::Number(bytes))
    }

    fn set_property(&mut self) -> Result<(), Failure> {
        let Some(name) = self.pick(&self.heads()) else { return Ok(()) };
        let kind = match self.model.heads[&name].content {
            Content::Files(_) => table::FS,
            Content::Volume(_) => table::VOL,
        };
        match self.property(kind, false) {
            Some((prop, value)) => self.set(&name, &prop, value),
            None => Ok(()),
        }
    }

    fn inherit(&mut self) -> Result<(), Failure> {
        let (Some(name), Some((prop, _))) = (self.pick(&self.heads()), self.pick(&PROPERTIES)) else {
            return Ok(());
        };
        let head = name.clone();
        let done = self.attempt(&format!("inherit {prop} {name}"), move |ctx| {
            prop::change::inherit(ctx, &head, prop, false)
        })?;
        if let (Some(()), Some(head)) = (done, self.model.heads.get_mut(&name)) {
            head.props.remove(prop);
        }
        self.options_changed()
    }

    /// Adds a vdev, enables a feature, or changes a property of the pool.
    fn change_pool(&mut self) -> Result<(), Failure> {
        self.begin();
        match self.random.below(3) {
            0 if self.plan.tops.len() < self.plan.tops_max => {
                let top = self.plan.tops[0];
                let spec = crate::plan::new_top(top, self.plan.ashift, &mut *self.disks)?;
                self.tell("add a vdev");
                self.plan.tops.push(top);
                self.pool().add(vec![spec])?;
            }
            1 => {
                let mut upgradable = self.pool().upgradable();
                if !self.pool().features().is_enabled("spacemap_histogram") {
                    // zdb counts all logs as maps with histograms.
                    upgradable.retain(|name| *name != "log_spacemap");
                }
                let Some(feature) = self.pick(&upgradable) else { return Ok(()) };
                self.tell(format!("enable {feature}"));
                self.pool().enable_features(&[feature])?;
                self.options_changed()?;
            }
            _ => {
                self.tell("set comment");
                self.pool().set_props(vec![("comment".to_owned(), format!("step {}", self.counter))])?;
            }
        }
        self.promise(Durable::Pool);
        Ok(())
    }
}
