//! The rules of an IA: what its options, its device and its connection manager decide for the
//! objects on it. They are decided once, when the IA is opened; objects read the rules, and neither
//! options nor the environment.

use dat_engine::wait::WaitPolicy;
use dat_engine::{Access, ConnectOptions, Transport, TransportOptions};

use super::attributes::IaAttributes;
use super::limits;
use super::open::Opening;
use crate::error::Result;
use crate::status::{DatReturn, ReturnType, Subtype};
use crate::types::{CompletionFlags, MemPrivileges};

/// What holds for all objects of an IA.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The attributes that queries return: the limits of objects, and which operations there are.
    pub limits: IaAttributes,
    /// Whether several threads may use one object at a time.
    pub threadsafe: bool,
    /// How threads wait for events, unless an EVD has a policy of its own.
    pub wait: WaitPolicy,
    /// What connections are made with; each endpoint has its own numbers of RDMA reads.
    pub connect: ConnectOptions,
    /// The kind of the device's network.
    pub transport: Transport,
    /// The maximum length of private data, in bytes.
    pub max_private_data: usize,
    /// Whether a message waits for ever for a receive of the peer.
    pub retries_for_ever: bool,
    /// Whether the device may leave short payloads in completions.
    pub scatters_to_completions: bool,
    /// Whether completion queues can wake for solicited receives alone.
    pub reports_solicited: bool,
    /// Whether an endpoint and its SRQ may be in two protection zones.
    pub srq_zone_may_differ: bool,
    /// The maximum number of segments of a receive in an SRQ; DAT has no attribute for it.
    pub max_srq_segments: i32,
    /// The longest queue of requests with inline data, which makes requests larger.
    pub inline_depth: u32,
    /// What its objects do where the DAT pages and the reference implementation differ.
    /// Endpoints on an SRQ are always strict.
    pub conformance: Conformance,
}

/// What an IA does where the reference implementation (OFED's DAPL) allows more than the DAT pages.
/// `udapl`(7) has the table.
///
/// Decision: `docs/decisions/061-allow-what-the-reference-allows.md`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conformance {
    /// The privileges that an LMR grants beside those requested.
    pub added_privileges: MemPrivileges,
    /// Whether an LMR of length 0 is refused with `DAT_LENGTH_ERROR`.
    pub lmr_length_error: bool,
    /// The most RDMA reads of an endpoint whose attributes leave their number open.
    pub default_reads: i32,
    /// The request completion flags that have no effect in the attributes of an endpoint.
    pub ignored_flags: CompletionFlags,
    /// Whether streams with different completion flags may share an EVD.
    pub mixes_streams: bool,
    /// Whether the length of the remote segment bounds an RDMA transfer.
    pub bounded_by_remote: bool,
    /// Whether `max_rdma_size` of the endpoint bounds an RDMA transfer, not only that of the IA.
    pub bounded_by_endpoint: bool,
    /// Whether a request waits for an accepted connection that is not established yet.
    pub awaits_established: bool,
    /// Whether a query returns the address of the last peer in every state.
    pub shows_last_peer: bool,
    /// Whether requests and events of connections may go to an EVD of another open of the adapter.
    pub takes_evds_of_other_opens: bool,
    /// Whether a wait on a CNO also returns an EVD that was returned before and is not drained.
    pub returns_leftovers: bool,
    /// The code of an empty EVD for completions, and of a CNO without a trigger.
    pub empty: DatReturn,
}

/// The code of an empty EVD for other events.
pub(crate) const EMPTY: DatReturn = DatReturn::error(ReturnType::QueueEmpty, Subtype::NoSubtype);

impl Conformance {
    /// As the reference implementation.
    pub(crate) const LENIENT: Self = Self {
        // Verbs have no such access right: the device may read whatever is registered.
        added_privileges: MemPrivileges::LOCAL_READ,
        lmr_length_error: true,
        default_reads: 4,
        ignored_flags: CompletionFlags::SUPPRESS,
        mixes_streams: true,
        bounded_by_remote: false,
        bounded_by_endpoint: false,
        awaits_established: true,
        shows_last_peer: true,
        takes_evds_of_other_opens: true,
        returns_leftovers: true,
        // Programs compare the whole code with `DAT_QUEUE_EMPTY`.
        empty: EMPTY.without_class(),
    };

    /// As the DAT pages.
    pub(crate) const STRICT: Self = Self {
        added_privileges: MemPrivileges::empty(),
        lmr_length_error: false,
        default_reads: 0,
        ignored_flags: CompletionFlags::empty(),
        mixes_streams: false,
        bounded_by_remote: true,
        bounded_by_endpoint: true,
        awaits_established: false,
        shows_last_peer: false,
        takes_evds_of_other_opens: false,
        returns_leftovers: false,
        empty: EMPTY,
    };
}

impl Rules {
    /// Decides the rules.
    ///
    /// # Errors
    /// As [`Opening::transport`].
    pub(super) fn new(from: &Opening<'_>) -> Result<Self> {
        let (device, options, limits) = (from.device, from.options, from.adapter());
        let transport = from.transport()?;
        let unbounded = transport.rnr_retry() == TransportOptions::RNR_RETRY_INFINITE;
        let kind = device.info().transport;
        Ok(Self {
            threadsafe: from.request.threadsafe,
            wait: options.wait,
            connect: ConnectOptions {
                port: from.port.number,
                gid_index: options.gid,
                access: match limits.atomics {
                    true => Access::REMOTE | Access::REMOTE_ATOMIC,
                    false => Access::REMOTE,
                },
                transport,
                ..ConnectOptions::default()
            },
            transport: kind,
            max_private_data: from.manager.max_private_data(kind),
            retries_for_ever: unbounded && kind != Transport::Iwarp,
            scatters_to_completions: !options.no_scatter,
            reports_solicited: device.reports_solicited(),
            srq_zone_may_differ: device.srq_domain_may_differ(),
            max_srq_segments: limits::srq_segments(device.limits()),
            inline_depth: device.limits().queue_depth / 2,
            conformance: match options.strict {
                true => Conformance::STRICT,
                false => Conformance::LENIENT,
            },
            limits,
        })
    }

    /// Returns the rules of an IA with default options on a device with these limits.
    #[cfg(test)]
    pub(crate) fn of(device: &dat_engine::Limits) -> Self {
        Self {
            limits: IaAttributes::of(device),
            threadsafe: false,
            wait: WaitPolicy::default(),
            connect: ConnectOptions::default(),
            transport: Transport::InfiniBand,
            max_private_data: 64,
            retries_for_ever: true,
            scatters_to_completions: true,
            reports_solicited: true,
            srq_zone_may_differ: true,
            max_srq_segments: limits::srq_segments(device),
            inline_depth: device.queue_depth / 2,
            conformance: Conformance::LENIENT,
        }
    }

    /// Returns what an endpoint does: on an SRQ always as the DAT pages say.
    pub(crate) fn of_endpoint(&self, on_srq: bool) -> &Conformance {
        match on_srq {
            true => &Conformance::STRICT,
            false => &self.conformance,
        }
    }
}
