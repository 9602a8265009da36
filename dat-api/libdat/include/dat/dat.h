/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat/dat.h: the calls of DAT 1.2 that user and kernel programs have in
 * common. User programs include dat/udat.h, which has the rest.
 *
 * Every call returns a DAT_RETURN (dat/dat_error.h). Its comment lists its own
 * errors; any call can return DAT_INTERNAL_ERROR. On an error, output arguments
 * are undefined.
 *
 * Threads may use different objects at the same time. Calls on one object must
 * not overlap, except: calls that create objects on it; dat_ia_query; calls on
 * an EVD that wait, dequeue, enable, disable, or set or clear unwaitable;
 * dat_cno_wait; dat_ep_get_status; the queries of PZ, PSP, RSP and CR.
 */
#ifndef DAT_H
#define DAT_H

#include <dat/udat_config.h>

#include <dat/dat_error.h>
#include <dat/dat_events.h>
#include <dat/dat_objects.h>
#include <dat/dat_platform_specific.h>
#include <dat/dat_types.h>
#include <dat/dat_vendor_specific.h>

#include <dat/dat_service.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opens an adapter for the version that the program is compiled for. */
#define dat_ia_open(name, qlen, async_evd, ia) \
    dat_ia_openv((name), (qlen), (async_evd), (ia), DAT_VERSION_MAJOR, DAT_VERSION_MINOR, \
                 DAT_THREADSAFE)

/* Interface adapter */

/*
 * Opens an adapter. *async_evd_handle selects the EVD for asynchronous errors: null
 * creates one of at least async_evd_min_qlen events; an EVD is used unchanged;
 * DAT_EVD_ASYNC_EXISTS creates none. The other arguments are the rest of the registry key.
 * Errors: DAT_PROVIDER_NOT_FOUND, DAT_INVALID_PARAMETER, DAT_INVALID_HANDLE (the EVD),
 * DAT_INVALID_ADDRESS, DAT_INSUFFICIENT_RESOURCES.
 */
DAT_RETURN dat_ia_openv(const DAT_NAME_PTR provider, DAT_COUNT async_evd_min_qlen,
                        DAT_EVD_HANDLE *async_evd_handle, DAT_IA_HANDLE *ia_handle,
                        DAT_UINT32 dapl_major, DAT_UINT32 dapl_minor,
                        DAT_BOOLEAN thread_safety);

/*
 * Returns the attributes of the adapter and of its provider that the masks select, and the
 * EVD for asynchronous errors. A pointer whose mask is 0 may be null.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER (an unknown bit, a null pointer).
 */
DAT_RETURN dat_ia_query(DAT_IA_HANDLE ia_handle, DAT_EVD_HANDLE *async_evd_handle,
                        DAT_IA_ATTR_MASK ia_attr_mask, DAT_IA_ATTR *ia_attr,
                        DAT_PROVIDER_ATTR_MASK provider_attr_mask,
                        DAT_PROVIDER_ATTR *provider_attr);

/*
 * Closes an adapter. Graceful: only if no object is left on it. Abrupt: destroys the
 * objects that are left first, and ends waits on them.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INVALID_STATE (graceful).
 */
DAT_RETURN dat_ia_close(DAT_IA_HANDLE ia_handle, DAT_CLOSE_FLAGS close_flags);

/* Any object */

/*
 * Attaches 64 bits of the caller to any object, and replaces the previous value.
 * Errors: DAT_INVALID_HANDLE.
 */
DAT_RETURN dat_set_consumer_context(DAT_HANDLE dat_handle, DAT_CONTEXT context);

/*
 * Returns the 64 bits that dat_set_consumer_context attached last; 0 if there are none.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_get_consumer_context(DAT_HANDLE dat_handle, DAT_CONTEXT *context);

/*
 * Returns the kind of an object.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_get_handle_type(DAT_HANDLE dat_handle, DAT_HANDLE_TYPE *handle_type);

/* Event dispatcher; more in dat/udat.h */

/*
 * Changes the length of an EVD to at least evd_min_qlen events. No event is lost.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INVALID_STATE (more are queued,
 * or a thread waits for more), DAT_INSUFFICIENT_RESOURCES.
 */
DAT_RETURN dat_evd_resize(DAT_EVD_HANDLE evd_handle, DAT_COUNT evd_min_qlen);

/*
 * Queues a software event, which carries one pointer.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER (the EVD has no such stream, or the
 * event is not a software event), DAT_QUEUE_FULL.
 */
