//! `zfs receive`.

use super::complain;
use super::properties::Pairs;
use super::session::{in_session, refused, tell_warnings};
use crate::console;
use crate::getopt::Getopt;
use crate::out::{Out, visible};
use crate::stop::{Outcome, Stop};
use admin::verbs::zfs::receive::{Event, Naming, Request, abort};
use format::nicenum::nicebytes;
use std::ffi::OsString;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::time::Duration;

/// A command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    request: Request,
    verbose: bool,
    /// `-A`.
    aborts: bool,
}

impl Options {
    fn parse(args: Vec<OsString>) -> Result<Options, Stop> {
        let mut walk = Getopt::new(args, "o:x:dehnuvMFsAc", &[]);
        let (mut options, mut props) = (Options::default(), Pairs::default());
        while let Some((letter, value)) = walk.next()? {
            let request = &mut options.request;
            match letter {
                'o' => props.add(value)?,
                'x' => exclude(request, &props, value)?,
                'd' | 'e' => {
                    let naming = if letter == 'd' { Naming::AllButFirst } else { Naming::Last };
                    if request.naming != Naming::Exact && request.naming != naming {
                        return Err(Stop::usage(
                            "invalid option combination: -d and -e are mutually exclusive",
                        ));
                    }
                    request.naming = naming;
                }
                'h' => request.skip_holds = true,
                'n' => request.dry_run = true,
                'u' => request.unmounted = true,
                'v' => options.verbose = true,
                'M' => request.force_unmount = true,
                'F' => request.force = true,
                's' => request.resumable = true,
                'c' => request.heal = true,
                _ => options.aborts = true,
            }
        }
        let operands = crate::zpool::texts(&walk.operands());
        options.request.target = match &operands[..] {
            [] => return Err(Stop::usage("missing snapshot argument")),
            [one] => one.clone(),
            _ => return Err(Stop::usage("too many arguments")),
        };
        if props.has("origin") && !props.get("origin").is_some_and(|origin| origin.contains('@')) {
            let origin = props.get("origin").unwrap_or_default();
            return Err(Stop::failed(format!("cannot receive: origin '{origin}' is not a snapshot")));
        }
        if options.request.excluded.iter().any(|name| props.has(name)) {
            return Err(twice(options.request.excluded.iter().find(|name| props.has(name))));
        }
        let origin = props.0.iter().position(|(name, _)| name == "origin");
        options.request.origin = origin.map(|at| props.0.remove(at).1);
        options.request.properties = props.0;
        options.check()?;
        Ok(options)
    }

    /// Options that do not go together.
    fn check(&self) -> Result<(), Stop> {
        let Request { naming, dry_run, resumable, unmounted, force, heal, .. } = self.request;
        if self.aborts && (naming != Naming::Exact || dry_run || resumable || unmounted || heal) {
            return Err(Stop::usage("invalid option combination: -A takes no other option"));
        }
        if heal && force {
            return Err(Stop::usage("invalid option combination: -c and -F are mutually exclusive"));
        }
        Ok(())
    }
}

fn exclude(request: &mut Request, props: &Pairs, value: Option<OsString>) -> Result<(), Stop> {
    let name = value.unwrap_or_default().to_string_lossy().into_owned();
    if name.contains('=') {
        return Err(Stop::failed("invalid property name for -x: it takes no value"));
    }
    if props.has(&name) || request.excluded.contains(&name) {
        return Err(twice(Some(&name)));
    }
    request.excluded.push(name);
    Ok(())
}

fn twice(name: Option<&String>) -> Stop {
    let name = name.map_or("", String::as_str);
    Stop::failed(format!("property '{name}' specified multiple times"))
}

