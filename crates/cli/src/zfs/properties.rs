//! The values of `-o`, and exit codes that several commands have.

use crate::stop::Stop;
use admin::edit;
use std::ffi::OsString;

/// Exit code of a refusal whose status the real tool passes on.
pub(super) const MINUS_ONE: u8 = 255;

/// The properties of `-o`, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Pairs(pub(super) Vec<(String, String)>);

impl Pairs {
    /// Adds the value of `-o`.
    pub(super) fn add(&mut self, value: Option<OsString>) -> Result<(), Stop> {
        let text = value.unwrap_or_default().to_string_lossy().into_owned();
        let Some((name, value)) = edit::values::split(&text) else {
            return Err(Stop::failed("missing '=' for property=value argument"));
        };
        if self.has(name) {
            return Err(Stop::failed(format!("property '{name}' specified multiple times")));
        }
        self.0.push((name.to_owned(), value.to_owned()));
        Ok(())
    }

    /// Sets a property, whatever was given before.
    pub(super) fn set(&mut self, name: &str, value: String) {
        self.0.retain(|(known, _)| known != name);
        self.0.push((name.to_owned(), value));
    }

    /// The value of a property.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// There is a value for this property.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_unique() {
        let mut pairs = Pairs::default();
        pairs.add(Some("a:b=c=d".into())).expect("fine");
        assert_eq!(pairs.0, [("a:b".to_owned(), "c=d".to_owned())]);
        let text = |result: Result<(), Stop>| match result {
            Err(Stop::Failed(Some(text))) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(text(pairs.add(Some("a:b=x".into()))), "property 'a:b' specified multiple times");
        assert_eq!(text(pairs.add(Some("foo".into()))), "missing '=' for property=value argument");
    }
}
