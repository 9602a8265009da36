//! Bad arguments of calls whose handle is good: the return codes, and that
//! nothing is written.

use core::ptr::{null, null_mut};

use dat::abi::*;
use dat::exports::*;
use dat_api::{ReturnType, Subtype};

use crate::face::common::{expect, success};
use crate::face::fixture::{Fixture, attributes, dirty, open};
use crate::face::launcher::{device, on_a_device};

const BAD: ReturnType = ReturnType::InvalidParameter;
const CONTEXT: DAT_CONTEXT = DAT_CONTEXT { as_64: 9 };

#[test]
fn null_results_and_other_bad_arguments_are_reported_by_number() {
    on_a_device(
        "arguments::null_results_and_other_bad_arguments_are_reported_by_number",
        || {
            let w = Fixture::new();
            let (ia, pz, evd, ep, srq) = (w.ia, w.pz, w.evd, w.ep, w.srq);
            let no = DAT_HANDLE_NULL;
            let attr = attributes();
            let at = &raw const attr;
            let misaligned = at.wrapping_byte_add(1);
            let mut srq_attr = DAT_SRQ_ATTR {
                max_recv_dtos: 4,
                max_recv_iov: 1,
                low_watermark: 0,
            };
            let srq_at = &raw mut srq_attr;
            let (mut made, mut any) = (DAT_HANDLE_NULL, 0);
            let place = &raw mut made;
            let mut event = dirty::<DAT_EVENT>();
            let event = event.as_mut_ptr();
            let mut more = 0;
            let more = &raw mut more;
            let mut param = dirty::<DAT_EP_PARAM>();
            let param = param.as_mut_ptr();
            let region = DAT_REGION_DESCRIPTION {
                for_va: w.memory.cast(),
            };
            let lmr = |kind, length, privileges| {
                // SAFETY: valid memory; null results are allowed.
                unsafe {
                    dat_lmr_create(
                        ia,
                        kind,
                        region,
                        length,
                        pz,
                        privileges,
                        null_mut(),
                        null_mut(),
                        null_mut(),
                        null_mut(),
                        null_mut(),
                    )
                }
            };
            let segment = w.segment(64);
            let iov = (&raw const segment).cast_mut();
            let remote = DAT_RMR_TRIPLET {
                rmr_context: 1,
                pad: 0,
                target_address: 0,
                segment_length: 64,
            };
            let remote = &raw const remote;
            let bytes: DAT_PVOID = w.memory.cast();
            use Subtype::*;
            // SAFETY: each pointer is valid or null.
            let answers = unsafe {
                [
                    ("pz_create", dat_pz_create(ia, null_mut()), InvalidArg2),
                    (
                        "ep_create",
                        dat_ep_create(ia, pz, no, no, no, null(), null_mut()),
                        InvalidArg7,
                    ),
                    (
                        "ep_create misaligned",
                        dat_ep_create(ia, pz, no, no, no, misaligned, place),
                        InvalidArg6,
                    ),
                    (
                        "with_srq",
                        dat_ep_create_with_srq(ia, pz, no, no, no, srq, at, null_mut()),
                        InvalidArg8,
                    ),
                    (
                        "e07 with_srq",
                        dat_ep_create_with_srq(ia, pz, no, no, no, srq, null(), place),
                        InvalidArg7,
                    ),
                    (
                        "srq_create attributes",
                        dat_srq_create(ia, pz, null_mut(), place),
                        InvalidArg3,
                    ),
                    (
                        "srq_create",
                        dat_srq_create(ia, pz, srq_at, null_mut()),
                        InvalidArg4,
                    ),
                    ("srq_resize", dat_srq_resize(srq, 0), InvalidArg2),
                    (
                        "evd_create",
                        dat_evd_create(ia, 8, no, DAT_EVD_DTO_FLAG, null_mut()),
                        InvalidArg5,
                    ),
                    (
                        "evd_create 0",
                        dat_evd_create(ia, 0, no, DAT_EVD_DTO_FLAG, place),
                        InvalidArg2,
                    ),
                    (
                        "evd_create -1",
                        dat_evd_create(ia, -1, no, DAT_EVD_DTO_FLAG, place),
                        InvalidArg2,
                    ),
                    (
                        "evd_create flags",
                        dat_evd_create(ia, 8, no, 0x2, place),
                        InvalidArg4,
                    ),
                    (
                        "evd_create flags",
                        dat_evd_create(ia, 8, no, 1 << 31, place),
                        InvalidArg4,
                    ),
                    ("evd_dequeue", dat_evd_dequeue(evd, null_mut()), InvalidArg2),
                    (
                        "evd_wait event",
                        dat_evd_wait(evd, 0, 1, null_mut(), more),
                        InvalidArg4,
                    ),
                    (
                        "evd_wait nmore",
                        dat_evd_wait(evd, 0, 1, event, null_mut()),
                        InvalidArg5,
                    ),
                    (
                        "w11 evd_wait 0",
                        dat_evd_wait(evd, 0, 0, event, more),
                        InvalidArg3,
                    ),
                    (
                        "w11 evd_wait -1",
                        dat_evd_wait(evd, 0, -1, event, more),
                        InvalidArg3,
                    ),
                    (
                        "w11 evd_wait huge",
                        dat_evd_wait(evd, 0, i32::MAX, event, more),
                        InvalidArg3,
                    ),
                    ("evd_post_se", dat_evd_post_se(evd, null()), InvalidArg2),
                    (
                        "evd_post_se number",
                        dat_evd_post_se(evd, event),
                        InvalidArg2,
                    ),
                    ("evd_resize", dat_evd_resize(evd, 0), InvalidArg2),
                    ("lmr type", lmr(3, 64, 1), InvalidArg2),
                    ("lmr privileges", lmr(0, 64, 0x4), InvalidArg6),
                    (
                        "lmr_sync",
                        dat_lmr_sync_rdma_read(ia, null(), 1),
                        InvalidArg2,
                    ),
                    (
                        "lmr_sync",
                        dat_lmr_sync_rdma_write(ia, null(), 1),
                        InvalidArg2,
                    ),
                    (
                        "psp_create",
                        dat_psp_create(ia, 7000, w.cr_evd, 0, null_mut()),
                        InvalidArg5,
                    ),
                    (
                        "psp_create flags",
                        dat_psp_create(ia, 7000, w.cr_evd, 2, place),
                        InvalidArg4,
                    ),
                    (
                        "psp_create_any",
                        dat_psp_create_any(ia, null_mut(), w.cr_evd, 0, place),
                        InvalidArg2,
                    ),
                    (
                        "psp_create_any point",
                        dat_psp_create_any(ia, &raw mut any, w.cr_evd, 0, null_mut()),
                        InvalidArg5,
                    ),
                    (
                        "psp_create_any flags",
                        dat_psp_create_any(ia, &raw mut any, w.cr_evd, 2, place),
                        InvalidArg4,
                    ),
                    (
                        "rsp_create",
                        dat_rsp_create(ia, 7000, ep, w.cr_evd, null_mut()),
                        InvalidArg5,
                    ),
                    ("rmr_create", dat_rmr_create(pz, null_mut()), InvalidArg2),
                    ("ia_close", dat_ia_close(ia, 2), InvalidArg2),
                    ("ep_disconnect", dat_ep_disconnect(ep, 2), InvalidArg2),
                    (
                        "ep_connect address",
                        dat_ep_connect(ep, null_mut(), 1, 1, 0, null_mut(), 0, 0),
                        InvalidArg2,
                    ),
                    (
                        "ep_modify null",
                        dat_ep_modify(ep, 1 << 6, null()),
                        InvalidArg3,
                    ),
                    (
                        "ep_modify bit 11",
                        dat_ep_modify(ep, 1 << 11, param),
                        InvalidArg2,
                    ),
                    (
                        "ep_modify bit 31",
                        dat_ep_modify(ep, 1 << 31, param),
                        InvalidArg2,
                    ),
                    (
                        "ep_query bit 11",
                        dat_ep_query(ep, 1 << 11, param),
                        InvalidArg2,
                    ),
                    (
                        "set_watermark soft",
                        dat_ep_set_watermark(ep, -2, 1),
                        InvalidArg2,
                    ),
                    (
                        "set_watermark hard",
                        dat_ep_set_watermark(ep, 1, -2),
                        InvalidArg3,
                    ),
                    (
                        "dup_connect timeout",
                        dat_ep_dup_connect(ep, ep, 0, 0, null_mut(), 0),
                        InvalidArg3,
                    ),
                    (
                        "dup_connect size",
                        dat_ep_dup_connect(ep, ep, 1, -1, bytes, 0),
                        InvalidArg4,
                    ),
                    (
                        "dup_connect data",
                        dat_ep_dup_connect(ep, ep, 1, 1, null_mut(), 0),
                        InvalidArg5,
                    ),
                    (
                        "read remote",
                        dat_ep_post_rdma_read(ep, 1, iov, CONTEXT, null(), 0),
                        InvalidArg5,
                    ),
                    (
                        "write remote",
                        dat_ep_post_rdma_write(ep, 1, iov, CONTEXT, null(), 0),
                        InvalidArg5,
                    ),
                    (
                        "send iov",
                        dat_ep_post_send(ep, 1, null_mut(), CONTEXT, 0),
                        InvalidArg3,
                    ),
                    (
                        "recv iov",
                        dat_ep_post_recv(ep, 1, null_mut(), CONTEXT, 0),
                        InvalidArg3,
                    ),
                    (
                        "recv -1",
                        dat_ep_post_recv(ep, -1, null_mut(), CONTEXT, 0),
                        InvalidArg3,
                    ),
                    (
                        "read iov",
                        dat_ep_post_rdma_read(ep, 1, null_mut(), CONTEXT, remote, 0),
                        InvalidArg3,
                    ),
                    (
                        "write iov",
                        dat_ep_post_rdma_write(ep, 1, null_mut(), CONTEXT, remote, 0),
                        InvalidArg3,
                    ),
                    (
                        "SRQ iov",
                        dat_srq_post_recv(srq, 1, null_mut(), CONTEXT),
                        InvalidArg3,
                    ),
                ]
            };
            let (length, none) = (ReturnType::LengthError, Subtype::NoSubtype);
            expect("lmr length", lmr(0, 0, 1), length, none);
            for (what, answer, subtype) in answers {
                expect(what, answer, BAD, subtype);
            }
            assert_eq!((made, any), (DAT_HANDLE_NULL, 0), "untouched");
        },
    );
}

