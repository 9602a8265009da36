//! The names of commands, as the trace of commands shows them.

use super::abi::{WRITE_EXTENDED, method, object, write_command};

/// Returns the name of a command of the write interface.
pub(super) fn write_name(number: u32) -> String {
    use write_command as it;
    let name = match number {
        it::GET_CONTEXT => "GET_CONTEXT",
        it::QUERY_DEVICE => "QUERY_DEVICE",
        it::EX_QUERY_DEVICE => "EX_QUERY_DEVICE",
        it::QUERY_PORT => "QUERY_PORT",
        it::ALLOC_PD => "ALLOC_PD",
        it::DEALLOC_PD => "DEALLOC_PD",
        it::CREATE_AH => "CREATE_AH",
        it::DESTROY_AH => "DESTROY_AH",
        it::REG_MR => "REG_MR",
        it::REREG_MR => "REREG_MR",
        it::DEREG_MR => "DEREG_MR",
        it::ALLOC_MW => "ALLOC_MW",
        it::DEALLOC_MW => "DEALLOC_MW",
        it::CREATE_COMP_CHANNEL => "CREATE_COMP_CHANNEL",
        it::CREATE_CQ => "CREATE_CQ",
        it::EX_CREATE_CQ => "EX_CREATE_CQ",
        it::RESIZE_CQ => "RESIZE_CQ",
        it::EX_MODIFY_CQ => "EX_MODIFY_CQ",
        it::DESTROY_CQ => "DESTROY_CQ",
        it::CREATE_SRQ => "CREATE_SRQ",
        it::MODIFY_SRQ => "MODIFY_SRQ",
        it::QUERY_SRQ => "QUERY_SRQ",
        it::DESTROY_SRQ => "DESTROY_SRQ",
        it::CREATE_QP => "CREATE_QP",
        it::EX_CREATE_QP => "EX_CREATE_QP",
        it::MODIFY_QP => "MODIFY_QP",
        it::EX_MODIFY_QP => "EX_MODIFY_QP",
        it::QUERY_QP => "QUERY_QP",
        it::DESTROY_QP => "DESTROY_QP",
        it::ATTACH_MCAST => "ATTACH_MCAST",
        it::DETACH_MCAST => "DETACH_MCAST",
        _ if number & WRITE_EXTENDED != 0 => {
            return format!("extended command {}", number & !WRITE_EXTENDED);
        }
        _ => return format!("command {number}"),
    };
    name.into()
}

/// Returns the name of a method of the ioctl interface.
pub(super) fn method_name(object: u16, method: u16) -> String {
    use self::method as it;
    let name = match (object, method) {
        (object::DEVICE, it::DEVICE_INVOKE_WRITE) => "INVOKE_WRITE",
        (object::DEVICE, it::DEVICE_QUERY_PORT) => "QUERY_PORT",
        (object::DEVICE, it::DEVICE_GET_CONTEXT) => "GET_CONTEXT",
        (object::DEVICE, it::DEVICE_QUERY_CONTEXT) => "QUERY_CONTEXT",
        (object::DEVICE, it::DEVICE_QUERY_GID_TABLE) => "QUERY_GID_TABLE",
        (object::DEVICE, it::DEVICE_QUERY_GID_ENTRY) => "QUERY_GID_ENTRY",
        (object::ASYNC_EVENT, it::ASYNC_EVENT_ALLOC) => "ASYNC_EVENT_ALLOC",
        (object::PD, it::PD_DESTROY) => "DEALLOC_PD",
        (object::PD, it::PD_MLX5_QUERY) => "MLX5_QUERY_PD",
        (object::AH, it::AH_DESTROY) => "DESTROY_AH",
        (object::MR, it::MR_DESTROY) => "DEREG_MR",
        (object::MR, it::MR_ADVISE) => "ADVISE_MR",
        (object::MR, it::MR_QUERY) => "QUERY_MR",
        (object::MW, it::MW_DESTROY) => "DEALLOC_MW",
        (object::CQ, it::CQ_CREATE) => "CREATE_CQ",
        (object::CQ, it::CQ_DESTROY) => "DESTROY_CQ",
        (object::SRQ, it::SRQ_CREATE) => "CREATE_SRQ",
        (object::SRQ, it::SRQ_DESTROY) => "DESTROY_SRQ",
        (object::QP, it::QP_CREATE) => "CREATE_QP",
        (object::QP, it::QP_DESTROY) => "DESTROY_QP",
        (object::DEVX, it::DEVX_OTHER) => "MLX5_DEVX_OTHER",
        (object::DEVX_OBJ, it::DEVX_OBJ_QUERY) => "MLX5_DEVX_OBJ_QUERY",
        (object::MLX5_UAR, it::UAR_ALLOC) => "MLX5_UAR_ALLOC",
        (object::MLX5_UAR, it::UAR_DESTROY) => "MLX5_UAR_DESTROY",
        _ => return format!("method {method:#x} of object {object:#x}"),
    };
    name.into()
}
