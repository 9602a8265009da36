//! Settings as text: of variables, options and instance data, and the bytes that `mlx5-emu dump`
//! shows. The first byte chooses.
#![no_main]

use std::ffi::OsString;
use std::fmt::{Debug, Display};
use std::str::FromStr;

use dat_api::options::Options;
use libfuzzer_sys::fuzz_target;
use mlx5emu::config::Config;
use mlx5emu::decode::text::{Form, Kind, bytes_of_hex, dump};
use mlx5emu::faults::FaultSpec;
use mlx5emu::limits::Limits;
use mlx5emu::nasty::Nasty;

/// Settings that are valid mean the same when they are written and read again.
fn read<T>(text: &str)
where
    T: FromStr<Err: Display> + Display + PartialEq + Debug,
{
    match T::from_str(text) {
        Ok(value) => {
            let again = value.to_string();
            // No limit lower than the device's own: nothing to write.
            if !again.is_empty() {
                assert_eq!(T::from_str(&again).ok(), Some(value), "{again}");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    if choice % 8 == 7 {
        let hex = str::from_utf8(rest)
            .ok()
            .and_then(|text| bytes_of_hex(text).ok());
        return show(hex.as_deref().unwrap_or(rest));
    }
    let Ok(text) = str::from_utf8(rest) else {
        return;
    };
    match choice % 8 {
        0 => read::<FaultSpec>(text),
        1 => read::<Limits>(text),
        2 => read::<Nasty>(text),
        3 => {
            let mut options = Options::default();
            for (key, value) in text.split_whitespace().filter_map(|it| it.split_once('=')) {
                if let Err(cause) = options.set(key, value) {
                    assert!(!cause.is_empty());
                }
            }
        }
        _ => {
            let lines: Vec<_> = text.lines().filter_map(|it| it.split_once('=')).collect();
            let find = |name: &str| {
                let name = name.strip_prefix("MLX5EMU_").unwrap_or(name);
                let line = lines.iter().find(|(key, _)| *key == name);
                line.map(|(_, value)| OsString::from(value))
            };
            if let Err(error) = Config::from_lookup(find) {
                assert!(!error.to_string().is_empty());
            }
        }
    }
});

/// Shows bytes as every kind of thing that they may be.
fn show(bytes: &[u8]) {
    for kind in [
        Kind::SendWqe(Form::Connected),
        Kind::SendWqe(Form::Datagram),
        Kind::ReceiveWqe,
        Kind::SharedReceiveWqe,
        Kind::Cqe(64),
        Kind::Cqe(128),
        Kind::Doorbell,
    ] {
        let _ = dump(kind, bytes);
    }
}
