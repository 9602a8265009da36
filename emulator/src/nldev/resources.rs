//! Objects (`RDMA_NLDEV_CMD_RES_*_GET`): those of all processes of the fabric, from their
//! reports. Keys are not shown, as to users without `CAP_NET_ADMIN`.

use libc::{EINVAL, ENOENT};

use super::message::{HEADER, Message, Request};
use super::{Nldev, attribute, named};
use crate::nic::resources::{Field, Kind, Resource};
use crate::refusal::{OrRefuse, refuse_if};
use crate::spec::Result;

/// Maximum length of the entries in a message in bytes: iproute2 reads a page.
const ROOM: usize = 3500;
/// Size of the head of a record in a report.
const RECORD: usize = 12;

/// How a kind of objects is listed.
pub(super) struct Listing {
    kind: Kind,
    name: &'static str,
    pub(super) command: u16,
    /// The attribute with the table; the next one is that of an entry.
    table: u16,
    /// The attribute with the number.
    id: u16,
}

/// The order is that of `enum rdma_restrack_type`.
#[rustfmt::skip]
pub(super) const LISTINGS: [Listing; 7] = [
    Listing { kind: Kind::Pd, name: "pd", command: 14, table: 46, id: 60 },
    Listing { kind: Kind::Cq, name: "cq", command: 12, table: 35, id: 61 },
    Listing { kind: Kind::Qp, name: "qp", command: 10, table: 19, id: 21 },
    Listing { kind: Kind::CmId, name: "cm_id", command: 11, table: 30, id: 63 },
    Listing { kind: Kind::Mr, name: "mr", command: 13, table: 40, id: 62 },
    Listing { kind: Kind::Context, name: "ctx", command: 22, table: 86, id: 64 },
    Listing { kind: Kind::Srq, name: "srq", command: 23, table: 88, id: 90 },
];

impl Listing {
    fn of(kind: Kind) -> &'static Self {
        &LISTINGS[kind as usize]
    }

    fn is_of_port(&self) -> bool {
        matches!(self.kind, Kind::Qp | Kind::CmId)
    }
}

/// Appends a field with its type in the kernel.
fn field(message: Message, &(field, value): &(Field, u64)) -> Message {
    let byte = |message: Message, kind| message.u8(kind, value as u8);
    let word = |message: Message, kind| message.u32(kind, value as u32);
    match field {
        Field::Qpn => word(message, 21),
        Field::PeerQpn => word(message, 22),
        Field::ReceivePsn => word(message, 23),
        Field::SendPsn => word(message, 24),
        Field::Migration => byte(message, 25),
        Field::Type => byte(message, 26),
        Field::State => byte(message, 27),
        Field::Space => word(message, 32),
        Field::Entries => word(message, 37),
        Field::Users => message.u64(38, value),
        Field::Length => message.u64(45, value),
        Field::Pd => word(message, 60),
        Field::Context => word(message, 64),
        Field::Moderation => byte(message, attribute::DEV_DIM),
    }
}

/// Returns a report of the objects of this process: records with the kind, device, port,
/// number and length, and the attributes that netlink shows.
pub(crate) fn report(resources: &[Resource]) -> Vec<u8> {
    let mut report = Vec::new();
    for it in resources {
        let mut shown = Message::new(0, 0, 0, 0);
        shown = shown.u32(Listing::of(it.kind).id, it.number);
        shown = shown.u32(attribute::RES_PID, std::process::id());
        if it.port != 0 {
            shown = shown.u32(attribute::PORT_INDEX, it.port.into());
        }
        shown = it.fields.iter().fold(shown, field);
        let kinds = [attribute::RES_SRC_ADDR, attribute::RES_DST_ADDR];
        for (kind, address) in kinds.into_iter().zip(&it.addresses) {
            if let Some(address) = address {
                // `struct sockaddr_storage`.
                let mut storage = [0; 128];
                storage[..address.len()].copy_from_slice(address);
                shown = shown.attribute(kind, &storage);
            }
        }
        if it.kind == Kind::Srq {
            shown = shown.nested(Listing::of(Kind::Qp).table, |table| {
                let ranges = it.queue_pairs.chunk_by(|one, next| one + 1 == *next);
                ranges.fold(table, range)
            });
        }
        let attributes = &shown.finish()[HEADER..];
        report.extend([it.kind as u8, it.device, it.port, 0]);
        report.extend(it.number.to_ne_bytes());
        report.extend((attributes.len() as u32).to_ne_bytes());
        report.extend(attributes);
    }
    report
}

