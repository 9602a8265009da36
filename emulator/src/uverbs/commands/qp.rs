//! Queue pairs.

use libc::{EINVAL, EOPNOTSUPP};

use super::{Call, caps, check_aligned, event_file};
use crate::limits;
use crate::refusal::{OrRefuse, refuse, refuse_if};
use crate::spec::{
    Access, AsyncObject, Link, Path, QpAttr, QpSpec, Register, Result, Service, UarPage,
};
use crate::user;
use crate::uverbs::abi::{Mlx5CreateQp, Mlx5CreateQpResp, ModifyQp, QpCap, QpDest, QueryQpResp};
use crate::uverbs::handles::{Cq, Pd, Qp, Srq};
use crate::uverbs::registers::{RegisterLocation, Registers};

/// `MLX5_QP_FLAG_*`.
const FLAG_SIGNATURE: u32 = 1;
const FLAG_SCATTER_CQE: u32 = 1 << 1;
const FLAG_BFREG_INDEX: u32 = 1 << 3;
const FLAG_ALLOW_SCATTER_CQE: u32 = 1 << 8;
const FLAG_UAR_PAGE_INDEX: u32 = 1 << 10;

/// `IB_UVERBS_QPT_*`.
const QPT_RC: u64 = 2;
const QPT_UC: u64 = 3;
const QPT_UD: u64 = 4;

/// Creation flags that are always accepted:
/// `IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK`. There is no multicast, so the flag
/// has no effect.
pub(in crate::uverbs) const QP_CREATE_FLAGS: u32 = 1 << 1;
/// `IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING`.
const QP_CREATE_END_PADDING: u32 = 1 << 11;
/// `IB_UVERBS_QP_CREATE_SQ_SIG_ALL`.
pub(in crate::uverbs) const QP_CREATE_SQ_SIG_ALL: u32 = 1 << 12;

/// `IB_QP_STATE`, `IB_QP_CUR_STATE` and so on.
const MASK_STATE: u32 = 1;
const MASK_CUR_STATE: u32 = 1 << 1;
const MASK_ACCESS_FLAGS: u32 = 1 << 3;
const MASK_PORT: u32 = 1 << 5;
const MASK_AV: u32 = 1 << 7;
const MASK_MAX_QP_RD_ATOMIC: u32 = 1 << 13;
const MASK_ALT_PATH: u32 = 1 << 14;
const MASK_MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
/// `IB_QP_ATTR_STANDARD_BITS`.
const MASK_STANDARD: u32 = (1 << 21) - 1;
/// `IB_QPS_SQD`.
const STATE_SQD: u8 = 4;
/// `IB_QPS_ERR`.
const LAST_STATE: u8 = 6;

/// The attributes of a requested QP.
#[derive(Clone, Copy, Debug)]
pub(in crate::uverbs) struct QpRequest {
    pub(in crate::uverbs) user_handle: u64,
    pub(in crate::uverbs) pd_handle: u32,
    pub(in crate::uverbs) send_cq: u32,
    pub(in crate::uverbs) recv_cq: u32,
    pub(in crate::uverbs) srq: Option<u32>,
    /// `IB_QPT_*`.
    pub(in crate::uverbs) kind: u64,
    pub(in crate::uverbs) cap: QpCap,
    pub(in crate::uverbs) signal_all: bool,
    pub(in crate::uverbs) event_fd: Option<i32>,
    pub(in crate::uverbs) driver: Mlx5CreateQp,
}

/// The attributes of a created QP.
#[derive(Clone, Copy, Debug)]
pub(in crate::uverbs) struct QpReply {
    pub(in crate::uverbs) handle: u32,
    pub(in crate::uverbs) qpn: u32,
    /// The requested capabilities, except for the inline size (see [`caps`]).
    pub(in crate::uverbs) cap: QpCap,
    pub(in crate::uverbs) bfreg_index: u32,
}

struct DoorbellRegister {
    location: RegisterLocation,
    /// The register number in the reply.
    number: u32,
    /// The assigned register, which is released when the QP is destroyed.
    assigned: Option<u32>,
}

/// `MLX5_IB_INVALID_BFREG`: libmlx5 has chosen the register itself.
const INVALID_BFREG: u32 = 1 << 31;

const UNKNOWN: &str = "there is no queue pair with this handle";

