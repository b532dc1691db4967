//! `zfs allow` and `zfs unallow`.

use super::properties::MINUS_ONE;
use super::session::in_session;
use super::{complain, permissions};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::usage::Tool;
use admin::edit;
use admin::verbs::zfs::allow::{self, Grants, Holder, Refusal};
use admin::verbs::zfs::allowed::{self, Permissions, Place};
use admin::verbs::zfs::{NotOpened, unallow};
use admin::{Owner, Session, owner_names};
use std::collections::BTreeSet;
use std::ffi::OsString;

/// Width of the line above the permissions of a dataset.
const HEADING: usize = 70;

/// Which of the two verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// `allow`.
    Allow,
    /// `unallow`.
    Unallow,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Verb::Allow => "allow",
            Verb::Unallow => "unallow",
        }
    }

    /// How it is used: told in other words than those of other verbs.
    fn usage(self) -> String {
        let usage = Tool::Zfs.of(self.name());
        let lines: Vec<&str> = usage.lines().skip(1).take_while(|line| !line.is_empty()).collect();
        let recursive = match self {
            Verb::Allow => "",
            Verb::Unallow => "  -r          remove permissions recursively\n",
        };
        format!(
            "Usage: {}\n\nOptions:\n  -h          show this help message and exit\n\
             \x20 -l          set permission locally\n  -d          set permission for descents\n\
             \x20 -u          set permission for user\n  -g          set permission for group\n\
             \x20 -e          set permission for everyone\n  -c          set create time permission\n\
             \x20 -s          define permission set\n{recursive}\n{}",
            lines.join("\n"),
            permissions::list()
        )
    }
}

/// Whom the options are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum About {
    /// Users or groups, whatever they are.
    #[default]
    Either,
    Users,
    Groups,
    Everyone,
    Creation,
    Set,
}

#[derive(Debug, Default)]
struct Options {
    about: About,
    local: bool,
    descendent: bool,
    below: bool,
    who: String,
    /// `None`: all that there are.
    permissions: Option<String>,
    dataset: String,
}

/// A wrong argument: message and exit code.
type Wrong = (String, u8);

impl Options {
    fn parse(verb: Verb, args: Vec<OsString>) -> Result<Result<Options, Wrong>, Stop> {
        let mut walk = Getopt::new(args, if verb == Verb::Allow { "ldugecsh" } else { "ldugecsrh" }, &[]);
        let mut options = Options::default();
        let mut asked = BTreeSet::new();
        let wrong = |message: &str| Ok(Err((message.to_owned(), 2)));
        while let Some((letter, _)) = walk.next()? {
            match letter {
                'l' => options.local = true,
                'd' => options.descendent = true,
                'r' => options.below = true,
                'h' => return Ok(Err((String::new(), 0))),
                _ => {
                    asked.insert(letter);
                    options.about = match letter {
                        'u' => About::Users,
                        'g' => About::Groups,
                        'e' => About::Everyone,
                        'c' => About::Creation,
                        _ => About::Set,
                    };
                }
            }
        }
        if asked.len() > 1 {
            return wrong(if asked.contains(&'c') || asked.contains(&'s') {
                "invalid options combined with -c or -s"
            } else {
                "-u, -g, and -e are mutually exclusive"
            });
        }
        if matches!(options.about, About::Creation | About::Set) && (options.local || options.descendent) {
            return wrong("invalid options combined with -c or -s");
        }
        Ok(options.place(verb, crate::zpool::texts(&walk.operands())))
    }

    /// Who, what, where: what the operands are depends on how many there are.
    fn place(mut self, verb: Verb, mut words: Vec<String>) -> Result<Options, Wrong> {
        let wrong = || ("wrong number of parameters".to_owned(), 2);
        self.dataset = words.pop().ok_or_else(wrong)?;
        if !matches!(self.about, About::Everyone | About::Creation) {
            if words.is_empty() {
                // Only `zfs allow DATASET` names no holder.
                let is_plain = verb == Verb::Allow && self.about == About::Either;
                return if is_plain { Ok(self) } else { Err(wrong()) };
            }
            self.who = words.remove(0);
        }
        self.permissions = (!words.is_empty()).then(|| words.remove(0));
        if !words.is_empty() || (verb == Verb::Allow && self.permissions.is_none()) {
            return Err(wrong());
        }
        if self.about == About::Set && !self.who.starts_with('@') {
            return Err(("invalid set name: missing '@' prefix".into(), 2));
        }
        Ok(self)
    }

    /// It only asks what is allowed.
    fn is_question(&self) -> bool {
        self.about == About::Either && self.who.is_empty()
    }

