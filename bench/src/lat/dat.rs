//! What the two faces of DAT have in common, and the engine on iWARP with them:
//! how two ends find each other by connections that carry private data, DAT's
//! own or rdma_cm's.
//!
//! ```text
//! server (or the far end)                   client (or the near end)
//!   service point on a free qualifier
//!   ── address, qualifier (over TCP, or known) ──►
//!   ◄────────── connect, private data: window ──
//!   accept, private data: window ───────────────►
//!   established                               established
//! ```
//!
//! Windows travel as private data: where the peer may read and write.

use std::net::SocketAddr;
use std::time::Duration;

use dat_api::safe::RemoteSegment;

use super::link::End;
use super::payload::Payload;
use super::plan::Plan;
use super::way::{Role, Way};
use crate::exchange::{Peer, Service};
use crate::failure::Failure;

/// How long one DAT wait may be before the loop looks up: long against any
/// message, short against anybody's patience.
pub(super) const SLICE: Duration = Duration::from_millis(50);

/// A face of DAT, or the engine on iWARP, opened. Control calls only.
pub(super) trait Dat {
    /// An end, and its queues of events.
    type End: DatEnd;
    /// A service point.
    type Door: Door<Self::End>;

    /// Where peers reach the adapter.
    fn address(&self) -> Result<SocketAddr, Failure>;

    /// Makes an end: memory, queues, endpoint, receives posted.
    fn end(&self, plan: &Plan) -> Result<Self::End, Failure>;

    /// Opens a service point on a qualifier that is free.
    fn listen(&self) -> Result<Self::Door, Failure>;
}

/// An endpoint with its memory.
pub(super) trait DatEnd: End {
    /// The memory of this side as the other side names it.
    fn window(&self) -> RemoteSegment;

    /// Takes the memory of the other side.
    fn face(&mut self, theirs: RemoteSegment);

    /// Begins to connect.
    fn connect(
        &mut self,
        to: SocketAddr,
        qualifier: u64,
        within: Duration,
        private_data: &[u8],
    ) -> Result<(), Failure>;

    /// Waits until it is connected; what the accepting side sent along, which
    /// only the connecting side is told.
    fn established(&mut self, within: Duration) -> Result<Vec<u8>, Failure>;
}

/// What the end that accepts makes of the other's private data: its own.
pub(super) type Answer<'a, E> = &'a mut dyn FnMut(&mut E, &[u8]) -> Result<Vec<u8>, Failure>;

/// A service point with the queue of its requests.
pub(super) trait Door<E> {
    /// What it listens on.
    fn qualifier(&self) -> u64;