/// Appends queue pairs with consecutive numbers (`fill_res_range_qp_entry`).
fn range(table: Message, numbers: &[u32]) -> Message {
    let listing = Listing::of(Kind::Qp);
    table.nested(listing.table + 1, |entry| match numbers {
        [one] => entry.u32(listing.id, *one),
        [first, .., last] => entry
            .u32(attribute::MIN_RANGE, *first)
            .u32(attribute::MAX_RANGE, *last),
        [] => entry,
    })
}

/// A record of a report.
struct Record<'a> {
    kind: u8,
    device: u8,
    port: u8,
    number: u32,
    attributes: &'a [u8],
}

/// Returns the records of a report. Every process of the user can write to the file: what
/// is cut off, or does not fit into a message, is left out.
fn records(mut report: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let all = std::iter::from_fn(move || {
        let [kind, device, port, _, a, b, c, d, len @ ..] = *report.first_chunk::<RECORD>()?;
        let len = u32::from_ne_bytes(len) as usize;
        let (attributes, next) = report[RECORD..].split_at_checked(len)?;
        report = next;
        Some(Record {
            kind,
            device,
            port,
            number: u32::from_ne_bytes([a, b, c, d]),
            attributes,
        })
    });
    all.filter(|record| record.attributes.len() + 4 <= ROOM && record.attributes.len() % 4 == 0)
}

impl Nldev<'_> {
    /// Returns how many objects of each kind a device has (`fill_res_info`).
    pub(super) fn resource_counts(
        &self,
        request: &Request,
        dumps: bool,
        begin: &dyn Fn() -> Message,
    ) -> Result<Vec<Message>> {
        let devices = match dumps {
            true => (0..self.config.devices).collect(),
            false => vec![self.named_device(request)?],
        };
        let reports = (self.reports)();
        let count = |device, listing: &Listing| {
            let all = reports.iter().flat_map(|report| records(report));
            let all = all.filter(|it| it.device == device && it.kind == listing.kind as u8);
            all.count() as u64
        };
        let counts = |device| {
            named(begin(), device).nested(attribute::RES_SUMMARY, |table| {
                LISTINGS.iter().fold(table, |table, listing| {
                    table.nested(attribute::RES_SUMMARY_ENTRY, |entry| {
                        entry
                            .string(attribute::RES_SUMMARY_ENTRY_NAME, listing.name)
                            .u64(attribute::RES_SUMMARY_ENTRY_CURR, count(device, listing))
                    })
                })
            })
        };
        Ok(devices.into_iter().map(counts).collect())
    }

    /// Returns the objects of a device and, if the request names a port, of this port
    /// (`res_get_common_dumpit`), or one of them (`res_get_common_doit`).
    pub(super) fn resources(
        &self,
        listing: &Listing,
        request: &Request,
        dumps: bool,
        begin: &dyn Fn() -> Message,
    ) -> Result<Vec<Message>> {
        let device = self.named_device(request)?;
        let port = match request.attribute(attribute::PORT_INDEX) {
            Some(_) => self.named_port(request)?.port,
            None => 0,
        };
        let reports = (self.reports)();
        let all = reports.iter().flat_map(|report| records(report));
        let mut found = all.filter(|it| {
            let is_on_port = port == 0 || !listing.is_of_port() || port == it.port;
            it.device == device && it.kind == listing.kind as u8 && is_on_port
        });
        if !dumps {
            let number = request.number(listing.id)?;
            refuse_if(
                (port != 0) != listing.is_of_port(),
                EINVAL,
                "a queue pair or rdma_cm id is named with its port, other objects without",
            )?;
            let record = found.find(|it| it.number == number);
            let record = record.or_refuse(ENOENT, "there is no object of this number")?;
            return Ok(vec![named(begin(), device).bytes(record.attributes)]);
        }
        let mut found = found.peekable();
        let mut messages = Vec::new();
        while found.peek().is_some() {
            let mut left = ROOM;
            messages.push(named(begin(), device).nested(listing.table, |mut table| {
                while let Some(it) = found.next_if(|it| it.attributes.len() + 4 <= left) {
                    left -= it.attributes.len() + 4;
                    let entry = listing.table + 1;
                    table = table.nested(entry, |entry| entry.bytes(it.attributes));
                }
                table
            }));
        }
        Ok(messages)
    }
}
