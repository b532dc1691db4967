//! Datasets and their objects: `zdb -d`, `-i`, `-h`.

use super::bp::Long;
use super::{Options, Verdict, chain, object, zil};
use cenote::inspect::{Filesystem, KeyState, ObjSet, census};
use cenote::{Dataset, Pool};
use format::ObjectId;
use format::dnode::SLOT_SIZE;
use format::nicenum::nicenum;
use format::objset::ObjsetType;
use std::io::{self, Write};
use std::sync::Arc;

/// A dataset, or the pool's own objects, ready to be printed.
struct Subject {
    name: String,
    id: u64,
    created: u64,
    used: u64,
    objset: Arc<ObjSet>,
    is_snapshot: bool,
}

impl Subject {
    fn mos(pool: &Pool) -> Subject {
        let used = pool.dsl().root().ok();
        let used = used.and_then(|root| root.hidden_children().ok());
        let used = used.and_then(|all| all.into_iter().find(|dir| dir.component() == "$MOS"));
        Subject {
            name: "mos".to_owned(),
            id: 0,
            created: 4,
            used: used.map_or(0, |dir| dir.phys().used),
            objset: Arc::clone(pool.mos()),
            is_snapshot: false,
        }
    }

    fn of(dataset: &Dataset) -> Result<Subject, cenote::Error> {
        let phys = dataset.dsl().phys();
        Ok(Subject {
            name: dataset.name().to_owned(),
            id: dataset.dsl().id().0,
            created: phys.creation_txg.0,
            used: phys.referenced,
            objset: dataset.objset()?,
            is_snapshot: dataset.dsl().is_snapshot(),
        })
    }
}

fn kind(objset: &ObjSet) -> &'static str {
    match objset.kind() {
        ObjsetType::None => "NONE",
        ObjsetType::Meta => "META",
        ObjsetType::Zfs => "ZPL",
        ObjsetType::Zvol => "ZVOL",
        ObjsetType::Other => "OTHER",
    }
}

/// Prints all datasets, then compares the counts of the features with what they use.
pub(crate) fn print_all(pool: &Pool, options: &Options, out: &mut dyn Write) -> io::Result<Verdict> {
    let mut verdict = print_subject(&Subject::mos(pool), &[], options, out)?;
    let datasets = match pool.datasets() {
        Ok(datasets) => datasets,
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            return Ok(Verdict::Unreadable);
        }
    };
    for dataset in &datasets {
        match Subject::of(dataset) {
            Ok(subject) => verdict = verdict.max(print_subject(&subject, &[], options, out)?),
            Err(error) => {
                eprintln!("zdb: {}: {}", dataset.name(), chain(&error));
                verdict = verdict.max(Verdict::Unreadable);
            }
        }
    }
    match census(pool) {
        Ok(counts) => {
            for count in counts {
                if count.counted == count.recorded {
                    writeln!(out, "Verified {} feature refcount of {} is correct", count.name, count.recorded)?;
                } else {
                    let (name, recorded, counted) = (count.name, count.recorded, count.counted);
                    writeln!(out, "{name} feature refcount mismatch: {counted} consumers != {recorded} refcount")?;
                    verdict = verdict.max(Verdict::Inconsistent);
                }
            }
        }
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            verdict = verdict.max(Verdict::Unreadable);
        }
    }
    Ok(verdict)
}

/// Prints one dataset (`mos`: the pool's own objects), or the objects of it that are named.
pub(crate) fn print_one(
    pool: &Pool,
    name: &str,
    objects: &[String],
    options: &Options,
    out: &mut dyn Write,
) -> io::Result<Verdict> {
    let subject = if name == "mos" { Ok(Subject::mos(pool)) } else { pool.dataset(name).and_then(|d| Subject::of(&d)) };
    let subject = match subject {
        Ok(subject) => subject,
        Err(error) => {
            eprintln!("zdb: can't open '{name}': {}", chain(&error));
            return Ok(Verdict::Failed);
        }
    };
    let mut wanted = Vec::new();
    for text in objects {
        match parse_range(text) {
            Some(range) => wanted.push(range),
            None => {
                eprintln!("zdb: bad object number or range '{text}'");
                return Ok(Verdict::Failed);
            }
        }
    }
    print_subject(&subject, &wanted, options, out)
}

/// `N`, `FIRST:LAST`, `FIRST:LAST:FLAGS` (flags, which choose types, are not told apart).
fn parse_range(text: &str) -> Option<(ObjectId, ObjectId)> {
    let number = |t: &str| match t.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => t.parse::<u64>().ok().or_else(|| t.parse::<i64>().ok().map(|n| n as u64)),
    };
    let mut parts = text.split(':');
    let first = number(parts.next()?)?;
    let last = match parts.next() {
        None => first,
        Some("-1") => ObjectId::LIMIT - 1,
        Some(last) => number(last)?,
    };
    Some((ObjectId(first), ObjectId(last)))
}