DAT_RETURN dat_evd_post_se(DAT_EVD_HANDLE evd_handle, const DAT_EVENT *event);

/*
 * Takes the first event without waiting.
 * Errors: DAT_QUEUE_EMPTY, DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INVALID_STATE
 * (a thread waits on the EVD).
 */
DAT_RETURN dat_evd_dequeue(DAT_EVD_HANDLE evd_handle, DAT_EVENT *event);

/*
 * Returns the members selected by the mask.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_evd_query(DAT_EVD_HANDLE evd_handle, DAT_EVD_PARAM_MASK evd_param_mask,
                         DAT_EVD_PARAM *evd_param);

/*
 * Destroys an EVD to which no object reports; queued events are lost.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_STATE (in use).
 */
DAT_RETURN dat_evd_free(DAT_EVD_HANDLE evd_handle);

/* Endpoint */

/*
 * Creates an endpoint with its own receive queue. A null PZ or EVD can be set later by
 * dat_ep_modify; events for a null EVD are not delivered. Null attributes take the
 * defaults.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INSUFFICIENT_RESOURCES,
 * DAT_MODEL_NOT_SUPPORTED.
 */
DAT_RETURN dat_ep_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle,
                         DAT_EVD_HANDLE recv_completion_evd_handle,
                         DAT_EVD_HANDLE request_completion_evd_handle,
                         DAT_EVD_HANDLE connect_evd_handle,
                         const DAT_EP_ATTR *ep_attributes, DAT_EP_HANDLE *ep_handle);

/*
 * Creates an endpoint that takes its receives from an SRQ. The attributes must not be
 * null.
 * Errors: as dat_ep_create.
 */
DAT_RETURN dat_ep_create_with_srq(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle,
                                  DAT_EVD_HANDLE recv_evd_handle,
                                  DAT_EVD_HANDLE request_evd_handle,
                                  DAT_EVD_HANDLE connect_evd_handle,
                                  DAT_SRQ_HANDLE srq_handle,
                                  const DAT_EP_ATTR *ep_attributes,
                                  DAT_EP_HANDLE *ep_handle);

/*
 * Returns the members selected by the mask. Remote address and qualifier are valid from
 * the connection request until Disconnected.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_ep_query(DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK ep_param_mask,
                        DAT_EP_PARAM *ep_param);

/*
 * Changes the members selected by the mask, or on an error nothing.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER (a fixed member, or an invalid value),
 * DAT_INVALID_STATE (not allowed in this state).
 */
DAT_RETURN dat_ep_modify(DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK ep_param_mask,
                         const DAT_EP_PARAM *ep_param);

/*
 * Connects to the service point at an address and a qualifier. An event on the connect
 * EVD reports the outcome within timeout microseconds. The private data, at most
 * max_private_data_size bytes (a provider attribute), is copied.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INVALID_STATE (not
 * Unconnected), DAT_INVALID_ADDRESS, DAT_MODEL_NOT_SUPPORTED,
 * DAT_INSUFFICIENT_RESOURCES.
 */
DAT_RETURN dat_ep_connect(DAT_EP_HANDLE ep_handle, DAT_IA_ADDRESS_PTR remote_ia_address,
                          DAT_CONN_QUAL remote_conn_qual, DAT_TIMEOUT timeout,
                          DAT_COUNT private_data_size, const DAT_PVOID private_data,
                          DAT_QOS quality_of_service, DAT_CONNECT_FLAGS connect_flags);

/*
 * Connects to the peer of ep_dup_handle, which is Connected.
 * Errors: as dat_ep_connect; DAT_INVALID_STATE for either endpoint.
 */
DAT_RETURN dat_ep_dup_connect(DAT_EP_HANDLE ep_handle, DAT_EP_HANDLE ep_dup_handle,
                              DAT_TIMEOUT timeout, DAT_COUNT private_data_size,
                              const DAT_PVOID private_data, DAT_QOS quality_of_service);

/*
 * Ends a connection or a connection attempt. Graceful: outstanding requests complete
 * first. An event reports the end; the call has no effect on a Disconnected endpoint.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INVALID_STATE.
 */
DAT_RETURN dat_ep_disconnect(DAT_EP_HANDLE ep_handle, DAT_CLOSE_FLAGS close_flags);

