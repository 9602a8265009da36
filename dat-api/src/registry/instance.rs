//! The device, port and settings that an IA name stands for.

use super::interface;

/// A device to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) device: String,
    pub(crate) port: u8,
    /// The network interface that it was found by, or an address of the interface.
    pub(crate) interface: Option<String>,
    /// Keys and values of the instance data: see [`crate::options`].
    pub(crate) settings: Vec<(String, String)>,
    /// The file and line that it was read from, for messages.
    pub(crate) place: Option<String>,
}

impl Instance {
    fn new(device: &str, port: u8) -> Self {
        Self {
            device: device.to_owned(),
            port,
            interface: None,
            settings: Vec::new(),
            place: None,
        }
    }

    /// Parses `DEVICE`, or `DEVICE-PORT`. A device whose own name has the second form is tried
    /// first.
    pub(crate) fn of_device_name(name: &str) -> Vec<Self> {
        let mut all = vec![Self::new(name, 1)];
        if let Some((device, port)) = name.rsplit_once('-')
            && let Some(port) = port_number(port)
            && !device.is_empty()
        {
            all.push(Self::new(device, port));
        }
        all
    }

    /// Parses `DEVICE PORT [KEY=VALUE…]`; with port 0, the first word is a network interface or one
    /// of its addresses, and stands for the device behind it.
    pub(crate) fn of_instance_data(text: &str) -> Result<Self, String> {
        Self::read(text, interface::device_of)
    }

    fn read(
        text: &str,
        device_of: impl Fn(&str) -> Result<(String, u8), String>,
    ) -> Result<Self, String> {
        let mut words = text.split_ascii_whitespace();
        let (Some(name), Some(port)) = (words.next(), words.next()) else {
            return Err(format!(
                "invalid instance data \"{text}\": expected \"DEVICE PORT\" or \"INTERFACE 0\""
            ));
        };
        let mut instance = match (port, port_number(port)) {
            ("0", _) => {
                let (device, port) = device_of(name)?;
                Self {
                    interface: Some(name.to_owned()),
                    ..Self::new(&device, port)
                }
            }
            (_, Some(port)) => Self::new(name, port),
            _ => {
                return Err(format!(
                    "invalid port number \"{port}\" in the instance data \"{text}\": expected 0 to 255"
                ));
            }
        };
        for word in words {
            match word.split_once('=') {
                Some((key, value)) => instance.settings.push((key.to_owned(), value.to_owned())),
                None => {
                    return Err(format!(
                        "invalid setting \"{word}\" in the instance data \"{text}\": expected KEY=VALUE"
                    ));
                }
            }
        }
        Ok(instance)
    }
}

/// Parses a port number from 1, in digits without a sign or leading zeros.
fn port_number(text: &str) -> Option<u8> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten()?;
    (number != 0 && !text.starts_with('0')).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(name: &str) -> Vec<(String, u8)> {
        let all = Instance::of_device_name(name);
        all.into_iter().map(|one| (one.device, one.port)).collect()
    }

    #[test]
    fn a_name_is_a_device_or_a_device_with_a_port() {
        let is = |name: &str, port| (name.to_owned(), port);
        assert_eq!(places("mlx5_0"), [is("mlx5_0", 1)]);
        assert_eq!(places("mlx5_0-2"), [is("mlx5_0-2", 1), is("mlx5_0", 2)]);
        assert_eq!(places("rxe-0-1"), [is("rxe-0-1", 1), is("rxe-0", 1)]);
        for odd in ["a-0", "a-01", "a-256", "a-", "-1", "a-+1", "a- 1", ""] {
            assert_eq!(places(odd), [is(odd, 1)], "{odd}");
        }
    }

    fn read(text: &str) -> Result<Instance, String> {
        Instance::read(text, |name| match name {
            "ib0" | "10.0.0.1" => Ok(("mlx5_3".to_owned(), 2)),
            _ => Err(format!("no device behind {name}")),
        })
    }

    #[test]
    fn instance_data_name_a_device_and_a_port_and_settings() {
        let plain = read("mlx5_0 2").expect("well formed");
        assert_eq!(plain, Instance::new("mlx5_0", 2));
        let more = read("  mlx5_0\t1  path=direct gid=3 wait=adaptive:1:2 ").expect("well formed");
        let settings: Vec<_> = more
            .settings
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        assert_eq!(
            settings,
            [("path", "direct"), ("gid", "3"), ("wait", "adaptive:1:2")]
        );
    }

    #[test]
    fn port_0_means_a_network_interface_or_address() {
        for interface in ["ib0", "10.0.0.1"] {
            let expected = Instance {
                interface: Some(interface.to_owned()),
                ..Instance::new("mlx5_3", 2)
            };
            assert_eq!(read(&format!("{interface} 0")), Ok(expected));
        }
        assert!(
            read("eth9 0")
                .expect_err("no such interface")
                .contains("eth9")
        );
    }

    #[test]
    fn invalid_instance_data_are_refused_with_the_text() {
        for wrong in [
            "",
            "mlx5_0",
            "mlx5_0 x",
            "mlx5_0 256",
            "mlx5_0 -1",
            "mlx5_0 1 path",
            "mlx5_0 01",
        ] {
            let cause = read(wrong).expect_err("not of the form");
            assert!(cause.contains(wrong), "{cause}");
        }
    }
}
