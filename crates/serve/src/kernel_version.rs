//! The version of the running kernel, for behaviour that is known of versions and cannot be queried.

/// The version of the running kernel: its first two numbers.
pub(crate) fn this_kernel() -> (u32, u32) {
    kernel_version(&rustix::system::uname().release().to_string_lossy())
}

fn kernel_version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_kernels_are_compared_as_numbers() {
        assert_eq!(kernel_version("6.18.44-fc-v669"), (6, 18));
        assert_eq!(kernel_version("7.1"), (7, 1));
        assert!(kernel_version("6.9.1") < (6, 10) && kernel_version("odd") < (6, 9));
    }
}
