//! Calls of uDAPL 2.0 that this library does not support. `dat_ia_query` says so
//! before: the attributes have no high availability, and no scope of RMRs but the zone.
#![allow(missing_docs, reason = "the headers explain each call")]
#![allow(
    clippy::missing_safety_doc,
    reason = "one contract for all, in the documentation of `exports`"
)]

use dat_api::handle::Pinned;
use dat_api::object::ep::Ep;
use dat_api::object::ia::Ia;
use dat_api::object::pz::Pz;
use dat_api::{DatError, Result, ReturnType, Subtype};

use crate::abi::*;
use crate::face::call::{First, call};
use crate::face::frame::control;
use crate::face::handles::pin;
use crate::face::subject::{Subject, on};

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

call!(
    dat_csp_create,
    |_ia: Pinned<Ia>,
     _communicator: *mut DAT_COMM,
     _address: DAT_IA_ADDRESS_PTR,
     _evd: DAT_EVD_HANDLE,
     _csp: *mut DAT_CSP_HANDLE| unsupported(COMMON)
);

/// A common service point: no object of this library is one.
struct Csp;

impl First for Csp {
    const LABEL: &'static str = "csp";

    fn find(_: DAT_HANDLE) -> Result<Self> {
        // The class, the type and the subtype are those of this version: `dat_api` has no
        // such subtype.
        let code = DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_CSP;
        Err(DatError::explained(super::from_code(code), COMMON))
    }
}

call!(
    dat_csp_query,
    |_csp: Csp, _mask: DAT_CSP_PARAM_MASK, _param: *mut DAT_CSP_PARAM| unsupported(COMMON)
);

call!(dat_csp_free, |_csp: Csp| unsupported(COMMON));

call!(
    dat_ep_common_connect,
    |_ep: Pinned<Ep>,
     _remote_ia_address: DAT_IA_ADDRESS_PTR,
     _timeout: DAT_TIMEOUT,
     _private_data_size: DAT_COUNT,
     _private_data: DAT_PVOID| unsupported(COMMON)
);

call!(
    dat_rmr_create_for_ep,
    |_pz: Pinned<Pz>, _rmr: *mut DAT_RMR_HANDLE| {
        unsupported(
            "RMRs for one endpoint are not supported (DAT_PROVIDER_ATTR.rmr_scope_supported): use \
         dat_rmr_create, whose RMRs are for the endpoints of the zone",
        )
    }
);

call!(
    dat_ep_post_send_with_invalidate,
    |_ep: Pinned<Ep>,
     _num_segments: DAT_COUNT,
     _local_iov: *mut DAT_LMR_TRIPLET,
     _user_cookie: DAT_DTO_COOKIE,
     _completion_flags: DAT_COMPLETION_FLAGS,
     _invalidate_flag: DAT_BOOLEAN,
     _rmr_context: DAT_RMR_CONTEXT| {
        unsupported(
            "sends that invalidate an RMR of the peer are not supported: use dat_ep_post_send, and let \
         the peer unbind its RMR",
        )
    }
);

call!(
    dat_ep_post_rdma_read_to_rmr,
    |_ep: Pinned<Ep>,
     _local_iov: *const DAT_RMR_TRIPLET,
     _user_cookie: DAT_DTO_COOKIE,
     _remote_iov: *const DAT_RMR_TRIPLET,
     _completion_flags: DAT_COMPLETION_FLAGS| {
        unsupported(
            "reads into an RMR are not supported: use dat_ep_post_rdma_read, which reads into an LMR",
        )
    }
);

const HA: &str = "the library does not know which adapters can replace each other \
                  (DAT_PROVIDER_ATTR.ha_supported)";

#[unsafe(export_name = symbol!(dat_registry_providers_related))]
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
pub(crate) unsafe extern "C" fn dat_ia_ha_related(
    ia_handle: DAT_IA_HANDLE,
    _provider: DAT_NAME_PTR,
    _answer: *mut DAT_BOOLEAN,
) -> DAT_RETURN {
    control("dat_ia_ha_related", on("ia", ia_handle), || {
        pin::<Ia>(ia_handle)?;
        unsupported(HA)
    })
}
