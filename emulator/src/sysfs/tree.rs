//! The contents of the sysfs tree: a PCI device for each emulated device, and the
//! links to it from the classes and from the PCI bus.
//!
//! ```text
//! devices/pci00e5:00/00e5:00:01.0/00e5:03:00.0/     PCI device: vendor, numa_node, …
//!     infiniband/mlx5_0/                            node_guid, ports/1/gids/0, …
//!         ports/1/counters, hw_counters             see `counters`
//!     infiniband_verbs/uverbs0/                     ibdev, dev, abi_version
//!     net/lo                                        on RoCE: the network interface
//! class/infiniband/mlx5_0                           link
//! class/infiniband_verbs/uverbs0                    link
//! bus/pci/devices/00e5:03:00.0                      link
//! devices/virtual/misc/rdma_cm/                     abi_version, dev
//! class/misc/rdma_cm                                link
//! dev/infiniband/uverbs0                            stands for the device file
//! ```

use std::fs;
use std::io::{self, Write};
use std::iter::repeat;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{
    DEVICE_MAJOR, FIRMWARE, FIRST_MINOR, RDMA_CM, RDMA_CM_ABI, RDMA_CM_NAME, device_file,
    device_name,
};
use crate::config::Config;
use crate::fabric::name::{DeviceIdentity, PortNames};
use crate::limits::GID_TABLE;
use crate::nic::counters;
use crate::spec::gid::GidType;
use crate::spec::{Link, PortAddress, PortSet};

/// The PCI domain of the devices. Hosts number their own domains from 0, and those of
/// volume management devices from 0x10000.
pub const PCI_DOMAIN: &str = "00e5";
/// A file whose reading fails with `EINVAL`, as the kernel refuses to read attributes that
/// a GID does not have (`_show_port_gid_attr`). A file of the tree cannot fail, and this
/// one of the host is a link with an unknown speed on every host.
const UNREADABLE: &str = "/sys/class/net/lo/speed";

/// The PCI bus of the first device; each device has a bus of its own.
const FIRST_BUS: u8 = 3;

/// Returns the PCI address of a device, as sysfs names it.
#[must_use]
pub fn pci_address(device: u8) -> String {
    format!("{PCI_DOMAIN}:{:02x}:00.0", FIRST_BUS + device)
}

/// Writes the files and links of a tree.
pub(super) struct Tree<'a> {
    pub(super) root: &'a Path,
    pub(super) config: &'a Config,
    pub(super) down: PortSet,
}

/// The file of a tree with the name of the fabric.
pub(super) const FABRIC_FILE: &str = "fabric";

/// Returns the contents of `state` and `phys_state` of a port.
fn states(up: bool) -> [(&'static str, &'static str); 2] {
    match up {
        true => [("state", "4: ACTIVE"), ("phys_state", "5: LinkUp")],
        false => [("state", "1: DOWN"), ("phys_state", "3: Disabled")],
    }
}

/// Shows in the tree below `root` that a port is up or down.
///
/// # Errors
/// Returns an error if the tree has no such port, or cannot be written.
pub(super) fn show_port(root: &Path, at: PortAddress, up: bool) -> io::Result<()> {
    let port = format!(
        "class/infiniband/{}/ports/{}",
        device_name(at.device),
        at.port
    );
    let port = root.join(port);
    for (file, text) in states(up) {
        replace(&port.join(file), text)?;
    }
    Ok(())
}

/// Replaces a file, so that a reader finds the text before or the new one.
pub(super) fn replace(file: &Path, text: &str) -> io::Result<()> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    // Other threads, and other processes with this tree, may do the same now.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!(".new-{}-{number}", std::process::id());
    let new = file.with_file_name(name);
    let mut options = fs::File::options();
    options.write(true).create_new(true).mode(0o444);
    let mut written = options.open(&new)?;
    written.write_all(format!("{text}\n").as_bytes())?;
    fs::rename(new, file)
}

