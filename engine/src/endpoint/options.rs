//! Options of an endpoint.

use crate::queue::CompletionQueueHandle;
use crate::shared_queue::SharedReceiveQueueHandle;

/// The options of a new [`crate::Endpoint`]; start with [`EndpointOptions::new`].
#[derive(Clone, Copy, Debug)]
pub struct EndpointOptions<'a> {
    /// The completion queue of its sends.
    pub send_cq: &'a CompletionQueueHandle,
    /// The completion queue of its receives; may be the same.
    pub recv_cq: &'a CompletionQueueHandle,
    /// The shared receive queue that its receives come from, instead of a queue of
    /// its own.
    pub srq: Option<&'a SharedReceiveQueueHandle>,
    /// The least number of sends that may be outstanding.
    pub send_depth: u32,
    /// The least number of receives that may be outstanding; ignored with `srq`.
    pub recv_depth: u32,
    /// The most segments of one send.
    pub send_segments: u32,
    /// The most segments of one receive; ignored with `srq`.
    pub recv_segments: u32,
    /// The most bytes of one inline send.
    pub inline_bytes: u32,
    /// Accept fewer inline bytes: the endpoint gets as many as the device grants,
    /// and [`crate::Endpoint::max_inline`] returns their number. Otherwise creation
    /// fails if the device grants fewer.
    pub inline_or_fewer: bool,
    /// The `context` of every completion of the endpoint: sends and receives,
    /// successful and failed. The application finds its own data by it. If it is the address
    /// of these data, they are prefetched where many endpoints report to one queue.
    pub context: u64,
    /// Allocate a doorbell register for this endpoint alone. Single sends are then
    /// copied whole to the device (BlueFlame), without a lock. Devices have some
    /// hundreds of registers; when none is left, the endpoint gets a shared one.
    /// Ignored on the verbs path.
    pub exclusive_register: bool,
    /// Whether posts lock a doorbell register that endpoints share. Ignored on the
    /// verbs path.
    pub thread_mode: ThreadMode,
    /// Let the device leave short received messages in their CQEs. Polling copies
    /// them to their buffers, which saves one access of the bus. Not for endpoints
    /// whose completions are not polled as they arrive. Ignored on the verbs path.
    pub payload_in_completion: bool,
    /// Allow memory windows to be bound through the endpoint. On the direct path
    /// the send ring is then up to four times as large.
    pub windows: bool,
}

impl<'a> EndpointOptions<'a> {
    /// Returns the defaults: 128 sends and 128 receives of one segment each, no
    /// inline data, context 0, a shared doorbell register.
    #[must_use]
    pub fn new(send_cq: &'a CompletionQueueHandle, recv_cq: &'a CompletionQueueHandle) -> Self {
        Self {
            send_cq,
            recv_cq,
            srq: None,
            send_depth: 128,
            recv_depth: 128,
            send_segments: 1,
            recv_segments: 1,
            inline_bytes: 0,
            inline_or_fewer: false,
            context: 0,
            exclusive_register: false,
            thread_mode: ThreadMode::MULTI,
            payload_in_completion: true,
            windows: false,
        }
    }
}

/// The properties of an endpoint that its inline size may depend on, for
/// [`crate::ProtectionDomain::probe_inline`].
#[derive(Clone, Copy, Debug)]
pub struct InlineShape {
    /// See [`EndpointOptions::send_depth`].
    pub send_depth: u32,
    /// See [`EndpointOptions::recv_depth`].
    pub recv_depth: u32,
    /// See [`EndpointOptions::send_segments`].
    pub send_segments: u32,
}

/// How threads post sends to the endpoints of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadMode {
    pub(super) serialized: bool,
}

impl ThreadMode {
    /// Several threads post at the same time: posts lock a shared doorbell register.
    pub const MULTI: Self = Self { serialized: false };

    /// Returns the mode in which one thread posts at a time, so that posts do not lock
    /// a shared doorbell register. libmlx5's `MLX5_SINGLE_THREADED=1` promises the same for a whole
    /// process.
    ///
    /// # Safety
    /// No two threads post sends to endpoints of one device at the same time if one
    /// of these endpoints was created with this value. Otherwise their WQEs mix in
    /// the register, and the device accesses memory that neither names.
    #[must_use]
    pub const unsafe fn serialized() -> Self {
        Self { serialized: true }
    }
}
