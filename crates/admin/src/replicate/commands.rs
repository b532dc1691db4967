//! A side behind commands: `zfs …` of Cenote or OpenZFS, in a process of this machine or, through ssh, of another one.
//!
//! # What always holds
//! - No word of a command line comes from elsewhere than a checked place, a checked name or this code: names of
//!   datasets and snapshots that a list has shown are checked before they are used ([`check_name`]).
//! - A remote shell gets one word, in which each word of the command is quoted.
//! - What a command prints is bounded before it is kept.
//! - A list has no column whose characters a user of the other side chooses: a line break in the value of a property
//!   would make lines of other datasets.
//! - A child whose stream nobody reads any more is killed, and every child is waited for.

use super::here::{add_hold, sort_points};
use super::place::Place;
use super::policy::{Policy, SOURCE};
use super::side::{
    Dataset, Done, Point, Side, SideError, Stream, Style, Target, UserProperties, drop_inherited,
};
use super::targets::PROPERTY;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, PipeReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};

/// Most bytes of a list: some million snapshots.
const LIST_MAX: u64 = 512 << 20;
/// Most bytes of a message that are kept.
const MESSAGE_MAX: u64 = 16 << 10;
/// Snapshots that one command is told about: far below the limit of a command line.
const BATCH: usize = 200;
/// Level of the compression between the machines: faster than most networks.
const ZSTD_LEVEL: i32 = 3;
/// Bytes that are copied at a time.
const PART: usize = 128 << 10;

/// See the module.
#[derive(Debug, Clone)]
pub struct Commands {
    /// How messages name the side.
    at: String,
    /// What precedes `zfs`.
    prefix: Vec<String>,
    /// The command behind the prefix is a shell, which gets one word.
    is_shell: bool,
    /// The command instead of `zfs`.
    zfs: Vec<String>,
    /// Streams are compressed.
    zstd: bool,
}

impl Commands {
    /// `zfs` of this machine, after these words; none: as the `PATH` finds it.
    pub fn new(at: impl Into<String>, prefix: Vec<String>, zfs: Vec<String>) -> Commands {
        Commands { at: at.into(), prefix, is_shell: false, zfs, zstd: false }
    }

    /// The side of a place of this policy; `None`: no commands lead there.
    pub fn of(place: &Place, policy: &Policy) -> Option<Commands> {
        match place {
            Place::Here { .. } | Place::Files { .. } => None,
            Place::Command { command, .. } => {
                Some(Commands::new(command.join(" "), command.clone(), policy.zfs.clone()))
            }
            Place::Ssh { user, host, port, .. } => {
                let mut prefix = policy.ssh.clone();
                if let Some(port) = port {
                    prefix.extend(["-p".to_owned(), port.to_string()]);
                }
                let user = user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
                prefix.extend(["--".to_owned(), format!("{user}{host}")]);
                let zfs = policy.zfs.clone();
                Some(Commands { at: host.clone(), prefix, is_shell: true, zfs, zstd: policy.zstd })
            }
        }
    }

    /// The words of a process that runs `zfs` with these arguments; `filter`: programs of the shell before and behind.
    fn words(&self, args: &[String], before: &str, behind: &str) -> Vec<String> {
        let own: Vec<&String> = self.zfs.iter().chain(args).collect();
        let mut words = self.prefix.clone();
        match self.is_shell {
            true => {
                let quoted: Vec<String> = own.iter().map(|word| quoted(word)).collect();
                words.push(format!("{before}{}{behind}", quoted.join(" ")));
            }
            false => words.extend(own.into_iter().cloned()),
        }
        words
    }

    fn start(&self, words: &[String], input: Stdio, output: Stdio) -> Done<Child> {
        let (first, rest) = words.split_first().map_or(("", words), |(first, rest)| (first.as_str(), rest));
        let mut command = Command::new(first);
        command.args(rest).stdin(input).stdout(output).stderr(Stdio::piped());
        command.spawn().map_err(|source| SideError::Start { command: first.to_owned(), source })
    }

