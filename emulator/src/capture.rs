//! The packets on the wire, each once, at its sender, as a capture file that tcpdump,
//! tshark and Wireshark read: as they would look on a link of InfiniBand or Ethernet.
//!
//! Several processes share a file: the first writes its header, and each packet is appended
//! by one write.
//!
//! Decision: `docs/decisions/083-packets-as-on-a-link.md`

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::config::Config;
use crate::fabric::hosts::Hosts;
use crate::fabric::iba;
use crate::fabric::iba::network::{GRH, Global, Network};
use crate::fabric::name::PortNames;
use crate::fabric::packet::{Destination, Packet, PacketFlags, Transmit};
use crate::hidden::HiddenFile;
use crate::log::warn;
use crate::spec::gid::gid_of_ip;
use crate::spec::{Link, PortAddress, Service, network};

/// Size of the header of a file, and of that of a packet.
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
/// Size of the header of the Extensible Record Format (ERF), in which InfiniBand packets
/// are, as those of ibdump: tshark does not read the link type of bare ones (247).
const ERF_HEADER: usize = 16;
/// Largest packet that a file holds.
const SNAP_LEN: u32 = 1 << 16;

/// Why a file cannot take packets.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// It cannot be opened, read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is a pipe, a terminal or a device.
    #[error("it is no regular file, and packets are appended to one that several processes share")]
    Special,
    /// It has other contents, or packets of another link.
    #[error(
        "it has something else than nanosecond-resolution packets of {link}; name a new file, or remove it",
        link = match .0 { Link::Ib => "InfiniBand (in ERF)", Link::Roce => "Ethernet" }
    )]
    Other(Link),
}

/// Opens a file for packets of a link, and writes its header if it is empty.
///
/// # Errors
/// Returns why it cannot take them.
pub fn open(path: &Path, link: Link) -> Result<File, CaptureError> {
    if path.metadata().is_ok_and(|data| !data.is_file()) {
        return Err(CaptureError::Special);
    }
    let mut options = File::options();
    let mut file = options.read(true).append(true).create(true).open(path)?;
    // Another process may be writing the header.
    file.lock()?;
    let expected = file_header(link);
    let mut found = Vec::new();
    (&file).take(FILE_HEADER as u64).read_to_end(&mut found)?;
    if found.is_empty() {
        file.write_all(&expected)?;
    }
    file.unlock()?;
    match found.is_empty() || found == expected {
        true => Ok(file),
        false => Err(CaptureError::Other(link)),
    }
}