/// Checks the creation flags of an ioctl.
///
/// # Errors
/// `EINVAL` for a flag that the kind of queue pair cannot have (`check_creation_flags` of
/// ib_uverbs), `EOPNOTSUPP` for one that the device does not have.
pub(in crate::uverbs) fn check_creation_flags(kind: u64, flags: u32) -> Result<()> {
    const REASON: &str = "the queue pair has creation flags that the device does not have";
    let flags = flags & !QP_CREATE_SQ_SIG_ALL;
    let of_kind = match kind {
        QPT_UD => QP_CREATE_FLAGS | QP_CREATE_END_PADDING,
        _ => 0,
    };
    refuse_if(flags & !of_kind != 0, EINVAL, REASON)?;
    refuse_if(flags & !QP_CREATE_FLAGS != 0, EOPNOTSUPP, REASON)
}

impl QpReply {
    /// Returns the driver's part of the reply.
    pub(in crate::uverbs) fn driver_reply(&self) -> Mlx5CreateQpResp {
        Mlx5CreateQpResp {
            bfreg_index: self.bfreg_index,
            ece_options: 0,
            comp_mask: 0,
            tirn: 0,
            tisn: 0,
            rqn: 0,
            sqn: 0,
            reserved1: 0,
            tir_icm_addr: 0,
        }
    }
}

