//! Where a device is in the host, from sysfs.

use std::fs;
use std::path::Path;

use crate::output::counted;
use serde::Serialize;

/// The directory of RDMA devices in sysfs.
pub(super) const CLASS: &str = "/sys/class/infiniband";

/// Where a device is. What sysfs does not show is `None`: Soft-RoCE and siw have no PCI device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Place {
    /// PCI address, such as `0000:81:00.0`.
    pub(super) pci_address: Option<String>,
    /// PCI Express lanes in use, and those of the device.
    pub(super) pci_lanes: Option<[u32; 2]>,
    /// PCI Express speed in use, and that of the device, as sysfs has it.
    pub(super) pci_speed: Option<[String; 2]>,
    /// NUMA node; none if the host does not state it.
    pub(super) numa_node: Option<u32>,
    /// CPUs of that node, as a list with ranges.
    pub(super) local_cpus: Option<String>,
    /// Network interfaces of the device.
    pub(super) interfaces: Vec<String>,
}

/// Returns the first line of a file.
fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next().unwrap_or_default().trim();
    (!line.is_empty()).then(|| line.to_owned())
}

impl Place {
    /// Reads the place of a device below `class`.
    pub(super) fn read(class: &Path, device: &str) -> Self {
        let at = class.join(device).join("device");
        let both = |name: &str| {
            let now = line(&at.join(format!("current_link_{name}")))?;
            Some([now, line(&at.join(format!("max_link_{name}")))?])
        };
        let target = fs::canonicalize(&at).ok();
        let pci_address = target.and_then(|path| {
            let name = path.file_name()?.to_str()?.to_owned();
            // Domain, bus, device and function.
            (name.matches(':').count() == 2 && name.contains('.')).then_some(name)
        });
        let mut interfaces: Vec<String> = fs::read_dir(at.join("net"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        interfaces.sort();
        Self {
            pci_address,
            pci_lanes: both("width").and_then(|[now, most]| {
                Some([now.parse::<u32>().ok()?, most.parse::<u32>().ok()?])
            }),
            pci_speed: both("speed"),
            numa_node: line(&at.join("numa_node")).and_then(|node| node.parse().ok()),
            local_cpus: line(&at.join("local_cpulist")),
            interfaces,
        }
    }

    /// Returns the place in words; `None` if sysfs shows nothing of it.
    pub(super) fn describe(&self) -> Option<String> {
        let mut parts = Vec::new();
        if let Some(address) = &self.pci_address {
            parts.push(format!("PCI {address}"));
        }
        if let Some([now, most]) = self.pci_lanes {
            let of = match now == most {
                true => String::new(),
                false => format!(" (of {most})"),
            };
            parts.push(format!("{}{of}", counted(now, "lane")));
        }
        if let Some([now, most]) = &self.pci_speed {
            let of = match now == most {
                true => String::new(),
                false => format!(" (of {most})"),
            };
            parts.push(format!("{now}{of}"));
        }
        match (self.numa_node, &self.local_cpus) {
            (Some(node), Some(cpus)) => parts.push(format!("NUMA node {node} (CPUs {cpus})")),
            (None, Some(cpus)) => parts.push(format!("near CPUs {cpus}")),
            _ => {}
        }
        if !self.interfaces.is_empty() {
            parts.push(self.interfaces.join(" "));
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Returns the speed of a port, such as `100 Gb/sec (4X EDR)`.
pub(super) fn rate(class: &Path, device: &str, port: u8) -> Option<String> {
    line(&class.join(format!("{device}/ports/{port}/rate")))
}

/// Returns the network interface of a GID.
pub(super) fn interface(class: &Path, device: &str, port: u8, gid: u8) -> Option<String> {
    line(&class.join(format!("{device}/ports/{port}/gid_attrs/ndevs/{gid}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    /// A directory that is removed at the end of a test.
    struct Tree(PathBuf);

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Writes files below a directory.
    fn tree(test: &str, files: &[(&str, &str)]) -> Tree {
        let name = format!("dat-bench-place-{}-{test}", std::process::id());
        let dir = Tree(std::env::temp_dir().join(name));
        for (name, text) in files {
            let path = dir.0.join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, format!("{text}\n")).expect("a file");
        }
        dir
    }

    #[test]
    fn a_device_in_a_slot_with_half_of_its_lanes() {
        let dir = tree(
            "slot",
            &[
                ("pci/0000:81:00.0/current_link_width", "8"),
                ("pci/0000:81:00.0/max_link_width", "16"),
                ("pci/0000:81:00.0/current_link_speed", "16.0 GT/s PCIe"),
                ("pci/0000:81:00.0/max_link_speed", "16.0 GT/s PCIe"),
                ("pci/0000:81:00.0/numa_node", "1"),
                ("pci/0000:81:00.0/local_cpulist", "4-7"),
                ("pci/0000:81:00.0/net/eth2/mtu", "1500"),
                ("mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)"),
                ("mlx5_0/ports/1/gid_attrs/ndevs/3", "eth2"),
            ],
        );
        symlink("../pci/0000:81:00.0", dir.0.join("mlx5_0/device")).expect("a link");
        let place = Place::read(&dir.0, "mlx5_0");
        assert_eq!(
            place.describe().as_deref(),
            Some("PCI 0000:81:00.0, 8 lanes (of 16), 16.0 GT/s PCIe, NUMA node 1 (CPUs 4-7), eth2")
        );
        assert_eq!(
            rate(&dir.0, "mlx5_0", 1).as_deref(),
            Some("100 Gb/sec (4X EDR)")
        );
        assert_eq!(interface(&dir.0, "mlx5_0", 1, 3).as_deref(), Some("eth2"));
        assert_eq!(interface(&dir.0, "mlx5_0", 1, 4), None);
    }

    #[test]
    fn a_host_that_shows_nothing_and_one_without_numa_nodes() {
        let dir = tree(
            "nothing",
            &[
                ("rxe0/ports/1/rate", "10 Gb/sec"),
                ("mlx5_0/device/numa_node", "-1"),
            ],
        );
        let place = Place::read(&dir.0, "rxe0");
        assert_eq!((place.describe(), &place), (None, &Place::default()));
        assert_eq!(Place::read(&dir.0, "mlx5_0").numa_node, None);
        assert_eq!(Place::read(&dir.0, "none"), Place::default());
    }
}
