//! Tests of the fabric between attachments of one process, and between
//! processes. The second process is this test binary, started again as
//! [`second_process`].

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::attachment::{Attachment, FabricCounters};
use super::directory::{FabricDirectory, JoinError};
use super::iba::network::Route;
use super::name::FabricName;
use super::packet::{Header, Operation, Packet, PacketFlags};
use crate::spec::{PortAddress, Qpn, Service};

pub(crate) fn packet(from: u8, to: u8, psn: u32, payload: &[u8]) -> Packet {
    let port = PortAddress { device: 0, port: 1 };
    let header = Header {
        source: port,
        destination: port,
        source_qpn: Qpn(u32::from(from) << 16 | 1),
        destination_qpn: Qpn(u32::from(to) << 16 | 2),
        service: Service::Rc,
        operation: Operation::Send,
        flags: PacketFlags::FIRST | PacketFlags::LAST,
        source_lid: 1,
        service_level: 0,
        psn,
        immediate: [1, 2, 3, 4],
        remote_address: 0,
        key: 0,
        length: payload.len() as u32,
        syndrome: 0,
        msn: 0,
        atomic: [0; 2],
        atomic_compare: false,
        route: Route::default(),
    };
    Packet {
        header,
        payload: payload.to_vec(),
    }
}

/// A scratch directory for each test, removed at the end.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mlx5emu-{test}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(super) fn join(&self) -> Attachment {
        join(&self.0).unwrap()
    }

    pub(super) fn is_empty(&self) -> bool {
        std::fs::read_dir(&self.0).unwrap().next().is_none()
    }

    pub(super) fn directory(&self) -> FabricDirectory {
        FabricDirectory::create(std::slice::from_ref(&self.0), &FabricName::default()).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) fn join(base: &Path) -> Result<Attachment, JoinError> {
    Attachment::join_under(&[base.to_owned()], &FabricName::default())
}

pub(super) fn psns(attachment: &mut Attachment) -> Vec<u32> {
    let mut payload = Vec::new();
    std::iter::from_fn(|| attachment.receive(&mut payload).map(|header| header.psn)).collect()
}

pub(super) fn readable(attachment: &Attachment, timeout: Duration) -> bool {
    use std::os::fd::AsRawFd;
    let fd = attachment.waker().fd().as_raw_fd();
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&raw mut poll, 1, timeout.as_millis() as i32) == 1 }
}

pub(super) fn wake_peers(attachment: &mut Attachment) {
    let wakes = attachment.take_immediate_wakes();
    attachment.waker().wake(wakes);
}

const SOON: Duration = Duration::from_secs(20);

pub(super) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn two_attachments_exchange_packets_whole_and_in_order() {
    let scratch = Scratch::new("exchange");
    let (mut one, mut two) = (scratch.join(), scratch.join());
    assert_eq!((one.slot(), two.slot()), (1, 2));
    for psn in 0..200 {
        let sent = packet(1, 2, psn, &vec![psn as u8; psn as usize * 20]);
        one.send(2, &sent).unwrap();
        let mut payload = Vec::new();
        let header = two.receive(&mut payload).unwrap();
        assert_eq!(Packet { header, payload }, sent);
    }
    two.send(1, &packet(2, 1, 7, b"")).unwrap();
    assert_eq!(psns(&mut one), [7]);
    assert_eq!(one.counters(), FabricCounters::default());
    assert_eq!(two.counters(), FabricCounters::default());
}

#[test]
fn sources_are_served_round_robin() {
    let scratch = Scratch::new("turns");
    let (mut one, mut two, mut three) = (scratch.join(), scratch.join(), scratch.join());
    for n in 0..3 {
        one.send(3, &packet(1, 3, 10 + n, b"")).unwrap();
        two.send(3, &packet(2, 3, 20 + n, b"")).unwrap();
    }
    assert_eq!(psns(&mut three), [10, 20, 11, 21, 12, 22]);
}

#[test]
fn the_last_process_to_leave_removes_all_files() {
    let scratch = Scratch::new("leave");
    let (one, two) = (scratch.join(), scratch.join());
    drop(one);
    assert!(!scratch.is_empty());
    drop(two);
    assert!(scratch.is_empty());
}

