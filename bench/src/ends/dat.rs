//! Connecting two ends by connections with private data: DAT's (for `rust` and
//! `c`), or rdma_cm's (for the engine on iWARP).
//!
//! ```text
//! server (or the far end)                   client (or the near end)
//!   service point on a free qualifier
//!   ── address, qualifier (over TCP, or known) ──►
//!   ◄────────── connect, private data: buffer ──
//!   accept, private data: buffer ───────────────►
//!   established                               established
//! ```
//!
//! The private data have address, length and key of the buffer that the peer
//! may read and write.

use std::net::SocketAddr;
use std::time::Duration;

use dat_api::safe::RemoteSegment;

use super::interface::{Interface, Role};
use super::link::End;
use super::payload::{self, Payload};
use super::setup::Setup;
use crate::exchange::{Peer, Service};
use crate::failure::Failure;

/// Timeout of one DAT wait, after which the loop checks for the end of the run.
/// Much longer than a message takes, and short for a user.
pub(crate) const WAIT_SLICE: Duration = Duration::from_millis(50);

/// An open interface that connects by private data. Control calls only.
pub(crate) trait Dat {
    /// An end with its event queues.
    type End: DatEnd;
    /// A service point.
    type Acceptor: Acceptor<Self::End>;

    /// Returns the address of the adapter.
    fn address(&self) -> Result<SocketAddr, Failure>;

    /// Creates an end: memory, queues and endpoint, with receives posted.
    fn end(&self, setup: &Setup) -> Result<Self::End, Failure>;

    /// Opens a service point on a free qualifier.
    fn listen(&self) -> Result<Self::Acceptor, Failure>;
}

/// An endpoint with its memory.
pub(crate) trait DatEnd: End {
    /// Returns this side's buffer for requests of the other side.
    fn exposed_buffer(&self) -> RemoteSegment;

    /// Sets the other side's buffer.
    fn set_remote_buffer(&mut self, theirs: RemoteSegment);

    /// Requests a connection.
    fn connect(
        &mut self,
        to: SocketAddr,
        qualifier: u64,
        within: Duration,
        private_data: &[u8],
    ) -> Result<(), Failure>;

    /// Waits until the connection is established. Returns the private data of
    /// the accepting side, which only the requesting side receives.
    fn established(&mut self, within: Duration) -> Result<Vec<u8>, Failure>;
}

/// Returns the private data of the accepting end, given those of the request.
pub(crate) type Answer<'a, E> = &'a mut dyn FnMut(&mut E, &[u8]) -> Result<Vec<u8>, Failure>;

/// A service point with the queue of its connection requests.
pub(crate) trait Acceptor<E> {
    /// Returns the connection qualifier.
    fn qualifier(&self) -> u64;

