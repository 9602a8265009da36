//! Queries: their results, their return codes for bad masks and pointers, and
//! that nothing is written then.

use core::ptr::null_mut;

use dat::abi::*;
use dat::exports::*;
use dat_api::handle::{Handle, pin};
use dat_api::object::ia::Ia;
use dat_api::object::ia::attributes::NamedAttribute;
use dat_api::{ReturnType, Subtype};

use crate::face::common::{expect, success};
use crate::face::fixture::{Fixture, dirty};
use crate::face::launcher::on_a_device;

const BAD: ReturnType = ReturnType::InvalidParameter;

/// Creates a reserved service point for the fixture's endpoint.
fn reserve(w: &Fixture) -> DAT_RSP_HANDLE {
    let mut rsp = DAT_HANDLE_NULL;
    for qualifier in 21_000..21_100 {
        // SAFETY: live handles, and room for the result.
        let answer = unsafe { dat_rsp_create(w.ia, qualifier, w.ep, w.cr_evd, &raw mut rsp) };
        if answer == 0 {
            return rsp;
        }
    }
    panic!("every qualifier is in use");
}

/// Makes a request at the fixture's service point, by its other endpoint.
fn request(w: &Fixture, qualifier: DAT_CONN_QUAL) -> DAT_CR_HANDLE {
    let (mut ia, mut event) = (dirty::<DAT_IA_ATTR>(), dirty::<DAT_EVENT>());
    let (places, mut more) = ((ia.as_mut_ptr(), event.as_mut_ptr()), 0);
    let field = DAT_IA_FIELD_IA_ADDRESS_PTR;
    // SAFETY: live handles, and room for the results, which the calls write.
    unsafe {
        let answer = dat_ia_query(w.ia, null_mut(), field, places.0, 0, null_mut());
        success("dat_ia_query", answer);
        let to = (*places.0).ia_address_ptr;
        let answer = dat_ep_connect(w.srq_ep, to, qualifier, 10_000_000, 0, null_mut(), 0, 0);
        success("dat_ep_connect", answer);
        let answer = dat_evd_wait(w.cr_evd, 10_000_000, 1, places.1, &raw mut more);
        success("dat_evd_wait", answer);
        let event = event.assume_init();
        assert_eq!(event.event_number, DAT_CONNECTION_REQUEST_EVENT);
        event.event_data.cr_arrival_event_data.cr_handle
    }
}

