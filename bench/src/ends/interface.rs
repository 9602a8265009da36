//! The measured interfaces: opening them and connecting their ends.
//!
//! Each interface implements [`Interface`] with its own type of end. A command
//! that runs several interfaces in turns keeps them as trait objects of its own,
//! which [`Boxing`] makes. Their methods are called once per pass; the loops
//! behind them are compiled for each interface.

use super::c;
use super::device_port::DevicePort;
use super::engine::{Engine, EngineRdmaCm};
use super::link::End;
use super::rust;
use super::setup::Setup;
use crate::cli::{Api, RunArgs};
use crate::exchange::Peer;
use crate::failure::Failure;
use crate::udapl::v1::Libdat;

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Measures; connects to the server.
    Client,
    /// Answers messages.
    Server,
}

/// An open interface.
pub(crate) trait Interface {
    /// One end of a connection.
    type End: End + 'static;

    /// Creates and connects two ends in this process: the client's and the server's.
    fn connect_pair(&self, setup: &Setup) -> Result<(Self::End, Self::End), Failure>;

    /// Creates one end and connects it to that of the other process, which calls
    /// this with the other role.
    fn connect_end(&self, setup: &Setup, peer: &mut Peer, role: Role)
    -> Result<Self::End, Failure>;
}

/// Makes the trait object with which a command keeps an open interface.
pub(crate) trait Boxing {
    /// The trait object.
    type Boxed;

    fn boxed<I: Interface + 'static>(&self, interface: I) -> Self::Boxed;
}

/// Opens an interface, which may start threads. `waits`: DAT's events are taken by
/// waits.
pub(super) fn open<B: Boxing>(
    api: Api,
    libdat: Option<&Libdat>,
    device_port: &DevicePort,
    args: &RunArgs,
    waits: bool,
    boxing: &B,
) -> Result<B::Boxed, Failure> {
    Ok(match (api, waits) {
        (Api::Engine, _) if device_port.is_iwarp() => {
            boxing.boxed(EngineRdmaCm::open(device_port, args)?)
        }
        (Api::Engine, _) => boxing.boxed(Engine::open(device_port, args)?),
        (Api::Rust, false) => boxing.boxed(rust::RustInterface::<false>::open(device_port)?),
        (Api::Rust, true) => boxing.boxed(rust::RustInterface::<true>::open(device_port)?),
        (Api::C, waits) => {
            let libdat = libdat.expect("loaded, because --api has c");
            if waits {
                boxing.boxed(c::CInterface::<true>::open(libdat, device_port)?)
            } else {
                boxing.boxed(c::CInterface::<false>::open(libdat, device_port)?)
            }
        }
    })
}
