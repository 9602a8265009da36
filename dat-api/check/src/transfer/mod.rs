//! The connection tests: two sides connect, move data both ways by every operation, and compare
//! every byte. The example `operations` has the code that moves the data.
//!
//! | file | content |
//! | --- | --- |
//! | `failure.rs` | what went wrong, and the next step |
//! | `examples/operations/side.rs` | one side: its endpoint, memory, and waits |
//! | `examples/operations/rounds.rs` | the transfers, and the messages that steer them |

mod failure;
#[path = "../../../../examples/operations/rounds.rs"]
mod rounds;
#[path = "../../../../examples/operations/side.rs"]
mod side;

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Instant;

use dat_api::safe::Adapter;

use crate::cli::{Cli, QUALIFIER, Test};
use crate::problem::Problem;
use crate::report::{self, Outcome, Transfer};

use self::failure::Attempt;
use self::rounds::Round;
use self::side::Side;

/// Runs a test, unless there is no adapter that can be used.
pub(crate) fn run(test: &Test, adapter: Option<&Adapter>, cli: &Cli) -> report::Test {
    let (kind, host) = match test {
        Test::Loopback => ("loopback", None),
        Test::Listen => ("listen", None),
        Test::Connect(host) => ("connect", Some(host.clone())),
    };
    let mut report = report::Test {
        kind,
        host,
        run: adapter.is_some(),
        ..report::Test::default()
    };
    let Some(adapter) = adapter else {
        report.problem = Some(Problem::new(
            "the adapter cannot be used",
            "do what the adapter's report says, then run the test again",
        ));
        return report;
    };
    let mut done = Vec::new();
    match moved(test, adapter, cli, &mut done) {
        Ok(()) => report.result = Outcome::Ok,
        Err(problem) => report.problem = Some(problem),
    }
    if adapter.query().ia.max_rdma_read_per_ep_out == 0 {
        let note = "the device issues no RDMA reads";
        report.notes.push(note.to_owned());
    }
    report.qualifier = (*test != Test::Loopback).then_some(cli.port);
    let transfer = |Round { operation, bytes }| Transfer {
        operation: operation.name(),
        bytes,
    };
    report.transfers = done.into_iter().map(transfer).collect();
    report
}

fn moved(test: &Test, adapter: &Adapter, cli: &Cli, done: &mut Vec<Round>) -> Result<(), Problem> {
    let deadline = Instant::now() + cli.limit();
    let (address, mut qualifier) = match test {
        Test::Connect(host) => (resolve(host, adapter.address())?, cli.port),
        Test::Loopback | Test::Listen => (adapter.address(), cli.port),
    };
    let mut move_all = || {
        let mut side = Side::new(adapter, deadline)?;
        match test {
            Test::Connect(_) => rounds::active(&mut side, address, qualifier, done),
            Test::Listen => {
                let point = adapter.listen(qualifier, side.connections())?;
                announce(address.ip(), cli);
                rounds::passive(&mut side, point, done)
            }
            Test::Loopback => {
                let mut sides = [side, Side::new(adapter, deadline)?];
                let point = adapter.listen_any(sides[1].connections())?;
                qualifier = point.qualifier();
                sides[0].request(address, qualifier)?;
                sides[1].accept()?;
                for side in &mut sides {
                    side.establish()?;
                }
                rounds::move_data(&mut sides, done)?;
                sides[0].disconnect();
                Ok(())
            }
        }
    };
    let ended = move_all();
    let provider = adapter.query().provider.provider_specific_attributes;
    let manager = provider.into_iter().find(|one| one.name == "cm");
    let attempt = Attempt {
        to: match test {
            Test::Listen => "the peer".to_owned(),
            _ => format!("{}, qualifier {qualifier},", address.ip()),
        },
        manager: manager.map_or_else(String::new, |one| one.value),
        fabric: crate::system::emulated_fabric(),
        alone: *test == Test::Loopback,
    };
    ended.map_err(|failure| attempt.problem(&failure))
}

/// Says how the other side connects.
fn announce(address: IpAddr, cli: &Cli) {
    let port = match cli.port {
        QUALIFIER => String::new(),
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
}

/// Returns the address of a host, of the family of the adapter's own if it has one.
fn resolve(host: &str, own: SocketAddr) -> Result<SocketAddr, Problem> {
    let addresses: Vec<_> = match (host, 0).to_socket_addrs() {
        Ok(found) => found.collect(),
        Err(error) => {
            let next = match is_adapter(host) {
                true => &format!(
                    "to connect the adapter to itself, write its name first: dat-check {host} --connect; \
                     to connect to another host, write the host's name after --connect"
                ),
                false => "use an IP address, or correct /etc/hosts or the name server",
            };
            let text = format!("the host {host} has no known address: {error}");
            return Err(Problem::new(text, next));
        }
    };
    let same_family = addresses.iter().find(|one| one.is_ipv4() == own.is_ipv4());
    let found = same_family.or(addresses.first()).copied();
    found.ok_or_else(|| {
        Problem::new(
            format!("the host {host} has no address"),
            "use an IP address",
        )
    })
}

fn is_adapter(name: &str) -> bool {
    let entries = dat_api::registry::read_conf().conf.entries;
    let devices = dat_api::registry::device_names().unwrap_or_default();
    entries.iter().any(|entry| entry.name == name) || devices.iter().any(|device| device == name)
}
