use std::process::Command;

use super::*;
use crate::cm::tests::garbage::datagrams;
use crate::fabric::iba::tests::kinds;
use crate::fabric::packet::Operation;
use crate::fabric::tests::packet;

const PORT: PortAddress = PortAddress { device: 0, port: 1 };

/// Takes every packet.
struct Wire;

impl Transmit for Wire {
    fn has_room(&mut self, _: Destination) -> bool {
        true
    }

    fn send(&mut self, _: Packet) -> Result<(), Packet> {
        Ok(())
    }
}

/// Returns tshark's name of a packet.
fn name(service: Service, operation: Operation, flags: PacketFlags, compares: bool) -> String {
    let position = match (
        flags.contains(PacketFlags::FIRST),
        flags.contains(PacketFlags::LAST),
    ) {
        (true, true) => "Only",
        (true, false) => "First",
        (false, true) => "Last",
        (false, false) => "Middle",
    };
    let operation = match operation {
        Operation::Send => format!("Send {position}"),
        Operation::Write => format!("RDMA Write {position}"),
        Operation::ReadRequest => "RDMA Read Request".into(),
        Operation::ReadResponse => format!("RDMA Read Response {position}"),
        Operation::Acknowledge => "Acknowledge".into(),
        Operation::AtomicRequest if compares => "Compare Swap".into(),
        Operation::AtomicRequest => "Fetch Add".into(),
        Operation::AtomicResponse => "Atomic Acknowledge".into(),
        Operation::Management => return "CM: ".into(),
        // tshark 4.0 has no name for it.
        Operation::Notification => return "CNP".into(),
        Operation::Foreign => unreachable!("it is not sent"),
    };
    let suffix = if flags.contains(PacketFlags::IMMEDIATE) {
        " Immediate"
    } else if flags.contains(PacketFlags::INVALIDATE) {
        " Invalidate"
    } else {
        ""
    };
    let service = format!("{service:?}").to_uppercase();
    format!("{service} {operation}{suffix}")
}

/// Returns one packet of each kind as a port sends it with one GID, and their names.
fn packets(link: Link, source_gid: u8) -> Vec<(Packet, String)> {
    let names = Config::default().identity(0).port(1);
    let identity = crate::spec::PortIdentity {
        lid: if link == Link::Ib { names.lid } else { 0 },
        gids: names.gids(link),
        ethernet: link == Link::Roce,
        mtu: names.mtu,
    };
    let gid = identity.gid(source_gid).unwrap();
    let mut datagrams = datagrams();
    let mut packets = Vec::new();
    // Fetch and add, then compare and swap; a NAK of a receiver that is not ready (RNR).
    for (compares, syndrome) in [(false, 0x1f), (true, 0x20 | 12)] {
        for (service, operation, flags) in kinds() {
            let is_v2 = identity.network(source_gid) != network::ROCE_V1 && link == Link::Roce;
            if operation == Operation::Notification && !is_v2 {
                continue;
            }
            let has_data = !matches!(
                operation,
                Operation::Acknowledge
                    | Operation::ReadRequest
                    | Operation::AtomicRequest
                    | Operation::Notification
                    | Operation::AtomicResponse
            );
            let data: &[u8] = if has_data { b"payload" } else { b"" };
            let mut packet = packet(1, 2, 7, data);
            let header = &mut packet.header;
            (header.service, header.operation, header.flags) = (service, operation, flags);
            (header.atomic_compare, header.syndrome) = (compares, syndrome);
            header.source_lid = identity.lid;
            if link == Link::Roce {
                header.service_level = identity.network(source_gid);
            }
            header.route.source_gid = source_gid;
            header.route.is_global = compares;
            if service == Service::Ud && operation == Operation::Send {
                header.flags |= PacketFlags::GRH;
                let global = Global {
                    source: gid.raw,
                    destination: gid.raw,
                    traffic_class: 0,
                    flow_label: 0,
                    hop_limit: 64,
                };
                packet
                    .payload
                    .splice(0..0, global.encode(link == Link::Roce, 0));
            }
            if operation == Operation::Management {
                while let Some(payload) = datagrams.pop() {
                    packet.payload = payload;
                    packets.push((packet.clone(), "CM: ".into()));
                }
                continue;
            }
            packets.push((packet, name(service, operation, flags, compares)));
        }
    }
    packets
}

#[test]
fn tshark_reads_every_kind_of_packet_on_every_link() {
    for (link, gids) in [(Link::Ib, 0..1), (Link::Roce, 0..4)] {
        let file = format!("mlx5emu-capture-{}-{link:?}.pcap", std::process::id());
        let path = std::env::temp_dir().join(file);
        let config = Config {
            link,
            ..Config::default()
        };
        let mut capture = Capture::open(&path, &config, Arc::default()).unwrap();
        let mut wire = Wire;
        let mut expected = Vec::new();
        for (packet, name) in gids.flat_map(|gid| packets(link, gid)) {
            assert_eq!(packet.header.source, PORT);
            expected.push(name);
            capture.transmit_over(&mut wire).send(packet).unwrap();
        }
        let mut tshark = Command::new("tshark");
        tshark.arg("-nr").arg(&path);
        // It takes the data of some SENDs for RPC over RDMA.
        tshark.args(["--disable-protocol", "rpcordma"]);
        let fields = ["_ws.malformed", "_ws.col.Protocol", "_ws.col.Info"];
        tshark.args(["-T", "fields"]);
        tshark.args(fields.iter().flat_map(|field| ["-e", field]));
        let Ok(output) = tshark.output() else {
            let _ = writeln!(io::stderr(), "SKIPPED: tshark is not installed");
            std::fs::remove_file(&path).unwrap();
            return;
        };
        std::fs::remove_file(&path).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && text.lines().count() == expected.len(),
            "{text}"
        );
        for (line, name) in text.lines().zip(expected) {
            let [malformed, protocol, info] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            assert!(malformed.is_empty(), "{line}");
            assert!(
                ["RoCE", "RRoCE", "InfiniBand"].contains(&protocol),
                "{line}"
            );
            let expected = match name.as_str() {
                "CM: " => info.starts_with("CM: "),
                "CNP" => info.starts_with("CNP") || info.starts_with("Unknown OpCode"),
                name => info.split("QP=").next().map(str::trim) == Some(name),
            };
            assert!(expected, "{line}: expected {name}");
        }
    }
}

#[test]
fn the_example_of_the_specification_has_its_variant_crc() {
    let bytes = [
        0x70, 0x12, 0x37, 0x5c, 0x00, 0x0e, 0x17, 0xd2, 0x0a, 0x20, 0x24, 0x87, 0x00, 0x87, 0xb1,
        0xb3, 0x00, 0x0d, 0xec, 0x2a, 0x01, 0x71, 0x0a, 0x1c, 0x01, 0x5d, 0x40, 0x02, 0x38, 0xf2,
        0x7a, 0x05, 0x00, 0x00, 0x00, 0x0e, 0xbb, 0x88, 0x4d, 0x85, 0xfd, 0x5c, 0xfb, 0xa4, 0x72,
        0x8b, 0xc0, 0x69, 0x0e, 0xd4, 0x00, 0x00, 0x96, 0x25, 0xb7, 0x5a,
    ];
    assert_eq!(variant_crc(&bytes).to_le_bytes(), [0x45, 0xfa]);
}
