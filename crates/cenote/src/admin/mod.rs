//! One function per verb of the commands: each takes an open pool and returns plain data.
