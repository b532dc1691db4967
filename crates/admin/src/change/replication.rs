//! Compares the redundancy of new vdevs with each other and with that of the pool's vdevs.
//!
//! Log devices are not compared, because their contents are soon on other devices too. Each vdev is compared with
//! its predecessor, so a list of vdevs may give several messages.

use super::pool_layout::{LayoutClass, LayoutKind, LayoutTop, PoolLayout};
use format::config::{VdevKind, VdevNode};

/// Maximum difference in bytes of the devices in a vdev; disks of the same nominal size differ.
const FUZZ: u64 = 16 << 20;

/// The properties of a vdev that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    /// Type: `file`, `disk`, `mirror`, `raidz` or `draid`.
    kind: &'static str,
    /// Number of devices.
    width: usize,
    /// Number of devices that may fail.
    redundancy: u64,
}

impl Shape {
    fn is_parity(self) -> bool {
        matches!(self.kind, "raidz" | "draid")
    }

    fn is_redundant(self) -> bool {
        self.is_parity() || self.kind == "mirror"
    }

    fn of_layout(top: &LayoutTop) -> Shape {
        let width = top.leaves.len();
        match top.kind {
            LayoutKind::Single => {
                let kind = top.leaves.first().map_or("file", |leaf| leaf.kind_word());
                Shape { kind, width, redundancy: 0 }
            }
            LayoutKind::Mirror => Shape { kind: "mirror", width, redundancy: width as u64 - 1 },
            LayoutKind::Raidz(parity) => Shape { kind: "raidz", width, redundancy: u64::from(parity) },
        }
    }

    /// The shape of a pool's vdev. `None`: it is not compared.
    fn of_node(node: &VdevNode) -> Option<Shape> {
        let width = node.children.len();
        let parity = u64::from(node.nparity);
        let shape = |kind, width, redundancy| Some(Shape { kind, width, redundancy });
        match node.kind {
            _ if node.is_log => None,
            VdevKind::File => shape("file", 1, 0),
            VdevKind::Disk => shape("disk", 1, 0),
            VdevKind::Mirror => shape("mirror", width, (width as u64).saturating_sub(1)),
            VdevKind::Raidz => shape("raidz", width, parity),
            VdevKind::Draid => shape("draid", width, parity),
            // A vdev that is being replaced has the shape of its replacement.
            VdevKind::Replacing | VdevKind::Spare => node.children.last().and_then(Shape::of_node),
            _ => None,
        }
    }
}

/// Compares two new vdevs.
fn between(a: Shape, b: Shape) -> Option<String> {
    let text = if a.is_redundant() && b.is_redundant() && (a.is_parity() || b.is_parity()) {
        if a.redundancy == b.redundancy {
            return None;
        }
        match (a.is_parity(), b.is_parity()) {
            (true, true) => format!(
                "{} and {} vdevs with different redundancy, {} vs. {} are present",
                a.kind, b.kind, a.redundancy, b.redundancy
            ),
            (true, false) => unequal(a, b),
            _ => unequal(b, a),
        }
    } else if a.kind != b.kind {
        format!("both {} and {} vdevs are present", a.kind, b.kind)
    } else if a.width != b.width {
        format!("both {}-way and {}-way {} vdevs are present", a.width, b.width, a.kind)
    } else {
        return None;
    };
    Some(format!("mismatched replication level: {text}"))
}

/// Message for a raidz and a mirror of different redundancy.
fn unequal(parity: Shape, mirror: Shape) -> String {
    format!(
        "{} and {} vdevs with different redundancy, {} vs. {} ({}-way) are present",
        parity.kind, mirror.kind, parity.redundancy, mirror.redundancy, mirror.width
    )
}

/// Compares a vdev of the pool with a new one.
fn against(pool: Shape, new: Shape) -> Option<String> {
    let (mixed, parity, mirror) = match (pool.kind, new.kind) {
        ("mirror", _) if new.is_parity() => (true, new, pool),
        (_, "mirror") if pool.is_parity() => (true, pool, new),
        _ => (false, pool, new),
    };
    let text = if mixed {
        if parity.redundancy == mirror.redundancy {
            return None;
        }
        format!(
            "pool and new vdev with different redundancy, {} and {} vdevs, {} vs. {} ({}-way)",
            parity.kind, mirror.kind, parity.redundancy, mirror.redundancy, mirror.width
        )
    } else if pool.kind != new.kind {
        format!("pool uses {} and new vdev is {}", pool.kind, new.kind)
    } else if pool.is_parity() && pool.redundancy != new.redundancy {
        format!("pool uses {} device parity and new vdev uses {}", pool.redundancy, new.redundancy)
    } else if pool.width != new.width {
        format!("pool uses {}-way {} and new vdev uses {}-way {}", pool.width, pool.kind, new.width, new.kind)
    } else {
        return None;
    };
    Some(format!("mismatched replication level: {text}"))
}