impl Call<'_> {
    pub(in crate::uverbs) fn create_qp(&mut self, request: &QpRequest) -> Result<QpReply> {
        let context = self.context()?;
        let driver = &request.driver;
        let service = match request.kind {
            QPT_RC => Service::Rc,
            QPT_UC => Service::Uc,
            QPT_UD => Service::Ud,
            _ => {
                return Err(refuse(
                    EOPNOTSUPP,
                    "the device has queue pairs of RC, UC and UD only (no XRC, DC or raw packets)",
                ));
            }
        };
        let asynchronous = event_file(request.event_fd)?;
        let handles = &self.state.handles;
        let pd: Pd = handles.get(request.pd_handle)?;
        let send_cq: Cq = handles.get(request.send_cq)?;
        let recv_cq: Cq = handles.get(request.recv_cq)?;
        let srq = request
            .srq
            .map(|handle| handles.get::<Srq>(handle))
            .transpose()?;
        let known = FLAG_SIGNATURE
            | FLAG_SCATTER_CQE
            | FLAG_BFREG_INDEX
            | FLAG_ALLOW_SCATTER_CQE
            | FLAG_UAR_PAGE_INDEX;
        refuse_if(
            driver.flags & !known != 0,
            EINVAL,
            "libmlx5 requests a feature that the device does not have (flags of \
             mlx5_ib_create_qp)",
        )?;
        refuse_if(
            driver.reserved != 0,
            EINVAL,
            "a reserved field of the request is not 0",
        )?;
        check_rings(request)?;
        let cap = caps::grant(request, self.file.limits())?;
        let rq_bytes = u64::from(driver.rq_wqe_count) << driver.rq_wqe_shift;
        let sq_buf = driver.buf_addr.checked_add(rq_bytes);
        let sq_buf = sq_buf.or_refuse(EINVAL, "the ring does not end before the address space")?;
        let doorbell = self.choose_register(driver)?;
        let scatters = driver.flags & FLAG_SCATTER_CQE != 0;
        let allows_unsignalled = driver.flags & FLAG_ALLOW_SCATTER_CQE != 0;
        let made = self.backend().create_qp(&QpSpec {
            context,
            pd: pd.id,
            service,
            send_cq: send_cq.cqn,
            recv_cq: recv_cq.cqn,
            srq: srq.map(|srq| srq.srqn),
            rq_buf: driver.buf_addr,
            rq_wqe_count: driver.rq_wqe_count,
            rq_stride_log2: driver.rq_wqe_shift,
            sq_buf,
            sq_wqebb_count: driver.sq_wqe_count,
            dbrec: driver.db_addr,
            register: Register {
                page: UarPage {
                    context,
                    page: doorbell.location.page,
                },
                offset: doorbell.location.offset,
            },
            user_index: driver.uidx,
            cqe_version: self.state.cqe_version,
            scatter_responses: scatters && (request.signal_all || allows_unsignalled),
            scatter_to_cqe: scatters,
            wq_signature: driver.flags & FLAG_SIGNATURE != 0,
            user_handle: request.user_handle,
        });
        let qpn = made.inspect_err(|_| self.release(doorbell.assigned))?;
        let qp = Qp {
            qpn,
            user_handle: request.user_handle,
            kind: u8::try_from(request.kind).unwrap_or(0),
            signal_all: request.signal_all,
            max_recv_wr: driver.rq_wqe_count,
            max_recv_sge: segments_of_a_receive(driver),
            register: doorbell.assigned,
        };
        let mut parents = vec![request.pd_handle, request.send_cq, request.recv_cq];
        parents.extend(request.srq);
        let inserted = self.state.handles.insert(qp, &parents);
        let handle = inserted.inspect_err(|_| {
            let _ = self.backend().destroy_qp(qpn);
            self.release(doorbell.assigned);
        })?;
        if let Some(file) = asynchronous {
            let object = AsyncObject::Qp(request.user_handle);
            self.backend().events().route(context, object, file);
        }
        Ok(QpReply {
            handle,
            qpn: qpn.0,
            cap,
            bfreg_index: doorbell.number,
        })
    }

    /// Returns the doorbell register of a QP, as mlx5_ib's `_create_user_qp`: on a page
    /// that libmlx5 names, on an additional page that libmlx5 has mapped, or assigned
    /// by the kernel.
    fn choose_register(&mut self, driver: &Mlx5CreateQp) -> Result<DoorbellRegister> {
        let state = &mut *self.state;
        if driver.flags & FLAG_UAR_PAGE_INDEX != 0 {
            let page = state.pages.check(driver.bfreg_index)?;
            return Ok(DoorbellRegister {
                // The command names only a page; all registers of it are valid.
                location: RegisterLocation {
                    page,
                    offset: u16::try_from(limits::BF_OFFSET).unwrap_or(0),
                },
                number: page,
                assigned: None,
            });
        }
        let registers = state.registers.as_mut();
        let registers = registers.or_refuse(EINVAL, "the request names no doorbell page")?;
        if driver.flags & FLAG_BFREG_INDEX != 0 {
            return Ok(DoorbellRegister {
                location: registers.additional_location(driver.bfreg_index, &state.pages)?,
                number: INVALID_BFREG,
                assigned: None,
            });
        }
        let register = registers.assign();
        Ok(DoorbellRegister {
            location: Registers::location(register),
            number: Registers::number(register),
            assigned: Some(register),
        })
    }

    fn release(&mut self, register: Option<u32>) {
        if let (Some(registers), Some(register)) = (&mut self.state.registers, register) {
            registers.release(register);
        }
    }

    pub(in crate::uverbs) fn modify_qp(&mut self, request: &ModifyQp) -> Result<()> {
        refuse_if(
            request.attr_mask & !MASK_STANDARD != 0,
            EOPNOTSUPP,
            "attr_mask has an attribute that this command does not have",
        )?;
        let qp: Result<Qp> = self.state.handles.get(request.qp_handle);
        let qp = qp.or_refuse(EINVAL, UNKNOWN)?;
        let has = |bit| request.attr_mask & bit != 0;
        let bad_port = |bit, port: u8| has(bit) && self.file.port_names(port.into()).is_err();
        refuse_if(
            bad_port(MASK_PORT, request.port_num)
                || bad_port(MASK_AV, request.dest.port_num)
                || bad_port(MASK_ALT_PATH, request.alt_port_num)
                || bad_port(MASK_ALT_PATH, request.alt_dest.port_num),
            EINVAL,
            "port_num, or port_num of ah_attr or of the alternate path, is not a port of the \
             device; ports count from 1",
        )?;
        refuse_if(
            has(MASK_STATE) && request.qp_state > LAST_STATE
                || has(MASK_CUR_STATE) && request.cur_qp_state > LAST_STATE,
            EINVAL,
            "there is no queue pair state of this number",
        )?;
        // No transition of `__mlx5_ib_modify_qp` leads there.
        refuse_if(
            has(MASK_STATE) && request.qp_state == STATE_SQD,
            EINVAL,
            "mlx5 cannot drain a send queue by the state SQD",
        )?;
        if has(MASK_AV) {
            self.check_dest(&request.dest)?;
        }
        if has(MASK_ALT_PATH) {
            // `_ib_modify_qp`
            refuse_if(
                self.file.link() == Link::Roce,
                EINVAL,
                "alternate paths exist on InfiniBand only",
            )?;
            self.check_dest(&request.alt_dest)?;
        }
        self.check_limits(request)?;
        self.backend().modify_qp(qp.qpn, &attributes(request)?)
    }

    /// Checks the limits for reads and atomics.
    ///
    /// # Errors
    /// As mlx5_ib on a device with lower limits: `EINVAL` for too many reads
    /// (`validate_rd_atomic`; also `irdma_modify_qp_roce`), `EOPNOTSUPP` for remote
    /// atomics on a device without atomics (`get_atomic_mode`).
    fn check_limits(&self, request: &ModifyQp) -> Result<()> {
        let limits = self.file.limits();
        let has = |bit| request.attr_mask & bit != 0;
        let initiated = u32::from(request.max_rd_atomic);
        let served = u32::from(request.max_dest_rd_atomic);
        refuse_if(
            has(MASK_MAX_QP_RD_ATOMIC) && initiated > limits.max_qp_init_rd_atom,
            EINVAL,
            "max_rd_atomic is above the device's max_qp_init_rd_atom",
        )?;
        refuse_if(
            has(MASK_MAX_DEST_RD_ATOMIC) && served > limits.max_qp_rd_atom,
            EINVAL,
            "max_dest_rd_atomic is above the device's max_qp_rd_atom",
        )?;
        let access = Access::from_bits_truncate(request.qp_access_flags);
        let atomics = has(MASK_ACCESS_FLAGS) && access.contains(Access::REMOTE_ATOMIC);
        refuse_if(
            atomics && !limits.has_atomics,
            EOPNOTSUPP,
            "the device has no atomics (no_atomics of --limits), so that peers cannot be allowed \
             to use them",
        )
    }

    fn check_dest(&self, dest: &QpDest) -> Result<()> {
        let is_global = dest.is_global != 0;
        let global = is_global.then_some((dest.sgid_index, &dest.dgid));
        self.check_path(dest.port_num, global).map(|_| ())
    }

    pub(in crate::uverbs) fn query_qp(&mut self, handle: u32) -> Result<QueryQpResp> {
        let qp: Result<Qp> = self.state.handles.get(handle);
        let qp = qp.or_refuse(EINVAL, UNKNOWN)?;
        let attributes = self.backend().query_qp(qp.qpn)?;
        Ok(query_reply(&qp, &attributes))
    }

    /// Destroys a QP. Returns how many of its events were read.
    pub(in crate::uverbs) fn destroy_qp(&mut self, handle: u32) -> Result<u32> {
        let context = self.context()?;
        let qp: Qp = self.state.handles.get_unused(handle)?;
        self.backend().destroy_qp(qp.qpn)?;
        self.state.handles.remove(handle);
        self.release(qp.register);
        Ok(self
            .backend()
            .events()
            .remove_object(context, AsyncObject::Qp(qp.user_handle)))
    }
}

