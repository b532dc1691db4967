//! The streams in `fixtures/streams`.

use cenote_stream::{Frame, Reader, ResumeToken, Writer};
use format::Endian;

/// All records of a stream, and its byte order.
pub(crate) fn read(bytes: &[u8]) -> (Vec<Frame>, Endian) {
    let mut reader = Reader::new(bytes);
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_frame().expect("readable") {
        frames.push(frame);
    }
    assert_eq!(reader.position(), bytes.len() as u64);
    (frames, reader.order())
}

/// The bytes of a stream with these records.
pub(crate) fn write(frames: &[Frame], order: Endian) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    frames.iter().for_each(|frame| writer.write(frame, order).expect("written"));
    writer.finish().expect("finished");
    bytes
}

#[test]
fn what_is_read_and_written_again_is_the_same() {
    let names = testkit::stream_names();
    assert_eq!(names.len(), 44);
    for name in names {
        let bytes = testkit::stream(&name);
        if name == "resume-part" {
            // Cut within a record.
            continue;
        }
        let (frames, order) = read(&bytes);
        assert!(frames.len() > 2, "{name}");
        assert!(write(&frames, order) == bytes, "{name}");
    }
}

#[test]
fn the_token_of_openzfs_is_read() {
    let text = std::fs::read_to_string(testkit::streams_root().join("resume-token.txt")).expect("there");
    let token = ResumeToken::parse(text.trim()).expect("a token");
    let list = &token.list;
    assert_eq!(
        ["object", "offset", "bytes"].map(|key| list.u64(key)),
        [Some(16), Some(0x2_0000), Some(0x8_c700)]
    );
    assert_eq!((list.u64("toguid"), list.str("toname")), (Some(0x3f4c_985e_d9b0_a111), Some("src/fs@c")));
    assert_eq!(ResumeToken::parse(&token.to_string()), Ok(token));
}
