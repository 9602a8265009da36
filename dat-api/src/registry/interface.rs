//! The RDMA device behind a network interface, from sysfs; for iWARP devices, from the connection
//! manager.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

/// Returns the device and port behind an interface, or behind an address of one.
pub(super) fn device_of(name: &str) -> Result<(String, u8), String> {
    let interface = match name.parse::<IpAddr>() {
        Ok(address) => interface_of(address)?,
        Err(_) => name.to_owned(),
    };
    let folder = Path::new("/sys/class/net");
    if !plain(&interface).is_some_and(|name| folder.join(name).exists()) {
        return Err(format!(
            "this host has no network interface {interface} (`ip link` lists them)"
        ));
    }
    in_class(Path::new("/sys/class/infiniband"), &interface)
        .or_else(|| by_address(&interface))
        .ok_or_else(|| format!("there is no RDMA device behind the network interface {interface}"))
}

/// Returns the device that an address of the interface belongs to. iWARP devices have no GIDs, and
/// some have no adapter, so sysfs does not show it.
fn by_address(interface: &str) -> Option<(String, u8)> {
    let all = if_addrs::get_if_addrs().ok()?;
    let own = all.into_iter().filter(|one| one.name == interface);
    own.filter(|one| !one.is_link_local())
        .find_map(|one| dat_engine::cm::device_at(one.ip()))
}

fn interface_of(address: IpAddr) -> Result<String, String> {
    let all = if_addrs::get_if_addrs()
        .map_err(|error| format!("the addresses of this host cannot be read: {error}"))?;
    all.into_iter()
        .find(|interface| interface.ip() == address)
        .map(|interface| interface.name)
        .ok_or_else(|| format!("no network interface of this host has the address {address}"))
}

/// Returns the first device and port that belongs to the interface: by the device's GIDs, which
/// include bonds and VLANs, or by the interfaces of the adapter.
fn in_class(class: &Path, interface: &str) -> Option<(String, u8)> {
    let devices = names_in(class);
    for device in &devices {
        let ports = class.join(device).join("ports");
        for port in names_in(&ports) {
            let tables = ports.join(&port).join("gid_attrs/ndevs");
            let carries = |entry: &String| {
                fs::read_to_string(tables.join(entry)).is_ok_and(|name| name.trim() == interface)
            };
            if let Ok(number) = port.parse()
                && names_in(&tables).iter().any(carries)
            {
                return Some((device.clone(), number));
            }
        }
    }
    // An IPoIB interface has no GID of its own.
    devices.into_iter().find_map(|device| {
        let folder = class
            .join(&device)
            .join("device/net")
            .join(plain(interface)?);
        let index = fs::read_to_string(folder.join("dev_port")).ok()?;
        let port = index.trim().parse::<u8>().ok()?.checked_add(1)?;
        Some((device, port))
    })
}

/// Returns a name that is one component of a path.
fn plain(name: &str) -> Option<&str> {
    (!name.is_empty() && !name.contains('/') && !name.starts_with('.')).then_some(name)
}

/// Returns the names in a folder, sorted, so that the result is always the same.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    struct Class(PathBuf);

    impl Class {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("rdma-ndev-{name}-{}", std::process::id())))
        }

        fn write(&self, place: &str, text: &str) {
            let path = self.0.join(place);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a temporary folder");
            fs::write(path, text).expect("writable");
        }
    }

    impl Drop for Class {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn roce_devices_are_found_by_their_gids_and_ipoib_by_the_adapter() {
        let class = Class::new("both");
        class.write("mlx5_0/ports/1/gid_attrs/ndevs/0", "eth0\n");
        class.write("mlx5_0/ports/2/gid_attrs/ndevs/3", "eth1.7\n");
        class.write("mlx5_1/ports/1/lid", "0x1\n");
        class.write("mlx5_1/device/net/ib0/dev_port", "0\n");
        class.write("mlx5_1/device/net/ib1/dev_port", "1\n");
        let found = |name| in_class(&class.0, name);
        assert_eq!(found("eth0"), Some(("mlx5_0".to_owned(), 1)));
        assert_eq!(found("eth1.7"), Some(("mlx5_0".to_owned(), 2)));
        assert_eq!(found("ib0"), Some(("mlx5_1".to_owned(), 1)));
        assert_eq!(found("ib1"), Some(("mlx5_1".to_owned(), 2)));
        for none in ["eth9", "", ".", "..", "../net/ib0"] {
            assert_eq!(found(none), None, "{none}");
        }
    }

    #[test]
    fn a_host_without_rdma_and_foreign_addresses_are_reported() {
        assert_eq!(in_class(Path::new("/nowhere"), "eth0"), None);
        let cause = device_of("203.0.113.77").expect_err("an address for documentation");
        assert!(cause.contains("203.0.113.77"), "{cause}");
        assert!(
            device_of("no-such-if0")
                .expect_err("none")
                .contains("no-such-if0")
        );
    }
}