    /// Runs `zfs`; what it prints.
    fn run(&self, args: &[String]) -> Done<String> {
        args.iter().try_for_each(|arg| check_word(arg))?;
        let mut child = self.start(&self.words(args, "", ""), Stdio::null(), Stdio::piped())?;
        let (out, errors) = (child.stdout.take(), child.stderr.take());
        let (text, message) = std::thread::scope(|scope| {
            let message = scope.spawn(move || messages(errors));
            let text = bounded(out, LIST_MAX + 1);
            if text.len() as u64 > LIST_MAX {
                // It may wait for a reader for ever.
                let _ = child.kill();
            }
            (text, message.join().unwrap_or_default())
        });
        let status = wait(&mut child)?;
        if text.len() as u64 > LIST_MAX {
            return Err(SideError::Unable { at: self.at.clone(), what: "the list is too long" });
        }
        self.ended(status, &message)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn ended(&self, status: ExitStatus, message: &[u8]) -> Done {
        if status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(message).trim().to_owned();
        let message = if message.is_empty() { status.to_string() } else { message };
        Err(SideError::Refused { at: self.at.clone(), message })
    }

    fn act(&self, args: &[&str]) -> Done {
        self.run(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>()).map(drop)
    }

    /// The lines of a list, each with this number of columns; `None`: there is no such dataset.
    fn table<const N: usize>(&self, args: &[&str]) -> Done<Option<Vec<[String; N]>>> {
        let text = match self.run(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>()) {
            Err(SideError::Refused { message, .. }) if message.contains("dataset does not exist") => {
                return Ok(None);
            }
            text => text?,
        };
        let rows = text.lines().map(|line| {
            let cells: Vec<String> = line.split('\t').map(str::to_owned).collect();
            <[String; N]>::try_from(cells)
                .map_err(|_| SideError::List { at: self.at.clone(), line: shortened(line) })
        });
        rows.collect::<Done<Vec<_>>>().map(Some)
    }

    fn number(&self, text: &str) -> Done<u64> {
        text.parse().map_err(|_| SideError::List { at: self.at.clone(), line: shortened(text) })
    }

    fn point(&self, [name, guid, createtxg, creation, ..]: &[String; 6]) -> Done<Point> {
        let (_, name) = name.split_once(['@', '#']).unwrap_or_default();
        Ok(Point {
            name: name.to_owned(),
            guid: self.number(guid)?,
            createtxg: self.number(createtxg)?,
            creation: self.number(creation)?,
            holds: Vec::new(),
        })
    }

    /// Adds what the property [`SOURCE`] says. Its value has any characters that the users of the other side like: if the
    /// lines are not exactly one of each dataset, each is asked for alone.
    fn add_sources(&self, root: &str, recursive: bool, datasets: &mut [Dataset]) -> Done {
        let depth: &[&str] = if recursive { &["-r"] } else { &["-d", "0"] };
        let columns = format!("name,{SOURCE}");
        let args = [&["list", "-Hp", "-t", "filesystem,volume", "-o", &columns], depth, &[root]].concat();
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        let text = self.run(&args)?;
        let values: HashMap<&str, &str> = text.lines().filter_map(|line| line.split_once('\t')).collect();
        let is_plain = text.lines().count() == datasets.len() && values.len() == datasets.len();
        for dataset in datasets {
            dataset.source = match values.get(dataset.name.as_str()).filter(|_| is_plain) {
                Some(value) => value.parse().ok(),
                None => {
                    let args = ["get", "-Hp", "-o", "value", SOURCE, &dataset.name];
                    self.run(&args.map(str::to_owned))?.trim_end().parse().ok()
                }
            };
        }
        Ok(())
    }

    /// Adds the holds of snapshots, which have so many each. A tag has any characters that a user who may hold one
    /// snapshot likes: if the lines are not exactly as many as the holds, each snapshot is asked for alone.
    fn add_holds(&self, datasets: &mut [Dataset], held: &[(String, usize)]) -> Done {
        for names in held.chunks(BATCH) {
            let lines = self.holds(names.iter().map(|(name, _)| name.as_str()))?;
            let of = |name: &str| lines.iter().filter(|(snapshot, _)| snapshot == name).count();
            let all: usize = names.iter().map(|(_, holds)| holds).sum();
            if lines.len() == all && names.iter().all(|(name, holds)| of(name) == *holds) {
                lines.iter().for_each(|(snapshot, tag)| add_hold(datasets, snapshot, tag));
                continue;
            }
            for (name, _) in names {
                let lines = self.holds([name.as_str()].into_iter())?;
                let own = lines.iter().filter(|(snapshot, _)| snapshot == name);
                own.for_each(|(_, tag)| add_hold(datasets, name, tag));
            }
        }
        Ok(())
    }

    /// The snapshot and the tag of each line about holds. A snapshot that was destroyed meanwhile has none.
    fn holds<'n>(&self, names: impl Iterator<Item = &'n str>) -> Done<Vec<(String, String)>> {
        let args = ["holds", "-H"].into_iter().chain(names).map(str::to_owned);
        let text = match self.run(&args.collect::<Vec<_>>()) {
            Err(SideError::Refused { message, .. }) if message.contains("dataset does not exist") => {
                String::new()
            }
            text => text?,
        };
        let line = |line: &str| {
            let mut cells = line.split('\t');
            (cells.next().unwrap_or_default().to_owned(), cells.next().unwrap_or_default().to_owned())
        };
        Ok(text.lines().map(line).collect())
    }
}

