//! Verbs by name, with requests, answers and refusals as JSON: for callers in other processes and other languages.
//!
//! # What always holds
//! - A request with a field that its verb does not have is refused before anything is done: a misspelt `dry_run` must
//!   not become a request that changes something.
//! - The right of the verb is asked for as of any other caller ([`Session::run`]).

pub use super::call::CallError;
use super::right::VERBS;
use crate::Session;
use serde_json::Value;

/// Names of all verbs that can be called, in the order of the table: `zfs snapshot`.
pub fn names() -> impl Iterator<Item = &'static str> {
    VERBS.iter().filter(|row| row.run.is_some()).map(|row| row.name)
}

/// Runs the verb `name` in a session; its answer.
///
/// # Errors
/// [`CallError`]. Warnings stay in the session ([`Session::take_warnings`]).
pub fn call(session: &mut Session<'_>, name: &str, request: &Value) -> Result<Value, CallError> {
    let known = VERBS.iter().find(|row| row.name == name).and_then(|row| row.run);
    known.ok_or_else(|| CallError::NoVerb { name: name.to_owned() })?(session, request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Search;
    use serde_json::json;

    #[test]
    fn a_request_with_an_unknown_field_is_refused() {
        let mut session = Session::new(Search::default());
        let request = json!({ "name": "tank/a", "recursive": true, "dryrun": true });
        let Err(CallError::Request { name, problem }) = call(&mut session, "zfs destroy", &request) else {
            panic!("not refused");
        };
        assert_eq!((name, problem.as_str()), ("zfs destroy", "unknown field `dryrun`"));
        assert!(matches!(call(&mut session, "zfs destory", &request), Err(CallError::NoVerb { .. })));
        assert!(matches!(call(&mut session, "zfs version", &request), Err(CallError::NoVerb { .. })));
    }

    #[test]
    fn a_refusal_has_its_facts_its_reason_and_its_message() {
        let mut session = Session::new(Search::default());
        let request = json!({ "names": ["tank"] });
        let Err(CallError::Refused { refusal, message, .. }) = call(&mut session, "zfs snapshot", &request)
        else {
            panic!("not refused");
        };
        assert_eq!(refusal, json!({ "NotASnapshot": { "name": "tank" } }));
        assert_eq!(message, "missing '@' delimiter in snapshot name");
    }

    #[test]
    fn every_name_is_there_once() {
        let all: std::collections::BTreeSet<_> = names().collect();
        assert_eq!(all.len(), names().count());
        assert!(all.contains("zfs snapshot") && all.contains("zpool scrub") && !all.contains("zfs version"));
    }
}
