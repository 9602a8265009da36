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

use super::end::End;
use super::interface::{Connected, Interface, Pair, RemoteInterface, Role, Shape};
use crate::exchange::{Peer, Service};
use crate::failure::Failure;

/// An open API that connects by private data. Control calls only.
pub(crate) trait Dat {
    /// An end with its event queues.
    type End<const SHARED: bool>: End + 'static;
    /// A service point with the queue of its connection requests.
    type Acceptor;

    /// Returns the address of the adapter.
    fn address(&self) -> Result<SocketAddr, Failure>;

    /// Creates an end: memory, queues and endpoint.
    fn end<const SHARED: bool>(&self, shape: &Shape) -> Result<Self::End<SHARED>, Failure>;

    /// Opens a service point on a free qualifier, which is returned too.
    fn listen(&self) -> Result<(Self::Acceptor, u64), Failure>;

    /// Waits for a request and accepts it with this private data. Returns those of the request.
    fn accept<const SHARED: bool>(
        &self,
        acceptor: Self::Acceptor,
        end: &mut Self::End<SHARED>,
        within: Duration,
        private_data: &[u8],
    ) -> Result<Vec<u8>, Failure>;

    /// Requests a connection.
    fn connect<const SHARED: bool>(
        &self,
        end: &mut Self::End<SHARED>,
        to: (SocketAddr, u64),
        within: Duration,
        private_data: &[u8],
    ) -> Result<(), Failure>;

    /// Waits until the connection is established. Returns the private data of
    /// the accepting side, which only the requesting side receives.
    fn established<const SHARED: bool>(
        &self,
        end: &mut Self::End<SHARED>,
        within: Duration,
    ) -> Result<Vec<u8>, Failure>;
}

impl<D: Dat> Interface for D {
    type End<const SHARED: bool> = D::End<SHARED>;

    fn connect_pair<const SHARED: bool>(&self, shape: &Shape) -> Result<Pair<D, SHARED>, Failure> {
        let (mut near, mut far) = (create::<D, SHARED>(self, shape)?, create(self, shape)?);
        let within = shape.timeout;
        let (acceptor, qualifier) = self.listen()?;
        let buffers = [&near, &far].map(|end| encode(end.exposed_buffer()));
        let to = (self.address()?, qualifier);
        self.connect(&mut near, to, within, &buffers[0])?;
        let of_near = self.accept(acceptor, &mut far, within, &buffers[1])?;
        let of_far = self.established(&mut near, within)?;
        self.established(&mut far, within)?;
        Ok([
            connected(near, &of_far, Role::Client)?,
            connected(far, &of_near, Role::Server)?,
        ])
    }
}

impl<D: Dat> RemoteInterface for D {
    fn connect_end(
        &self,
        shape: &Shape,
        peer: &mut Peer,
        role: Role,
    ) -> Result<Connected<D::End<false>>, Failure> {
        let (mut end, within) = (create::<D, false>(self, shape)?, shape.timeout);
        let buffer = encode(end.exposed_buffer());
        let theirs = match role {
            Role::Server => {
                let (acceptor, qualifier) = self.listen()?;
                // The address of `--listen`, if it is a single one, else the adapter's.
                let address = match shape.listen.address() {
                    Some(address) => address,
                    None => self.address()?.ip(),
                };
                peer.send_service(Service { address, qualifier })?;
                let theirs = self.accept(acceptor, &mut end, within, &buffer)?;
                self.established(&mut end, within)?;
                theirs
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
                let to = (SocketAddr::new(ip, 0), service.qualifier);
                self.connect(&mut end, to, within, &buffer)?;
                self.established(&mut end, within)?
            }
        };
        connected(end, &theirs, role)
    }
}

/// Creates an end with its receives posted.
fn create<D: Dat, const SHARED: bool>(dat: &D, shape: &Shape) -> Result<D::End<SHARED>, Failure> {
    let mut end = dat.end(shape)?;
    shape.post_receives(&mut end)?;
    Ok(end)
}

fn connected<E>(end: E, private_data: &[u8], role: Role) -> Result<Connected<E>, Failure> {
    let (client, server) = (1, 2);
    Ok(Connected {
        end,
        theirs: decode(private_data)?,
        numbers: match role {
            Role::Client => [client, server],
            Role::Server => [server, client],
        },
    })
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
