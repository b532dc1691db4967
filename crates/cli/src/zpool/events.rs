//! `zpool events`: what has happened, as the ring of this process knows it. In a daemon that is everything since its
//! start; a command that opens its pools itself sees what it has done itself, which is nothing.

use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::time;
use admin::verbs::zpool::events::{ClearRequest, Event, Item, Request, wait_after};
use format::nvlist::{NvList, NvValue};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::time::Duration;

/// How often a follower looks whether it is to end.
const LOOK: Duration = Duration::from_millis(200);
/// In front of the pairs of an event; of lists within it, twice that.
const INDENT: usize = 8;

#[derive(Debug, Clone, Copy, Default)]
struct Options {
    verbose: bool,
    scripted: bool,
    follow: bool,
    clear: bool,
}

pub(super) fn run(args: Vec<OsString>, out: &Out) -> Outcome {
    let mut walk = Getopt::new(args, "vHfc", &[]);
    let mut options = Options::default();
    while let Some((letter, _)) = walk.next()? {
        match letter {
            'v' => options.verbose = true,
            'H' => options.scripted = true,
            'f' => options.follow = true,
            _ => options.clear = true,
        }
    }
    let operands = super::texts(&walk.operands());
    if operands.len() > 1 {
        return Err(Stop::usage("too many arguments"));
    }
    let mut request = Request { pool: operands.into_iter().next(), after: 0 };
    if options.clear {
        if request.pool.is_some() || options.verbose || options.scripted || options.follow {
            return Err(Stop::usage("invalid options combined with -c"));
        }
        let cleared = super::reading().run(&ClearRequest {}).map_err(Stop::failed)?;
        out.print(&format!("cleared {} events\n", cleared.events));
        return Ok(0);
    }
    // A pool that could be, there or not.
    request.check().map_err(|refusal| Stop::usage(refusal.to_string()))?;
    if !options.scripted {
        out.print(&format!("{:<30} CLASS\n", "TIME"));
    }
    let mut session = super::reading();
    loop {
        let (mut text, mut last) = (String::new(), request.after);
        let outcome = session.each(&request, &mut |item| {
            match item {
                Item::Lost(lost) => drop(writeln!(text, "dropped {lost} events")),
                Item::Event(event) => text.push_str(&shown(&event, options, out)),
                Item::Last(number) => last = number,
            }
            ControlFlow::Continue(())
        });
        outcome.map_err(Stop::failed)?;
        out.print(&text);
        if !options.follow {
            return Ok(0);
        }
        request.after = last;
        while !wait_after(last, LOOK) {
            crate::console::end_if_cancelled();
        }
    }
}

fn shown(event: &Event, options: Options, out: &Out) -> String {
    let when = format!("{}.{:09}", time::event(event.time.as_secs()), event.time.subsec_nanos());
    let class = out.cell(&event.class).into_owned();
    let mut text =
        if options.scripted { format!("{when}\t{class}\n") } else { format!("{when:<30} {class}\n") };
    if options.verbose {
        list(&event.pairs, 1, out, &mut text);
        text.push('\n');
    }
    text
}

fn list(pairs: &NvList, depth: usize, out: &Out, text: &mut String) {
    let indent = " ".repeat(INDENT * depth);
    for (name, value) in pairs.iter() {
        match value {
            NvValue::List(inner) => {
                let _ = writeln!(text, "{indent}{name} = (embedded nvlist)");
                list(inner, depth + 1, out, text);
                let _ = writeln!(text, "{indent}(end {name})");
            }
            NvValue::ListArray(lists) => {
                let _ = writeln!(text, "{indent}{name} = (array of embedded nvlists)");
                for (i, inner) in lists.iter().enumerate() {
                    let _ = writeln!(text, "{indent}(start {name}[{i}])");
                    list(inner, depth + 1, out, text);
                    let _ = writeln!(text, "{indent}(end {name}[{i}])");
                }
            }
            value => {
                let _ = writeln!(text, "{indent}{name} = {}", scalar(name, value, out));
            }
        }
    }
}

fn scalar(name: &str, value: &NvValue, out: &Out) -> String {
    fn hex<T: std::fmt::LowerHex>(numbers: &[T]) -> String {
        numbers.iter().map(|number| format!("{number:#x} ")).collect()
    }
    let quoted = |text: &str| format!("\"{}\"", out.cell(text));
    match value {
        NvValue::Boolean => "1".to_owned(),
        NvValue::BooleanValue(yes) => (if *yes { "True" } else { "False" }).to_owned(),
        NvValue::Byte(n) | NvValue::Uint8(n) => format!("{n:#x}"),
        NvValue::Int8(n) => format!("{n:#x}"),
        NvValue::Int16(n) => format!("{n:#x}"),
        NvValue::Uint16(n) => format!("{n:#x}"),
        NvValue::Int32(n) => named(name, u64::from(n.cast_unsigned())),
        NvValue::Uint32(n) => named(name, u64::from(*n)),
        NvValue::Int64(n) | NvValue::Hrtime(n) => format!("{n:#x}"),
        NvValue::Uint64(n) => named(name, *n),
        NvValue::Double(n) => format!("{n}"),
        NvValue::String(text) => quoted(text),
        NvValue::RawString(bytes) => quoted(&String::from_utf8_lossy(bytes)),
        NvValue::StringArray(texts) => texts.iter().map(|text| quoted(text) + " ").collect(),
        NvValue::ByteArray(v) | NvValue::Uint8Array(v) => hex(v),
        NvValue::Int8Array(v) => hex(v),
        NvValue::Int16Array(v) => hex(v),
        NvValue::Uint16Array(v) => hex(v),
        NvValue::Int32Array(v) => hex(v),
        NvValue::Uint32Array(v) => hex(v),
        NvValue::Int64Array(v) => hex(v),
        NvValue::Uint64Array(v) => hex(v),
        _ => "<unknown>".to_owned(),
    }
}

