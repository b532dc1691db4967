//! Datasets and their objects: `zdb -d`, `-i`.

use super::bp::Long;
use super::view::View;
use super::{Options, Verdict, chain, deadlists, dirty_times, object, zil};
use admin::debug::{Filesystem, ObjSet, Paths, prop};
use cenote::inspect::{FeatureCount, census, leaked_objects, removal_census};
use cenote::{Dataset, Pool};
use format::dnode::SLOT_SIZE;
use format::names;
use format::objset::ObjsetType;
use format::{ObjType, ObjectId};
use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::sync::Arc;

/// A dataset or the meta object set, with what is needed to print it.
struct Subject<'a> {
    pool: &'a Pool,
    name: String,
    id: u64,
    created: u64,
    used: u64,
    objset: Arc<ObjSet>,
    dataset: Option<Dataset>,
}

impl<'a> Subject<'a> {
    fn mos(pool: &'a Pool) -> Subject<'a> {
        Subject {
            pool,
            name: "mos".to_owned(),
            id: 0,
            // The first txg of every pool; the meta object set has no record of its creation.
            created: 4,
            used: pool.spa().hidden_space(names::hidden::MOS).unwrap_or(0),
            objset: Arc::clone(pool.spa().mos()),
            dataset: None,
        }
    }

    fn of(pool: &'a Pool, dataset: Dataset) -> Result<Subject<'a>, cenote::Error> {
        let phys = dataset.dsl().phys();
        Ok(Subject {
            pool,
            name: dataset.name().to_owned(),
            id: dataset.dsl().id().0,
            created: phys.creation_txg.0,
            used: phys.referenced,
            objset: dataset.objset()?,
            dataset: Some(dataset),
        })
    }

    /// The dataset with this name, or for `pool/N` the one in object N. With `by_number`, only the latter.
    fn named(pool: &'a Pool, name: &str, by_number: bool) -> Result<Subject<'a>, cenote::Error> {
        let number = name.split_once('/').and_then(|(_, rest)| parse_number(rest));
        let dataset = match pool.dataset(name) {
            _ if by_number && number.is_some() => None,
            Ok(dataset) => Some(dataset),
            Err(error) if number.is_none() => return Err(error),
            Err(_) => None,
        };
        match (dataset, number.unwrap_or(0)) {
            (Some(dataset), _) => Subject::of(pool, dataset),
            (None, id) => {
                let found = pool.dsl().dataset_by_object(ObjectId(id))?;
                Subject::of(pool, pool.dataset(found.name())?)
            }
        }
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

/// Prints all datasets, then compares the counts of the features with the objects that use them.
pub(super) fn print_all(pool: &Pool, options: &Options, out: &mut dyn Write) -> io::Result<Verdict> {
    let mut verdict = print_subject(&Subject::mos(pool), &[], options, out)?;
    if options.detail('d') > 2 {
        deadlists::print_pool(pool, options, out)?;
        dirty_times::print(pool, options, out)?;
    }
    let datasets = match pool.datasets() {
        Ok(datasets) => children_first(pool, datasets),
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            return Ok(Verdict::Unreadable);
        }
    };
    for dataset in datasets {
        let name = dataset.name().to_owned();
        match Subject::of(pool, dataset) {
            Ok(subject) => verdict = verdict.max(print_subject(&subject, &[], options, out)?),
            Err(error) => {
                eprintln!("failed to own dataset '{name}': {}", chain(&error));
                verdict = verdict.max(Verdict::Unreadable);
            }
        }
    }
    if options.detail('d') > 2 {
        deadlists::print_origin(pool, options, out)?;
    }
    if verdict == Verdict::Clean {
        verdict = print_leaks(pool, out)?;
    }
    verdict = verdict.max(print_census(census(pool), out)?);
    if verdict == Verdict::Clean {
        verdict = print_census(removal_census(pool), out)?;
    }
    Ok(verdict)
}

/// Prints objects of the meta object set that no object refers to.
fn print_leaks(pool: &Pool, out: &mut dyn Write) -> io::Result<Verdict> {
    let leaked = match leaked_objects(pool) {
        Ok(leaked) => leaked,
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            return Ok(Verdict::Unreadable);
        }
    };
    for object in &leaked {
        writeln!(out, "MOS object {} ({}) leaked", object.id, object::type_name(object.kind))?;
    }
    Ok(if leaked.is_empty() { Verdict::Clean } else { Verdict::Inconsistent })
}

/// Sorts datasets as the real tool does: the datasets below one, its snapshots, then the dataset itself;
/// children and snapshots in the order of their ZAPs.
fn children_first(pool: &Pool, datasets: Vec<Dataset>) -> Vec<Dataset> {
    let mut ranks = std::collections::HashMap::new();
    let mut next = 0_usize;
    let mut rank = |name: String| {
        ranks.insert(name, next);
        next += 1;
    };
    if let Ok(root) = pool.dsl().root() {
        rank_dir(&root, &mut rank, 0);
    }
    let mut datasets = datasets;
    datasets.sort_by_key(|dataset| ranks.get(dataset.name()).copied().unwrap_or(usize::MAX));
    datasets
}

/// Deeper than names of datasets can nest.
const DEPTH_MAX: usize = 256;

fn rank_dir(dir: &admin::debug::Dir, rank: &mut dyn FnMut(String), depth: usize) {
    let children = if depth < DEPTH_MAX { dir.child_entries().unwrap_or_default() } else { Vec::new() };
    for (name, _) in children.into_iter().flatten() {
        if let Ok(Some(child)) = dir.child(&name) {
            rank_dir(&child, rank, depth + 1);
        }
    }
    if let Ok(Some(head)) = dir.head() {
        for (name, _) in head.snapshot_entries().unwrap_or_default() {
            rank(format!("{}@{name}", dir.name()));
        }
    }
    rank(dir.name().to_owned());
}

fn print_census(
    counts: Result<Vec<FeatureCount>, cenote::Error>,
    out: &mut dyn Write,
) -> io::Result<Verdict> {
    let counts = match counts {
        Ok(counts) => counts,
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            return Ok(Verdict::Unreadable);
        }
    };
    let mut verdict = Verdict::Clean;
    for count in counts {
        let (name, recorded, counted) = (count.name, count.recorded, count.counted);
        if counted == recorded {
            writeln!(out, "Verified {name} feature refcount of {recorded} is correct")?;
        } else {
            writeln!(out, "{name} feature refcount mismatch: {counted} consumers != {recorded} refcount")?;
            verdict = Verdict::Inconsistent;
        }
    }
    Ok(verdict)
}

/// Prints one dataset (`mos`: the meta object set), or the named objects of it.
pub(super) fn print_one(
    pool: &Pool,
    name: Option<&str>,
    objects: &[String],
    options: &Options,
    out: &mut dyn Write,
) -> io::Result<Verdict> {
    let subject = match name {
        None => Ok(Subject::mos(pool)),
        Some(name) => Subject::named(pool, name, options.has('N')),
    };
    let subject = match subject {
        Ok(subject) => subject,
        Err(error) => {
            let name = name.unwrap_or("mos");
            eprintln!("failed to hold dataset '{name}': {}", chain(&error));
            eprintln!("zdb: can't open '{name}': {}", chain(&error));
            return Ok(Verdict::Failed);
        }
    };
    let mut wanted = Vec::new();
    for text in objects {
        match Range::parse(text) {
            Ok(range) => wanted.push(range),
            Err(why) => {
                eprintln!("zdb: Bad object or range: '{text}': {why}\n");
                return Ok(Verdict::Failed);
            }
        }
    }
    print_subject(&subject, &wanted, options, out)
}

/// Whether a name means the whole pool: `pool/0`, unless a dataset has that name.
pub(super) fn is_whole_pool(pool: &Pool, name: &str, by_number: bool) -> bool {
    let number = name.split_once('/').and_then(|(_, rest)| parse_number(rest));
    number == Some(0) && (by_number || pool.dataset(name).is_err())
}

/// Whether the text after the name of a pool is the number of an object set, or empty.
pub(super) fn is_number(below: &str) -> bool {
    below.strip_prefix('/').is_none_or(|text| parse_number(text).is_some())
}

/// Parses a number as C does: decimal, octal after `0`, hexadecimal after `0x`, possibly negative.
fn parse_number(text: &str) -> Option<u64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let value = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None if digits.len() > 1 && digits.starts_with('0') => u64::from_str_radix(digits, 8).ok()?,
        None => digits.parse::<u64>().ok()?,
    };
    Some(if negative { value.wrapping_neg() } else { value })
}