#[test]
fn queries_check_their_masks_and_pointers() {
    on_a_device("queries::queries_check_their_masks_and_pointers", || {
        let w = Fixture::new();
        macro_rules! checked {
            ($call:ident($handle:expr, $type:ty), known $all:ident) => {{
                let mut room = dirty::<$type>();
                let beyond = [$all + 1, 1 << 31, !0];
                for mask in beyond {
                    // SAFETY: there is room for the result.
                    let answer = unsafe { $call($handle, mask, room.as_mut_ptr()) };
                    expect(stringify!($call), answer, BAD, Subtype::InvalidArg2);
                }
                // SAFETY: null is allowed.
                let answer = unsafe { $call($handle, $all, null_mut()) };
                expect(stringify!($call), answer, BAD, Subtype::InvalidArg3);
                // SAFETY: the memory is initialised, and any bytes may be read as
                // such.
                let bytes = unsafe {
                    core::slice::from_raw_parts(room.as_ptr().cast::<u8>(), size_of::<$type>())
                };
                assert!(bytes.iter().all(|&byte| byte == 0xa5), "untouched");
                // SAFETY: there is room for the result.
                success(stringify!($call), unsafe {
                    $call($handle, $all, room.as_mut_ptr())
                });
                // SAFETY: the call has written it.
                unsafe { room.assume_init() }
            }};
        }
        macro_rules! query {
            ($call:ident $what:tt, known $all:ident) => {{
                let param = checked!($call $what, known $all);
                assert_eq!(param.ia_handle, w.ia, stringify!($call));
                param
            }};
        }
        let pz = query!(dat_pz_query(w.pz, DAT_PZ_PARAM), known DAT_PZ_FIELD_ALL);
        assert_eq!(pz.ia_handle, w.ia);
        let lmr = query!(dat_lmr_query(w.lmr, DAT_LMR_PARAM), known DAT_LMR_FIELD_ALL);
        assert_eq!((lmr.mem_type, lmr.pz_handle), (DAT_MEM_TYPE_VIRTUAL, w.pz));
        assert_eq!(
            (lmr.lmr_context, lmr.mem_priv),
            (w.context, DAT_MEM_PRIV_ALL_FLAG)
        );
        // SAFETY: virtual memory has this member.
        assert_eq!(unsafe { lmr.region_desc.for_va }, w.memory.cast());
        assert_eq!(lmr.length, 4096);
        assert_ne!(lmr.rmr_context, 0);
        let evd = query!(dat_evd_query(w.evd, DAT_EVD_PARAM), known DAT_EVD_FIELD_ALL);
        assert!(evd.evd_qlen >= 16);
        assert_eq!(evd.evd_flags, DAT_EVD_DTO_FLAG | DAT_EVD_SOFTWARE_FLAG);
        assert_eq!(evd.cno_handle, DAT_HANDLE_NULL);
        assert_eq!(
            evd.evd_state,
            DAT_EVD_STATE_ENABLED | DAT_EVD_STATE_WAITABLE | DAT_EVD_STATE_CONFIG_THRESHOLD
        );
        let ep = query!(dat_ep_query(w.ep, DAT_EP_PARAM), known DAT_EP_FIELD_ALL);
        assert_eq!(ep.ep_state, DAT_EP_STATE_UNCONNECTED);
        assert_eq!((ep.pz_handle, ep.srq_handle), (w.pz, DAT_HANDLE_NULL));
        assert_eq!((ep.recv_evd_handle, ep.request_evd_handle), (w.evd, w.evd));
        assert_eq!(ep.connect_evd_handle, w.connect_evd);
        assert_eq!((ep.ep_attr.max_recv_dtos, ep.ep_attr.max_recv_iov), (4, 2));
        assert!(!ep.local_ia_address_ptr.is_null());
        let srq_ep = query!(dat_ep_query(w.srq_ep, DAT_EP_PARAM), known DAT_EP_FIELD_ALL);
        assert_eq!(srq_ep.srq_handle, w.srq);
        let srq = query!(dat_srq_query(w.srq, DAT_SRQ_PARAM), known DAT_SRQ_FIELD_ALL);
        assert_eq!(
            (srq.pz_handle, srq.srq_state),
            (w.pz, DAT_SRQ_STATE_OPERATIONAL)
        );
        assert!(srq.max_recv_dtos >= 8 && srq.max_recv_iov >= 2);
        assert_eq!((srq.available_dto_count, srq.outstanding_dto_count), (0, 0));
        let psp = query!(dat_psp_query(w.psp, DAT_PSP_PARAM), known DAT_PSP_FIELD_ALL);
        assert_eq!(
            (psp.evd_handle, psp.psp_flags),
            (w.cr_evd, DAT_PSP_CONSUMER_FLAG)
        );
        assert_ne!(psp.conn_qual, 0);
        let reserved = reserve(&w);
        let rsp = query!(dat_rsp_query(reserved, DAT_RSP_PARAM), known DAT_RSP_FIELD_ALL);
        assert_eq!((rsp.ep_handle, rsp.evd_handle), (w.ep, w.cr_evd));
        assert_ne!(rsp.conn_qual, psp.conn_qual);
        let cr = request(&w, psp.conn_qual);
        let cr = checked!(dat_cr_query(cr, DAT_CR_PARAM), known DAT_CR_FIELD_ALL);
        assert_eq!(
            (cr.local_ep_handle, cr.private_data_size),
            (DAT_HANDLE_NULL, 0)
        );
        assert!(!cr.remote_ia_address_ptr.is_null());
    });
}

