//! The objects of a process as a host lists them (`rdma resource`).

use super::adapter::Nic;
use crate::spec::{ContextId, PdId, Service};

/// A kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Pd,
    Cq,
    Qp,
    CmId,
    Mr,
    Context,
    Srq,
}

/// What is listed of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Qpn,
    PeerQpn,
    ReceivePsn,
    SendPsn,
    Migration,
    Type,
    State,
    Space,
    /// The number of completions beside the first.
    Entries,
    /// How many objects use it.
    Users,
    Length,
    /// Whether the CQ moderates its events.
    Moderation,
    Pd,
    Context,
}

/// An object.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) kind: Kind,
    pub(crate) device: u8,
    /// The port of a QP or an rdma_cm id, 0 before it has one.
    pub(crate) port: u8,
    /// The number, which no object of its kind in another process has.
    pub(crate) number: u32,
    pub(crate) fields: Vec<(Field, u64)>,
    /// The socket addresses of an rdma_cm id and of its peer.
    pub(crate) addresses: [Option<Vec<u8>>; 2],
    /// The QPs that use an SRQ.
    pub(crate) queue_pairs: Vec<u32>,
}

/// Returns the number of an object, with that of its process in the upper byte.
pub(crate) fn number_of(slot: u8, number: u32) -> u32 {
    u32::from(slot) << 24 | number & 0x00ff_ffff
}

impl Nic {
    /// Returns all objects.
    pub(crate) fn resources(&self) -> Vec<Resource> {
        let core = &self.core;
        let own = |number| number_of(core.options.slot, number);
        let listed = |context: ContextId, kind, number, fields: &[(Field, u64)]| {
            let device = core.contexts.get(context.0)?.device;
            Some(Resource {
                kind,
                device,
                port: 0,
                number,
                fields: fields.to_vec(),
                addresses: [None, None],
                queue_pairs: Vec::new(),
            })
        };
        let of_context = |context: ContextId| (Field::Context, own(context.0).into());
        let of_pd = |pd: PdId| (Field::Pd, own(pd.0).into());
        let contexts = core.contexts.iter();
        let contexts = contexts.map(|(n, _)| listed(ContextId(n), Kind::Context, own(n), &[]));
        let pds = core.pds.iter().map(|(n, pd)| {
            let users = (Field::Users, pd.users.into());
            let fields = [users, of_context(pd.context)];
            listed(pd.context, Kind::Pd, own(n), &fields)
        });
        let cqs = core.cqs.iter().map(|(n, cq)| {
            let fields = [
                (Field::Entries, (cq.spec.cqe_count - 1).into()),
                (Field::Users, cq.users.into()),
                (Field::Moderation, 0),
                of_context(cq.spec.context),
            ];
            listed(cq.spec.context, Kind::Cq, own(n), &fields)
        });
        let mrs = core.mkeys.regions().map(|(n, spec)| {
            let fields = [(Field::Length, spec.length), of_pd(spec.pd)];
            listed(spec.context, Kind::Mr, own(n), &fields)
        });
        let srqs = core.srqs.iter().map(|(n, srq)| {
            let fields = [(Field::Type, 0), of_pd(srq.spec.pd)];
            let mut listed = listed(srq.spec.context, Kind::Srq, own(n), &fields)?;
            let users = self.qps.iter();
            let users = users.filter(|(_, qp)| qp.spec.srq.is_some_and(|srq| srq.0 == n));
            listed.queue_pairs = users.map(|(qpn, _)| qpn).collect();
            Some(listed)
        });
        let qps = self.qps.iter().map(|(qpn, qp)| {
            // `enum ib_qp_type`.
            let service = match qp.spec.service {
                Service::Rc => 2,
                Service::Uc => 3,
                Service::Ud => 4,
            };
            let mut fields = vec![
                (Field::SendPsn, qp.attr.sq_psn.into()),
                (Field::Type, service),
                (Field::State, qp.state as u64),
                of_pd(qp.spec.pd),
            ];
            if qp.spec.service != Service::Ud {
                fields.extend([
                    (Field::PeerQpn, qp.attr.dest_qpn.into()),
                    (Field::ReceivePsn, qp.attr.rq_psn.into()),
                    (Field::Migration, qp.attr.path_mig_state.into()),
                ]);
            }
            let mut listed = listed(qp.spec.context, Kind::Qp, qpn, &fields)?;
            listed.port = qp.attr.port;
            Some(listed)
        });
        let all = contexts.chain(pds).chain(cqs).chain(mrs).chain(srqs);
        all.chain(qps).flatten().collect()
    }
}
