//! Settings of the kernel, from `/proc/sys`.

use crate::namespaces::netns::Netns;
use std::fs;
use std::io;
use std::path::PathBuf;

/// A setting by its dotted name, as `net.core.wmem_max`, its white space squeezed; `None` where
/// this kernel or namespace lacks it, or forbids reading it.
pub fn read(name: &str) -> Option<String> {
    let text = fs::read_to_string(path(name)).ok()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A setting that is one number.
pub fn number(name: &str) -> Option<u64> {
    read(name)?.parse().ok()
}

/// Writes a setting, until the next start of the machine. Errors: `PermissionDenied` without the
/// capability, `NotFound`, `InvalidInput` for a value that the kernel rejects.
pub fn write(name: &str, value: &str) -> io::Result<()> {
    fs::write(path(name), value)
}

/// As [`read`], of the network settings of a namespace.
pub fn read_in(netns: &Netns, name: &str) -> Option<String> {
    netns.run(|| read(name)).ok()?
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/sys/{}", name.replace('.', "/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_settings_present_in_every_kernel() {
        assert_eq!(read("kernel.ostype").as_deref(), Some("Linux"));
        assert!(number("fs.nr_open").is_some_and(|n| n > 0));
        assert!(read("net.ipv4.ip_local_port_range").is_some_and(|text| text.contains(' ')));
        assert_eq!(read("net.core.no_such_setting"), None);
    }

    #[test]
    fn a_setting_that_is_not_there_cannot_be_written() {
        assert!(write("net.core.no_such_setting", "1").is_err());
    }
}
