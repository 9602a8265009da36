//! Address handles, and the checks of addresses.

use libc::{EHOSTUNREACH, EINVAL, ENODATA};

use super::Call;
use crate::config::Link;
use crate::fabric::gid::ipv4_of_gid;
use crate::limits::GID_TABLE;
use crate::nic::spec::Result;
use crate::refusal::{OrRefuse, refuse, refuse_if};
use crate::uverbs::abi::AhAttr;
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
    /// global part or from a link-local to an IPv4 address; `ENODATA` for an empty entry
    /// (`rdma_get_gid_attr`); `EHOSTUNREACH` on Ethernet for a GID that no neighbour has.
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
            (Link::Roce, Some(source), Some((_, gid))) => {
                // A link-local address cannot reach an IPv4 address.
                refuse_if(
                    ipv4_of_gid(gid).is_some() && source.ipv4().is_none(),
                    EINVAL,
                    "a link-local source GID cannot reach an IPv4 address: use the sgid_index of \
                     an IPv4 GID",
                )?;
                let mac = self.file.mac_of(gid).map(Some);
                mac.or_refuse(
                    EHOSTUNREACH,
                    "no port of the fabric has the destination GID",
                )
            }
            (Link::Roce, ..) => Err(refuse(
                EINVAL,
                "on Ethernet an address needs a GID: set is_global, and grh.dgid and \
                 grh.sgid_index",
            )),
        }
    }
}