/*
 * Posts a send: a message of all segments in their order. The memory must not be touched
 * until the completion.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INVALID_STATE (neither
 * Connected nor Disconnected), DAT_PROTECTION_VIOLATION, DAT_PRIVILEGES_VIOLATION,
 * DAT_INSUFFICIENT_RESOURCES (too many are outstanding).
 */
DAT_RETURN dat_ep_post_send(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments,
                            DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
                            DAT_COMPLETION_FLAGS completion_flags);

/*
 * Posts a buffer for a message, in any state. Each message takes one buffer and fills its
 * segments in their order.
 * Errors: as dat_ep_post_send; DAT_INVALID_STATE only if the endpoint has an SRQ.
 */
DAT_RETURN dat_ep_post_recv(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments,
                            DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
                            DAT_COMPLETION_FLAGS completion_flags);

/*
 * Reads the peer's memory into the local segments.
 * Errors: as dat_ep_post_send, and DAT_LENGTH_ERROR.
 */
DAT_RETURN dat_ep_post_rdma_read(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments,
                                 DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
                                 const DAT_RMR_TRIPLET *remote_iov,
                                 DAT_COMPLETION_FLAGS completion_flags);

/*
 * Writes the local segments to the peer's memory.
 * Errors: as dat_ep_post_send, and DAT_LENGTH_ERROR.
 */
DAT_RETURN dat_ep_post_rdma_write(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments,
                                  DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
                                  const DAT_RMR_TRIPLET *remote_iov,
                                  DAT_COMPLETION_FLAGS completion_flags);

/*
 * Returns the state, and whether all receives and all requests have completed. Each
 * pointer may be null.
 * Errors: DAT_INVALID_HANDLE.
 */
DAT_RETURN dat_ep_get_status(DAT_EP_HANDLE ep_handle, DAT_EP_STATE *ep_state,
                             DAT_BOOLEAN *recv_idle, DAT_BOOLEAN *request_idle);

/*
 * Returns how many receives of the endpoint are not completed, and the span of messages
 * that they belong to. Either pointer may be null; either result may be
 * DAT_VALUE_UNKNOWN.
 * Errors: DAT_INVALID_HANDLE, DAT_MODEL_NOT_SUPPORTED.
 */
DAT_RETURN dat_ep_recv_query(DAT_EP_HANDLE ep_handle, DAT_COUNT *nbufs_allocated,
                             DAT_COUNT *bufs_alloc_span);

/*
 * Sets both high watermarks of receives that an endpoint holds. Above the soft one an
 * asynchronous event is reported once; above the hard one the connection breaks.
 * DAT_WATERMARK_INFINITE disables a watermark.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_MODEL_NOT_SUPPORTED.
 */
DAT_RETURN dat_ep_set_watermark(DAT_EP_HANDLE ep_handle, DAT_COUNT soft_high_watermark,
                                DAT_COUNT hard_high_watermark);

/*
 * Changes a Disconnected endpoint to Unconnected.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_STATE.
 */
DAT_RETURN dat_ep_reset(DAT_EP_HANDLE ep_handle);

/*
 * Destroys an endpoint, and ends its connection.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_STATE (a service point or a request holds it).
 */
DAT_RETURN dat_ep_free(DAT_EP_HANDLE ep_handle);

/* Shared receive queue */

/*
 * Creates a queue of receives that endpoints share; it may be larger than requested.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INSUFFICIENT_RESOURCES,
 * DAT_MODEL_NOT_SUPPORTED.
 */
DAT_RETURN dat_srq_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle,
                          DAT_SRQ_ATTR *srq_attr, DAT_SRQ_HANDLE *srq_handle);

/*
 * Posts a buffer to an SRQ. The completion is reported on the receive EVD of the endpoint
 * that takes it.
 * Errors: as dat_ep_post_recv.
 */
DAT_RETURN dat_srq_post_recv(DAT_SRQ_HANDLE srq_handle, DAT_COUNT num_segments,
                             DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie);

/*
 * Returns the members selected by the mask.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_srq_query(DAT_SRQ_HANDLE srq_handle, DAT_SRQ_PARAM_MASK srq_param_mask,
                         DAT_SRQ_PARAM *srq_param);

/*
 * Changes the size of an SRQ to at least srq_max_recv_dto receives. No receive is lost.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INVALID_STATE (more are
 * outstanding, or the low watermark is higher), DAT_INSUFFICIENT_RESOURCES.
 */
DAT_RETURN dat_srq_resize(DAT_SRQ_HANDLE srq_handle, DAT_COUNT srq_max_recv_dto);