impl Tree<'_> {
    /// Writes the whole tree.
    pub(super) fn write(&self) -> io::Result<()> {
        self.put(FABRIC_FILE, self.config.fabric.as_str())?;
        self.put("class/infiniband_verbs/abi_version", "6")?;
        let host = Host::near(self.config.numa_node)?;
        for device in 0..self.config.devices {
            let identity = self.config.identity(device);
            let bridge = format!("{PCI_DOMAIN}:00:{:02x}.0", device + 1);
            let pci = format!(
                "devices/pci{PCI_DOMAIN}:00/{bridge}/{}",
                pci_address(device)
            );
            self.pci_device(device, &pci, &host)?;
            self.uverbs(device, &pci)?;
            self.rdma_device(device, &pci, &identity)?;
            self.device_file(&device_file(device))?;
        }
        if self.config.rdma_cm {
            self.rdma_cm()?;
        }
        Ok(())
    }

    fn rdma_cm(&self) -> io::Result<()> {
        let ((major, minor), name) = (RDMA_CM, RDMA_CM_NAME);
        let place = format!("devices/virtual/misc/{name}");
        let uevent = format!("MAJOR={major}\nMINOR={minor}\nDEVNAME=infiniband/{name}");
        for (file, text) in [
            ("abi_version", RDMA_CM_ABI.to_string()),
            ("dev", format!("{major}:{minor}")),
            ("uevent", uevent),
        ] {
            self.put(&format!("{place}/{file}"), &text)?;
        }
        self.link(&format!("{place}/subsystem"), "class/misc")?;
        self.link(&format!("class/misc/{name}"), &place)?;
        self.device_file(name)
    }

    fn pci_device(&self, device: u8, pci: &str, host: &Host) -> io::Result<()> {
        let address = pci_address(device);
        // The class codes of network controllers, by link layer.
        let (class, code) = match self.config.link {
            Link::Ib => ("0x020700", "bc02sc07i00"),
            Link::Roce => ("0x020000", "bc02sc00i00"),
        };
        // ConnectX-6 Dx: it makes libibverbs choose libmlx5.
        let modalias = format!("pci:v000015B3d0000101Dsv000015B3sd00000000{code}");
        let uevent = format!(
            "DRIVER=mlx5_core\nPCI_CLASS={}\nPCI_ID=15B3:101D\nPCI_SUBSYS_ID=15B3:0000\n\
             PCI_SLOT_NAME={address}\nMODALIAS={modalias}",
            class.trim_start_matches("0x0"),
        );
        for (file, text) in [
            ("vendor", "0x15b3"),
            ("device", "0x101d"),
            ("subsystem_vendor", "0x15b3"),
            ("subsystem_device", "0x0000"),
            ("class", class),
            ("revision", "0x00"),
            ("modalias", &modalias),
            ("uevent", &uevent),
            ("enable", "1"),
            ("irq", "0"),
            ("current_link_speed", "16.0 GT/s PCIe"),
            ("current_link_width", "16"),
            ("max_link_speed", "16.0 GT/s PCIe"),
            ("max_link_width", "16"),
            ("numa_node", &host.numa_node),
            ("local_cpulist", &host.cpus),
            ("local_cpus", &mask_of(&host.cpus)),
        ] {
            self.put(&format!("{pci}/{file}"), text)?;
        }
        self.link(&format!("{pci}/subsystem"), "bus/pci")?;
        self.link(&format!("{pci}/driver"), "bus/pci/drivers/mlx5_core")?;
        self.link(&format!("bus/pci/devices/{address}"), pci)?;
        self.link(&format!("bus/pci/drivers/mlx5_core/{address}"), pci)?;
        if self.config.link == Link::Roce {
            let interface = self.config.interface_name(device);
            let net = self.root.join(format!("{pci}/net"));
            fs::create_dir_all(&net)?;
            // The interface is the host's.
            symlink(format!("/sys/class/net/{interface}"), net.join(interface))?;
        }
        Ok(())
    }

    fn uverbs(&self, device: u8, pci: &str) -> io::Result<()> {
        let name = device_file(device);
        let minor = FIRST_MINOR + u32::from(device);
        let verbs = format!("{pci}/infiniband_verbs/{name}");
        let uevent = format!("MAJOR={DEVICE_MAJOR}\nMINOR={minor}\nDEVNAME=infiniband/{name}");
        for (file, text) in [
            ("ibdev", device_name(device)),
            ("dev", format!("{DEVICE_MAJOR}:{minor}")),
            ("abi_version", "1".into()),
            ("uevent", uevent),
        ] {
            self.put(&format!("{verbs}/{file}"), &text)?;
        }
        self.class_device("infiniband_verbs", &name, &verbs, pci)
    }

    fn rdma_device(&self, device: u8, pci: &str, identity: &DeviceIdentity) -> io::Result<()> {
        let name = device_name(device);
        let ib = format!("{pci}/infiniband/{name}");
        let guid = groups(&identity.guid);
        for (file, text) in [
            ("node_type", "1: CA"),
            ("node_guid", &guid),
            ("sys_image_guid", &guid),
            ("node_desc", &name),
            ("fw_ver", FIRMWARE),
            ("hw_rev", "0"),
            ("hca_type", "MT4125"),
            ("board_id", "MLX5_EMULATED"),
        ] {
            self.put(&format!("{ib}/{file}"), text)?;
        }
        for number in 1..=self.config.ports {
            let is_up = !self.down.contains(PortAddress {
                device,
                port: number,
            });
            let path = format!("{ib}/ports/{number}");
            let interface = self.config.interface_name(device);
            self.port(&path, &identity.port(number), interface, is_up)?;
        }
        self.class_device("infiniband", &name, &ib, pci)
    }

    fn port(&self, port: &str, names: &PortNames, interface: &str, is_up: bool) -> io::Result<()> {
        let link = self.config.link;
        let (lid, sm_lid, layer) = match link {
            Link::Ib => (names.lid, "0x1", "InfiniBand"),
            Link::Roce => (0, "0x0", "Ethernet"),
        };
        let gids = names.gids(link);
        for (file, text) in states(is_up) {
            self.put(&format!("{port}/{file}"), text)?;
        }
        for (file, text) in [
            ("pkeys/0", "0xffff"),
            ("rate", "100 Gb/sec (4X EDR)"),
            ("lid", &format!("{lid:#x}")),
            ("lid_mask_count", "0"),
            ("sm_lid", sm_lid),
            ("sm_sl", "0"),
            ("cap_mask", &format!("{:#010x}", link.port_capabilities())),
            ("link_layer", layer),
        ] {
            self.put(&format!("{port}/{file}"), text)?;
        }
        let hardware = counters::hardware(link);
        for (directory, names) in [("counters", counters::PORT), ("hw_counters", hardware)] {
            for (name, _) in names {
                // Not opened by its name, which would look for the devices of this process
                // before they are installed.
                let file = self.prepare(&format!("{port}/{directory}/{name}"))?;
                replace(&file, "0")?;
            }
        }
        // How long the kernel keeps the values that it has read, in milliseconds.
        self.put(&format!("{port}/hw_counters/lifespan"), "10")?;
        for (index, gid) in (0..GID_TABLE).zip(gids.into_iter().chain(repeat(None))) {
            let shown = groups(&gid.map_or([0; 16], |gid| gid.raw));
            self.put(&format!("{port}/gids/{index}"), &shown)?;
            let kind = gid.map(|gid| match gid.kind {
                GidType::Ib | GidType::RoceV1 => "IB/RoCE v1",
                GidType::RoceV2 => "RoCE v2",
            });
            let interface = gid.and((link == Link::Roce).then_some(interface));
            for (attribute, text) in [("types", kind), ("ndevs", interface)] {
                let path = format!("{port}/gid_attrs/{attribute}/{index}");
                match text {
                    Some(text) => self.put(&path, text)?,
                    None => symlink(UNREADABLE, self.prepare(&path)?)?,
                }
            }
        }
        Ok(())
    }

    /// Writes the links of a device of a class: to its PCI device, and from the class.
    fn class_device(&self, class: &str, name: &str, place: &str, pci: &str) -> io::Result<()> {
        self.link(&format!("{place}/device"), pci)?;
        self.link(&format!("{place}/subsystem"), &format!("class/{class}"))?;
        self.link(&format!("class/{class}/{name}"), place)
    }

    /// Writes the file that a listing of `/dev/infiniband` shows. Opening it by its
    /// path opens the device; it is not accessible in other ways.
    fn device_file(&self, name: &str) -> io::Result<()> {
        let path = format!("dev/infiniband/{name}");
        self.put(&path, "")?;
        fs::set_permissions(self.root.join(path), fs::Permissions::from_mode(0o000))
    }

    /// Writes a file that cannot be written again, except by root.
    fn put(&self, path: &str, text: &str) -> io::Result<()> {
        let mut options = fs::File::options();
        options.write(true).create_new(true).mode(0o444);
        let mut file = options.open(self.prepare(path)?)?;
        file.write_all(format!("{text}\n").as_bytes())
    }

    /// Writes a relative link to a directory; `target` begins at the root.
    fn link(&self, path: &str, target: &str) -> io::Result<()> {
        fs::create_dir_all(self.root.join(target))?;
        symlink(relative(path, target), self.prepare(path)?)
    }

    /// Returns the full path of a file whose directory exists.
    fn prepare(&self, path: &str) -> io::Result<PathBuf> {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap_or(self.root))?;
        Ok(path)
    }
}

