//! `zfs send`: the stream goes to standard output as it is made, and reports to standard error; those of a dry run go
//! to standard output.

use super::session::tell_warnings;
use super::{complain, reading};
use crate::console::{self, RawOut, Reports, Stream};
use crate::getopt::{Getopt, Long};
use crate::out::{Out, message_line, visible};
use crate::stop::{Outcome, Stop};
use crate::time;
use ::cenote::stream::ResumeToken;
use admin::verbs::zfs::send::{Answer, Event, Misuse, Part, Refusal, Request};
use format::nicenum::nicebytes;
use std::ffi::OsString;
use std::io::BufWriter;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Bytes of the stream that are gathered before they are written: headers of records are small.
const BUFFER: usize = 256 << 10;
/// Time between two reports.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Time after which a command looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Variable: greatest number of bytes of the list of a package.
const LIST_BYTES_MAX: &str = "ZFS_SENDRECV_MAX_NVLIST";
/// Exit code of a command whose reader has gone away: that of a process that SIGPIPE ended.
const NO_READER: u8 = 141;
/// Exit code for a token that is none.
const BAD_TOKEN: u8 = 255;

const LONG: &[Long] = &[
    Long::flag("dedup", 'D'),
    Long::flag("large-block", 'L'),
    Long::flag("parsable", 'P'),
    Long::flag("replicate", 'R'),
    Long::flag("proctitle", 'V'),
    Long::flag("backup", 'b'),
    Long::flag("compressed", 'c'),
    Long::flag("embed", 'e'),
    Long::flag("holds", 'h'),
    Long::flag("dryrun", 'n'),
    Long::flag("props", 'p'),
    Long::flag("skip-missing", 's'),
    Long::flag("verbose", 'v'),
    Long::flag("raw", 'w'),
    Long::flag("saved", 'S'),
    Long { name: "redact", letter: 'd', value: true },
    Long { name: "exclude", letter: 'X', value: true },
    Long { name: "resume", letter: 't', value: true },
];

/// Letters of the options; a colon follows those with a value.
const SHORT: &str = "i:I:RX:DLPVbcd:ehnpsSt:vw";

/// What is told beside the stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Told {
    /// `-n`: nothing is sent.
    dry: bool,
    /// `-v`.
    verbose: bool,
    /// `-P`: for scripts.
    parsable: bool,
    /// `-V`: in the title of the process.
    titled: bool,
}

/// Whether these arguments ask for a title of the process.
pub(super) fn has_title(args: &[OsString]) -> bool {
    let mut walk = Getopt::new(args.to_vec(), SHORT, LONG);
    std::iter::from_fn(|| walk.next().ok().flatten()).any(|(letter, _)| letter == 'V')
}

pub(super) fn run(args: Vec<OsString>, out: &Out) -> Outcome {
    let (request, told) = parse(args)?;
    if told.dry {
        return dry_run(&request, told, out);
    }
    if Stream::Out.is_terminal() {
        return Err(Stop::failed(
            "Error: Stream can not be written to a terminal.\nYou must redirect standard output.",
        ));
    }
    // Before the pool is opened, which starts threads.
    let wanted = Reports::new()
        .map_err(|error| Stop::failed(format!("zfs send: cannot wait for signals: {error}")))?;
    let mut session = reading();
    let mut report = Report::new(told, wanted, token_contents(&request, told));
    let mut target = BufWriter::with_capacity(BUFFER, RawOut::new());
    let outcome = session.write(&request, &mut target, &mut |event| report.on(event));
    // What is left is the rest of a stream that has no end.
    drop(target.into_parts());
    tell_warnings(&mut session);
    outcome.map(|_| 0).map_err(stop)
}

/// Tells what would be sent.
fn dry_run(request: &Request, told: Told, out: &Out) -> Outcome {
    let mut session = reading();
    let outcome = session.run(request);
    tell_warnings(&mut session);
    let answer = outcome.map_err(stop)?;
    tell_skipped(&answer, told);
    out.print_bytes(&token_contents(request, told));
    out.print(&sizes(&answer, told, |name| out.cell(name).into_owned()));
    Ok(0)
}

/// How a refusal ends the command.
fn stop(refusal: Refusal) -> Stop {
    match refusal {
        Refusal::NoReader { .. } => Stop::Code(NO_READER),
        Refusal::Misuse(
            Misuse::WithToken
            | Misuse::WithSaved
            | Misuse::SavedSnapshot
            | Misuse::SkipOne
            | Misuse::OtherSource,
        )
        | Refusal::Exclude { .. } => Stop::usage(refusal.to_string()),
        Refusal::Token { .. } => {
            complain(&refusal.to_string());
            Stop::Code(BAD_TOKEN)
        }
        refusal => Stop::failed(refusal),
    }
}