#[test]
fn the_adapter_s_query_checks_each_mask_with_its_structure() {
    on_a_device(
        "queries::the_adapter_s_query_checks_each_mask_with_its_structure",
        || {
            let w = Fixture::new();
            let (mut ia, mut provider) = (dirty::<DAT_IA_ATTR>(), dirty::<DAT_PROVIDER_ATTR>());
            let mut evd = DAT_HANDLE_NULL;
            let query = |ia_mask, ia, provider_mask, provider, evd| {
                // SAFETY: null or room for the result.
                unsafe { dat_ia_query(w.ia, evd, ia_mask, ia, provider_mask, provider) }
            };
            let (ia_place, provider_place) = (ia.as_mut_ptr(), provider.as_mut_ptr());
            let all = (DAT_IA_FIELD_ALL, DAT_PROVIDER_FIELD_ALL);
            let evd_place = &raw mut evd;
            let answer = query(all.0 + 1, ia_place, 0, null_mut(), evd_place);
            expect("IA mask", answer, BAD, Subtype::InvalidArg3);
            let answer = query(1, null_mut(), 0, null_mut(), evd_place);
            expect("IA place", answer, BAD, Subtype::InvalidArg4);
            let answer = query(0, null_mut(), all.1 + 1, provider_place, evd_place);
            expect("provider mask", answer, BAD, Subtype::InvalidArg5);
            let answer = query(0, null_mut(), 1, null_mut(), evd_place);
            expect("provider place", answer, BAD, Subtype::InvalidArg6);
            assert_eq!(evd, DAT_HANDLE_NULL, "untouched");
            success("nothing", query(0, null_mut(), 0, null_mut(), null_mut()));
            success("EVD", query(0, null_mut(), 0, null_mut(), evd_place));
            assert_eq!(evd, w.async_evd);
            success(
                "all",
                query(all.0, ia_place, all.1, provider_place, null_mut()),
            );
            // SAFETY: the call has written both.
            let (ia, provider) = unsafe { (ia.assume_init(), provider.assume_init()) };
            // SAFETY: the name ends with a NUL, as the rest of its array is.
            let name = unsafe { core::ffi::CStr::from_ptr(ia.adapter_name.as_ptr()) };
            assert!(!name.is_empty());
            assert!(!ia.ia_address_ptr.is_null());
            assert!(ia.max_eps > 0 && ia.max_evd_qlen > 0 && ia.max_srqs > 0);
            assert_eq!(
                (provider.dapl_version_major, provider.dapl_version_minor),
                (1, 2)
            );
            assert!(
                provider
                    .evd_stream_merging_supported
                    .iter()
                    .flatten()
                    .all(|&b| b <= 1)
            );
            assert!(provider.max_private_data_size >= 56);
            for (count, list) in [
                (ia.num_transport_attr, ia.transport_attr),
                (ia.num_vendor_attr, ia.vendor_attr),
                (
                    provider.num_provider_specific_attr,
                    provider.provider_specific_attr,
                ),
            ] {
                for at in 0..usize::try_from(count).expect("a count") {
                    // SAFETY: the list has as many pairs of C strings as given.
                    let (name, value) = unsafe { ((*list.add(at)).name, (*list.add(at)).value) };
                    assert!(!name.is_null() && !value.is_null());
                }
            }
        },
    );
}

/// Converts a C list to Rust.
fn list(count: DAT_COUNT, list: *mut DAT_NAMED_ATTR) -> Vec<(String, String)> {
    if count == 0 {
        assert!(list.is_null());
    }
    let text = |at| {
        // SAFETY: a C string that is never freed.
        let text = unsafe { core::ffi::CStr::from_ptr(at) };
        text.to_str().expect("UTF-8").to_owned()
    };
    (0..usize::try_from(count).expect("a count"))
        // SAFETY: the list has as many pairs of C strings as given.
        .map(|at| unsafe { (text((*list.add(at)).name), text((*list.add(at)).value)) })
        .collect()
}

fn pairs(of: &[NamedAttribute]) -> Vec<(String, String)> {
    of.iter()
        .map(|of| (of.name.to_owned(), of.value.clone()))
        .collect()
}

