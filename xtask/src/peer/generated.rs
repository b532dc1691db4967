use super::Options; pub(super) fn run(_g: &std::path::Path, _p: &std::path::Path, _o: &Options) -> crate::Outcome { Ok(()) }
