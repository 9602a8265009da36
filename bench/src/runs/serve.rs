//! The server of a run: waits for clients and answers them, with `--persist` one
//! after another; and what each side does with the other's failure.

use std::time::Duration;

use dat_engine::cm::ListenOn;

use super::watchdog::Stop;
use crate::exchange::{ClientListener, ControlPort, Options, Peer};
use crate::failure::Failure;
use crate::options::RunArgs;
use crate::output;
use crate::report::DeviceFacts;

/// How long to wait for the other side's failure after one on this side.
const REMOTE_FAILURE_WAIT: Duration = Duration::from_millis(500);

/// What a server does for its clients.
pub(crate) struct Server<'a> {
    pub(crate) args: &'a RunArgs,
    pub(crate) facts: DeviceFacts,
    /// The options that a client must have.
    pub(crate) options: Options,
    pub(crate) listen: ListenOn,
    /// Timeout for messages of the client.
    pub(crate) timeout: Duration,
}

impl Server<'_> {
    /// Waits for a client, connects to it and answers it, with `--persist` one
    /// client after another. Reports every connection that is not a client with the
    /// same options. If `connect` fails, the server waits for another client.
    pub(crate) fn run<C>(
        self,
        mut connect: impl FnMut(Peer) -> Result<C, Failure>,
        mut answer: impl FnMut(C) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let args = self.args;
        let control_port = ControlPort::open(self.listen, args.port)?;
        output::line(format_args!(" {}", self.facts.emulation_note()))?;
        output::line(format_args!(
            " waiting on TCP port {} for a client, {}; no client is authenticated",
            control_port.port()?,
            control_port.addresses()
        ))?;
        let mut listener = ClientListener::new(control_port, self.options, self.timeout);
        let mut served = 0_u64;
        let mut still_waiting = |cause: &str| output::line(format_args!(" {cause}; still waiting"));
        loop {
            let Some(peer) = listener.wait(args.timeout, &mut still_waiting)? else {
                return no_client_came(args.timeout.unwrap_or_default(), served);
            };
            let name = peer.name().to_owned();
            output::line(format_args!(" client {name}"))?;
            let answered = match connect(peer) {
                Ok(connected) => answer(connected),
                // A failure of this host would repeat with every client.
                Err(failure @ Failure::Environment(_)) => Err(failure),
                Err(failure) => {
                    still_waiting(&format!("{name}: {failure}"))?;
                    continue;
                }
            };
            match answered {
                Ok(()) if args.persist => {
                    served += 1;
                    output::line(" done; waiting for the next client")?;
                }
                Err(failure) if args.persist => still_waiting(&format!("{name}: {failure}"))?,
                ended => return ended,
            }
        }
    }
}

/// Ends a server after the timeout for a client.
fn no_client_came(limit: Duration, served: u64) -> Result<(), Failure> {
    let seconds = limit.as_secs_f64();
    if served > 0 {
        return output::line(format_args!(
            " no further client came within {seconds} s; {served} were served"
        ));
    }
    Err(Failure::run(format!(
        "no client came within {seconds} s; start one with this host's name as last argument, or wait longer with --timeout"
    )))
}

/// Returns the other side's failure, if it sends one, with the failure of this
/// side. A failed request is often only the result of a failure on the other
/// side.
pub(crate) fn explain(stop: Stop, peer: &mut Peer) -> Failure {
    match (peer.remote_failure(REMOTE_FAILURE_WAIT), stop) {
        (Some(remote), Stop::ControlMessage) => remote,
        (Some(remote), _) => Failure::run(format!("{remote}\n  on this side: {stop}")),
        (None, _) => Failure::run(stop.to_string()),
    }
}

/// Sends a failure of this side to the other side.
pub(super) fn abort_on_failure<T>(
    peer: &mut Peer,
    result: Result<T, Failure>,
) -> Result<T, Failure> {
    if let Err(failure) = &result {
        peer.abort(&failure.to_string());
    }
    result
}