/// Differences between the devices of one vdev.
fn inside(top: &LayoutTop) -> Vec<String> {
    let word = match top.kind {
        LayoutKind::Single => return Vec::new(),
        LayoutKind::Mirror => "mirror",
        LayoutKind::Raidz(_) => "raidz",
    };
    let mut lines = Vec::new();
    let mut pairs = top.leaves.windows(2);
    if pairs.any(|pair| pair[0].is_disk != pair[1].is_disk) {
        lines.push(format!("mismatched replication level: {word} contains both files and devices"));
        return lines;
    }
    // As in OpenZFS, each device is compared with its predecessor.
    let sizes: Vec<u64> = top.leaves.iter().map(|leaf| leaf.size).filter(|size| *size > 0).collect();
    if sizes.windows(2).any(|pair| pair[0].abs_diff(pair[1]) > FUZZ) {
        lines.push(format!("{word} contains devices of different sizes"));
    }
    lines
}

/// The differences of new vdevs, as lines of a message. `pool`: the vdev tree of an existing pool, to compare with.
pub(super) fn mismatches(layout: &PoolLayout, pool: Option<&VdevNode>) -> Vec<String> {
    let counted: Vec<&LayoutTop> = layout.tops.iter().filter(|top| top.class != LayoutClass::Log).collect();
    let mut lines = Vec::new();
    let mut before: Option<Shape> = None;
    let mut is_even = true;
    for top in counted {
        lines.extend(inside(top));
        let shape = Shape::of_layout(top);
        let mismatch = before.and_then(|before| between(before, shape));
        is_even &= mismatch.is_none();
        lines.extend(mismatch);
        before = Some(shape);
    }
    // New vdevs that differ from each other are not compared with the pool.
    if let (Some(pool), Some(new), true) = (pool, before, is_even && lines.is_empty()) {
        lines.extend(of_pool(pool).and_then(|pool| against(pool, new)));
    }
    lines
}

/// The common shape of the pool's vdevs. `None`: they differ.
fn of_pool(root: &VdevNode) -> Option<Shape> {
    let shapes: Vec<Shape> = root.children.iter().filter_map(Shape::of_node).collect();
    let agree = shapes.windows(2).all(|pair| between(pair[0], pair[1]).is_none());
    shapes.last().copied().filter(|_| agree)
}

#[cfg(test)]
mod tests {
    use super::super::pool_path::DeviceName;
    use super::*;
    use format::VdevGuid;

    /// `f` is a file of 128 MiB, `g` one of 200 MiB, `n` one a little smaller than `f`, `d` a disk.
    fn layout(words: &str) -> PoolLayout {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let mut find = |name: &str| {
            let size = match name {
                "g" => 200 << 20,
                "n" => (128 << 20) - 3_129_344,
                _ => 128 << 20,
            };
            Ok(DeviceName { is_disk: name == "d", ..DeviceName::file(name, size) })
        };
        PoolLayout::parse(&words, &mut find).expect("vdevs")
    }

    fn lines(words: &str) -> Vec<String> {
        let lines = mismatches(&layout(words), None);
        lines
            .iter()
            .map(|l| l.strip_prefix("mismatched replication level: ").unwrap_or(l).to_owned())
            .collect()
    }

