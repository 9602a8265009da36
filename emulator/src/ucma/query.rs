//! What the application asks of an id: addresses, GIDs and paths.

use libc::{EINVAL, ENOSPC};
use zerocopy::{FromZeros, IntoBytes};

use super::abi::{AddrReply, PATH_FLAGS, PKEY, PathData, PathReply, RouteReply, UserPath};
use super::address::Address;
use super::id::Id;
use super::rdma_cm::RdmaCm;
use crate::cm::Path;
use crate::fork::first_index;
use crate::refusal::{OrRefuse, refuse_if};
use crate::spec::Result;

/// The selector of a value in a path record: exactly.
const EXACTLY: u8 = 2;

pub(super) const SHORT_REPLY: &str = "the buffer for the reply is too short";

impl RdmaCm {
    /// Answers `RDMA_USER_CM_QUERY_ADDR`.
    ///
    /// # Errors
    /// `ENOSPC` if `room`, the length of the application's buffer, is too short.
    pub(super) fn query_addresses(&mut self, file: u64, id: u32, room: usize) -> Result<Vec<u8>> {
        let mut reply = self.device_reply(file, id, room)?;
        let id = self.id(file, id)?;
        if let Some(local) = id.local {
            reply.src_size = put(&mut reply.src_addr, &local);
        }
        if let Some(remote) = id.remote {
            reply.dst_size = put(&mut reply.dst_addr, &remote);
        }
        Ok(reply.as_bytes().to_vec())
    }

    /// Answers `RDMA_USER_CM_QUERY_GID`: addresses of the family `AF_IB`.
    ///
    /// # Errors
    /// As for [`query_addresses`](Self::query_addresses).
    pub(super) fn query_gids(&mut self, file: u64, id: u32, room: usize) -> Result<Vec<u8>> {
        let mut reply = self.device_reply(file, id, room)?;
        let network = self.network.clone();
        let id = self.id(file, id)?;
        let (sgid, dgid) = gids(id, |port| network.gid(port));
        let pkey = reply.pkey;
        let ib_address = |address: Option<Address>, gid| match address {
            Some(address @ Address::Ib { .. }) => address,
            other => Address::Ib {
                pkey,
                flow: [0; 4],
                gid,
                sid: other.map_or(0, |address| id.service_id(&address)),
                mask: 0,
                scope: 0,
            },
        };
        reply.src_size = put(&mut reply.src_addr, &ib_address(id.local, sgid));
        reply.dst_size = put(&mut reply.dst_addr, &ib_address(id.remote, dgid));
        Ok(reply.as_bytes().to_vec())
    }

    /// Answers `RDMA_USER_CM_QUERY_PATH`: as many paths as there is room for.
    ///
    /// # Errors
    /// As for [`query_addresses`](Self::query_addresses).
    pub(super) fn query_paths(&mut self, file: u64, id: u32, room: usize) -> Result<Vec<u8>> {
        let left = room.checked_sub(size_of::<PathReply>());
        let left = left.or_refuse(ENOSPC, SHORT_REPLY)?;
        let path = self.id(file, id)?.path;
        let reply = PathReply {
            num_paths: path.is_some().into(),
            reserved: 0,
        };
        let mut bytes = reply.as_bytes().to_vec();
        if let Some(path) = path.filter(|_| left > size_of::<PathData>()) {
            let data = PathData {
                flags: PATH_FLAGS,
                reserved: 0,
                record: encode_path(&path),
            };
            bytes.extend(data.as_bytes());
        }
        Ok(bytes)
    }

    /// Answers `RDMA_USER_CM_CMD_QUERY_ROUTE`, the question of old librdmacm.
    ///
    /// # Errors
    /// As for [`query_addresses`](Self::query_addresses).
    pub(super) fn query_route(&mut self, file: u64, id: u32, room: usize) -> Result<Vec<u8>> {
        check_room::<RouteReply>(room)?;
        let network = self.network.clone();
        let id = self.id(file, id)?;
        let mut reply = RouteReply::new_zeroed();
        if let Some(local) = id.local {
            put(&mut reply.src_addr, &local);
        }
        if let Some(remote) = id.remote {
            put(&mut reply.dst_addr, &remote);
        }
        if let Some(port) = id.port {
            reply.node_guid = network.guid(port.device);
            reply.port_num = port.port;
            reply.ibdev_index = first_index() + u32::from(port.device);
            reply.num_paths = id.path.is_some().into();
            reply.path[0] = match &id.path {
                Some(path) => user_path(path),
                None => {
                    let mut path = UserPath::new_zeroed();
                    (path.sgid, path.dgid) = gids(id, |port| network.gid(port));
                    path.pkey = PKEY.to_be_bytes();
                    path
                }
            };
        }
        Ok(reply.as_bytes().to_vec())
    }

