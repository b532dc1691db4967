//! Which pools there are among some devices.
