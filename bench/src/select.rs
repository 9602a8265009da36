//! Chooses the device of a run.

use dat_engine::{DataPath, DeviceInfo, PortInfo, PortState, Transport};

use crate::failure::Failure;
use crate::launcher::{self, EMULATED};
use crate::options::{DeviceArgs, Path};
use crate::output;

/// The chosen device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selected {
    pub(crate) name: String,
    /// Its emulated fabric; none if mlx5-emu does not run this process.
    pub(crate) fabric: Option<String>,
}

/// How to get the requested device.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    /// Use the device of this name.
    Take(String),
    /// Restart this program under mlx5-emu.
    Emulate,
}

/// Sets the data path in the environment, where the engine, DAT and a restarted
/// dat-bench read it. Called before there are other threads.
pub(crate) fn set_data_path(path: Option<Path>) {
    if let Some(path) = path {
        // SAFETY: no other thread of this program runs before a device is opened.
        unsafe { std::env::set_var("DAT_PATH", path.name()) };
    }
}

/// Returns the device of that name, or the best device of this host. May replace
/// this process by a dat-bench under mlx5-emu.
pub(crate) fn select(wanted: Option<&str>) -> Result<Selected, Failure> {
    let fabric = launcher::fabric();
    // `-d emu` does not depend on the devices of this host.
    let present = if wanted == Some(EMULATED) && fabric.is_none() {
        Vec::new()
    } else {
        list()?
    };
    for device in &present {
        tracing::debug!(device = device.name, path = ?device.path, "listed by libibverbs");
    }
    match choose(wanted, &present, fabric.is_some())? {
        Choice::Take(name) => {
            tracing::info!(device = name, fabric, "measured device");
            Ok(Selected { name, fabric })
        }
        Choice::Emulate => {
            if wanted.is_none() {
                output::line(
                    " no RDMA device of this host can be used: using the emulated one (-d emu)",
                )?;
                for device in &present {
                    output::line(format_args!(
                        "   {}: {}",
                        device.name,
                        unusable_reason(device)
                    ))?;
                }
            }
            match launcher::relaunch()? {}
        }
    }
}

/// Refuses an iWARP device for commands that connect queue pairs by exchanging
/// addresses. `instead` is the remedy.
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
            "{name} speaks iWARP, whose queue pairs only rdma_cm can connect, and this measurement connects them without it; {instead}"
        ))),
        _ => Ok(()),
    }
}

/// Returns all devices that libibverbs lists.
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
                "dat-bench runs under mlx5-emu, but libibverbs lists no device: are the mlx5 user-space drivers installed (apt-get install ibverbs-providers)?",
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
        [] => "this host has none".to_owned(),
        names => format!("this host has {}", names.join(", ")),
    };
    Err(Failure::usage(format!(
        "no RDMA device '{name}': {there}; '-d emu' is the emulated one"
    )))
}

/// Returns whether a run on the device can work: it has a data path, an active
/// port and reliable connections.
fn is_usable(device: &DeviceInfo) -> bool {
    let is_active = |port: &PortInfo| port.state == PortState::Active;
    is_driven(device) && device.ports.iter().any(is_active) && connects(device)
}

fn is_driven(device: &DeviceInfo) -> bool {
    !matches!(device.path, DataPath::Unusable { .. })
}

/// Returns whether the device has reliable connections.
fn connects(device: &DeviceInfo) -> bool {
    device.transport != Transport::Other
}

fn unusable_reason(device: &DeviceInfo) -> String {
    if !connects(device) {
        "it has no reliable connections".to_owned()
    } else if is_driven(device) {
        "no port is active".to_owned()
    } else {
        device.path.to_string()
    }
}

impl DeviceArgs {
    /// Sets the data path for this process, and returns the device, as
    /// [`select`] does.
    pub(crate) fn select(&self) -> Result<Selected, Failure> {
        set_data_path(self.path);
        select(self.device.as_deref())
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
            guid: dat_engine::Guid(0),
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
    fn without_a_name_the_first_active_device_with_the_direct_path_is_chosen() {
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
    fn a_device_on_the_verbs_path_is_preferred_to_the_emulated_one() {
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
    fn without_a_usable_device_the_emulated_one_is_chosen() {
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
    fn under_the_launcher_emu_is_the_first_device() {
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
    fn an_unknown_device_is_refused_with_a_list_of_those_present() {
        let present = [device("mlx5_0", PortState::Active, DataPath::Direct)];
        let failure = choose(Some("mlx4_0"), &present, false).unwrap_err();
        assert_eq!(failure.status(), 1);
        assert!(
            failure.to_string().contains("this host has mlx5_0"),
            "{failure}"
        );
        assert_eq!(choose(Some("mlx4_0"), &[], true).unwrap_err().status(), 1);
    }

    #[test]
    fn iwarp_is_refused_with_a_remedy_where_queue_pairs_are_connected_without_rdma_cm() {
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