    /// Waits for a request, and accepts it by `answer`, which is given the
    /// private data and answers the end's.
    fn accept(self, end: &mut E, within: Duration, answer: Answer<'_, E>) -> Result<(), Failure>;
}

impl<D: Dat> Way for D
where
    D::End: 'static,
{
    type End = D::End;

    fn both(&self, plan: &Plan) -> Result<(D::End, D::End), Failure> {
        let (mut near, mut far) = (self.end(plan)?, self.end(plan)?);
        let door = self.listen()?;
        let window = encode(near.window());
        near.connect(self.address()?, door.qualifier(), plan.limit, &window)?;
        accept(door, &mut far, plan.limit)?;
        established(&mut near, plan.limit, Role::Client)?;
        established(&mut far, plan.limit, Role::Server)?;
        Ok((near, far))
    }

    fn one(&self, plan: &Plan, peer: &mut Peer, role: Role) -> Result<D::End, Failure> {
        let mut end = self.end(plan)?;
        match role {
            Role::Server => {
                let door = self.listen()?;
                // Where it listens, if that is one address; else the adapter's.
                let address = match plan.listen.address() {
                    Some(address) => address,
                    None => self.address()?.ip(),
                };
                peer.offer(Service {
                    address,
                    qualifier: door.qualifier(),
                })?;
                accept(door, &mut end, plan.limit)?;
            }
            Role::Client => {
                let service = peer.await_service()?;
                // A host without an address of its own still has the one by
                // which it answered here.
                let elsewhere = !peer.address().is_loopback();
                let is_ours = service.address.is_loopback() && elsewhere;
                let ip = if is_ours || service.address.is_unspecified() {
                    peer.address()
                } else {
                    service.address
                };
                let window = encode(end.window());
                let to = SocketAddr::new(ip, 0);
                end.connect(to, service.qualifier, plan.limit, &window)?;
            }
        }
        established(&mut end, plan.limit, role)?;
        Ok(end)
    }
}

fn accept<E: DatEnd>(door: impl Door<E>, end: &mut E, within: Duration) -> Result<(), Failure> {
    door.accept(end, within, &mut |end, private_data| {
        face(end, private_data, Role::Server)?;
        Ok(encode(end.window()).to_vec())
    })
}

fn established<E: DatEnd>(end: &mut E, within: Duration, role: Role) -> Result<(), Failure> {
    let private_data = end.established(within)?;
    match role {
        Role::Client => face(end, &private_data, role),
        Role::Server => Ok(()),
    }
}

fn face<E: DatEnd>(end: &mut E, private_data: &[u8], role: Role) -> Result<(), Failure> {
    let theirs = decode(private_data)?;
    end.payload().require(theirs.length)?;
    let (client, server) = (1, 2);
    match role {
        Role::Client => end.payload().name_sides(client, server),
        Role::Server => end.payload().name_sides(server, client),
    }
    end.face(theirs);
    Ok(())
}

/// Bytes of a window among private data.
const WINDOW: usize = 24;
/// Tells a peer of ours from a stranger.
const MARK: [u8; 4] = *b"lat1";

fn encode(window: RemoteSegment) -> [u8; WINDOW] {
    let mut out = [0; WINDOW];
    out[..4].copy_from_slice(&MARK);
    out[4..8].copy_from_slice(&window.context.to_be_bytes());
    out[8..16].copy_from_slice(&window.address.to_be_bytes());
    out[16..].copy_from_slice(&window.length.to_be_bytes());
    out
}

/// A transport may deliver more bytes than were sent.
fn decode(bytes: &[u8]) -> Result<RemoteSegment, Failure> {
    let field = |from: usize, to: usize| bytes.get(from..to);
    let window = || {
        field(0, 4).filter(|mark| *mark == MARK)?;
        Some(RemoteSegment {
            context: u32::from_be_bytes(field(4, 8)?.try_into().ok()?),
            address: u64::from_be_bytes(field(8, 16)?.try_into().ok()?),
            length: u64::from_be_bytes(field(16, WINDOW)?.try_into().ok()?),
        })
    };
    window().ok_or_else(|| {
        Failure::run("who connected is no dat-bench of this version: its private data say nothing")
    })
}

/// Nothing came.
pub(super) fn nobody(what: &str, within: Duration) -> Failure {
    Failure::run(format!(
        "{what} did not come within {} s; is the other side still running, and its address reachable over TCP? (--timeout waits longer)",
        within.as_secs_f64()
    ))
}

/// Where receives go.
pub(super) fn incoming(payload: &Payload) -> core::ops::Range<usize> {
    let start = payload.incoming_offset();
    start..start + payload.largest() as usize
}

/// The local bytes of a request of this size.
pub(super) fn local(payload: &Payload, size: u32) -> core::ops::Range<usize> {
    let start = payload.local_offset();
    start..start + size as usize
}

/// The remote bytes of a request of this size.
pub(super) fn remote(payload: &Payload, theirs: RemoteSegment, size: u32) -> RemoteSegment {
    RemoteSegment {
        context: theirs.context,
        address: theirs.address + payload.remote_offset() as u64,
        length: u64::from(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_survives_the_way_even_padded() {
        let window = RemoteSegment {
            context: 0xdead_beef,
            address: 1 << 40,
            length: 1 << 24,
        };
        let mut bytes = encode(window).to_vec();
        assert_eq!(decode(&bytes).unwrap(), window);
        bytes.resize(512, 0);
        assert_eq!(decode(&bytes).unwrap(), window);
    }

    #[test]
    fn a_strangers_private_data_are_refused() {
        let bytes = encode(RemoteSegment::default());
        assert_eq!(decode(&bytes[..WINDOW - 1]).unwrap_err().status(), 3);
        assert!(decode(b"").is_err());
        assert!(decode(&[0; WINDOW]).is_err());
    }
}
