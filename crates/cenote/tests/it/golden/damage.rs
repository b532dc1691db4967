//! Damaged pools: data that redundancy can restore is right to the last byte, and the faults are counted against
//! the devices; lost data is an error that names the file.

use super::compare::{Open, check_with, faults};
use cenote::inspect::{Check, blocks};

/// Reads every copy of all data, and expects errors of devices.
fn heals(name: &str) {
    let pool = check_with(name, &Open::default());
    blocks(&pool, Check::Everything, false).expect("counted");
    assert!(faults(&pool) > 0, "{name}: nobody noticed the damage");
}

#[test]
fn heal_mirror() {
    heals("heal-mirror");
}

#[test]
fn heal_raidz1() {
    heals("heal-raidz1");
}

#[test]
fn heal_raidz2() {
    heals("heal-raidz2");
}

#[test]
fn silent_disk() {
    heals("silent-disk");
}

/// One file cannot be read; all others can.
#[test]
fn lost_block() {
    heals("lost-block");
}

/// Mirrors and RAID-Z with as many missing disks as the redundancy allows, in every combination.
#[test]
fn any_disks_within_the_redundancy_may_be_missing() {
    let layouts: [(&str, usize, usize); 8] = [
        ("mirror", 2, 1),
        ("raidz1", 4, 1),
        ("raidz2", 5, 2),
        ("raidz3", 6, 3),
        ("ashift12", 3, 1),
        ("raidz-expanded", 4, 1),
        ("expanding", 5, 2),
        ("gangraidz-encrypted", 3, 1),
    ];
    let names = ["d0.", "d1.", "d2.", "d3.", "d4.", "d5."];
    for (fixture, disks, spare) in layouts {
        for set in 1_u32..1 << disks {
            if set.count_ones() as usize != spare {
                continue;
            }
            let without: Vec<&'static str> =
                (0..disks).filter(|i| set & (1 << i) != 0).filter_map(|i| names.get(i).copied()).collect();
            check_with(fixture, &Open { without, ..Open::default() });
        }
    }
}
