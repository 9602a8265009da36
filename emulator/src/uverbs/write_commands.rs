//! The commands of the write interface, which are numbers with fixed structures.
//! libibverbs sends most of them wrapped in an ioctl (`INVOKE_WRITE`), and all of
//! them by `write()` on kernels without ioctls.

use std::fmt::Debug;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use libc::{EINVAL, ENOSPC, EOPNOTSUPP, ETIMEDOUT};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::abi::{
    self, AllocPdResp, CreateAh, CreateAhResp, CreateCq, CreateCqResp, CreateQp, CreateQpResp,
    CreateSrq, CreateSrqResp, ExCreateCq, ExCreateCqResp, ExCreateQp, ExCreateQpResp, ExModifyQp,
    ExModifyQpResp, GetContextResp, Mlx5AllocMw, Mlx5AllocUcontextReq, request,
};
use super::commands::{
    COMPLETION_VECTORS, Call, CqRequest, QP_CREATE_FLAGS, QpRequest, SrqRequest,
};
use super::context::DeviceFile;
use super::ioctl::close;
use super::names;
use super::write_table::CommandSpec;
use crate::log;
use crate::refusal::{self, refuse, refuse_if};
use crate::spec::{Errno, Result};
use crate::user;

/// `IB_QP_RATE_LIMIT`.
const MASK_RATE_LIMIT: u32 = 1 << 25;

/// A buffer of the application for a reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    pub(super) address: u64,
    pub(super) len: usize,
}

impl Buffer {
    pub(super) fn reply<T: IntoBytes + Immutable + Debug>(&self, value: &T) -> Result<()> {
        log::reply(|| format!("{value:?}"));
        user::copy_reply(self.address, self.len, value.as_bytes())
    }
}

/// Returns the refusal of a command that the device does not have.
pub(super) fn absent(number: u32) -> Errno {
    let reason = match number {
        abi::write_command::ATTACH_MCAST | abi::write_command::DETACH_MCAST => {
            "multicast is not emulated"
        }
        _ => "the device does not have this command",
    };
    refuse(EOPNOTSUPP, reason)
}

/// A command of the write interface, split into its parts.
#[derive(Debug)]
pub(super) struct WriteCommand {
    pub(super) number: u32,
    /// The structure of `ib_user_verbs.h`. Its reply address is not used; see
    /// [`WriteCommand::core_reply`].
    pub(super) core: Vec<u8>,
    /// The structure of `mlx5-abi.h` after it.
    pub(super) driver: Vec<u8>,
    pub(super) core_reply: Buffer,
    pub(super) driver_reply: Buffer,
}

impl WriteCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// The kernel's: `EOPNOTSUPP` for a command that the device does not support,
    /// `ENOSPC` for a request or a reply buffer that is too short, and the command's
    /// own errors.
    pub(super) fn run(&self, file: &Arc<DeviceFile>) -> Result<()> {
        log::name(|| names::write_name(self.number));
        let command = CommandSpec::find(self.number);
        let command = command.ok_or_else(|| absent(self.number))?;
        let is_probe = self.number == abi::write_command::QUERY_DEVICE && self.core.is_empty();
        refuse_if(is_probe, ENOSPC, refusal::PROBE)?;
        refuse_if(
            self.core.len() < command.request || self.core_reply.len < command.reply,
            ENOSPC,
            "the request, or the buffer for the reply, is too short",
        )?;
        log::request(|| (command.describe)(&self.core));
        (command.run)(file, self).inspect_err(|errno| {
            // The kernel waits this long for the answer of a neighbour
            // (`rdma_addr_find_l2_eth_by_grh`). Other commands proceed meanwhile.
            if errno.0 == ETIMEDOUT {
                thread::sleep(Duration::from_secs(1));
            }
        })
    }

    pub(super) fn core<T: FromBytes + IntoBytes + KnownLayout>(&self) -> T {
        request(&self.core)
    }

    /// Returns `EOPNOTSUPP` if the request has non-zero bytes after the known
    /// structure.
    pub(super) fn check_tail<T>(&self) -> Result<()> {
        let tail = self.core.get(size_of::<T>()..).unwrap_or(&[]);
        let is_longer = tail.iter().any(|byte| *byte != 0);
        refuse_if(
            is_longer,
            EOPNOTSUPP,
            "the request has fields of a later kernel",
        )
    }
}

pub(super) fn get_context(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    let mut call = Call::new(file);
    let driver = call.get_context(&context_request(&it.driver)?)?;
    let undo = |call: &mut Call| call.close_unreturned_context();
    let async_fd = call
        .create_asynchronous()
        .inspect_err(|_| undo(&mut call))?;
    let core = GetContextResp {
        async_fd,
        num_comp_vectors: COMPLETION_VECTORS,
    };
    it.core_reply
        .reply(&core)
        .and_then(|()| it.driver_reply.reply(&driver))
        .inspect_err(|_| {
            close(async_fd);
            undo(&mut call);
        })
}

