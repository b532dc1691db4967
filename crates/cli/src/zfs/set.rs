//! `zfs set` and `zfs inherit`.

use super::properties::{MINUS_ONE, Pairs};
use super::session::{in_session, refused};
use super::{complain, complain_all};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use admin::edit::values;
use admin::verbs::zfs::inherit::{self, Refusal};
use admin::verbs::zfs::set::{self, Why};
use std::ffi::OsString;

/// Runs `zfs set`.
pub(super) fn run(args: &[OsString], out: &Out) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "u", &[]);
    let mut stay_mounted = false;
    while walk.next()?.is_some() {
        stay_mounted = true;
    }
    let operands = crate::zpool::texts(&walk.operands());
    if operands.is_empty() {
        return Err(Stop::usage("missing arguments"));
    }
    let (pairs, datasets) = match split(&operands)? {
        Ok(split) => split,
        Err(message) => {
            complain(&message);
            return Ok(MINUS_ONE);
        }
    };
    in_session("set", args, |session| {
        let mut code = 0;
        for dataset in datasets {
            let (dataset, properties) = (dataset.clone(), pairs.0.clone());
            let request = set::Request { dataset, properties, stay_mounted };
            match session.run(&request) {
                Ok(answer) => {
                    complain_all(&answer.warnings);
                    if let (Some(at), Some(wanted)) = (answer.mounted_elsewhere, pairs.get("mountpoint")) {
                        crate::mounts::print_elsewhere(&request.dataset, &at, wanted, out);
                    }
                }
                Err(refusal) => code = code.max(tell(&refusal)),
            }
        }
        Ok(code)
    })
}

/// Properties first, then datasets: whatever has no `=`.
#[allow(clippy::type_complexity)]
fn split(operands: &[String]) -> Result<Result<(Pairs, &[String]), String>, Stop> {
    let count = operands.iter().take_while(|word| values::split(word).is_some()).count();
    let (words, datasets) = operands.split_at(count);
    let mut pairs = Pairs::default();
    for word in words {
        match pairs.add(Some(word.into())) {
            Err(Stop::Failed(Some(message))) => return Ok(Err(message)),
            other => other?,
        }
    }
    if datasets.is_empty() {
        return Err(Stop::usage("missing dataset name(s)"));
    }
    Ok(Ok((pairs, datasets)))
}

/// Tells why not all is set or mounted; the exit code.
fn tell(refusal: &set::Refusal) -> u8 {
    refusal.to_string().lines().for_each(complain);
    match refusal.why {
        Why::Denied(_) | Why::Open(_) | Why::NotMounted { .. } => 1,
        Why::Mount(_) | Why::NotSet { .. } => MINUS_ONE,
    }
}

/// Runs `zfs inherit`.
pub(super) fn inherit(args: &[OsString]) -> Outcome {
    let mut walk = Getopt::new(args.to_vec(), "rS", &[]);
    let (mut recursive, mut received) = (false, false);
    while let Some((letter, _)) = walk.next()? {
        match letter {
            'r' => recursive = true,
            _ => received = true,
        }
    }
    let operands = crate::zpool::texts(&walk.operands());
    let (prop, datasets) = match operands.split_first() {
        None => return Err(Stop::usage("missing property argument")),
        Some((_, [])) => return Err(Stop::usage("missing dataset argument")),
        Some(split) => split,
    };
    in_session("inherit", args, |session| {
        let mut code = 0;
        for dataset in datasets {
            let (dataset, property) = (dataset.clone(), prop.clone());
            match session.run(&inherit::Request { dataset, property, received, recursive }) {
                Ok(_) => {}
                Err(refusal @ Refusal::Property { is_unknown: true, .. }) => {
                    return Err(Stop::usage(refusal.to_string()));
                }
                Err(refusal @ Refusal::Property { .. }) => return Err(refused(&refusal)),
                Err(refusal) => {
                    refusal.to_string().lines().for_each(complain);
                    if let Refusal::NotMounted { .. } = refusal {
                        return Err(Stop::Code(1));
                    }
                    code = 1;
                }
            }
        }
        Ok(code)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_end_at_the_first_word_without_a_value() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let good = words("a:b=1 quota=none tank/x tank/y");
        let (pairs, datasets) = split(&good).expect("usage").expect("unique");
        assert_eq!((pairs.0.len(), datasets.len()), (2, 2));
        let twice = words("a:b=1 a:b=2 tank");
        assert_eq!(split(&twice).expect("usage"), Err("property 'a:b' specified multiple times".to_owned()));
        let none = words("compression=on");
        assert!(matches!(split(&none), Err(Stop::Usage(text)) if text == "missing dataset name(s)"));
    }
}