fn parse(args: Vec<OsString>) -> Result<(Request, Told), Stop> {
    let mut walk = Getopt::new(args, SHORT, LONG);
    let (mut request, mut told) = (Request::default(), Told::default());
    while let Some((letter, value)) = walk.next()? {
        let value = value.unwrap_or_default().to_string_lossy().into_owned();
        match letter {
            'i' | 'I' if request.from.is_some() => return Err(Stop::usage("")),
            'i' | 'I' => (request.from, request.intermediate) = (Some(value), letter == 'I'),
            'R' => request.replicate = true,
            'X' => request.exclude.extend(value.split(',').map(str::to_owned)),
            'L' => request.large_blocks = true,
            'b' => request.backup = true,
            'c' => request.compressed = true,
            'd' => request.redact = Some(value),
            'e' => request.embedded = true,
            'h' => request.holds = true,
            'p' => request.props = true,
            's' => request.skip_missing = true,
            'S' => request.saved = true,
            't' => request.resume = Some(value),
            'w' => request.raw = true,
            'P' => told.parsable = true,
            'n' => told.dry = true,
            'v' => told.verbose = true,
            'V' => told.titled = true,
            _ => say_error_line!(
                "WARNING: deduplicated send is no longer supported.  A regular,\n\
                 non-deduplicated stream will be generated.\n"
            ),
        }
    }
    let operands = crate::zpool::texts(&walk.operands());
    request.dataset = match (&operands[..], &request.resume) {
        ([], None) => return Err(Stop::usage("missing snapshot argument")),
        ([], Some(_)) => String::new(),
        ([one], None) => one.clone(),
        _ => return Err(Stop::usage("too many arguments")),
    };
    let is_typed = |from: &String| from.contains(['@', '#']);
    if !request.intermediate
        && !request.replicate
        && request.from.as_ref().is_some_and(|from| !is_typed(from))
    {
        complain(
            "Warning: incremental source didn't specify type, assuming snapshot. \
             Use '@' or '#' prefix to avoid ambiguity.",
        );
    }
    request.estimate = told.verbose || told.parsable || told.titled;
    request.list_bytes_max = console::env(LIST_BYTES_MAX).and_then(|value| value.to_str()?.parse().ok());
    Ok((request, told))
}

/// Tells what is left out; what cannot be in the stream only on demand.
fn tell_skipped(answer: &Answer, told: Told) {
    let last = answer.parts.last().and_then(|part| part.name.split('@').nth(1)).unwrap_or_default();
    for name in answer.later.iter().filter(|_| told.verbose) {
        complain(&format!(
            "skipping snapshot {name} because it was created after the destination snapshot ({last})"
        ));
    }
    for skipped in answer.skipped.iter().filter(|skipped| told.verbose || !skipped.is_newer) {
        complain(&skipped.to_string());
    }
}

/// What the token of a request says, for reports.
fn token_contents(request: &Request, told: Told) -> Vec<u8> {
    let token = request.resume.as_ref().filter(|_| told.verbose || told.parsable);
    let Some(token) = token.and_then(|token| ResumeToken::parse(token).ok()) else { return Vec::new() };
    let mut text = b"resume token contents:\n".to_vec();
    // Writing to memory does not fail.
    let _ = crate::zstream::list::print(&mut text, &token.list);
    // A token may come from anywhere.
    let lines =
        String::from_utf8_lossy(&text).lines().map(|line| message_line(line) + "\n").collect::<String>();
    lines.into_bytes()
}

/// The lines about the parts and their sizes.
fn sizes(answer: &Answer, told: Told, cell: impl Fn(&str) -> String) -> String {
    if !told.verbose && !told.parsable {
        return String::new();
    }
    let mut text: String = answer.parts.iter().map(|part| size(part, told, &cell)).collect();
    text += &match told.parsable {
        true => format!("size\t{}\n", answer.bytes()),
        false => format!("total estimated size is {}\n", nicebytes(answer.bytes())),
    };
    text
}

