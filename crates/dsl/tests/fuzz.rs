//! Whatever a user or a stream gives as a name, a key or a token: an answer or an error, never a
//! panic.

use cenote_dsl::keys::{KeyFormat, KeyLocation};
use cenote_dsl::name::{NAME_LIMIT, Name, Tail};
use cenote_dsl::resume;

#[test]
fn names() {
    bolero::check!().with_type::<String>().for_each(|text| {
        if let Ok(name) = Name::parse(text) {
            assert!(text.len() < NAME_LIMIT);
            let whole = match name.tail {
                Tail::None => name.dir.to_owned(),
                Tail::Snapshot(snapshot) => format!("{}@{snapshot}", name.dir),
                Tail::Bookmark(mark) => format!("{}#{mark}", name.dir),
            };
            assert_eq!(&whole, text);
            assert!(name.dir.split('/').all(|c| !c.is_empty() && c != "." && c != ".."));
        }
    });
}

#[test]
fn tokens() {
    bolero::check!().with_type::<(String, Vec<u8>)>().for_each(|(text, bytes)| {
        let _ = resume::decode(text);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let _ = resume::decode(&format!("1-0-ff-{hex}"));
        let _ = resume::decode(&format!("1-0-ffffffffffffffff-{hex}"));
    });
}

#[test]
fn key_material() {
    bolero::check!().with_type::<(u8, Vec<u8>)>().for_each(|(kind, bytes)| {
        // One round: the point is what is accepted, not how long it takes.
        let format = [KeyFormat::Raw, KeyFormat::Hex, KeyFormat::Passphrase][usize::from(kind % 3)];
        let accepted = format.wrapping_key(bytes, 1, 1).is_ok();
        let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        match format {
            KeyFormat::Raw => assert_eq!(accepted, bytes.len() == 32),
            KeyFormat::Hex => assert!(!accepted || line.len() == 64),
            KeyFormat::Passphrase => assert_eq!(accepted, (8..=512).contains(&line.len())),
        }
        let _ = KeyLocation::parse(&String::from_utf8_lossy(bytes));
    });
}
