//! The interfaces as trait objects, whose methods are called once per pass; the
//! loops behind them are compiled for each interface.

use dat_engine::DataInOrder;

use super::loopback::Loopback;
use super::plan::{Pass, Plan, Recording};
use super::side::Side;
use crate::ends::{Link, OpenInterface, RemoteInterface, Role};
use crate::exchange::Peer;
use crate::failure::Failure;

/// An open interface as a trait object.
pub(super) type Open = dyn OpenInterface<Plan, Box<dyn LocalPair>, Box<dyn RemoteSide>>;

/// Two connected sides in this thread, as a trait object.
pub(super) trait LocalPair {
    /// Returns what both queue pairs say about the order of data.
    fn data_in_order(&self) -> DataInOrder;

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
    /// Returns what the queue pair says about the order of data.
    fn data_in_order(&self) -> DataInOrder;

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

impl<W: RemoteInterface> OpenInterface<Plan, Box<dyn LocalPair>, Box<dyn RemoteSide>> for W {
    fn connect_local(&self, plan: &Plan) -> Result<Box<dyn LocalPair>, Failure> {
        let [near, far] = self.connect_pair::<false>(&plan.setup.shape())?;
        let link = |end| Link::new(end, &plan.setup);
        Ok(Box::new(Loopback::new(link(near)?, link(far)?, plan)))
    }

    fn connect_remote(
        &self,
        plan: &Plan,
        peer: &mut Peer,
        role: Role,
    ) -> Result<Box<dyn RemoteSide>, Failure> {
        let end = self.connect_end(&plan.setup.shape(), peer, role)?;
        let link = Link::new(end, &plan.setup)?;
        Ok(Box::new(Side::new(link, plan.depth())))
    }
}
