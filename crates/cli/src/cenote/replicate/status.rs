//! `cenote replicate status` and `check`.

use super::args::{CheckArgs, StatusArgs};
use super::policies::{self, Checked, Known, NextRuns, NotRead, Scheduled};
use super::{Outcome, Sides, USAGE, complain, say, states};
use crate::console::{self, Stream};
use admin::replicate::policy::{Destroyed, Guard};
use admin::replicate::{Policy, State};
use format::nicenum::nicebytes;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A policy and what is known of it.
struct Row {
    name: String,
    policy: Policy,
    state: State,
    is_running: bool,
    lag: Option<u64>,
    next: Option<u64>,
}

impl Row {
    fn word(&self) -> &'static str {
        match () {
            () if self.is_running => "running",
            () if self.state.begun.is_none() => "new",
            () if self.state.begun > self.state.ended => "cut off",
            () if self.state.has_failed() => "failed",
            () => "ok",
        }
    }
}

/// Tells how the policies stand.
pub(super) fn run(args: &StatusArgs) -> Outcome {
    let known = match policies::all(args.policy_file.as_deref(), &Sides::new()?) {
        Ok(known) => known,
        // Nobody has asked for this file.
        Err(NotRead::Missing(_)) if args.policy_file.is_none() => Known::default(),
        Err(error) => {
            say(&error.to_string());
            return Ok(USAGE);
        }
    };
    let Known { policies: all, refused } = known;
    if let Some(missing) = args.names.iter().find(|name| !all.contains_key(*name)) {
        complain(format_args!("there is no policy '{missing}'"));
        return Ok(USAGE);
    }
    let (states, next, now) = (states(), NextRuns::now(), policies::now());
    let chosen = all.into_iter().filter(|(name, _)| args.names.is_empty() || args.names.contains(name));
    let rows: Vec<Row> = chosen
        .map(|(name, policy)| {
            let state = states.read(&name);
            let (is_running, lag, next) =
                (states.is_running(&name), state.lag(now), next.of(&Scheduled::of(&policy), &state));
            Row { name, policy, state, is_running, lag, next }
        })
        .collect();
    let text = match () {
        () if args.json => json_text(&rows, &refused),
        () if args.openmetrics => metrics(&rows),
        () if rows.is_empty() && refused.is_empty() => {
            let file = args.policy_file.clone().unwrap_or_else(policies::default_file);
            format!("there are no policies: {} has none or does not exist\n", file.display())
        }
        () => table(&rows),
    };
    console::write(Stream::Out, text.as_bytes())?;
    let is_refused = args.names.is_empty() && !refused.is_empty();
    if is_refused && !args.json {
        refused.iter().for_each(|(dataset, why)| say(&format!("{dataset}: {why}")));
    }
    let has_failed = rows.iter().any(|row| row.state.has_failed() && !row.is_running);
    Ok(u8::from(has_failed || is_refused))
}

fn time(seconds: Option<u64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), crate::time::creation_seconds)
}

/// A length of time for people: `3d`, `2h`, `40s`.
fn length(seconds: Option<u64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(s) if s >= 2 * 86_400 => format!("{}d", s / 86_400),
        Some(s) if s >= 2 * 3600 => format!("{}h", s / 3600),
        Some(s) if s >= 120 => format!("{}m", s / 60),
        Some(s) => format!("{s}s"),
    }
}

fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let Row { name, policy, state, lag, next, .. } = row;
        let _ = writeln!(text, "{name}: {}", row.word());
        let _ = writeln!(text, "  from          {}\n  to            {}", policy.from, policy.to);
        let _ = writeln!(text, "  lag           {}", length(*lag));
        let _ = writeln!(text, "  last success  {}", time(state.succeeded));
        let _ = writeln!(text, "  next run      {}", time(*next));
        let (last, all) = (nicebytes(state.bytes), nicebytes(state.bytes_total));
        let _ = writeln!(text, "  bytes         {last} in the last run, {all} in all; runs: {}", state.runs);
        let errors =
            state.datasets.iter().filter_map(|(name, known)| Some((name.as_str(), known.error.as_ref()?)));
        for (what, error) in state.error.iter().map(|error| ("all", error)).chain(errors) {
            let _ = writeln!(
                text,
                "  error         {}: {}",
                crate::out::visible(what),
                crate::out::visible(error)
            );
        }
    }
    text
}

fn json_text(rows: &[Row], refused: &BTreeMap<String, String>) -> String {
    let rows = rows.iter().map(|row| {
        let Row { name, policy, state, is_running, lag, next } = row;
        let value = json!({
            "state": row.word(), "running": is_running, "from": policy.from, "to": policy.to, "lag": lag,
            "next_run": next, "last_run": state,
        });
        (name.clone(), value)
    });
    let policies: serde_json::Map<String, serde_json::Value> = rows.collect();
    format!("{}\n", json!({ "policies": policies, "refused": refused }))
}