/// The call checks its arguments before the state.
#[test]
fn w05_private_data_and_addresses_of_a_connect_are_checked() {
    on_a_device(
        "arguments::w05_private_data_and_addresses_of_a_connect_are_checked",
        || {
            let w = Fixture::new();
            // SAFETY: numbers, for which 0 is a value.
            let mut address: libc::sockaddr_in = unsafe { core::mem::zeroed() };
            address.sin_family = libc::AF_INET as libc::sa_family_t;
            address.sin_addr.s_addr = u32::from(std::net::Ipv4Addr::LOCALHOST).to_be();
            let to: DAT_IA_ADDRESS_PTR = (&raw mut address).cast();
            let bytes: DAT_PVOID = w.memory.cast();
            let connect = |timeout, size, data| {
                // SAFETY: an address, and data or null.
                unsafe { dat_ep_connect(w.ep, to, 7000, timeout, size, data, 0, 0) }
            };
            expect(
                "timeout",
                connect(0, 0, null_mut()),
                BAD,
                Subtype::InvalidArg4,
            );
            expect("negative", connect(1, -1, bytes), BAD, Subtype::InvalidArg5);
            expect(
                "no data",
                connect(1, 1, null_mut()),
                BAD,
                Subtype::InvalidArg6,
            );
            let mut provider = dirty::<DAT_PROVIDER_ATTR>();
            let field = DAT_PROVIDER_FIELD_MAX_PRIVATE_DATA_SIZE;
            // SAFETY: there is room for the result, which the call writes.
            let most = unsafe {
                let place = provider.as_mut_ptr();
                success(
                    "query",
                    dat_ia_query(w.ia, null_mut(), 0, null_mut(), field, place),
                );
                provider.assume_init().max_private_data_size
            };
            expect(
                "too long",
                connect(1, most + 1, bytes),
                BAD,
                Subtype::InvalidArg5,
            );
            // SAFETY: its first member, through the pointer that is passed.
            unsafe {
                (*to.cast::<libc::sockaddr_in>()).sin_family = libc::AF_UNIX as libc::sa_family_t
            };
            // SAFETY: an address of a family that the library does not support.
            let answer = unsafe { dat_ep_connect(w.ep, to, 7000, 1, 0, null_mut(), 0, 0) };
            expect(
                "family",
                answer,
                ReturnType::InvalidAddress,
                Subtype::InvalidAddressUnsupported,
            );
        },
    );
}