/// Returns the contents of a link as sysfs writes it: upwards to the last directory
/// above both, then down to the target, whose own name is always part of it.
fn relative(link: &str, target: &str) -> String {
    let (from, to): (Vec<_>, Vec<_>) = (link.split('/').collect(), target.split('/').collect());
    let above = from.iter().zip(&to[..to.len() - 1]);
    let common = above.take_while(|(from, to)| from == to).count();
    format!(
        "{}{}",
        "../".repeat(from.len() - 1 - common),
        to[common..].join("/")
    )
}

/// The place of the devices in the host.
struct Host {
    /// The number of the NUMA node, or -1.
    numa_node: String,
    /// Processors as a list of ranges: "0-3,8".
    cpus: String,
}

impl Host {
    /// Fails if the host has no such node, except node 0.
    fn near(node: Option<u16>) -> io::Result<Self> {
        let read = |path: &str| fs::read_to_string(path).ok();
        let cpus =
            node.and_then(|node| read(&format!("/sys/devices/system/node/node{node}/cpulist")));
        let numa_node = match (node, &cpus) {
            (Some(node), Some(_)) => node.to_string(),
            (None | Some(0), _) => "-1".to_owned(),
            (Some(node), None) => {
                return Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    format!(
                        "this host has no NUMA node {node} ({}={node}); \
                         /sys/devices/system/node lists them",
                        Config::NUMA_NODE
                    ),
                ));
            }
        };
        let cpus = cpus.or_else(|| read("/sys/devices/system/cpu/online"));
        Ok(Self {
            numa_node,
            cpus: cpus.map_or_else(|| "0".into(), |list| list.trim().into()),
        })
    }
}

