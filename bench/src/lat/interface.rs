//! The measured interfaces: opening them, connecting their ends, and running
//! passes on them.
//!
//! Each interface implements [`Interface`] with its own type of end. Callers that run
//! several interfaces in turns use the trait objects [`OpenInterface`], [`LocalPair`] and
//! [`RemoteSide`], whose methods are called once per pass; the loops behind them
//! are compiled for each interface.

use super::c;
use super::device_port::DevicePort;
use super::engine::{Engine, EngineRdmaCm};
use super::link::End;
use super::loopback::Loopback;
use super::plan::{Pass, Plan, Recording};
use super::rust;
use super::side::Side;
use crate::cli::{Api, LatArgs};
use crate::exchange::Peer;
use crate::failure::Failure;
use crate::udapl::v1::Libdat;

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Measures; connects to the server.
    Client,
    /// Answers messages.
    Server,
}

/// An open interface.
pub(super) trait Interface {
    /// One end of a connection.
    type End: End + 'static;

    /// Creates and connects two ends in this process: the client's and the server's.
    fn connect_pair(&self, plan: &Plan) -> Result<(Self::End, Self::End), Failure>;

    /// Creates one end and connects it to that of the other process, which calls
    /// this with the other role.
    fn connect_end(&self, plan: &Plan, peer: &mut Peer, role: Role) -> Result<Self::End, Failure>;
}

/// An open interface as a trait object.
pub(super) trait OpenInterface {
    fn connect_local(&self, plan: &Plan) -> Result<Box<dyn LocalPair>, Failure>;
    fn connect_remote(
        &self,
        plan: &Plan,
        peer: &mut Peer,
        role: Role,
    ) -> Result<Box<dyn RemoteSide>, Failure>;
}

/// Two connected sides in this thread, as a trait object.
pub(super) trait LocalPair {
    /// Measures one pass.
    fn measure(
        &mut self,
        pass: Pass,
        plan: &Plan,
        recording: &mut Recording,
    ) -> Result<(), Failure>;
}

/// One side, connected to another process, as a trait object.
pub(super) trait RemoteSide {
    /// Measures one pass, as the client.
    fn measure(
        &mut self,
        pass: Pass,
        plan: &Plan,
        peer: &mut Peer,
        recording: &mut Recording,
    ) -> Result<(), Failure>;

    /// Answers one pass, as the server. Returns the number of messages.
    fn answer(&mut self, pass: Pass, plan: &Plan, peer: &mut Peer) -> Result<u64, Failure>;
}

impl<W: Interface> OpenInterface for W {
    fn connect_local(&self, plan: &Plan) -> Result<Box<dyn LocalPair>, Failure> {
        let (near, far) = self.connect_pair(plan)?;
        Ok(Box::new(Loopback::new(near, far, plan)))
    }

    fn connect_remote(
        &self,
        plan: &Plan,
        peer: &mut Peer,
        role: Role,
    ) -> Result<Box<dyn RemoteSide>, Failure> {
        let end = self.connect_end(plan, peer, role)?;
        Ok(Box::new(Side::new(end, plan.tx_depth)))
    }
}

/// Opens an interface, which may start threads.
pub(super) fn open(
    api: Api,
    libdat: Option<&Libdat>,
    device_port: &DevicePort,
    args: &LatArgs,
) -> Result<Box<dyn OpenInterface>, Failure> {
    Ok(match (api, args.wait.is_some()) {
        (Api::Engine, _) if device_port.is_iwarp() => {
            Box::new(EngineRdmaCm::open(device_port, args)?)
        }
        (Api::Engine, _) => Box::new(Engine::open(device_port, args)?),
        (Api::Rust, false) => Box::new(rust::RustInterface::<false>::open(device_port)?),
        (Api::Rust, true) => Box::new(rust::RustInterface::<true>::open(device_port)?),
        (Api::C, waits) => {
            let libdat = libdat.expect("loaded, because --api has c");
            if waits {
                Box::new(c::CInterface::<true>::open(libdat, device_port)?)
            } else {
                Box::new(c::CInterface::<false>::open(libdat, device_port)?)
            }
        }
    })
}
