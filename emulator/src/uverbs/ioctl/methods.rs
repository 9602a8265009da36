//! The table of methods that this device supports, with their attributes.

use libc::EOPNOTSUPP;

use super::Method;
use super::handlers::{
    alloc_uar, async_event_alloc, create_cq, create_qp, create_srq, get_context, invoke_write,
    query_context, query_gid_entry, query_gid_table, query_mr, query_port,
};
use crate::nic::spec::Errno;
use crate::uverbs::abi::{self, QpCap, method, object};
use crate::uverbs::attributes::{Carries, NUMBER, may, must};
use crate::uverbs::commands::Call;

const U32: Carries = Carries::In(4, 4);
const U64: Carries = Carries::In(8, 8);
const OUT_U32: Carries = Carries::Out(4);
const OUT_U64: Carries = Carries::Out(8);
const ID: Carries = Carries::Id;

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
            may(0, Carries::In(0, u16::MAX)),
            may(1, Carries::Out(0)),
            must(2, NUMBER),
        ],
        uhw: true,
        run: invoke_write,
    },
    Method {
        object: object::DEVICE,
        method: method::DEVICE_QUERY_PORT,
        attributes: &[
            must(0, NUMBER),
            must(1, Carries::Out(size(size_of::<abi::QueryPortResp>()))),
        ],
        uhw: false,
        run: query_port,
    },
    Method {
        object: object::DEVICE,
        method: method::DEVICE_GET_CONTEXT,
        attributes: &[may(0, OUT_U32), may(1, OUT_U64)],
        uhw: true,
        run: get_context,
    },
    Method {
        object: object::DEVICE,
        method: method::DEVICE_QUERY_CONTEXT,
        attributes: &[
            may(0, OUT_U32),
            may(1, OUT_U64),
            may(0x1000, Carries::Out(4)),
        ],
        uhw: false,
        run: query_context,
    },
    Method {
        object: object::DEVICE,
        method: method::DEVICE_QUERY_GID_TABLE,
        attributes: &[
            must(0, NUMBER),
            may(1, NUMBER),
            must(2, Carries::Out(0)),
            must(3, OUT_U64),
        ],
        uhw: false,
        run: query_gid_table,
    },
    Method {
        object: object::DEVICE,
        method: method::DEVICE_QUERY_GID_ENTRY,
        attributes: &[
            must(0, NUMBER),
            must(1, NUMBER),
            may(2, NUMBER),
            must(3, Carries::Out(28)),
        ],
        uhw: false,
        run: query_gid_entry,
    },
    Method {
        object: object::ASYNC_EVENT,
        method: method::ASYNC_EVENT_ALLOC,
        attributes: &[must(0, ID)],
        uhw: false,
        run: async_event_alloc,
    },
    Method {
        object: object::PD,
        method: method::PD_DESTROY,
        attributes: &[must(0, ID)],
        uhw: false,
        run: |file, it| Call::new(file).dealloc_pd(it.handle(0)?),
    },
    Method {
        object: object::PD,
        method: method::PD_MLX5_QUERY,
        attributes: &[must(0x1000, ID), must(0x1001, OUT_U32)],
        uhw: false,
        run: |file, it| it.answer(0x1001, &Call::new(file).query_pd(it.handle(0x1000)?)?),
    },
    Method {
        object: object::AH,
        method: method::AH_DESTROY,
        attributes: &[must(0, ID)],
        uhw: false,
        run: |file, it| Call::new(file).destroy_ah(it.handle(0)?),
    },
    Method {
        object: object::MR,
        method: method::MR_DESTROY,
        attributes: &[must(0, ID)],
        uhw: false,
        run: |file, it| Call::new(file).dereg_mr(it.handle(0)?),
    },
    Method {
        object: object::MR,
        method: method::MR_ADVISE,
        attributes: &[
            must(0, ID),
            must(1, NUMBER),
            must(2, NUMBER),
            must(3, Carries::In(1, u16::MAX)),
        ],
        uhw: false,
        // Advice is for on-demand paging, which is not supported.
        run: |_, _| Err(Errno(EOPNOTSUPP)),
    },
    Method {
        object: object::MR,
        method: method::MR_QUERY,
        attributes: &[
            must(0, ID),
            must(1, OUT_U32),
            must(2, OUT_U32),
            must(3, OUT_U64),
            may(4, OUT_U64),
        ],
        uhw: false,
        run: query_mr,
    },
    Method {
        object: object::MW,
        method: method::MW_DESTROY,
        attributes: &[must(0, ID)],
        uhw: false,
        run: |file, it| Call::new(file).dealloc_mw(it.handle(0)?),
    },
    Method {
        object: object::CQ,
        method: method::CQ_CREATE,
        attributes: &[
            must(0, ID),
            must(1, U32),
            must(2, U64),
            may(3, ID),
            must(4, U32),
            may(5, NUMBER),
            must(6, OUT_U32),
            may(7, ID),
        ],
        uhw: true,
        run: create_cq,
    },
    Method {
        object: object::CQ,
        method: method::CQ_DESTROY,
        attributes: &[must(0, ID), must(1, OUT_U64)],
        uhw: false,
        run: |file, it| it.answer(1, &Call::new(file).destroy_cq(it.handle(0)?)?),
    },
    Method {
        object: object::SRQ,
        method: method::SRQ_CREATE,
        attributes: &[
            must(0, ID),
            must(1, ID),
            may(2, ID),
            may(3, ID),
            must(4, U64),
            must(5, U32),
            must(6, U32),
            must(7, U32),
            may(8, U32),
            must(9, NUMBER),
            may(10, ID),
            must(11, OUT_U32),
            must(12, OUT_U32),
            may(13, OUT_U32),
        ],
        uhw: true,
        run: create_srq,
    },
    Method {
        object: object::SRQ,
        method: method::SRQ_DESTROY,
        attributes: &[must(0, ID), must(1, OUT_U32)],
        uhw: false,
        run: |file, it| it.answer(1, &Call::new(file).destroy_srq(it.handle(0)?)?),
    },
    Method {
        object: object::QP,
        method: method::QP_CREATE,
        attributes: &[
            must(0, ID),
            may(1, ID),
            may(2, ID),
            may(3, ID),
            may(4, ID),
            may(5, ID),
            may(6, ID),
            must(7, U64),
            must(
                8,
                Carries::InZeroTrailing(size(size_of::<QpCap>()), size(size_of::<QpCap>())),
            ),
            must(9, NUMBER),
            may(10, NUMBER),
            may(11, U32),
            may(12, ID),
            must(13, Carries::Out(size(size_of::<QpCap>()))),
            must(14, OUT_U32),
        ],
        uhw: true,
        run: create_qp,
    },
    Method {
        object: object::QP,
        method: method::QP_DESTROY,
        attributes: &[must(0, ID), must(1, OUT_U32)],
        uhw: false,
        run: |file, it| it.answer(1, &Call::new(file).destroy_qp(it.handle(0)?)?),
    },
    Method {
        object: object::MLX5_UAR,
        method: method::UAR_ALLOC,
        attributes: &[
            must(0x1000, ID),
            must(0x1001, NUMBER),
            must(0x1002, OUT_U64),
            must(0x1003, OUT_U32),
            must(0x1004, OUT_U32),
        ],
        uhw: false,
        run: alloc_uar,
    },
    Method {
        object: object::MLX5_UAR,
        method: method::UAR_DESTROY,
        attributes: &[must(0x1000, ID)],
        uhw: false,
        run: |file, it| Call::new(file).destroy_uar(it.handle(0x1000)?),
    },
];