/// A word of a POSIX shell that stands for these characters.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@#,+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn shortened(line: &str) -> String {
    line.chars().take(200).collect()
}

/// Checks a word of a command line: no control characters, which no name has.
fn check_word(word: &str) -> Done {
    match word.chars().any(char::is_control) {
        true => Err(SideError::List { at: "name".to_owned(), line: shortened(word) }),
        false => Ok(()),
    }
}

/// Checks the full name of a dataset, snapshot or bookmark that a list has shown: it must not be taken for an option.
fn check_name(name: &str) -> Done {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.: /@#".contains(c);
    match name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_plain) {
        true => Ok(()),
        false => Err(SideError::List { at: "name".to_owned(), line: shortened(name) }),
    }
}

fn bounded(from: Option<impl Read>, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        let mut from = from.take(most);
        // What cannot be read any more is over.
        let _ = from.read_to_end(&mut bytes);
    }
    bytes
}

/// Keeps the beginning of what a child says, and reads the rest, so that it does not wait.
fn messages(from: Option<impl Read>) -> Vec<u8> {
    let Some(mut from) = from else { return Vec::new() };
    let kept = bounded(Some(&mut from), MESSAGE_MAX);
    let _ = io::copy(&mut from, &mut io::sink());
    kept
}

fn wait(child: &mut Child) -> Done<ExitStatus> {
    child.wait().map_err(|source| SideError::Io { what: "a child process".to_owned(), source })
}

fn copy(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<()> {
    let mut buffer = vec![0; PART];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(buffer.get(..count).unwrap_or_default())?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn send_words(stream: &Stream, style: Style) -> Done<Vec<String>> {
    let mut words = vec!["send".to_owned()];
    match stream {
        Stream::Rest { token } => words.extend(["-t".to_owned(), token.clone()]),
        Stream::Of { dataset, to: (to, _), from } => {
            let flags = [
                (style.raw, "-w"),
                (style.compressed, "-c"),
                (style.large_blocks, "-L"),
                (style.props, "-p"),
            ];
            words.extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| (*flag).to_owned()));
            if let Some((from, _)) = from {
                let full = format!("{dataset}{from}");
                check_name(&full)?;
                words.extend(["-i".to_owned(), full]);
            }
            let name = format!("{dataset}@{to}");
            check_name(&name)?;
            words.push(name);
        }
    }
    Ok(words)
}

impl Side for Commands {
    fn describe(&self) -> String {
        self.at.clone()
    }

