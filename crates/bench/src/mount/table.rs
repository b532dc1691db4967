//! Results for people and for programs.

use super::meter::Row;
use serde_json::{Value, json};

/// One measurement, as soon as it is made.
pub(super) fn line(row: &Row) {
    let [wall, client, server] = [row.wall, row.client, row.server].map(|time| row.each(time));
    let each = |bytes: u64| bytes as f64 / 1024.0 / row.count.max(1) as f64;
    let device = row.device.map_or(String::new(), |(read, written)| {
        format!("  {:>8.2} KiB read  {:>8.2} written", each(read), each(written))
    });
    let latency = row.latency.map_or(String::new(), |(middle, slow)| {
        format!("  p50 {:.0} us, p99 {:.0}", middle.as_secs_f64() * 1e6, slow.as_secs_f64() * 1e6)
    });
    println!(
        "{:<13}{:<32}{:>9.0}/s {wall:>8.1} us  CPU {client:>7.1} + {server:>7.1}{device}{latency}",
        row.system,
        row.what,
        row.rate()
    );
}

/// All of them: a line a workload, a column a system; rates, and below them microseconds of processors.
pub(super) fn print(rows: &[Row]) {
    let mut systems: Vec<&str> = Vec::new();
    let mut loads: Vec<&str> = Vec::new();
    for row in rows {
        if !systems.contains(&row.system) {
            systems.push(row.system);
        }
        if !loads.contains(&row.what.as_str()) {
            loads.push(&row.what);
        }
    }
    let of = |load: &str, system: &str| rows.iter().find(|row| row.what == load && row.system == system);
    let titles = [("operations a second", 0), ("CPU microseconds for each, client and server", 1)];
    for (title, which) in titles {
        println!("\n{title}");
        print!("{:<32}", "");
        systems.iter().for_each(|system| print!("{system:>13}"));
        println!();
        for load in &loads {
            print!("{load:<32}");
            for system in &systems {
                match of(load, system) {
                    Some(row) if which == 0 => print!("{:>13.0}", row.rate()),
                    Some(row) => print!("{:>13.1}", row.each(row.client + row.server)),
                    None => print!("{:>13}", "-"),
                }
            }
            println!();
        }
    }
}

/// For programs.
pub(super) fn json(rows: &[Row]) -> Value {
    let of = |row: &Row| {
        json!({
            "system": row.system,
            "workload": row.what,
            "operations": row.count,
            "seconds": row.wall.as_secs_f64(),
            "client_cpu_us": row.each(row.client),
            "server_cpu_us": row.each(row.server),
            "device_bytes_read": row.device.map(|(read, _)| read),
            "device_bytes_written": row.device.map(|(_, written)| written),
            "p50_us": row.latency.map(|(middle, _)| middle.as_secs_f64() * 1e6),
            "p99_us": row.latency.map(|(_, slow)| slow.as_secs_f64() * 1e6),
        })
    };
    Value::Array(rows.iter().map(of).collect())
}