/// A value of one policy for OpenMetrics.
type Metric = (&'static str, &'static str, &'static str, fn(&Row) -> Option<u64>);

const METRICS: [Metric; 8] = [
    ("lag_seconds", "gauge", "Age of the oldest newest common snapshot", |row| row.lag),
    ("last_success_timestamp_seconds", "gauge", "End of the last run without failures", |row| {
        row.state.succeeded
    }),
    ("next_run_timestamp_seconds", "gauge", "When the policy runs next", |row| row.next),
    ("failed", "gauge", "1 if the last run has failed", |row| Some(u64::from(row.state.has_failed()))),
    ("running", "gauge", "1 while the policy runs", |row| Some(u64::from(row.is_running))),
    ("sent_bytes", "counter", "Bytes that all runs have sent", |row| Some(row.state.bytes_total)),
    ("runs", "counter", "Runs", |row| Some(row.state.runs)),
    ("failures", "counter", "Runs with failures", |row| Some(row.state.failures)),
];

fn metrics(rows: &[Row]) -> String {
    let mut text = String::new();
    for (name, kind, help, value) in METRICS {
        let _ =
            writeln!(text, "# TYPE cenote_replicate_{name} {kind}\n# HELP cenote_replicate_{name} {help}.");
        let suffix = if kind == "counter" { "_total" } else { "" };
        for row in rows {
            if let Some(value) = value(row) {
                let _ = writeln!(text, "cenote_replicate_{name}{suffix}{{policy=\"{}\"}} {value}", row.name);
            }
        }
    }
    text.push_str("# EOF\n");
    text
}

/// Reads the policies and explains them.
pub(super) fn check(args: &CheckArgs) -> Outcome {
    let Known { policies: all, refused } = match policies::all(args.policy_file.as_deref(), &Sides::new()?) {
        Ok(known) => known,
        Err(error) => {
            say(&error.to_string());
            return Ok(USAGE);
        }
    };
    if args.json {
        let policies = all.iter().map(|(name, policy)| (name.clone(), Scheduled::of(policy))).collect();
        let text = serde_json::to_string(&Checked { policies, refused }).unwrap_or_default();
        console::write(Stream::Out, format!("{text}\n").as_bytes())?;
        return Ok(0);
    }
    let text: String = all.iter().map(|(name, policy)| explained(name, policy)).collect();
    console::write(Stream::Out, text.as_bytes())?;
    refused.iter().for_each(|(dataset, why)| say(&format!("{dataset}: {why}")));
    Ok(if refused.is_empty() { 0 } else { USAGE })
}

fn explained(name: &str, policy: &Policy) -> String {
    let mut text = format!("{name}:\n");
    let mut line = |line: String| {
        let _ = writeln!(text, "  {line}");
    };
    let below = if policy.recursive { ", with all below it" } else { "" };
    line(format!("copies {} to {}{below}", policy.from, policy.to));
    if policy.within.is_some() {
        line("is described by properties of the source".to_owned());
    }
    if !policy.exclude.is_empty() {
        line(format!("but not {}", policy.exclude.join(", ")));
    }
    line(match (policy.every, &policy.cron) {
        (Some(every), _) => format!("the daemon runs it every {}", length(Some(every))),
        (None, Some(cron)) => format!("the daemon runs it at {cron}"),
        (None, None) => "runs when it is told to".to_owned(),
    });
    policy.window.iter().for_each(|window| line(format!("a run begins between the hours of {window}")));
    let others =
        if policy.also.is_empty() { String::new() } else { format!(", and {}", policy.also.join(", ")) };
    match policy.snapshot {
        true => line(format!("takes and sends snapshots cenote_{name}_TIME{others}")),
        false => line(format!("takes no snapshots; sends those that it took{others}")),
    }
    line(format!("keeps at the source: {}; at the target: {}", policy.keep_source, policy.keep_target));
    line(
        match policy.guard {
            Guard::Bookmark => {
                "marks the newest common snapshot by a bookmark at the source, and holds it at the target"
            }
            Guard::Hold => "holds the newest common snapshot at both sides",
        }
        .to_owned(),
    );
    if policy.force {
        line("gives up what was changed at the target".to_owned());
    }
    if policy.adopt {
        line("receives into datasets that it did not make".to_owned());
    }
    if policy.destroyed == Destroyed::Destroy {
        line("destroys copies whose source is gone".to_owned());
    }
    policy.rate.iter().for_each(|rate| line(format!("sends at most {}/s", nicebytes(*rate))));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let place = |text: &str| text.parse().expect("a place");
        let state = State { begun: Some(5), ended: Some(6), succeeded: Some(6), runs: 1, ..State::default() };
        let policy = Policy::new(place("tank/a"), place("vault/a"));
        Row { name: "home".into(), policy, state, is_running: false, lag: Some(7200), next: None }
    }

    #[test]
    fn metrics_have_one_line_for_each_policy_and_an_end() {
        let text = metrics(&[row()]);
        assert!(text.contains("\ncenote_replicate_lag_seconds{policy=\"home\"} 7200\n"), "{text}");
        assert!(text.contains("\ncenote_replicate_runs_total{policy=\"home\"} 1\n"), "{text}");
        assert!(text.ends_with("# EOF\n") && !text.contains("next_run_timestamp_seconds{"), "{text}");
    }

    #[test]
    fn states_are_told_in_words() {
        assert_eq!((row().word(), length(Some(7200)), length(None)), ("ok", "2h".into(), "-".into()));
        let mut cut = row();
        cut.state.begun = Some(9);
        assert_eq!(cut.word(), "cut off");
        let value: serde_json::Value =
            serde_json::from_str(&json_text(&[row()], &BTreeMap::new())).expect("JSON");
        assert_eq!(value["policies"]["home"]["lag"], 7200);
    }
}
