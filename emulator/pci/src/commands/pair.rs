//! Queue pairs.

use mlx5emu::spec::{Access, Cqn, Path, PdId, QpAttr, QpSpec, Qpn, Register, Service, Srqn};

use super::function::{Kind, Object};
use super::{Function, OBJECT, Outcome, PAGES, QP_CONTEXT, Status};
use crate::bits::{part, part_mut};
use crate::layout::{ads, modify_qp_in, qpc};

/// Length of a context.
const CONTEXT_LENGTH: usize = 232;
/// Offsets of the path in a context, and of the GID in a path.
pub(super) const PATH: usize = 24;
const GID: usize = 16;
/// Offset of the first doorbell register of a page. The device takes any.
const REGISTER: u16 = 0x800;
/// Sizes of send queues are in units of this many bytes.
const WQEBB: u64 = 64;

/// Transport services (`MLX5_QP_ST_*`).
pub(super) mod service {
    pub(super) const RC: u64 = 0x0;
    pub(in crate::commands) const UC: u64 = 0x1;
    pub(super) const UD: u64 = 0x2;
    pub(super) const QP0: u64 = 0x7;
    pub(super) const QP1: u64 = 0x8;
    pub(super) const REG_UMR: u64 = 0xc;
}

/// Kinds of receive queues (`qpc.rq_type`).
const RQ_OWN: u64 = 0;
const RQ_SHARED: u64 = 1;

/// The bits of `IBV_QP_*` masks that commands set.
mod attribute {
    pub(super) const STATE: u32 = 1;
    pub(super) const ACCESS: u32 = 1 << 3;
    pub(super) const PKEY_INDEX: u32 = 1 << 4;
    pub(super) const PORT: u32 = 1 << 5;
    pub(super) const QKEY: u32 = 1 << 6;
    pub(super) const PATH: u32 = 1 << 7;
    pub(super) const MTU: u32 = 1 << 8;
    pub(super) const TIMEOUT: u32 = 1 << 9;
    pub(super) const RETRIES: u32 = 1 << 10;
    pub(super) const RNR_RETRIES: u32 = 1 << 11;
    pub(super) const RECEIVE_PSN: u32 = 1 << 12;
    pub(super) const READS: u32 = 1 << 13;
    pub(super) const RNR_TIMER: u32 = 1 << 15;
    pub(super) const SEND_PSN: u32 = 1 << 16;
    pub(super) const PEER_READS: u32 = 1 << 17;
    pub(super) const PEER: u32 = 1 << 20;
}

/// What `opt_param_mask` selects (`enum mlx5_qp_optpar`), with the attributes.
const OPTIONAL: [(u32, u32); 11] = [
    (1 << 1 | 1 << 2 | 1 << 3, attribute::ACCESS),
    (1 << 4, attribute::PKEY_INDEX),
    (1 << 5, attribute::QKEY),
    (1 << 6, attribute::RNR_TIMER),
    (1 << 7, attribute::PATH),
    (1 << 8, attribute::READS),
    (1 << 9, attribute::PEER_READS),
    (1 << 12, attribute::RETRIES),
    (1 << 13, attribute::RNR_RETRIES),
    (1 << 14, attribute::TIMEOUT),
    (1 << 16, attribute::PORT),
];

/// States of queue pairs: the device's number (`enum mlx5_qp_state`) by that of
/// `enum ibv_qp_state`.
const STATES: [u64; 7] = [0, 1, 2, 3, 5, 4, 6];
const RESET: u8 = 0;
const INIT: u8 = 1;
const RTR: u8 = 2;
const RTS: u8 = 3;
const ERROR: u8 = 6;