/// Returns the segments that fit in a receive (`rq.max_gs` of `set_rq_size`).
fn segments_of_a_receive(driver: &Mlx5CreateQp) -> u32 {
    match driver.rq_wqe_count {
        0 => 0,
        _ => {
            let wqe = 1_u32.checked_shl(driver.rq_wqe_shift).unwrap_or(0);
            (wqe / 16).saturating_sub(driver.flags & FLAG_SIGNATURE)
        }
    }
}

/// Makes the checks of mlx5_ib's `set_rq_size` and `set_user_buf_size`, and checks
/// that the rings are in writable memory.
fn check_rings(request: &QpRequest) -> Result<()> {
    let driver = &request.driver;
    let power_or_none = |count: u32| count == 0 || count.is_power_of_two();
    let stride = 1_u32
        .checked_shl(driver.rq_wqe_shift)
        .or_refuse(EINVAL, "the size of a receive is out of range")?;
    let too_long = driver.sq_wqe_count > limits::MAX_WR || driver.rq_wqe_count > limits::MAX_WR;
    refuse_if(
        too_long
            || request.cap.max_recv_wr > limits::MAX_WR
            || request.cap.max_send_wr > limits::MAX_WR,
        EINVAL,
        "the rings would be longer than the device's: fewer requests, segments or inline bytes fit",
    )?;
    refuse_if(
        !power_or_none(driver.sq_wqe_count) || !power_or_none(driver.rq_wqe_count),
        EINVAL,
        "the length of a ring is not a power of two",
    )?;
    refuse_if(
        stride > limits::MAX_RQ_DESC || driver.rq_wqe_count != 0 && stride < 16,
        EINVAL,
        "a receive has too many or no segments",
    )?;
    refuse_if(
        driver.rq_wqe_count != 0 && request.srq.is_some(),
        EINVAL,
        "a queue pair with a shared receive queue has no receives of its own",
    )?;
    check_aligned(driver.buf_addr, 64)?;
    check_aligned(driver.db_addr, 8)?;
    let bytes =
        u64::from(driver.rq_wqe_count) * u64::from(stride) + u64::from(driver.sq_wqe_count) * 64;
    user::check_writable(driver.buf_addr, bytes)?;
    user::check_writable(driver.db_addr, 8)
}

