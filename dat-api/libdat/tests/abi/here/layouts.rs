//! The structs of `dat::abi`.

use crate::abi::facts::Layout;
use crate::abi::listed::layouts;
use dat::abi::*;

/// Every struct and union of the headers.
pub(crate) fn layouts() -> Vec<Layout> {
    layouts! {
        DAT_NAMED_ATTR {
            name value
        }
        DAT_CONTEXT {
            as_ptr as_64 as_index
        }
        DAT_LMR_TRIPLET {
            lmr_context pad virtual_address segment_length
        }
        DAT_RMR_TRIPLET {
            rmr_context pad target_address segment_length
        }
        DAT_RMR_PARAM {
            ia_handle pz_handle lmr_triplet mem_priv rmr_context
        }
        DAT_IA_ATTR {
            adapter_name vendor_name hardware_version_major hardware_version_minor
            firmware_version_major firmware_version_minor ia_address_ptr max_eps max_dto_per_ep
            max_rdma_read_per_ep_in max_rdma_read_per_ep_out max_evds max_evd_qlen
            max_iov_segments_per_dto max_lmrs max_lmr_block_size max_lmr_virtual_address max_pzs
            max_message_size max_rdma_size max_rmrs max_rmr_target_address max_srqs max_ep_per_srq
            max_recv_per_srq max_iov_segments_per_rdma_read max_iov_segments_per_rdma_write
            max_rdma_read_in max_rdma_read_out max_rdma_read_per_ep_in_guaranteed
            max_rdma_read_per_ep_out_guaranteed num_transport_attr transport_attr num_vendor_attr
            vendor_attr
        }
        DAT_EP_ATTR {
            service_type max_message_size max_rdma_size qos recv_completion_flags
            request_completion_flags max_recv_dtos max_request_dtos max_recv_iov max_request_iov
            max_rdma_read_in max_rdma_read_out srq_soft_hw max_rdma_read_iov max_rdma_write_iov
            ep_transport_specific_count ep_transport_specific ep_provider_specific_count
            ep_provider_specific
        }
        DAT_EP_PARAM {
            ia_handle ep_state local_ia_address_ptr local_port_qual remote_ia_address_ptr
            remote_port_qual pz_handle recv_evd_handle request_evd_handle connect_evd_handle
            srq_handle ep_attr
        }
        DAT_SRQ_ATTR {
            max_recv_dtos max_recv_iov low_watermark
        }
        DAT_SRQ_PARAM {
            ia_handle srq_state pz_handle max_recv_dtos max_recv_iov low_watermark
            available_dto_count outstanding_dto_count
        }
        DAT_PZ_PARAM {
            ia_handle
        }
        DAT_PSP_PARAM {
            ia_handle conn_qual evd_handle psp_flags
        }
        DAT_RSP_PARAM {
            ia_handle conn_qual evd_handle ep_handle
        }
        DAT_CR_PARAM {
            remote_ia_address_ptr remote_port_qual private_data_size private_data local_ep_handle
        }
        DAT_DTO_COMPLETION_EVENT_DATA {
            ep_handle user_cookie status transfered_length
        }
        DAT_RMR_BIND_COMPLETION_EVENT_DATA {
            rmr_handle user_cookie status
        }
        DAT_SP_HANDLE {
            rsp_handle psp_handle
        }
        DAT_CR_ARRIVAL_EVENT_DATA {
            sp_handle local_ia_address_ptr conn_qual cr_handle
        }
        DAT_CONNECTION_EVENT_DATA {
            ep_handle private_data_size private_data
        }
        DAT_ASYNCH_ERROR_EVENT_DATA {
            dat_handle reason
        }
        DAT_SOFTWARE_EVENT_DATA {
            pointer
        }
        DAT_EVENT_DATA {
            dto_completion_event_data rmr_completion_event_data cr_arrival_event_data
            connect_event_data asynch_error_event_data software_event_data
        }
        DAT_EVENT {
            event_number evd_handle event_data
        }
        DAT_PROVIDER_INFO {
            ia_name dapl_version_major dapl_version_minor is_thread_safe
        }
        DAT_EVD_PARAM {
            ia_handle evd_qlen evd_state cno_handle evd_flags
        }
        DAT_OS_WAIT_PROXY_AGENT {
            instance_data proxy_agent_func
        }
        DAT_SHARED_MEMORY {
            virtual_address shared_memory_id
        }
        DAT_REGION_DESCRIPTION {
            for_va for_lmr_handle for_shared_memory
        }
        DAT_LMR_PARAM {
            ia_handle mem_type region_desc length pz_handle mem_priv lmr_context rmr_context
            registered_size registered_address
        }
        DAT_CNO_PARAM {
            ia_handle agent
        }
        DAT_PROVIDER_ATTR {
            provider_name provider_version_major provider_version_minor dapl_version_major
            dapl_version_minor lmr_mem_types_supported iov_ownership_on_return dat_qos_supported
            completion_flags_supported is_thread_safe max_private_data_size supports_multipath
            ep_creator pz_support optimal_buffer_alignment evd_stream_merging_supported
            srq_supported srq_watermarks_supported srq_ep_pz_difference_supported
            srq_info_supported ep_recv_info_supported lmr_sync_req dto_async_return_guaranteed
            rdma_write_for_rdma_read_req num_provider_specific_attr provider_specific_attr
        }
        DAT_PROVIDER {
            device_name extension ia_open_func ia_query_func ia_close_func
            set_consumer_context_func get_consumer_context_func get_handle_type_func
            cno_create_func cno_modify_agent_func cno_query_func cno_free_func cno_wait_func
            cr_query_func cr_accept_func cr_reject_func cr_handoff_func evd_create_func
            evd_query_func evd_modify_cno_func evd_enable_func evd_disable_func evd_wait_func
            evd_resize_func evd_post_se_func evd_dequeue_func evd_free_func ep_create_func
            ep_query_func ep_modify_func ep_connect_func ep_dup_connect_func ep_disconnect_func
            ep_post_send_func ep_post_recv_func ep_post_rdma_read_func ep_post_rdma_write_func
            ep_get_status_func ep_free_func lmr_create_func lmr_query_func lmr_free_func
            rmr_create_func rmr_query_func rmr_bind_func rmr_free_func psp_create_func
            psp_query_func psp_free_func rsp_create_func rsp_query_func rsp_free_func
            pz_create_func pz_query_func pz_free_func psp_create_any_func ep_reset_func
            evd_set_unwaitable_func evd_clear_unwaitable_func lmr_sync_rdma_read_func
            lmr_sync_rdma_write_func ep_create_with_srq_func ep_recv_query_func
            ep_set_watermark_func srq_create_func srq_free_func srq_post_recv_func srq_query_func
            srq_resize_func srq_set_lw_func
        }
    }
}