pub(super) fn create(function: &mut Function, input: &[u8], output: &mut [u8]) -> Outcome {
    let context = part(input, QP_CONTEXT);
    let kind = qpc::ST.get(context);
    let service = match kind {
        service::RC | service::REG_UMR => Service::Rc,
        service::UC => Service::Uc,
        service::UD | service::QP0 | service::QP1 => Service::Ud,
        _ => return Err(Status::BadParameter),
    };
    let rq_type = qpc::RQ_TYPE.get(context);
    let has_receives =
        rq_type == RQ_OWN && qpc::LOG_RQ_STRIDE.get(context) + qpc::LOG_RQ_SIZE.get(context) > 0;
    let rq_stride_log2 = qpc::LOG_RQ_STRIDE.get32(context) + 4;
    let rq_wqe_count = if has_receives {
        1 << qpc::LOG_RQ_SIZE.get(context)
    } else {
        0
    };
    let sq_wqebb_count = if qpc::NO_SQ.is_set(context) {
        0
    } else {
        1 << qpc::LOG_SQ_SIZE.get(context)
    };
    let receives = u64::from(rq_wqe_count) << rq_stride_log2;
    let length = receives + u64::from(sq_wqebb_count) * WQEBB;
    let (pages, ring) = if length == 0 {
        (None, 0)
    } else {
        let offset = qpc::PAGE_OFFSET.get(context);
        let ring = function.ring(
            part(input, PAGES),
            qpc::LOG_PAGE_SIZE.get32(context),
            offset,
            length,
        )?;
        (Some(ring.0), ring.1)
    };
    let handle = function.events.handle();
    let pd = match qpc::PD.get32(context) {
        // The driver's own queue pair for changes of keys names none.
        0 if kind == service::REG_UMR => function.own_domain()?,
        pd => PdId(pd),
    };
    let spec = QpSpec {
        context: function.context()?,
        pd,
        service,
        send_cq: Cqn(qpc::CQN_SND.get32(context)),
        recv_cq: Cqn(qpc::CQN_RCV.get32(context)),
        srq: (rq_type == RQ_SHARED).then(|| Srqn(qpc::SRQN_RMPN_XRQN.get32(context))),
        rq_buf: ring,
        rq_wqe_count,
        rq_stride_log2,
        sq_buf: ring + receives,
        sq_wqebb_count,
        dbrec: function.record(qpc::DBR_ADDR.get(context))?,
        register: Register {
            page: function.uar(qpc::UAR_PAGE.get32(context))?,
            offset: REGISTER,
        },
        user_index: qpc::USER_INDEX.get32(context),
        cqe_version: function.cqe_version,
        scatter_responses: qpc::CS_REQ.is_set(context),
        scatter_to_cqe: qpc::CS_RES.is_set(context),
        wq_signature: qpc::WQ_SIGNATURE.is_set(context),
        user_handle: handle,
    };
    let qp = function.emulator.nic().create_qp(&spec)?;
    let object = Object {
        pages,
        handle,
        context: context[..CONTEXT_LENGTH].to_vec(),
    };
    function.add(Kind::Qp, qp.0, object);
    OBJECT.set(output, qp.0.into());
    Ok(())
}

pub(super) fn destroy(function: &mut Function, input: &[u8], _: &mut [u8]) -> Outcome {
    let number = OBJECT.get32(input);
    function
        .emulator
        .nic_after_packets()
        .destroy_qp(Qpn(number))?;
    function.remove(Kind::Qp, number);
    Ok(())
}

pub(super) fn to_init(function: &mut Function, input: &[u8], _: &mut [u8]) -> Outcome {
    if kind(function, input)? == service::REG_UMR {
        // Only now the driver says in whose keys the data of its changes is.
        let qp = Qpn(OBJECT.get32(input));
        let pd = PdId(qpc::PD.get32(part(input, QP_CONTEXT)));
        function.emulator.nic().change_keys_by(qp, pd)?;
    }
    let rights = if is_datagram(function, input)? {
        attribute::QKEY
    } else {
        attribute::ACCESS
    };
    let from = state(function, input)?;
    // A second time, only what is selected changes.
    let always = if from == INIT {
        0
    } else {
        rights | attribute::PKEY_INDEX | attribute::PORT
    };
    modify(
        function,
        input,
        INIT,
        always,
        rights | attribute::PKEY_INDEX | attribute::PORT,
    )
}

pub(super) fn to_rtr(function: &mut Function, input: &[u8], _: &mut [u8]) -> Outcome {
    let path = attribute::PATH | attribute::MTU | attribute::PEER | attribute::RECEIVE_PSN;
    let (always, optional) = match kind(function, input)? {
        service::UC => (path, attribute::ACCESS | attribute::PKEY_INDEX),
        service::RC | service::REG_UMR => (
            path | attribute::PEER_READS | attribute::RNR_TIMER,
            attribute::ACCESS | attribute::PKEY_INDEX,
        ),
        _ => (0, attribute::PKEY_INDEX | attribute::QKEY),
    };
    modify(function, input, RTR, always, optional)
}

