//! Options of rdma_cm ids (the kernel's `ucma_set_option_id`, `ucma_set_option_ib`).

use libc::{EINVAL, ENOSYS};

use super::abi::{self, option};
use super::commands::parse;
use super::query::decode_path;
use super::rdma_cm::RdmaCm;
use crate::refusal::{OrRefuse, refuse, refuse_if};
use crate::spec::Result;

const ONE_BYTE: &str = "the value of the option has one byte";

impl RdmaCm {
    /// Sets an option of an id.
    ///
    /// # Errors
    /// `ENOSYS` for an option that no kernel has, `EINVAL` for a wrong value or
    /// state.
    pub(super) fn set_option(
        &mut self,
        file: u64,
        request: &abi::SetOption,
        value: &[u8],
    ) -> Result<()> {
        match (request.level, request.name) {
            (option::LEVEL_ID, option::ID_TOS) => {
                let &[tos] = value else {
                    return Err(refuse(EINVAL, ONE_BYTE));
                };
                self.id(file, request.id)?.tos = tos;
                Ok(())
            }
            (option::LEVEL_ID, option::ID_REUSEADDR) => {
                let is_set = flag(value)?;
                self.id(file, request.id)?.set_reuse(is_set)
            }
            (option::LEVEL_ID, option::ID_AFONLY) => {
                let is_set = flag(value)?;
                self.id(file, request.id)?.set_family_only(is_set)
            }
            (option::LEVEL_ID, option::ID_ACK_TIMEOUT) => {
                let &[timeout] = value else {
                    return Err(refuse(EINVAL, ONE_BYTE));
                };
                self.id(file, request.id)?.set_ack_timeout(timeout)
            }
            (option::LEVEL_IB, option::IB_PATH) => {
                let record = primary_path(value)?;
                self.id_with_port(file, request.id)?;
                self.set_path(request.id, decode_path(&record)?)
            }
            _ => Err(refuse(
                ENOSYS,
                "no kernel has an option of this level and name",
            )),
        }
    }
}

fn flag(value: &[u8]) -> Result<bool> {
    let value: [u8; 4] = value
        .try_into()
        .or_refuse(EINVAL, "the value of the option has four bytes")?;
    Ok(value != [0; 4])
}

/// Returns the first path that is primary and for both directions.
fn primary_path(value: &[u8]) -> Result<[u8; 64]> {
    let (all, rest) = value.as_chunks::<{ size_of::<abi::PathData>() }>();
    refuse_if(
        !rest.is_empty(),
        EINVAL,
        "the value is not a number of whole path records",
    )?;
    for data in all {
        let data: abi::PathData = parse(data)?;
        if data.flags == abi::PATH_FLAGS {
            return Ok(data.record);
        }
    }
    Err(refuse(
        EINVAL,
        "no path record is the primary path, for both directions",
    ))
}