fn attributes(request: &ModifyQp) -> Result<QpAttr> {
    Ok(QpAttr {
        mask: request.attr_mask,
        state: request.qp_state,
        cur_state: request.cur_qp_state,
        path_mtu: request.path_mtu,
        path_mig_state: request.path_mig_state,
        qkey: request.qkey,
        rq_psn: request.rq_psn,
        sq_psn: request.sq_psn,
        dest_qpn: request.dest_qp_num,
        // The kernel passes the flags on, and mlx5 uses those it knows: pyverbs of
        // rdma-core 45 and newer always sets the flush bits.
        access: Access::from_bits_truncate(request.qp_access_flags),
        pkey_index: request.pkey_index,
        max_rd_atomic: request.max_rd_atomic,
        max_dest_rd_atomic: request.max_dest_rd_atomic,
        min_rnr_timer: request.min_rnr_timer,
        port: request.port_num,
        timeout: request.timeout,
        retry_count: request.retry_cnt,
        rnr_retry: request.rnr_retry,
        path: path(&request.dest),
        alt_path: path(&request.alt_dest),
        alt_port: request.alt_port_num,
        alt_pkey_index: request.alt_pkey_index,
        alt_timeout: request.alt_timeout,
    })
}

/// Returns what mlx5_ib reads from the context of a queue pair.
fn query_reply(qp: &Qp, attributes: &QpAttr) -> QueryQpResp {
    // A path has a port from INIT on (`to_rdma_ah_attr`).
    let mut primary = attributes.path;
    if u64::from(qp.kind) != QPT_UD {
        primary.port = attributes.port;
    }
    // The context has the logarithms of the two depths, and no rights to read and to atomics
    // without a depth (`set_qpc_atomic_flags`).
    let depth = |depth: u8| depth.max(1).next_power_of_two();
    let rights = match attributes.max_dest_rd_atomic {
        0 => Access::REMOTE_WRITE,
        _ => Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
    };
    QueryQpResp {
        dest: destination(&primary),
        alt_dest: destination(&attributes.alt_path),
        // libmlx5 computes the capabilities of the send queue itself.
        cap: QpCap {
            max_send_wr: 0,
            max_recv_wr: qp.max_recv_wr,
            max_send_sge: 0,
            max_recv_sge: qp.max_recv_sge,
            max_inline_data: 0,
        },
        qkey: attributes.qkey,
        rq_psn: attributes.rq_psn,
        sq_psn: attributes.sq_psn,
        dest_qp_num: attributes.dest_qpn,
        qp_access_flags: (attributes.access & rights).bits(),
        pkey_index: attributes.pkey_index,
        alt_pkey_index: attributes.alt_pkey_index,
        qp_state: attributes.state,
        cur_qp_state: attributes.state,
        path_mtu: attributes.path_mtu,
        path_mig_state: attributes.path_mig_state,
        sq_draining: 0,
        max_rd_atomic: depth(attributes.max_rd_atomic),
        max_dest_rd_atomic: depth(attributes.max_dest_rd_atomic),
        min_rnr_timer: attributes.min_rnr_timer,
        port_num: attributes.port,
        timeout: attributes.timeout,
        retry_cnt: attributes.retry_count,
        rnr_retry: attributes.rnr_retry,
        alt_port_num: attributes.alt_port,
        alt_timeout: attributes.alt_timeout,
        sq_sig_all: qp.signal_all.into(),
        reserved: [0; 5],
    }
}

fn path(dest: &QpDest) -> Path {
    Path {
        dgid: dest.dgid,
        flow_label: dest.flow_label,
        dlid: dest.dlid,
        sgid_index: dest.sgid_index,
        hop_limit: dest.hop_limit,
        traffic_class: dest.traffic_class,
        sl: dest.sl,
        src_path_bits: dest.src_path_bits,
        static_rate: dest.static_rate,
        is_global: dest.is_global != 0,
        port: dest.port_num,
        // As in the kernel, the MAC address is derived from the GID.
        dmac: None,
    }
}

fn destination(path: &Path) -> QpDest {
    QpDest {
        dgid: path.dgid,
        flow_label: path.flow_label,
        dlid: path.dlid,
        reserved: 0,
        sgid_index: path.sgid_index,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        sl: path.sl,
        src_path_bits: path.src_path_bits,
        static_rate: path.static_rate,
        is_global: path.is_global.into(),
        port_num: path.port,
    }
}
