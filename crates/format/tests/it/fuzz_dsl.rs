//! Hostile input for the bonus structures of the dataset layer. See `fuzz.rs`.

use crate::support::{split, target};
use cenote_format::Endian;
use cenote_format::dsl::{
    BpobjPhys, BptreeEntry, BptreePhys, DatasetPhys, DeadlistPhys, DirPhys, RedactionListPhys,
};

/// The option bits select the structure.
#[test]
fn dsl_bonuses() {
    bolero::check!(name = "dsl_bonuses").for_each(target("dsl_bonuses").checked(|input| {
        let (which, order, bytes) = split(input);
        // Encodes a decoded value and decodes it again.
        macro_rules! there_and_back {
            ($kind:ident, $encode:expr) => {{
                let Ok(decoded) = $kind::decode(bytes, order) else { return false };
                let encoded: Vec<u8> = $encode(&decoded);
                assert_eq!($kind::decode(&encoded, order), Ok(decoded));
                true
            }};
        }
        match which % 8 {
            0 => {
                let Ok(dir) = DirPhys::decode(bytes, order) else { return false };
                let (_, mut written) = (dir.has_breakdown(), bytes.to_vec());
                dir.encode_into(&mut written);
                assert_eq!(DirPhys::decode(&written, Endian::Little), Ok(dir));
                written[152..] == bytes[152..]
            }
            1 => {
                let Ok(dataset) = DatasetPhys::decode(bytes, order) else { return false };
                let (_, mut written) = (dataset.is_snapshot(), bytes.to_vec());
                dataset.encode_into(&mut written);
                assert_eq!(DatasetPhys::decode(&written, Endian::Little), Ok(dataset));
                written[280..] == bytes[280..]
            }
            2 => there_and_back!(BpobjPhys, |phys: &BpobjPhys| phys.encode(order, 56)),
            3 => there_and_back!(DeadlistPhys, |phys: &DeadlistPhys| phys.encode(order)),
            4 => there_and_back!(BptreePhys, |phys: &BptreePhys| phys.encode(order)),
            5 => {
                let list = RedactionListPhys::decode(bytes, order);
                list.is_ok_and(|list| {
                    let encoded = list.encode(order);
                    assert_eq!(RedactionListPhys::decode(&encoded, order).as_ref(), Ok(&list));
                    list.snapshots.len() <= bytes.len() / 8
                })
            }
            _ => there_and_back!(BptreeEntry, |entry: &BptreeEntry| entry.encode(order)),
        }
    }));
}