    fn grant(&self) -> Result<Grants, Wrong> {
        let is_everywhere = self.local == self.descendent;
        let holders = match self.about {
            About::Everyone => vec![Holder::Everyone],
            About::Creation => vec![Holder::Creator],
            About::Set => vec![Holder::Set(self.who.clone())],
            _ => self.who.split(',').map(|name| self.holder(name)).collect::<Result<_, _>>()?,
        };
        let list = self.permissions.as_deref().unwrap_or_default();
        let permissions = list.split(',').filter(|p| !p.is_empty()).map(str::to_owned).collect();
        let (local, descendent) = (self.local || is_everywhere, self.descendent || is_everywhere);
        Ok(Grants { holders, local, descendent, permissions })
    }

    fn holder(&self, name: &str) -> Result<Holder, Wrong> {
        let user = || edit::owner_id(Owner::User, name).map(Holder::User);
        let group = || edit::owner_id(Owner::Group, name).map(Holder::Group);
        let (found, what) = match self.about {
            About::Users => (user(), "user"),
            About::Groups => (group(), "group"),
            _ if name == "everyone" => (Some(Holder::Everyone), ""),
            // A bare number may be either.
            _ if name.parse::<u64>().is_ok() => (None, "user/group"),
            _ => (user().or_else(group), "user/group"),
        };
        // This ends with 0 in the real tool, too.
        found.ok_or_else(|| (format!("invalid {what} {name}"), 0))
    }
}

/// Runs one of the verbs.
pub(super) fn run(verb: Verb, args: &[OsString], out: &Out) -> Outcome {
    let wrong = |(message, code): Wrong| {
        match message.as_str() {
            "" => out.print(&verb.usage()),
            _ => say_error!("{}\nzfs: error: {message}\n", verb.usage()),
        }
        Ok(code)
    };
    let options = match Options::parse(verb, args.to_vec())? {
        Ok(options) => options,
        Err(bad) => return wrong(bad),
    };
    in_session(verb.name(), args, |session| {
        if options.is_question() {
            return match allowed(session, &options) {
                Ok(answer) => {
                    out.print(&answer.datasets.iter().map(told).collect::<String>());
                    Ok(0)
                }
                Err(stop) => stop,
            };
        }
        let dataset = options.dataset.clone();
        let outcome = options.grant().map(|grant| match verb {
            Verb::Allow => session.run(&allow::Request { dataset, grant }),
            Verb::Unallow => session.run(&unallow::Request { dataset, grant, recursive: options.below }),
        });
        match outcome {
            Ok(Ok(())) => Ok(0),
            Ok(Err(Refusal::Open(closed))) => refused(&closed),
            Ok(Err(refusal)) => Err(Stop::failed(refusal)),
            // A dataset that is not there is told first.
            Err(bad) => match allowed(session, &options) {
                Ok(_) => wrong(bad),
                Err(stop) => stop,
            },
        }
    })
}

/// The permissions at the dataset, or how the command ends.
fn allowed(session: &mut Session<'_>, options: &Options) -> Result<allowed::Answer, Outcome> {
    session.run(&allowed::Request { dataset: options.dataset.clone() }).map_err(|refusal| match refusal {
        allowed::Refusal::Open(closed) => refused(&closed),
        denied @ allowed::Refusal::Denied(_) => Err(Stop::failed(denied)),
    })
}

/// What is said of a dataset that cannot be opened, and the exit code.
fn refused(closed: &NotOpened) -> Outcome {
    complain(&closed.to_string());
    complain(&format!("Failed to open dataset: {}", closed.name));
    Ok(MINUS_ONE)
}

/// The permissions of one dataset.
fn told(all: &Permissions) -> String {
    let Permissions { dataset: name, permits } = all;
    let head = format!("---- Permissions on {name} ");
    let mut text = format!("{head:-<HEADING$}\n");
    let section = |title: &str, lines: Vec<String>| match lines.is_empty() {
        true => String::new(),
        false => lines.iter().fold(format!("{title}\n"), |text, line| format!("{text}\t{line}\n")),
    };
    let plain = |wanted: fn(&Holder) -> bool| -> Vec<String> {
        let of = permits.iter().filter(|p| wanted(&p.holder));
        of.map(|p| match &p.holder {
            Holder::Set(name) => format!("{name} {}", p.permissions.join(",")),
            _ => p.permissions.join(","),
        })
        .collect()
    };
    text += &section("Permission sets:", plain(|who| matches!(who, Holder::Set(_))));
    text += &section("Create time permissions:", plain(|who| *who == Holder::Creator));
    let is_listed = |who: &&Holder| !matches!(who, Holder::Set(_) | Holder::Creator);
    let holders: BTreeSet<&Holder> = permits.iter().map(|p| &p.holder).filter(is_listed).collect();
    let of = |who: &Holder, place: Place| -> BTreeSet<String> {
        let own = permits.iter().filter(|p| p.holder == *who && p.place == place);
        own.flat_map(|p| p.permissions.iter().cloned()).collect()
    };
    for (title, is_local, is_descendent) in [
        ("Local permissions:", true, false),
        ("Descendent permissions:", false, true),
        ("Local+Descendent permissions:", true, true),
    ] {
        let lines = holders.iter().filter_map(|who| {
            let (local, descendent) = (of(who, Place::Local), of(who, Place::Descendent));
            let has =
                |p: &&String| local.contains(*p) == is_local && descendent.contains(*p) == is_descendent;
            let list: Vec<&str> = local.union(&descendent).filter(has).map(String::as_str).collect();
            (!list.is_empty()).then(|| format!("{} {}", holder(who), list.join(",")))
        });
        text += &section(title, lines.collect());
    }
    text
}

