//! `zfs create`.

use super::complain_all;
use super::properties::Pairs;
use super::session::{in_session, refused, tell_warnings};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use admin::Session;
use admin::edit::NewKind;
use admin::edit::values::parse_number;
use admin::verbs::zfs::create::{Plan, Request};
use std::ffi::OsString;

#[derive(Default)]
struct Options {
    parents: bool,
    dry_run: bool,
    verbose: bool,
    parsable: bool,
    sparse: bool,
    is_volume: bool,
    stay_unmounted: bool,
    props: Pairs,
    name: String,
}

impl Options {
    fn parse(args: Vec<OsString>) -> Result<Options, Stop> {
        let mut walk = Getopt::new(args, "PV:b:nso:puv", &[]);
        let mut options = Options::default();
        let mut has_block_size = false;
        while let Some((letter, value)) = walk.next()? {
            match letter {
                'P' => options.parsable = true,
                'V' => {
                    options.is_volume = true;
                    options.props.set("volsize", size("size", value)?.to_string());
                }
                'b' => {
                    has_block_size = true;
                    options.props.set("volblocksize", size("block size", value)?.to_string());
                }
                'n' => options.dry_run = true,
                's' => options.sparse = true,
                'o' => options.props.add(value)?,
                'p' => options.parents = true,
                'v' => options.verbose = true,
                _ => options.stay_unmounted = true,
            }
        }
        if (has_block_size || options.sparse) && !options.is_volume {
            return Err(Stop::usage("'-s' and '-b' can only be used when creating a volume"));
        }
        if options.stay_unmounted && options.is_volume {
            return Err(Stop::usage("'-u' can only be used when creating a filesystem"));
        }
        let operands = crate::zpool::texts(&walk.operands());
        options.name = match &operands[..] {
            [] => {
                let what = if options.is_volume { "volume" } else { "filesystem" };
                return Err(Stop::usage(format!("missing {what} argument")));
            }
            [one] => one.clone(),
            _ => return Err(Stop::usage("too many arguments")),
        };
        Ok(options)
    }

    /// What is asked for.
    fn request(&self) -> Result<Request, Stop> {
        let mut props = self.props.0.clone();
        let mut kind = NewKind::Filesystem;
        if self.is_volume {
            let at = props.iter().position(|(name, _)| name == "volsize");
            let text = at.map(|at| props.remove(at).1).unwrap_or_default();
            let failed = |error| Stop::failed(format!("cannot create '{}': {error}", self.name));
            kind = NewKind::Volume { size: parse_number(&text).map_err(failed)?, sparse: self.sparse };
        }
        Ok(Request {
            kind,
            properties: props,
            parents: self.parents,
            unmounted: self.stay_unmounted,
            dry_run: self.dry_run,
            ..Request::filesystem(self.name.as_str())
        })
    }
}

/// The value of `-V` or `-b`.
fn size(what: &str, value: Option<OsString>) -> Result<u64, Stop> {
    let text = value.unwrap_or_default().to_string_lossy().into_owned();
    parse_number(&text).map_err(|e| Stop::failed(format!("bad volume {what} '{text}': {e}")))
}

/// Runs the verb.
pub(super) fn run(args: &[OsString], out: &Out) -> Outcome {
    let options = Options::parse(args.to_vec())?;
    let request = options.request();
    in_session("create", args, |session| {
        let request = request?;
        let prints = options.verbose || options.parsable;
        // With `-p` there is a plan only if the dataset does not exist already, which a dry run does not look at.
        let was_printed =
            prints && !options.dry_run && !options.parents && print_plan(session, &request, &options, out);
        let outcome = session.run(&request);
        if was_printed {
            session.take_warnings();
        } else {
            tell_warnings(session);
            let plan = outcome.as_ref().map_or_else(|refusal| refusal.plan, |answer| answer.plan);
            plan.filter(|_| prints).iter().for_each(|plan| out.print(&text_of(&options, *plan)));
        }
        let answer = outcome.map_err(|refusal| refused(&refusal))?;
        complain_all(&answer.ancestors_not_mounted);
        complain_all(&answer.not_mounted);
        if let (Some(at), Some(wanted)) = (answer.mounted_elsewhere, options.props.get("mountpoint")) {
            crate::mounts::print_elsewhere(&options.name, &at, wanted, out);
        }
        Ok(u8::from(!answer.not_mounted.is_empty()))
    })
}

