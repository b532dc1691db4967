//! `zfs create`.

use super::change::{Change, Pairs, cannot, cannot_open, warn_small_blocks};
use super::{complain, mount};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use admin::edit::values::parse_number;
use admin::edit::{self, DEFAULT_VOLUME_BLOCK, EditError, NewDataset, NewKind, names};
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

    /// The new dataset, and the size that was asked for.
    fn new_dataset(&self) -> Result<NewDataset, EditError> {
        let mut props = self.props.0.clone();
        let mut kind = NewKind::Filesystem;
        if self.is_volume {
            let at = props.iter().position(|(name, _)| name == "volsize");
            let text = at.map(|at| props.remove(at).1).unwrap_or_default();
            kind = NewKind::Volume { size: parse_number(&text)?, sparse: self.sparse };
        }
        Ok(NewDataset { name: self.name.clone(), kind, props })
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
    Change::run("create", args, |change| create(change, &options, out))
}

fn create(change: &mut Change, options: &Options, out: &Out) -> Outcome {
    let name = options.name.as_str();
    let refused = |error: EditError| cannot("create", name, &error);
    let new = options.new_dataset().map_err(refused)?;
    if options.dry_run {
        return dry_run(change, options, &new, out);
    }
    names::check_new(name).map_err(|e| refused(e.into()))?;
    if options.parents && exists(change, name)? {
        return Ok(0);
    }
    let pool = change.pool(name).map_err(|error| match parent_to_make(change, options) {
        Some(above) if error.is_read_only() => cannot("create", &above, &error),
        _ => refused(error),
    })?;
    warn(options, &new);
    warn_small_blocks(&options.props, &change.view(name).map_err(refused)?);
    if options.verbose || options.parsable {
        let reserved = new.reservation(pool.live()).unwrap_or(None);
        out.print(&told(options, &new, reserved));
    }
    if options.parents {
        let made = edit::create_ancestors(&pool, name).map_err(refused)?;
        if !made.is_empty() {
            change.done(name);
        }
        if !options.stay_unmounted {
            mount::made(&made);
        }
    }
    edit::create(&pool, &new).map_err(refused)?;
    change.done(name);
    if options.is_volume || options.stay_unmounted {
        return Ok(0);
    }
    let code = mount::made(&[name.to_owned()]);
    if let Some(path) = options.props.get("mountpoint") {
        mount::tell_elsewhere(name, path, out);
    }
    Ok(code)
}

/// The first of the datasets above the new one that `-p` would make.
fn parent_to_make(change: &mut Change, options: &Options) -> Option<String> {
    let view = change.view(&options.name).ok().filter(|_| options.parents)?;
    let slashes = options.name.match_indices('/').map(|(at, _)| at);
    let mut above = slashes.filter_map(|at| options.name.get(..at));
    above.find(|name| view.dataset(name).is_err()).map(str::to_owned)
}

fn exists(change: &mut Change, name: &str) -> Result<bool, Stop> {
    let found = change.view(name).and_then(|pool| Ok(pool.dataset(name)?));
    match found {
        Ok(_) => Ok(true),
        Err(EditError::NoDataset { .. }) => Ok(false),
        Err(other) => Err(cannot("create", name, &other)),
    }
}

/// What would be made. Only properties are looked at, as the real tool does it.
fn dry_run(change: &mut Change, options: &Options, new: &NewDataset, out: &Out) -> Outcome {
    let name = options.name.as_str();
    let pool = change.pool(name).map_err(|e| match e {
        EditError::NoPool { pool } => Stop::failed(format!("cannot open '{pool}': no such pool")),
        other => cannot_open(edit::pool_of(name), other),
    })?;
    warn(options, new);
    new.settings(pool.live()).map_err(|e| cannot("verify", name, &e))?;
    let reserved = new.reservation(pool.live()).map_err(|e| cannot("verify", name, &e))?;
    if options.verbose || options.parsable {
        out.print(&told(options, new, reserved));
    }
    Ok(0)
}

/// Small blocks of volumes cost space.
fn warn(options: &Options, new: &NewDataset) {
    let block = new.block_size().unwrap_or(DEFAULT_VOLUME_BLOCK);
    let is_block = block.is_power_of_two() && block >= 512;
    if options.is_volume && is_block && block < DEFAULT_VOLUME_BLOCK {
        complain(&format!(
            "Warning: volblocksize ({block}) is less than the default minimum block size ({DEFAULT_VOLUME_BLOCK})."
        ));
        complain(&format!("To reduce wasted space a volblocksize of {DEFAULT_VOLUME_BLOCK} is recommended."));
    }
}

/// The text of `-v` and `-P`.
fn told(options: &Options, new: &NewDataset, reserved: Option<u64>) -> String {
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
        let rounded = new.volume_size().unwrap_or(0).to_string();
        props.iter_mut().filter(|(name, _)| name == "volsize").for_each(|(_, v)| v.clone_from(&rounded));
    }
    props.extend(reserved.map(|bytes| ("refreservation".to_owned(), bytes.to_string())));
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

    fn parse(words: &str) -> Result<Options, Stop> {
        Options::parse(words.split(' ').map(OsString::from).collect())
    }

    fn text(words: &str, reserved: Option<u64>) -> String {
        let options = parse(words).expect("good");
        told(&options, &options.new_dataset().expect("good"), reserved)
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
