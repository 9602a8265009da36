//! Counters (`RDMA_NLDEV_CMD_STAT_GET`). A queue pair cannot have counters of its own:
//! binding one to a counter is refused, and there are none to list.

use libc::EINVAL;

use super::message::{Message, Request};
use super::{Nldev, attribute, named};
use crate::nic::counters::{Name, hardware, value};
use crate::refusal::refuse;
use crate::spec::Result;

/// `RDMA_NLDEV_ATTR_RES_QP`, as a kind of objects.
const QUEUE_PAIRS: u32 = 19;
/// `RDMA_COUNTER_MODE_NONE`.
const MODE_NONE: u32 = 0;

impl Nldev<'_> {
    /// Returns the counters of a port (`stat_get_doit_default_counter`), how queue pairs
    /// get counters of their own (`stat_get_doit_qp`), or these counters.
    pub(super) fn statistic(
        &self,
        request: &Request,
        dumps: bool,
        begin: &dyn Fn() -> Message,
    ) -> Result<Vec<Message>> {
        let of_objects = request.attribute(attribute::STAT_RES).is_some();
        if of_objects && request.number(attribute::STAT_RES)? != QUEUE_PAIRS || dumps && !of_objects
        {
            let cause = "the request names no port, and no objects that have counters";
            return Err(refuse(EINVAL, cause));
        }
        if dumps {
            self.named_device(request)?;
            return Ok(Vec::new());
        }
        let port = self.named_port(request)?;
        let message = named(begin(), port.device);
        let message = message.u32(attribute::PORT_INDEX, port.port.into());
        if of_objects {
            return Ok(vec![message.u32(attribute::STAT_MODE, MODE_NONE)]);
        }
        let row = (self.counters)(port);
        let entry = |table: Message, &name: &Name| {
            table.nested(attribute::STAT_HWCOUNTER_ENTRY, |entry| {
                entry
                    .string(attribute::STAT_HWCOUNTER_ENTRY_NAME, name.0)
                    .u64(attribute::STAT_HWCOUNTER_ENTRY_VALUE, value(&row, name))
            })
        };
        let names = hardware(self.config.link);
        Ok(vec![message.nested(attribute::STAT_HWCOUNTERS, |table| {
            names.iter().fold(table, entry)
        })])
    }
}
