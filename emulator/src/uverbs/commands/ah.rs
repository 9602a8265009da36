//! Address handles, and the checks of addresses.

use libc::{EHOSTUNREACH, EINVAL};

use super::Call;
use crate::config::Link;
use crate::fabric::name::ipv4_of_gid;
use crate::nic::spec::{Errno, Result};
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
        let pd: Result<Pd> = self.state.handles.get(pd_handle);
        if self.file.port_names(attributes.port_num.into()).is_err() || pd.is_err() {
            return Err(Errno(EINVAL));
        }
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
    /// `EINVAL` for a GID index without a GID and, on Ethernet, for a path without
    /// global part or from a link-local to an IPv4 address; `EHOSTUNREACH` on
    /// Ethernet for a GID that no neighbour has.
    pub(super) fn check_path(
        &self,
        port: u8,
        global: Option<(u8, &[u8; 16])>,
    ) -> Result<Option<[u8; 6]>> {
        let invalid = Errno(EINVAL);
        let gids = self.file.gids(port.into())?;
        let source = global
            .map(|(index, _)| gids.get(usize::from(index)).ok_or(invalid))
            .transpose()?;
        match (self.file.link(), source, global) {
            (Link::Ib, ..) => Ok(None),
            (Link::Roce, Some(source), Some((_, gid))) => {
                // A link-local address cannot reach an IPv4 address.
                if ipv4_of_gid(gid).is_some() && ipv4_of_gid(source).is_none() {
                    return Err(invalid);
                }
                self.file.mac_of(gid).map(Some).ok_or(Errno(EHOSTUNREACH))
            }
            (Link::Roce, ..) => Err(invalid),
        }
    }
}
