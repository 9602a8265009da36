//! The commands of the write interface, which are numbers with fixed structures.
//! libibverbs sends most of them wrapped in an ioctl (`INVOKE_WRITE`), and all of
//! them by `write()` on kernels without ioctls.

use std::sync::Arc;

use libc::{ENOSPC, EOPNOTSUPP};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::abi::{
    self, AllocMw, AllocMwResp, AllocPdResp, CreateAh, CreateAhResp, CreateCq, CreateCqResp,
    CreateQp, CreateQpResp, CreateSrq, CreateSrqResp, DestroyCqResp, ExCreateCq, ExCreateCqResp,
    ExCreateQp, ExCreateQpResp, ExModifyCq, ExModifyQp, ExModifyQpResp, GetContextResp, HandleOnly,
    HandleRequest, Mlx5AllocMw, Mlx5AllocUcontextReq, ModifyQp, ModifySrq, QueryDeviceResp,
    QueryPort, QueryPortResp, QueryQp, QueryQpResp, QuerySrqResp, RegMr, RegMrResp, ReregMr,
    ReregMrResp, ResizeCq, ResizeCqResp, request, write_command,
};
use super::commands::{
    COMPLETION_VECTORS, Call, CqRequest, QP_CREATE_FLAGS, QpRequest, SrqRequest,
};
use super::context::DeviceFile;
use super::ioctl::close;
use super::user;
use crate::nic::spec::{Errno, Result};

/// A buffer of the application for a reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    pub(super) address: u64,
    pub(super) len: usize,
}

impl Buffer {
    fn reply<T: IntoBytes + Immutable>(&self, value: &T) -> Result<()> {
        user::copy_reply(self.address, self.len, value.as_bytes())
    }
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

/// A command: the minimum sizes of request and reply, and its function.
pub(super) struct CommandSpec {
    number: u32,
    /// Size of the request in bytes, without the driver's part.
    pub(super) request: usize,
    /// Size of the reply in bytes, without the driver's part.
    pub(super) reply: usize,
    run: fn(&Arc<DeviceFile>, &WriteCommand) -> Result<()>,
}

const fn entry<Request, Reply>(
    number: u32,
    run: fn(&Arc<DeviceFile>, &WriteCommand) -> Result<()>,
) -> CommandSpec {
    CommandSpec {
        number,
        request: size_of::<Request>(),
        reply: size_of::<Reply>(),
        run,
    }
}

impl CommandSpec {
    /// Returns the command with this number.
    pub(super) fn find(number: u32) -> Option<&'static Self> {
        COMMANDS.iter().find(|it| it.number == number)
    }
}

/// Returns whether a command by plain `write()` is followed by a driver part
/// (`UAPI_DEF_WRITE_UDATA_*`).
pub(super) fn has_driver_part(number: u32) -> bool {
    use write_command as it;
    matches!(
        number,
        it::GET_CONTEXT
            | it::ALLOC_PD
            | it::CREATE_AH
            | it::REG_MR
            | it::REREG_MR
            | it::ALLOC_MW
            | it::CREATE_CQ
            | it::RESIZE_CQ
            | it::CREATE_QP
            | it::MODIFY_QP
            | it::CREATE_SRQ
            | it::MODIFY_SRQ
    )
}

/// Extended replies may end after their `response_length`.
const EX_QUERY_DEVICE_LEAST: usize = size_of::<QueryDeviceResp>() + 8;

