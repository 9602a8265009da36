//! How the receiver of an RDMA write notices it.

use std::fmt;

use dat_engine::DataInOrder;
use serde::{Serialize, Serializer};

use crate::options::LastByte;

/// What the receiver looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Method {
    /// The last byte of the written memory.
    LastByte,
    /// The completion of an empty send that follows each write.
    SendBehind,
}

/// The method of a run, and why.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Arrival {
    pub(super) method: Method,
    /// What the queue pairs of both sides say.
    #[serde(serialize_with = "by_name")]
    data_in_order: DataInOrder,
    /// The value of `--last-byte`.
    last_byte: LastByte,
}

fn by_name<S: Serializer>(answer: &DataInOrder, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(answer.name())
}

impl Arrival {
    /// Chooses the method.
    pub(super) fn choose(last_byte: LastByte, data_in_order: DataInOrder) -> Self {
        let polls = match last_byte {
            LastByte::Auto => data_in_order == DataInOrder::Yes,
            LastByte::Force => true,
            LastByte::Never => false,
        };
        Self {
            method: match polls {
                true => Method::LastByte,
                false => Method::SendBehind,
            },
            data_in_order,
            last_byte,
        }
    }
}

impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.method {
            Method::LastByte => "the last byte of memory is polled",
            Method::SendBehind => "an empty send follows each write, and its receive is polled",
        })?;
        match self.last_byte {
            LastByte::Auto => write!(f, " (")?,
            forced => write!(f, " (--last-byte {}; ", forced.name())?,
        }
        f.write_str(match self.data_in_order {
            DataInOrder::Yes => "the device promises the order of a message's bytes)",
            DataInOrder::No => "the device does not promise the order of a message's bytes)",
            DataInOrder::Unknown => {
                "the device cannot be asked for the order of a message's bytes)"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_or_force_polls_memory() {
        use DataInOrder::{No, Unknown, Yes};
        use Method::{LastByte as Polled, SendBehind};
        for (option, answer, method) in [
            (LastByte::Auto, Yes, Polled),
            (LastByte::Auto, No, SendBehind),
            (LastByte::Auto, Unknown, SendBehind),
            (LastByte::Force, No, Polled),
            (LastByte::Force, Unknown, Polled),
            (LastByte::Never, Yes, SendBehind),
        ] {
            let arrival = Arrival::choose(option, answer);
            assert_eq!(arrival.method, method, "{option:?} {answer}");
            let forced = arrival.to_string().contains("--last-byte");
            assert_eq!(forced, option != LastByte::Auto);
        }
        let json = serde_json::to_string(&Arrival::choose(LastByte::Auto, No)).unwrap();
        assert_eq!(
            json,
            r#"{"method":"send_behind","data_in_order":"no","last_byte":"auto"}"#
        );
    }
}
