//! The connection tests: two sides connect, move data both ways by every operation, and compare
//! every byte.
//!
//! | file | content |
//! | --- | --- |
//! | `side.rs` | one side: its endpoint, memory, and waits |
//! | `rounds.rs` | the transfers, and the messages that steer them |
//! | `failure.rs` | what went wrong, and the next step |

mod failure;
mod rounds;
mod side;

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use dat_api::safe::{Adapter, ServicePoint};

use crate::cli::{Cli, Test};
use crate::problem::Problem;
use crate::report::{self, Outcome, Transfer};

use self::failure::{Failure, Sides};
use self::side::Side;

type Result<T, E = Failure> = core::result::Result<T, E>;

pub(crate) fn run(test: &Test, adapter: &Adapter, cli: &Cli) -> report::Test {
    let deadline = Instant::now() + cli.limit();
    let mut report = blank(test);
    report.qualifier = (*test != Test::Loopback).then_some(cli.port);
    let mut transfers = Vec::new();
    let ended = match test {
        Test::Loopback => loopback(adapter, deadline, &mut transfers),
        Test::Listen => listen(adapter, cli, deadline, &mut transfers),
        Test::Connect(host) => connect(adapter, host, cli.port, deadline, &mut transfers),
    };
    if adapter.query().ia.max_rdma_read_per_ep_out == 0 {
        report
            .notes
            .push("the device issues no RDMA reads".to_owned());
    }
    report.transfers = transfers;
    match ended {
        Ok(()) => report.result = Outcome::Ok,
        Err(failure) => report.problem = Some(failure.problem),
    }
    report
}

/// Returns the report of a test for which no adapter can be used.
pub(crate) fn not_run(test: &Test) -> report::Test {
    report::Test {
        problem: Some(Problem::new(
            "the adapter cannot be used",
            "do what the adapter's report says, then run the test again",
        )),
        run: false,
        ..blank(test)
    }
}

fn blank(test: &Test) -> report::Test {
    let (kind, host) = match test {
        Test::Loopback => ("loopback", None),
        Test::Listen => ("listen", None),
        Test::Connect(host) => ("connect", Some(host.clone())),
    };
    report::Test {
        kind,
        result: Outcome::Problem,
        run: true,
        host,
        qualifier: None,
        transfers: Vec::new(),
        problem: None,
        notes: Vec::new(),
    }
}

/// Connects an adapter to itself, with a thread for the passive side.
fn loopback(adapter: &Adapter, deadline: Instant, transfers: &mut Vec<Transfer>) -> Result<()> {
    let stop = AtomicBool::new(false);
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let stop = &stop;
        // The thread owns the sender, so that its end is noticed.
        let passive = scope.spawn(move || {
            let mut side = Side::new(adapter, Sides::OneProcess, deadline)?;
            let point = adapter.listen_any(side.connections())?;
            // Fails only if the other side has failed, and then `stop` is set.
            let _ = tell.send(point.qualifier());
            serve(&mut side, point, stop, &mut Vec::new())
        });
        let mut active = || {
            let mut side = Side::new(adapter, Sides::OneProcess, deadline)?;
            let qualifier = told.recv_timeout(side.remaining());
            let qualifier = qualifier.map_err(|_| Failure::ended(Sides::OneProcess))?;
            use_peer(&mut side, adapter.address(), qualifier, transfers)
        };
        let active = active();
        stop.store(active.is_err(), Ordering::Release);
        let passive = match passive.join() {
            Ok(passive) => passive,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        match (active, passive) {
            (Ok(()), passive) => passive,
            // What the other side did is the cause.
            (Err(active), Err(passive)) if active.consequence => Err(passive),
            (Err(active), _) => Err(active),
        }
    })
}

fn listen(
    adapter: &Adapter,
    cli: &Cli,
    deadline: Instant,
    transfers: &mut Vec<Transfer>,
) -> Result<()> {
    let mut side = Side::new(adapter, Sides::TwoProcesses, deadline)?;
    let point = adapter.listen(cli.port, side.connections())?;
    let address = adapter.address().ip();
    let port = match cli.port {
        18515 => String::new(),
        other => format!(" --port {other}"),
    };
    let place = match address.is_loopback() {
        true => "in another process of this host",
        false => "on the other host",
    };
    let waiting = format!(
        "listening as {address}, qualifier {}, for {} s; {place}: dat-check{port} --connect {address} \
         [NAME]\n",
        cli.port,
        cli.limit().as_secs()
    );
    // A closed stream must not end the test.
    let _ = match cli.json {
        true => io::stderr().write_all(waiting.as_bytes()),
        false => io::stdout()
            .write_all(waiting.as_bytes())
            .and_then(|()| io::stdout().flush()),
    };
    serve(&mut side, point, &AtomicBool::new(false), transfers)
}

fn connect(
    adapter: &Adapter,
    host: &str,
    qualifier: u64,
    deadline: Instant,
    transfers: &mut Vec<Transfer>,
) -> Result<()> {
    let own = adapter.address();
    let addresses = (host, 0)
        .to_socket_addrs()
        .map(Iterator::collect::<Vec<_>>)
        .map_err(|error| {
            Problem::new(
                format!("the host {host} has no known address: {error}"),
                match is_adapter(host) {
                    true => format!(
                        "to connect the adapter to itself, write its name first: dat-check {host} \
                         --connect; to connect to another host, write the host's name after --connect"
                    ),
                    false => "use an IP address, or correct /etc/hosts or the name server".to_owned(),
                },
            )
        })?;
    let same_family = addresses.iter().find(|one| one.is_ipv4() == own.is_ipv4());
    let Some(&address) = same_family.or(addresses.first()) else {
        let text = format!("the host {host} has no address");
        return Err(Problem::new(text, "use an IP address").into());
    };
    let mut side = Side::new(adapter, Sides::TwoProcesses, deadline)?;
    use_peer(&mut side, address, qualifier, transfers)
}

fn is_adapter(name: &str) -> bool {
    let entries = dat_api::registry::read_conf().conf.entries;
    let devices = dat_api::registry::device_names().unwrap_or_default();
    entries.iter().any(|entry| entry.name == name) || devices.iter().any(|device| device == name)
}

/// Runs the passive side.
fn serve(
    side: &mut Side,
    point: ServicePoint,
    stop: &AtomicBool,
    transfers: &mut Vec<Transfer>,
) -> Result<()> {
    let peer = side.accept(stop)?;
    drop(point);
    side.move_data(&peer, false, transfers)?;
    side.await_disconnect();
    Ok(())
}

/// Runs the active side.
fn use_peer(
    side: &mut Side,
    address: SocketAddr,
    qualifier: u64,
    transfers: &mut Vec<Transfer>,
) -> Result<()> {
    let peer = side.connect(address, qualifier)?;
    side.move_data(&peer, true, transfers)?;
    side.disconnect();
    Ok(())
}