#[test]
fn packets_to_a_free_slot_are_dropped() {
    let scratch = Scratch::new("free-slot");
    let (mut one, two) = (scratch.join(), scratch.join());
    drop(two);
    for to in [0, 2, 64, 65, 255] {
        assert!(one.has_room(to));
        one.send(to, &packet(1, to, 0, b"")).unwrap();
    }
    assert_eq!(one.counters().undeliverable, 5);
}

#[test]
fn a_full_ring_refuses_and_draining_it_wakes_the_sender() {
    let scratch = Scratch::new("full");
    let (mut one, mut two) = (scratch.join(), scratch.join());
    let mut sent = 0;
    while one.has_room(2) {
        one.send(2, &packet(1, 2, sent, &[0; 4096])).unwrap();
        sent += 1;
    }
    assert!(one.send(2, &packet(1, 2, sent, b"")).is_err());
    one.waker().begin_sleep();
    assert!(!one.has_pending() && !readable(&one, Duration::ZERO));
    assert_eq!(psns(&mut two).len() as u32, sent);
    wake_peers(&mut two);
    assert!(readable(&one, Duration::ZERO) && one.has_pending());
    one.waker().end_sleep();
    one.waker().drain();
    assert_eq!(psns(&mut one), []);
    assert!(one.has_room(2) && !one.has_pending() && !readable(&one, Duration::ZERO));
}

#[test]
fn a_sleeping_process_is_woken_once_per_sleep_and_an_awake_one_never() {
    let scratch = Scratch::new("wake");
    let (mut one, mut two) = (scratch.join(), scratch.join());
    one.send(2, &packet(1, 2, 0, b"")).unwrap();
    assert!(!readable(&two, Duration::ZERO));
    assert_eq!(psns(&mut two), [0]);
    for round in 0..3 {
        two.waker().begin_sleep();
        assert!(!two.has_pending());
        one.send(2, &packet(1, 2, round, b"")).unwrap();
        assert!(
            !readable(&two, Duration::ZERO),
            "the wake-up is a second step"
        );
        wake_peers(&mut one);
        one.send(2, &packet(1, 2, round, b"")).unwrap();
        wake_peers(&mut one);
        assert!(readable(&two, Duration::ZERO));
        two.waker().end_sleep();
        two.waker().drain();
        assert!(!readable(&two, Duration::ZERO));
        assert_eq!(psns(&mut two), [round, round]);
    }
    two.waker().begin_sleep();
    two.waker().wake_own();
    assert!(readable(&two, Duration::ZERO));
}

/// The last ack of a process that exits: without it the peer would repeat its
/// request until its retries are exhausted.
#[test]
fn an_ack_is_delivered_after_its_sender_has_left() {
    let scratch = Scratch::new("last-word");
    let (mut one, mut two) = (scratch.join(), scratch.join());
    two.waker().begin_sleep();
    let mut acknowledge = packet(1, 2, 5, b"");
    acknowledge.header.operation = Operation::Acknowledge;
    one.send(2, &acknowledge).unwrap();
    wake_peers(&mut one);
    assert!(two.has_pending(), "the ack is in the ring");
    assert!(
        !readable(&two, Duration::ZERO),
        "but the peer is not woken for it"
    );
    drop(one);
    assert!(readable(&two, Duration::ZERO));
    two.waker().end_sleep();
    assert_eq!(psns(&mut two), [5]);
}

#[test]
fn a_wake_up_for_acks_waits_for_other_packets_or_until_the_sender_sleeps() {
    let scratch = Scratch::new("acknowledge");
    let (mut one, two) = (scratch.join(), scratch.join());
    two.waker().begin_sleep();
    let mut acknowledge = packet(1, 2, 0, b"");
    acknowledge.header.operation = Operation::Acknowledge;
    one.send(2, &acknowledge).unwrap();
    wake_peers(&mut one);
    assert!(one.has_delayed_wakes() && !readable(&two, Duration::ZERO));
    let wakes = one.take_wakes();
    one.waker().wake(wakes);
    assert!(!one.has_delayed_wakes() && readable(&two, Duration::ZERO));
    two.waker().end_sleep();
    two.waker().drain();
    two.waker().begin_sleep();
    one.send(2, &acknowledge).unwrap();
    one.send(2, &packet(1, 2, 1, b"")).unwrap();
    wake_peers(&mut one);
    assert!(!one.has_delayed_wakes() && readable(&two, Duration::ZERO));
}

