//! Calls of uDAPL 2.0 that this library does not support. `dat_ia_query` says so
//! before: the attributes have no high availability, and no scope of RMRs but the zone.
#![allow(missing_docs, reason = "the headers explain each call")]
#![allow(
    clippy::missing_safety_doc,
    reason = "one contract for all, in the documentation of `exports`"
)]
#![allow(
    clippy::too_many_arguments,
    reason = "the signatures are those of the headers"
)]

use dat_api::{DatError, Kind, Result, ReturnType, Subtype};

use crate::abi::*;
use crate::face::frame::control;
use crate::face::handles::named;
use crate::face::subject::{Subject, on};
use crate::providers::dispatch::foreign;

/// Returns `DAT_MODEL_NOT_SUPPORTED` with what to use instead.
fn unsupported(cause: &'static str) -> Result<()> {
    Err(DatError::new(
        ReturnType::ModelNotSupported,
        Subtype::NoSubtype,
        cause,
    ))
}

const COMMON: &str = "common service points are not supported: use a public service point \
                      (dat_psp_create) and dat_ep_connect";
const DESCRIPTOR: &str = "CNOs with a file descriptor are not supported: use dat_cno_create, and \
                          dat_cno_wait or an agent";

/// Defines an exported function that checks its first handle and then refuses.
macro_rules! refused {
    ($(
        $name:ident ($handle:ident: $type:ty $(, $argument:ident: $kind:ty)*):
        $slot:ident, $what:literal, $object:expr, $subtype:ident, $cause:expr;
    )*) => {
        $(
            #[unsafe(export_name = symbol_of!($name))]
            pub unsafe extern "C" fn $name($handle: $type $(, $argument: $kind)*) -> DAT_RETURN {
                foreign!($handle.$slot($handle $(, $argument)*));
                control(stringify!($name), on($what, $handle), || {
                    named($handle, $object, Subtype::$subtype)?;
                    unsupported($cause)
                })
            }
        )*
    };
}

/// As `symbol!`, for a name that is an identifier.
macro_rules! symbol_of {
    ($name:ident) => {
        concat!("_", stringify!($name))
    };
}

refused! {
    dat_csp_create(ia_handle: DAT_IA_HANDLE, communicator: *mut DAT_COMM,
        address: DAT_IA_ADDRESS_PTR, evd_handle: DAT_EVD_HANDLE, csp_handle: *mut DAT_CSP_HANDLE):
        csp_create_func, "ia", Kind::Ia, InvalidHandleIa, COMMON;
    dat_ep_common_connect(ep_handle: DAT_EP_HANDLE, remote_ia_address: DAT_IA_ADDRESS_PTR,
        timeout: DAT_TIMEOUT, private_data_size: DAT_COUNT, private_data: DAT_PVOID):
        ep_common_connect_func, "ep", Kind::Ep, InvalidHandleEp, COMMON;
    dat_rmr_create_for_ep(pz_handle: DAT_PZ_HANDLE, rmr_handle: *mut DAT_RMR_HANDLE):
        rmr_create_for_ep_func, "pz", Kind::Pz, InvalidHandlePz,
        "RMRs for one endpoint are not supported (DAT_PROVIDER_ATTR.rmr_scope_supported): use \
         dat_rmr_create, whose RMRs are for the endpoints of the zone";
    dat_ep_post_send_with_invalidate(ep_handle: DAT_EP_HANDLE, num_segments: DAT_COUNT,
        local_iov: *mut DAT_LMR_TRIPLET, user_cookie: DAT_DTO_COOKIE,
        completion_flags: DAT_COMPLETION_FLAGS, invalidate_flag: DAT_BOOLEAN,
        rmr_context: DAT_RMR_CONTEXT):
        ep_post_send_with_invalidate_func, "ep", Kind::Ep, InvalidHandleEp,
        "sends that invalidate an RMR of the peer are not supported: use dat_ep_post_send, and let \
         the peer unbind its RMR";
    dat_ep_post_rdma_read_to_rmr(ep_handle: DAT_EP_HANDLE, local_iov: *const DAT_RMR_TRIPLET,
        user_cookie: DAT_DTO_COOKIE, remote_iov: *const DAT_RMR_TRIPLET,
        completion_flags: DAT_COMPLETION_FLAGS):
        ep_post_rdma_read_to_rmr_func, "ep", Kind::Ep, InvalidHandleEp,
        "reads into an RMR are not supported: use dat_ep_post_rdma_read, which reads into an LMR";
    dat_cno_fd_create(ia_handle: DAT_IA_HANDLE, file_descriptor: *mut DAT_FD,
        cno_handle: *mut DAT_CNO_HANDLE):
        cno_fd_create_func, "ia", Kind::Ia, InvalidHandleIa, DESCRIPTOR;
    dat_cno_trigger(cno_handle: DAT_CNO_HANDLE, evd_handle: *mut DAT_EVD_HANDLE):
        cno_trigger_func, "cno", Kind::Cno, InvalidHandleCno, DESCRIPTOR;
}

/// Refuses a handle: no object of this library is a common service point.
fn no_csp(call: &'static str, csp_handle: DAT_CSP_HANDLE) -> DAT_RETURN {
    // The class, the type and the subtype are those of this version: `dat_api` has no
    // such subtype.
    let code = DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_CSP;
    control(call, on("csp", csp_handle), || {
        Err(DatError::explained(super::from_code(code), COMMON))
    })
}

#[unsafe(export_name = symbol!("dat_csp_query"))]
pub unsafe extern "C" fn dat_csp_query(
    csp_handle: DAT_CSP_HANDLE,
    csp_param_mask: DAT_CSP_PARAM_MASK,
    csp_param: *mut DAT_CSP_PARAM,
) -> DAT_RETURN {
    foreign!(csp_handle.csp_query_func(csp_handle, csp_param_mask, csp_param));
    no_csp("dat_csp_query", csp_handle)
}

#[unsafe(export_name = symbol!("dat_csp_free"))]
pub unsafe extern "C" fn dat_csp_free(csp_handle: DAT_CSP_HANDLE) -> DAT_RETURN {
    foreign!(csp_handle.csp_free_func(csp_handle));
    no_csp("dat_csp_free", csp_handle)
}

const HA: &str = "the library does not know which adapters can replace each other \
                  (DAT_PROVIDER_ATTR.ha_supported)";

#[unsafe(export_name = symbol!("dat_registry_providers_related"))]
pub unsafe extern "C" fn dat_registry_providers_related(
    _ia_name_1: DAT_NAME_PTR,
    _ia_name_2: DAT_NAME_PTR,
    _ha_relationship: *mut DAT_HA_RELATIONSHIP,
) -> DAT_RETURN {
    control("dat_registry_providers_related", Subject::Nothing, || {
        unsupported(HA)
    })
}

/// Stands in the provider table, for the registry.
pub(crate) unsafe extern "C" fn ia_ha_related(
    ia_handle: DAT_IA_HANDLE,
    _provider: DAT_NAME_PTR,
    _answer: *mut DAT_BOOLEAN,
) -> DAT_RETURN {
    control("dat_ia_ha_related", on("ia", ia_handle), || {
        named(ia_handle, Kind::Ia, Subtype::InvalidHandleIa)?;
        unsupported(HA)
    })
}
