//! `dat_ep_create_with_srq`: the statements E01 to E15 of its page.
//!
//! | file | statements |
//! | --- | --- |
//! | `receiving` | E01 E03 E06 E13: which buffers are used, and which EVD reports |
//! | `parts` | E02 E04 E10: EVDs, zones and handles |
//! | `attributes` | E07 E08 E09 E10: requested attributes |
//! | `lifecycle` | E05 E11 E14 E15: several connections of one endpoint |
//! | `sharing` | E12: which streams may share an EVD |

mod attributes;
mod lifecycle;
mod parts;
mod receiving;
mod sharing;

use std::ptr;

use dat::abi::*;
use dat::exports::*;

use crate::support::{End, Fixture, Memory, Shape, ok};

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;

/// The arguments of the call, which tests change one by one.
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
    /// Arguments with which the call succeeds, with new EVDs.
    fn new(fixture: &Fixture, srq: DAT_SRQ_HANDLE) -> Self {
        let shape = Shape::default();
        let end = End::without_ep(fixture, &shape);
        let mut attributes = shape.attributes();
        attributes.max_recv_dtos = DAT_HW_DEFAULT;
        Self {
            ia: fixture.ia,
            pz: fixture.pz,
            recv: end.recv,
            request: end.request,
            connect: end.connect,
            srq,
            attributes,
        }
    }

    /// Makes the call. Returns its code, and the handle that it wrote.
    fn call(&self) -> (DAT_RETURN, DAT_EP_HANDLE) {
        let mut ep = ptr::without_provenance_mut(0x77);
        // SAFETY: attributes and result are local; the call validates its
        // handles.
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

    /// Makes the call, which must succeed.
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

    /// Makes the call, which must fail with this code and write no handle.
    #[track_caller]
    fn fails(&self, kind: DAT_RETURN, subtype: DAT_RETURN_SUBTYPE) {
        let (answer, ep) = self.call();
        crate::support::fails_with(answer, kind, subtype);
        assert_eq!(ep.addr(), 0x77, "a handle was written");
    }
}

/// Sends `tag`, in eight bytes, and runs the device.
#[track_caller]
fn send(fixture: &Fixture, from: &End, memory: &mut Memory, tag: u64) {
    memory.write(0, &tag.to_ne_bytes());
    ok(from.post_send(&[memory.segment(0, 8)], tag, DEFAULT));
    fixture.run();
}
