//! The traits of the measured APIs: connecting their ends.

use std::ops::Range;
use std::time::Duration;

use dat_api::safe::{RemoteSegment, WaitPolicy};
use dat_engine::cm::ListenOn;

use super::end::{End, Fault};
use crate::exchange::Peer;
use crate::failure::Failure;

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Measures; connects to the server.
    Client,
    /// Answers messages.
    Server,
}

/// The properties of an end.
pub(crate) struct Shape {
    /// Bytes of the registered memory.
    pub(crate) bytes: usize,
    /// Depth of the send queue.
    pub(crate) sends: u32,
    /// Depth of the receive queue.
    pub(crate) receives: u32,
    /// Depths of the completion queues.
    pub(crate) sent_completions: u32,
    pub(crate) received_completions: u32,
    /// The largest inline message, bytes.
    pub(crate) inline: u32,
    /// The most RDMA reads in flight of a DAT endpoint; the engine has 16.
    pub(crate) reads: i32,
    /// The most segments of a request.
    pub(crate) segments: i32,
    /// The pieces of memory of the receives that are posted before the end is connected.
    pub(crate) into: Vec<Vec<Range<usize>>>,
    /// How waits for receives wait, if not as `DAT_WAIT` says; for DAT's Rust types only.
    pub(crate) policy: Option<WaitPolicy>,
    /// Timeout for the other side.
    pub(crate) timeout: Duration,
    /// The addresses on which a server listens.
    pub(crate) listen: ListenOn,
}

impl Shape {
    /// Posts the receives that are there before the end is connected.
    pub(super) fn post_receives<E: End>(&self, end: &mut E) -> Result<(), Failure> {
        self.into.iter().try_for_each(|pieces| {
            let mut receive = end.receive_of(pieces);
            Ok(end.post_receive_of(pieces, &mut receive)?)
        })
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::run(fault.to_string())
    }
}

/// An end with what it knows of the other side.
pub(crate) struct Connected<E> {
    pub(crate) end: E,
    /// The other side's memory.
    pub(crate) theirs: RemoteSegment,
    /// The numbers of this side and the other, which differ.
    pub(crate) numbers: [u32; 2],
}

/// An open API. `SHARED`: ends on a shared receive queue each.
pub(crate) trait Interface {
    /// One end of a connection.
    type End<const SHARED: bool>: End + 'static;

    /// Creates and connects two ends in this process: the client's and the server's.
    fn connect_pair<const SHARED: bool>(
        &self,
        shape: &Shape,
    ) -> Result<Pair<Self, SHARED>, Failure>;
}

/// An open API that can add endpoints to the queues of an end.
pub(crate) trait SharedQueues: Interface {
    type Endpoint;
    /// A prepared receive.
    type Receive;

    /// Creates an endpoint connected to itself. Its completions have this context, if the API has
    /// one.
    fn another(
        &self,
        end: &Self::End<true>,
        sends: u32,
        inline: u32,
        context: u64,
    ) -> Result<Self::Endpoint, Failure>;

    /// Posts a send on such an endpoint.
    fn send_by(
        end: &Self::End<true>,
        endpoint: &mut Self::Endpoint,
        request: &mut <Self::End<true> as End>::Request,
    ) -> Result<(), Fault>;

    fn receive(end: &Self::End<true>, into: Range<usize>) -> Self::Receive;

    /// Posts a receive. `into` are the bytes that it was prepared with.
    fn post_receive(
        end: &mut Self::End<true>,
        into: Range<usize>,
        receive: &mut Self::Receive,
        cookie: u64,
    ) -> Result<(), Fault>;
}

/// The client's and the server's end.
pub(crate) type Pair<I, const SHARED: bool> = [Connected<<I as Interface>::End<SHARED>>; 2];

/// An open API whose ends can be in two processes.
pub(crate) trait RemoteInterface: Interface {
    /// Creates one end and connects it to that of the other process, which calls
    /// this with the other role.
    fn connect_end(
        &self,
        shape: &Shape,
        peer: &mut Peer,
        role: Role,
    ) -> Result<Connected<Self::End<false>>, Failure>;
}