fn holder(who: &Holder) -> String {
    let (word, owner, id) = match who {
        Holder::User(id) => ("user", Owner::User, *id),
        Holder::Group(id) => ("group", Owner::Group, *id),
        _ => return "everyone".into(),
    };
    match owner_names(owner).get(&id) {
        Some(name) => format!("{word} {name}"),
        None => format!("{word} (unknown: {id})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::verbs::zfs::allowed::Permit;

    fn parse(verb: Verb, words: &str) -> Result<Options, Wrong> {
        let args = words.split(' ').filter(|w| !w.is_empty()).map(OsString::from).collect();
        Options::parse(verb, args).expect("known options")
    }

    #[test]
    fn wrong_arguments() {
        for (verb, words, message) in [
            (Verb::Allow, "", "wrong number of parameters"),
            (Verb::Allow, "-u 0 tank/v1", "wrong number of parameters"),
            (Verb::Allow, "-s @bs tank/v1", "wrong number of parameters"),
            (Verb::Allow, "-e mount extra tank/v1", "wrong number of parameters"),
            (Verb::Allow, "-u 0 -g 0 quota tank/v1", "-u, -g, and -e are mutually exclusive"),
            (Verb::Allow, "-s nosuch create tank/fs", "invalid set name: missing '@' prefix"),
            (Verb::Unallow, "tank/fs", "wrong number of parameters"),
        ] {
            assert_eq!(parse(verb, words).err(), Some((message.to_owned(), 2)), "{words}");
        }
        assert!(parse(Verb::Allow, "tank/fs").expect("good").is_question());
        let options = parse(Verb::Allow, "nosuchuser snapshot tank").expect("good");
        assert_eq!(options.grant().err(), Some(("invalid user/group nosuchuser".to_owned(), 0)));
        assert!(parse(Verb::Unallow, "-u root tank").expect("good").permissions.is_none());
    }

    #[test]
    fn usage_is_that_of_the_transcript() {
        let all = include_str!("../../../../fixtures/cli-transcripts/10-quotas.txt");
        let start = "$ zfs allow nosuchuser snapshot tank\n";
        let rest = all.get(all.find(start).expect("there") + start.len()..).expect("a boundary");
        let real = rest.get(..rest.find("[exit ").expect("ends")).expect("a boundary");
        assert_eq!(format!("{}\nzfs: error: invalid user/group nosuchuser\n", Verb::Allow.usage()), real);
    }

    #[test]
    fn permissions_are_told_by_where_they_hold() {
        let permit = |holder: Holder, place, list: &[&str]| Permit {
            holder,
            place,
            permissions: list.iter().map(|p| (*p).to_owned()).collect(),
        };
        let permits = vec![
            permit(Holder::Set("@set".into()), Place::Nowhere, &["create", "mount"]),
            permit(Holder::Creator, Place::Nowhere, &["destroy"]),
            permit(Holder::User(4_000_000), Place::Local, &["compression", "create"]),
            permit(Holder::User(4_000_000), Place::Descendent, &["create", "quota"]),
            permit(Holder::Everyone, Place::Local, &["hold"]),
            permit(Holder::Everyone, Place::Descendent, &["hold"]),
        ];
        assert_eq!(
            told(&Permissions { dataset: "tank/fs".into(), permits }),
            "---- Permissions on tank/fs ------------------------------------------\n\
             Permission sets:\n\t@set create,mount\nCreate time permissions:\n\tdestroy\n\
             Local permissions:\n\tuser (unknown: 4000000) compression\n\
             Descendent permissions:\n\tuser (unknown: 4000000) quota\n\
             Local+Descendent permissions:\n\tuser (unknown: 4000000) create\n\teveryone hold\n"
        );
    }
}