/// Runs the verb.
pub(super) fn run(args: &[OsString], out: &Out) -> Outcome {
    let options = Options::parse(args.to_vec())?;
    if options.aborts {
        return discard(args, &options.request.target);
    }
    let input = console::input();
    if input.is_terminal() {
        return Err(Stop::failed(
            "Error: Backup stream can not be read from a terminal.\nYou must redirect standard input.",
        ));
    }
    in_session("receive", args, |session| {
        session.set_input(Wanted(input));
        let mut code = 0;
        let outcome = session.each(&options.request, &mut |event| {
            let told = tell(&event, &options);
            told.output.iter().for_each(|text| out.print(&format!("{}\n", out.cell(text))));
            told.errors.iter().flat_map(|text| text.lines()).for_each(complain);
            code = code.max(told.code);
            ControlFlow::Continue(())
        });
        tell_warnings(session);
        outcome.map(|()| code).map_err(|refusal| refused(&refusal))
    })
}

/// Input that ends with an error when the command is not wanted any more: what was received by then is discarded or,
/// with `-s`, kept.
struct Wanted(console::Input);

/// Interval at which a command that waits for input checks whether it is wanted.
const LOOK_EVERY: Duration = Duration::from_millis(200);

impl Read for Wanted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // A process of its own is ended by signals.
        while console::current().is_some() {
            if console::is_cancelled() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if self.0.is_ready(buffer.len(), LOOK_EVERY)? {
                break;
            }
        }
        self.0.read(buffer)
    }
}

/// Discards what an interrupted receive has left.
fn discard(args: &[OsString], dataset: &str) -> Outcome {
    in_session("receive", args, |session| {
        let request = abort::Request { dataset: dataset.to_owned() };
        session.run(&request).map(|()| 0).map_err(|refusal| match refusal {
            abort::Refusal::Open(closed) if closed.reason.is_usage() => Stop::usage(closed.to_string()),
            other => refused(&other),
        })
    })
}

/// What the command says of an event.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    /// Lines of standard output.
    output: Vec<String>,
    /// Lines of standard error.
    errors: Vec<String>,
    code: u8,
}

fn tell(event: &Event, options: &Options) -> Told {
    let shown = |lines: &[String]| {
        let output = if options.verbose { lines.to_vec() } else { Vec::new() };
        Told { output, ..Told::default() }
    };
    let error = |text: String, code| Told { errors: vec![text], code, ..Told::default() };
    let success = || "success".to_owned();
    match event {
        Event::Begins { kind, from, into } => {
            let verb = if options.request.dry_run { "would receive" } else { "receiving" };
            let heals = if options.request.heal { "corrective " } else { "" };
            shown(&[format!("{verb} {heals}{kind} stream of {from} into {into}")])
        }
        Event::Received { bytes, took, .. } => shown(&[received(*bytes, *took)]),
        Event::Exists { snapshot } => {
            shown(&[format!("snap {snapshot} already exists; ignoring"), received(0, Duration::ZERO)])
        }
        Event::Destroyed { name } => shown(&[format!("attempting destroy {name}"), success()]),
        Event::Renamed { from, to } => shown(&[format!("attempting rename {from} to {to}"), success()]),
        Event::Promoted { dataset } => shown(&[format!("promoting {dataset}")]),
        Event::Unchanged { message, .. } => error(message.clone(), 0),
        Event::PropertyRefused { dataset, property, reason } => {
            let what =
                if property.is_empty() { "properties".to_owned() } else { format!("{property} property") };
            error(one_line(&format!("cannot receive {what} on {dataset}: {reason}")), 0)
        }
        Event::HoldRefused { snapshot, tag, reason } => {
            error(one_line(&format!("cannot hold snapshot '{snapshot}' with tag '{tag}': {reason}")), 0)
        }
        Event::NotMounted(refusal) => error(refusal.to_string(), 1),
        Event::NotMountedAgain(refusal) => error(refusal.to_string(), 1),
    }
}

/// A message with names from a stream: a name that breaks lines would pass for another message.
fn one_line(message: &str) -> String {
    visible(message).into_owned()
}