/// The objects to print: `N`, or `FIRST:LAST[:FLAGS]`.
struct Range {
    first: u64,
    last: u64,
    is_single: bool,
    /// The wanted or unwanted kinds among `d f m z`; all kinds if empty.
    kinds: Vec<(char, bool)>,
}

impl Range {
    fn parse(text: &str) -> Result<Range, &'static str> {
        let mut parts = text.splitn(3, ':');
        let (first, last, flags) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        if first.is_empty() || last.is_some_and(str::is_empty) {
            return Err("Missing object ID");
        }
        let number = |t| parse_number(t).ok_or("Invalid characters in object ID");
        let first = number(first)?;
        let Some(last) = last else {
            return Ok(Range { first, last: first, is_single: true, kinds: Vec::new() });
        };
        let last = if last == "-1" { u64::MAX } else { number(last)? };
        if first > last {
            return Err("Malformed range");
        }
        let mut kinds = Vec::new();
        let mut wanted = true;
        if flags.is_some_and(|flags| flags.is_empty() || flags.ends_with('-')) {
            return Err("Invalid flags");
        }
        for flag in flags.unwrap_or_default().chars() {
            match flag {
                '-' if !wanted => return Err("Invalid flags"),
                '-' => wanted = false,
                'A' if wanted => kinds.clear(),
                'A' | 'd' | 'f' | 'm' | 'z' => {
                    kinds.push((flag, wanted));
                    wanted = true;
                }
                _ => return Err("Invalid flags"),
            }
        }
        Ok(Range { first, last, is_single: false, kinds })
    }

    /// All objects, and none of the parts that precede them.
    fn all() -> Range {
        Range { first: 1, last: u64::MAX, is_single: false, kinds: Vec::new() }
    }

    fn wants(&self, kind: ObjType) -> bool {
        let letter = match kind {
            ObjType::DIRECTORY => 'd',
            ObjType::PLAIN_FILE => 'f',
            ObjType::SPACE_MAP => 'm',
            // ZAPs with a type of their own have other names.
            kind if super::object::type_name(kind).contains("zap") => 'z',
            _ => 'A',
        };
        // The last flag for this kind decides.
        let said = self.kinds.iter().rev().find(|(flag, _)| *flag == letter || *flag == 'A');
        match said {
            Some((_, wanted)) => *wanted,
            // If all flags are negations, other kinds are wanted.
            None => self.kinds.iter().all(|(_, wanted)| !wanted),
        }
    }
}

