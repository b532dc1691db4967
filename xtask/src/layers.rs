//! The layers of the project: each crate may use only the listed crates.
//!
//! The table is that of ARCHITECTURE.md. Cargo refuses cycles; this task refuses dependencies that form no
//! cycle, but by which a lower layer depends on an upper one, or a layer skips its neighbour.

use serde_json::Value;

use crate::{Outcome, cargo};

/// The crates, top to bottom, each with the crates that it may use. Tests may use all crates above.
const HOUSE: [(&str, &[&str]); 16] = [
    ("cenote-format", &[]),
    ("cenote-codec", &["cenote-format"]),
    ("cenote-vdev", &["cenote-format", "cenote-codec"]),
    ("cenote-zio", &["cenote-format", "cenote-codec", "cenote-vdev"]),
    ("cenote-dmu", &["cenote-format", "cenote-codec", "cenote-zio"]),
    ("cenote-dsl", &["cenote-format", "cenote-codec", "cenote-zio", "cenote-dmu"]),
    (
        "cenote-pool",
        &["cenote-format", "cenote-codec", "cenote-vdev", "cenote-zio", "cenote-dmu", "cenote-dsl"],
    ),
    ("cenote-zpl", &["cenote-format", "cenote-codec", "cenote-dmu", "cenote-dsl"]),
    ("cenote-stream", &["cenote-format", "cenote-codec", "cenote-dmu", "cenote-dsl"]),
    (
        "cenote",
        &[
            "cenote-format",
            "cenote-codec",
            "cenote-vdev",
            "cenote-zio",
            "cenote-dmu",
            "cenote-dsl",
            "cenote-pool",
            "cenote-zpl",
            "cenote-stream",
        ],
    ),
    (
        "cenote-admin",
        &[
            "cenote-format",
            "cenote-codec",
            "cenote-vdev",
            "cenote-zio",
            "cenote-dmu",
            "cenote-dsl",
            "cenote-pool",
            "cenote-zpl",
            "cenote-stream",
            "cenote",
        ],
    ),
    ("cenote-serve", &["cenote-format", "cenote", "cenote-admin"]),
    ("cenote-cli", &["cenote-format", "cenote", "cenote-admin", "cenote-serve"]),
    // The test kit and these tasks use no other crate of the project.
    ("cenote-testkit", &[]),
    // Test tools for the whole project; no crate uses them.
    ("cenote-crash", WHOLE_HOUSE),
    ("cenote-interop", WHOLE_HOUSE),
];

/// The crates that test tools for the whole project may use.
const WHOLE_HOUSE: &[&str] = &[
    "cenote-format",
    "cenote-vdev",
    "cenote-zio",
    "cenote-dmu",
    "cenote-dsl",
    "cenote-pool",
    "cenote-zpl",
    "cenote",
    "cenote-admin",
    "cenote-testkit",
];

/// Programs that use the whole project from outside. No crate may use them.
const BESIDE: [&str; 8] = [
    "xtask",
    "cenote-conformance",
    "cenote-crash",
    "cenote-interop",
    "cenote-bench",
    "cenote-heap",
    "cenote-pool-mutate",
    "cenote-stress",
];

/// `cargo xtask layers`.
pub(crate) fn run() -> Outcome {
    let output = cargo(&["metadata", "--format-version", "1", "--no-deps", "--offline"]).output();
    let output = output.map_err(|error| format!("cargo metadata: {error}"))?;
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    if packages.is_empty() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let wrong: Vec<String> = packages.iter().flat_map(wrong_arrows).collect();
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("the house is out of order:\n  {}", wrong.join("\n  ")))
    }
}

/// The dependencies of one package that are not in the table.
fn wrong_arrows(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    if BESIDE.contains(&name) {
        return Vec::new();
    }
    let Some(place) = HOUSE.iter().position(|(house, _)| *house == name) else {
        return vec![format!("{name} has no place in the house (xtask/src/layers.rs, ARCHITECTURE.md)")];
    };
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    dependencies.filter_map(|dependency| wrong_arrow(place, dependency)).collect()
}

fn wrong_arrow(place: usize, dependency: &Value) -> Option<String> {
    let (name, allowed) = HOUSE[place];
    let used = dependency["name"].as_str().unwrap_or_default();
    let used_place = HOUSE.iter().position(|(house, _)| *house == used)?;
    let in_tests = dependency["kind"].as_str() == Some("dev");
    let fine = match in_tests {
        true => used == "cenote-testkit" || used_place < place,
        false => allowed.contains(&used),
    };
    let where_from = if in_tests { "the tests of " } else { "" };
    (!fine).then(|| format!("{where_from}{name} may not use {used}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_house_is_in_order() {
        assert_eq!(run(), Ok(()));
    }

    #[test]
    fn arrows_upwards_and_past_a_neighbour_are_found() {
        let dmu = json!({ "name": "cenote-dmu", "dependencies": [
            { "name": "cenote-vdev", "kind": null },
            { "name": "cenote-vdev", "kind": "dev" },
            { "name": "cenote-testkit", "kind": "dev" },
            { "name": "cenote-pool", "kind": "dev" },
            { "name": "cenote-testkit", "kind": null },
            { "name": "cenote-zio", "kind": null },
            { "name": "serde", "kind": null },
        ]});
        assert_eq!(
            wrong_arrows(&dmu),
            [
                "cenote-dmu may not use cenote-vdev",
                "the tests of cenote-dmu may not use cenote-pool",
                "cenote-dmu may not use cenote-testkit",
            ]
        );
        assert_eq!(wrong_arrows(&json!({ "name": "cenote-utils", "dependencies": [] })).len(), 1);
    }

    #[test]
    fn the_table_itself_points_up_only() {
        for (place, (name, allowed)) in HOUSE.iter().enumerate() {
            for used in *allowed {
                let above = HOUSE[..place].iter().any(|(house, _)| house == used);
                assert!(above, "{name} uses {used}");
            }
        }
    }
}