fn file_header(link: Link) -> [u8; FILE_HEADER] {
    /// Times are in nanoseconds.
    const MAGIC: u32 = 0xa1b2_3c4d;
    const VERSION: u32 = 4 << 16 | 2;
    let link_type = match link {
        Link::Ib => 197,
        Link::Roce => 1,
    };
    let words = [MAGIC, VERSION, 0, 0, SNAP_LEN, link_type];
    let mut bytes = [0; FILE_HEADER];
    for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// A file to which the packets of this process are appended.
pub(crate) struct Capture {
    path: PathBuf,
    /// `None` after an error.
    file: Option<HiddenFile>,
    config: Config,
    hosts: Arc<Hosts>,
    link: Link,
    /// The packet that is being written, behind its header.
    record: Vec<u8>,
}

impl Capture {
    /// Opens the file that the configuration names.
    ///
    /// # Errors
    /// Returns why it cannot take packets.
    pub(crate) fn open(
        path: &Path,
        config: &Config,
        hosts: Arc<Hosts>,
    ) -> Result<Self, CaptureError> {
        Ok(Self {
            path: path.to_owned(),
            file: Some(HiddenFile::new(open(path, config.link)?)),
            config: config.clone(),
            hosts,
            link: config.link,
            record: Vec::new(),
        })
    }

    /// Returns a transmitter that sends to `wire` and captures what it takes.
    pub(crate) fn transmit_over<'a>(&'a mut self, wire: &'a mut dyn Transmit) -> Tap<'a> {
        Tap {
            capture: self,
            wire,
        }
    }

    /// Returns where the packet begins in its record.
    fn packet_start(&self) -> usize {
        match self.link {
            Link::Ib => PACKET_HEADER + ERF_HEADER,
            Link::Roce => PACKET_HEADER,
        }
    }

    /// Makes the record of a packet.
    fn encode(&mut self, packet: &Packet) {
        let names = |at: PortAddress| match self.hosts.address(at) {
            Some(ip) => PortNames::of_host(gid_of_ip(ip)),
            None => self.config.identity(at.device).port(at.port),
        };
        let header = &packet.header;
        let (from, to) = (names(header.source), names(header.destination));
        let network = network_of(packet, self.link, &from, &to);
        let start = self.packet_start();
        let out = &mut self.record;
        out.clear();
        out.resize(start, 0);
        let ether_type: u16 = match network {
            Network::InfiniBand { .. } => 0,
            Network::RoceV1(_) => 0x8915,
            Network::RoceV2 { .. } if network.is_ipv4() => 0x0800,
            Network::RoceV2 { .. } => 0x86dd,
        };
        if self.link == Link::Roce {
            out.extend(to.mac);
            out.extend(from.mac);
            out.extend(ether_type.to_be_bytes());
        }
        iba::encode(packet, &network, out);
        if self.link == Link::Ib {
            let crc = variant_crc(&out[start..]);
            out.extend(crc.to_le_bytes());
        }
    }

    /// Appends the record. After an error there are no more: the file would be misread.
    fn write(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default();
        let length = (self.record.len() - PACKET_HEADER) as u32;
        let (seconds, nanos) = (now.as_secs() as u32, now.subsec_nanos());
        let words = [seconds, nanos, length, length];
        for (place, word) in self.record.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        if self.link == Link::Ib {
            /// InfiniBand, and a varying record length.
            const KIND: [u8; 2] = [21, 4];
            let fraction = (u64::from(nanos) << 32) / 1_000_000_000;
            let time = u64::from(seconds) << 32 | fraction;
            let [record, packet] = [length, length - ERF_HEADER as u32].map(|len| len as u16);
            let erf = &mut self.record[PACKET_HEADER..];
            erf[..8].copy_from_slice(&time.to_le_bytes());
            erf[8..10].copy_from_slice(&KIND);
            erf[10..12].copy_from_slice(&record.to_be_bytes());
            erf[14..16].copy_from_slice(&packet.to_be_bytes());
        }
        let Some(file) = &mut self.file else {
            return;
        };
        if let Err(error) = file.write_all(&self.record) {
            let path = self.path.display();
            warn(
                "capture",
                &format!("no more packets are written to {path}: {error}"),
            );
            self.file = None;
        }
    }
}

/// Returns the network headers of a packet between these ports.
fn network_of(packet: &Packet, link: Link, from: &PortNames, to: &PortNames) -> Network {
    let header = &packet.header;
    let route = header.route;
    let grh = packet.payload.first_chunk::<GRH>();
    let grh = grh.filter(|_| header.flags.contains(PacketFlags::GRH));
    let gid = |names: &PortNames| {
        let entry = names.gids(link).get(usize::from(route.source_gid)).copied();
        entry.flatten().map_or([0; 16], |gid| gid.raw)
    };
    let global = match grh {
        Some(grh) => Global::decode(grh),
        // The destination's GID of the same kind.
        None => Global {
            source: gid(from),
            destination: gid(to),
            traffic_class: route.traffic_class,
            flow_label: route.flow_label,
            hop_limit: route.hop_limit,
        },
    };
    let is_global = grh.is_some() || (header.service != Service::Ud && route.is_global);
    match link {
        Link::Ib => Network::InfiniBand {
            source: header.source_lid,
            destination: to.lid,
            service_level: header.service_level,
            global: is_global.then_some(global),
        },
        Link::Roce if header.service_level == network::ROCE_V1 => Network::RoceV1(global),
        Link::Roce => Network::RoceV2 {
            global: Global {
                traffic_class: header.roce_v2_class(),
                ..global
            },
            source_port: route.source_port,
        },
    }
}

/// Returns the CRC at the end of a packet on InfiniBand (VCRC, IBA 7.8.2).
fn variant_crc(bytes: &[u8]) -> u16 {
    const POLYNOMIAL: u16 = 0xd008;
    !bytes.iter().fold(u16::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte), |crc, _| {
            (crc >> 1) ^ ((crc & 1) * POLYNOMIAL)
        })
    })
}

/// Sends packets and captures them.
pub(crate) struct Tap<'a> {
    capture: &'a mut Capture,
    wire: &'a mut dyn Transmit,
}

impl Transmit for Tap<'_> {
    fn has_room(&mut self, to: Destination) -> bool {
        self.wire.has_room(to)
    }

    fn send(&mut self, packet: Packet) -> Result<(), Packet> {
        self.capture.encode(&packet);
        self.wire.send(packet)?;
        self.capture.write();
        Ok(())
    }

    fn peer_is_busy(&mut self, to: Destination) -> bool {
        self.wire.peer_is_busy(to)
    }

    fn generation_of(&mut self, slot: u8) -> Option<u32> {
        self.wire.generation_of(slot)
    }
}