const COMMANDS: &[CommandSpec] = &[
    entry::<u64, GetContextResp>(write_command::GET_CONTEXT, get_context),
    entry::<u64, QueryDeviceResp>(write_command::QUERY_DEVICE, |file, it| {
        it.core_reply.reply(&Call::new(file).query_device()?)
    }),
    CommandSpec {
        number: write_command::EX_QUERY_DEVICE,
        request: 8,
        reply: EX_QUERY_DEVICE_LEAST,
        run: ex_query_device,
    },
    entry::<QueryPort, QueryPortResp>(write_command::QUERY_PORT, |file, it| {
        let port = it.core::<QueryPort>().port_num;
        it.core_reply
            .reply(&Call::new(file).query_port(port.into())?.legacy_resp)
    }),
    entry::<u64, AllocPdResp>(write_command::ALLOC_PD, alloc_pd),
    entry::<HandleOnly, ()>(write_command::DEALLOC_PD, |file, it| {
        Call::new(file).dealloc_pd(it.core::<HandleOnly>().handle)
    }),
    entry::<CreateAh, CreateAhResp>(write_command::CREATE_AH, create_ah),
    entry::<HandleOnly, ()>(write_command::DESTROY_AH, |file, it| {
        Call::new(file).destroy_ah(it.core::<HandleOnly>().handle)
    }),
    entry::<RegMr, RegMrResp>(write_command::REG_MR, reg_mr),
    entry::<ReregMr, ReregMrResp>(write_command::REREG_MR, |file, it| {
        it.core_reply.reply(&Call::new(file).rereg_mr(&it.core())?)
    }),
    entry::<HandleOnly, ()>(write_command::DEREG_MR, |file, it| {
        Call::new(file).dereg_mr(it.core::<HandleOnly>().handle)
    }),
    entry::<AllocMw, AllocMwResp>(write_command::ALLOC_MW, alloc_mw),
    entry::<HandleOnly, ()>(write_command::DEALLOC_MW, |file, it| {
        Call::new(file).dealloc_mw(it.core::<HandleOnly>().handle)
    }),
    entry::<u64, u32>(write_command::CREATE_COMP_CHANNEL, |file, it| {
        let fd = Call::new(file).create_channel()?;
        it.core_reply.reply(&fd).inspect_err(|_| close(fd))
    }),
    entry::<CreateCq, CreateCqResp>(write_command::CREATE_CQ, create_cq),
    entry::<ExCreateCq, ExCreateCqResp>(write_command::EX_CREATE_CQ, ex_create_cq),
    entry::<ResizeCq, ResizeCqResp>(write_command::RESIZE_CQ, |file, it| {
        let cqe = Call::new(file).resize_cq(&it.core(), &it.driver)?;
        it.core_reply.reply(&ResizeCqResp { cqe, reserved: 0 })
    }),
    entry::<ExModifyCq, ()>(write_command::EX_MODIFY_CQ, |file, it| {
        it.check_tail::<ExModifyCq>()?;
        Call::new(file).modify_cq(&it.core())
    }),
    entry::<HandleRequest, DestroyCqResp>(write_command::DESTROY_CQ, |file, it| {
        it.core_reply
            .reply(&Call::new(file).destroy_cq(it.core::<HandleRequest>().handle)?)
    }),
    entry::<CreateSrq, CreateSrqResp>(write_command::CREATE_SRQ, create_srq),
    entry::<ModifySrq, ()>(write_command::MODIFY_SRQ, |file, it| {
        Call::new(file).modify_srq(&it.core())
    }),
    entry::<HandleRequest, QuerySrqResp>(write_command::QUERY_SRQ, |file, it| {
        it.core_reply
            .reply(&Call::new(file).query_srq(it.core::<HandleRequest>().handle)?)
    }),
    entry::<HandleRequest, u32>(write_command::DESTROY_SRQ, |file, it| {
        it.core_reply
            .reply(&Call::new(file).destroy_srq(it.core::<HandleRequest>().handle)?)
    }),
    entry::<CreateQp, CreateQpResp>(write_command::CREATE_QP, create_qp),
    entry::<ExCreateQp, ExCreateQpResp>(write_command::EX_CREATE_QP, ex_create_qp),
    entry::<ModifyQp, ()>(write_command::MODIFY_QP, |file, it| {
        Call::new(file).modify_qp(&it.core())
    }),
    entry::<ModifyQp, ExModifyQpResp>(write_command::EX_MODIFY_QP, ex_modify_qp),
    entry::<QueryQp, QueryQpResp>(write_command::QUERY_QP, |file, it| {
        it.core_reply
            .reply(&Call::new(file).query_qp(it.core::<QueryQp>().qp_handle)?)
    }),
    entry::<HandleRequest, u32>(write_command::DESTROY_QP, |file, it| {
        it.core_reply
            .reply(&Call::new(file).destroy_qp(it.core::<HandleRequest>().handle)?)
    }),
];