pub(super) fn to_rts(function: &mut Function, input: &[u8], _: &mut [u8]) -> Outcome {
    let retries =
        attribute::TIMEOUT | attribute::RETRIES | attribute::RNR_RETRIES | attribute::READS;
    let always = match kind(function, input)? {
        service::RC | service::REG_UMR => attribute::SEND_PSN | retries,
        _ => attribute::SEND_PSN,
    };
    let optional = running(function, input)?;
    modify(function, input, RTS, always, optional)
}

pub(super) fn change(function: &mut Function, input: &[u8], _: &mut [u8]) -> Outcome {
    let optional = running(function, input)?;
    modify(function, input, RTS, 0, optional)
}

/// Back to RTS after an error of the send queue, or after it was drained.
pub(super) fn recover(function: &mut Function, input: &[u8], _: &mut [u8]) -> Outcome {
    let optional = if is_datagram(function, input)? {
        attribute::QKEY
    } else {
        attribute::ACCESS
    };
    modify(function, input, RTS, 0, optional)
}

pub(super) fn to_error(function: &mut Function, input: &[u8], _: &mut [u8]) -> Outcome {
    // From RESET there is no way to the error state for verbs, but the driver takes it.
    if state(function, input)? == RESET {
        return Ok(());
    }
    modify(function, input, ERROR, 0, 0)
}

pub(super) fn to_reset(function: &mut Function, input: &[u8], _: &mut [u8]) -> Outcome {
    modify(function, input, RESET, 0, 0)
}

fn kind(function: &Function, input: &[u8]) -> Result<u64, Status> {
    let object = function.objects.get(&(Kind::Qp, OBJECT.get32(input)));
    object
        .map(|object| qpc::ST.get(&object.context))
        .ok_or(Status::BadResource)
}

fn is_datagram(function: &Function, input: &[u8]) -> Result<bool, Status> {
    Ok(matches!(
        kind(function, input)?,
        service::UD | service::QP0 | service::QP1
    ))
}

fn state(function: &Function, input: &[u8]) -> Result<u8, Status> {
    Ok(function
        .emulator
        .nic()
        .query_qp(Qpn(OBJECT.get32(input)))?
        .state)
}

/// Returns what may change with RTS.
fn running(function: &Function, input: &[u8]) -> Result<u32, Status> {
    Ok(match kind(function, input)? {
        service::UC => attribute::ACCESS,
        service::RC | service::REG_UMR => attribute::ACCESS | attribute::RNR_TIMER,
        _ => attribute::QKEY,
    })
}

/// Changes the state, the attributes `always`, and of `optional` those that the command selects.
fn modify(function: &mut Function, input: &[u8], to: u8, always: u32, optional: u32) -> Outcome {
    let selected = modify_qp_in::OPT_PARAM_MASK.get32(input);
    let chosen = OPTIONAL.iter().filter(|(bits, _)| selected & bits != 0);
    let chosen = chosen.fold(0, |mask, (_, attribute)| mask | attribute) & optional;
    let mut attributes = attributes(part(input, QP_CONTEXT));
    attributes.mask = always | chosen | attribute::STATE;
    attributes.state = to;
    let qp = Qpn(OBJECT.get32(input));
    if kind(function, input)? == service::REG_UMR {
        // It has no peer, and the driver sets no path.
        attributes.path.port = 1;
    }
    // The NIC is locked until the end of the statement.
    let modified = function
        .emulator
        .nic_after_packets()
        .modify_qp(qp, &attributes);
    modified.map_err(|errno| match Status::from(errno) {
        Status::BadParameter if has_failed(function, qp) => Status::BadQpState,
        status => status,
    })
}

/// Returns whether a queue pair is in the error state, from which only a reset leads.
fn has_failed(function: &Function, qp: Qpn) -> bool {
    let state = function.emulator.nic().query_qp(qp).map(|it| it.state);
    state == Ok(ERROR)
}

