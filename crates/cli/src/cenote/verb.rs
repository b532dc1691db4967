//! `cenote verb`: one verb, with its request and its answer as JSON.

use super::Outcome;
use crate::console::{self, Stream};
use admin::Session;
use admin::verbs::by_name::{self, CallError};
use serde_json::{Value, json};

/// Exit code of a name that is no verb, and of a request that its verb does not understand.
const USAGE: u8 = 2;

/// Run a verb of zfs or zpool with a request and an answer in JSON
///
/// `cenote verb 'zfs snapshot' '{"names":["tank/home@monday"]}'` does what `zfs snapshot` does, and prints an object:
/// `answer`, or `refusal` (the facts), `reason` (a code that all verbs share, names, a message) and `message` (what the
/// command says), and `warnings`. A field that is left out has its default; an unknown one is an error. Without a
/// name, the names of all verbs are printed.
///
/// Exit status: 0 done, 1 refused, 2 no such verb or not a request.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Name of the verb, as typed: `zfs snapshot`
    name: Option<String>,
    /// The request
    #[arg(default_value = "{}")]
    request: String,
}

pub(super) fn run(args: &Args) -> Outcome {
    let Some(name) = &args.name else {
        let names: String = by_name::names().map(|name| format!("{name}\n")).collect();
        console::write(Stream::Out, names.as_bytes())?;
        return Ok(0);
    };
    let request: Value = match serde_json::from_str(&args.request) {
        Ok(request) => request,
        Err(error) => {
            super::complain(format!("not a request: {error}"));
            return Ok(USAGE);
        }
    };
    let line = format!("cenote verb '{name}' {request}");
    let mut session = Session::of_command(crate::search::from_env(), line);
    let input = console::input();
    if !input.is_terminal() {
        // The stream of `zfs receive`; other verbs do not read it.
        session.set_input(input);
    }
    let called = by_name::call(&mut session, name, &request);
    let warnings = session.take_warnings();
    let closed = session.end(matches!(called, Ok(_) | Err(CallError::Answer { .. })));
    let mut printed = match &called {
        Ok(answer) => json!({ "answer": answer }),
        Err(CallError::Refused { refusal, reason, message }) => {
            json!({ "refusal": refusal, "reason": reason, "message": message })
        }
        Err(error) => {
            super::complain(error.to_string());
            return Ok(if let CallError::Answer { .. } = error { 1 } else { USAGE });
        }
    };
    if let Some(printed) = printed.as_object_mut() {
        printed.insert("warnings".to_owned(), json!(warnings));
    }
    console::write(Stream::Out, format!("{printed}\n").as_bytes())?;
    if let Err(errors) = &closed {
        errors.iter().for_each(|error| super::complain(error.to_string()));
    }
    Ok(u8::from(called.is_err() || closed.is_err()))
}
