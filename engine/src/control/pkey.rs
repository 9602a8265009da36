//! Partitions: the P_Key table of a port.

use super::context::Context;
use super::device::Device;
use super::port;
use crate::error::{ControlError, ControlErrorKind};
use dv_sys::verbs::ibv_query_pkey;

/// The bit that distinguishes a full member of a partition from a limited one. The
/// other bits are the number of the partition.
const FULL_MEMBER: u16 = 0x8000;

/// An entry of a P_Key table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionKey {
    /// The index in the table.
    pub index: u16,
    /// The P_Key: 15 bits of the partition's number, and bit 15 for full members.
    pub value: u16,
}

impl Device {
    /// Returns the entry of a port's P_Key table for a partition: `wanted` itself,
    /// or else the entry of the same partition that differs in the membership bit;
    /// without `wanted`, the first entry. Connections with that
    /// [`super::TransportOptions::pkey`] use it.
    ///
    /// # Errors
    /// The port does not exist, or is not a member of the partition.
    pub fn partition_key(
        &self,
        port: u8,
        wanted: Option<u16>,
    ) -> Result<PartitionKey, ControlError> {
        find(&self.context, port, wanted)
    }
}

pub(super) fn find(
    context: &Context,
    number: u8,
    wanted: Option<u16>,
) -> Result<PartitionKey, ControlError> {
    let length = match wanted {
        Some(_) => port::query(context, number)?.pkey_tbl_len,
        None => 1,
    };
    let mut table = Vec::with_capacity(length.into());
    for index in 0..length {
        let value = read(context, number, index)?;
        table.push(PartitionKey { index, value });
        if Some(value) == wanted {
            break;
        }
    }
    choose(&table, wanted).ok_or_else(|| {
        let values: Vec<_> = table
            .iter()
            .filter(|entry| entry.value & !FULL_MEMBER != 0)
            .map(|entry| format!("{:#06x}", entry.value))
            .collect();
        ControlError::new(
            ControlErrorKind::Invalid,
            "choose a partition",
            format!(
                "the P_Key table of port {number} does not have {:#06x}; it has {}",
                wanted.unwrap_or_default(),
                values.join(", ")
            ),
        )
        .with_remedy(
            "use a P_Key of the table, or let the subnet manager add the port to the partition",
        )
    })
}

fn choose(table: &[PartitionKey], wanted: Option<u16>) -> Option<PartitionKey> {
    let Some(wanted) = wanted else {
        return table.first().copied();
    };
    let first = |same: &dyn Fn(u16) -> bool| table.iter().find(|entry| same(entry.value));
    let partition = |value: u16| value & !FULL_MEMBER;
    first(&|value| value == wanted)
        .or_else(|| first(&|value| partition(value) == partition(wanted)))
        .copied()
}

fn read(context: &Context, port: u8, index: u16) -> Result<u16, ControlError> {
    let mut value = 0;
    // SAFETY: the context is open; the result is writable.
    let failed = unsafe { ibv_query_pkey(context.as_ptr(), port, index.into(), &raw mut value) };
    match failed {
        0 => Ok(u16::from_be(value)),
        _ => Err(ControlError::last(format!(
            "read P_Key {index} of port {port}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_itself_is_preferred_to_the_other_membership() {
        let table = [0xffff, 0x0001, 0x8001, 0x8002].map({
            let mut index = 0;
            move |value| {
                index += 1;
                PartitionKey {
                    index: index - 1,
                    value,
                }
            }
        });
        let index = |wanted| choose(&table, wanted).map(|entry| entry.index);
        assert_eq!(index(None), Some(0));
        assert_eq!(index(Some(0xffff)), Some(0));
        assert_eq!(index(Some(0x0001)), Some(1));
        assert_eq!(index(Some(0x8001)), Some(2));
        assert_eq!(index(Some(0x0002)), Some(3));
        assert_eq!(index(Some(0x8003)), None);
        assert_eq!(choose(&[], None), None);
    }
}
