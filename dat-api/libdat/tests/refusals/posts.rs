//! Refused posts: on endpoints that are not connected, and on connected ones.

use core::ptr::{null, null_mut};

use dat::abi::*;
use dat::exports::*;
use dat_api::{DatReturn, ReturnType, Subtype};

use crate::face::common::success;
use crate::face::fixture::{BYTES, Fixture, dirty};
use crate::refusals::printing::{is_one_line, printed, printing, refused};

const BAD: ReturnType = ReturnType::InvalidParameter;
const COOKIE: DAT_CONTEXT = DAT_CONTEXT { as_64: 9 };
const SECONDS: DAT_TIMEOUT = 10_000_000;

/// A post with a list of segments, to be called on a fixture.
fn send(w: &Fixture, segments: &[DAT_LMR_TRIPLET], flags: DAT_COMPLETION_FLAGS) -> DAT_RETURN {
    let count = segments.len() as DAT_COUNT;
    // SAFETY: the segments are valid during the call; no other thread posts.
    unsafe { dat_ep_post_send(w.ep, count, segments.as_ptr().cast_mut(), COOKIE, flags) }
}

fn recv(
    ep: DAT_EP_HANDLE,
    segments: &[DAT_LMR_TRIPLET],
    flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    let count = segments.len() as DAT_COUNT;
    // SAFETY: as in `send`.
    unsafe { dat_ep_post_recv(ep, count, segments.as_ptr().cast_mut(), COOKIE, flags) }
}

fn shared(w: &Fixture, segments: &[DAT_LMR_TRIPLET]) -> DAT_RETURN {
    let count = segments.len() as DAT_COUNT;
    // SAFETY: as in `send`.
    unsafe { dat_srq_post_recv(w.srq, count, segments.as_ptr().cast_mut(), COOKIE) }
}

fn rdma(w: &Fixture, is_read: bool, local: DAT_LMR_TRIPLET, remote: u64) -> DAT_RETURN {
    let remote = DAT_RMR_TRIPLET {
        rmr_context: 1,
        pad: 0,
        target_address: 0,
        segment_length: remote,
    };
    let local = (&raw const local).cast_mut();
    let remote = &raw const remote;
    // SAFETY: as in `send`.
    unsafe {
        match is_read {
            true => dat_ep_post_rdma_read(w.ep, 1, local, COOKIE, remote, 0),
            false => dat_ep_post_rdma_write(w.ep, 1, local, COOKIE, remote, 0),
        }
    }
}

