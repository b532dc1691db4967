//! A sample of cuts of pools in which most blocks are gangs. That is a parameter of the process, so it has no
//! other test.
#![allow(missing_docs)]

use cenote_crash::subject::Subject;
use cenote_crash::{Series, cut_everywhere};

#[test]
fn blocks_in_pieces_survive_a_power_cut() {
    let most = "metaslab_force_ganging=1024,metaslab_force_ganging_pct=100";
    admin::set_tunables(most).expect("parameters");
    for (seed, subject, one_in) in [
        (1, "single", 11),
        (2, "mirror+log", 23),
        (3, "raidz2", 41),
        (4, "threads:single", 17),
        (5, "all:mirror", 97),
    ] {
        let subject: Subject = subject.parse().expect("a subject");
        let series = Series { subject, seed, steps: 60, one_in, deep_one_in: 8, only: None, lying: false };
        let cuts = cut_everywhere(series).unwrap_or_else(|broken| panic!("{broken}")).cuts;
        assert!(cuts > 5, "{subject}: {cuts} cuts");
    }
}