    fn list(&self, root: &str, recursive: bool) -> Done<Vec<Dataset>> {
        check_name(root)?;
        let depth: &[&str] = if recursive { &["-r"] } else { &["-d", "1"] };
        let columns = "name,guid,createtxg,creation,userrefs,receive_resume_token";
        let args = ["list", "-Hp", "-t", "filesystem,volume,snapshot,bookmark", "-o", columns];
        let Some(rows) = self.table::<6>(&[&args, depth, &[root]].concat())? else { return Ok(Vec::new()) };
        let is_asked = |name: &str| recursive || name == root;
        let mut datasets = Vec::new();
        for [name, guid, .., token] in rows.iter().filter(|[name, ..]| is_asked(name)) {
            check_name(name)?;
            if !name.contains(['@', '#']) {
                let token = Some(token.clone()).filter(|token| token != "-" && !token.is_empty());
                let guid = self.number(guid)?;
                datasets.push(Dataset { name: name.clone(), guid, token, ..Dataset::default() });
            }
        }
        let index: HashMap<String, usize> =
            datasets.iter().enumerate().map(|(at, dataset)| (dataset.name.clone(), at)).collect();
        let mut held = Vec::new();
        for row in &rows {
            let [name, .., holds, _] = row;
            let owner = name.split_once(['@', '#']).and_then(|(owner, _)| index.get(owner));
            let Some(dataset) = owner.and_then(|at| datasets.get_mut(*at)) else { continue };
            check_name(name)?;
            match name.contains('@') {
                true => dataset.snapshots.push(self.point(row)?),
                false => dataset.bookmarks.push(self.point(row)?),
            }
            if let Some(holds) = holds.parse().ok().filter(|holds| *holds > 0) {
                held.push((name.clone(), holds));
            }
        }
        self.add_sources(root, recursive, &mut datasets)?;
        self.add_holds(&mut datasets, &held)?;
        datasets.iter_mut().for_each(sort_points);
        drop_inherited(&mut datasets);
        Ok(datasets)
    }

    fn snapshot(&self, names: &[String]) -> Done {
        if names.is_empty() {
            return Ok(());
        }
        names.iter().try_for_each(|name| check_name(name))?;
        let mut args = vec!["snapshot".to_owned()];
        args.extend(names.iter().cloned());
        self.run(&args).map(drop)
    }

    fn send(&self, stream: &Stream, style: Style, out: &mut dyn Write) -> Done {
        let words = send_words(stream, style)?;
        words.iter().try_for_each(|word| check_word(word))?;
        let behind = if self.zstd { " | zstd -cq" } else { "" };
        let mut child = self.start(&self.words(&words, "", behind), Stdio::null(), Stdio::piped())?;
        let (from, errors) = (child.stdout.take(), child.stderr.take());
        std::thread::scope(|scope| {
            let message = scope.spawn(move || messages(errors));
            let copied = from.map_or(Ok(()), |mut from| match self.zstd {
                true => zstd::stream::read::Decoder::new(from).and_then(|mut plain| copy(&mut plain, out)),
                false => copy(&mut from, out),
            });
            if copied.is_err() {
                let _ = child.kill();
            }
            let status = wait(&mut child)?;
            let message = message.join().unwrap_or_default();
            copied.map_err(|source| SideError::Io { what: "the stream".to_owned(), source })?;
            self.ended(status, &message)
        })
    }

    fn receive(&self, target: &Target, mut input: PipeReader) -> Done {
        check_name(&target.dataset)?;
        let mut words = vec!["receive".to_owned(), "-s".to_owned(), "-u".to_owned()];
        words.extend(target.rollback.then(|| "-F".to_owned()));
        for (name, value) in &target.set {
            words.extend(["-o".to_owned(), format!("{name}={value}")]);
        }
        for name in &target.exclude {
            words.extend(["-x".to_owned(), name.clone()]);
        }
        words.push(target.dataset.clone());
        words.iter().try_for_each(|word| check_word(word))?;
        let before = if self.zstd { "zstd -dcq | " } else { "" };
        let words = self.words(&words, before, "");
        if !self.zstd {
            let mut child = self.start(&words, Stdio::from(input), Stdio::null())?;
            let message = messages(child.stderr.take());
            let status = wait(&mut child)?;
            return self.ended(status, &message);
        }
        let mut child = self.start(&words, Stdio::piped(), Stdio::null())?;
        let (to, errors) = (child.stdin.take(), child.stderr.take());
        std::thread::scope(|scope| {
            let message = scope.spawn(move || messages(errors));
            let copied = to.map_or(Ok(()), |to| {
                let mut packed = zstd::stream::write::Encoder::new(to, ZSTD_LEVEL)?;
                copy(&mut input, &mut packed)?;
                packed.finish().map(drop)
            });
            drop(input);
            let status = wait(&mut child)?;
            self.ended(status, &message.join().unwrap_or_default())?;
            copied.map_err(|source| SideError::Io { what: "the stream".to_owned(), source })
        })
    }