/// Connects the two endpoints of the fixture.
fn connect(w: &Fixture) {
    let (mut ia, mut psp) = (dirty::<DAT_IA_ATTR>(), dirty::<DAT_PSP_PARAM>());
    let (ia, psp) = (ia.as_mut_ptr(), psp.as_mut_ptr());
    let mut event = dirty::<DAT_EVENT>();
    let event = event.as_mut_ptr();
    let mut more = 0;
    let more = &raw mut more;
    // SAFETY: live handles, and room for the results, which the calls write.
    unsafe {
        let field = DAT_IA_FIELD_IA_ADDRESS_PTR;
        success(
            "query",
            dat_ia_query(w.ia, null_mut(), field, ia, 0, null_mut()),
        );
        success("query", dat_psp_query(w.psp, DAT_PSP_FIELD_ALL, psp));
        let (to, qualifier) = ((*ia).ia_address_ptr, (*psp).conn_qual);
        let answer = dat_ep_connect(w.srq_ep, to, qualifier, SECONDS, 0, null_mut(), 0, 0);
        success("connect", answer);
        success("request", dat_evd_wait(w.cr_evd, SECONDS, 1, event, more));
        let request = (*event).event_data.cr_arrival_event_data.cr_handle;
        success("accept", dat_cr_accept(request, w.ep, 0, null_mut()));
        for _ in 0..2 {
            success(
                "event",
                dat_evd_wait(w.connect_evd, SECONDS, 1, event, more),
            );
            assert_eq!((*event).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
        }
    }
}

/// Registers the fixture's memory once more.
fn register(w: &Fixture, pz: DAT_PZ_HANDLE, privileges: DAT_MEM_PRIV_FLAGS) -> DAT_LMR_TRIPLET {
    let mut segment = w.segment(64);
    let region = DAT_REGION_DESCRIPTION {
        for_va: w.memory.cast(),
    };
    let context = &raw mut segment.lmr_context;
    // SAFETY: memory that is never freed, and a writable result.
    success("register", unsafe {
        dat_lmr_create(
            w.ia,
            0,
            region,
            BYTES as u64,
            pz,
            privileges,
            null_mut(),
            context,
            null_mut(),
            null_mut(),
            null_mut(),
        )
    });
    segment
}

#[test]
fn a_refused_post_says_which_value_is_wrong() {
    printing("posts::a_refused_post_says_which_value_is_wrong", || {
        let w = Fixture::new();
        let good = w.segment(64);
        let ep = |call| (call, "ep", w.ep);
        let srq = ("dat_srq_post_recv", "srq", w.srq);
        let names = [
            "dat_ep_post_send",
            "dat_ep_post_rdma_read",
            "dat_ep_post_rdma_write",
        ];
        let [send_name, read_name, write_name] = names;
        let recv_name = "dat_ep_post_recv";

        let unconnected = (ReturnType::InvalidState, Subtype::InvalidStateEpUnconnected);
        let expected = [
            "is Unconnected",
            "Connected",
            "DAT_CONNECTION_EVENT_ESTABLISHED",
        ];
        refused(ep(send_name), unconnected, &expected, || {
            send(&w, &[good], 0)
        });
        refused(ep(read_name), unconnected, &expected, || {
            rdma(&w, true, good, 64)
        });
        refused(ep(write_name), unconnected, &expected, || {
            rdma(&w, false, good, 64)
        });
        refused(
            (recv_name, "ep", w.srq_ep),
            (ReturnType::InvalidState, Subtype::InvalidStateSrqInUse),
            &[&format!("SRQ {:#x}", w.srq.addr()), "dat_srq_post_recv"],
            || recv(w.srq_ep, &[good], 0),
        );

        connect(&w);
        let mut pz = DAT_HANDLE_NULL;
        // SAFETY: a live handle, and a writable result.
        success("zone", unsafe { dat_pz_create(w.ia, &raw mut pz) });
        let foreign = register(&w, pz, DAT_MEM_PRIV_ALL_FLAG);
        let readable = register(&w, w.pz, DAT_MEM_PRIV_LOCAL_READ_FLAG);
        let unknown = DAT_LMR_TRIPLET {
            lmr_context: 0x3_0000,
            ..good
        };
        let outside = w.segment(BYTES as u64 + 1);
        let no_lmr = [
            "segment 1",
            "no LMR has the context 0x30000",
            "dat_lmr_create",
        ];
        let outside_text = [
            "segment 0: 4097 bytes",
            "not all inside the LMR",
            "4096 bytes",
        ];
        let zones = [
            &*format!("PZ {:#x}", pz.addr()),
            &*format!("PZ {:#x}", w.pz.addr()),
            "one protection zone",
        ];
        let privilege = [
            "privileges 0x1",
            "without DAT_MEM_PRIV_LOCAL_WRITE_FLAG",
            "register",
        ];
        let range = (BAD, Subtype::NoSubtype);
        let privileges = (ReturnType::PrivilegesViolation, Subtype::NoSubtype);
        let protection = (ReturnType::ProtectionViolation, Subtype::NoSubtype);
        let too_many = (BAD, Subtype::InvalidArg2);

        // Every kind of post, with every kind of bad segment.
        let post = |which: usize, segments: &[DAT_LMR_TRIPLET]| match which {
            0 => send(&w, segments, 0),
            1 => recv(w.ep, segments, 0),
            _ => shared(&w, segments),
        };
        for (which, subject) in [(0, ep(send_name)), (1, ep(recv_name)), (2, srq)] {
            refused(subject, privileges, &no_lmr, || {
                post(which, &[good, unknown])
            });
            refused(subject, range, &outside_text, || post(which, &[outside]));
            refused(subject, protection, &zones, || post(which, &[foreign]));
        }
        let three = ["3 segments", "expected 0 to 2", "max_re"];
        refused(ep(send_name), too_many, &three, || send(&w, &[good; 3], 0));
        refused(ep(recv_name), too_many, &three, || {
            recv(w.ep, &[good; 3], 0)
        });
        refused(
            srq,
            too_many,
            &["33 segments", "expected 0 to", "max_recv_iov"],
            || shared(&w, &[good; 33]),
        );
        refused(ep(recv_name), privileges, &privilege, || {
            recv(w.ep, &[readable], 0)
        });
        refused(srq, privileges, &privilege, || shared(&w, &[readable]));

        let flags = [
            "flags 0x14",
            "DAT_COMPLETION_UNSIGNALLED_FLAG",
            "accepted are",
            "attribute",
        ];
        refused(ep(send_name), range, &flags, || send(&w, &[good], 0x14));
        refused(
            ep(recv_name),
            range,
            &["flags 0x1", "accepted are 0x0"],
            || recv(w.ep, &[good], 1),
        );
        let long = [w.segment(4096), good];
        refused(
            ep(send_name),
            (BAD, Subtype::InvalidArg3),
            &[
                "message has 4160 bytes",
                "expected at most 4096",
                "max_message_size",
            ],
            || send(&w, &long, 0),
        );
        let length = (ReturnType::LengthError, Subtype::NoSubtype);
        refused(
            ep(write_name),
            length,
            &["have 64 bytes", "has 63", "expected"],
            || rdma(&w, false, good, 63),
        );
        refused(
            ep(read_name),
            length,
            &["has 65 bytes", "have 64", "expected"],
            || rdma(&w, true, good, 65),
        );
        refused(
            ep(read_name),
            (ReturnType::InsufficientResources, Subtype::ResourceMemory),
            &["0 RDMA reads", "max_rdma_read_out", "before connecting"],
            || rdma(&w, true, good, 64),
        );

        // Null lists.
        let list = (BAD, Subtype::InvalidArg3);
        let null_list = ["list is null", "segments is 5", "expected"];
        let iov = (&raw const good).cast_mut();
        let none = null_mut();
        // SAFETY: null is checked.
        unsafe {
            refused(ep(send_name), list, &null_list, || {
                dat_ep_post_send(w.ep, 5, none, COOKIE, 0)
            });
            refused(ep(recv_name), list, &null_list, || {
                dat_ep_post_recv(w.ep, 5, none, COOKIE, 0)
            });
            refused(srq, list, &null_list, || {
                dat_srq_post_recv(w.srq, 5, none, COOKIE)
            });
            let remote = (BAD, Subtype::InvalidArg5);
            let null_remote = ["remote segment is null", "expected a DAT_RMR_TRIPLET"];
            refused(ep(read_name), remote, &null_remote, || {
                dat_ep_post_rdma_read(w.ep, 1, iov, COOKIE, null(), 0)
            });
            refused(ep(write_name), remote, &null_remote, || {
                dat_ep_post_rdma_write(w.ep, 1, iov, COOKIE, null(), 0)
            });
            refused(ep(write_name), list, &null_list, || {
                dat_ep_post_rdma_write(w.ep, 5, none, COOKIE, null(), 0)
            });
        }

        // Full queues, last: nothing takes what is posted.
        let full =
            |what: &str, subject: (&str, &str, DAT_HANDLE), post: &dyn Fn() -> DAT_RETURN| {
                for _ in 0..1000 {
                    let (answer, text) = printed(post);
                    if answer == 0 {
                        assert_eq!(text, "", "a post that succeeds prints nothing");
                        continue;
                    }
                    let code = DatReturn::from_bits(answer);
                    assert_eq!(code.kind(), Some(ReturnType::InsufficientResources));
                    let (call, label, handle) = subject;
                    let head = format!("libdat: {call}({label} {:#x}): {code}: ", handle.addr());
                    is_one_line(
                        &text,
                        &head,
                        &[what, "can be outstanding", "take completions"],
                    );
                    return;
                }
                panic!("the {what} is never full");
            };
        full("receive queue", ep(recv_name), &|| recv(w.ep, &[good], 0));
        full("request queue", ep(send_name), &|| send(&w, &[good], 0));
        full("shared receive queue", srq, &|| shared(&w, &[good]));
    });
}

#[test]
fn a_refused_bind_says_which_value_is_wrong() {
    printing("posts::a_refused_bind_says_which_value_is_wrong", || {
        let w = Fixture::new();
        let good = w.segment(64);
        let (mut rmr, mut context, mut pz) = (DAT_HANDLE_NULL, 0, DAT_HANDLE_NULL);
        let mut other = DAT_HANDLE_NULL;
        // SAFETY: live handles, and writable results.
        unsafe {
            success("window", dat_rmr_create(w.pz, &raw mut rmr));
            success("zone", dat_pz_create(w.ia, &raw mut pz));
            success("window", dat_rmr_create(pz, &raw mut other));
        }
        let context = &raw mut context;
        let bind = |rmr, segment: *const DAT_LMR_TRIPLET, privileges, flags, context| {
            // SAFETY: each pointer is valid or null; no other thread posts.
            unsafe { dat_rmr_bind(rmr, segment, privileges, w.ep, COOKIE, flags, context) }
        };
        let on = |rmr| ("dat_rmr_bind", "rmr", rmr);
        let argument = |argument| (BAD, argument);
        let good = &raw const good;
        refused(
            on(rmr),
            argument(Subtype::InvalidArg2),
            &["segment is null", "unbind"],
            || bind(rmr, null(), 2, 0, context),
        );
        refused(
            on(rmr),
            argument(Subtype::InvalidArg3),
            &["0x4", "expected bits of 0x33"],
            || bind(rmr, good, 4, 0, context),
        );
        refused(
            on(rmr),
            argument(Subtype::InvalidArg7),
            &["null", "expected"],
            || bind(rmr, good, 2, 0, null_mut()),
        );
        refused(
            on(rmr),
            (ReturnType::InvalidState, Subtype::InvalidStateEpUnconnected),
            &["is Unconnected", "Connected"],
            || bind(rmr, good, 2, 0, context),
        );
        let handle = (ReturnType::InvalidHandle, Subtype::InvalidHandleEp);
        refused(on(rmr), handle, &["is not an EP: it is an EVD"], || {
            // SAFETY: the call validates its handles.
            unsafe { dat_rmr_bind(rmr, good, 2, w.evd, COOKIE, 0, context) }
        });
        connect(&w);
        refused(
            on(rmr),
            argument(Subtype::NoSubtype),
            &["flags 0x2", "accepted are"],
            || bind(rmr, good, 2, 2, context),
        );
        refused(
            on(other),
            (ReturnType::ProtectionViolation, Subtype::NoSubtype),
            &[
                &format!("RMR is in PZ {:#x}", pz.addr()),
                "one protection zone",
            ],
            || bind(other, good, 2, 0, context),
        );
        refused(
            on(rmr),
            (ReturnType::InvalidHandle, Subtype::InvalidHandleEvdRequest),
            &[&format!("{:#x}", w.evd.addr()), "DAT_EVD_RMR_BIND_FLAG"],
            || bind(rmr, good, 2, 0, context),
        );
    });
}
