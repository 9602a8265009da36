/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * dat/dat_service.h: service points and connection requests. A part of dat/dat.h; include
 * that.
 */
#ifndef DAT_SERVICE_H
#define DAT_SERVICE_H

#include <dat/dat_error.h>
#include <dat/dat_objects.h>
#include <dat/dat_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Service points */

/*
 * Creates a public service point, which listens on a qualifier. Each connection request
 * becomes an event on the EVD.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_CONN_QUAL_IN_USE,
 * DAT_MODEL_NOT_SUPPORTED (the flag), DAT_INSUFFICIENT_RESOURCES.
 */
DAT_RETURN dat_psp_create(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual,
                          DAT_EVD_HANDLE evd_handle, DAT_PSP_FLAGS psp_flags,
                          DAT_PSP_HANDLE *psp_handle);

/*
 * Creates a public service point on a free qualifier, and returns the qualifier.
 * Errors: as dat_psp_create; DAT_CONN_QUAL_UNAVAILABLE if there is none.
 */
DAT_RETURN dat_psp_create_any(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL *conn_qual,
                              DAT_EVD_HANDLE evd_handle, DAT_PSP_FLAGS psp_flags,
                              DAT_PSP_HANDLE *psp_handle);

/*
 * Returns the members selected by the mask.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_psp_query(DAT_PSP_HANDLE psp_handle, DAT_PSP_PARAM_MASK psp_param_mask,
                         DAT_PSP_PARAM *psp_param);

/*
 * Destroys a public service point. Requests that have arrived can still be answered.
 * Errors: DAT_INVALID_HANDLE.
 */
DAT_RETURN dat_psp_free(DAT_PSP_HANDLE psp_handle);

/*
 * Creates a reserved service point, which listens for one connection request. An
 * Unconnected endpoint is reserved for the request.
 * Errors: as dat_psp_create; DAT_INVALID_STATE (of the endpoint).
 */
DAT_RETURN dat_rsp_create(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual,
                          DAT_EP_HANDLE ep_handle, DAT_EVD_HANDLE evd_handle,
                          DAT_RSP_HANDLE *rsp_handle);

/*
 * Returns the members selected by the mask.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_rsp_query(DAT_RSP_HANDLE rsp_handle, DAT_RSP_PARAM_MASK rsp_param_mask,
                         DAT_RSP_PARAM *rsp_param);

/*
 * Destroys a reserved service point, and releases the endpoint.
 * Errors: DAT_INVALID_HANDLE.
 */
DAT_RETURN dat_rsp_free(DAT_RSP_HANDLE rsp_handle);

#ifdef DAT2
/*
 * Creates a common service point, which listens on a socket address for one kind of
 * communication.
 * Errors: DAT_INVALID_HANDLE, DAT_MODEL_NOT_SUPPORTED.
 */
DAT_RETURN dat_csp_create(DAT_IA_HANDLE ia_handle, DAT_COMM *communicator,
                          DAT_IA_ADDRESS_PTR address, DAT_EVD_HANDLE evd_handle,
                          DAT_CSP_HANDLE *csp_handle);

/*
 * Returns the members selected by the mask.
 * Errors: DAT_INVALID_HANDLE.
 */
DAT_RETURN dat_csp_query(DAT_CSP_HANDLE csp_handle, DAT_CSP_PARAM_MASK csp_param_mask,
                         DAT_CSP_PARAM *csp_param);

/*
 * Destroys a common service point.
 * Errors: DAT_INVALID_HANDLE.
 */
DAT_RETURN dat_csp_free(DAT_CSP_HANDLE csp_handle);

#endif
/* Connection request */

/*
 * Returns the address and the private data of the requester, and the endpoint if the
 * service point supplied one.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_cr_query(DAT_CR_HANDLE cr_handle, DAT_CR_PARAM_MASK cr_param_mask,
                        DAT_CR_PARAM *cr_param);

/*
 * Accepts a request on an Unconnected endpoint, or, if ep_handle is null, on the endpoint
 * that the service point supplied. The private data is sent to the peer. On success the
 * request is consumed, and an event on the connect EVD reports the outcome.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER, DAT_INVALID_STATE (of the
 * endpoint). The request and the endpoint are then unchanged.
 */
DAT_RETURN dat_cr_accept(DAT_CR_HANDLE cr_handle, DAT_EP_HANDLE ep_handle,
                         DAT_COUNT private_data_size, const DAT_PVOID private_data);

#ifndef DAT2
/*
 * Rejects a request; the peer gets DAT_CONNECTION_EVENT_PEER_REJECTED.
 * Errors: DAT_INVALID_HANDLE.
 */
DAT_RETURN dat_cr_reject(DAT_CR_HANDLE cr_handle);
#else
/*
 * Rejects a request; the peer gets DAT_CONNECTION_EVENT_PEER_REJECTED with the private data.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER.
 */
DAT_RETURN dat_cr_reject(DAT_CR_HANDLE cr_handle, DAT_COUNT private_data_size,
                         const DAT_PVOID private_data);
#endif

/*
 * Passes a request to another service point of the adapter.
 * Errors: DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER (no service point listens there).
 */
DAT_RETURN dat_cr_handoff(DAT_CR_HANDLE cr_handle, DAT_CONN_QUAL handoff);

#ifdef __cplusplus
}
#endif

#endif
