//! Intent logs: `zdb -i`. One `i` prints the header of each log, two the records, three their fields, four
//! the blocks of the chain and the pointers in records, five full pointers and the first bytes of written
//! data, six all of the data.
//!
//! # What always holds
//! - A log is only listed, not replayed, and a chain ends with its last valid block.

use super::bp::Long;
use super::text::put;
use super::{Verdict, chain};
use crate::time::ctime;
use admin::debug::{KeyState, ObjSet, zil};
use format::zil::{Body, Create, CreateKind, RawRecord, RecordKind, SetAttr, block_seq};
use format::{BlockPtr, Txg};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Bytes of written data that are printed with fewer than six `i`.
const DATA_SHOWN: usize = 20;

/// Names of the attributes in the mask of a record, in the numbering of the real tool. Linux stores other
/// numbers (its `ATTR_…`), so a change of size, 8, is printed as one of the group: the output stays as users
/// know it, and the raw mask is printed as well.
const ATTRIBUTES: [(u64, &str); 6] =
    [(0x2, "MODE"), (0x4, "UID"), (0x8, "GID"), (0x80, "SIZE"), (0x100, "ATIME"), (0x200, "MTIME")];

/// State of printing a log.
struct Log<'a> {
    objset: &'a ObjSet,
    /// Last txg of the pool. Blocks of later txgs are not in the space maps: an import would claim them.
    last_txg: Txg,
    detail: usize,
    /// Number of records of each kind.
    counts: BTreeMap<RecordKind, u64>,
    text: Vec<u8>,
}

/// Prints the log of a head, if it has one.
pub(super) fn print(
    objset: &ObjSet,
    last_txg: Txg,
    detail: usize,
    out: &mut dyn Write,
) -> io::Result<Verdict> {
    let head = &objset.phys().zil;
    if head.log.is_hole() {
        return Ok(Verdict::Clean);
    }
    writeln!(
        out,
        "\n    ZIL header: claim_txg {}, claim_blk_seq {}, claim_lr_seq {} replay_seq {}, flags {:#x}",
        head.claim_txg, head.claim_blk_seq, head.claim_lr_seq, head.replay_seq, head.flags
    )?;
    if detail < 2 {
        return Ok(Verdict::Clean);
    }
    writeln!(out)?;
    let mut log = Log { objset, last_txg, detail, counts: BTreeMap::new(), text: Vec::new() };
    let mut written = Ok(());
    let walked = zil::walk(objset, &mut |bp, records| {
        log.block(bp, records);
        written = out.write_all(&log.text);
        log.text.clear();
        written.is_ok()
    });
    written?;
    if let Ok(Some(end)) = &walked {
        // Allocated for the next records, which were never written.
        log.block_head(end);
    }
    log.totals();
    out.write_all(&log.text)?;
    match walked {
        Ok(_) => Ok(Verdict::Clean),
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            Ok(Verdict::Unreadable)
        }
    }
}

