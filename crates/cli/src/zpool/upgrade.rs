//! `zpool upgrade`: which features pools could have, and enabling them.

use super::{in_session, texts};
use crate::getopt::Getopt;
use crate::out::{Out, visible};
use crate::stop::{Outcome, Stop};
use admin::Session;
use admin::verbs::zpool::upgradable::{self, Row};
use admin::verbs::zpool::upgrade::{Answer, Refusal, Request, VERSION};
use format::feature::{FEATURES, Since};
use std::ffi::OsString;
use std::fmt::Write as _;

/// The newest version without.
const LEGACY_MAX: u64 = 28;
const HELLO: &str = "This system supports ZFS pool feature flags.\n\n";

pub(super) fn run(args: &[OsString], out: &Out) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), ":avV:", &[]);
    let (mut all, mut list, mut version) = (false, false, None);
    while let Some((letter, value)) = walk.next()? {
        match letter {
            'a' => all = true,
            'v' => list = true,
            _ => version = Some(parse_version(&value.unwrap_or_default().to_string_lossy())?),
        }
    }
    let names = texts(&walk.operands());
    if list && (all || version.is_some() || !names.is_empty()) {
        return Err(Stop::usage("-v option is incompatible with other arguments"));
    }
    if all && !names.is_empty() {
        return Err(Stop::usage("-a option should not be used along with a pool name"));
    }
    if version.is_some() && !all && names.is_empty() {
        return Err(Stop::usage("-V option is incompatible with other arguments"));
    }
    if list {
        out.print(&format!("{HELLO}{}", supported()));
        return Ok(0);
    }
    let found = super::reading().run(&upgradable::Request { pools: names.clone() });
    let upgradable::Answer { pools, problems } = found.map_err(|refusal| super::unread(&refusal))?;
    let code = super::tell_problems(&problems);
    out.print(HELLO);
    if all {
        in_session("upgrade", args, |session| upgrade_all(&pools, version, session, out))?;
    } else if names.is_empty() {
        out.print(&report(&pools)?);
    } else {
        in_session("upgrade", args, |session| {
            pools.iter().try_fold(0, |_, row| upgrade_one(&row.pool, version, session, out))
        })?;
    }
    Ok(code)
}

fn parse_version(text: &str) -> Result<u64, Stop> {
    let number =
        text.parse().ok().filter(|version| (1..=LEGACY_MAX).contains(version) || *version == VERSION);
    number.ok_or_else(|| Stop::usage(format!("invalid version '{text}'")))
}

/// `-v`: everything that there is.
fn supported() -> String {
    let mut text = String::from("The following features are supported:\n\nFEAT DESCRIPTION\n");
    text.push_str("-------------------------------------------------------------\n");
    for feature in FEATURES.iter().filter(|feature| feature.since == Since::V2_3) {
        let compatible = if feature.read_only_compatible { " (read-only compatible)" } else { "" };
        let _ = writeln!(text, "{:<37}{compatible}\n     {}", feature.name, feature.description);
    }
    text.push_str("\nThe following legacy versions are also supported:\n\nVER  DESCRIPTION\n");
    text.push_str("---  --------------------------------------------------------\n");
    for (version, what) in LEGACY.iter().enumerate() {
        let _ = writeln!(text, " {:<3} {what}", version + 1);
    }
    text.push_str("\nFor more information on a particular version, including supported releases,\n");
    text.push_str("see the ZFS Administration Guide.\n\n");
    text
}

/// What each version without features brought, from 1 on.
const LEGACY: [&str; LEGACY_MAX as usize] = [
    "Initial ZFS version",
    "Ditto blocks (replicated metadata)",
    "Hot spares and double parity RAID-Z",
    "zpool history",
    "Compression using the gzip algorithm",
    "bootfs pool property",
    "Separate intent log devices",
    "Delegated administration",
    "refquota and refreservation properties",
    "Cache devices",
    "Improved scrub performance",
    "Snapshot properties",
    "snapused property",
    "passthrough-x aclinherit",
    "user/group space accounting",
    "stmf property support",
    "Triple-parity RAID-Z",
    "Snapshot user holds",
    "Log device removal",
    "Compression using zle (zero-length encoding)",
    "Deduplication",
    "Received properties",
    "Slim ZIL",
    "System attributes",
    "Improved scrub stats",
    "Improved snapshot deletion performance",
    "Improved snapshot creation performance",
    "Multiple vdev replacements",
];

