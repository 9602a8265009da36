//! `dat_ep_create_with_srq`: the statements E01 to E15 of its page.
//!
//! | file | statements |
//! | --- | --- |
//! | `receiving` | E01 E03 E06 E13: whose buffers, and where it is told |
//! | `parts` | E02 E04 E10: EVDs, zones and handles |
//! | `attributes` | E07 E08 E09 E10: what is asked for |
//! | `lives` | E05 E11 E14 E15: one connection after the other |
//! | `sharing` | E12: who may share an EVD |

mod attributes;
mod lives;
mod parts;
mod receiving;
mod sharing;

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use crate::support::{Bed, End, Memory, Shape, ok};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;

/// The arguments of the call, to be changed one by one.
#[derive(Clone, Copy)]
struct Call {
    ia: DAT_IA_HANDLE,
    pz: DAT_PZ_HANDLE,
    recv: DAT_EVD_HANDLE,
    request: DAT_EVD_HANDLE,
    connect: DAT_EVD_HANDLE,
    srq: DAT_SRQ_HANDLE,
    attributes: DAT_EP_ATTR,
}

impl Call {
    /// One that succeeds, with EVDs of its own.
    fn new(bed: &Bed, srq: DAT_SRQ_HANDLE) -> Self {
        let shape = Shape::default();
        let end = End::without_ep(bed, &shape);
        let mut attributes = shape.attributes();
        attributes.max_recv_dtos = DAT_HW_DEFAULT;
        Self {
            ia: bed.ia,
            pz: bed.pz,
            recv: end.recv,
            request: end.request,
            connect: end.connect,
            srq,
            attributes,
        }
    }

    /// The answer, and what was written as the handle.
    fn call(&self) -> (DAT_RETURN, DAT_EP_HANDLE) {
        let mut ep = ptr::without_provenance_mut(0x77);
        // SAFETY: attributes and result are ours; any value may be a handle.
        let answer = unsafe {
            dat_ep_create_with_srq(
                self.ia,
                self.pz,
                self.recv,
                self.request,
                self.connect,
                self.srq,
                &raw const self.attributes,
                &raw mut ep,
            )
        };
        (answer, ep)
    }

    /// The endpoint.
    #[track_caller]
    fn make(&self) -> End {
        let (answer, ep) = self.call();
        ok(answer);
        End {
            ep,
            recv: self.recv,
            request: self.request,
            connect: self.connect,
        }
    }

    /// That it fails so, and that no handle is written.
    #[track_caller]
    fn fails(&self, kind: DAT_RETURN, subtype: DAT_RETURN_SUBTYPE) {
        let (answer, ep) = self.call();
        crate::support::fails_with(answer, kind, subtype);
        assert_eq!(ep.addr(), 0x77, "a handle was written");
    }
}

/// Sends `tag`, in eight bytes, and lets the device work.
#[track_caller]
fn send(bed: &Bed, from: &End, memory: &mut Memory, tag: u64) {
    memory.write(0, &tag.to_ne_bytes());
    ok(from.post_send(&[memory.segment(0, 8)], tag, DEFAULT));
    bed.run();
}
