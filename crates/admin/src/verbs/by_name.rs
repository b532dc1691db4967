//! Verbs by name, with requests, answers and refusals as JSON: for callers in other processes and other languages.
//!
//! # What always holds
//! - A request with a field that its verb does not have is refused before anything is done: a misspelt `dry_run` must
//!   not become a request that changes something.
//! - The right of the verb is asked for as of any other caller ([`Session::run`]).

use super::right::VERBS;
use super::{Reason, Refused, Verb};
use crate::Session;
use serde_json::Value;

/// Runs one verb with a request in JSON.
pub(super) type Runner = fn(&mut Session<'_>, &Value) -> Result<Value, CallError>;

/// Why a call by name has no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CallError {
    /// There is no verb of this name.
    #[error("no verb '{name}'")]
    NoVerb {
        /// The name.
        name: String,
    },
    /// The request is not one of this verb.
    #[error("{name}: not a request: {problem}")]
    Request {
        /// Name of the verb.
        name: &'static str,
        /// What is wrong with it, and where.
        problem: String,
    },
    /// The verb refused it, or stopped half-way.
    #[error("{message}")]
    Refused {
        /// The verb's refusal, with its facts.
        refusal: Value,
        /// The reason behind it, alike for all verbs.
        reason: Reason,
        /// What the command says.
        message: String,
    },
}

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

/// Runs the verb of one request type.
pub(super) fn run_as<V: Verb>(session: &mut Session<'_>, request: &Value) -> Result<Value, CallError> {
    let bad = |problem: String| CallError::Request { name: V::NAME, problem };
    let parsed: V = serde_json::from_value(request.clone()).map_err(|error| bad(error.to_string()))?;
    let whole = serde_json::to_value(&parsed).map_err(|error| bad(error.to_string()))?;
    if let Some(field) = unknown_field(request, &whole) {
        return Err(bad(format!("unknown field `{field}`")));
    }
    let answer = session.run(&parsed).map_err(|refusal| CallError::Refused {
        reason: refusal.reason(),
        message: refusal.to_string(),
        refusal: serde_json::to_value(&refusal).unwrap_or_default(),
    })?;
    serde_json::to_value(&answer).map_err(|error| bad(error.to_string()))
}

/// The first field of `given` that `understood`, the same value after decoding, does not have.
fn unknown_field(given: &Value, understood: &Value) -> Option<String> {
    match (given, understood) {
        (Value::Object(given), Value::Object(understood)) => {
            given.iter().find_map(|(name, value)| match understood.get(name) {
                None => Some(name.clone()),
                Some(known) => unknown_field(value, known),
            })
        }
        (Value::Array(given), Value::Array(understood)) => {
            given.iter().zip(understood).find_map(|(given, understood)| unknown_field(given, understood))
        }
        _ => None,
    }
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
