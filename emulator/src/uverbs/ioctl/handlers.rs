//! The ioctl methods that do more than destroy one object: they read requests from
//! attributes and write replies to attributes.

use std::sync::Arc;

use libc::{EINVAL, EPROTONOSUPPORT};
use zerocopy::IntoBytes;

use super::close;
use crate::log;
use crate::refusal::{OrRefuse, refuse_if};
use crate::spec::Result;
use crate::uverbs::abi::{self, GidEntry, QueryPortRespEx, UHW_IN, UHW_OUT};
use crate::uverbs::attributes::Attributes;
use crate::uverbs::commands::{
    COMPLETION_VECTORS, CORE_SUPPORT, CQ_FLAGS, Call, CqRequest, QP_CREATE_SQ_SIG_ALL, QpRequest,
    SrqRequest, check_creation_flags,
};
use crate::uverbs::context::{DeviceFile, PAGE_SIZE};
use crate::uverbs::write_commands::{Buffer, WriteCommand, context_request};

pub(super) fn invoke_write(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    WriteCommand {
        number: it.u32(2)?,
        core: it.bytes(0).to_vec(),
        driver: it.bytes(UHW_IN).to_vec(),
        core_reply: Buffer {
            address: it.address(1),
            len: it.output_len(1).into(),
        },
        driver_reply: Buffer {
            address: it.address(UHW_OUT),
            len: it.output_len(UHW_OUT).into(),
        },
    }
    .run(file)?;
    it.mark_valid(1)?;
    it.mark_valid(UHW_OUT)
}

pub(super) fn query_port(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    let reply: QueryPortRespEx = Call::new(file).query_port(it.u64(0))?;
    it.write_output(1, &reply)
}

pub(super) fn get_context(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    let reply = Call::new(file).get_context(&context_request(it.bytes(UHW_IN))?)?;
    it.write_output(0, &COMPLETION_VECTORS)?;
    it.write_output(1, &CORE_SUPPORT)?;
    it.write_output(UHW_OUT, &reply)
}

pub(super) fn query_context(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    let reply = Call::new(file).query_context()?;
    it.write_output(0, &COMPLETION_VECTORS)?;
    it.write_output(1, &CORE_SUPPORT)?;
    it.write_output(0x1000, &reply)
}

pub(super) fn query_gid_table(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    const SIZE: &str = "the buffer is no multiple of the size of an entry";
    let entry_size = usize::try_from(it.u64(0)).or_refuse(EINVAL, SIZE)?;
    let room = usize::from(it.output_len(2));
    it.flags(1, 0)?;
    refuse_if(
        entry_size == 0 || !room.is_multiple_of(entry_size),
        EINVAL,
        SIZE,
    )?;
    let table = Call::new(file).gid_table()?;
    refuse_if(
        table.len() > room / entry_size,
        EINVAL,
        "the buffer has no room for all GIDs of the device",
    )?;
    let mut bytes = Vec::with_capacity(room);
    for entry in &table {
        let mut record = entry.as_bytes()[..size_of::<GidEntry>().min(entry_size)].to_vec();
        record.resize(entry_size, 0);
        bytes.extend(record);
    }
    it.write_output_bytes(2, &bytes)?;
    it.write_output(3, &(table.len() as u64))
}

pub(super) fn query_gid_entry(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    it.flags(2, 0)?;
    let entry = Call::new(file).gid_entry(it.u64(0), it.u64(1))?;
    it.write_output(3, &entry)
}

pub(super) fn async_event_alloc(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    let fd = Call::new(file).create_asynchronous()?;
    it.write_id(0, fd.unsigned_abs()).inspect_err(|_| close(fd))
}

pub(super) fn query_mr(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    let mr = Call::new(file).query_mr(it.handle(0)?)?;
    it.write_output(1, &mr.lkey)?;
    it.write_output(2, &mr.rkey)?;
    it.write_output(3, &mr.length)?;
    it.write_output(4, &mr.iova)
}

pub(super) fn create_cq(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    let requested = CqRequest {
        user_handle: it.u64(2),
        cqe: it.u32(1)?,
        comp_vector: it.u32(4)?,
        channel: it.descriptor(3)?,
        event_fd: it.descriptor(7)?,
        flags: it.flags(5, CQ_FLAGS)?,
        driver: it.structure(UHW_IN),
        driver_len: it.bytes(UHW_IN).len(),
    };
    log::request(|| format!("{requested:?}"));
    let mut call = Call::new(file);
    let cq = call.create_cq(&requested)?;
    it.write_output(6, &cq.cqe)
        .and_then(|()| {
            it.write_output(
                UHW_OUT,
                &abi::Mlx5CreateCqResp {
                    cqn: cq.cqn,
                    reserved: 0,
                },
            )
        })
        .and_then(|()| it.write_id(0, cq.handle))
        .inspect_err(|_| {
            let _ = call.destroy_cq(cq.handle);
        })
}

