//! Parses the output of `fio`.

use std::time::Duration;

/// Number of operations, duration, and median and 99th percentile of the latencies.
pub(crate) type FioResult = (u64, Duration, Option<(Duration, Duration)>);

/// The result of one side of a job (`randread`, `randwrite`…) in fio's JSON output.
pub(crate) fn result(text: &str, rw: &str) -> Option<FioResult> {
    let all: serde_json::Value = serde_json::from_str(text.get(text.find('{')?..)?).ok()?;
    let side = all.get("jobs")?.get(0)?.get(if rw.ends_with("read") { "read" } else { "write" })?;
    let wall = Duration::from_millis(side.get("runtime")?.as_u64()?);
    let percentile =
        |name: &str| side.get("clat_ns")?.get("percentile")?.get(name)?.as_u64().map(Duration::from_nanos);
    let latency = percentile("50.000000").zip(percentile("99.000000"));
    Some((side.get("total_ios")?.as_u64()?, wall, latency))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_fio_are_read() {
        let text = r#"note
            {"jobs": [{"read": {"total_ios": 7, "runtime": 2000, "clat_ns": {"percentile":
            {"50.000000": 1000, "99.000000": 9000}}}, "write": {}}]}"#;
        let (count, wall, latency) = result(text, "randread").expect("understood");
        assert_eq!((count, wall), (7, Duration::from_secs(2)));
        assert_eq!(latency, Some((Duration::from_micros(1), Duration::from_micros(9))));
        assert!(result(text, "randwrite").is_none() && result("", "randread").is_none());
    }
}
