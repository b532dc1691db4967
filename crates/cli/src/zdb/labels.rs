//! The labels of a device: `zdb -l`.

use super::nvprint::Indented;
use super::{Options, Verdict, uberblock};
use cenote::inspect::{FoundUberblock, Probe, labels};
use std::io::{self, Write};
use std::path::Path;

const LABELS: usize = 4;
const RULE: &str = "------------------------------------";

/// Prints the labels of each device; exit 2 if one has none that is valid.
pub(crate) fn print(options: &Options, devices: &[String], out: &mut dyn Write) -> io::Result<Verdict> {
    let mut verdict = Verdict::Clean;
    if devices.is_empty() {
        eprintln!("zdb: no device named");
        return Ok(Verdict::Failed);
    }
    for device in devices {
        let probe = match labels(Path::new(device)) {
            Ok(probe) => probe,
            Err(error) => {
                eprintln!("cannot open '{device}': {}", super::chain(&error));
                verdict = verdict.max(Verdict::Failed);
                continue;
            }
        };
        if print_device(&probe, options, out)? == 0 {
            verdict = verdict.max(Verdict::Inconsistent);
        }
    }
    Ok(verdict)
}

/// Prints a device and returns its number of valid labels. Labels that say the same are printed once.
fn print_device(probe: &Probe, options: &Options, out: &mut dyn Write) -> io::Result<usize> {
    let mut printed = [false; LABELS];
    for label in 0..LABELS {
        let Some(config) = probe.config_of_label(label) else {
            writeln!(out, "failed to unpack label {label}")?;
            continue;
        };
        if printed.get(label) == Some(&true) {
            continue;
        }
        let same: Vec<usize> = (label..LABELS)
            .filter(|other| probe.config_of_label(*other).is_some_and(|c| c.raw == config.raw))
            .collect();
        let shown = if options.count('l') > 2 { &same[..1] } else { &same[..] };
        for other in shown {
            if let Some(slot) = printed.get_mut(*other) {
                *slot = true;
            }
        }
        if options.has('q') {
            continue;
        }
        writeln!(out, "{RULE}\nLABEL {label} \n{RULE}")?;
        write!(out, "{}", Indented { list: &config.raw, indent: 4 })?;
        writeln!(out, "    labels = {}", numbers(shown))?;
    }
    if options.has('u') {
        print_ring(probe, out)?;
    }
    Ok(probe.configs.len())
}

fn numbers(labels: &[usize]) -> String {
    labels.iter().map(|label| format!("{label} ")).collect()
}

/// Prints the uberblocks, each once with the labels that have it.
fn print_ring(probe: &Probe, out: &mut dyn Write) -> io::Result<()> {
    let mut all: Vec<&FoundUberblock> = probe.uberblocks.iter().collect();
    all.sort_by_key(|found| (found.slot, found.label));
    let mut done: Vec<(usize, &format::uberblock::Uberblock)> = Vec::new();
    for found in &all {
        if done.iter().any(|(slot, ub)| *slot == found.slot && **ub == found.uberblock) {
            continue;
        }
        done.push((found.slot, &found.uberblock));
        let same = all.iter().filter(|o| o.slot == found.slot && o.uberblock == found.uberblock);
        let labels: Vec<usize> = same.map(|o| o.label).collect();
        writeln!(out, "    Uberblock[{}]", found.slot)?;
        uberblock::print(out, &found.uberblock)?;
        writeln!(out, "        labels = {}", numbers(&labels))?;
    }
    Ok(())
}