    #[test]
    fn new_vdevs_that_differ() {
        for (words, expected) in [
            ("f f", &[][..]),
            ("mirror f f raidz f f f", &[]),
            ("raidz f f raidz f f f", &[]),
            ("raidz f f raidz f f mirror f f", &[]),
            ("mirror f n mirror f f", &[]),
            ("mirror f f log f", &[]),
            ("f log mirror f g", &[]),
            ("raidz1 f f f special mirror f f", &[]),
            ("raidz2 f f f special mirror f f f", &[]),
            ("mirror f f dedup dedup mirror f f", &[]),
            ("mirror f f mirror f f f", &["both 2-way and 3-way mirror vdevs are present"]),
            ("mirror f f f f mirror f f", &["both 4-way and 2-way mirror vdevs are present"]),
            (
                "raidz2 f f f mirror f f",
                &["raidz and mirror vdevs with different redundancy, 2 vs. 1 (2-way) are present"],
            ),
            (
                "mirror f f raidz2 f f f",
                &["raidz and mirror vdevs with different redundancy, 2 vs. 1 (2-way) are present"],
            ),
            (
                "raidz1 f f f mirror f f f",
                &["raidz and mirror vdevs with different redundancy, 1 vs. 2 (3-way) are present"],
            ),
            (
                "raidz3 f f f f f raidz1 f f f",
                &["raidz and raidz vdevs with different redundancy, 3 vs. 1 are present"],
            ),
            (
                "mirror f f g mirror f f",
                &[
                    "mirror contains devices of different sizes",
                    "both 3-way and 2-way mirror vdevs are present",
                ],
            ),
            ("raidz f f g", &["raidz contains devices of different sizes"]),
            ("mirror f d", &["mirror contains both files and devices"]),
            ("raidz f d f", &["raidz contains both files and devices"]),
            ("f d", &["both file and disk vdevs are present"]),
            (
                "d f mirror f f",
                &["both disk and file vdevs are present", "both file and mirror vdevs are present"],
            ),
            (
                "f mirror f d",
                &["mirror contains both files and devices", "both file and mirror vdevs are present"],
            ),
            ("mirror f f special f special f", &["both mirror and file vdevs are present"]),
            ("f special mirror f f f", &["both file and mirror vdevs are present"]),
        ] {
            assert_eq!(lines(words), expected, "{words}");
        }
    }

    fn node(kind: VdevKind, width: usize, parity: u8) -> VdevNode {
        let mut node = VdevNode::new(kind, VdevGuid(1));
        node.nparity = parity;
        node.children = (0..width).map(|i| VdevNode::new(VdevKind::File, VdevGuid(2 + i as u64))).collect();
        node
    }

    fn pool(tops: Vec<VdevNode>) -> VdevNode {
        let mut root = VdevNode::new(VdevKind::Root, VdevGuid(9));
        root.children = tops;
        root
    }

    #[test]
    fn new_vdevs_unlike_those_of_the_pool() {
        let mirror = pool(vec![node(VdevKind::Mirror, 2, 0)]);
        let raidz = pool(vec![node(VdevKind::Raidz, 3, 1)]);
        let both = pool(vec![node(VdevKind::Mirror, 2, 0), node(VdevKind::Raidz, 3, 1)]);
        let file = pool(vec![node(VdevKind::File, 0, 0)]);
        let odd = pool(vec![node(VdevKind::Mirror, 2, 0), node(VdevKind::File, 0, 0)]);
        for (pool, words, expected) in [
            (&mirror, "f", Some("pool uses mirror and new vdev is file")),
            (&mirror, "d", Some("pool uses mirror and new vdev is disk")),
            (&mirror, "mirror f f f", Some("pool uses 2-way mirror and new vdev uses 3-way mirror")),
            (
                &mirror,
                "raidz2 f f f",
                Some("pool and new vdev with different redundancy, raidz and mirror vdevs, 2 vs. 1 (2-way)"),
            ),
            (&mirror, "raidz f f f", None),
            (&mirror, "mirror d d", None),
            (&mirror, "log f", None),
            (&mirror, "special mirror f f", None),
            (&mirror, "mirror f f mirror f f f", Some("both 2-way and 3-way mirror vdevs are present")),
            (&raidz, "f", Some("pool uses raidz and new vdev is file")),
            (&raidz, "raidz f f", Some("pool uses 3-way raidz and new vdev uses 2-way raidz")),
            (&raidz, "raidz2 f f f f", Some("pool uses 1 device parity and new vdev uses 2")),
            (&raidz, "mirror f f", None),
            (
                &raidz,
                "special mirror f f f",
                Some("pool and new vdev with different redundancy, raidz and mirror vdevs, 1 vs. 2 (3-way)"),
            ),
            (&both, "f", Some("pool uses raidz and new vdev is file")),
            (&file, "d", Some("pool uses file and new vdev is disk")),
            (&file, "mirror f f", Some("pool uses file and new vdev is mirror")),
            (&file, "raidz f f", Some("pool uses file and new vdev is raidz")),
            (&odd, "f", None),
            (&odd, "mirror f f f", None),
        ] {
            let lines = mismatches(&layout(words), Some(pool));
            let expected: Vec<String> =
                expected.iter().map(|text| format!("mismatched replication level: {text}")).collect();
            assert_eq!(lines, expected, "{words}");
        }
    }
}
