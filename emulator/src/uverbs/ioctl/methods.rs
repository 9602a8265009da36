//! The table of methods that this device supports, with their attributes.

use libc::EOPNOTSUPP;

use super::Method;
use super::handlers::{
    alloc_uar, async_event_alloc, create_cq, create_qp, create_srq, devx_obj_query, devx_other,
    get_context, invoke_write, query_context, query_gid_entry, query_gid_table, query_mr,
    query_port,
};
use crate::refusal::refuse;
use crate::uverbs::abi::{self, QpCap, method, object};
use crate::uverbs::attributes::{AttrType, NUMBER, mandatory, optional};
use crate::uverbs::commands::Call;

const U32: AttrType = AttrType::In(4, 4);
const U64: AttrType = AttrType::In(8, 8);
const OUT_U32: AttrType = AttrType::Out(4);
const OUT_U64: AttrType = AttrType::Out(8);
const ID: AttrType = AttrType::Id;
/// A command of the device, and its reply: at least their headers.
const DEVX_IN: AttrType = AttrType::In(16, u16::MAX);
const DEVX_OUT: AttrType = AttrType::Out(16);

const fn size(bytes: usize) -> u16 {
    assert!(bytes <= u16::MAX as usize);
    #[allow(clippy::cast_possible_truncation)]
    let narrow = bytes as u16;
    narrow
}

