//! Address handles, and the checks of addresses.

use libc::{EINVAL, ENETUNREACH, ENODATA, ETIMEDOUT};

use super::Call;
use crate::abi::AhAttr;
use crate::limits::GID_TABLE;
use crate::refusal::{OrRefuse, refuse, refuse_if};
use crate::spec::gid::{
    Gid, GidType, ipv4_of_gid, is_link_local, mac_of_link_local, mac_of_multicast,
};
use crate::spec::{Link, Result};
use crate::uverbs::handles::{Ah, Pd};

impl Call<'_> {
    /// Creates an address handle. Returns the handle and, on Ethernet, the
    /// destination's MAC address.
    pub(in crate::uverbs) fn create_ah(
        &mut self,
        pd_handle: u32,
        attributes: &AhAttr,
    ) -> Result<(u32, Option<[u8; 6]>)> {
        self.context()?;
        self.file.port_names(attributes.port_num.into())?;
        let pd: Result<Pd> = self.state.handles.get(pd_handle);
        pd.or_refuse(EINVAL, "there is no protection domain with this handle")?;
        let is_global = attributes.is_global != 0;
        let global = is_global.then_some((attributes.sgid_index, &attributes.dgid));
        let mac = self.check_path(attributes.port_num, global)?;
        let handle = self.state.handles.insert(Ah, &[pd_handle])?;
        Ok((handle, mac))
    }

    pub(in crate::uverbs) fn destroy_ah(&mut self, handle: u32) -> Result<()> {
        self.context()?;
        self.state.handles.get_unused::<Ah>(handle)?;
        self.state.handles.remove(handle);
        Ok(())
    }

    /// Checks the global part of a path (source GID index and destination GID) as
    /// ib_core does. Returns the destination's MAC address on Ethernet.
    ///
    /// # Errors
    /// `EINVAL` for a GID index beyond the table and, on Ethernet, for a path without
    /// global part; `ENODATA` for an empty entry (`rdma_get_gid_attr`); those of
    /// [`Self::resolve_mac`].
    pub(super) fn check_path(
        &self,
        port: u8,
        global: Option<(u8, &[u8; 16])>,
    ) -> Result<Option<[u8; 6]>> {
        let gids = self.file.gids(port.into())?;
        let source = global.map(|(index, _)| {
            refuse_if(
                u32::from(index) >= GID_TABLE,
                EINVAL,
                "sgid_index is not below the size of the port's GID table",
            )?;
            gids.get(usize::from(index)).or_refuse(
                ENODATA,
                "the entry sgid_index of the port's GID table is empty",
            )
        });
        let source = source.transpose()?;
        match (self.file.link(), source, global) {
            (Link::Ib, ..) => Ok(None),
            (Link::Roce, Some(source), Some((_, to))) => {
                self.check_wire(port, source)?;
                self.resolve_mac(source, to).map(Some)
            }
            (Link::Roce, ..) => Err(refuse(
                EINVAL,
                "on Ethernet an address needs a GID: set is_global, and grh.dgid and \
                 grh.sgid_index",
            )),
        }
    }

    /// Checks that packets with a source GID leave and arrive on the UDP wire.
    fn check_wire(&self, port: u8, source: &Gid) -> Result<()> {
        if !self.file.reaches_others() {
            return Ok(());
        }
        let names = self.file.port_names(port.into())?;
        refuse_if(
            source.raw == names.ethernet_gid && !names.has_ethernet_gid,
            EINVAL,
            "the network interface does not have the link-local address of this sgid_index, or \
             --wire udp=ADDRESS leaves it out: use sgid_index 3",
        )?;
        refuse_if(
            source.kind == GidType::RoceV1,
            EINVAL,
            "the UDP wire has RoCE v2 only: use sgid_index + 1, the same address as v2",
        )
    }

    /// Returns the MAC address of a GID as `ib_resolve_eth_dmac` of the kernel finds it:
    /// in a multicast GID, in a link-local GID if the source is RoCE v1, else as the
    /// answer of a neighbour (`rdma_addr_find_l2_eth_by_grh`).
    ///
    /// # Errors
    /// `EINVAL` for an IPv4 and an IPv6 address (`rdma_resolve_ip`); `ENETUNREACH` for an
    /// IPv6 address without a route; `ETIMEDOUT` for a GID that no neighbour has, with
    /// which the command returns after a second.
    fn resolve_mac(&self, source: &Gid, to: &[u8; 16]) -> Result<[u8; 6]> {
        if let Some(mac) = mac_of_multicast(to) {
            return Ok(mac);
        }
        if let (GidType::RoceV1, Some(mac)) = (source.kind, mac_of_link_local(to)) {
            return Ok(mac);
        }
        let is_ipv4 = ipv4_of_gid(to).is_some();
        refuse_if(
            is_ipv4 != source.ipv4().is_some(),
            EINVAL,
            "the source and the destination GID must both be IPv4 addresses or both not: choose \
             another sgid_index",
        )?;
        refuse_if(
            !is_ipv4 && !is_link_local(to) && !self.file.reaches_others(),
            ENETUNREACH,
            "the port has no route to the destination GID, an IPv6 address that is not \
             link-local",
        )?;
        self.file.neighbour(to).or_refuse(
            ETIMEDOUT,
            "no host answers for the destination GID: it is not in the GID table of a port of \
             the fabric",
        )
    }
}
