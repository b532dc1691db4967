//! From the records that the walk makes to the bytes of the stream: blocks are read ahead, many at once, by a few
//! threads, while the records before them are written.
//!
//! # Order
//! The caller's thread walks, and appends records and blocks to a queue. Blocks that follow each other form a batch,
//! which goes to the readers when it is large enough. When the queue holds more than [`IN_FLIGHT`] bytes, the walk
//! stops and its front is written, waiting for the batch of the next block if it must.
//!
//! # What always holds
//! - Memory is bounded by [`IN_FLIGHT`] and one block more, twice while blocks are decompressed.
//! - The readers end when the queue does, also after an error.

use super::blocks::Block;
use super::plan::Plan;
use super::{SendError, Sent, Sink, walk};
use crate::Writer;
use crate::error::StreamError;
use dmu::{BlockRequest, DmuError, ObjSet};
use format::stream::{HEADER_SIZE, Record};
use std::collections::VecDeque;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::vec::IntoIter;

/// Bytes of records and blocks in the queue.
pub(super) const IN_FLIGHT: u64 = 16 << 20;
/// Bytes of the blocks of a batch.
const BATCH_BYTES: u64 = 2 << 20;
/// Most blocks of a batch.
const BATCH_BLOCKS: usize = 256;
/// Number of readers.
const READERS: usize = 4;
/// Bytes of small records that are written together. Larger payloads are not copied.
const BUFFER: usize = 64 << 10;

/// A reader has ended before its work.
const FAILED: SendError = SendError::Refused("a reader of blocks has failed");

type Results = Vec<Result<dmu::Block, DmuError>>;

/// A batch of blocks for the readers.
struct Job {
    requests: Vec<BlockRequest>,
    reply: Sender<Results>,
}

impl Job {
    fn run(self, set: &ObjSet) {
        // Nobody waits any more after an error.
        let _ = self.reply.send(set.read_blocks(&self.requests));
    }
}

/// Runs jobs until there are no more.
fn read(set: &ObjSet, jobs: &Mutex<Receiver<Job>>) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(job) => job.run(set),
            Err(_) => return,
        }
    }
}

/// Writes the stream of a plan.
///
/// # Errors
/// [`SendError`].
pub(super) fn run(
    plan: &Plan,
    out: &mut dyn Write,
    on_bytes: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Sent, SendError> {
    let (sender, receiver) = channel();
    let receiver = Mutex::new(receiver);
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            let work = || read(&plan.set, &receiver);
            // Without threads the caller's reads all.
            let _ = std::thread::Builder::new().name("send".to_owned()).spawn_scoped(scope, work);
        }
        let mut pipeline = Pipeline {
            plan,
            jobs: sender,
            waiting: &receiver,
            queue: VecDeque::new(),
            queued: 0,
            forming: Vec::new(),
            forming_bytes: 0,
            batches: VecDeque::new(),
            arrived: Vec::new().into_iter(),
            output: Output {
                writer: Writer::new(BufWriter::with_capacity(BUFFER, out)),
                on_bytes,
                sent: Sent::default(),
            },
        };
        pipeline.output.put(&plan.begin(), plan.begin_payload())?;
        walk::walk(plan, &mut pipeline)?;
        pipeline.drain(0)?;
        if plan.ends {
            pipeline.output.put(&plan.end(), &[])?;
        }
        let sent = pipeline.output.sent;
        pipeline.output.writer.finish().map_err(write_error)?;
        Ok(sent)
    })
}

fn write_error(error: StreamError) -> SendError {
    match error {
        StreamError::Write(cause) => SendError::Write(cause),
        other => SendError::Write(std::io::Error::other(other)),
    }
}

/// The target of the stream.
struct Output<'a> {
    writer: Writer<BufWriter<&'a mut dyn Write>>,
    on_bytes: &'a mut dyn FnMut(u64) -> ControlFlow<()>,
    sent: Sent,
}

impl Output<'_> {
    fn put(&mut self, record: &Record, payload: &[u8]) -> Result<(), SendError> {
        self.writer.write_record(record, payload).map_err(write_error)?;
        self.sent.records += 1;
        self.sent.bytes += (HEADER_SIZE + payload.len()) as u64;
        match (self.on_bytes)(self.sent.bytes) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(SendError::Cancelled),
        }
    }
}

