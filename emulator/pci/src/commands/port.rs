//! The InfiniBand port, and the management datagrams that the driver exchanges with the device.

use mlx5emu::limits::GID_TABLE;
use mlx5emu::spec::{Link, PortAddress};

use super::{CONTEXT, Function, Outcome, Status};
use crate::bits::{part, part_mut};
use crate::layout::{hca_vport_context, query_hca_vport_gid_out, query_vport_state_out};

/// States of a port, logical (`enum ib_port_state`) and physical.
const DOWN: (u64, u64) = (1, 3);
const ACTIVE: (u64, u64) = (4, 5);
/// LID of the subnet manager.
const SM_LID: u16 = 1;
const SUBNET_TIMEOUT: u8 = 18;
/// Length of the table of partition keys, the shortest that a device can report.
const PKEYS: u16 = 128;
/// The default partition, full member.
const PKEY: u16 = 0xffff;

impl Function {
    fn port_address(&self) -> PortAddress {
        PortAddress {
            device: self.device,
            port: 1,
        }
    }

    fn port_state(&self) -> (u64, u64) {
        let is_up = self.emulator.nic().port_is_up(self.port_address());
        if is_up { ACTIVE } else { DOWN }
    }
}

pub(super) fn state(function: &mut Function, _: &[u8], output: &mut [u8]) -> Outcome {
    let up = u64::from(function.port_state() == ACTIVE);
    query_vport_state_out::ADMIN_STATE.set(output, up);
    query_vport_state_out::STATE.set(output, up);
    Ok(())
}

pub(super) fn context(function: &mut Function, _: &[u8], output: &mut [u8]) -> Outcome {
    let (logical, physical) = function.port_state();
    let identity = function.emulator.device_identity(function.device);
    let guid = u64::from_be_bytes(identity.guid);
    let context = part_mut(output, CONTEXT);
    for (field, value) in [
        (hca_vport_context::PORT_PHYSICAL_STATE, physical),
        (hca_vport_context::PORT_STATE, logical),
        (hca_vport_context::VPORT_STATE, logical),
        (hca_vport_context::SYSTEM_IMAGE_GUID, guid),
        (hca_vport_context::PORT_GUID, guid),
        (hca_vport_context::NODE_GUID, guid),
        (
            hca_vport_context::CAP_MASK1,
            Link::Ib.port_capabilities().into(),
        ),
        // The driver announces whether it has a communication manager.
        (hca_vport_context::CAP_MASK1_FIELD_SELECT, 1 << 16),
        (hca_vport_context::LID, identity.port(1).lid.into()),
        (hca_vport_context::SUBNET_TIMEOUT, SUBNET_TIMEOUT.into()),
        (hca_vport_context::SM_LID, SM_LID.into()),
    ] {
        field.set(context, value);
    }
    Ok(())
}

/// Returns a GID; the table has one that is used.
pub(super) fn gid(function: &mut Function, input: &[u8], output: &mut [u8]) -> Outcome {
    /// All GIDs are asked for by this index.
    const ALL: u16 = 0xffff;
    let index = u16::from_be_bytes([input[14], input[15]]);
    if u32::from(index) >= GID_TABLE && index != ALL {
        return Err(Status::BadParameter);
    }
    query_hca_vport_gid_out::GIDS_NUM.set(output, 1);
    if matches!(index, 0 | ALL) {
        let gid = function
            .emulator
            .device_identity(function.device)
            .port(1)
            .gid;
        part_mut(output, CONTEXT)[..16].copy_from_slice(&gid);
    }
    Ok(())
}

pub(super) fn pkey(_: &mut Function, input: &[u8], output: &mut [u8]) -> Outcome {
    const ALL: u16 = 0xffff;
    let index = u16::from_be_bytes([input[14], input[15]]);
    if index >= PKEYS && index != ALL {
        return Err(Status::BadParameter);
    }
    if matches!(index, 0 | ALL) {
        part_mut(output, CONTEXT + 2)[..2].copy_from_slice(&PKEY.to_be_bytes());
    }
    Ok(())
}

/// Offsets in a management datagram: method, status, attribute, the attribute's data.
const METHOD: usize = 3;
const STATUS: usize = 4;
const ATTRIBUTE: usize = 16;
const DATA: usize = 64;
const LENGTH: usize = 256;
/// The method of a reply.
const GET_RESPONSE: u8 = 0x81;

/// Answers a management datagram of the driver to its own port (subnet management).
pub(super) fn mad(function: &mut Function, input: &[u8], output: &mut [u8]) -> Outcome {
    let request = part(input, CONTEXT);
    let mut reply = [0; LENGTH];
    reply.copy_from_slice(&request[..LENGTH]);
    reply[METHOD] = GET_RESPONSE;
    reply[STATUS..STATUS + 2].fill(0);
    let attribute = u16::from_be_bytes([request[ATTRIBUTE], request[ATTRIBUTE + 1]]);
    let names = function.emulator.device_identity(function.device);
    let port = names.port(1);
    let mut put =
        |at: usize, bytes: &[u8]| reply[DATA + at..][..bytes.len()].copy_from_slice(bytes);
    match attribute {
        NODE_DESCRIPTION => {
            put(0, &[0; 64]);
            put(0, b"emulated ConnectX");
        }
        NODE_INFO => {
            // Versions, a channel adapter with one port.
            put(0, &[1, 1, 1, 1]);
            put(4, &names.guid);
            put(12, &names.guid);
            put(20, &names.guid);
            put(28, &[0, 128, 0x10, 0x1d, 0, 0, 0, 0, 1, 0, 0x02, 0xc9]);
        }
        GUID_INFO => put(0, &names.guid),
        PKEY_TABLE => put(0, &PKEY.to_be_bytes()),
        PORT_INFO => {
            let (logical, physical) = function.port_state();
            put(8, &port.gid[..8]);
            put(16, &port.lid.to_be_bytes());
            put(18, &SM_LID.to_be_bytes());
            put(20, &Link::Ib.port_capabilities().to_be_bytes());
            // Local port, widths, speeds and states, MTUs, virtual lanes.
            put(
                28,
                &[
                    1,
                    2,
                    2,
                    2,
                    0x10 | logical as u8,
                    (physical as u8) << 4 | 2,
                    0,
                    0x11,
                    0x50,
                    0x30,
                ],
            );
        }
        _ => return Err(Status::BadParameter),
    }
    part_mut(output, CONTEXT)[..LENGTH].copy_from_slice(&reply);
    Ok(())
}

/// Attributes of subnet management.
const NODE_DESCRIPTION: u16 = 0x10;
const NODE_INFO: u16 = 0x11;
const GUID_INFO: u16 = 0x14;
const PORT_INFO: u16 = 0x15;
const PKEY_TABLE: u16 = 0x16;
