//! Hostile bytes in what the dataset layer stores in bonus areas. See `fuzz.rs`.

#[path = "fuzz/support.rs"]
mod support;

use cenote_format::dsl::{
    BpobjPhys, BptreeEntry, BptreePhys, DatasetPhys, DeadlistPhys, DirPhys, RedactionListPhys,
};
use support::{split, target};

/// The option bits say which structure it is.
#[test]
fn dsl_bonuses() {
    bolero::check!().for_each(target("dsl_bonuses").checked(|input| {
        let (which, order, bytes) = split(input);
        match which % 8 {
            0 => DirPhys::decode(bytes, order).map(|dir| dir.has_breakdown()).is_ok(),
            1 => DatasetPhys::decode(bytes, order).map(|dataset| dataset.is_snapshot()).is_ok(),
            2 => BpobjPhys::decode(bytes, order).is_ok(),
            3 => DeadlistPhys::decode(bytes, order).is_ok(),
            4 => BptreePhys::decode(bytes, order).is_ok() && BptreeEntry::decode(bytes, order).is_ok(),
            5 => {
                let list = RedactionListPhys::decode(bytes, order);
                list.is_ok_and(|list| list.snapshots.len() <= bytes.len() / 8)
            }
            _ => BptreeEntry::decode(bytes, order).is_ok(),
        }
    }));
}