/// Formats a list of processors as sysfs shows masks: words of 32 bits in hex digits,
/// the highest first. Ranges that are not numbers are left out.
fn mask_of(list: &str) -> String {
    let mut words = vec![0_u32];
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(first), Ok(last)) = (first.parse::<u16>(), last.parse::<u16>()) else {
            continue;
        };
        for cpu in first..=last {
            let word = usize::from(cpu / 32);
            words.resize(words.len().max(word + 1), 0);
            words[word] |= 1 << (cpu % 32);
        }
    }
    let highest = words.pop().unwrap_or(0);
    let lower = words.iter().rev().map(|word| format!(",{word:08x}"));
    format!("{highest:x}{}", lower.collect::<String>())
}

/// Formats bytes as sysfs shows GUIDs and GIDs: groups of four hex digits.
pub(super) fn groups(bytes: &[u8]) -> String {
    let group = |pair: &[u8]| {
        pair.iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    bytes.chunks(2).map(group).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::super::Sysfs;
    use super::*;

    #[test]
    fn processors_are_shown_as_words_of_a_mask() {
        assert_eq!(mask_of("0-1"), "3");
        assert_eq!(mask_of("0-3,8"), "10f");
        assert_eq!(mask_of("1,33-34"), "6,00000002");
        assert_eq!(mask_of("x"), "0");
    }

    #[test]
    fn classes_and_bus_link_to_the_pci_device() {
        let config = Config {
            devices: 2,
            ..Config::default()
        };
        let sysfs = Sysfs::create(&config).unwrap();
        let real = |path: &str| fs::canonicalize(sysfs.root().join(path)).unwrap();
        let pci = real("bus/pci/devices/00e5:04:00.0");
        assert_eq!(
            pci,
            real("devices/pci00e5:00/00e5:00:02.0/00e5:04:00.0"),
            "the second device"
        );
        assert_eq!(real("class/infiniband/mlx5_1/device"), pci);
        assert_eq!(real("class/infiniband/mlx5_1/../.."), pci);
        assert_eq!(real("class/infiniband_verbs/uverbs1/device"), pci);
        assert_eq!(
            real("class/infiniband/mlx5_1/device/driver/00e5:04:00.0"),
            pci
        );
        assert_eq!(
            real("class/infiniband/mlx5_1/subsystem"),
            real("class/infiniband")
        );
        let read = |path: &str| fs::read_to_string(pci.join(path)).unwrap();
        assert_eq!(read("vendor"), "0x15b3\n");
        assert_eq!(read("class"), "0x020700\n");
        assert_eq!(read("infiniband_verbs/uverbs1/ibdev"), "mlx5_1\n");
        assert!(read("uevent").contains("PCI_CLASS=20700\n"));
        let link = |path: &str| fs::read_link(sysfs.root().join(path)).unwrap();
        assert!(link("class/infiniband/mlx5_1").starts_with("../../devices"));
        assert_eq!(
            link("class/infiniband/mlx5_1/device"),
            Path::new("../../../00e5:04:00.0")
        );
        assert!(
            !pci.join("net").exists(),
            "InfiniBand has no interface here"
        );
    }

    #[test]
    fn the_interface_of_a_roce_port_is_beside_the_device() {
        let config = Config {
            link: Link::Roce,
            ..Config::default()
        };
        let sysfs = Sysfs::create(&config).unwrap();
        let device = sysfs.root().join("class/infiniband/mlx5_0/device");
        assert_eq!(
            fs::read_link(device.join("net/lo")).unwrap(),
            Path::new("/sys/class/net/lo")
        );
        assert_eq!(
            fs::read_to_string(device.join("class")).unwrap(),
            "0x020000\n"
        );
    }
}