    /// Waits for a request and accepts it with the private data that `answer`
    /// returns.
    fn accept(self, end: &mut E, within: Duration, answer: Answer<'_, E>) -> Result<(), Failure>;
}

impl<D: Dat> Interface for D
where
    D::End: 'static,
{
    type End = D::End;

    fn connect_pair(&self, setup: &Setup) -> Result<(D::End, D::End), Failure> {
        let (mut near, mut far) = (self.end(setup)?, self.end(setup)?);
        let acceptor = self.listen()?;
        let buffer = encode(near.exposed_buffer());
        near.connect(
            self.address()?,
            acceptor.qualifier(),
            setup.timeout,
            &buffer,
        )?;
        accept(acceptor, &mut far, setup.timeout)?;
        established(&mut near, setup.timeout, Role::Client)?;
        established(&mut far, setup.timeout, Role::Server)?;
        Ok((near, far))
    }

    fn connect_end(&self, setup: &Setup, peer: &mut Peer, role: Role) -> Result<D::End, Failure> {
        let mut end = self.end(setup)?;
        match role {
            Role::Server => {
                let acceptor = self.listen()?;
                // The address of `--listen`, if it is a single one, else the adapter's.
                let address = match setup.listen.address() {
                    Some(address) => address,
                    None => self.address()?.ip(),
                };
                peer.send_service(Service {
                    address,
                    qualifier: acceptor.qualifier(),
                })?;
                accept(acceptor, &mut end, setup.timeout)?;
            }
            Role::Client => {
                let service = peer.await_service()?;
                // An adapter without a routable address is reached by the address of
                // the control connection.
                let elsewhere = !peer.address().is_loopback();
                let is_ours = service.address.is_loopback() && elsewhere;
                let ip = if is_ours || service.address.is_unspecified() {
                    peer.address()
                } else {
                    service.address
                };
                let buffer = encode(end.exposed_buffer());
                let to = SocketAddr::new(ip, 0);
                end.connect(to, service.qualifier, setup.timeout, &buffer)?;
            }
        }
        established(&mut end, setup.timeout, role)?;
        Ok(end)
    }
}

fn accept<E: DatEnd>(
    acceptor: impl Acceptor<E>,
    end: &mut E,
    within: Duration,
) -> Result<(), Failure> {
    acceptor.accept(end, within, &mut |end, private_data| {
        use_remote_buffer(end, private_data, Role::Server)?;
        Ok(encode(end.exposed_buffer()).to_vec())
    })
}

fn established<E: DatEnd>(end: &mut E, within: Duration, role: Role) -> Result<(), Failure> {
    let private_data = end.established(within)?;
    match role {
        Role::Client => use_remote_buffer(end, &private_data, role),
        Role::Server => Ok(()),
    }
}

fn use_remote_buffer<E: DatEnd>(
    end: &mut E,
    private_data: &[u8],
    role: Role,
) -> Result<(), Failure> {
    let theirs = decode(private_data)?;
    end.payload().require_length(theirs.length)?;
    let (client, server) = (1, 2);
    match role {
        Role::Client => end.payload().set_side_numbers(client, server),
        Role::Server => end.payload().set_side_numbers(server, client),
    }
    end.set_remote_buffer(theirs);
    Ok(())
}

/// Bytes of an encoded buffer.
const ENCODED_BYTES: usize = 24;
/// Marks the private data of a dat-bench.
const MAGIC: [u8; 4] = *b"lat1";

fn encode(buffer: RemoteSegment) -> [u8; ENCODED_BYTES] {
    let mut out = [0; ENCODED_BYTES];
    out[..4].copy_from_slice(&MAGIC);
    out[4..8].copy_from_slice(&buffer.context.to_be_bytes());
    out[8..16].copy_from_slice(&buffer.address.to_be_bytes());
    out[16..].copy_from_slice(&buffer.length.to_be_bytes());
    out
}

/// Decodes a buffer. More bytes may follow, because a transport may pad private
/// data.
fn decode(bytes: &[u8]) -> Result<RemoteSegment, Failure> {
    let field = |from: usize, to: usize| bytes.get(from..to);
    let buffer = || {
        field(0, 4).filter(|magic| *magic == MAGIC)?;
        Some(RemoteSegment {
            context: u32::from_be_bytes(field(4, 8)?.try_into().ok()?),
            address: u64::from_be_bytes(field(8, 16)?.try_into().ok()?),
            length: u64::from_be_bytes(field(16, ENCODED_BYTES)?.try_into().ok()?),
        })
    };
    buffer().ok_or_else(|| {
        Failure::run("the connected peer is not a dat-bench of this version: its private data are of another format; use the same build on both sides")
    })
}

/// Returns the range of the buffer that receives use.
pub(crate) fn incoming(payload: &Payload) -> core::ops::Range<usize> {
    let start = payload.incoming_offset();
    start..start + payload.largest() as usize
}

/// Returns the local range of a request of this size.
pub(crate) fn local(payload: &Payload, size: u32) -> core::ops::Range<usize> {
    let start = payload.local_offset();
    start..start + size as usize
}

/// Returns the remote range of a request of this size.
pub(crate) fn remote(payload: &Payload, theirs: RemoteSegment, size: u32) -> RemoteSegment {
    RemoteSegment {
        context: theirs.context,
        address: theirs.address + payload.remote_offset() as u64,
        length: u64::from(size),
    }
}

pub(crate) fn local_grant(payload: &Payload) -> core::ops::Range<usize> {
    let start = payload.our_grant();
    start..start + payload::GRANT
}

/// Returns the remote range of a grant.
pub(crate) fn remote_grant(payload: &Payload, theirs: RemoteSegment) -> RemoteSegment {
    RemoteSegment {
        context: theirs.context,
        address: theirs.address + payload.their_grant() as u64,
        length: payload::GRANT as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_decodes_to_what_was_encoded_with_padding_too() {
        let buffer = RemoteSegment {
            context: 0xdead_beef,
            address: 1 << 40,
            length: 1 << 24,
        };
        let mut bytes = encode(buffer).to_vec();
        assert_eq!(decode(&bytes).unwrap(), buffer);
        bytes.resize(512, 0);
        assert_eq!(decode(&bytes).unwrap(), buffer);
    }

    #[test]
    fn private_data_of_another_format_are_refused() {
        let bytes = encode(RemoteSegment::default());
        assert_eq!(decode(&bytes[..ENCODED_BYTES - 1]).unwrap_err().status(), 3);
        assert!(decode(b"").is_err());
        assert!(decode(&[0; ENCODED_BYTES]).is_err());
    }
}
