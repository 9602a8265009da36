//! Memory: zones, LMRs, RMRs and shared receive queues.
//!
//! The tables are those of the published pages of uDAPL 1.2. For each row, the
//! test that proves it:
//!
//! | call | row | test |
//! | --- | --- | --- |
//! | `dat_*_create` | no resources | `resources` |
//! | `dat_pz_create`, `_query` | all | `lmr::pz_row_by_row` |
//! | `dat_pz_free` | in use by LMR, SRQ, EP | `lmr::pz_row_by_row` |
//! | | in use by RMR | `rmr::life::rmr_keeps_its_zone_and_its_region_in_use` |
//! | `dat_lmr_create` | handles, length 0, unknown type, source LMR | `lmr::lmr_create_row_by_row` |
//! | | not mapped, too long, table full | `adapters memory::invalid_memory_is_refused`, `lmr::table` |
//! | | LMR of an LMR | `lmr::lmr_of_an_lmr_is_the_same_memory_registered_again` |
//! | | shared: not shared, identifier in use | `lmr::lmr_of_shared_memory_is_named_by_its_identifier` |
//! | | `rmr_context` only with a remote privilege | `adapters memory::a_region_reports_its_parameters_…` |
//! | `dat_lmr_query`, `_free` | handles | `lmr::lmr_create_row_by_row` |
//! | `dat_lmr_free` | bound RMRs exist | `rmr::life::rmr_keeps_its_zone_and_its_region_in_use` |
//! | | data that were received before | `lmr::lmr_that_is_freed_…` |
//! | | later local use, later remote use | `statuses::status_local_protection_…`, `lmr::lmr_of_an_lmr_…` |
//! | `dat_lmr_sync_rdma_*` | all | `lmr::lmr_sync_checks_its_segments` |
//! | `dat_rmr_create`, `_query`, `_free` | all | `rmr::life::rmr_create_query_free_row_by_row`, `rmr::life::rmr_free_unbinds` |
//! | `dat_rmr_bind` | handles, LMR context, range, zones, privileges | `rmr::bind::rmr_bind_row_by_row` |
//! | | completion flags | `rmr::bind::rmr_bind_completes_as_its_flags_say`, `…_unsignalled_…` |
//! | | state | `rmr::bind::rmr_bind_row_by_state` |
//! | | queue full | `rmr::bind::rmr_bind_takes_a_place_in_the_request_queue` |
//! | | EVD without the flag | `rmr::bind::rmr_bind_needs_a_request_evd_for_it` |
//! | | fails later | `rmr::bind::rmr_bind_that_fails_breaks_the_connection` |
//! | | implicit fence (ordering, row 7) | `rmr::order` |
//! | | not supported | every device here has windows |
//! | `dat_srq_create`, `_free`, `_query` | all | `srq::srq_create_free_query_row_by_row`; sizes: `bad_input::arguments`, `device shared` |
//! | `dat_srq_post_recv` | all | `srq::srq_post_recv_row_by_row`; which endpoint takes the buffers: `ep_create_with_srq` e01, also while it disconnects |
//! | `dat_srq_resize` | all | `srq::srq_resize_*` |
//! | `dat_srq_set_lw` | all | `srq_set_lw` |
//!
//! Completion statuses: `evd::convert` in `dat-api` maps every status of a
//! device. The tests that cause each status:
//!
//! | status | test |
//! | --- | --- |
//! | 0, 1 | `statuses::status_success_and_flushed` |
//! | 2, 7 | `statuses::status_local_length_and_remote_responder` |
//! | 3 | `statuses::status_local_ep_of_a_request_that_is_spoilt` |
//! | 4 | `statuses::status_local_protection_error_for_removed_memory` |
//! | 5, 9 | `statuses::status_bad_response_and_receiver_not_ready` |
//! | 6 | `statuses::status_remote_access_for_every_reason` |
//! | 8 | `statuses::status_transport_when_every_packet_is_lost` |
//! | 10 | never occurs: verbs have no partial packets |
//! | 11 | `rmr::bind::rmr_bind_that_fails_breaks_the_connection` |
//!
//! Violations that a post refuses at once, and violations that are reported in a
//! completion:
//!
//! | violation | found | test |
//! | --- | --- | --- |
//! | segment outside its LMR, unknown context, count, flags | at once | receives: `ep_post_recv::refusals`; requests: `device posting::r10_r11_r12_…`, `…r05_…`, `…lengths_…` |
//! | local zone, local privilege | at once | the same |
//! | sizes of RDMA do not fit | at once | `device posting::lengths_and_counts_are_checked` |
//! | local memory freed after the post | completion, status 4 | `statuses::status_local_protection_…` |
//! | remote zone, context, range, privilege | completion, status 6 | `statuses::status_remote_access_…`, `rmr::access::rmr_bind_opens_…` |
//! | message longer than the receive | completion, status 2 | `statuses::status_local_length_…` |

mod lmr;
mod rmr;
mod srq;
mod statuses;
