//! Which device a run gets.

use dat_engine::{DataPath, DeviceInfo, PortInfo, PortState, Transport};

use crate::cli::Path;
use crate::failure::Failure;
use crate::launcher::{self, EMULATED};
use crate::output;

/// A device that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selected {
    /// Its name.
    pub(crate) name: String,
    /// The emulator's fabric it is on, if it is emulated.
    pub(crate) fabric: Option<String>,
}

/// What to do about a wish, given what there is.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    /// Take the device of this name.
    Take(String),
    /// Run again where the device is emulated.
    Emulate,
}

/// Has devices driven in that way: by this program, by the one it may start in
/// its place, and by DAT. Called before there are other threads.
pub(crate) fn drive(path: Option<Path>) {
    if let Some(path) = path {
        // SAFETY: no other thread of this program runs before a device is opened.
        unsafe { std::env::set_var("DAT_PATH", path.name()) };
    }
}

/// Chooses by name, or the best device here; may replace this process by one
/// that has the emulated device.
pub(crate) fn select(wanted: Option<&str>) -> Result<Selected, Failure> {
    let fabric = launcher::fabric();
    // An emulated device that was asked for does not depend on what is here.
    let present = if wanted == Some(EMULATED) && fabric.is_none() {
        Vec::new()
    } else {
        list()?
    };
    match choose(wanted, &present, fabric.is_some())? {
        Choice::Take(name) => Ok(Selected { name, fabric }),
        Choice::Emulate => {
            if wanted.is_none() {
                output::line(
                    " no real RDMA device can be used here: taking the emulated one (-d emu)",
                )?;
                for device in &present {
                    output::line(format_args!("   {}: {}", device.name, why_not(device)))?;
                }
            }
            match launcher::relaunch()? {}
        }
    }
}

/// Refuses an iWARP device for what connects its queue pairs by addresses.
/// `instead` says what works there.
pub(crate) fn require_addresses(selected: &Selected, instead: &str) -> Result<(), Failure> {
    let all = list()?;
    let found = all.iter().find(|device| device.name == selected.name);
    match found.map(|device| device.transport) {
        Some(transport) => connects_by_addresses(&selected.name, transport, instead),
        None => Ok(()),
    }
}

fn connects_by_addresses(name: &str, transport: Transport, instead: &str) -> Result<(), Failure> {
    match transport {
        Transport::Iwarp => Err(Failure::usage(format!(
            "{name} speaks iWARP: rdma_cm alone connects its queue pairs, and those that this measures are connected by addresses; {instead}"
        ))),
        _ => Ok(()),
    }
}

/// Every device that libibverbs sees.
pub(crate) fn list() -> Result<Vec<DeviceInfo>, Failure> {
    Ok(dat_engine::devices()?)
}

fn choose(
    wanted: Option<&str>,
    present: &[DeviceInfo],
    under_launcher: bool,
) -> Result<Choice, Failure> {
    match wanted {
        Some(EMULATED) if !under_launcher => Ok(Choice::Emulate),
        Some(EMULATED) | None if under_launcher => match present.first() {
            Some(device) => Ok(Choice::Take(device.name.clone())),
            None => Err(Failure::environment(
                "mlx5-emu runs this program, but libibverbs shows no device: are the mlx5 user-space drivers installed (apt-get install ibverbs-providers)?",
            )),
        },
        Some(name) => by_name(name, present),
        None => Ok(present
            .iter()
            .filter(|device| is_usable(device))
            .min_by_key(|device| (device.path != DataPath::Direct, &device.name))
            .map_or(Choice::Emulate, |device| Choice::Take(device.name.clone()))),
    }
}

fn by_name(name: &str, present: &[DeviceInfo]) -> Result<Choice, Failure> {
    if present.iter().any(|device| device.name == name) {
        return Ok(Choice::Take(name.to_owned()));
    }
    let names: Vec<_> = present.iter().map(|device| device.name.as_str()).collect();
    let there = match names.as_slice() {
        [] => "there is none here".to_owned(),
        names => format!("there are: {}", names.join(", ")),
    };
    Err(Failure::usage(format!(
        "no RDMA device '{name}'; {there}; '-d emu' takes the emulated one"
    )))
}

/// Whether a measurement on it can work: it can be driven, and a port is active.
fn is_usable(device: &DeviceInfo) -> bool {
    let is_active = |port: &PortInfo| port.state == PortState::Active;
    is_driven(device) && device.ports.iter().any(is_active) && connects(device)
}