/*
 * Sets the low watermark. One asynchronous event is reported when fewer receives than the
 * watermark are left, at once if there are fewer already. Each call sets it again.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER (more than the queue holds),
 * DAT_MODEL_NOT_SUPPORTED.
 */
DAT_RETURN dat_srq_set_lw(DAT_SRQ_HANDLE srq_handle, DAT_COUNT low_watermark);

/*
 * Destroys an SRQ that no endpoint uses.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_STATE (in use).
 */
DAT_RETURN dat_srq_free(DAT_SRQ_HANDLE srq_handle);

/* Memory; more in dat/udat.h */

/*
 * Creates a protection zone. An endpoint can use only the memory of its own zone.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INSUFFICIENT_RESOURCES.
 */
DAT_RETURN dat_pz_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE *pz_handle);

/*
 * Returns the adapter of a zone.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_pz_query(DAT_PZ_HANDLE pz_handle, DAT_PZ_PARAM_MASK pz_param_mask,
                        DAT_PZ_PARAM *pz_param);

/*
 * Destroys a zone without objects.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_STATE (in use).
 */
DAT_RETURN dat_pz_free(DAT_PZ_HANDLE pz_handle);

/*
 * Returns the members selected by the mask.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_lmr_query(DAT_LMR_HANDLE lmr_handle, DAT_LMR_PARAM_MASK lmr_param_mask,
                         DAT_LMR_PARAM *lmr_param);

/*
 * Deregisters memory, which stays mapped. Later use of its contexts fails, also by peers.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_STATE (an RMR is bound to it).
 */
DAT_RETURN dat_lmr_free(DAT_LMR_HANDLE lmr_handle);

/*
 * Makes local changes visible to RDMA reads of peers. Needed after a change and before the
 * read, if the provider attribute lmr_sync_req is DAT_TRUE.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_lmr_sync_rdma_read(DAT_IA_HANDLE ia_handle,
                                  const DAT_LMR_TRIPLET *local_segments,
                                  DAT_VLEN num_segments);

/*
 * Makes RDMA writes of peers visible. Needed after a write and before the memory is read,
 * if the provider attribute lmr_sync_req is DAT_TRUE.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_lmr_sync_rdma_write(DAT_IA_HANDLE ia_handle,
                                   const DAT_LMR_TRIPLET *local_segments,
                                   DAT_VLEN num_segments);

/*
 * Creates an RMR (a memory window), unbound.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INSUFFICIENT_RESOURCES.
 */
DAT_RETURN dat_rmr_create(DAT_PZ_HANDLE pz_handle, DAT_RMR_HANDLE *rmr_handle);

/*
 * Returns the members selected by the mask.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_rmr_query(DAT_RMR_HANDLE rmr_handle, DAT_RMR_PARAM_MASK rmr_param_mask,
                         DAT_RMR_PARAM *rmr_param);

/*
 * Posts a request that binds an RMR to a part of an LMR, or with length 0 unbinds the RMR.
 * Later requests of the endpoint start after the bind. The new context is returned at
 * once; the old one becomes invalid with the completion.
 * Errors: as dat_ep_post_send, and DAT_MODEL_NOT_SUPPORTED.
 */
DAT_RETURN dat_rmr_bind(DAT_RMR_HANDLE rmr_handle, const DAT_LMR_TRIPLET *lmr_triplet,
                        DAT_MEM_PRIV_FLAGS mem_priv, DAT_EP_HANDLE ep_handle,
                        DAT_RMR_COOKIE user_cookie, DAT_COMPLETION_FLAGS completion_flags,
                        DAT_RMR_CONTEXT *context);

/*
 * Destroys an RMR, bound or not.
 * Errors: DAT_INVALID_HANDLE.
 */
DAT_RETURN dat_rmr_free(DAT_RMR_HANDLE rmr_handle);

/* Registry */

/*
 * Copies up to max_to_return registry entries into structures of the caller, and returns
 * how many it has copied. With max_to_return 0, returns how many entries there are, and
 * DAT_INVALID_PARAMETER; with DAT_STRICT=1, also if there are more than max_to_return.
 * Errors: DAT_INVALID_PARAMETER, DAT_INTERNAL_ERROR.
 */
DAT_RETURN dat_registry_list_providers(DAT_COUNT max_to_return,
                                       DAT_COUNT *entries_returned,
                                       DAT_PROVIDER_INFO *dat_provider_list[]);

#ifdef __cplusplus
}
#endif

#endif
