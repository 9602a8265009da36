//! Sends numbered messages to `srq_server`, some of them in flight at a time.
//! `examples/c/srq_client.c` is the same in C.
//!
//! `cargo run --example srq_client -- [HOST [ADAPTER [QUALIFIER [MESSAGES]]]]`

use std::env;
use std::error::Error;
use std::net::ToSocketAddrs;
use std::time::Duration;

use dat_api::safe::{Adapter, EndpointOptions, EventDispatcher};
use dat_api::types::{
    CompletionFlags, ConnectionKind, DtoStatus, EvdFlags, EventData, MemPrivileges,
};

const IN_FLIGHT: u64 = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = env::args().skip(1);
    let host = words.next().unwrap_or_else(|| "127.0.0.1".into());
    let name = words.next().unwrap_or_else(|| "mlx5_0".into());
    let qualifier = words.next().map_or(Ok(18515), |word| word.parse())?;
    let count: u64 = words.next().map_or(Ok(1000), |word| word.parse())?;
    let server = (host.as_str(), 0)
        .to_socket_addrs()?
        .next()
        .ok_or("the host has no address")?;

    let adapter = Adapter::open(&name)?;
    let zone = adapter.zone()?;
    let memory = zone.memory(IN_FLIGHT as usize * 8, MemPrivileges::LOCAL_READ)?;
    let sent = adapter.dispatcher(IN_FLIGHT as u32, EvdFlags::DTO)?;
    let connection = adapter.dispatcher(8, EvdFlags::CONNECTION)?;
    let mut endpoint = zone.endpoint(&EndpointOptions {
        recv: None,
        request: Some(&sent),
        connect: Some(&connection),
        shared: None,
        attributes: None,
    })?;
    endpoint.connect(server, qualifier, Some(Duration::from_secs(5)), &[])?;
    expect(&connection, ConnectionKind::Established)?;

    for number in 0..count {
        if number >= IN_FLIGHT {
            completed(&sent)?;
        }
        let at = (number % IN_FLIGHT) as usize * 8;
        memory.write(at, &number.to_le_bytes());
        let segment = memory.segment(at..at + 8);
        endpoint.post_send(&[segment], number, CompletionFlags::empty())?;
    }
    for _ in 0..count.min(IN_FLIGHT) {
        completed(&sent)?;
    }
    endpoint.disconnect(true)?;
    expect(&connection, ConnectionKind::Disconnected)?;
    println!("{count} messages sent");
    Ok(())
}

fn completed(sent: &EventDispatcher) -> Result<(), Box<dyn Error>> {
    match sent.wait(None)?.data {
        EventData::Dto {
            status: DtoStatus::Success,
            ..
        } => Ok(()),
        other => Err(format!("a send failed: {other:?}").into()),
    }
}

fn expect(events: &EventDispatcher, expected: ConnectionKind) -> Result<(), Box<dyn Error>> {
    match events.wait(None)?.data {
        EventData::Connection { kind, .. } if kind == expected => Ok(()),
        other => Err(format!("{other:?} instead of {expected:?}").into()),
    }
}
