//! libmlx5's verbs as a measured API, called as a C program does: through the function
//! pointers of the context, as the inline functions of `verbs.h` do. The objects are not
//! destroyed: a worker process ends after its measurement.

mod device;
mod end;

use std::ops::Range;
use std::ptr::NonNull;

use dv_sys::verbs::{ibv_qp, ibv_recv_wr, ibv_send_wr};

pub(crate) use self::device::Verbs;
pub(crate) use self::end::VerbsEnd;

use super::end::{End, Fault};
use super::interface::{Connected, Interface, Pair, Shape, SharedQueues};
use crate::failure::Failure;

impl Interface for Verbs {
    type End<const SHARED: bool> = VerbsEnd<SHARED>;

    fn connect_pair<const SHARED: bool>(
        &self,
        shape: &Shape,
    ) -> Result<Pair<Self, SHARED>, Failure> {
        let ends = [
            VerbsEnd::create(self, shape)?,
            VerbsEnd::create(self, shape)?,
        ];
        let [here, there] = [&ends[0], &ends[1]].map(|end| (end.number(), end.exposed_buffer()));
        let [mut near, mut far] = ends;
        for (end, (peer, _)) in [(&mut near, there), (&mut far, here)] {
            // SAFETY: a live queue pair, of this device.
            unsafe { self.connect(end.qp, peer)? };
            shape.post_receives(end)?;
        }
        let connected = |end, (theirs, buffer), (ours, _)| Connected {
            end,
            theirs: buffer,
            numbers: [ours, theirs],
        };
        Ok([connected(near, there, here), connected(far, here, there)])
    }
}

impl SharedQueues for Verbs {
    type Endpoint = NonNull<ibv_qp>;
    type Receive = ibv_recv_wr;

    fn another(
        &self,
        end: &VerbsEnd<true>,
        sends: u32,
        _: u32,
        _: u64,
    ) -> Result<NonNull<ibv_qp>, Failure> {
        let qp = end.queues.queue_pair(sends, 0, 0)?;
        // SAFETY: a live queue pair of this device.
        unsafe { self.connect(qp, qp.as_ref().qp_num)? };
        Ok(qp)
    }

    fn send_by(
        _: &VerbsEnd<true>,
        endpoint: &mut NonNull<ibv_qp>,
        request: &mut ibv_send_wr,
    ) -> Result<(), Fault> {
        // SAFETY: a live queue pair; the memory is never freed.
        unsafe { end::send_by(*endpoint, request) }
    }

    fn receive(end: &VerbsEnd<true>, into: Range<usize>) -> ibv_recv_wr {
        end.receive(into)
    }

    #[inline(always)]
    fn post_receive(
        end: &mut VerbsEnd<true>,
        into: Range<usize>,
        receive: &mut ibv_recv_wr,
        cookie: u64,
    ) -> Result<(), Fault> {
        end.post_receive(into, receive, cookie)
    }
}