/// An element of the queue.
enum Entry {
    Record(Record, Vec<u8>),
    Block(Block),
}

impl Entry {
    fn bytes(&self) -> u64 {
        let own = size_of::<Entry>() as u64;
        match self {
            Entry::Record(_, payload) => own + payload.len() as u64,
            Entry::Block(block) => own + block.memory(),
        }
    }
}

struct Pipeline<'a> {
    plan: &'a Plan,
    jobs: Sender<Job>,
    waiting: &'a Mutex<Receiver<Job>>,
    queue: VecDeque<Entry>,
    queued: u64,
    /// The batch that still grows.
    forming: Vec<BlockRequest>,
    forming_bytes: u64,
    /// Batches that are read, or wait for a reader.
    batches: VecDeque<Receiver<Results>>,
    /// Blocks of the first batch that are not yet written.
    arrived: IntoIter<Result<dmu::Block, DmuError>>,
    output: Output<'a>,
}

impl Sink for Pipeline<'_> {
    fn record(&mut self, record: Record, payload: Vec<u8>) -> Result<(), SendError> {
        self.push(Entry::Record(record, payload))
    }

    fn block(&mut self, block: Block) -> Result<(), SendError> {
        self.forming_bytes += block.memory();
        self.forming.push(block.request.clone());
        if self.forming_bytes >= BATCH_BYTES || self.forming.len() >= BATCH_BLOCKS {
            self.start_batch();
        }
        self.push(Entry::Block(block))
    }
}

impl Pipeline<'_> {
    fn push(&mut self, entry: Entry) -> Result<(), SendError> {
        self.queued += entry.bytes();
        self.queue.push_back(entry);
        self.drain(IN_FLIGHT)
    }

    /// Gives the batch that has formed to the readers.
    fn start_batch(&mut self) {
        self.forming_bytes = 0;
        let requests = std::mem::take(&mut self.forming);
        let (reply, results) = channel();
        self.batches.push_back(results);
        // The receiver of jobs lives as long as this.
        let _ = self.jobs.send(Job { requests, reply });
    }

    /// Writes the front of the queue until it has at most this many bytes.
    fn drain(&mut self, most: u64) -> Result<(), SendError> {
        while self.queued > most {
            let Some(entry) = self.queue.pop_front() else { return Ok(()) };
            self.queued -= entry.bytes();
            match entry {
                Entry::Record(record, payload) => self.output.put(&record, &payload)?,
                Entry::Block(block) => self.write(block)?,
            }
        }
        Ok(())
    }

    fn write(&mut self, mut block: Block) -> Result<(), SendError> {
        let read = match self.next_block()? {
            Ok(read) => read,
            Err(cause) => self.filled(&mut block, cause)?,
        };
        block.write(&read, &mut |record, payload| self.output.put(record, payload))
    }

    /// Contents in place of a block that cannot be read.
    fn filled(&mut self, block: &mut Block, cause: DmuError) -> Result<dmu::Block, SendError> {
        let is_unreadable = matches!(cause, DmuError::Zio { .. });
        let filled = if is_unreadable && self.plan.fill_unreadable { block.fill() } else { None };
        self.output.sent.filled += u64::from(filled.is_some());
        filled.ok_or_else(|| block.error(cause))
    }

    /// The next block of the queue, as it was read.
    fn next_block(&mut self) -> Result<Result<dmu::Block, DmuError>, SendError> {
        loop {
            if let Some(block) = self.arrived.next() {
                return Ok(block);
            }
            if self.batches.is_empty() && !self.forming.is_empty() {
                self.start_batch();
            }
            let batch = self.batches.pop_front().ok_or(FAILED)?;
            self.arrived = self.wait(&batch)?.into_iter();
        }
    }

    /// The blocks of a batch. This thread reads too if none else takes the work.
    fn wait(&self, batch: &Receiver<Results>) -> Result<Results, SendError> {
        if let Ok(results) = batch.try_recv() {
            return Ok(results);
        }
        if let Ok(jobs) = self.waiting.try_lock() {
            let next = jobs.try_recv();
            drop(jobs);
            if let Ok(job) = next {
                job.run(&self.plan.set);
            }
        }
        batch.recv().map_err(|_| FAILED)
    }
}