    fn abort(&self, dataset: &str) -> Done {
        check_name(dataset)?;
        self.act(&["receive", "-A", dataset])
    }

    fn destroy_snapshots(&self, dataset: &str, names: &[String]) -> Done {
        for names in names.chunks(BATCH) {
            let name = format!("{dataset}@{}", names.join(","));
            names.iter().try_for_each(|name| check_name(&format!("{dataset}@{name}")))?;
            self.act(&["destroy", &name])?;
        }
        Ok(())
    }

    fn destroy_bookmark(&self, name: &str) -> Done {
        check_name(name)?;
        self.act(&["destroy", name])
    }

    fn destroy_dataset(&self, name: &str) -> Done {
        check_name(name)?;
        self.act(&["destroy", "-r", name])
    }

    fn hold(&self, snapshot: &str, tag: &str) -> Done {
        check_name(snapshot)?;
        self.act(&["hold", tag, snapshot])
    }

    fn release(&self, snapshot: &str, tag: &str) -> Done {
        check_name(snapshot)?;
        self.act(&["release", tag, snapshot])
    }

    fn bookmark(&self, snapshot: &str, bookmark: &str) -> Done {
        check_name(snapshot)?;
        check_name(bookmark)?;
        self.act(&["bookmark", snapshot, bookmark])
    }

    fn rename(&self, from: &str, to: &str) -> Done {
        check_name(from)?;
        check_name(to)?;
        self.act(&["rename", from, to])
    }

    fn set(&self, dataset: &str, property: &str, value: &str) -> Done {
        check_name(dataset)?;
        self.act(&["set", &format!("{property}={value}"), dataset])
    }

    fn is_encrypted(&self, dataset: &str) -> Done<bool> {
        check_name(dataset)?;
        match self.run(&["get", "-Hp", "-o", "value", "encryption", dataset].map(str::to_owned)) {
            // Releases that cannot encrypt.
            Err(SideError::Refused { message, .. }) if message.contains("invalid property") => Ok(false),
            value => Ok(!matches!(value?.trim_end(), "off" | "-")),
        }
    }

    fn user_properties(&self, root: &str) -> Done<Vec<UserProperties>> {
        check_name(root)?;
        // JSON, whatever characters the values have. The guid has no source.
        let args = ["get", "-j", "-p", "-r", "-t", "filesystem,volume", "-s", "local,none", "all", root];
        let text = self.run(&args.map(str::to_owned))?;
        let wrong = |_| SideError::List { at: self.at.clone(), line: shortened(&text) };
        let got: Got = serde_json::from_str(&text).map_err(wrong)?;
        Ok(got.datasets.into_iter().filter_map(|(name, dataset)| dataset.own(name)).collect())
    }
}

/// What `zfs get -j` prints.
#[derive(Deserialize)]
struct Got {
    datasets: BTreeMap<String, GotDataset>,
}

#[derive(Deserialize)]
struct GotDataset {
    properties: BTreeMap<String, GotProperty>,
}

#[derive(Deserialize)]
struct GotProperty {
    value: String,
}

