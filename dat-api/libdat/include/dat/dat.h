/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat/dat.h: the calls of DAT 1.2 that user and kernel programs have in
 * common. User programs include dat/udat.h, which has the rest.
 *
 * Every call answers a DAT_RETURN (dat/dat_error.h). The errors named with it
 * are those of its own; DAT_INTERNAL_ERROR may come from any. On an error the
 * results are undefined.
 *
 * Threads may use different objects at once. Calls on one object must not
 * overlap, except: those that create on it; dat_ia_query; of an EVD all that
 * wait, dequeue, enable, disable and set or clear unwaitable; dat_cno_wait;
 * dat_ep_get_status; the queries of PZ, PSP, RSP and CR.
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

#ifdef __cplusplus
extern "C" {
#endif

/* Opens an adapter for the version that the program is compiled for. */
#define dat_ia_open(name, qlen, async_evd, ia) \
    dat_ia_openv((name), (qlen), (async_evd), (ia), DAT_VERSION_MAJOR, DAT_VERSION_MINOR, \
                 DAT_THREADSAFE)

/* Interface adapter */

/*
 * Opens the adapter of that name. *async_evd_handle: null makes an EVD for asynchronous
 * errors, of at least async_evd_min_qlen events; an EVD is used as it is;
 * DAT_EVD_ASYNC_EXISTS makes none. The other arguments are the rest of the registry key.
 * Errors: DAT_PROVIDER_NOT_FOUND, DAT_INVALID_PARAMETER, DAT_INVALID_HANDLE (the EVD),
 * DAT_INVALID_ADDRESS, DAT_INSUFFICIENT_RESOURCES.
 */
DAT_RETURN dat_ia_openv(const DAT_NAME_PTR provider, DAT_COUNT async_evd_min_qlen,
                        DAT_EVD_HANDLE *async_evd_handle, DAT_IA_HANDLE *ia_handle,
                        DAT_UINT32 dapl_major, DAT_UINT32 dapl_minor,
                        DAT_BOOLEAN thread_safety);

/*
 * Tells the attributes that the masks name, of the adapter and of its provider, and the
 * EVD for asynchronous errors. A pointer whose mask is 0 may be null.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER (an unknown bit, a null pointer).
 */
DAT_RETURN dat_ia_query(DAT_IA_HANDLE ia_handle, DAT_EVD_HANDLE *async_evd_handle,
                        DAT_IA_ATTR_MASK ia_attr_mask, DAT_IA_ATTR *ia_attr,
                        DAT_PROVIDER_ATTR_MASK provider_attr_mask,
                        DAT_PROVIDER_ATTR *provider_attr);

/*
 * Closes an adapter. Graceful: only if nothing made on it is left. Abrupt: what is left
 * goes first, and threads that wait on it return.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INVALID_STATE (graceful).
 */
DAT_RETURN dat_ia_close(DAT_IA_HANDLE ia_handle, DAT_CLOSE_FLAGS close_flags);

/* Any object */

/*
 * Attaches 64 bits of the caller's to any object, in place of those before.
 * Errors: DAT_INVALID_HANDLE.
 */
DAT_RETURN dat_set_consumer_context(DAT_HANDLE dat_handle, DAT_CONTEXT context);

/*
 * Tells them; 0 if there are none.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_get_consumer_context(DAT_HANDLE dat_handle, DAT_CONTEXT *context);

/*
 * Tells what a handle stands for.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_get_handle_type(DAT_HANDLE dat_handle, DAT_HANDLE_TYPE *handle_type);

/* Event dispatcher; more in dat/udat.h */

/*
 * Makes the queue hold at least so many events. None is lost.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INVALID_STATE (more are queued,
 * or a thread waits for more), DAT_INSUFFICIENT_RESOURCES.
 */
DAT_RETURN dat_evd_resize(DAT_EVD_HANDLE evd_handle, DAT_COUNT evd_min_qlen);

/*
 * Queues a software event. Only its pointer is carried.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER (the EVD has no such stream, or it
 * is another event), DAT_QUEUE_FULL.
 */
DAT_RETURN dat_evd_post_se(DAT_EVD_HANDLE evd_handle, const DAT_EVENT *event);

/*
 * Takes the first event, without waiting.
 * Errors: DAT_QUEUE_EMPTY, DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INVALID_STATE
 * (a thread waits on the EVD).
 */
DAT_RETURN dat_evd_dequeue(DAT_EVD_HANDLE evd_handle, DAT_EVENT *event);

/*
 * Tells what the mask names.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_evd_query(DAT_EVD_HANDLE evd_handle, DAT_EVD_PARAM_MASK evd_param_mask,
                         DAT_EVD_PARAM *evd_param);

/*
 * Destroys an EVD that nothing feeds any more; queued events are lost.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_STATE (in use).
 */
DAT_RETURN dat_evd_free(DAT_EVD_HANDLE evd_handle);

/* Service points */

/*
 * Listens on a qualifier. Each request becomes an event on the EVD.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_CONN_QUAL_IN_USE,
 * DAT_MODEL_NOT_SUPPORTED (the flag), DAT_INSUFFICIENT_RESOURCES.
 */
DAT_RETURN dat_psp_create(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual,
                          DAT_EVD_HANDLE evd_handle, DAT_PSP_FLAGS psp_flags,
                          DAT_PSP_HANDLE *psp_handle);

/*
 * Listens on a qualifier that nobody uses, and tells it.
 * Errors: as dat_psp_create; DAT_CONN_QUAL_UNAVAILABLE if there is none.
 */
DAT_RETURN dat_psp_create_any(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL *conn_qual,
                              DAT_EVD_HANDLE evd_handle, DAT_PSP_FLAGS psp_flags,
                              DAT_PSP_HANDLE *psp_handle);

/*
 * Tells what the mask names.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_psp_query(DAT_PSP_HANDLE psp_handle, DAT_PSP_PARAM_MASK psp_param_mask,
                         DAT_PSP_PARAM *psp_param);

/*
 * Listens no more. Requests that have come stay.
 * Errors: DAT_INVALID_HANDLE.
 */
DAT_RETURN dat_psp_free(DAT_PSP_HANDLE psp_handle);

/*
 * Reserves an Unconnected endpoint for the one request that this point takes.
 * Errors: as dat_psp_create; DAT_INVALID_STATE (of the endpoint).
 */
DAT_RETURN dat_rsp_create(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual,
                          DAT_EP_HANDLE ep_handle, DAT_EVD_HANDLE evd_handle,
                          DAT_RSP_HANDLE *rsp_handle);

/*
 * Tells what the mask names.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_rsp_query(DAT_RSP_HANDLE rsp_handle, DAT_RSP_PARAM_MASK rsp_param_mask,
                         DAT_RSP_PARAM *rsp_param);

/*
 * Gives up the reservation.
 * Errors: DAT_INVALID_HANDLE.
 */
DAT_RETURN dat_rsp_free(DAT_RSP_HANDLE rsp_handle);

/* Connection request */

/*
 * Tells who asks, with what private data, and the endpoint if the service point brought
 * one.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_cr_query(DAT_CR_HANDLE cr_handle, DAT_CR_PARAM_MASK cr_param_mask,
                        DAT_CR_PARAM *cr_param);

/*
 * Accepts a request on an Unconnected endpoint, or with a null one on that of the
 * request. The private data goes to the peer. The request is gone on success; an event
 * on the connect EVD tells how the connection came out.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INVALID_STATE (of the
 * endpoint). They leave request and endpoint as they were.
 */
DAT_RETURN dat_cr_accept(DAT_CR_HANDLE cr_handle, DAT_EP_HANDLE ep_handle,
                         DAT_COUNT private_data_size, const DAT_PVOID private_data);

/*
 * Refuses a request; the peer gets DAT_CONNECTION_EVENT_PEER_REJECTED.
 * Errors: DAT_INVALID_HANDLE.
 */
DAT_RETURN dat_cr_reject(DAT_CR_HANDLE cr_handle);

/*
 * Passes a request on to another service point of the adapter.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER (nobody listens there).
 */
DAT_RETURN dat_cr_handoff(DAT_CR_HANDLE cr_handle, DAT_CONN_QUAL handoff);

/* Endpoint */

/*
 * Makes an endpoint with receives of its own. A null PZ or EVD can be set later by
 * dat_ep_modify; a null EVD means no interest in those events. Null attributes take the
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
 * Makes an endpoint that takes its receives from an SRQ, until it is freed. The
 * attributes may not be null.
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
 * Tells what the mask names. Remote address and qualifier mean something only from the
 * request to connect until Disconnected.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_ep_query(DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK ep_param_mask,
                        DAT_EP_PARAM *ep_param);

/*
 * Changes what the mask names, or on an error nothing.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER (cannot be changed, or not to that),
 * DAT_INVALID_STATE (not in this state).
 */
DAT_RETURN dat_ep_modify(DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK ep_param_mask,
                         const DAT_EP_PARAM *ep_param);

/*
 * Asks the service point of that address and qualifier for a connection. An event on the
 * connect EVD tells how it came out, within timeout microseconds. The private data is
 * copied; it may have max_private_data_size bytes (a provider attribute).
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INVALID_STATE (not
 * Unconnected), DAT_INVALID_ADDRESS, DAT_MODEL_NOT_SUPPORTED,
 * DAT_INSUFFICIENT_RESOURCES.
 */
DAT_RETURN dat_ep_connect(DAT_EP_HANDLE ep_handle, DAT_IA_ADDRESS_PTR remote_ia_address,
                          DAT_CONN_QUAL remote_conn_qual, DAT_TIMEOUT timeout,
                          DAT_COUNT private_data_size, const DAT_PVOID private_data,
                          DAT_QOS quality_of_service, DAT_CONNECT_FLAGS connect_flags);

/*
 * Connects to where ep_dup_handle, which is Connected, leads.
 * Errors: as dat_ep_connect; DAT_INVALID_STATE for either endpoint.
 */
DAT_RETURN dat_ep_dup_connect(DAT_EP_HANDLE ep_handle, DAT_EP_HANDLE ep_dup_handle,
                              DAT_TIMEOUT timeout, DAT_COUNT private_data_size,
                              const DAT_PVOID private_data, DAT_QOS quality_of_service);

/*
 * Ends a connection or an attempt. Graceful: requests that are outstanding run to their
 * end first. An event tells when it is done; in Disconnected nothing happens.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INVALID_STATE.
 */
DAT_RETURN dat_ep_disconnect(DAT_EP_HANDLE ep_handle, DAT_CLOSE_FLAGS close_flags);

/*
 * Sends a message: the segments one after the other, or nothing if there are none. The
 * memory must be left alone until the completion.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INVALID_STATE (neither
 * Connected nor Disconnected), DAT_PROTECTION_VIOLATION, DAT_PRIVILEGES_VIOLATION,
 * DAT_INSUFFICIENT_RESOURCES (too many are outstanding).
 */
DAT_RETURN dat_ep_post_send(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments,
                            DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
                            DAT_COMPLETION_FLAGS completion_flags);

/*
 * Posts a buffer for a message, in any state. The segments are filled in their order; of
 * each message one buffer is used up.
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
 * Tells the state, and whether receives and requests are all done. Each pointer may be
 * null.
 * Errors: DAT_INVALID_HANDLE.
 */
DAT_RETURN dat_ep_get_status(DAT_EP_HANDLE ep_handle, DAT_EP_STATE *ep_state,
                             DAT_BOOLEAN *recv_idle, DAT_BOOLEAN *request_idle);

/*
 * Counts the buffers that the endpoint has and has not completed, and the span of
 * messages that they belong to. Either pointer may be null; DAT_VALUE_UNKNOWN is an
 * answer.
 * Errors: DAT_INVALID_HANDLE, DAT_MODEL_NOT_SUPPORTED.
 */
DAT_RETURN dat_ep_recv_query(DAT_EP_HANDLE ep_handle, DAT_COUNT *nbufs_allocated,
                             DAT_COUNT *bufs_alloc_span);

/*
 * Sets both high watermarks of buffers that an endpoint has taken. Above the soft one
 * there is an asynchronous event, once; above the hard one the connection breaks.
 * DAT_WATERMARK_INFINITE turns one off.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_MODEL_NOT_SUPPORTED.
 */
DAT_RETURN dat_ep_set_watermark(DAT_EP_HANDLE ep_handle, DAT_COUNT soft_high_watermark,
                                DAT_COUNT hard_high_watermark);

/*
 * Takes a Disconnected endpoint back to Unconnected.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_STATE.
 */
DAT_RETURN dat_ep_reset(DAT_EP_HANDLE ep_handle);

/*
 * Destroys an endpoint, its connection with it.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_STATE (a service point or a request holds it).
 */
DAT_RETURN dat_ep_free(DAT_EP_HANDLE ep_handle);

/* Shared receive queue */

/*
 * Makes a queue of receives that endpoints share; it may be larger than asked.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INSUFFICIENT_RESOURCES,
 * DAT_MODEL_NOT_SUPPORTED.
 */
DAT_RETURN dat_srq_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle,
                          DAT_SRQ_ATTR *srq_attr, DAT_SRQ_HANDLE *srq_handle);