impl Log<'_> {
    fn claim(&self, bp: &BlockPtr) -> &'static str {
        if self.objset.phys().zil.claim_txg != Txg(0) {
            "already claimed"
        } else if bp.logical_birth() > self.last_txg {
            "will claim"
        } else {
            "won't claim"
        }
    }

    fn block_head(&mut self, bp: &BlockPtr) {
        if self.detail > 3 {
            let _ = write!(self.text, "\tBlock seqno {}, {}", block_seq(bp), self.claim(bp));
            if self.detail > 4 {
                let _ = write!(self.text, ", {}", Long(bp));
            }
            self.text.push(b'\n');
        }
    }

    fn block(&mut self, bp: &BlockPtr, records: format::zil::Records<'_>) {
        self.block_head(bp);
        for record in records {
            // Writing to memory cannot fail.
            let _ = match record {
                Ok(record) => self.record(&record),
                Err(error) => writeln!(self.text, "\t\t{error}"),
            };
        }
    }

    fn record(&mut self, record: &RawRecord<'_>) -> io::Result<()> {
        let name = match record.kind() {
            Ok(kind) => {
                *self.counts.entry(kind).or_default() += 1;
                kind.name()
            }
            Err(_) => "TX_UNKNOWN",
        };
        let ci = if record.case_insensitive { "CI-" } else { "" };
        let (len, txg, seq) = (record.bytes.len(), record.txg, record.seq);
        writeln!(self.text, "\t\t{ci}{name:<19} len {len:6}, txg {txg}, seq {seq}")?;
        if self.detail < 3 {
            return Ok(());
        }
        if self.objset.is_locked() {
            return writeln!(self.text, "\t\t\t(encrypted)");
        }
        match record.decode() {
            Ok(decoded) => self.body(&decoded.body),
            Err(error) => writeln!(self.text, "\t\t\t{error}"),
        }
    }

    fn body(&mut self, body: &Body) -> io::Result<()> {
        let text = &mut self.text;
        match body {
            Body::Create(create) => created(text, create),
            Body::Remove { dir, name } | Body::Rmdir { dir, name } => {
                put(text, format_args!("\t\t\tdoid {dir}, name "), name, "\n")
            }
            Body::Link { dir, object, name } => {
                put(text, format_args!("\t\t\tdoid {dir}, link_obj {object}, name "), name, "\n")
            }
            Body::Rename(r) => renamed(text, r),
            Body::Exchange(r) => {
                renamed(text, r)?;
                writeln!(text, "\t\t\tflags RENAME_EXCHANGE")
            }
            Body::Whiteout(r, _) => {
                renamed(text, r)?;
                writeln!(text, "\t\t\tflags RENAME_WHITEOUT")
            }
            Body::Write { object, offset, length, bp, data } => {
                writeln!(text, "\t\t\tfoid {object}, offset {offset:x}, length {length:x}")?;
                self.written(bp, data.as_deref(), *length)
            }
            Body::Write2 { object, offset, length } => {
                writeln!(text, "\t\t\tfoid {object}, offset {offset:x}, length {length:x}")
            }
            Body::Truncate { object, offset, length } => {
                writeln!(text, "\t\t\tfoid {object}, offset 0x{offset:x}, length 0x{length:x}")
            }
            Body::SetAttr(set) => attributes(text, set),
            Body::AclV0 { object, aces } => {
                // An entry of the old form has 12 bytes.
                writeln!(text, "\t\t\tfoid {object}, aclcnt {}", aces.len() / 12)
            }
            Body::Acl { object, acl, .. } => writeln!(text, "\t\t\tfoid {object}, aclcnt {}", acl.count),
            Body::SetSaXattr { object, name, value } => {
                put(text, format_args!("\t\t\tfoid {object}\n\t\t\tXAT_NAME "), name, " XAT_VALUE ")?;
                if value.is_empty() {
                    writeln!(text, "NULL")
                } else {
                    writeln!(text, "{}", super::text::Octal(value))
                }
            }
            Body::CloneRange(clone) => {
                writeln!(
                    text,
                    "\t\t\tfoid {}, offset {:x}, length {:x}, blksize {:x}",
                    clone.object, clone.offset, clone.length, clone.block_size
                )?;
                let all = clone.pointers.len();
                let shown = if self.detail > 3 { &clone.pointers[..] } else { &[] };
                for (i, bp) in shown.iter().enumerate() {
                    writeln!(text, "\t\t\t[{}/{all}] {}", i + 1, Long(bp))?;
                }
                Ok(())
            }
        }
    }

    /// Prints where the data of a write of `length` bytes is, and its first bytes. The block may be longer
    /// than the write.
    fn written(&mut self, bp: &BlockPtr, data: Option<&[u8]>, length: u64) -> io::Result<()> {
        if self.detail < 4 {
            return Ok(());
        }
        if data.is_none() {
            writeln!(self.text, "\t\t\thas blkptr, {}", self.claim(bp))?;
            writeln!(self.text, "\t\t\t{}", Long(bp))?;
        }
        if self.detail < 5 {
            return Ok(());
        }
        let key = match self.objset.key() {
            KeyState::Key(key) => Some(key.as_ref()),
            _ => None,
        };
        let read;
        let bytes = match data {
            Some(data) => data,
            None => match self.objset.store().read(bp, key) {
                Ok(block) => {
                    read = block;
                    read.bytes()
                }
                Err(error) => return writeln!(self.text, "\t\t\t{}", chain(&error)),
            },
        };
        self.text.extend_from_slice(b"\t\t\t");
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let shown = if self.detail > 5 { length } else { length.min(DATA_SHOWN) };
        for byte in bytes.iter().take(shown) {
            match byte {
                b' '..=b'~' => write!(self.text, "{} ", char::from(*byte))?,
                // The real tool prints the byte as a signed number.
                _ => write!(self.text, "{:2X}", i32::from(byte.cast_signed()))?,
            }
        }
        self.text.push(b'\n');
        Ok(())
    }

    /// Prints the number of records of each kind; with enough detail, also kinds without records.
    fn totals(&mut self) {
        if self.detail > 3 {
            self.text.push(b'\n');
        }
        let all: u64 = self.counts.values().sum();
        if all == 0 {
            return;
        }
        let width = all.to_string().len();
        let mut row = |name: &str, n: u64| drop(writeln!(self.text, "\t\t{name:<20}{n:width$}"));
        row("Total", all);
        for id in 1_u64.. {
            let Ok(kind) = RecordKind::from_id(id) else { break };
            let n = self.counts.get(&kind).copied().unwrap_or(0);
            if n > 0 || self.detail > 2 {
                row(kind.name(), n);
            }
        }
        self.text.push(b'\n');
    }
}