/// Prints the plan, with its warnings, before anything is made; false: it is not made, and the reason is told later.
fn print_plan(session: &mut Session<'_>, request: &Request, options: &Options, out: &Out) -> bool {
    let planned = session.run(&Request { dry_run: true, ..request.clone() });
    let Ok(Some(plan)) = planned.map(|answer| answer.plan) else {
        session.take_warnings();
        return false;
    };
    tell_warnings(session);
    out.print(&text_of(options, plan));
    true
}

/// The text of `-v` and `-P`.
fn text_of(options: &Options, plan: Plan) -> String {
    let name = &options.name;
    let verb = if options.dry_run { "would create" } else { "create" };
    let mut text = String::new();
    if options.parents {
        text += &match options.parsable {
            true => format!("create_ancestors\t{name}\n"),
            false => format!("{verb} ancestors of {name}\n"),
        };
    }
    text += &if options.parsable { format!("create\t{name}\n") } else { format!("{verb} {name}\n") };
    let mut props = options.props.0.clone();
    if options.is_volume {
        let rounded = plan.volume_size.to_string();
        props.iter_mut().filter(|(name, _)| name == "volsize").for_each(|(_, v)| v.clone_from(&rounded));
    }
    props.extend(plan.reservation.map(|bytes| ("refreservation".to_owned(), bytes.to_string())));
    for (name, value) in props {
        text += &match options.parsable {
            true => format!("property\t{name}\t{value}\n"),
            false => format!("\t{name}={value}\n"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::edit::NewDataset;

    fn parse(words: &str) -> Result<Options, Stop> {
        Options::parse(words.split(' ').map(OsString::from).collect())
    }

    fn text(words: &str, reserved: Option<u64>) -> String {
        let options = parse(words).expect("good");
        let request = options.request().expect("good");
        let new = NewDataset { name: request.name, kind: request.kind, props: request.properties };
        text_of(&options, Plan { volume_size: new.volume_size().expect("good"), reservation: reserved })
    }

    #[test]
    fn what_would_be_made_is_told_as_openzfs_does() {
        assert_eq!(text("-v tank/v1", None), "create tank/v1\n");
        assert_eq!(
            text("-nv -o compression=gzip -o quota=1G -o user:x=y tank/v3", None),
            "would create tank/v3\n\tcompression=gzip\n\tquota=1G\n\tuser:x=y\n"
        );
        assert_eq!(
            text("-npvP -o compression=lz4 tank/v4/x/y", None),
            "create_ancestors\ttank/v4/x/y\ncreate\ttank/v4/x/y\nproperty\tcompression\tlz4\n"
        );
        assert_eq!(
            text("-npv -o compression=lz4 tank/v4/x/y", None),
            "would create ancestors of tank/v4/x/y\nwould create tank/v4/x/y\n\tcompression=lz4\n"
        );
        assert_eq!(
            text("-nv -V 10M -b 8K tank/vol1", Some(13_107_200)),
            "would create tank/vol1\n\tvolsize=10485760\n\tvolblocksize=8192\n\trefreservation=13107200\n"
        );
        assert_eq!(
            text("-nv -s -V 10000001 tank/vol1", None),
            "would create tank/vol1\n\tvolsize=10010624\n"
        );
    }

    #[test]
    fn wrong_arguments() {
        for (words, usage, message) in [
            ("-V abc tank/n", false, "bad volume size 'abc': bad numeric value 'abc'"),
            ("-V tank/n", false, "bad volume size 'tank/n': bad numeric value 'tank/n'"),
            ("-s tank/n", true, "'-s' and '-b' can only be used when creating a volume"),
            ("-b 8K tank/n", true, "'-s' and '-b' can only be used when creating a volume"),
            ("-u -V 1M tank/n", true, "'-u' can only be used when creating a filesystem"),
            ("-p -V 1M -u tank/n/v", true, "'-u' can only be used when creating a filesystem"),
            ("a b", true, "too many arguments"),
            ("-p", true, "missing filesystem argument"),
            ("-V 1M", true, "missing volume argument"),
            ("-z x", true, "invalid option 'z'"),
            ("-o tank/x", false, "missing '=' for property=value argument"),
            ("-V 3M -o volsize=0 tank/v", false, "property 'volsize' specified multiple times"),
            ("-o a:b=1 -o a:b=2 tank/v", false, "property 'a:b' specified multiple times"),
        ] {
            let found = match parse(words) {
                Err(Stop::Usage(text)) => (true, text),
                Err(Stop::Failed(text)) => (false, text.unwrap_or_default()),
                _ => (false, String::new()),
            };
            assert_eq!(found, (usage, message.to_owned()), "{words}");
        }
        assert!(parse("-o volsize=3M -V 2M tank/v").is_ok());
    }
}