/// The attributes are those of the kernel's `uverbs_std_types_*.c` and of mlx5_ib.
pub(super) const METHODS: &[Method] = &[
    Method {
        object: object::DEVICE,
        method: method::DEVICE_INVOKE_WRITE,
        attributes: &[
            optional(0, AttrType::In(0, u16::MAX)),
            optional(1, AttrType::Out(0)),
            mandatory(2, NUMBER),
        ],
        uhw: true,
        run: invoke_write,
    },
    Method {
        object: object::DEVICE,
        method: method::DEVICE_QUERY_PORT,
        attributes: &[
            mandatory(0, NUMBER),
            mandatory(1, AttrType::Out(size(size_of::<abi::QueryPortResp>()))),
        ],
        uhw: false,
        run: query_port,
    },
    Method {
        object: object::DEVICE,
        method: method::DEVICE_GET_CONTEXT,
        attributes: &[optional(0, OUT_U32), optional(1, OUT_U64)],
        uhw: true,
        run: get_context,
    },
    Method {
        object: object::DEVICE,
        method: method::DEVICE_QUERY_CONTEXT,
        attributes: &[
            optional(0, OUT_U32),
            optional(1, OUT_U64),
            optional(0x1000, AttrType::Out(4)),
        ],
        uhw: false,
        run: query_context,
    },
    Method {
        object: object::DEVICE,
        method: method::DEVICE_QUERY_GID_TABLE,
        attributes: &[
            mandatory(0, NUMBER),
            optional(1, NUMBER),
            mandatory(2, AttrType::Out(0)),
            mandatory(3, OUT_U64),
        ],
        uhw: false,
        run: query_gid_table,
    },
    Method {
        object: object::DEVICE,
        method: method::DEVICE_QUERY_GID_ENTRY,
        attributes: &[
            mandatory(0, NUMBER),
            mandatory(1, NUMBER),
            optional(2, NUMBER),
            mandatory(3, AttrType::Out(28)),
        ],
        uhw: false,
        run: query_gid_entry,
    },
    Method {
        object: object::ASYNC_EVENT,
        method: method::ASYNC_EVENT_ALLOC,
        attributes: &[mandatory(0, ID)],
        uhw: false,
        run: async_event_alloc,
    },
    Method {
        object: object::PD,
        method: method::PD_DESTROY,
        attributes: &[mandatory(0, ID)],
        uhw: false,
        run: |file, it| Call::new(file).dealloc_pd(it.handle(0)?),
    },
    Method {
        object: object::PD,
        method: method::PD_MLX5_QUERY,
        attributes: &[mandatory(0x1000, ID), mandatory(0x1001, OUT_U32)],
        uhw: false,
        run: |file, it| it.write_output(0x1001, &Call::new(file).query_pd(it.handle(0x1000)?)?),
    },
    Method {
        object: object::AH,
        method: method::AH_DESTROY,
        attributes: &[mandatory(0, ID)],
        uhw: false,
        run: |file, it| Call::new(file).destroy_ah(it.handle(0)?),
    },
    Method {
        object: object::MR,
        method: method::MR_DESTROY,
        attributes: &[mandatory(0, ID)],
        uhw: false,
        run: |file, it| Call::new(file).dereg_mr(it.handle(0)?),
    },
    Method {
        object: object::MR,
        method: method::MR_ADVISE,
        attributes: &[
            mandatory(0, ID),
            mandatory(1, NUMBER),
            mandatory(2, NUMBER),
            mandatory(3, AttrType::In(1, u16::MAX)),
        ],
        uhw: false,
        // Advice is for on-demand paging, which is not supported.
        run: |_, _| {
            Err(refuse(
                EOPNOTSUPP,
                "the device has no on-demand paging to advise",
            ))
        },
    },
    Method {
        object: object::MR,
        method: method::MR_QUERY,
        attributes: &[
            mandatory(0, ID),
            mandatory(1, OUT_U32),
            mandatory(2, OUT_U32),
            mandatory(3, OUT_U64),
            optional(4, OUT_U64),
        ],
        uhw: false,
        run: query_mr,
    },
    Method {
        object: object::MW,
        method: method::MW_DESTROY,
        attributes: &[mandatory(0, ID)],
        uhw: false,
        run: |file, it| Call::new(file).dealloc_mw(it.handle(0)?),
    },
    Method {
        object: object::CQ,
        method: method::CQ_CREATE,
        attributes: &[
            mandatory(0, ID),
            mandatory(1, U32),
            mandatory(2, U64),
            optional(3, ID),
            mandatory(4, U32),
            optional(5, NUMBER),
            mandatory(6, OUT_U32),
            optional(7, ID),
        ],
        uhw: true,
        run: create_cq,
    },
    Method {
        object: object::CQ,
        method: method::CQ_DESTROY,
        attributes: &[mandatory(0, ID), mandatory(1, OUT_U64)],
        uhw: false,
        run: |file, it| it.write_output(1, &Call::new(file).destroy_cq(it.handle(0)?)?),
    },
    Method {
        object: object::SRQ,
        method: method::SRQ_CREATE,
        attributes: &[
            mandatory(0, ID),
            mandatory(1, ID),
            optional(2, ID),
            optional(3, ID),
            mandatory(4, U64),
            mandatory(5, U32),
            mandatory(6, U32),
            mandatory(7, U32),
            optional(8, U32),
            mandatory(9, NUMBER),
            optional(10, ID),
            mandatory(11, OUT_U32),
            mandatory(12, OUT_U32),
            optional(13, OUT_U32),
        ],
        uhw: true,
        run: create_srq,
    },
    Method {
        object: object::SRQ,
        method: method::SRQ_DESTROY,
        attributes: &[mandatory(0, ID), mandatory(1, OUT_U32)],
        uhw: false,
        run: |file, it| it.write_output(1, &Call::new(file).destroy_srq(it.handle(0)?)?),
    },
    Method {
        object: object::QP,
        method: method::QP_CREATE,
        attributes: &[
            mandatory(0, ID),
            optional(1, ID),
            optional(2, ID),
            optional(3, ID),
            optional(4, ID),
            optional(5, ID),
            optional(6, ID),
            mandatory(7, U64),
            mandatory(
                8,
                AttrType::InZeroTrailing(size(size_of::<QpCap>()), size(size_of::<QpCap>())),
            ),
            mandatory(9, NUMBER),
            optional(10, NUMBER),
            optional(11, U32),
            optional(12, ID),
            mandatory(13, AttrType::Out(size(size_of::<QpCap>()))),
            mandatory(14, OUT_U32),
        ],
        uhw: true,
        run: create_qp,
    },
    Method {
        object: object::QP,
        method: method::QP_DESTROY,
        attributes: &[mandatory(0, ID), mandatory(1, OUT_U32)],
        uhw: false,
        run: |file, it| it.write_output(1, &Call::new(file).destroy_qp(it.handle(0)?)?),
    },
    Method {
        object: object::DEVX,
        method: method::DEVX_OTHER,
        attributes: &[mandatory(0x1000, DEVX_IN), mandatory(0x1001, DEVX_OUT)],
        uhw: false,
        run: devx_other,
    },
    Method {
        object: object::DEVX_OBJ,
        method: method::DEVX_OBJ_QUERY,
        attributes: &[
            mandatory(0x1000, ID),
            mandatory(0x1001, DEVX_IN),
            mandatory(0x1002, DEVX_OUT),
        ],
        uhw: false,
        run: devx_obj_query,
    },
    Method {
        object: object::MLX5_UAR,
        method: method::UAR_ALLOC,
        attributes: &[
            mandatory(0x1000, ID),
            mandatory(0x1001, NUMBER),
            mandatory(0x1002, OUT_U64),
            mandatory(0x1003, OUT_U32),
            mandatory(0x1004, OUT_U32),
        ],
        uhw: false,
        run: alloc_uar,
    },
    Method {
        object: object::MLX5_UAR,
        method: method::UAR_DESTROY,
        attributes: &[mandatory(0x1000, ID)],
        uhw: false,
        run: |file, it| Call::new(file).destroy_uar(it.handle(0x1000)?),
    },
];