/// Returns the driver's part of a `GET_CONTEXT` request.
///
/// # Errors
/// `EINVAL` if it is shorter than its first version, which has two words.
pub(super) fn context_request(sent: &[u8]) -> Result<Mlx5AllocUcontextReq> {
    refuse_if(
        sent.len() < 8,
        libc::EINVAL,
        "the driver's part of the request is too short",
    )?;
    Ok(request(sent))
}

pub(super) fn ex_query_device(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    #[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout)]
    #[repr(C)]
    struct Request {
        comp_mask: u32,
        reserved: u32,
    }
    let requested: Request = it.core();
    refuse_if(
        requested.comp_mask != 0 || requested.reserved != 0,
        libc::EINVAL,
        "comp_mask of the request is not 0",
    )?;
    let (mut core, mut driver) = Call::new(file).query_device_ex()?;
    let response_length = |len: usize, max: u32| u32::try_from(len).unwrap_or(u32::MAX).min(max);
    core.response_length = response_length(it.core_reply.len, core.response_length);
    driver.response_length = response_length(it.driver_reply.len, driver.response_length);
    it.core_reply.reply(&core)?;
    it.driver_reply.reply(&driver)
}

pub(super) fn alloc_pd(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    let mut call = Call::new(file);
    let (pd_handle, pdn) = call.alloc_pd()?;
    it.core_reply
        .reply(&AllocPdResp { pd_handle })
        .and_then(|()| it.driver_reply.reply(&pdn))
        .inspect_err(|_| {
            let _ = call.dealloc_pd(pd_handle);
        })
}

pub(super) fn create_ah(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    let core: CreateAh = it.core();
    let mut call = Call::new(file);
    let (ah_handle, mac) = call.create_ah(core.pd_handle, &core.attr)?;
    let reply = || {
        if let Some(dmac) = mac {
            // libmlx5 creates address handles to get this MAC address.
            refuse_if(
                it.driver_reply.len < size_of::<abi::Mlx5CreateAhResp>() - 6,
                libc::EINVAL,
                "the buffer for the reply has no room for the MAC address",
            )?;
            it.driver_reply.reply(&abi::Mlx5CreateAhResp {
                response_length: length_of::<abi::Mlx5CreateAhResp>(),
                dmac,
                reserved: [0; 6],
            })?;
        }
        it.core_reply.reply(&CreateAhResp { ah_handle })
    };
    reply().inspect_err(|_| {
        let _ = call.destroy_ah(ah_handle);
    })
}

pub(super) fn reg_mr(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    let mut call = Call::new(file);
    let reply = call.reg_mr(&it.core())?;
    it.core_reply.reply(&reply).inspect_err(|_| {
        let _ = call.dereg_mr(reply.mr_handle);
    })
}

pub(super) fn alloc_mw(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    let known = size_of::<Mlx5AllocMw>();
    refuse_if(
        it.driver.iter().skip(known).any(|byte| *byte != 0),
        EOPNOTSUPP,
        "the request has fields of a later kernel",
    )?;
    let mut call = Call::new(file);
    let reply = call.alloc_mw(&it.core(), &request(&it.driver))?;
    let driver = abi::Mlx5AllocMwResp {
        comp_mask: 0,
        response_length: length_of::<abi::Mlx5AllocMwResp>(),
    };
    it.core_reply
        .reply(&reply)
        .and_then(|()| it.driver_reply.reply(&driver))
        .inspect_err(|_| {
            let _ = call.dealloc_mw(reply.mw_handle);
        })
}

pub(super) fn create_cq(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    let core: CreateCq = it.core();
    let requested = CqRequest {
        user_handle: core.user_handle,
        cqe: core.cqe,
        comp_vector: core.comp_vector,
        channel: (core.comp_channel >= 0).then_some(core.comp_channel),
        event_fd: None,
        flags: 0,
        driver: request(&it.driver),
        driver_len: it.driver.len(),
    };
    make_cq(file, it, &requested, |base, it| it.core_reply.reply(&base))
}

pub(super) fn ex_create_cq(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    it.check_tail::<ExCreateCq>()?;
    let core: ExCreateCq = it.core();
    refuse_if(
        core.comp_mask != 0 || core.reserved != 0,
        libc::EINVAL,
        "comp_mask of the request is not 0",
    )?;
    let requested = CqRequest {
        user_handle: core.user_handle,
        cqe: core.cqe,
        comp_vector: core.comp_vector,
        channel: (core.comp_channel >= 0).then_some(core.comp_channel),
        event_fd: None,
        flags: core.flags,
        driver: request(&it.driver),
        driver_len: it.driver.len(),
    };
    make_cq(file, it, &requested, |base, it| {
        let response_length = length_of::<ExCreateCqResp>();
        it.core_reply.reply(&ExCreateCqResp {
            base,
            comp_mask: 0,
            response_length,
        })
    })
}

