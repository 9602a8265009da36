//! Requests of any bytes, and reports of other processes.

use super::Nldev;
use crate::config::Config;
use crate::fabric::counters::Row;
use crate::fuzz_bytes::Bytes;

/// A report of another process, then requests. Every reply must have the length that it names.
pub fn netlink(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let [devices, ports] = bytes.array();
    let config = Config {
        devices: devices % 5,
        ports: ports % 5,
        ..Config::default()
    };
    let len = bytes.u16() % 1024;
    let report = bytes.take(len.into()).to_vec();
    let nldev = Nldev {
        config: &config,
        port_is_up: &|port| port.port == 1,
        reports: &|| vec![report.clone()],
        counters: &|port| Row::default().map(|_| port.port.into()),
    };
    for reply in nldev.reply(bytes.0, 99) {
        let len = reply.first_chunk().map(|len| u32::from_ne_bytes(*len));
        assert_eq!(len.map(|len| len as usize), Some(reply.len()));
    }
}