fn size(part: &Part, told: Told, cell: impl Fn(&str) -> String) -> String {
    let (name, bytes) = (cell(&part.name), part.bytes.unwrap_or(0));
    match (told.parsable, part.from.as_deref().map(cell)) {
        (true, None) => format!("full\t{name}\t{bytes}\n"),
        (true, Some(from)) => {
            format!("incremental\t{}\t{name}\t{bytes}\n", from.strip_prefix('@').unwrap_or(&from))
        }
        (false, None) => format!("full send of {name} estimated size is {}\n", nicebytes(bytes)),
        (false, Some(from)) => {
            format!("send from {from} to {name} estimated size is {}\n", nicebytes(bytes))
        }
    }
}

/// The reports of a stream that is being sent, on standard error.
struct Report {
    told: Told,
    /// What the user asks for.
    wanted: Reports,
    /// What the token says.
    token: Vec<u8>,
    parts: Vec<Part>,
    /// Name of the part that is being sent, and its size as far as it is known.
    name: String,
    size: u64,
    reported: Instant,
    looked: Instant,
}

impl Report {
    fn new(told: Told, wanted: Reports, token: Vec<u8>) -> Report {
        let now = Instant::now();
        let (parts, name) = (Vec::new(), String::new());
        Report { told, wanted, token, parts, name, size: 0, reported: now, looked: now }
    }

