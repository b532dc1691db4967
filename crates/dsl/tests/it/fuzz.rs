//! Fuzz targets for names, keys and tokens that a user or a stream supplies: each gives a result or an error,
//! never a panic.

use cenote_dsl::delegation::{Scope, Who, parse_key};
use cenote_dsl::keys::{KeyFormat, KeyLocation};
use cenote_dsl::name::{NAME_LIMIT, Name, Tail};
use cenote_dsl::resume;
use testkit::fuzz::Target;

fn target(name: &str) -> Target {
    Target::new(env!("CARGO_MANIFEST_DIR"), name)
}

#[test]
fn names() {
    bolero::check!(name = "names").for_each(target("names").checked(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let Ok(name) = Name::parse(&text) else { return false };
        assert!(text.len() < NAME_LIMIT);
        let whole = match name.tail {
            Tail::None => name.dir.to_owned(),
            Tail::Snapshot(snapshot) => format!("{}@{snapshot}", name.dir),
            Tail::Bookmark(mark) => format!("{}#{mark}", name.dir),
        };
        assert_eq!(whole, text);
        assert!(name.dir.split('/').all(|part| !part.is_empty() && part != "." && part != ".."));
        true
    }));
}

/// Parses a token as it is, and the same payload with a correct checksum and length, so that the code behind
/// those checks is reached.
#[test]
fn tokens() {
    // A packed list has at most 1 MiB, and a small multiple of that when decoded.
    bolero::check!(name = "tokens").for_each(target("tokens").bound(8 << 20, 64).checked(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let mut is_deep = false;
        if let Ok(state) = resume::decode(&text) {
            let token = resume::encode(&state).unwrap();
            assert_eq!(resume::decode(&token).unwrap().encode_xdr(), state.encode_xdr());
            is_deep = true;
        }
        let payload = text.rsplit('-').next().unwrap_or_default();
        for len in ["b8", "100000", "ffffffffffffffff"] {
            is_deep |= resume::decode(&format!("1-{:x}-{len}-{payload}", sum(payload))).is_ok();
        }
        is_deep
    }));
}

/// Fletcher-4, first word, of the whole 32-bit words that hexadecimal digits write.
fn sum(hex: &str) -> u64 {
    let digits: Vec<u8> = hex.bytes().filter_map(|d| char::from(d).to_digit(16)).map(|d| d as u8).collect();
    let bytes: Vec<u8> = digits.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low).collect();
    bytes.as_chunks::<4>().0.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum()
}

/// A digit for the format, then the material; any other digit: the text of a location.
#[test]
fn key_material() {
    bolero::check!(name = "key_material").for_each(target("key_material").checked(|input| {
        let Some((kind, bytes)) = input.split_first() else { return false };
        let format = match kind % 4 {
            0 => KeyFormat::Raw,
            1 => KeyFormat::Hex,
            2 => KeyFormat::Passphrase,
            _ => return KeyLocation::parse(&String::from_utf8_lossy(bytes)).is_ok(),
        };
        // One iteration: the test is about which material is accepted, not about speed.
        let accepted = format.wrapping_key(bytes, 1, 1).is_ok();
        let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        match format {
            KeyFormat::Raw => assert_eq!(accepted, bytes.len() == 32),
            KeyFormat::Hex => {
                assert_eq!(accepted, line.len() == 64 && line.iter().all(u8::is_ascii_hexdigit))
            }
            KeyFormat::Passphrase => assert_eq!(accepted, (8..=512).contains(&line.len())),
        }
        accepted
    }));
}

#[test]
fn delegation_keys() {
    bolero::check!(name = "delegation_keys").for_each(target("delegation_keys").checked(|bytes| {
        let Some((who, scope, names_sets)) = parse_key(bytes) else { return false };
        let kind = match &who {
            Who::Set(_) => 's',
            Who::CreateTime => 'c',
            Who::User(_) => 'u',
            Who::Group(_) => 'g',
            Who::Everyone => 'e',
        };
        assert_eq!(bytes[0].to_ascii_lowercase(), kind as u8);
        assert_eq!(bytes[0].is_ascii_uppercase(), names_sets);
        assert_eq!(bytes[1] == b'-', scope == Scope::NotApplicable);
        true
    }));
}