impl WriteCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// The kernel's: `EOPNOTSUPP` for a command that the device does not support,
    /// `ENOSPC` for a request or a reply buffer that is too short, and the command's
    /// own errors.
    pub(super) fn run(&self, file: &Arc<DeviceFile>) -> Result<()> {
        let command = CommandSpec::find(self.number).ok_or(Errno(EOPNOTSUPP))?;
        if self.core.len() < command.request || self.core_reply.len < command.reply {
            return Err(Errno(ENOSPC));
        }
        (command.run)(file, self)
    }

    fn core<T: FromBytes + IntoBytes + KnownLayout>(&self) -> T {
        request(&self.core)
    }

    /// Returns `EOPNOTSUPP` if the request has non-zero bytes after the known
    /// structure.
    fn check_tail<T>(&self) -> Result<()> {
        let tail = self.core.get(size_of::<T>()..).unwrap_or(&[]);
        if tail.iter().all(|byte| *byte == 0) {
            Ok(())
        } else {
            Err(Errno(EOPNOTSUPP))
        }
    }
}

fn get_context(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
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
    if sent.len() < 8 {
        return Err(Errno(libc::EINVAL));
    }
    Ok(request(sent))
}

fn ex_query_device(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    #[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout)]
    #[repr(C)]
    struct Request {
        comp_mask: u32,
        reserved: u32,
    }
    let requested: Request = it.core();
    if requested.comp_mask != 0 || requested.reserved != 0 {
        return Err(Errno(libc::EINVAL));
    }
    let (mut core, mut driver) = Call::new(file).query_device_ex()?;
    let response_length = |len: usize, max: u32| u32::try_from(len).unwrap_or(u32::MAX).min(max);
    core.response_length = response_length(it.core_reply.len, core.response_length);
    driver.response_length = response_length(it.driver_reply.len, driver.response_length);
    it.core_reply.reply(&core)?;
    it.driver_reply.reply(&driver)
}

fn alloc_pd(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    let mut call = Call::new(file);
    let (pd_handle, pdn) = call.alloc_pd()?;
    it.core_reply
        .reply(&AllocPdResp { pd_handle })
        .and_then(|()| it.driver_reply.reply(&pdn))
        .inspect_err(|_| {
            let _ = call.dealloc_pd(pd_handle);
        })
}

fn create_ah(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    let core: CreateAh = it.core();
    let mut call = Call::new(file);
    let (ah_handle, mac) = call.create_ah(core.pd_handle, &core.attr)?;
    let reply = || {
        if let Some(dmac) = mac {
            // libmlx5 creates address handles to get this MAC address.
            if it.driver_reply.len < size_of::<abi::Mlx5CreateAhResp>() - 6 {
                return Err(Errno(libc::EINVAL));
            }
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

fn reg_mr(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    let mut call = Call::new(file);
    let reply = call.reg_mr(&it.core())?;
    it.core_reply.reply(&reply).inspect_err(|_| {
        let _ = call.dereg_mr(reply.mr_handle);
    })
}

fn alloc_mw(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    let known = size_of::<Mlx5AllocMw>();
    if it.driver.iter().skip(known).any(|byte| *byte != 0) {
        return Err(Errno(EOPNOTSUPP));
    }
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

fn create_cq(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
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

fn ex_create_cq(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    it.check_tail::<ExCreateCq>()?;
    let core: ExCreateCq = it.core();
    if core.comp_mask != 0 || core.reserved != 0 {
        return Err(Errno(libc::EINVAL));
    }
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

fn create_srq(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    let core: CreateSrq = it.core();
    let mut call = Call::new(file);
    let srq = call.create_srq(&SrqRequest {
        user_handle: core.user_handle,
        pd_handle: core.pd_handle,
        kind: 0,
        max_wr: core.max_wr,
        max_sge: core.max_sge,
        limit: core.srq_limit,
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

fn create_qp(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
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

fn ex_create_qp(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    it.check_tail::<ExCreateQp>()?;
    let core: ExCreateQp = it.core();
    // The comp_mask is for indirection tables, which are not supported.
    if core.comp_mask != 0 || core.create_flags & !QP_CREATE_FLAGS != 0 {
        return Err(Errno(EOPNOTSUPP));
    }
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

fn ex_modify_qp(file: &Arc<DeviceFile>, it: &WriteCommand) -> Result<()> {
    it.check_tail::<ExModifyQp>()?;
    // `modify_qp` refuses the mask bit of a rate limit.
    Call::new(file).modify_qp(&it.core::<ExModifyQp>().base)?;
    it.core_reply.reply(&ExModifyQpResp {
        comp_mask: 0,
        response_length: length_of::<ExModifyQpResp>(),
    })
}

fn length_of<T>() -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(0)
}
