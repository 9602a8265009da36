//! The ioctl interface: methods with attributes.

use std::sync::Arc;

use libc::{EINVAL, ENOTTY, EOPNOTSUPP, EPROTONOSUPPORT};

use super::abi::{
    self, DRIVER_MLX5, GidEntry, IoctlHeader, Mlx5AllocUcontextReq, QpCap, QueryPortRespEx,
    RDMA_VERBS_IOCTL, UHW_IN, UHW_OUT, method, object, request,
};
use super::attributes::{Attributes, Carries, NUMBER, Spec, UHW, may, must};
use super::commands::{
    COMPLETION_VECTORS, CORE_SUPPORT, CQ_FLAGS, Call, CqRequest, QP_CREATE_SQ_SIG_ALL, QpRequest,
    SrqRequest,
};
use super::context::{DeviceFile, PAGE_SIZE};
use super::files::FILES;
use super::legacy::{Buffer, WriteCommand};
use super::user;
use crate::nic::spec::{Errno, Result};
use zerocopy::IntoBytes;

/// A method: its attributes and what it does.
struct Method {
    object: u16,
    method: u16,
    attributes: &'static [Spec],
    uhw: bool,
    run: fn(&Arc<DeviceFile>, &Attributes) -> Result<()>,
}

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

/// Everything this device has methods for; the attributes are those of the
/// kernel's `uverbs_std_types_*.c` and of mlx5_ib.
const METHODS: &[Method] = &[
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
        // Advice is about on-demand paging, of which there is none.
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

/// Longest command, as in the kernel: a page.
const MAX_COMMAND: u16 = 4096;

impl DeviceFile {
    /// `ioctl(fd, request, argument)`.
    ///
    /// # Errors
    /// `ENOTTY` for other ioctls than `RDMA_VERBS_IOCTL`, `EPROTONOSUPPORT`
    /// for what this device has no method for, and the command's own.
    pub fn ioctl(self: &Arc<Self>, number: libc::c_ulong, argument: u64) -> Result<()> {
        if number != RDMA_VERBS_IOCTL {
            return Err(Errno(ENOTTY));
        }
        let header: IoctlHeader = request(&user::copy_in(argument, size_of::<IoctlHeader>())?);
        let expected =
            size_of::<IoctlHeader>() + usize::from(header.num_attrs) * size_of::<abi::Attribute>();
        if header.length > MAX_COMMAND || usize::from(header.length) != expected {
            return Err(Errno(EINVAL));
        }
        if header.reserved1 != 0 || header.reserved2 != 0 {
            return Err(Errno(EPROTONOSUPPORT));
        }
        if header.driver_id != DRIVER_MLX5 {
            return Err(Errno(EINVAL));
        }
        let method = METHODS
            .iter()
            .find(|it| it.object == header.object_id && it.method == header.method_id)
            .ok_or(Errno(EPROTONOSUPPORT))?;
        let uhw: &[Spec] = if method.uhw { &UHW } else { &[] };
        let attributes = Attributes::read(&header, argument, &[method.attributes, uhw])?;
        (method.run)(self, &attributes)
    }
}

fn invoke_write(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    WriteCommand {
        number: it.u32(2)?,
        core: it.bytes(0).to_vec(),
        driver: it.bytes(UHW_IN).to_vec(),
        core_reply: Buffer {
            address: it.address(1),
            len: it.room(1).into(),
        },
        driver_reply: Buffer {
            address: it.address(UHW_OUT),
            len: it.room(UHW_OUT).into(),
        },
    }
    .run(file)?;
    it.mark_valid(1)?;
    it.mark_valid(UHW_OUT)
}

fn query_port(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    let reply: QueryPortRespEx = Call::new(file).query_port(it.u64(0))?;
    it.answer(1, &reply)
}

fn get_context(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    let sent = it.bytes(UHW_IN);
    // The first version of the request was two words.
    if sent.len() < 8 {
        return Err(Errno(EINVAL));
    }
    let reply = Call::new(file).get_context(&request::<Mlx5AllocUcontextReq>(sent))?;
    it.answer(0, &COMPLETION_VECTORS)?;
    it.answer(1, &CORE_SUPPORT)?;
    it.answer(UHW_OUT, &reply)
}

fn query_context(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    let reply = Call::new(file).query_context()?;
    it.answer(0, &COMPLETION_VECTORS)?;
    it.answer(1, &CORE_SUPPORT)?;
    it.answer(0x1000, &reply)
}

fn query_gid_table(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    let entry_size = usize::try_from(it.u64(0)).map_err(|_| Errno(EINVAL))?;
    let room = usize::from(it.room(2));
    if entry_size == 0 || it.flags(1, 0)? != 0 || !room.is_multiple_of(entry_size) {
        return Err(Errno(EINVAL));
    }
    let table = Call::new(file).gid_table()?;
    if table.len() > room / entry_size {
        return Err(Errno(EINVAL));
    }
    let mut bytes = Vec::with_capacity(room);
    for entry in &table {
        let mut record = entry.as_bytes()[..size_of::<GidEntry>().min(entry_size)].to_vec();
        record.resize(entry_size, 0);
        bytes.extend(record);
    }
    it.answer_bytes(2, &bytes)?;
    it.answer(3, &(table.len() as u64))
}

fn query_gid_entry(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    it.flags(2, 0)?;
    let entry = Call::new(file).gid_entry(it.u64(0), it.u64(1))?;
    it.answer(3, &entry)
}

fn async_event_alloc(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    let fd = Call::new(file).create_asynchronous()?;
    it.answer_id(0, fd.unsigned_abs())
        .inspect_err(|_| close(fd))
}

fn query_mr(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    let mr = Call::new(file).query_mr(it.handle(0)?)?;
    it.answer(1, &mr.lkey)?;
    it.answer(2, &mr.rkey)?;
    it.answer(3, &mr.length)?;
    it.answer(4, &mr.iova)
}

fn create_cq(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    let wanted = CqRequest {
        user_handle: it.u64(2),
        cqe: it.u32(1)?,
        comp_vector: it.u32(4)?,
        channel: it.descriptor(3)?,
        event_fd: it.descriptor(7)?,
        flags: it.flags(5, CQ_FLAGS)?,
        driver: it.structure(UHW_IN),
        driver_len: it.bytes(UHW_IN).len(),
    };
    let mut call = Call::new(file);
    let cq = call.create_cq(&wanted)?;
    it.answer(6, &cq.cqe)
        .and_then(|()| {
            it.answer(
                UHW_OUT,
                &abi::Mlx5CreateCqResp {
                    cqn: cq.cqn,
                    reserved: 0,
                },
            )
        })
        .and_then(|()| it.answer_id(0, cq.handle))
        .inspect_err(|_| {
            let _ = call.destroy_cq(cq.handle);
        })
}

fn create_srq(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    let wanted = SrqRequest {
        user_handle: it.u64(4),
        pd_handle: it.handle(1)?,
        kind: it.u64(9),
        max_wr: it.u32(5)?,
        max_sge: it.u32(6)?,
        limit: it.u32(7)?,
        event_fd: it.descriptor(10)?,
        driver: it.structure(UHW_IN),
    };
    let mut call = Call::new(file);
    let srq = call.create_srq(&wanted)?;
    it.answer(11, &srq.max_wr)
        .and_then(|()| it.answer(12, &srq.max_sge))
        .and_then(|()| it.answer(13, &srq.srqn))
        .and_then(|()| {
            it.answer(
                UHW_OUT,
                &abi::Mlx5CreateSrqResp {
                    srqn: srq.srqn,
                    reserved: 0,
                },
            )
        })
        .and_then(|()| it.answer_id(0, srq.handle))
        .inspect_err(|_| {
            let _ = call.destroy_srq(srq.handle);
        })
}

fn create_qp(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    const XRCD: u16 = 1;
    const INDIRECTION_TABLE: u16 = 6;
    const SOURCE_QPN: u16 = 11;
    if it.has(XRCD) || it.has(INDIRECTION_TABLE) || it.has(SOURCE_QPN) {
        return Err(Errno(EINVAL));
    }
    let flags = it.u32(10)?;
    if flags & !QP_CREATE_SQ_SIG_ALL != 0 {
        return Err(Errno(EOPNOTSUPP));
    }
    let cap: QpCap = it.structure(8);
    let wanted = QpRequest {
        user_handle: it.u64(7),
        pd_handle: it.handle(2)?,
        send_cq: it.handle(4)?,
        recv_cq: it.handle(5)?,
        srq: it.optional_handle(3)?,
        kind: it.u64(9),
        cap,
        signal_all: flags & QP_CREATE_SQ_SIG_ALL != 0,
        event_fd: it.descriptor(12)?,
        driver: it.structure(UHW_IN),
    };
    let mut call = Call::new(file);
    let qp = call.create_qp(&wanted)?;
    it.answer(13, &cap)
        .and_then(|()| it.answer(14, &qp.qpn))
        .and_then(|()| it.answer(UHW_OUT, &qp.driver_reply()))
        .and_then(|()| it.answer_id(0, qp.handle))
        .inspect_err(|_| {
            let _ = call.destroy_qp(qp.handle);
        })
}

fn alloc_uar(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    let mut call = Call::new(file);
    let (handle, page) = call.alloc_uar(it.u64(0x1001))?;
    it.answer(0x1002, &(u64::from(page) * PAGE_SIZE))
        .and_then(|()| it.answer(0x1003, &u32::try_from(PAGE_SIZE).unwrap_or(0)))
        .and_then(|()| it.answer(0x1004, &page))
        .and_then(|()| it.answer_id(0x1000, handle))
        .inspect_err(|_| {
            let _ = call.destroy_uar(handle);
        })
}

/// Takes a descriptor back that the application never learnt of.
pub(super) fn close(fd: i32) {
    FILES.closed(fd);
    // SAFETY: the descriptor was made by this very command, and nobody else
    // has been told its number.
    unsafe { libc::close(fd) };
}