/// Returns the attributes that a context contains.
fn attributes(context: &[u8]) -> QpAttr {
    let path = part(context, PATH);
    let mut access = Access::empty();
    access.set(Access::REMOTE_READ, qpc::RRE.is_set(context));
    access.set(Access::REMOTE_WRITE, qpc::RWE.is_set(context));
    access.set(Access::REMOTE_ATOMIC, qpc::RAE.is_set(context));
    let port = ads::VHCA_PORT_NUM.get(path) as u8;
    let mut dgid = [0; 16];
    for (to, from) in dgid.iter_mut().zip(part(path, GID)) {
        *to = *from;
    }
    QpAttr {
        path_mtu: qpc::MTU.get(context) as u8,
        qkey: qpc::Q_KEY.get32(context),
        rq_psn: qpc::NEXT_RCV_PSN.get32(context),
        sq_psn: qpc::NEXT_SEND_PSN.get32(context),
        dest_qpn: qpc::REMOTE_QPN.get32(context),
        access,
        pkey_index: ads::PKEY_INDEX.get(path) as u16,
        max_rd_atomic: 1 << qpc::LOG_SRA_MAX.get(context),
        max_dest_rd_atomic: 1 << qpc::LOG_RRA_MAX.get(context),
        min_rnr_timer: qpc::MIN_RNR_NAK.get(context) as u8,
        port,
        timeout: ads::ACK_TIMEOUT.get(path) as u8,
        retry_count: qpc::RETRY_COUNT.get(context) as u8,
        rnr_retry: qpc::RNR_RETRY.get(context) as u8,
        path: Path {
            dgid,
            flow_label: ads::FLOW_LABEL.get32(path),
            dlid: ads::RLID.get(path) as u16,
            sgid_index: ads::SRC_ADDR_INDEX.get(path) as u8,
            hop_limit: ads::HOP_LIMIT.get(path) as u8,
            traffic_class: ads::TCLASS.get(path) as u8,
            sl: ads::SL.get(path) as u8,
            src_path_bits: ads::MLID.get(path) as u8,
            static_rate: ads::STAT_RATE.get(path) as u8,
            is_global: ads::GRH.is_set(path),
            port,
            dmac: None,
        },
        ..QpAttr::default()
    }
}

pub(super) fn query(function: &mut Function, input: &[u8], output: &mut [u8]) -> Outcome {
    let number = OBJECT.get32(input);
    let object = function
        .objects
        .get(&(Kind::Qp, number))
        .ok_or(Status::BadResource)?;
    let now = function.emulator.nic().query_qp(Qpn(number))?;
    let context = part_mut(output, QP_CONTEXT);
    context[..CONTEXT_LENGTH].copy_from_slice(&object.context);
    let state = STATES.get(usize::from(now.state)).copied().unwrap_or(0);
    let log = |count: u8| u64::from(count.max(1).ilog2());
    for (field, value) in [
        (qpc::STATE, state),
        (qpc::MTU, now.path_mtu.into()),
        (qpc::Q_KEY, now.qkey.into()),
        (qpc::NEXT_RCV_PSN, now.rq_psn.into()),
        (qpc::NEXT_SEND_PSN, now.sq_psn.into()),
        (qpc::REMOTE_QPN, now.dest_qpn.into()),
        (qpc::RRE, now.access.contains(Access::REMOTE_READ).into()),
        (qpc::RWE, now.access.contains(Access::REMOTE_WRITE).into()),
        (qpc::RAE, now.access.contains(Access::REMOTE_ATOMIC).into()),
        (qpc::LOG_SRA_MAX, log(now.max_rd_atomic)),
        (qpc::LOG_RRA_MAX, log(now.max_dest_rd_atomic)),
        (qpc::MIN_RNR_NAK, now.min_rnr_timer.into()),
        (qpc::RETRY_COUNT, now.retry_count.into()),
        (qpc::RNR_RETRY, now.rnr_retry.into()),
        // Migrated.
        (qpc::PM_STATE, 3),
    ] {
        field.set(context, value);
    }
    let path = part_mut(context, PATH);
    for (field, value) in [
        (ads::PKEY_INDEX, now.pkey_index.into()),
        (ads::GRH, now.path.is_global.into()),
        (ads::MLID, now.path.src_path_bits.into()),
        (ads::RLID, now.path.dlid.into()),
        (ads::ACK_TIMEOUT, now.timeout.into()),
        (ads::SRC_ADDR_INDEX, now.path.sgid_index.into()),
        (ads::STAT_RATE, now.path.static_rate.into()),
        (ads::HOP_LIMIT, now.path.hop_limit.into()),
        (ads::TCLASS, now.path.traffic_class.into()),
        (ads::FLOW_LABEL, now.path.flow_label.into()),
        (ads::SL, now.path.sl.into()),
        (ads::VHCA_PORT_NUM, now.port.into()),
    ] {
        field.set(path, value);
    }
    part_mut(path, GID)[..16].copy_from_slice(&now.path.dgid);
    Ok(())
}