    fn on(&mut self, event: Event) -> ControlFlow<()> {
        match event {
            Event::Planned(answer) => {
                tell_skipped(&answer, self.told);
                let _ = console::write(Stream::Err, &self.token);
                say_error!("{}", sizes(&answer, self.told, |name| visible(name).into_owned()));
                self.parts = answer.parts;
            }
            Event::Begins(number) => {
                let part = self.parts.get(number);
                self.name = visible(part.map_or("", |part| &part.name)).into_owned();
                self.size = part.and_then(|part| part.bytes).unwrap_or(0);
                if self.told.verbose && !self.told.parsable {
                    say_error_line!("TIME        SENT   SNAPSHOT {}", self.name);
                }
                self.set_title(0);
                self.reported = Instant::now();
            }
            Event::Bytes(bytes) => {
                let now = Instant::now();
                if now.duration_since(self.looked) < LOOK_EVERY {
                    return ControlFlow::Continue(());
                }
                self.looked = now;
                if console::is_cancelled() {
                    return ControlFlow::Break(());
                }
                let is_due = now.duration_since(self.reported) >= REPORT_EVERY;
                if is_due {
                    self.reported = now;
                    self.set_title(bytes);
                }
                if self.wanted.is_wanted() || (is_due && self.told.verbose) {
                    self.reported = now;
                    say_error!("{}", line(&time::clock_now(), bytes, &self.name, self.told.parsable));
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn set_title(&self, sent: u64) {
        if self.told.titled {
            console::set_title(&title(&self.name, sent, self.size));
        }
    }
}

/// The title of the process: how much of the estimated size of a part has been sent.
fn title(name: &str, sent: u64, size: u64) -> String {
    // The estimate may be too low.
    let percent = (u128::from(sent) * 100).checked_div(size.into()).map_or(100, |percent| percent.min(100));
    format!("zfs: sending {name} ({percent}%: {}/{})", nicebytes(sent), nicebytes(size))
}

/// One report: the time, the bytes so far, and the name.
fn line(clock: &str, bytes: u64, name: &str, parsable: bool) -> String {
    match parsable {
        true => format!("{clock}\t{bytes}\t{name}\n"),
        false => format!("{clock}   {:>5}   {name}\n", nicebytes(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> (Request, Told) {
        parse(line.split_whitespace().map(OsString::from).collect()).expect("good")
    }

    fn refused(line: &str) -> String {
        match parse(line.split_whitespace().map(OsString::from).collect()) {
            Err(Stop::Usage(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn arguments_make_a_request() {
        let (request, told) = parsed("-DLRpbcehws -I @1 -X t/b,t/c -X t/d -nvPV t/a@2");
        let names = ["t/b", "t/c", "t/d"].map(str::to_owned).to_vec();
        let all = Request {
            from: Some("@1".into()),
            intermediate: true,
            replicate: true,
            exclude: names,
            skip_missing: true,
            props: true,
            backup: true,
            holds: true,
            large_blocks: true,
            embedded: true,
            compressed: true,
            raw: true,
            estimate: true,
            ..Request::of("t/a@2")
        };
        assert_eq!((request, told), (all, Told { dry: true, verbose: true, parsable: true, titled: true }));
        assert_eq!(parsed("--saved t/a").0, Request { saved: true, ..Request::of("t/a") });
        assert_eq!(parsed("-t 1-2-3-4").0, Request { resume: Some("1-2-3-4".into()), ..Request::default() });
        assert_eq!(parsed("--redact b t/a@2").0.redact.as_deref(), Some("b"));
        assert_eq!(refused("-nv"), "missing snapshot argument");
        assert_eq!(refused("a@1 a@2"), "too many arguments");
        assert_eq!(refused("-t x a@2"), "too many arguments");
        assert_eq!(refused("-i a@1 -i a@1 a@2"), "");
        assert_eq!(refused("-x a@1"), "invalid option 'x'");
        assert_eq!(refused("-i"), "missing argument for 'i' option");
    }

    #[test]
    fn sizes_are_told_as_in_the_transcripts() {
        let part = |name: &str, from: Option<&str>, bytes| Part {
            name: name.into(),
            from: from.map(str::to_owned),
            bytes: Some(bytes),
        };
        let told = |verbose, parsable| Told { dry: true, verbose, parsable, titled: false };
        let text = |parts: &[Part], told| {
            sizes(&Answer { parts: parts.to_vec(), ..Answer::default() }, told, str::to_owned)
        };
        let one = [part("tank/s@1", None, 2_114_544)];
        assert_eq!(
            text(&one, told(true, false)),
            "full send of tank/s@1 estimated size is 2.02M\ntotal estimated size is 2.02M\n"
        );
        assert_eq!(text(&one, told(false, true)), "full\ttank/s@1\t2114544\nsize\t2114544\n");
        assert_eq!(text(&one, told(false, false)), "");
        let increment = [part("tank/s@2", Some("tank/s@1"), 402_584)];
        assert_eq!(
            text(&increment, told(true, true)),
            "incremental\ttank/s@1\ttank/s@2\t402584\nsize\t402584\n"
        );
        let package = [part("tank/vols@daily", None, 12_600), part("tank/vols@second", Some("@daily"), 624)];
        assert_eq!(
            text(&package, told(true, false)),
            "full send of tank/vols@daily estimated size is 12.3K\n\
             send from @daily to tank/vols@second estimated size is 624B\n\
             total estimated size is 12.9K\n"
        );
    }

    #[test]
    fn reports_stand_under_their_header() {
        assert_eq!(line("08:35:07", 2_600_000, "t/a@1", false), "08:35:07   2.48M   t/a@1\n");
        assert_eq!(line("08:35:07", 2_600_000, "t/a@1", true), "08:35:07\t2600000\tt/a@1\n");
    }

    #[test]
    fn titles_tell_how_much_is_sent() {
        assert_eq!(title("t/a@1", 134 << 10, 42_047_898), "zfs: sending t/a@1 (0%: 134K/40.1M)");
        assert_eq!(title("t/a@1", 3000, 2000), "zfs: sending t/a@1 (100%: 2.93K/1.95K)");
        assert_eq!(title("t/a@1", 0, 0), "zfs: sending t/a@1 (100%: 0B/0B)");
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(has_title(&words("-vV t/a@1")) && has_title(&words("-i @1 t/a@2 --proctitle")));
        assert!(!has_title(&words("-i V t/a@2")) && !has_title(&words("-v -- -V")));
    }

    #[test]
    fn refusals_end_with_their_codes() {
        assert!(matches!(stop(Refusal::NoReader { name: "t@1".into() }), Stop::Code(141)));
        assert!(matches!(stop(Refusal::Token { problem: "x".into() }), Stop::Code(255)));
        assert!(matches!(stop(Refusal::Misuse(Misuse::WithToken)), Stop::Usage(_)));
        assert!(matches!(stop(Refusal::Misuse(Misuse::ManyFromBookmark)), Stop::Failed(Some(_))));
        assert!(matches!(stop(Refusal::Exclude { name: "t".into() }), Stop::Usage(_)));
    }

    #[test]
    fn the_contents_of_a_token_are_told() {
        let token = include_str!("../../../../fixtures/streams/resume-token.txt").trim();
        let request = Request { resume: Some(token.into()), ..Request::default() };
        let real = include_str!("../../../../fixtures/streams/resume-token-decoded.txt");
        let contents = token_contents(&request, Told { verbose: true, ..Told::default() });
        let contents = String::from_utf8(contents).expect("text");
        assert!(real.starts_with(&contents) && contents.lines().count() == 7, "{contents}");
        assert_eq!(token_contents(&request, Told::default()), b"");
    }
}
