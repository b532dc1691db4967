//! The properties of `-o` and `-x`.

use super::package::Package;
use super::refusal::{Problem, Refusal};
use super::{Effect, Request};
use crate::edit::values::{self, Setting, Subject, VERSION, ValueError};
use crate::verbs::{Code, Reason};
use dsl::prop::change::PropError;
use format::prop::{self as table, Class};
use format::stream::{Begin, feature};

/// Type of an object set that is a volume.
const VOLUME: u32 = 3;
/// Properties that a raw stream decides. (`keylocation` is the receiver's.)
const ENCRYPTION: [&str; 3] = ["encryption", "keyformat", "pbkdf2iters"];

/// Checked properties.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// Stored names of the properties that the topmost dataset gets.
    set: Vec<String>,
    /// Stored names of the properties that are not to take effect.
    excluded: Vec<String>,
}

impl Options {
    /// Checks the properties for a stream, or for the datasets of a package: there, properties are passed over where
    /// they do not apply.
    pub(super) fn check(
        request: &Request,
        begin: &Begin,
        package: Option<&Package>,
    ) -> Result<Options, Refusal> {
        let kinds: &[u8] = match (package, begin.objset_type) {
            (Some(_), _) => &[table::FS, table::VOL],
            (None, VOLUME) => &[table::VOL],
            (None, _) => &[table::FS],
        };
        let mut options = Options::default();
        if begin.features() & feature::RAW != 0 {
            let names = request.properties.iter().map(|(name, _)| name).chain(&request.excluded);
            if let Some(name) = names.into_iter().find(|name| ENCRYPTION.contains(&stored(name))) {
                let why = format!("encryption property '{name}' cannot be set or excluded for raw streams.");
                return Err(refused(name, Reason::new(Code::Value, why)));
            }
        }
        for (name, text) in &request.properties {
            let mut found = kinds.iter().map(|kind| check_value(name, text, *kind));
            let first = found.next().unwrap_or(Ok(()));
            let checked = first.or_else(|error| found.find(Result::is_ok).unwrap_or(Err(error)));
            let checked = checked.and_then(|()| options.check_new(name));
            checked.map_err(|reason| refused(name, reason))?;
            options.set.push(stored(name).to_owned());
        }
        for name in &request.excluded {
            let checked = check_excluded(name).and_then(|()| options.check_new(name));
            checked.map_err(|reason| refused(name, reason))?;
            options.excluded.push(stored(name).to_owned());
        }
        Ok(options)
    }

    /// A property is named once.
    fn check_new(&self, name: &str) -> Result<(), Reason> {
        match self.set.iter().chain(&self.excluded).any(|known| known == stored(name)) {
            true => Err(Reason::new(Code::Value, format!("property '{name}' specified multiple times"))),
            false => Ok(()),
        }
    }

    /// Whether a property of snapshots is passed over.
    pub(super) fn is_excluded(&self, name: &str) -> bool {
        self.excluded.iter().any(|known| known == stored(name))
    }

    /// What is in effect after a property was received.
    pub(super) fn effect(&self, name: &str, is_top: bool) -> Effect {
        if self.is_excluded(name) {
            return Effect::Excluded;
        }
        match !is_top && self.set.iter().any(|known| known == stored(name)) {
            true => Effect::Inherited,
            false => Effect::Received,
        }
    }
}

fn refused(property: &str, reason: Reason) -> Refusal {
    Problem::Property { property: property.to_owned(), reason }.of(None)
}

/// The name under which a property is stored.
fn stored(name: &str) -> &str {
    table::dataset(name).map_or(name, |prop| prop.name)
}

fn at_receive_time(name: &str) -> Reason {
    Reason::new(Code::Value, format!("property '{name}' cannot be set at receive time"))
}

fn check_value(name: &str, text: &str, kind: u8) -> Result<(), Reason> {
    // What depends on the dataset is checked when it is set.
    let subject = Subject { kind, creating: false, block_size: 1, version: VERSION };
    if matches!(stored(name), "version" | "volsize") {
        return Err(at_receive_time(stored(name)));
    }
    match values::resolve(name, text, &subject, &|_| true)? {
        Setting::Version(_) | Setting::VolumeSize(_) => Err(at_receive_time(stored(name))),
        _ => Ok(()),
    }
}

fn check_excluded(name: &str) -> Result<(), Reason> {
    let Some(prop) = table::dataset(name) else {
        return match table::is_user(name) || table::per_owner(name).is_some() {
            true => Ok(()),
            false => Err(ValueError::from(PropError::Unknown { name: name.to_owned() }).into()),
        };
    };
    match (prop.name, prop.class) {
        ("version" | "volsize", _) => Err(at_receive_time(prop.name)),
        // Datasets that are received become encrypted by inheritance only.
        ("encryption" | "keyformat" | "keylocation" | "pbkdf2iters", _) => Ok(()),
        (_, Class::ReadOnly | Class::OneTime | Class::OneTimeDefault) => {
            Err(ValueError::from(PropError::ReadOnly { name: prop.name }).into())
        }
        (_, Class::Default | Class::Inherit) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(objset_type: u32) -> Begin {
        let magic = format::stream::MAGIC;
        Begin {
            magic,
            version_info: 1,
            creation_time: 0,
            objset_type,
            flags: 0,
            to_guid: 1,
            from_guid: 0,
            to_name: [0; 256],
        }
    }

    fn check(words: &str, objset_type: u32, package: Option<&Package>) -> Result<Options, String> {
        let mut request = Request::of("tank/r");
        for word in words.split_whitespace() {
            match word.split_once('=') {
                Some((name, value)) => request.properties.push((name.to_owned(), value.to_owned())),
                None => request.excluded.push(word.to_owned()),
            }
        }
        Options::check(&request, &begin(objset_type), package).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn properties_that_cannot_be_received_are_refused() {
        for (words, kind, why) in [
            ("version=1", 2, "property 'version' cannot be set at receive time"),
            ("volsize=32K", 3, "property 'volsize' cannot be set at receive time"),
            ("version", 2, "property 'version' cannot be set at receive time"),
            ("normalization", 2, "'normalization' is readonly"),
            ("used", 2, "'used' is readonly"),
            ("nosuch", 2, "invalid property 'nosuch'"),
            ("atime=maybe", 2, "'atime' must be one of 'on | off'"),
            ("volblock=64k", 3, "'volblocksize' is readonly"),
            ("atime=off atime", 2, "property 'atime' specified multiple times"),
            ("compression=on compress=off", 2, "property 'compress' specified multiple times"),
            ("atime=off", 3, "'atime' does not apply to datasets of this type"),
        ] {
            assert_eq!(check(words, kind, None), Err(format!("cannot receive: {why}")), "{words}");
        }
        assert!(check("atime canmount encryption a:b", 3, None).is_ok());
        let package = Package::default();
        assert!(check("atime=off", 0, Some(&package)).is_ok());
        assert!(check("atime=maybe", 0, Some(&package)).is_err());
    }

    #[test]
    fn descendants_inherit_what_is_set_at_the_top() {
        let options = check("compress=gzip atime", 2, None).expect("good");
        assert_eq!(options.effect("compression", true), Effect::Received);
        assert_eq!(options.effect("compression", false), Effect::Inherited);
        assert_eq!(options.effect("atime", true), Effect::Excluded);
        assert_eq!(options.effect("a:b", false), Effect::Received);
    }
}
