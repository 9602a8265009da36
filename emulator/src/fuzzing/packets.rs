//! Packets as the gateway passes them on, to queue pairs and to the connection manager.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::cm::{
    self, Body, Event, MANAGEMENT_QPN, Manager, Peer, Rej, RejReason, answer_of_none, fuzzing,
};
use crate::config::Config;
use crate::fabric::iba::icrc;
use crate::fabric::iba::network::{Global, Network};
use crate::fabric::interfaces::Interface;
use crate::fabric::packet::{OtherHosts, Packet};
use crate::fuzz_bytes::Bytes;
use crate::nic::fuzzing::fixtures::{Pair, SEND, SIGNALLED, inline_segment};
use crate::nic::fuzzing::{check_alive, pair_of};
use crate::spec::gid::gid_of_ip;
use crate::spec::{DoorbellView, PortAddress, Qpn, Service};
use crate::udp::network::UdpNetwork;

/// A host with queue pairs and a connection manager, and how packets reach it.
struct Host {
    network: UdpNetwork,
    pair: Pair,
    manager: Manager,
    now: u64,
}

/// Packets to one of two connected queue pairs, and to the manager of connections, among
/// requests of the programs.
pub fn packets(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let service = [Service::Rc, Service::Uc, Service::Ud][usize::from(bytes.u8() % 3)];
    let mut interface = Interface::loopback();
    interface.addresses.push(Ipv6Addr::LOCALHOST.into());
    let config = Config {
        interfaces: vec![interface],
        ..Config::default()
    };
    let mut host = Host {
        network: UdpNetwork::new(&config, Arc::default()),
        pair: pair_of(service, DoorbellView::Exact),
        manager: Manager::of(2, 0),
        now: 1,
    };
    while !bytes.is_empty() {
        match bytes.u8() % 8 {
            0..=4 => host.receive(&mut bytes),
            5 => {
                let [opcode, len] = bytes.array();
                let segments = [inline_segment(bytes.take(len.into()))];
                host.pair.b.post(opcode & 0x1f, SIGNALLED, &segments);
            }
            6 => {
                let receive = host.pair.b.data_segment(0, 4096);
                host.pair.b.qp.post_receive(&[receive]);
                host.pair.a.post(SEND, SIGNALLED, &[inline_segment(b"hi")]);
            }
            _ => {
                host.now += 1 << (bytes.u8() % 40);
                host.pair.advance(1 << (bytes.u8() % 40), 1 << 36);
            }
        }
        host.manage();
    }
    check_alive(host.pair);
}

impl Host {
    /// Receives a packet. The first byte says what of it is made right.
    fn receive(&mut self, bytes: &mut Bytes<'_>) {
        let [form, traffic_class] = bytes.array();
        let len = bytes.u16() % 5000;
        let mut transport = bytes.take(len.into()).to_vec();
        let own: IpAddr = match form & 1 {
            0 => Ipv4Addr::LOCALHOST.into(),
            _ => Ipv6Addr::LOCALHOST.into(),
        };
        let global = Global {
            source: gid_of_ip(own),
            destination: gid_of_ip(own),
            traffic_class,
            flow_label: 0,
            hop_limit: 64,
        };
        let (a, b) = (self.pair.a.qp.qpn, self.pair.b.qp.qpn);
        let to = [None, Some(b), Some(a), Some(MANAGEMENT_QPN)][usize::from(form >> 1 & 3)];
        if let (Some(qpn), Some(number)) = (to, transport.get_mut(5..8)) {
            number.copy_from_slice(&qpn.0.to_be_bytes()[1..]);
        }
        let source_port = 0xc000;
        let network = Network::RoceV2 {
            global,
            source_port,
        };
        if form & 0xf8 != 0 {
            transport.extend(icrc::of(&network, &transport));
        }
        let ip = global.encode(true, transport.len());
        let whole = [&ip[..], &source_port.to_be_bytes(), &transport].concat();
        let mut payload = Vec::new();
        let Ok(mut header) = self.network.decode(&whole, &mut payload) else {
            return;
        };
        // From the port of the peer, as the fabric of the pair names it.
        if form & 16 != 0 {
            header.source = PortAddress { device: 0, port: 1 };
            header.source_lid = 1;
            header.service_level = 0;
        }
        let peer = match header.destination_qpn == b {
            true => &self.pair.b,
            false => &self.pair.a,
        };
        if form & 32 != 0 {
            header.remote_address = peer.memory.at() + (header.remote_address & 0xffff);
            header.key = peer.key;
        }
        let source = header.source;
        let packet = Packet { header, payload };
        let nic = match header.destination_qpn {
            Qpn(number) if number >> 16 == a.0 >> 16 => &mut self.pair.a.host.nic,
            _ => &mut self.pair.b.host.nic,
        };
        let Some(packet) = nic.receive(packet) else {
            return self.pair.run_until_idle();
        };
        if let Some(message) = cm::decode(&packet.payload) {
            fuzzing::encodes_again(&message);
            if let Some(answer) = answer_of_none(&message, 2) {
                fuzzing::encodes_again(&answer);
            }
            let is_host = source.host().is_some();
            let from = if is_host {
                Peer::Host(source)
            } else {
                Peer::Process(1)
            };
            self.manager.receive(from, message);
        }
    }

    /// Does what a program does with requests and answers, and sends what the manager has.
    fn manage(&mut self) {
        self.manager.work(self.now);
        while let Some((id, event)) = self.manager.next_event() {
            // The connection may be in another state by now: the program then gets an error.
            let _ = match &event {
                Event::Request(request) => match request.qpn & 3 {
                    0 => {
                        self.manager.delay_reply(id);
                        Ok(())
                    }
                    1 => {
                        self.manager
                            .reject(id, RejReason::CONSUMER_DEFINED, [7; Rej::PRIVATE_DATA])
                    }
                    _ => self.manager.accept(id, fuzzing::rep()),
                },
                Event::Reply(_) => self.manager.confirm(id),
                Event::DisconnectRequested => self.manager.confirm_disconnect(id),
                Event::Established if self.now & 2 == 0 => self.manager.disconnect(id),
                _ => {
                    self.manager.destroy(id);
                    Ok(())
                }
            };
        }
        self.manager.send_messages(|outgoing| {
            fuzzing::encodes_again(&outgoing.message);
            assert!(!matches!(outgoing.message.body, Body::SidrReq(_)));
            true
        });
    }
}
