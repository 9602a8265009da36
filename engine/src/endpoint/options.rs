//! What an endpoint is asked to be, by its options and by the environment.

use crate::environment;
use crate::queue::CompletionQueueHandle;
use crate::shared_queue::SharedReceiveQueueHandle;

/// How to create an [`crate::Endpoint`]; begin with [`EndpointOptions::new`].
#[derive(Clone, Copy, Debug)]
pub struct EndpointOptions<'a> {
    /// Where sends complete.
    pub send_cq: &'a CompletionQueueHandle,
    /// Where receives complete; may be the same.
    pub recv_cq: &'a CompletionQueueHandle,
    /// Where receives come from, instead of a queue of its own.
    pub srq: Option<&'a SharedReceiveQueueHandle>,
    /// Sends that may be outstanding, at least.
    pub send_depth: u32,
    /// Receives that may be outstanding, at least; not used with `srq`.
    pub recv_depth: u32,
    /// Segments of one send, at most.
    pub send_segments: u32,
    /// Segments of one receive, at most; not used with `srq`.
    pub recv_segments: u32,
    /// Bytes of one inline send, at most.
    pub inline_bytes: u32,
    /// Fewer inline bytes will do: the endpoint gets as many as the device takes,
    /// which [`crate::Endpoint::max_inline`] tells. Otherwise too many are refused.
    pub inline_or_fewer: bool,
    /// What every completion of the endpoint carries as its `context`, of sends
    /// and receives, good and bad: where the application finds its own part of it.
    pub context: u64,
    /// Ask for a doorbell register of its own: single sends then go to the
    /// device whole (BlueFlame), and no lock is taken. Devices have some
    /// hundreds; when there is none left, a shared one is taken. Means nothing
    /// on the verbs path.
    pub exclusive_register: bool,
    /// Whether a lock is taken for a doorbell register that endpoints share.
    /// Means nothing on the verbs path.
    pub posters: Posters,
    /// The device may leave short received messages in their completions, from
    /// where polling moves them to their buffers: one access of the bus less.
    /// Not for endpoints whose completions are not polled as they come. They may
    /// not on the verbs path.
    pub payload_in_completion: bool,
    /// Memory windows may be bound through the endpoint. On the direct path its
    /// ring is up to four times as large for that.
    pub windows: bool,
}

impl<'a> EndpointOptions<'a> {
    /// 128 sends and 128 receives of one segment each, no inline data, context 0,
    /// a shared register.
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
            posters: Posters::ANY,
            payload_in_completion: true,
            windows: false,
        }
    }
}

/// What of an endpoint its inline size may depend on, for
/// [`crate::ProtectionDomain::probe_inline`].
#[derive(Clone, Copy, Debug)]
pub struct InlineShape {
    /// As [`EndpointOptions::send_depth`].
    pub send_depth: u32,
    /// As [`EndpointOptions::recv_depth`].
    pub recv_depth: u32,
    /// As [`EndpointOptions::send_segments`].
    pub send_segments: u32,
}

/// Which threads post sends to the endpoints of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Posters {
    pub(super) one_at_a_time: bool,
}

impl Posters {
    /// Any of them, at any time.
    pub const ANY: Self = Self {
        one_at_a_time: false,
    };

    /// One thread at a time: then no lock is taken for a shared register.
    /// libmlx5's `MLX5_SINGLE_THREADED=1` promises the same for a whole process.
    ///
    /// # Safety
    /// No two threads post sends to endpoints of one device at the same time,
    /// where one of the endpoints is made with this: their requests would mix in
    /// the register, and name memory of neither.
    #[must_use]
    pub const unsafe fn one_at_a_time() -> Self {
        Self {
            one_at_a_time: true,
        }
    }
}

/// What the environment asks of new endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Switches {
    /// `DAT_DEBUG_NO_BF`: never copy a WQE to the register.
    pub(super) no_blue_flame: bool,
    /// `DAT_DEBUG_NO_INLINE`: grant no inline bytes.
    pub(super) no_inline: bool,
    /// `MLX5_SINGLE_THREADED`, as libmlx5 understands it.
    pub(super) single_threaded: bool,
}

impl Switches {
    pub(super) fn from_environment() -> Self {
        Self::read(|name| {
            let value = match name.starts_with("MLX5_") {
                true => environment::driver_switch(name),
                false => environment::variable(name),
            };
            value?.into_string().ok()
        })
    }

    fn read(value: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name| value(name).is_some_and(|value| !value.is_empty() && value != "0");
        Self {
            no_blue_flame: set("DAT_DEBUG_NO_BF"),
            no_inline: set("DAT_DEBUG_NO_INLINE"),
            single_threaded: value("MLX5_SINGLE_THREADED").as_deref() == Some("1"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_off_when_unset_empty_or_zero() {
        let with = |value: Option<&str>| Switches::read(|_| value.map(str::to_owned));
        let off = Switches {
            no_blue_flame: false,
            no_inline: false,
            single_threaded: false,
        };
        assert_eq!(with(None), off);
        assert_eq!(with(Some("")), off);
        assert_eq!(with(Some("0")), off);
        let on = Switches {
            no_blue_flame: true,
            no_inline: true,
            single_threaded: true,
        };
        assert_eq!(with(Some("1")), on);
        assert!(
            !with(Some("yes")).single_threaded,
            "libmlx5 wants exactly 1"
        );
    }
}