fn name(of: &[core::ffi::c_char]) -> String {
    // SAFETY: the name ends with a NUL, as the rest of its array is.
    let name = unsafe { core::ffi::CStr::from_ptr(of.as_ptr()) };
    name.to_str().expect("UTF-8").to_owned()
}

/// Field by field: none is missing, and none is exchanged with another.
#[test]
fn every_attribute_of_c_equals_that_of_rust() {
    on_a_device("queries::every_attribute_of_c_equals_that_of_rust", || {
        let w = Fixture::new();
        let (mut ia, mut provider) = (dirty::<DAT_IA_ATTR>(), dirty::<DAT_PROVIDER_ATTR>());
        // SAFETY: there is room for both, which the call writes.
        let (ia, provider) = unsafe {
            let answer = dat_ia_query(
                w.ia,
                null_mut(),
                DAT_IA_FIELD_ALL,
                ia.as_mut_ptr(),
                DAT_PROVIDER_FIELD_ALL,
                provider.as_mut_ptr(),
            );
            success("dat_ia_query", answer);
            (ia.assume_init(), provider.assume_init())
        };
        let handle = Handle::from_bits(w.ia.addr()).expect("not null");
        let is = pin::<Ia>(handle).expect("live").query();
        macro_rules! same {
            ($c:ident, $rust:expr, $($field:ident)*) => {
                $(assert_eq!($c.$field, $rust.$field.into(), stringify!($field));)*
            };
        }
        assert_eq!(name(&ia.adapter_name), is.ia.adapter_name);
        assert_eq!(name(&ia.vendor_name), is.ia.vendor_name);
        assert_eq!(ia.ia_address_ptr.addr(), is.ia.ia_address_ptr);
        same!(ia, is.ia,
            hardware_version_major hardware_version_minor
            firmware_version_major firmware_version_minor
            max_eps max_dto_per_ep max_rdma_read_per_ep_in max_rdma_read_per_ep_out
            max_evds max_evd_qlen max_iov_segments_per_dto max_lmrs max_lmr_block_size
            max_lmr_virtual_address max_pzs max_message_size max_rdma_size max_rmrs
            max_rmr_target_address max_srqs max_ep_per_srq max_recv_per_srq
            max_iov_segments_per_rdma_read max_iov_segments_per_rdma_write
            max_rdma_read_in max_rdma_read_out
            max_rdma_read_per_ep_in_guaranteed max_rdma_read_per_ep_out_guaranteed);
        for (count, at, of) in [
            (
                ia.num_transport_attr,
                ia.transport_attr,
                &is.ia.transport_attributes,
            ),
            (ia.num_vendor_attr, ia.vendor_attr, &is.ia.vendor_attributes),
            (
                provider.num_provider_specific_attr,
                provider.provider_specific_attr,
                &is.provider.provider_specific_attributes,
            ),
        ] {
            assert_eq!(list(count, at), pairs(of));
        }
        let p = &is.provider;
        assert_eq!(name(&provider.provider_name), p.provider_name);
        same!(provider, p,
            provider_version_major provider_version_minor dapl_version_major dapl_version_minor
            lmr_mem_types_supported dat_qos_supported is_thread_safe max_private_data_size
            supports_multipath optimal_buffer_alignment srq_supported srq_watermarks_supported
            srq_ep_pz_difference_supported srq_info_supported ep_recv_info_supported
            lmr_sync_req dto_async_return_guaranteed rdma_write_for_rdma_read_req);
        assert_eq!(
            provider.iov_ownership_on_return,
            p.iov_ownership_on_return as DAT_IOV_OWNERSHIP
        );
        assert_eq!(
            provider.completion_flags_supported,
            p.completion_flags_supported.bits()
        );
        assert_eq!(provider.ep_creator, p.ep_creator as DAT_EP_CREATOR_FOR_PSP);
        assert_eq!(provider.pz_support, p.pz_support as DAT_PZ_SUPPORT);
        assert_eq!(
            provider.evd_stream_merging_supported,
            p.evd_stream_merging_supported.map(|row| row.map(u32::from))
        );
    });
}