/*
 * Posts a buffer to it. The completion goes to the recv EVD of the endpoint that takes
 * it.
 * Errors: as dat_ep_post_recv.
 */
DAT_RETURN dat_srq_post_recv(DAT_SRQ_HANDLE srq_handle, DAT_COUNT num_segments,
                             DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie);

/*
 * Tells what the mask names.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_srq_query(DAT_SRQ_HANDLE srq_handle, DAT_SRQ_PARAM_MASK srq_param_mask,
                         DAT_SRQ_PARAM *srq_param);

/*
 * Makes room for so many buffers. None is lost.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INVALID_STATE (more are
 * outstanding, or the low watermark is higher), DAT_INSUFFICIENT_RESOURCES.
 */
DAT_RETURN dat_srq_resize(DAT_SRQ_HANDLE srq_handle, DAT_COUNT srq_max_recv_dto);

/*
 * Asks for one asynchronous event when fewer buffers than that are left, at once if that
 * is so already. Each call arms anew.
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
 * Makes a protection zone: an endpoint may use the memory of its zone.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INSUFFICIENT_RESOURCES.
 */
DAT_RETURN dat_pz_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE *pz_handle);

/*
 * Tells the adapter of a zone.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_pz_query(DAT_PZ_HANDLE pz_handle, DAT_PZ_PARAM_MASK pz_param_mask,
                        DAT_PZ_PARAM *pz_param);

/*
 * Destroys a zone that nothing is in.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_STATE (in use).
 */
