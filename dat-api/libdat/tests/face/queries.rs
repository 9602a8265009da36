//! What queries answer, and to bad masks and pointers; and that nothing is
//! written then.

use core::ptr::null_mut;

use dat::abi::*;
use dat::exports::*;
use dat_api::{ReturnType, Subtype};

use crate::common::{expect, success};
use crate::launcher::on_a_device;
use crate::world::{World, dirty};

const BAD: ReturnType = ReturnType::InvalidParameter;

#[test]
fn queries_check_their_masks_and_pointers() {
    on_a_device("queries::queries_check_their_masks_and_pointers", || {
        let w = World::new();
        macro_rules! query {
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
                // SAFETY: any bytes may be looked at as such.
                let bytes = unsafe {
                    core::slice::from_raw_parts(room.as_ptr().cast::<u8>(), size_of::<$type>())
                };
                assert!(bytes.iter().all(|&byte| byte == 0xa5), "untouched");
                // SAFETY: there is room for the result.
                success(stringify!($call), unsafe {
                    $call($handle, $all, room.as_mut_ptr())
                });
                // SAFETY: the call has written it.
                let param = unsafe { room.assume_init() };
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
    });
}

#[test]
fn the_adapter_s_query_checks_each_mask_with_its_structure() {
    on_a_device(
        "queries::the_adapter_s_query_checks_each_mask_with_its_structure",
        || {
            let w = World::new();
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
                    // SAFETY: so many pairs of C strings.
                    let (name, value) = unsafe { ((*list.add(at)).name, (*list.add(at)).value) };
                    assert!(!name.is_null() && !value.is_null());
                }
            }
        },
    );
}