    /// Returns the part of a reply that describes the device.
    fn device_reply(&mut self, file: u64, id: u32, room: usize) -> Result<AddrReply> {
        let port = self.id(file, id)?.port;
        check_room::<AddrReply>(room)?;
        let mut reply = AddrReply::new_zeroed();
        if let Some(port) = port {
            reply.node_guid = self.network.guid(port.device);
            reply.port_num = port.port;
            reply.pkey = PKEY;
            reply.ibdev_index = first_index() + u32::from(port.device);
        }
        Ok(reply)
    }
}

/// Checks that a buffer has room for a reply, the last 8 bytes of which old
/// librdmacm does not know.
fn check_room<T>(room: usize) -> Result<()> {
    refuse_if(room < size_of::<T>() - 8, ENOSPC, SHORT_REPLY)
}

fn put(place: &mut [u8], address: &Address) -> u16 {
    let bytes = address.bytes();
    let len = bytes.len().min(place.len());
    place[..len].copy_from_slice(&bytes[..len]);
    len as u16
}

/// Returns the GIDs of both ends, zero as long as they are not known.
fn gids(id: &Id, gid: impl Fn(crate::spec::PortAddress) -> [u8; 16]) -> ([u8; 16], [u8; 16]) {
    let of = |port: Option<_>| port.map_or([0; 16], &gid);
    (of(id.port), of(id.remote_port))
}

fn user_path(path: &Path) -> UserPath {
    UserPath {
        dgid: path.dgid,
        sgid: path.sgid,
        dlid: path.dlid.to_be_bytes(),
        slid: path.slid.to_be_bytes(),
        raw_traffic: 0,
        flow_label: path.flow_label.to_be_bytes(),
        reversible: 1,
        mtu: path.mtu.into(),
        pkey: path.pkey.to_be_bytes(),
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        numb_path: 1,
        sl: path.sl,
        mtu_selector: EXACTLY,
        rate_selector: EXACTLY,
        rate: path.rate,
        packet_life_time_selector: EXACTLY,
        packet_life_time: path.packet_life_time,
        preference: 0,
    }
}

/// Encodes a path as the subnet administrator does (IBA vol. 1, 15.2.5.16).
pub(super) fn encode_path(path: &Path) -> [u8; 64] {
    let mut record = [0; 64];
    record[8..24].copy_from_slice(&path.dgid);
    record[24..40].copy_from_slice(&path.sgid);
    record[40..42].copy_from_slice(&path.dlid.to_be_bytes());
    record[42..44].copy_from_slice(&path.slid.to_be_bytes());
    let flow_and_hops = path.flow_label << 8 | u32::from(path.hop_limit);
    record[44..48].copy_from_slice(&flow_and_hops.to_be_bytes());
    record[48] = path.traffic_class;
    record[49] = 0x80 | 1;
    record[50..52].copy_from_slice(&path.pkey.to_be_bytes());
    record[53] = path.sl & 0xf;
    record[54] = EXACTLY << 6 | path.mtu;
    record[55] = EXACTLY << 6 | path.rate;
    record[56] = EXACTLY << 6 | path.packet_life_time;
    record
}

/// Decodes a path that an application sets.
///
/// # Errors
/// `EINVAL` if the MTU or rate has no meaning.
pub(super) fn decode_path(record: &[u8; 64]) -> Result<Path> {
    let u16_at = |at: usize| u16::from_be_bytes([record[at], record[at + 1]]);
    let gid = |at: usize| {
        let mut gid = [0; 16];
        gid.copy_from_slice(&record[at..at + 16]);
        gid
    };
    let [_, a, b, hop_limit] = [44, 45, 46, 47].map(|at: usize| record[at]);
    let upper = u32::from(record[44] & 0xf);
    let path = Path {
        sgid: gid(24),
        dgid: gid(8),
        slid: u16_at(42),
        dlid: u16_at(40),
        pkey: u16_at(50),
        flow_label: upper << 16 | u32::from(a) << 8 | u32::from(b),
        traffic_class: record[48],
        hop_limit,
        sl: record[53] & 0xf,
        mtu: record[54] & 0x3f,
        rate: record[55] & 0x3f,
        packet_life_time: (record[56] & 0x3f).min(31),
    };
    let has_mtu = (1..=5).contains(&path.mtu);
    has_mtu
        .then_some(path)
        .or_refuse(EINVAL, "the path has no MTU between 256 and 4096 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Errno;

    #[test]
    fn a_path_survives_its_encoding() {
        let path = Path {
            sgid: [1; 16],
            dgid: [2; 16],
            slid: 3,
            dlid: 4,
            pkey: 0xffff,
            flow_label: 0xa_bcde,
            traffic_class: 6,
            hop_limit: 64,
            sl: 7,
            mtu: 5,
            rate: 16,
            packet_life_time: 18,
        };
        assert_eq!(decode_path(&encode_path(&path)), Ok(path));
        assert_eq!(decode_path(&[0; 64]), Err(Errno(EINVAL)));
    }
}
