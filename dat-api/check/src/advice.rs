//! The next step for a name that stands for no device.

use std::fs;

use dat_engine::PathRequest;

use crate::problem::Problem;

/// The RDMA devices of the kernel, in this network namespace.
const KERNEL: &str = "/sys/class/infiniband";

/// Returns the devices of this host, and how many ports each has.
pub(crate) fn devices() -> Vec<(String, usize)> {
    let devices = dat_engine::devices_with(PathRequest::Auto).unwrap_or_default();
    devices
        .into_iter()
        .map(|one| (one.name, one.ports.len()))
        .collect()
}

/// Returns what to do about an entry that stands for no device.
pub(crate) fn for_entry(line: usize, instance_data: &str, devices: &[(String, usize)]) -> String {
    let mut words = instance_data.split_ascii_whitespace();
    let (name, port) = (words.next(), words.next());
    let named = devices
        .iter()
        .find(|(device, _)| Some(device.as_str()) == name);
    let change = match (name, port, named) {
        (Some(_), Some("0"), _) => {
            "name a network interface of this host (`ip link`) that belongs to an RDMA device (`rdma link`)"
                .to_owned()
        }
        (Some(name), Some(_), None) if !devices.is_empty() => {
            let of = if devices.len() == 1 { "" } else { "one of " };
            format!("write {of}{} instead of {name}", names(devices))
        }
        (Some(_), Some(_), None) => return for_name(devices),
        (Some(_), Some(port), Some((device, ports))) => match port.parse() {
            Ok(number) if (1..=*ports).contains(&number) => {
                "correct the keys of the instance data (dat.conf(5) lists them)".to_owned()
            }
            _ if *ports == 1 => {
                format!("write port 1 instead of {port}: {device} has no other port")
            }
            _ => format!("write a port of {device}, 1 to {ports}, instead of {port}"),
        },
        _ => "write \"DEVICE PORT\" or \"INTERFACE 0\" as instance data".to_owned(),
    };
    format!("in line {line} of dat.conf, {change}")
}

/// Returns what to do about a name that stands for no device.
pub(crate) fn for_name(devices: &[(String, usize)]) -> String {
    match devices {
        [] => "load the driver of the RDMA adapter, or pass the device files into the container \
               (docker: --device=/dev/infiniband); without hardware, `mlx5-emu run -- PROGRAM` \
               provides an emulated device"
            .to_owned(),
        devices => format!(
            "use a device of this host ({}), DEVICE-PORT for another port, or an entry of dat.conf",
            names(devices)
        ),
    }
}

/// Returns the problem of a host without an RDMA device.
pub(crate) fn no_device() -> Problem {
    let kernel = fs::read_dir(KERNEL).into_iter().flatten().flatten();
    let kernel = kernel.filter_map(|entry| entry.file_name().into_string().ok());
    of_kernel(kernel.collect())
}

/// Returns the problem if libibverbs lists no device, and the kernel has these.
fn of_kernel(mut kernel: Vec<String>) -> Problem {
    kernel.sort();
    let container = "in a container, pass the device files (docker: --device=/dev/infiniband) and \
                     see \"Containers\" in the guide: the network namespace matters, too";
    let emulated = "without hardware, `mlx5-emu run -- PROGRAM` provides an emulated device";
    match kernel[..] {
        [] => Problem::new(
            format!("no RDMA device was found: the kernel has none here ({KERNEL})"),
            format!(
                "load the driver of the adapter (ConnectX: `modprobe mlx5_ib`; `lspci` lists \
                 adapters, dmesg has errors); {container}; {emulated}"
            ),
        ),
        _ => Problem::new(
            format!(
                "no RDMA device was found by libibverbs, although the kernel has {}",
                kernel.join(", ")
            ),
            format!(
                "install the driver package of libibverbs (Debian: ibverbs-providers; `ibv_devices` \
                 lists what it finds), and load the module ib_uverbs; {container}; {emulated}"
            ),
        ),
    }
}

fn names(devices: &[(String, usize)]) -> String {
    let names: Vec<&str> = devices.iter().map(|(name, _)| name.as_str()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_step_names_the_devices_and_ports_of_this_host() {
        let one = [("mlx5_0".to_owned(), 1)];
        let next = for_entry(5, "mlx5_7 1", &one);
        assert!(next.ends_with("write mlx5_0 instead of mlx5_7"), "{next}");
        let next = for_entry(5, "mlx5_0 3", &one);
        assert!(next.contains("write port 1 instead of 3"), "{next}");
        let two = [("mlx5_0".to_owned(), 2), ("mlx5_1".to_owned(), 1)];
        for (data, said) in [
            ("mlx5_7 1", "one of mlx5_0, mlx5_1 instead of mlx5_7"),
            ("mlx5_0 3", "1 to 2, instead of 3"),
            ("mlx5_0 x", "1 to 2, instead of x"),
            ("mlx5_0 2 colour=red", "keys"),
            ("ib0 0", "ip link"),
            ("ib0", "DEVICE PORT"),
            ("", "DEVICE PORT"),
        ] {
            let next = for_entry(5, data, &two);
            assert!(
                next.contains(said) && next.contains("line 5"),
                "{data}: {next}"
            );
        }
        assert!(for_entry(5, "mlx5_0 1", &[]).contains("mlx5-emu"));
        assert!(for_name(&two).contains("mlx5_0, mlx5_1"));
    }

    #[test]
    fn a_host_without_devices_is_told_what_is_missing() {
        let none = of_kernel(Vec::new());
        assert!(
            none.problem.contains("no RDMA device was found"),
            "{none:?}"
        );
        for said in ["modprobe mlx5_ib", "container", "mlx5-emu run"] {
            assert!(none.next.contains(said), "{none:?}");
        }
        let some = of_kernel(vec!["mlx5_1".to_owned(), "mlx5_0".to_owned()]);
        assert!(
            some.problem.contains("kernel has mlx5_0, mlx5_1"),
            "{some:?}"
        );
        assert!(some.next.contains("ibverbs-providers"), "{some:?}");
    }
}