DAT_RETURN dat_pz_free(DAT_PZ_HANDLE pz_handle);

/*
 * Tells what the mask names.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_lmr_query(DAT_LMR_HANDLE lmr_handle, DAT_LMR_PARAM_MASK lmr_param_mask,
                         DAT_LMR_PARAM *lmr_param);

/*
 * Takes a registration back; the memory itself stays. Later use of its contexts fails,
 * the peer's too.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_STATE (a window is bound to it).
 */
DAT_RETURN dat_lmr_free(DAT_LMR_HANDLE lmr_handle);

/*
 * To be called between a local change and the peer's read of it, if the provider
 * attribute lmr_sync_req says so.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_lmr_sync_rdma_read(DAT_IA_HANDLE ia_handle,
                                  const DAT_LMR_TRIPLET *local_segments,
                                  DAT_VLEN num_segments);

/*
 * To be called between the peer's write and the local look at it, likewise.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_lmr_sync_rdma_write(DAT_IA_HANDLE ia_handle,
                                   const DAT_LMR_TRIPLET *local_segments,
                                   DAT_VLEN num_segments);

/*
 * Makes a window, bound to nothing.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INSUFFICIENT_RESOURCES.
 */
DAT_RETURN dat_rmr_create(DAT_PZ_HANDLE pz_handle, DAT_RMR_HANDLE *rmr_handle);

