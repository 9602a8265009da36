//! The destination of a datagram: the address vector in its WQE.
//!
//! The kernel only keeps a record of address handles; on a RoCE link it returns the Ethernet address
//! of the destination: the one in a link-local GID of RoCE v1, or that of the neighbour with the GID.
//! The NIC sends to the address in the WQE, and drops a packet whose Ethernet address and GID do not
//! belong together, so a program that fills in a wrong address vector is caught.

use super::super::core::Core;
use super::super::grh;
use super::super::qp::Qp;
use crate::decode::address::AddressVector;
use crate::decode::cqe::Syndrome;
use crate::fabric::iba::network::GRH;
use crate::fabric::packet::{Destination, Header, PacketFlags};
use crate::spec::{Path, PortAddress, Qpn};

/// A posted queue key with this bit selects the QP's own queue key (IBA 10.2.5).
const OWN_QKEY: u32 = 1 << 31;

/// The destination of one datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram {
    to: AddressVector,
    /// The destination port. Packets to an unknown one are dropped.
    peer: Option<PortAddress>,
    qkey: u32,
}

impl Datagram {
    pub(super) fn destination(&self) -> Destination {
        Destination {
            port: self.peer,
            qpn: Qpn(self.to.qpn),
        }
    }
}

impl Qp {
    pub(super) fn read_address(
        &self,
        core: &mut Core,
        counter: u16,
        to: AddressVector,
    ) -> Result<Datagram, Syndrome> {
        let ethernet = self.port_identity.ethernet;
        let is_global = ethernet || to.has_grh;
        if is_global && self.port_identity.gid(to.source_gid).is_none() {
            self.report_wqe(
                core,
                counter,
                "the source GID index is not in the port's GID table",
            );
            return Err(Syndrome::LocalQpOperation);
        }
        let path = Path {
            dgid: to.gid,
            dlid: to.lid,
            is_global,
            dmac: ethernet.then_some(to.mac),
            sgid_index: to.source_gid,
            port: self.attr.port,
            ..Path::default()
        };
        Ok(Datagram {
            to,
            peer: (core.options.resolve)(self.device, &path),
            qkey: if to.qkey & OWN_QKEY == 0 {
                to.qkey
            } else {
                self.attr.qkey
            },
        })
    }

    /// Returns the network header that precedes the payload, if there is one.
    /// `transport` is the size of the transport headers.
    pub(super) fn network_header(
        &self,
        datagram: &Datagram,
        transport: usize,
        length: u32,
    ) -> Option<[u8; GRH]> {
        let is_global = self.port_identity.ethernet || datagram.to.has_grh;
        let source = self.port_identity.gid(datagram.to.source_gid)?;
        is_global.then(|| grh::encode(source, &datagram.to, transport, length))
    }

    /// Sets the fields of a packet header that are specific to datagrams.
    pub(super) fn address(&self, header: &mut Header, datagram: &Datagram) {
        let is_global = self.port_identity.ethernet || datagram.to.has_grh;
        header.flags.set(PacketFlags::GRH, is_global);
        header.destination_qpn = datagram.destination().qpn;
        header.key = datagram.qkey;
        header.route.source_gid = datagram.to.source_gid;
        header.route.traffic_class = datagram.to.traffic_class;
        header.route.hop_limit = datagram.to.hop_limit;
        if self.port_identity.ethernet {
            header.service_level = self.port_identity.network(datagram.to.source_gid);
            // The driver has it in the place of the LID.
            header.route.source_port = datagram.to.lid;
        } else {
            header.source_lid |= u16::from(datagram.to.path_bits);
            header.service_level = datagram.to.rate_and_level & 0xf;
        }
    }
}
