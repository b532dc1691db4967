//! Parses any text as a target: no panic, and the parts form the text again.

use cenote::Target;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

#[test]
fn targets() {
    let target = testkit::fuzz::Target::new(env!("CARGO_MANIFEST_DIR"), "targets");
    bolero::check!(name = "targets").for_each(target.checked(|bytes| {
        let Some(target) = Target::parse(OsStr::from_bytes(bytes)) else { return false };
        assert!(!target.dataset.is_empty() && target.dataset.starts_with(target.pool()));
        assert!(target.path.as_ref().is_none_or(|path| path.starts_with(b"/")));
        // The parts form the text again.
        let whole = match &target.path {
            Some(path) => [target.dataset.as_bytes(), b":", path].concat(),
            None => target.dataset.clone().into_bytes(),
        };
        assert!(whole == bytes || whole == [bytes, b"/"].concat());
        true
    }));
}