fn print_subject(
    subject: &Subject<'_>,
    wanted: &[Range],
    options: &Options,
    out: &mut dyn Write,
) -> io::Result<Verdict> {
    let objset = &subject.objset;
    let detail = options.detail('d');
    write!(
        out,
        "Dataset {} [{}], ID {}, cr_txg {}, {}, {} objects",
        subject.name,
        kind(objset),
        subject.id,
        subject.created,
        options.number(subject.used),
        objset.root().fill(),
    )?;
    if detail > 3 {
        write!(out, ", rootbp {}", Long(objset.root()))?;
    }
    if subject.dataset.as_ref().is_some_and(|dataset| dataset.dsl().is_inconsistent()) {
        write!(out, " (inconsistent)")?;
    }
    writeln!(out)?;
    let view = View {
        options,
        detail,
        paths: filesystem(objset).map(|fs| RefCell::new(Paths::new(fs))),
        compression: if detail > 5 { compression(subject) } else { String::new() },
        leaked: Cell::new(0),
        header: Cell::new(true),
    };
    if !wanted.is_empty() {
        let mut verdict = Verdict::Clean;
        for range in wanted {
            verdict = verdict.max(print_range(objset, range, &view, out, &mut Slots::default())?);
        }
        if verdict != Verdict::Failed {
            writeln!(out)?;
        }
        return Ok(verdict);
    }
    let mut verdict = Verdict::Clean;
    let is_head = subject.dataset.as_ref().is_some_and(|dataset| !dataset.dsl().is_snapshot());
    if is_head && (options.has('i') || detail > 1) {
        let detail = options.detail_of(&['d', 'i']);
        verdict = verdict.max(zil::print(objset, subject.pool.spa().txg(), detail, out)?);
    }
    if let Some(dataset) = &subject.dataset {
        deadlists::print(dataset, options, detail, out)?;
    }
    if detail < 2 {
        return Ok(verdict);
    }
    if objset.root().is_hole() {
        return Ok(verdict);
    }
    object::print(out, &objset.meta_object(), &view)?;
    for id in [ObjectId::USER_USED, ObjectId::GROUP_USED, ObjectId::PROJECT_USED] {
        if let Ok(special) = objset.object(id) {
            object::print(out, &special, &view)?;
        }
    }
    let mut slots = Slots::default();
    verdict = verdict.max(print_range(objset, &Range::all(), &view, out, &mut slots)?);
    slots.print(out)?;
    if view.leaked.get() > 0 {
        writeln!(out, "{} potentially leaked objects detected", view.leaked.get())?;
    }
    Ok(verdict)
}

