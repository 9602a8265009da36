//! The files of `counters` and `hw_counters` of a port. A file is written when a program
//! is about to open it: the value is that of this moment.

use std::path::Path;

use super::tree;
use crate::config::Config;
use crate::fabric::counters::Row;
use crate::nic::counters::{self, Name};
use crate::spec::{Link, PortAddress};

/// Writes the current value, of the counters that `row` returns, to the file of a counter
/// in the tree below `root`. `path` may lead there in any way that ends with the device's
/// name, `ports` and so on. Does nothing for other paths.
pub(crate) fn refresh(config: &Config, root: &Path, path: &Path, row: impl Fn(PortAddress) -> Row) {
    if let Some((at, name)) = counter_of(config, path) {
        let value = counters::value(&row(at), name);
        let end: Vec<_> = path.iter().rev().take(5).collect();
        let file = root.join("class/infiniband");
        let file = end.iter().rev().fold(file, |file, part| file.join(part));
        // A program that has given up its rights reads the value before.
        let _ = tree::replace(&file, &value.to_string());
    }
}

/// Returns whether a file name is that of a counter.
pub(crate) fn is_name(name: &[u8]) -> bool {
    let all = [counters::PORT, counters::hardware(Link::Roce)];
    all.iter().any(|names| find(names, name).is_some())
}

fn find(names: &[Name], wanted: &[u8]) -> Option<Name> {
    let mut names = names.iter().copied();
    names.find(|(name, _)| name.as_bytes() == wanted)
}

fn counter_of(config: &Config, path: &Path) -> Option<(PortAddress, Name)> {
    let mut parts = path.iter().rev();
    let name = parts.next()?.as_encoded_bytes();
    let name = match parts.next()?.to_str()? {
        "counters" => find(counters::PORT, name),
        "hw_counters" => find(counters::hardware(config.link), name),
        _ => None,
    }?;
    let port = parts.next()?.to_str()?.parse().ok()?;
    let _ports = parts.next().filter(|&part| part == "ports")?;
    let device = parts
        .next()?
        .to_str()?
        .strip_prefix("mlx5_")?
        .parse()
        .ok()?;
    let is_there = device < config.devices && (1..=config.ports).contains(&port);
    is_there.then_some((PortAddress { device, port }, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_existing_ports_are_counters() {
        let config = Config::default();
        for (path, expected) in [
            (
                "/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data",
                true,
            ),
            ("/tmp/tree/x/mlx5_0/ports/1/hw_counters/out_of_buffer", true),
            (
                "/sys/class/infiniband/mlx5_1/ports/1/counters/port_xmit_data",
                false,
            ),
            (
                "/sys/class/infiniband/mlx5_0/ports/2/counters/port_xmit_data",
                false,
            ),
            ("mlx5_0/ports/1/counters/out_of_buffer", false),
            ("mlx5_0/ports/1/hw_counters/np_cnp_sent", false),
            ("counters/port_xmit_data", false),
        ] {
            let found = counter_of(&config, Path::new(path));
            assert_eq!(found.is_some(), expected, "{path}");
        }
        assert!(is_name(b"np_cnp_sent") && !is_name(b"lifespan"));
    }
}
