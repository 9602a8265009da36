//! The two commands of DevX that `ibv_query_qp_data_in_order` needs. DevX passes commands
//! of the device itself through the kernel; every other command is refused.
//!
//! libmlx5 queries the capability `qp_data_in_order` when it opens a device, and the queue
//! pair when the program asks (`mlx5_query_qp_data_in_order` in `verbs.c`, the same in
//! rdma-core 44 and 64). Layouts: `mlx5_ifc.h`. The replies have these two bits only; all
//! else in them is 0. So programs with a DevX context find no capability: no device memory,
//! no flow tables, no crypto.

use libc::{EINVAL, EOPNOTSUPP};

use super::Call;
use crate::config::DataInOrder;
use crate::refusal::{OrRefuse, refuse_if};
use crate::spec::Result;
use crate::uverbs::handles::Qp;

/// `MLX5_CMD_OP_QUERY_HCA_CAP`.
const QUERY_HCA_CAP: u16 = 0x100;
/// `MLX5_CMD_OP_QUERY_QP`.
const QUERY_QP: u16 = 0x50b;
/// `MLX5_SET_HCA_CAP_OP_MOD_GENERAL_DEVICE`, with `HCA_CAP_OPMOD_GET_MAX` or `…_GET_CUR`.
const GENERAL_CAPABILITIES: [u16; 2] = [0, 1];

/// Length of the reply to `QUERY_HCA_CAP`, up to what is not 0.
const HCA_CAP_REPLY: usize = 32;
/// `query_hca_cap_out.capability.cmd_hca_cap.qp_data_in_order`: byte and bit.
const HCA_CAP_DATA_IN_ORDER: (usize, u8) = (28, 1 << 5);
/// Length of the reply to `QUERY_QP`, up to what is not 0.
const QP_REPLY: usize = 36;
/// `query_qp_out.qpc.data_in_order`: byte and bit.
const QPC_DATA_IN_ORDER: (usize, u8) = (35, 1 << 5);

impl Call<'_> {
    /// Executes a command without an object (`DEVX_OTHER`). Returns its reply.
    pub(in crate::uverbs) fn devx_other(&mut self, command: &[u8]) -> Result<Vec<u8>> {
        self.require_devx_context()?;
        refuse_if(
            field(command, 0) != QUERY_HCA_CAP,
            EOPNOTSUPP,
            "the device has no DevX command but QUERY_HCA_CAP and QUERY_QP",
        )?;
        let mut reply = vec![0; HCA_CAP_REPLY];
        if GENERAL_CAPABILITIES.contains(&field(command, 6)) {
            let (byte, bit) = HCA_CAP_DATA_IN_ORDER;
            reply[byte] = bit;
        }
        Ok(reply)
    }

    /// Executes a query of an object (`DEVX_OBJ_QUERY`). Returns its reply.
    pub(in crate::uverbs) fn devx_obj_query(
        &mut self,
        handle: u32,
        command: &[u8],
    ) -> Result<Vec<u8>> {
        self.require_devx_context()?;
        refuse_if(
            field(command, 0) != QUERY_QP,
            EOPNOTSUPP,
            "of DevX's queries, the device has that of a queue pair only",
        )?;
        let qp: Qp = self.state.handles.get(handle)?;
        let qpn = u32::from(field(command, 8) & 0xff) << 16 | u32::from(field(command, 10));
        // As the kernel's `devx_is_valid_obj_id`.
        refuse_if(
            qpn != qp.qpn.0,
            EINVAL,
            "the handle is not that of the queue pair in the command",
        )?;
        let mut reply = vec![0; QP_REPLY];
        let (byte, bit) = QPC_DATA_IN_ORDER;
        if self.file.data_in_order() == DataInOrder::Yes {
            reply[byte] = bit;
        }
        Ok(reply)
    }

    /// Returns an error unless the context was opened with DevX, as the kernel's
    /// `devx_get_uid`.
    fn require_devx_context(&self) -> Result<()> {
        self.context()?;
        self.state
            .has_devx
            .then_some(())
            .or_refuse(EINVAL, "the context was opened without DevX")
    }
}

/// Returns the 16 bits of a command at a byte; 0 behind its end.
fn field(command: &[u8], at: usize) -> u16 {
    let bytes = command.get(at..at + 2).and_then(<[u8]>::first_chunk);
    bytes.copied().map_or(0, u16::from_be_bytes)
}