fn print_subject(
    subject: &Subject,
    wanted: &[(ObjectId, ObjectId)],
    options: &Options,
    out: &mut dyn Write,
) -> io::Result<Verdict> {
    let objset = &subject.objset;
    let detail = options.count('d');
    let number = |n: u64| if options.has('P') { n.to_string() } else { nicenum(n) };
    write!(
        out,
        "Dataset {} [{}], ID {}, cr_txg {}, {}, {} objects",
        subject.name,
        kind(objset),
        subject.id,
        subject.created,
        number(subject.used),
        objset.root().fill(),
    )?;
    if detail > 3 {
        write!(out, ", rootbp {}", Long(objset.root()))?;
    }
    if matches!(objset.key(), KeyState::Locked) {
        write!(out, " (inconsistent or encrypted, key not loaded)").and(Ok(()))?;
    }
    writeln!(out)?;
    let mut verdict = Verdict::Clean;
    if options.has('i') && !subject.is_snapshot && subject.id != 0 {
        verdict = verdict.max(zil::print(objset, options.count('i'), out)?);
    }
    if detail < 2 && wanted.is_empty() {
        return Ok(verdict);
    }
    let fs = filesystem(objset);
    let ranges: &[(ObjectId, ObjectId)] = if wanted.is_empty() {
        writeln!(out, "\n{}", object::HEADER)?;
        print_special(subject, fs.as_ref(), options, out)?;
        &[(ObjectId(1), ObjectId(ObjectId::LIMIT - 1))]
    } else {
        wanted
    };
    let mut slots = Slots::default();
    for (first, last) in ranges {
        verdict = verdict.max(print_range(objset, (*first, *last), fs.as_ref(), options, out, &mut slots)?);
    }
    if wanted.is_empty() {
        slots.print(out)?;
    }
    Ok(verdict)
}

fn filesystem(objset: &Arc<ObjSet>) -> Option<Arc<Filesystem>> {
    if objset.kind() != ObjsetType::Zfs || objset.is_locked() {
        return None;
    }
    Filesystem::open(Arc::clone(objset)).ok()
}

/// The dnodes in the root block itself.
fn print_special(
    subject: &Subject,
    fs: Option<&Arc<Filesystem>>,
    options: &Options,
    out: &mut dyn Write,
) -> io::Result<()> {
    let detail = options.count('d');
    object::print(out, &subject.objset.meta_object(), fs, detail, options.has('P'))?;
    for id in [ObjectId::USER_USED, ObjectId::GROUP_USED, ObjectId::PROJECT_USED] {
        if let Ok(special) = subject.objset.object(id) {
            header_again(detail, out)?;
            object::print(out, &special, fs, detail, options.has('P'))?;
        }
    }
    Ok(())
}

/// With the contents of objects in between, each line of the table has its own heading.
fn header_again(detail: usize, out: &mut dyn Write) -> io::Result<()> {
    if detail > 3 { writeln!(out, "{}", object::HEADER) } else { Ok(()) }
}

fn print_range(
    objset: &Arc<ObjSet>,
    (first, last): (ObjectId, ObjectId),
    fs: Option<&Arc<Filesystem>>,
    options: &Options,
    out: &mut dyn Write,
    slots: &mut Slots,
) -> io::Result<Verdict> {
    let detail = options.count('d');
    let mut next = first;
    if first == last {
        writeln!(out, "\n{}", object::HEADER)?;
        return match if first.0 == 0 { Ok(objset.meta_object()) } else { objset.object(first) } {
            Ok(one) => object::print(out, &one, fs, detail, options.has('P')).map(|()| Verdict::Clean),
            Err(error) => {
                eprintln!("zdb: {}", chain(&error));
                Ok(Verdict::Failed)
            }
        };
    }
    let mut verdict = Verdict::Clean;
    while next <= last {
        match objset.next_object(next) {
            Ok(Some(found)) if found.id() <= last => {
                slots.add(&found);
                next = ObjectId(found.id().0 + found.dnode().slots() as u64);
                header_again(detail, out)?;
                object::print(out, &found, fs, detail, options.has('P'))?;
            }
            Ok(_) => break,
            Err(error) => {
                eprintln!("zdb: {}", chain(&error));
                verdict = Verdict::Unreadable;
                // Past the block of dnodes that cannot be read.
                let per_block = objset.phys().meta_dnode.data_block_size() / SLOT_SIZE as u64;
                next = ObjectId((next.0 / per_block.max(1) + 1).saturating_mul(per_block.max(1)));
            }
        }
    }
    Ok(verdict)
}

#[derive(Default)]
struct Slots {
    used: u64,
    max: u64,
}

impl Slots {
    fn add(&mut self, object: &cenote::inspect::Object) {
        self.used += object.dnode().slots() as u64;
        self.max = object.id().0 + object.dnode().slots() as u64 - 1;
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let empty = self.max.saturating_sub(self.used) as f64 * 100.0 / self.max.max(1) as f64;
        writeln!(out, "\n    Dnode slots:")?;
        writeln!(out, "\tTotal used:    {:>10}", self.used)?;
        writeln!(out, "\tMax used:      {:>10}", self.max)?;
        writeln!(out, "\tPercent empty: {empty:>10.6}\n")
    }
}