/// Compression of the data of a dataset, as the real tool names it: it opens no properties of snapshots, and
/// knows only the levels of zstd by name.
fn compression(subject: &Subject<'_>) -> String {
    const INHERIT: &str = "inherit";
    let Some(dataset) = &subject.dataset else { return "on".to_owned() };
    if dataset.dsl().is_snapshot() {
        return INHERIT.to_owned();
    }
    let Ok(Some(value)) = prop::get(dataset.dsl(), "compression") else { return INHERIT.to_owned() };
    match prop::exact("compression", &value.raw).as_str() {
        "on" if subject.pool.spa().features().is_active("lz4_compress") => "lz4".to_owned(),
        "on" => "lzjb".to_owned(),
        "off" => "uncompressed".to_owned(),
        "gzip" => "gzip-6-unknown".to_owned(),
        "zstd" => "zstd-unknown".to_owned(),
        name if name.starts_with("gzip") => format!("{name}-unknown"),
        name => name.to_owned(),
    }
}

fn filesystem(objset: &Arc<ObjSet>) -> Option<Arc<Filesystem>> {
    if objset.kind() != ObjsetType::Zfs || objset.is_locked() {
        return None;
    }
    Filesystem::open(Arc::clone(objset)).ok()
}

fn print_range(
    objset: &Arc<ObjSet>,
    range: &Range,
    view: &View<'_>,
    out: &mut dyn Write,
    slots: &mut Slots,
) -> io::Result<Verdict> {
    if range.first == 0 && range.wants(ObjType::DNODE) {
        object::print(out, &objset.meta_object(), view)?;
    }
    if range.is_single {
        if range.first == 0 {
            return Ok(Verdict::Clean);
        }
        return match objset.object(ObjectId(range.first)) {
            Ok(one) => object::print(out, &one, view).map(|()| Verdict::Clean),
            Err(error) => {
                view.print_header(out)?;
                eprintln!("zdb: object {}: {}", range.first.cast_signed(), chain(&error));
                Ok(Verdict::Failed)
            }
        };
    }
    let mut verdict = Verdict::Clean;
    let mut next = ObjectId(range.first.max(1));
    while next.0 <= range.last {
        match objset.next_object(next) {
            Ok(Some(found)) if found.id().0 <= range.last => {
                slots.add(&found);
                next = ObjectId(found.id().0 + found.dnode().slots() as u64);
                if range.wants(found.dnode().obj_type) {
                    object::print(out, &found, view)?;
                }
            }
            Ok(_) => break,
            Err(error) => {
                eprintln!("zdb: {}", chain(&error));
                verdict = Verdict::Unreadable;
                // Continues after the block of dnodes that cannot be read.
                let per_block = (objset.phys().meta_dnode.data_block_size() / SLOT_SIZE as u64).max(1);
                next = ObjectId((next.0 / per_block + 1).saturating_mul(per_block));
                if next.0 > objset.phys().meta_dnode.maxblkid.0.saturating_add(1).saturating_mul(per_block) {
                    break;
                }
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
    fn add(&mut self, object: &admin::debug::Object) {
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