/// Numbers that stand for a word are shown with it.
fn named(name: &str, number: u64) -> String {
    const STATES: [&str; 8] =
        ["UNKNOWN", "CLOSED", "OFFLINE", "REMOVED", "UNAVAIL", "FAULTED", "DEGRADED", "ONLINE"];
    const PRIORITIES: [&str; 5] = ["SYNC_READ", "SYNC_WRITE", "ASYNC_READ", "ASYNC_WRITE", "SCRUB"];
    let word = |words: &'static [&str]| usize::try_from(number).ok().and_then(|i| words.get(i));
    match name {
        "vdev_state" | "vdev_laststate" => match word(&STATES) {
            Some(word) => format!("\"{word}\" ({number:#x})"),
            None => format!("{number:#x}"),
        },
        "zio_priority" => match word(&PRIORITIES) {
            Some(word) => format!("{number:#x} [{word}]"),
            None => format!("{number:#x}"),
        },
        _ => format!("{number:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REAL: &str = include_str!("../../../../fixtures/cli-transcripts/15-events.txt");

    /// An event of the transcript, of this class.
    fn real(class: &str) -> &'static str {
        // Before the first there are lists.
        let event = |text: &'static str| text.get(text.rfind("\nNov ").map_or(0, |at| at + 1)..);
        let mut events = REAL.split("\n\n").filter_map(event);
        events.find(|text| text.lines().next().is_some_and(|line| line.ends_with(class))).expect("recorded")
    }

    /// The first event that there ever was.
    fn event(time: (u64, u32), pairs: &[(&str, NvValue)]) -> Event {
        let mut all = NvList::new();
        pairs.iter().for_each(|(name, value)| all.push(name, value.clone()));
        all.push("time", NvValue::Int64Array(vec![time.0.cast_signed(), i64::from(time.1)]));
        all.push("eid", 1u64);
        let class = all.str("class").expect("every event has one").to_owned();
        Event { id: 1, time: Duration::new(time.0, time.1), class, pairs: all }
    }

    fn head(class: &str, context: i32) -> Vec<(&'static str, NvValue)> {
        vec![
            ("version", NvValue::Uint8(0)),
            ("class", NvValue::from(class)),
            ("pool", "tp".into()),
            ("pool_guid", 0x6297_da1d_8ec1_d2b9u64.into()),
            ("pool_state", NvValue::Int32(0)),
            ("pool_context", NvValue::Int32(context)),
        ]
    }

    /// Ours but for the number, which is one here.
    fn ours(event: &Event, eid: &str) -> String {
        let options = Options { verbose: true, ..Options::default() };
        shown(event, options, &Out::new()).trim_end().replace("eid = 0x1", &format!("eid = {eid}"))
    }

    #[test]
    fn an_event_of_the_pool() {
        let class = "sysevent.fs.zfs.pool_create";
        let event = event((0x6b00_b692, 0x3841_03d3), &head(class, 6));
        assert_eq!(ours(&event, "0x1"), real(class));
        let scripted = Options { scripted: true, ..Options::default() };
        assert_eq!(
            shown(&event, scripted, &Out::new()),
            "Nov 20 2026 21:07:30.943784915\tsysevent.fs.zfs.pool_create\n"
        );
    }

    #[test]
    fn states_have_names() {
        let class = "resource.fs.zfs.statechange";
        let mut pairs = head(class, 0);
        pairs.extend([
            ("vdev_guid", NvValue::Uint64(0x2422_495c_1ab7_8a5f)),
            ("vdev_state", NvValue::Uint64(2)),
            ("vdev_path", "/img/a".into()),
            ("vdev_laststate", NvValue::Uint64(7)),
        ]);
        assert_eq!(ours(&event((0x6b00_b694, 0x1d6e_dcd3), &pairs), "0x5a"), real(class));
    }

    #[test]
    fn lists_within_are_indented_twice() {
        let mut detector = NvList::new();
        detector.push("version", NvValue::Uint8(0));
        detector.push("scheme", "zfs");
        let mut text = String::new();
        let mut pairs = NvList::new();
        pairs.push("detector", detector);
        pairs.push("zio_priority", NvValue::Int32(0));
        pairs.push("zio_level", NvValue::Int64(-1));
        pairs.push("vdev_spare_paths", NvValue::StringArray(Vec::new()));
        list(&pairs, 1, &Out::new(), &mut text);
        let report = real("ereport.fs.zfs.checksum");
        for line in text.lines() {
            assert!(report.lines().any(|real| real == line), "{line}");
        }
        assert!(text.ends_with("        vdev_spare_paths = \n"));
    }
}