#[test]
fn r01_counts_and_segments_of_posts() {
    on_a_device("arguments::r01_counts_and_segments_of_posts", || {
        let w = Fixture::new();
        let segments = [w.segment(64), w.segment(64), w.segment(64)];
        // The array need not be aligned.
        let mut bytes = vec![0_u8; size_of_val(&segments) + 1];
        let iov: *mut DAT_LMR_TRIPLET = bytes[1..].as_mut_ptr().cast();
        // SAFETY: the same, as bytes.
        unsafe {
            iov.cast::<u8>()
                .copy_from_nonoverlapping(segments.as_ptr().cast(), size_of_val(&segments));
        }
        let recv = |count, iov| {
            // SAFETY: as many segments as the call may read.
            unsafe { dat_ep_post_recv(w.ep, count, iov, CONTEXT, 0) }
        };
        let shared = |count, iov| {
            // SAFETY: the same.
            unsafe { dat_srq_post_recv(w.srq, count, iov, CONTEXT) }
        };
        success("empty message", recv(0, null_mut()));
        success("empty message", recv(0, iov));
        success("two", recv(2, iov));
        success("empty message", shared(0, null_mut()));
        success("two", shared(2, iov));
        // The endpoint has 2 receives; the queue may have more than requested.
        expect("three", recv(3, iov), BAD, Subtype::InvalidArg2);
        for count in [33, i32::MAX, i32::MIN, -1] {
            for answer in [recv(count, iov), shared(count, iov)] {
                let kind = dat_api::DatReturn::from_bits(answer).kind();
                assert_eq!(kind, Some(BAD), "{count} segments");
            }
        }
        // SAFETY: a segment.
        let answer = unsafe { dat_ep_post_recv(w.srq_ep, 1, iov, CONTEXT, 0) };
        let code = dat_api::DatReturn::from_bits(answer);
        assert_eq!(code.kind(), Some(ReturnType::InvalidState), "e06: {code}");
        // SAFETY: a segment.
        let answer = unsafe { dat_ep_post_send(w.ep, 1, iov, CONTEXT, 0) };
        expect(
            "send before it is connected",
            answer,
            ReturnType::InvalidState,
            Subtype::InvalidStateEpUnconnected,
        );
    });
}

