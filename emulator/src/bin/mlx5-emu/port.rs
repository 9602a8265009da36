//! `mlx5-emu port`: takes a port down or up for the running programs of a fabric.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use mlx5emu::config::Config;
use mlx5emu::fabric::name::FabricName;
use mlx5emu::fabric::ports::{SwitchError, switch};
use mlx5emu::limits::{MAX_DEVICES, MAX_PORTS};
use mlx5emu::spec::PortAddress;
use mlx5emu::sysfs::show_port;

use super::{Failure, print};

#[derive(Args)]
pub(super) struct Arguments {
    /// Whether the port goes down or up.
    state: Switch,
    /// Name of the fabric, as for `mlx5-emu run` [default: "default"].
    #[arg(long, value_name = "NAME")]
    fabric: Option<String>,
    /// Name of the device.
    #[arg(long, value_name = "NAME", default_value = "mlx5_0", value_parser = device_of_name)]
    device: u8,
    /// Number of the port.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=MAX_PORTS as i64))]
    port: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    /// Take the port down.
    Down,
    /// Bring the port up.
    Up,
}

pub(super) fn port(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let fabric = fabric(arguments.fabric.as_deref())?;
    let Arguments { device, port, .. } = *arguments;
    let at = PortAddress { device, port };
    let is_up = arguments.state == Switch::Up;
    let processes = switch(&fabric, at, is_up).map_err(|error| match error {
        SwitchError::NoDevice { .. } | SwitchError::NoPort { .. } => {
            Failure::usage(error.to_string())
        }
        _ => Failure::environment(error.to_string()),
    })?;
    show_port(&fabric, at, is_up);
    let state = if is_up { "up" } else { "down" };
    let noun = if processes == 1 {
        "process"
    } else {
        "processes"
    };
    print(&format!(
        "port {port} of mlx5_{device} on fabric {fabric} is {state}, for {processes} running {noun}\n"
    ))
}

/// Returns the fabric: the option, else the variable of the programs, else the default.
fn fabric(given: Option<&str>) -> Result<FabricName, Failure> {
    let variable = || std::env::var(Config::FABRIC).ok();
    let (source, name) = match given {
        Some(name) => ("--fabric", name.to_owned()),
        None => match variable().filter(|name| !name.is_empty()) {
            Some(name) => (Config::FABRIC, name),
            None => return Ok(FabricName::default()),
        },
    };
    FabricName::new(&name).map_err(|_| {
        let rule = FabricName::RULE;
        Failure::usage(format!("invalid {source} {name:?}: expected {rule}"))
    })
}

/// Parses the name of a device. Returns its number.
fn device_of_name(text: &str) -> Result<u8, String> {
    let number = text.strip_prefix("mlx5_").and_then(|it| it.parse().ok());
    number
        .filter(|&number: &u8| number < MAX_DEVICES && text == format!("mlx5_{number}"))
        .ok_or_else(|| format!("expected mlx5_0 to mlx5_{}", MAX_DEVICES - 1))
}
