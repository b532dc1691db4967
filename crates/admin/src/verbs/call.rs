//! One verb as a function from JSON to JSON. `by_name` finds it in the table of `right`.
//!
//! # What always holds
//! - A request with a field that its verb does not have is refused before anything is done: a misspelt `dry_run` must
//!   not become a request that changes something.

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
    /// The verb has done its work, but its answer has no form in JSON: a path that is not UTF-8.
    #[error("{name}: done, but the answer cannot be told: {problem}")]
    Answer {
        /// Name of the verb.
        name: &'static str,
        /// What cannot be told.
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
    serde_json::to_value(&answer)
        .map_err(|error| CallError::Answer { name: V::NAME, problem: error.to_string() })
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