fn make_cq(
    file: &Arc<DeviceFile>,
    it: &WriteCommand,
    requested: &CqRequest,
    reply: fn(CreateCqResp, &WriteCommand) -> Result<()>,
) -> Result<()> {
    let mut call = Call::new(file);
    let cq = call.create_cq(requested)?;
    let driver = abi::Mlx5CreateCqResp {
        cqn: cq.cqn,
        reserved: 0,
    };
    reply(
        CreateCqResp {
            cq_handle: cq.handle,
            cqe: cq.cqe,
        },
        it,
    )
    .and_then(|()| it.driver_reply.reply(&driver))
    .inspect_err(|_| {
        let _ = call.destroy_cq(cq.handle);
    })
}

pub(super) fn create_srq(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    let core: CreateSrq = it.core();
    let mut call = Call::new(file);
    let srq = call.create_srq(&SrqRequest {
        user_handle: core.user_handle,
        pd_handle: core.pd_handle,
        kind: 0,
        max_wr: core.max_wr,
        max_sge: core.max_sge,
        event_fd: None,
        driver: request(&it.driver),
    })?;
    let reply = CreateSrqResp {
        srq_handle: srq.handle,
        max_wr: srq.max_wr,
        max_sge: srq.max_sge,
        srqn: srq.srqn,
    };
    it.core_reply
        .reply(&reply)
        .and_then(|()| {
            it.driver_reply.reply(&abi::Mlx5CreateSrqResp {
                srqn: srq.srqn,
                reserved: 0,
            })
        })
        .inspect_err(|_| {
            let _ = call.destroy_srq(srq.handle);
        })
}

pub(super) fn create_qp(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    let core: CreateQp = it.core();
    let requested = QpRequest {
        user_handle: core.user_handle,
        pd_handle: core.pd_handle,
        send_cq: core.send_cq_handle,
        recv_cq: core.recv_cq_handle,
        srq: (core.is_srq != 0).then_some(core.srq_handle),
        kind: core.qp_type.into(),
        cap: core.cap,
        signal_all: core.sq_sig_all != 0,
        event_fd: None,
        driver: request(&it.driver),
    };
    make_qp(file, it, &requested, |base, it| it.core_reply.reply(&base))
}

pub(super) fn ex_create_qp(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    it.check_tail::<ExCreateQp>()?;
    let core: ExCreateQp = it.core();
    // The comp_mask is for indirection tables, which are not supported.
    refuse_if(
        core.comp_mask != 0 || core.create_flags & !QP_CREATE_FLAGS != 0,
        EOPNOTSUPP,
        "the request has an indirection table or creation flags that the device does not have",
    )?;
    let requested = QpRequest {
        user_handle: core.user_handle,
        pd_handle: core.pd_handle,
        send_cq: core.send_cq_handle,
        recv_cq: core.recv_cq_handle,
        srq: (core.is_srq != 0).then_some(core.srq_handle),
        kind: core.qp_type.into(),
        cap: core.cap,
        signal_all: core.sq_sig_all != 0,
        event_fd: None,
        driver: request(&it.driver),
    };
    make_qp(file, it, &requested, |base, it| {
        let response_length = length_of::<ExCreateQpResp>();
        it.core_reply.reply(&ExCreateQpResp {
            base,
            comp_mask: 0,
            response_length,
        })
    })
}

fn make_qp(
    file: &Arc<DeviceFile>,
    it: &WriteCommand,
    requested: &QpRequest,
    reply: fn(CreateQpResp, &WriteCommand) -> Result<()>,
) -> Result<()> {
    let mut call = Call::new(file);
    let qp = call.create_qp(requested)?;
    let base = CreateQpResp {
        qp_handle: qp.handle,
        qpn: qp.qpn,
        cap: qp.cap,
        reserved: 0,
    };
    reply(base, it)
        .and_then(|()| it.driver_reply.reply(&qp.driver_reply()))
        .inspect_err(|_| {
            let _ = call.destroy_qp(qp.handle);
        })
}

pub(super) fn ex_modify_qp(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    it.check_tail::<ExModifyQp>()?;
    let request: ExModifyQp = it.core();
    // Queue pairs of raw packets alone take it.
    refuse_if(
        request.base.attr_mask & MASK_RATE_LIMIT != 0,
        EINVAL,
        "queue pairs of RC, UC and UD have no rate limit",
    )?;
    Call::new(file).modify_qp(&request.base)?;
    it.core_reply.reply(&ExModifyQpResp {
        comp_mask: 0,
        response_length: length_of::<ExModifyQpResp>(),
    })
}

fn length_of<T>() -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(0)
}