#[test]
fn a_reused_slot_gets_no_packets_for_its_predecessor() {
    let scratch = Scratch::new("takeover");
    let mut one = scratch.join();
    // The 64 slots are used in turn: join until slot 2 is used again.
    let mut second = scratch.join();
    assert_eq!(second.slot(), 2);
    one.send(2, &packet(1, 2, 1, b"old")).unwrap();
    second.send(1, &packet(2, 1, 2, b"last words")).unwrap();
    drop(second);
    assert_eq!(psns(&mut one), [2], "sent before leaving");
    for expected in 3..=64 {
        assert_eq!(scratch.join().slot(), expected);
    }
    let mut second = scratch.join();
    assert_eq!(second.slot(), 2);
    one.send(2, &packet(1, 2, 3, b"new")).unwrap();
    assert_eq!(psns(&mut second), [3]);
    assert_eq!(second.counters().stale, 1);
}

#[test]
fn packets_with_wrong_slot_numbers_are_not_delivered() {
    let scratch = Scratch::new("wrong-slot");
    let (mut one, mut two) = (scratch.join(), scratch.join());
    one.send(2, &packet(9, 2, 0, b"")).unwrap();
    one.send(2, &packet(1, 9, 0, b"")).unwrap();
    one.send(2, &packet(1, 2, 5, b"")).unwrap();
    assert_eq!(psns(&mut two), [5]);
    assert_eq!(two.counters().stale, 2);
}

#[test]
fn a_fabric_accepts_as_many_processes_as_it_has_slots() {
    let scratch = Scratch::new("slots");
    let all: Vec<_> = (0..64).map(|_| scratch.join()).collect();
    let error = join(&scratch.0).unwrap_err();
    assert!(
        matches!(error, JoinError::Full { limit: 64, .. }),
        "{error}"
    );
    drop(all);
    assert!(scratch.is_empty());
}

#[test]
fn another_version_is_refused_while_it_is_alive_and_replaced_afterwards() {
    let scratch = Scratch::new("version");
    let directory = scratch.directory();
    directory.segment().unwrap().set_len(100).unwrap();
    let alive = directory.take_slot(3).unwrap();
    assert!(matches!(join(&scratch.0), Err(JoinError::Version { .. })));
    drop(alive);
    assert_eq!(scratch.join().slot(), 1);
}

#[test]
fn a_lock_on_a_removed_file_does_not_count() {
    let scratch = Scratch::new("lock");
    let directory = scratch.directory();
    let held = directory.lock().unwrap().unwrap();
    let waiter = std::thread::spawn({
        let directory = directory.clone();
        move || directory.lock().unwrap().is_some()
    });
    directory.remove();
    drop(held);
    assert!(!waiter.join().unwrap());
    assert!(scratch.is_empty());
}

const ROLE: &str = "MLX5EMU_TEST_FABRIC_ROLE";
const BASE: &str = "MLX5EMU_TEST_FABRIC_BASE";

/// The second process's main function; does nothing when run as a test.
#[test]
fn second_process() {
    let (Ok(role), Some(base)) = (std::env::var(ROLE), std::env::var_os(BASE)) else {
        return;
    };
    let mut attachment = join(Path::new(&base)).unwrap();
    let me = attachment.slot();
    attachment.send(1, &packet(me, 1, 0, b"here")).unwrap();
    match role.as_str() {
        // Sends each packet's payload back until a packet requests it to exit.
        "echo" => loop {
            let mut payload = Vec::new();
            let Some(header) = attachment.receive(&mut payload) else {
                std::thread::yield_now();
                continue;
            };
            if payload == b"leave" {
                break;
            }
            let back = (header.source_qpn.0 >> 16) as u8;
            attachment
                .send(back, &packet(me, back, header.psn, &payload))
                .unwrap();
        },
        // Sends as fast as possible until it is killed.
        "flood" => {
            let mut psn = 1;
            loop {
                let payload = vec![psn as u8; psn as usize % 4096];
                if attachment
                    .send(1, &packet(me, 1, psn % (1 << 24), &payload))
                    .is_ok()
                {
                    psn += 1;
                } else {
                    std::thread::yield_now();
                }
            }
        }
        // Stays attached and does not read.
        "deaf" => std::thread::sleep(Duration::from_secs(600)),
        other => panic!("no role {other:?}"),
    }
}