fn is_driven(device: &DeviceInfo) -> bool {
    !matches!(device.path, DataPath::Unusable { .. })
}

/// Whether it has reliable connections.
fn connects(device: &DeviceInfo) -> bool {
    device.transport != Transport::Other
}

fn why_not(device: &DeviceInfo) -> String {
    if !connects(device) {
        "it has no reliable connections".to_owned()
    } else if is_driven(device) {
        "no port is active".to_owned()
    } else {
        device.path.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dat_engine::LinkLayer;
    use dat_engine::control::Mtu;

    fn device(name: &str, state: PortState, path: DataPath) -> DeviceInfo {
        let mtu = Mtu::from_code(5).unwrap();
        let port = PortInfo {
            number: 1,
            state,
            link: LinkLayer::InfiniBand,
            lid: 1,
            active_mtu: mtu,
            max_mtu: mtu,
            max_message: 1 << 30,
            gids: Vec::new(),
        };
        DeviceInfo {
            name: name.into(),
            guid: 0,
            vendor_id: 0,
            part_id: 0,
            firmware: String::new(),
            transport: Transport::InfiniBand,
            limits: None,
            ports: vec![port],
            path,
        }
    }

    fn verbs() -> DataPath {
        DataPath::Verbs {
            reason: "it is not an mlx5 device".into(),
        }
    }

    #[test]
    fn without_a_wish_the_first_device_of_the_better_path_is_taken() {
        let present = [
            device("rxe0", PortState::Active, verbs()),
            device("mlx5_0", PortState::Down, DataPath::Direct),
            device("mlx5_2", PortState::Active, DataPath::Direct),
            device("mlx5_1", PortState::Active, DataPath::Direct),
        ];
        assert_eq!(
            choose(None, &present, false).unwrap(),
            Choice::Take("mlx5_1".into())
        );
    }

    #[test]
    fn the_verbs_path_is_better_than_an_emulated_device() {
        let present = [
            device("rxe1", PortState::Active, verbs()),
            device("rxe0", PortState::Active, verbs()),
            device("mlx5_0", PortState::Down, DataPath::Direct),
        ];
        assert_eq!(
            choose(None, &present, false).unwrap(),
            Choice::Take("rxe0".into())
        );
    }

    #[test]
    fn with_nothing_usable_the_emulated_device_is_taken() {
        let unusable = DataPath::Unusable {
            reason: "no permission".into(),
        };
        let present = [
            device("rxe0", PortState::Down, verbs()),
            device("mlx5_0", PortState::Active, unusable),
        ];
        assert_eq!(choose(None, &present, false).unwrap(), Choice::Emulate);
        assert_eq!(choose(None, &[], false).unwrap(), Choice::Emulate);
    }

    #[test]
    fn emu_means_the_first_device_under_the_launcher() {
        let present = [device("mlx5_0", PortState::Active, DataPath::Direct)];
        assert_eq!(
            choose(Some("emu"), &present, true).unwrap(),
            Choice::Take("mlx5_0".into())
        );
        assert_eq!(
            choose(Some("emu"), &present, false).unwrap(),
            Choice::Emulate
        );
        assert_eq!(choose(Some("emu"), &[], true).unwrap_err().status(), 2);
    }

    #[test]
    fn an_unknown_name_is_refused_with_those_present() {
        let present = [device("mlx5_0", PortState::Active, DataPath::Direct)];
        let failure = choose(Some("mlx4_0"), &present, false).unwrap_err();
        assert_eq!(failure.status(), 1);
        assert!(
            failure.to_string().contains("there are: mlx5_0"),
            "{failure}"
        );
        assert_eq!(choose(Some("mlx4_0"), &[], true).unwrap_err().status(), 1);
    }

    #[test]
    fn iwarp_is_refused_for_what_connects_by_addresses_with_what_works_there() {
        let failure = connects_by_addresses("siw0", Transport::Iwarp, "measure lat").unwrap_err();
        assert_eq!(failure.status(), 1);
        let text = failure.to_string();
        assert!(
            text.contains("siw0 speaks iWARP") && text.contains("measure lat"),
            "{text}"
        );
        for transport in [Transport::InfiniBand, Transport::Roce] {
            assert!(connects_by_addresses("mlx5_0", transport, "").is_ok());
        }
    }
}