/// Without arguments: what could be upgraded.
fn report(pools: &[Row]) -> Result<String, Stop> {
    let mut text = String::new();
    let old: Vec<&Row> = pools.iter().filter(|pool| pool.version < VERSION).collect();
    if old.is_empty() {
        text.push_str("All pools are formatted using feature flags.\n\n");
    } else {
        text.push_str(OLD_POOLS);
        for pool in old {
            let _ = writeln!(text, "{:<3}  {}", pool.version, visible(&pool.pool));
        }
        text.push_str("\nUse 'zpool upgrade -v' for a list of available legacy versions.\n");
    }
    let mut table = String::new();
    for pool in pools.iter().filter(|pool| pool.version >= VERSION) {
        let lacks = pool.missing.as_ref().map_err(Stop::failed)?;
        if !lacks.is_empty() {
            let _ = writeln!(table, "{}", visible(&pool.pool));
            lacks.iter().for_each(|feature| {
                let _ = writeln!(table, "      {feature}");
            });
        }
    }
    if table.is_empty() {
        text.push_str("Every feature flags pool has all supported and requested features enabled.\n");
    } else {
        let _ = writeln!(text, "{MISSING}{table}");
    }
    Ok(text)
}

const OLD_POOLS: &str = "The following pools are formatted with legacy version numbers and can\n\
    be upgraded to use feature flags.  After being upgraded, these pools\n\
    will no longer be accessible by software that does not support feature\n\
    flags.\n\n\
    Note that setting a pool's 'compatibility' feature to 'legacy' will\n\
    inhibit upgrades.\n\nVER  POOL\n---  ------------\n";
const MISSING: &str = "\nSome supported features are not enabled on the following pools. Once a\n\
    feature is enabled the pool may become incompatible with software\n\
    that does not support the feature. See zpool-features(7) for details.\n\n\
    Note that the pool 'compatibility' feature can be used to inhibit\n\
    feature upgrades.\n\nPOOL  FEATURE\n---------------\n";

/// The text that says which features were enabled; empty: none.
fn enabled(pool: &str, features: &[String]) -> String {
    if features.is_empty() {
        return String::new();
    }
    let mut text = format!("Enabled the following features on '{}':\n", visible(pool));
    features.iter().for_each(|feature| {
        let _ = writeln!(text, "  {feature}");
    });
    text.push('\n');
    text
}

fn upgrade_one(pool: &str, version: Option<u64>, session: &mut Session<'_>, out: &Out) -> Outcome {
    let name = visible(pool).into_owned();
    let answer = session.run(&Request { pool: pool.to_owned(), version }).map_err(Stop::failed)?;
    out.print(&match answer {
        Answer::Newer { version } => {
            format!("Pool '{name}' is already formatted using more current version '{version}'.\n\n")
        }
        Answer::Same { version } => {
            format!("Pool '{name}' is already formatted using version {version}.\n\n")
        }
        Answer::Enabled { features } if features.is_empty() => {
            format!("Pool '{name}' already has all supported and requested features enabled.\n")
        }
        Answer::Enabled { features } => enabled(pool, &features),
    });
    Ok(0)
}

/// The refusal of the first pool whose version is below this one.
fn refuse_older(pools: &[Row], version: u64) -> Result<(), Stop> {
    match pools.iter().find(|row| row.version < version) {
        Some(Row { pool, version, .. }) => {
            Err(Stop::failed(Refusal::Legacy { pool: pool.clone(), version: *version }))
        }
        None => Ok(()),
    }
}

fn upgrade_all(pools: &[Row], version: Option<u64>, session: &mut Session<'_>, out: &Out) -> Outcome {
    if let Some(version) = version.filter(|version| *version < VERSION) {
        refuse_older(pools, version)?;
        out.print(&format!("All pools are already formatted with version {version} or higher.\n"));
        return Ok(0);
    }
    refuse_older(pools, VERSION)?;
    let mut done = String::new();
    for pool in pools.iter().map(|row| &row.pool) {
        let answer = session.run(&Request { pool: pool.clone(), version: None }).map_err(Stop::failed)?;
        if let Answer::Enabled { features } = answer {
            done.push_str(&enabled(pool, &features));
        }
    }
    if done.is_empty() {
        out.print("All pools are already formatted using feature flags.\n\n");
        out.print("Every feature flags pool already has all supported and requested features enabled.\n");
    } else {
        out.print(&done);
    }
    Ok(0)
}