struct SecondProcess(Child);

impl SecondProcess {
    fn start(scratch: &Scratch, role: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "fabric::tests::second_process",
                "--test-threads=1",
            ])
            .envs([(ROLE, role)])
            .env(BASE, &scratch.0)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for SecondProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn receive(attachment: &mut Attachment) -> (Header, Vec<u8>) {
    let mut payload = Vec::new();
    let mut found = None;
    eventually("a packet arrives", || {
        found = attachment.receive(&mut payload);
        found.is_some()
    });
    (found.unwrap(), payload)
}

#[test]
fn two_processes_exchange_packets_and_clean_up() {
    let scratch = Scratch::new("processes");
    let mut one = scratch.join();
    let mut second = SecondProcess::start(&scratch, "echo");
    assert_eq!(receive(&mut one).1, b"here");
    for psn in 100..1100 {
        one.send(2, &packet(1, 2, psn, &psn.to_le_bytes())).unwrap();
        let (header, payload) = receive(&mut one);
        assert_eq!((header.psn, payload), (psn, psn.to_le_bytes().to_vec()));
    }
    one.send(2, &packet(1, 2, 0, b"leave")).unwrap();
    assert!(second.0.wait().unwrap().success());
    drop(one);
    assert!(scratch.is_empty());
}

#[test]
fn a_writer_killed_at_any_moment_leaves_only_complete_packets() {
    let scratch = Scratch::new("killed");
    let mut one = scratch.join();
    for round in 0..5_u32 {
        let mut second = SecondProcess::start(&scratch, "flood");
        assert_eq!(receive(&mut one).1, b"here");
        let mut expected = 1;
        let mut check = |one: &mut Attachment| {
            let mut payload = Vec::new();
            let Some(header) = one.receive(&mut payload) else {
                return false;
            };
            assert_eq!(header.psn, expected);
            assert_eq!(payload, vec![expected as u8; expected as usize % 4096]);
            expected += 1;
            true
        };
        for _ in 0..round * 701 {
            eventually("the flood goes on", || check(&mut one));
        }
        second.kill();
        while check(&mut one) {}
        assert_eq!(one.counters().malformed, 0);
    }
}

#[test]
fn a_peer_is_busy_until_it_has_served_its_packets_or_its_process_ends() {
    let scratch = Scratch::new("unheard");
    let (mut one, mut two) = (scratch.join(), scratch.join());
    assert!(!one.peer_is_busy(2), "nothing was sent");
    one.send(2, &packet(1, 2, 7, b"x")).unwrap();
    assert!(one.peer_is_busy(2));
    assert_eq!(psns(&mut two), [7]);
    assert!(one.peer_is_busy(2), "taken and not yet served");
    two.served();
    assert!(!one.peer_is_busy(2));
    drop(two);
    let mut second = SecondProcess::start(&scratch, "deaf");
    assert_eq!(receive(&mut one).1, b"here");
    let slot = (2..=64)
        .find(|&to| {
            one.send(to, &packet(1, to, 0, b"")).unwrap();
            one.peer_is_busy(to)
        })
        .expect("the second process is in a slot");
    second.kill();
    eventually("the dead reader is noticed", || !one.peer_is_busy(slot));
}

#[test]
fn a_full_ring_whose_reader_was_killed_does_not_block_its_sender() {
    let scratch = Scratch::new("deaf");
    let mut one = scratch.join();
    let mut second = SecondProcess::start(&scratch, "deaf");
    assert_eq!(receive(&mut one).1, b"here");
    while one.has_room(2) {
        one.send(2, &packet(1, 2, 0, &[0; 4096])).unwrap();
    }
    assert!(!one.has_room(2), "the reader is alive");
    second.kill();
    eventually("the dead reader is noticed", || one.has_room(2));
    one.send(2, &packet(1, 2, 0, b"")).unwrap();
    assert_eq!(one.counters().undeliverable, 1);
    // A new process can be reached, whichever slot it gets.
    let mut third = scratch.join();
    one.send(third.slot(), &packet(1, third.slot(), 9, b""))
        .unwrap();
    assert_eq!(psns(&mut third), [9]);
}