/*
 * Tells what the mask names.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_rmr_query(DAT_RMR_HANDLE rmr_handle, DAT_RMR_PARAM_MASK rmr_param_mask,
                         DAT_RMR_PARAM *rmr_param);

/*
 * Binds a window to part of an LMR, or with length 0 to nothing, as a request of the
 * endpoint; later requests wait for it. The new context is told at once and the old one
 * ends with the completion.
 * Errors: as dat_ep_post_send, and DAT_MODEL_NOT_SUPPORTED.
 */
DAT_RETURN dat_rmr_bind(DAT_RMR_HANDLE rmr_handle, const DAT_LMR_TRIPLET *lmr_triplet,
                        DAT_MEM_PRIV_FLAGS mem_priv, DAT_EP_HANDLE ep_handle,
                        DAT_RMR_COOKIE user_cookie, DAT_COMPLETION_FLAGS completion_flags,
                        DAT_RMR_CONTEXT *context);

/*
 * Destroys a window, bound or not.
 * Errors: DAT_INVALID_HANDLE.
 */
DAT_RETURN dat_rmr_free(DAT_RMR_HANDLE rmr_handle);

/* Registry */

/*
 * Copies registry entries to where the max_to_return pointers lead, and tells how many
 * there are to be had.
 * Errors: DAT_INVALID_PARAMETER, DAT_INTERNAL_ERROR.
 */
DAT_RETURN dat_registry_list_providers(DAT_COUNT max_to_return,
                                       DAT_COUNT *entries_returned,
                                       DAT_PROVIDER_INFO *dat_provider_list[]);

#ifdef __cplusplus
}
#endif

#endif