fn renamed(text: &mut Vec<u8>, r: &format::zil::Rename) -> io::Result<()> {
    writeln!(text, "\t\t\tsdoid {}, tdoid {}", r.from_dir, r.to_dir)?;
    put(text, format_args!("\t\t\tsrc "), &r.from, " tgt ")?;
    put(text, format_args!(""), &r.to, "\n")
}

fn created(text: &mut Vec<u8>, c: &Create) -> io::Result<()> {
    match c.what {
        // A directory of extended attributes has no name.
        CreateKind::XattrDir => {}
        CreateKind::Symlink => {
            put(text, format_args!("\t\t\t"), &c.name, " -> ")?;
            put(text, format_args!(""), &c.target, "\n")?;
        }
        _ => put(text, format_args!("\t\t\t"), &c.name, "\n")?,
    }
    writeln!(text, "\t\t\t{}", ctime(c.crtime.secs))?;
    writeln!(text, "\t\t\tdoid {}, foid {}, slots {}, mode {:o}", c.dir, c.object, c.slots, c.mode)?;
    writeln!(text, "\t\t\tuid {}, gid {}, gen {}, rdev 0x{:x}", c.uid, c.gid, c.generation, c.rdev)
}

fn attributes(text: &mut Vec<u8>, set: &SetAttr) -> io::Result<()> {
    writeln!(text, "\t\t\tfoid {}, mask 0x{:x}", set.object, set.mask)?;
    for (bit, name) in ATTRIBUTES.iter().filter(|(bit, _)| set.mask & bit != 0) {
        write!(text, "\t\t\tAT_{name:<5} ")?;
        match bit {
            0x2 => writeln!(text, "{:o}", set.mode)?,
            0x4 => writeln!(text, "{}", set.uid)?,
            0x8 => writeln!(text, "{}", set.gid)?,
            0x80 => writeln!(text, "{}", set.size)?,
            0x100 => writeln!(text, "{}", ctime(set.atime.secs))?,
            _ => writeln!(text, "{}", ctime(set.mtime.secs))?,
        }
    }
    Ok(())
}