/// The size of a stream, and how fast it came.
fn received(bytes: u64, took: Duration) -> String {
    // What takes no time has no rate.
    let millis = took.as_millis().max(1);
    let rate = u64::try_from(u128::from(bytes) * 1000 / millis).unwrap_or(u64::MAX);
    let seconds = took.as_secs_f64();
    format!("received {} stream in {seconds:.2} seconds ({}/sec)", nicebytes(bytes), nicebytes(rate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::verbs::zfs::receive::StreamKind;

    fn parse(words: &str) -> Result<Options, Stop> {
        Options::parse(words.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn wrong_arguments() {
        for (words, usage, message) in [
            ("", true, "missing snapshot argument"),
            ("-d", true, "missing snapshot argument"),
            ("a b", true, "too many arguments"),
            ("-vN tank/r", true, "invalid option 'N'"),
            ("-d -e tank/r", true, "invalid option combination: -d and -e are mutually exclusive"),
            ("-A -e tank/r", true, "invalid option combination: -A takes no other option"),
            ("-cF tank/r", true, "invalid option combination: -c and -F are mutually exclusive"),
            ("tank/r -o atime", false, "missing '=' for property=value argument"),
            ("-x atime=off tank/r", false, "invalid property name for -x: it takes no value"),
            ("-o atime=off -x atime tank/r", false, "property 'atime' specified multiple times"),
            ("-x atime -o atime=off tank/r", false, "property 'atime' specified multiple times"),
            ("-o atime=off -o atime=on tank/r", false, "property 'atime' specified multiple times"),
            ("-x atime -x atime tank/r", false, "property 'atime' specified multiple times"),
            ("-o origin=tank/a tank/r", false, "cannot receive: origin 'tank/a' is not a snapshot"),
        ] {
            let found = match parse(words) {
                Err(Stop::Usage(text)) => (true, text),
                Err(Stop::Failed(text)) => (false, text.unwrap_or_default()),
                _ => (false, String::new()),
            };
            assert_eq!(found, (usage, message.to_owned()), "{words}");
        }
    }

    #[test]
    fn options_become_a_request() {
        let words = "-vFsuMhe -o origin=tank/a@1 -o atime=off -x exec -x a:b tank/r";
        let options = parse(words).expect("good");
        let request = Request {
            naming: Naming::Last,
            force: true,
            resumable: true,
            unmounted: true,
            force_unmount: true,
            skip_holds: true,
            origin: Some("tank/a@1".into()),
            properties: vec![("atime".into(), "off".into())],
            excluded: vec!["exec".into(), "a:b".into()],
            ..Request::of("tank/r")
        };
        assert_eq!(options, Options { request, verbose: true, aborts: false });
        assert!(parse("-A tank/r").expect("good").aborts);
    }

    #[test]
    fn names_of_a_stream_do_not_break_lines() {
        let reason = admin::verbs::Reason {
            code: admin::verbs::Code::Value,
            about: Vec::new(),
            message: "invalid property 'a:\nb'".into(),
        };
        let event = Event::PropertyRefused { dataset: "tank/r".into(), property: "a:\nb".into(), reason };
        let told = tell(&event, &parse("tank/r").expect("good"));
        let wanted = r"cannot receive a:\012b property on tank/r: invalid property 'a:\012b'";
        assert_eq!(told.errors, [wanted]);
    }

    #[test]
    fn events_are_told_as_openzfs_does() {
        let output = |words: &str, event: &Event| tell(event, &parse(words).expect("good")).output;
        let begins =
            Event::Begins { kind: StreamKind::New, from: "tank/s@1".into(), into: "tank/r@1".into() };
        assert!(output("tank/r", &begins).is_empty());
        let text = "receiving full stream of tank/s@1 into tank/r@1";
        assert_eq!(output("-v tank/r", &begins), [text]);
        let text = "would receive full stream of tank/s@1 into tank/r@1";
        assert_eq!(output("-nv tank/r", &begins), [text]);
        let text = "received 2.05M stream in 0.04 seconds (51.2M/sec)";
        assert_eq!(received(2_148_208, Duration::from_millis(40)), text);
        let text = "received 312B stream in 0.03 seconds (10.2K/sec)";
        assert_eq!(received(312, Duration::from_millis(30)), text);
    }
}