#[test]
fn an_unknown_adapter_name_is_not_found() {
    on_a_device("arguments::an_unknown_adapter_name_is_not_found", || {
        let (mut ia, mut evd) = (DAT_HANDLE_NULL, DAT_HANDLE_NULL);
        let name = device();
        for (name, major, minor) in [(c"nothing", 1, 2), (&name, 2, 0), (&name, 1, 1)] {
            let name = name.as_ptr().cast_mut();
            // SAFETY: a name, and room for the handles.
            let answer = unsafe {
                dat_ia_openv(name, 8, &raw mut evd, &raw mut ia, major, minor, DAT_FALSE)
            };
            let code = dat_api::DatReturn::from_bits(answer);
            assert_eq!(code.kind(), Some(ReturnType::ProviderNotFound), "{code}");
            assert_eq!((ia, evd), (DAT_HANDLE_NULL, DAT_HANDLE_NULL), "untouched");
        }
        // A second IA may share the EVD of the first, or pass
        // DAT_EVD_ASYNC_EXISTS.
        let (first, shared) = open(&name);
        let name = name.as_ptr().cast_mut();
        evd = shared;
        // SAFETY: a name, and room for the handles.
        unsafe {
            success(
                "shared",
                dat_ia_openv(name, 0, &raw mut evd, &raw mut ia, 1, 2, DAT_FALSE),
            );
            assert_eq!(evd, shared, "unchanged");
            success("close", dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
            evd = DAT_EVD_ASYNC_EXISTS;
            success(
                "elsewhere",
                dat_ia_openv(name, 0, &raw mut evd, &raw mut ia, 1, 2, DAT_FALSE),
            );
            assert_eq!(evd, DAT_EVD_OUT_OF_SCOPE);
            let mut async_evd = DAT_HANDLE_NULL;
            success(
                "query",
                dat_ia_query(ia, &raw mut async_evd, 0, null_mut(), 0, null_mut()),
            );
            assert_eq!(async_evd, DAT_EVD_OUT_OF_SCOPE);
            success("close", dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
            success("close", dat_ia_close(first, DAT_CLOSE_GRACEFUL_FLAG));
        }
    });
}
