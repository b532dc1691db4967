//! Pools with little free space: full pools, and pools whose free space is fragmented.
//!
//! A snapshot occupies the space, because snapshots are checked less often than files.

use crate::content::{Content, Tree};
use crate::files::{NAMES_MAX, Work, allowed};
use crate::plan::Setting;
use crate::world::{Open, POOL, World};
use crate::{Failure, wrong};
use dsl::prop;
use dsl::prop::PropValue;
use std::collections::BTreeSet;
use std::sync::Arc;
use zpl::FileKind;
use zpl::{Allocate, NewFile, WriteHow};

/// Bytes that are written in one call.
const CHUNK: u64 = 128 << 10;
/// Most chunks of a file that occupies space.
const CHUNKS_MAX: u64 = 16;
/// Length of the blocks that leave gaps, in bytes, and number of blocks that are freed for each that stays.
const PIECE: u64 = 8 << 10;
const PIECES_APART: u64 = 6;
/// Number of times that the pool is filled with such blocks; afterwards no large range is free.
const ROUNDS: usize = 4;
/// Number of files that are removed again to make space for a snapshot.
const FILES_FOR_SNAPSHOT: usize = 2;
/// Most files that occupy space before the work begins.
const FILES_MAX: usize = 200;

impl World {
    /// Prepares the free space according to the plan, before the work begins.
    pub(crate) fn prepare(&mut self) -> Result<(), Failure> {
        let rounds = match self.plan.setting {
            Setting::Ordinary | Setting::Clones => return Ok(()),
            Setting::Full => 1,
            Setting::Pieces => ROUNDS,
        };
        let is_in_pieces = self.plan.setting == Setting::Pieces;
        if is_in_pieces {
            self.set_record_size(PIECE)?;
        }
        for _ in 0..rounds {
            let mut work = self.root_work()?;
            let before: BTreeSet<u64> = work.tree.files.keys().copied().collect();
            // Space that waits to be freed is available after the next txgs.
            let mut refused = 0;
            while refused < 3 && work.tree.files.len() < before.len() + FILES_MAX {
                if self.fill_one(&mut work)? {
                    refused += 1;
                }
                self.pool().sync()?;
            }
            if is_in_pieces {
                let ids = work.tree.files.keys().copied().filter(|id| !before.contains(id));
                let ids: Vec<u64> = ids.collect();
                ids.into_iter().try_for_each(|id| thin_out(&mut work, id))?;
            }
            self.put_back(work)?;
            (0..4).try_for_each(|_| self.pool().sync().map(drop))?;
        }
        if is_in_pieces {
            self.set_record_size(CHUNK)?;
        }
        // A snapshot needs some space as well.
        self.empty_root(FILES_FOR_SNAPSHOT)?;
        self.snapshot_and_hold(is_in_pieces)?;
        self.empty_root(usize::MAX)
    }

    /// Removes up to `most` files of the root, the last ones first.
    fn empty_root(&mut self, most: usize) -> Result<(), Failure> {
        let mut work = self.root_work()?;
        for path in work.tree.names.keys().rev().take(most).cloned().collect::<Vec<_>>() {
            work.fs.unlink(work.fs.root(), path.trim_start_matches('/').as_bytes())?;
            work.tree.forget_name(&path);
        }
        self.put_back(work)?;
        while !self.drain_root()? {}
        (0..4).try_for_each(|_| self.pool().sync().map(drop))?;
        Ok(())
    }

    fn drain_root(&mut self) -> Result<bool, Failure> {
        match self.open_head(POOL)? {
            Open::Files(files) => Ok(files.fs.drain(1000)?),
            Open::Volume(_) => wrong("the root is no volume"),
        }
    }

    fn set_record_size(&mut self, bytes: u64) -> Result<(), Failure> {
        let size = PropValue::Number(bytes);
        let value = size.clone();
        self.attempt("set recordsize", move |ctx| prop::change::set(ctx, POOL, "recordsize", &value))?;
        if let Some(head) = self.model.heads.get_mut(POOL) {
            head.props.insert("recordsize".to_owned(), size);
        }
        self.open_head(POOL)?;
        self.options_changed()
    }

    fn root_work(&mut self) -> Result<Work, Failure> {
        let fs = match self.open_head(POOL)? {
            Open::Files(files) => Arc::clone(&files.fs),
            Open::Volume(_) => return wrong("the root is no volume"),
        };
        match self.model.heads.get(POOL).map(|head| head.content.clone()) {
            Some(Content::Files(tree)) => Ok(Work { name: POOL.to_owned(), fs, tree }),
            _ => Ok(Work { name: POOL.to_owned(), fs, tree: Tree::default() }),
        }
    }

    fn put_back(&mut self, work: Work) -> Result<(), Failure> {
        match self.model.heads.get_mut(&work.name) {
            Some(head) => head.content = Content::Files(work.tree),
            None => return wrong("the root is gone"),
        }
        Ok(())
    }

    /// Writes a few further files, until no space is left.
    pub(crate) fn fill_up(&mut self, work: &mut Work) -> Result<(), Failure> {
        if work.tree.names.len() < NAMES_MAX {
            self.fill_one(work)?;
        }
        Ok(())
    }

    /// Writes a file that occupies space. Returns whether there was no space for it.
    fn fill_one(&mut self, work: &mut Work) -> Result<bool, Failure> {
        self.counter += 1;
        let name = format!("n{}", self.counter);
        self.tell(format!("{} fill {name}", work.name));
        let new = NewFile::of(FileKind::Regular, 0o644);
        let made = work.fs.create(work.fs.root(), name.as_bytes(), &new);
        let Some(made) = allowed("create", made)? else { return Ok(true) };
        self.note_file(work, format!("/{name}"), made.id, FileKind::Regular, Vec::new())?;
        // The part that was written so far is one version of the file.
        self.show(work);
        self.begin();
        for chunk in 0..CHUNKS_MAX {
            let mut data = vec![0; CHUNK as usize];
            self.random.fill(&mut data);
            let written = work.fs.write(made.id, chunk * CHUNK, &data, &WriteHow::default());
            let is_refused = allowed("write", written)?.is_none();
            if is_refused || chunk + 1 == CHUNKS_MAX {
                work.reread(made.id.0)?;
                return Ok(is_refused);
            }
        }
        Ok(false)
    }
}

/// Frees most blocks of a file.
fn thin_out(work: &mut Work, id: u64) -> Result<(), Failure> {
    let size = work.tree.files[&id].bytes.len() as u64;
    for start in (0..size).step_by((PIECE * PIECES_APART) as usize) {
        let (from, to) = ((start + PIECE).min(size), (start + PIECE * PIECES_APART).min(size));
        if from < to {
            work.fs.fallocate(format::ObjectId(id), from, to - from, Allocate::Punch)?;
        }
    }
    work.reread(id)
}