impl GotDataset {
    /// The properties of a policy; `None`: it has none.
    fn own(self, dataset: String) -> Option<UserProperties> {
        let guid = self.properties.get("guid")?.value.parse().ok()?;
        let own = self.properties.into_iter().filter(|(name, _)| name.starts_with(PROPERTY));
        let properties: Vec<_> = own.map(|(name, property)| (name, property.value)).collect();
        (!properties.is_empty()).then_some(UserProperties { dataset, guid, properties })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(to: &str) -> Policy {
        Policy::new("tank/a".parse().expect("a place"), to.parse().expect("a place"))
    }

    #[test]
    fn a_remote_shell_gets_one_quoted_word() {
        let policy = policy("ssh://joe@vault:2222/v/a b");
        let side = Commands::of(&policy.to, &policy).expect("commands");
        let args = ["rename".to_owned(), "v/a b".to_owned(), "$(id)'`".to_owned()];
        let words = side.words(&args, "", "");
        assert_eq!(words, ["ssh", "-p", "2222", "--", "joe@vault", r"zfs rename 'v/a b' '$(id)'\''`'"]);
    }

    #[test]
    fn names_that_a_list_shows_do_not_become_options() {
        for name in ["-r", "v/a\n", "v/$(id)", "v;id", "", "@x"] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(check_name("v/a b@c:d").is_ok());
        let stream = |from: &str| Stream::Of {
            dataset: "t/a".into(),
            to: ("b".into(), 2),
            from: Some((from.to_owned(), 1)),
        };
        let style = Style { compressed: true, large_blocks: true, ..Style::default() };
        let words = send_words(&stream("#m"), style).expect("words");
        assert_eq!(words, ["send", "-c", "-L", "-i", "t/a#m", "t/a@b"]);
        assert!(send_words(&stream("@$(x)"), style).is_err());
    }

    /// `zfs` whose user has put a line of another dataset into the value of a property of `v/a`.
    const FORGED: &str = r#"
case "$*" in
*"-o name,guid,"*) printf 'v\t1\t1\t0\t-\t-\nv/a\t2\t1\t0\t-\t-\nv/b\t3\t1\t0\t-\t-\n' ;;
*"-o name,org"*) printf 'v\t-\nv/a\t7\nv/b\t666\nv/b\t9\n' ;;
*" v/a") printf '7\nv/b\t666\n' ;;
*" v/b") printf '9\n' ;;
*) echo - ;;
esac
"#;

    #[test]
    fn a_value_makes_no_line_of_another_dataset() {
        let words = ["sh", "-c", FORGED, "sh"].map(str::to_owned).to_vec();
        let side = Commands::new("x", words, vec!["zfs".into()]);
        let listed = side.list("v", true).expect("a list");
        let sources: Vec<_> = listed.iter().map(|dataset| (dataset.name.as_str(), dataset.source)).collect();
        assert_eq!(sources, [("v", None), ("v/a", None), ("v/b", Some(9))]);
    }

    /// `zfs` whose user has held `v/a@1` with a tag that has a tab, and looks like a hold of `v/b@1`.
    const HELD: &str = r#"
case "$*" in
*"-o name,guid,"*) printf 'v\t1\t1\t0\t-\t-\n'
  for d in a b; do printf "v/$d\t2\t1\t0\t-\t-\nv/$d@1\t3$d\t5\t0\t1\t-\n" | tr ab 45; done | sed 's,v/4,v/a,;s,v/5,v/b,' ;;
*"holds"*"v/a@1 v/b@1") printf 'v/a@1\tx\ty\nv/b@1\tforged\tdate\nv/b@1\tmine\tdate\n' ;;
*"holds"*"v/a@1") printf 'v/a@1\tx\ty\nv/b@1\tforged\tdate\n' ;;
*"holds"*"v/b@1") printf 'v/b@1\tmine\tdate\n' ;;
*) echo - ;;
esac
"#;

    #[test]
    fn a_tag_makes_no_hold_of_another_dataset() {
        let words = ["sh", "-c", HELD, "sh"].map(str::to_owned).to_vec();
        let listed = Commands::new("x", words, vec!["zfs".into()]).list("v", true).expect("a list");
        let holds = listed.iter().flat_map(|dataset| &dataset.snapshots).map(|point| point.holds.clone());
        assert_eq!(holds.collect::<Vec<_>>(), [["x"], ["mine"]]);
    }

    #[test]
    fn what_a_command_says_is_the_reason() {
        let fails = ["sh", "-c", "echo no pool >&2; exit 1"].map(str::to_owned).to_vec();
        let side = Commands::new("x", fails, vec!["zfs".into()]);
        let Err(SideError::Refused { at, message }) = side.list("t/a", true) else { panic!("not refused") };
        assert_eq!((at.as_str(), message.as_str()), ("x", "no pool"));
        let nothing = Commands::new("x", vec!["/nonexistent".into()], vec!["zfs".into()]);
        assert!(matches!(nothing.list("t/a", true), Err(SideError::Start { .. })));
        let odd = ["sh", "-c", "echo a b c"].map(str::to_owned).to_vec();
        let odd = Commands::new("x", odd, vec!["zfs".into()]);
        assert!(matches!(odd.list("t/a", true), Err(SideError::List { .. })));
    }
}