pub(super) fn create_srq(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    // For a driver without SRQs the kernel removes the method
    // (`uapi_finalize_disable`); the write command returns the error instead.
    refuse_if(
        !file.limits().has_srqs(),
        EPROTONOSUPPORT,
        "the device has no shared receive queues (max_srq=0 of --limits)",
    )?;
    let requested = SrqRequest {
        user_handle: it.u64(4),
        pd_handle: it.handle(1)?,
        kind: it.u64(9),
        max_wr: it.u32(5)?,
        max_sge: it.u32(6)?,
        event_fd: it.descriptor(10)?,
        driver: it.structure(UHW_IN),
    };
    log::request(|| format!("{requested:?}"));
    let mut call = Call::new(file);
    let srq = call.create_srq(&requested)?;
    it.write_output(11, &srq.max_wr)
        .and_then(|()| it.write_output(12, &srq.max_sge))
        .and_then(|()| it.write_output(13, &srq.srqn))
        .and_then(|()| {
            it.write_output(
                UHW_OUT,
                &abi::Mlx5CreateSrqResp {
                    srqn: srq.srqn,
                    reserved: 0,
                },
            )
        })
        .and_then(|()| it.write_id(0, srq.handle))
        .inspect_err(|_| {
            let _ = call.destroy_srq(srq.handle);
        })
}

pub(super) fn create_qp(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    const XRCD: u16 = 1;
    const INDIRECTION_TABLE: u16 = 6;
    const SOURCE_QPN: u16 = 11;
    refuse_if(
        it.has(XRCD) || it.has(INDIRECTION_TABLE) || it.has(SOURCE_QPN),
        EINVAL,
        "the device has no XRC domains, indirection tables and source QP numbers",
    )?;
    let flags = it.u32(10)?;
    check_creation_flags(it.u64(9), flags)?;
    let requested = QpRequest {
        user_handle: it.u64(7),
        pd_handle: it.handle(2)?,
        send_cq: it.handle(4)?,
        recv_cq: it.handle(5)?,
        srq: it.optional_handle(3)?,
        kind: it.u64(9),
        cap: it.structure(8),
        signal_all: flags & QP_CREATE_SQ_SIG_ALL != 0,
        event_fd: it.descriptor(12)?,
        driver: it.structure(UHW_IN),
    };
    log::request(|| format!("{requested:?}"));
    let mut call = Call::new(file);
    let qp = call.create_qp(&requested)?;
    it.write_output(13, &qp.cap)
        .and_then(|()| it.write_output(14, &qp.qpn))
        .and_then(|()| it.write_output(UHW_OUT, &qp.driver_reply()))
        .and_then(|()| it.write_id(0, qp.handle))
        .inspect_err(|_| {
            let _ = call.destroy_qp(qp.handle);
        })
}

pub(super) fn alloc_uar(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    let mut call = Call::new(file);
    let (handle, page) = call.alloc_uar(it.u64(0x1001))?;
    it.write_output(0x1002, &(u64::from(page) * PAGE_SIZE))
        .and_then(|()| it.write_output(0x1003, &u32::try_from(PAGE_SIZE).unwrap_or(0)))
        .and_then(|()| it.write_output(0x1004, &page))
        .and_then(|()| it.write_id(0x1000, handle))
        .inspect_err(|_| {
            let _ = call.destroy_uar(handle);
        })
}

pub(super) fn devx_other(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    require_devx(file)?;
    let reply = Call::new(file).devx_other(it.bytes(0x1000))?;
    it.write_output_bytes(0x1001, &reply)
}

pub(super) fn devx_obj_query(file: &Arc<DeviceFile>, it: &Attributes) -> Result<()> {
    require_devx(file)?;
    let reply = Call::new(file).devx_obj_query(it.handle(0x1000)?, it.bytes(0x1001))?;
    it.write_output_bytes(0x1002, &reply)
}

/// For a device without DevX the kernel removes the methods (`devx_is_supported`).
fn require_devx(file: &DeviceFile) -> Result<()> {
    refuse_if(
        !file.has_devx(),
        EPROTONOSUPPORT,
        "the device has no DevX (--data-in-order unknown)",
    )
}
