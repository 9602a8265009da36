//! The next step for a name that stands for no device.

use dat_engine::PathRequest;

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
            format!("write one of {} instead of {name}", names(devices))
        }
        (Some(_), Some(_), None) => return for_name(devices),
        (Some(_), Some(port), Some((device, ports))) => match port.parse() {
            Ok(number) if (1..=*ports).contains(&number) => {
                "correct the keys of the instance data (dat.conf(5) lists them)".to_owned()
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
        [] => "install the driver of the RDMA device (`ibv_devices` lists devices); without hardware, \
               `mlx5-emu run -- PROGRAM` provides an emulated one"
            .to_owned(),
        devices => format!(
            "use a device of this host ({}), DEVICE-PORT for another port, or an entry of dat.conf",
            names(devices)
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
}
