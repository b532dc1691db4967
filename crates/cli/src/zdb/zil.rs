//! Intent logs, as `zdb -i` prints them.

use super::{Verdict, chain};
use crate::time::ctime;
use cenote::inspect::{ObjSet, zil};
use format::BlockPtr;
use format::zil::{Body, Create, RawRecord, SetAttr, block_seq};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Prints the head of a log and, if `detail` is more than one, its blocks and records.
pub(crate) fn print(objset: &ObjSet, detail: usize, out: &mut dyn Write) -> io::Result<Verdict> {
    let head = &objset.phys().zil;
    if head.log.is_hole() && head.claim_txg.0 == 0 {
        return Ok(Verdict::Clean);
    }
    writeln!(
        out,
        "\n    ZIL header: claim_txg {}, claim_blk_seq {}, claim_lr_seq {} replay_seq {}, flags {:#x}",
        head.claim_txg, head.claim_blk_seq, head.claim_lr_seq, head.replay_seq, head.flags
    )?;
    let mut text = String::new();
    let mut totals = std::collections::BTreeMap::new();
    let walked = zil::walk(objset, &mut |bp, records| {
        if detail > 2 {
            let _ = writeln!(text, "\n\tBlock seqno {}, {}", block_seq(bp), super::bp::Long(bp));
        }
        for record in records {
            match record {
                Ok(record) => {
                    let name = record.kind().map_or("UNKNOWN", |kind| kind.name());
                    *totals.entry(name).or_insert(0_u64) += 1;
                    if detail > 1 {
                        describe(&mut text, &record, name, objset.is_locked());
                    }
                }
                Err(error) => drop(writeln!(text, "\t\t{error}")),
            }
        }
        true
    });
    if !text.is_empty() {
        writeln!(out)?;
    }
    out.write_all(text.as_bytes())?;
    for (name, count) in totals {
        writeln!(out, "\t\t{name:<20} {count:>6}")?;
    }
    writeln!(out)?;
    match walked {
        Ok(_) => Ok(Verdict::Clean),
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            Ok(Verdict::Unreadable)
        }
    }
}

fn describe(text: &mut String, record: &RawRecord<'_>, name: &str, locked: bool) {
    let ci = if record.case_insensitive { "CI-" } else { "" };
    let len = record.bytes.len();
    let _ = writeln!(text, "\t\t{ci}{name:<20}len {len:>6}, txg {}, seq {}", record.txg, record.seq);
    if locked {
        let _ = writeln!(text, "\t\t\t(encrypted)");
        return;
    }
    let _ = match record.decode() {
        Ok(decoded) => body(text, &decoded.body),
        Err(error) => writeln!(text, "\t\t\t{error}"),
    };
}

fn body(text: &mut String, body: &Body) -> std::fmt::Result {
    match body {
        Body::Create(create) => created(text, create),
        Body::Remove { dir, name } | Body::Rmdir { dir, name } => {
            writeln!(text, "\t\t\tdoid {dir}, name {}", name.escape_ascii())
        }
        Body::Link { dir, object, name } => {
            writeln!(text, "\t\t\tdoid {dir}, link_obj {object}, name {}", name.escape_ascii())
        }
        Body::Rename(r) | Body::Exchange(r) => renamed(text, r),
        Body::Whiteout(r, create) => {
            renamed(text, r)?;
            created(text, create)
        }
        Body::Write { object, offset, length, bp, data } => {
            writeln!(text, "\t\t\tfoid {object}, offset {offset:x}, length {length:x}")?;
            if data.is_none() { pointer(text, bp) } else { Ok(()) }
        }
        Body::Write2 { object, offset, length } => {
            writeln!(text, "\t\t\tfoid {object}, offset {offset:x}, length {length:x}")
        }
        Body::Truncate { object, offset, length } => {
            writeln!(text, "\t\t\tfoid {object}, offset {offset:#x}, length {length:#x}")
        }
        Body::SetAttr(set) => attributes(text, set),
        Body::AclV0 { object, aces } => writeln!(text, "\t\t\tfoid {object}, {} bytes of entries", aces.len()),
        Body::Acl { object, acl, .. } => writeln!(text, "\t\t\tfoid {object}, aclcnt {}", acl.count),
        Body::SetSaXattr { object, name, value } => {
            writeln!(text, "\t\t\tfoid {object}\n\t\t\tXAT_NAME {} XAT_VALUE {} bytes", name.escape_ascii(), value.len())
        }
        Body::CloneRange(clone) => {
            writeln!(
                text,
                "\t\t\tfoid {}, offset {:x}, length {:x}, blksize {:x}",
                clone.object, clone.offset, clone.length, clone.block_size
            )?;
            clone.pointers.iter().try_for_each(|bp| pointer(text, bp))
        }
    }
}

fn pointer(text: &mut String, bp: &BlockPtr) -> std::fmt::Result {
    writeln!(text, "\t\t\thas blkptr, {}", super::bp::Long(bp))
}

fn renamed(text: &mut String, r: &format::zil::Rename) -> std::fmt::Result {
    writeln!(
        text,
        "\t\t\tsdoid {}, tdoid {}\n\t\t\tsrc {} tgt {}",
        r.from_dir,
        r.to_dir,
        r.from.escape_ascii(),
        r.to.escape_ascii()
    )
}

fn created(text: &mut String, c: &Create) -> std::fmt::Result {
    if c.target.is_empty() {
        writeln!(text, "\t\t\t{}", c.name.escape_ascii())?;
    } else {
        writeln!(text, "\t\t\t{} -> {}", c.name.escape_ascii(), c.target.escape_ascii())?;
    }
    writeln!(text, "\t\t\t{}", ctime(c.crtime.secs))?;
    writeln!(text, "\t\t\tdoid {}, foid {}, slots {}, mode {:o}", c.dir, c.object, c.slots, c.mode)?;
    writeln!(text, "\t\t\tuid {}, gid {}, gen {}, rdev {:#x}", c.uid, c.gid, c.generation, c.rdev)
}

fn attributes(text: &mut String, set: &SetAttr) -> std::fmt::Result {
    writeln!(text, "\t\t\tfoid {}, mask {:#x}", set.object, set.mask)?;
    let linux = [(1, "mode"), (2, "uid"), (4, "gid"), (8, "size"), (0x10, "atime"), (0x20, "mtime")];
    for (bit, name) in linux {
        if set.mask & bit == 0 {
            continue;
        }
        match bit {
            1 => writeln!(text, "\t\t\t{name} {:o}", set.mode)?,
            2 => writeln!(text, "\t\t\t{name} {}", set.uid)?,
            4 => writeln!(text, "\t\t\t{name} {}", set.gid)?,
            8 => writeln!(text, "\t\t\t{name} {}", set.size)?,
            0x10 => writeln!(text, "\t\t\t{name} {}", ctime(set.atime.secs))?,
            _ => writeln!(text, "\t\t\t{name} {}", ctime(set.mtime.secs))?,
        }
    }
    Ok(())
}
