//! Shared by the examples: options, waiting, and error messages with remedies.
#![allow(dead_code, reason = "each example uses a part of it")]

mod remedy;

use std::error::Error;
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser};
use dat_api::safe::{Endpoint, EventDispatcher};
use dat_api::types::{ConnectionKind, Event, EventData};
use dat_api::{DatError, DatReturn, ReturnType};

/// Bytes of a cache line. Data that different sides write lie in different cache
/// lines, so that no line moves between processors needlessly.
pub(crate) const LINE: usize = 64;

/// The last line of every help text.
pub(crate) const STATUSES: &str = "Exit status: 0 good, 1 usage, 2 the environment does not allow \
                                   it, 3 the run failed.";

/// How long a client tries to connect.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Options of every example.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// Adapter: DEVICE, DEVICE-PORT, or an entry of dat.conf
    #[arg(short = 'd', long, default_value = "mlx5_0")]
    pub(crate) adapter: String,
    /// Connection qualifier of the server; 1024 to 65535 is a port
    #[arg(short = 'p', long, default_value_t = 18515, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) port: u64,
}

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// Parses the options and runs the example. Prints a failure with its remedy.
/// [`STATUSES`] lists the exit statuses.
pub(crate) fn main<O: Parser>(run: impl FnOnce(O) -> Outcome<()>) -> ExitCode {
    let options = match O::try_parse() {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::from(1)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let Err(error) = run(options) else {
        return ExitCode::SUCCESS;
    };
    eprintln!("error: {error}");
    let code = match error.downcast_ref::<DatError>() {
        Some(error) => Some(error.code()),
        None => error.downcast_ref::<DatReturn>().copied(),
    };
    match code.and_then(DatReturn::kind).and_then(remedy::of) {
        Some(step) => {
            eprintln!("next: {step}");
            ExitCode::from(2)
        }
        None => ExitCode::from(3),
    }
}

/// Waits for the next event; retries after a signal.
pub(crate) fn wait(events: &EventDispatcher) -> Result<Event, DatReturn> {
    loop {
        match events.wait(None) {
            Err(code) if code.is(ReturnType::InterruptedCall) => {}
            taken => return taken,
        }
    }
}

/// Connects, with private data.
pub(crate) fn connect(
    endpoint: &mut Endpoint,
    connections: &EventDispatcher,
    host: &str,
    port: u64,
    private_data: &[u8],
) -> Outcome<()> {
    endpoint.connect(address_of(host)?, port, Some(TIMEOUT), private_data)?;
    match wait(connections)?.data {
        EventData::Connection {
            kind: ConnectionKind::Established,
            ..
        } => Ok(()),
        EventData::Connection { kind, .. } => Err(refused(kind, host, port).into()),
        other => Err(format!("expected an established connection, got {other:?}").into()),
    }
}

pub(crate) fn address_of(host: &str) -> Outcome<SocketAddr> {
    let found = (host, 0).to_socket_addrs().map(|mut all| all.next());
    match found {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(format!("cannot resolve {host}: no address").into()),
        Err(error) => Err(format!("cannot resolve {host}: {error}").into()),
    }
}

/// Returns why a connection failed, and the remedy.
pub(crate) fn refused(kind: ConnectionKind, host: &str, port: u64) -> String {
    match kind {
        ConnectionKind::PeerRejected => {
            format!("the server at {host} accepts no more clients: wait, or start it for more")
        }
        ConnectionKind::NonPeerRejected => format!(
            "no server listens at {host} on {port}: start the server first, with the same -p (and \
             under mlx5-emu on the same fabric)"
        ),
        ConnectionKind::Unreachable | ConnectionKind::TimedOut => format!(
            "no answer from {host}: check that its adapter is up, and that both sides connect \
             alike (DAT_CM)"
        ),
        other => format!("the connection failed: {other:?}"),
    }
}

/// Waits for the next connection event, and fails if it is not the expected one.
pub(crate) fn expect(connections: &EventDispatcher, expected: ConnectionKind) -> Outcome<()> {
    match wait(connections)?.data {
        EventData::Connection { kind, .. } if kind == expected => Ok(()),
        other => Err(format!("{other:?} instead of {expected:?}").into()),
    }
}
