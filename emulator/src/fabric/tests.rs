//! The fabric between attachments of one process, and between processes:
//! the latter by running this test binary again as [`second_process`].

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::attachment::{Attachment, FabricCounters};
use super::directory::{FabricDirectory, JoinError};
use super::name::FabricName;
use super::packet::{Header, Operation, Packet, PacketFlags};
use super::segment::tests::{ring_offset, slot_offset};
use crate::nic::spec::{PortAddress, Qpn};

pub(crate) fn packet(from: u8, to: u8, psn: u32, payload: &[u8]) -> Packet {
    let port = PortAddress { device: 0, port: 1 };
    let header = Header {
        source: port,
        destination: port,
        source_qpn: Qpn(u32::from(from) << 16 | 1),
        destination_qpn: Qpn(u32::from(to) << 16 | 2),
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
    };
    Packet {
        header,
        payload: payload.to_vec(),
    }
}

/// A directory of its own for each test, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mlx5emu-{test}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn join(&self) -> Attachment {
        join(&self.0).unwrap()
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(&self.0).unwrap().next().is_none()
    }

    fn directory(&self) -> FabricDirectory {
        FabricDirectory::create(std::slice::from_ref(&self.0), &FabricName::default()).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn join(base: &Path) -> Result<Attachment, JoinError> {
    Attachment::join_under(&[base.to_owned()], &FabricName::default())
}

fn psns(attachment: &mut Attachment) -> Vec<u32> {
    let mut payload = Vec::new();
    std::iter::from_fn(|| attachment.receive(&mut payload).map(|header| header.psn)).collect()
}

fn readable(attachment: &Attachment, timeout: Duration) -> bool {
    use std::os::fd::AsRawFd;
    let fd = attachment.bells().fd().as_raw_fd();
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&raw mut poll, 1, timeout.as_millis() as i32) == 1 }
}

fn ring_urgent(attachment: &mut Attachment) {
    let wakes = attachment.take_urgent();
    attachment.bells().ring(wakes);
}

const SOON: Duration = Duration::from_secs(20);

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
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
fn sources_are_served_in_turn() {
    let scratch = Scratch::new("turns");
    let (mut one, mut two, mut three) = (scratch.join(), scratch.join(), scratch.join());
    for n in 0..3 {
        one.send(3, &packet(1, 3, 10 + n, b"")).unwrap();
        two.send(3, &packet(2, 3, 20 + n, b"")).unwrap();
    }
    assert_eq!(psns(&mut three), [10, 20, 11, 21, 12, 22]);
}

#[test]
fn the_last_to_leave_removes_everything() {
    let scratch = Scratch::new("leave");
    let (one, two) = (scratch.join(), scratch.join());
    drop(one);
    assert!(!scratch.is_empty());
    drop(two);
    assert!(scratch.is_empty());
}

#[test]
fn packets_to_nobody_vanish() {
    let scratch = Scratch::new("nobody");
    let (mut one, two) = (scratch.join(), scratch.join());
    drop(two);
    for to in [0, 2, 64, 65, 255] {
        assert!(one.has_room(to));
        one.send(to, &packet(1, to, 0, b"")).unwrap();
    }
    assert_eq!(one.counters().vanished, 5);
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
    one.bells().begin_sleep();
    assert!(!one.has_pending() && !readable(&one, Duration::ZERO));
    assert_eq!(psns(&mut two).len() as u32, sent);
    ring_urgent(&mut two);
    assert!(readable(&one, Duration::ZERO) && one.has_pending());
    one.bells().end_sleep();
    one.bells().drain();
    assert_eq!(psns(&mut one), []);
    assert!(one.has_room(2) && !one.has_pending() && !readable(&one, Duration::ZERO));
}

#[test]
fn a_sleeper_is_woken_once_per_sleep_and_an_awake_one_never() {
    let scratch = Scratch::new("wake");
    let (mut one, mut two) = (scratch.join(), scratch.join());
    one.send(2, &packet(1, 2, 0, b"")).unwrap();
    assert!(!readable(&two, Duration::ZERO));
    assert_eq!(psns(&mut two), [0]);
    for round in 0..3 {
        two.bells().begin_sleep();
        assert!(!two.has_pending());
        one.send(2, &packet(1, 2, round, b"")).unwrap();
        assert!(!readable(&two, Duration::ZERO), "the bell comes afterwards");
        ring_urgent(&mut one);
        one.send(2, &packet(1, 2, round, b"")).unwrap();
        ring_urgent(&mut one);
        assert!(readable(&two, Duration::ZERO));
        two.bells().end_sleep();
        two.bells().drain();
        assert!(!readable(&two, Duration::ZERO));
        assert_eq!(psns(&mut two), [round, round]);
    }
    two.bells().begin_sleep();
    two.bells().wake_own();
    assert!(readable(&two, Duration::ZERO));
}

/// The last acknowledgement of a process that ends: without it the peer
/// would repeat its request to nobody, and fail.
#[test]
fn an_acknowledgement_outlives_its_sender() {
    let scratch = Scratch::new("last-word");
    let (mut one, mut two) = (scratch.join(), scratch.join());
    two.bells().begin_sleep();
    let mut acknowledge = packet(1, 2, 5, b"");
    acknowledge.header.operation = Operation::Acknowledge;
    one.send(2, &acknowledge).unwrap();
    ring_urgent(&mut one);
    assert!(two.has_pending(), "whoever looks finds it");
    assert!(
        !readable(&two, Duration::ZERO),
        "but nobody is woken for it"
    );
    drop(one);
    assert!(readable(&two, Duration::ZERO));
    two.bells().end_sleep();
    assert_eq!(psns(&mut two), [5]);
}

#[test]
fn acknowledgements_wait_for_what_follows_or_for_their_sender_to_sleep() {
    let scratch = Scratch::new("acknowledge");
    let (mut one, two) = (scratch.join(), scratch.join());
    two.bells().begin_sleep();
    let mut acknowledge = packet(1, 2, 0, b"");
    acknowledge.header.operation = Operation::Acknowledge;
    one.send(2, &acknowledge).unwrap();
    ring_urgent(&mut one);
    assert!(one.has_patient() && !readable(&two, Duration::ZERO));
    let wakes = one.take_wakes();
    one.bells().ring(wakes);
    assert!(!one.has_patient() && readable(&two, Duration::ZERO));
    two.bells().end_sleep();
    two.bells().drain();
    two.bells().begin_sleep();
    one.send(2, &acknowledge).unwrap();
    one.send(2, &packet(1, 2, 1, b"")).unwrap();
    ring_urgent(&mut one);
    assert!(!one.has_patient() && readable(&two, Duration::ZERO));
}

#[test]
fn a_slot_taken_over_gets_nothing_that_was_meant_for_its_predecessor() {
    let scratch = Scratch::new("takeover");
    let mut one = scratch.join();
    // The 64 slots are used in turn: come round to slot 2 again.
    let mut second = scratch.join();
    assert_eq!(second.slot(), 2);
    one.send(2, &packet(1, 2, 1, b"old")).unwrap();
    second.send(1, &packet(2, 1, 2, b"last words")).unwrap();
    drop(second);
    assert_eq!(psns(&mut one), [2], "what was sent before leaving arrives");
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
fn packets_that_lie_about_their_slots_are_not_delivered() {
    let scratch = Scratch::new("liar");
    let (mut one, mut two) = (scratch.join(), scratch.join());
    one.send(2, &packet(9, 2, 0, b"")).unwrap();
    one.send(2, &packet(1, 9, 0, b"")).unwrap();
    one.send(2, &packet(1, 2, 5, b"")).unwrap();
    assert_eq!(psns(&mut two), [5]);
    assert_eq!(two.counters().stale, 2);
}

#[test]
fn a_fabric_takes_as_many_processes_as_it_has_slots() {
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

/// The directory of this user's fabrics under a base, by its number.
fn parent(base: &Path, number: u32) -> PathBuf {
    // SAFETY: geteuid(2) cannot fail.
    let user = unsafe { libc::geteuid() };
    match number {
        0 => base.join(format!("mlx5emu-{user}")),
        n => base.join(format!("mlx5emu-{user}-{n}")),
    }
}

#[test]
fn a_directory_that_others_may_enter_is_passed_over() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new("open");
    let first = parent(&scratch.0, 0);
    std::fs::create_dir(&first).unwrap();
    std::fs::set_permissions(&first, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(parent(&scratch.0, 1), "a file").unwrap();
    std::os::unix::fs::symlink("/tmp", parent(&scratch.0, 2)).unwrap();
    let (mut one, mut two) = (scratch.join(), scratch.join());
    assert!(one.directory().starts_with(parent(&scratch.0, 3)));
    let told: Vec<_> = one.passed_over().iter().map(ToString::to_string).collect();
    assert!(
        told[0].ends_with("is open to other users (mode 755)"),
        "{told:?}"
    );
    assert!(told[1].ends_with("is not a directory"), "{told:?}");
    assert!(told[2].ends_with("is not a directory"), "{told:?}");
    one.send(2, &packet(1, 2, 7, b"")).unwrap();
    assert_eq!(psns(&mut two), [7]);
    // The foreign entries go: a third process still finds the first two.
    std::fs::remove_dir(&first).unwrap();
    std::fs::remove_file(parent(&scratch.0, 1)).unwrap();
    std::fs::remove_file(parent(&scratch.0, 2)).unwrap();
    let third = scratch.join();
    assert_eq!((third.slot(), third.directory()), (3, one.directory()));
    drop((one, two, third));
    let fourth = scratch.join();
    assert!(fourth.directory().starts_with(&first));
    assert!(fourth.passed_over().is_empty());
}

#[test]
fn a_squatter_is_another_user_and_named() {
    // SAFETY: geteuid(2) cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: only root can create another user's directory");
        return;
    }
    let scratch = Scratch::new("squatter");
    for number in 0..8 {
        let squatted = parent(&scratch.0, number);
        std::fs::create_dir(&squatted).unwrap();
        std::os::unix::fs::chown(&squatted, Some(65534), None).unwrap();
    }
    let error = join(&scratch.0).unwrap_err().to_string();
    assert!(error.contains("belongs to user 65534"), "{error}");
    assert!(error.contains("TMPDIR"), "{error}");
    let second = Scratch::new("beside-squatter");
    let bases = [scratch.0.clone(), second.0.clone()];
    let attachment = Attachment::join_under(&bases, &FabricName::default()).unwrap();
    assert!(attachment.directory().starts_with(&second.0));
    assert_eq!(attachment.passed_over().len(), 8);
    drop(attachment);
    std::fs::remove_dir(parent(&scratch.0, 5)).unwrap();
    assert!(
        scratch
            .join()
            .directory()
            .starts_with(parent(&scratch.0, 5))
    );
}

#[test]
fn a_sweep_removes_dead_fabrics_and_no_other() {
    let scratch = Scratch::new("sweep");
    let bases = [scratch.0.clone()];
    let named = |name| FabricName::new(name).unwrap();
    let alive = Attachment::join_under(&bases, &named("alive")).unwrap();
    // What killed processes leave: the files, and no lock held.
    let dead = FabricDirectory::create(&bases, &named("dead")).unwrap();
    drop(dead.lock().unwrap());
    drop(dead.take_slot(1).unwrap());
    dead.fifo(1, true).unwrap();
    dead.segment().unwrap();
    let joining = FabricDirectory::create(&bases, &named("joining")).unwrap();
    let held = joining.lock().unwrap();
    // Between creating the directory and its lock: the joining process
    // notices, and begins again.
    let empty = FabricDirectory::create(&bases, &named("empty")).unwrap();
    FabricDirectory::sweep(&bases);
    assert!(alive.directory().join("segment").exists());
    assert!(joining.path().exists() && !dead.path().exists());
    assert!(!empty.path().exists() && empty.lock().unwrap().is_none());
    drop(held);
    FabricDirectory::sweep(&bases);
    assert!(!joining.path().exists());
    drop(alive);
    assert!(scratch.is_empty());
}

#[test]
fn another_version_is_refused_while_it_lives_and_replaced_when_it_is_gone() {
    let scratch = Scratch::new("version");
    let directory = scratch.directory();
    directory.segment().unwrap().set_len(100).unwrap();
    let alive = directory.take_slot(3).unwrap();
    assert!(matches!(join(&scratch.0), Err(JoinError::Version { .. })));
    drop(alive);
    assert_eq!(scratch.join().slot(), 1);
}

#[test]
fn a_lock_whose_file_was_removed_meanwhile_does_not_count() {
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

/// What the second process does; as a test of its own, nothing.
#[test]
fn second_process() {
    let (Ok(role), Some(base)) = (std::env::var(ROLE), std::env::var_os(BASE)) else {
        return;
    };
    let mut attachment = join(Path::new(&base)).unwrap();
    let me = attachment.slot();
    attachment.send(1, &packet(me, 1, 0, b"here")).unwrap();
    match role.as_str() {
        // Answers each packet with its own payload until told to leave.
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
        // Writes as fast as it can until it is killed.
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
        // Is there, and does not read.
        "deaf" => std::thread::sleep(Duration::from_secs(600)),
        other => panic!("no role {other:?}"),
    }
}

struct Second(Child);

impl Second {
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

impl Drop for Second {
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
    let mut second = Second::start(&scratch, "echo");
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
fn a_writer_killed_at_any_moment_leaves_only_whole_packets() {
    let scratch = Scratch::new("killed");
    let mut one = scratch.join();
    for round in 0..5_u32 {
        let mut second = Second::start(&scratch, "flood");
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
fn packets_are_unheard_until_their_reader_has_served_them_or_dies() {
    let scratch = Scratch::new("unheard");
    let (mut one, mut two) = (scratch.join(), scratch.join());
    assert!(!one.is_unheard(2), "nothing was sent");
    one.send(2, &packet(1, 2, 7, b"x")).unwrap();
    assert!(one.is_unheard(2));
    assert_eq!(psns(&mut two), [7]);
    assert!(one.is_unheard(2), "taken, and not yet answered");
    two.served();
    assert!(!one.is_unheard(2));
    drop(two);
    let mut second = Second::start(&scratch, "deaf");
    assert_eq!(receive(&mut one).1, b"here");
    let slot = (2..=64)
        .find(|&to| {
            one.send(to, &packet(1, to, 0, b"")).unwrap();
            one.is_unheard(to)
        })
        .expect("the second process is somewhere");
    second.kill();
    eventually("the dead reader is noticed", || !one.is_unheard(slot));
}

#[test]
fn a_full_ring_whose_reader_was_killed_does_not_block_its_sender_for_ever() {
    let scratch = Scratch::new("deaf");
    let mut one = scratch.join();
    let mut second = Second::start(&scratch, "deaf");
    assert_eq!(receive(&mut one).1, b"here");
    while one.has_room(2) {
        one.send(2, &packet(1, 2, 0, &[0; 4096])).unwrap();
    }
    assert!(!one.has_room(2), "the reader lives");
    second.kill();
    eventually("the dead reader is noticed", || one.has_room(2));
    one.send(2, &packet(1, 2, 0, b"")).unwrap();
    assert_eq!(one.counters().vanished, 1);
    // A new process is reached again, whichever slot it gets.
    let mut third = scratch.join();
    one.send(third.slot(), &packet(1, third.slot(), 9, b""))
        .unwrap();
    assert_eq!(psns(&mut third), [9]);
}

/// The shared segment of a fabric, as another process of the user sees it.
struct Intruder(memmap2::MmapRaw);

impl Intruder {
    fn new(at: &Attachment) -> Self {
        let file = open_segment(at);
        Self(memmap2::MmapOptions::new().map_raw(&file).unwrap())
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= self.0.len());
        // SAFETY: inside the mapping, and aligned by the callers.
        unsafe { AtomicU64::from_ptr(self.0.as_mut_ptr().add(offset).cast()) }
    }
}

fn open_segment(of: &Attachment) -> std::fs::File {
    let path = of.directory().join("segment");
    std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

/// Lets a receiver do what its NIC thread does.
fn serve(attachment: &mut Attachment) -> Vec<u32> {
    let found = psns(attachment);
    attachment.served();
    let wakes = attachment.take_wakes();
    attachment.bells().ring(wakes);
    found
}

#[test]
fn garbage_in_the_positions_of_a_ring_stalls_neither_end() {
    let scratch = Scratch::new("positions");
    let (mut one, mut two) = (scratch.join(), scratch.join());
    one.send(2, &packet(1, 2, 1, b"x")).unwrap();
    assert_eq!(serve(&mut two), [1]);
    let intruder = Intruder::new(&one);
    let ring = ring_offset(1, 2);
    for (n, (offset, garbage)) in (2..).zip([
        (0, u64::MAX / 2),
        (64, u64::MAX / 2),
        (0, 8),
        (64, 8),
        (0, 7_777_777),
        (64, 1),
    ]) {
        intruder
            .word(ring + offset)
            .store(garbage, Ordering::SeqCst);
        eventually("the ring gets room again", || {
            serve(&mut two);
            one.has_room(2)
        });
        eventually("nothing waits for ever to be heard", || {
            serve(&mut two);
            !one.is_unheard(2)
        });
        one.send(2, &packet(1, 2, n, b"x")).unwrap();
        let found = serve(&mut two);
        assert_eq!(found.last(), Some(&n), "{found:?}");
    }
}

#[test]
fn garbage_in_the_words_of_a_slot_does_not_last() {
    let scratch = Scratch::new("words");
    let (mut one, mut two) = (scratch.join(), scratch.join());
    one.send(2, &packet(1, 2, 1, b"x")).unwrap();
    assert_eq!(serve(&mut two), [1]);
    let intruder = Intruder::new(&one);
    let slot = slot_offset(2);
    // The word of `serving`: the peer seems to be busy for ever.
    intruder.word(slot + 8).store(7, Ordering::SeqCst);
    eventually("a peer that seems busy is looked after", || {
        let unheard = one.is_unheard(2);
        ring_urgent(&mut one);
        serve(&mut two);
        !unheard
    });
    // `life` and `sleep`: the peer seems to be gone, or to be awake.
    let life = intruder.word(slot).load(Ordering::SeqCst);
    two.bells().drain();
    two.bells().begin_sleep();
    intruder.word(slot).store(life & !1, Ordering::SeqCst);
    one.send(2, &packet(1, 2, 2, b"x")).unwrap();
    assert_eq!(one.counters().vanished, 1);
    two.served();
    one.send(2, &packet(1, 2, 3, b"x")).unwrap();
    ring_urgent(&mut one);
    // And `pending`: nobody has anything for it.
    intruder.word(slot + 64).store(0, Ordering::SeqCst);
    assert!(!readable(&two, Duration::ZERO) && !two.has_pending());
    eventually("the sender insists", || {
        assert!(one.is_unheard(2));
        readable(&two, Duration::ZERO)
    });
    assert_eq!(psns(&mut two), [3]);
    // Its own wake-up does not depend on the shared word.
    two.bells().drain();
    intruder.word(slot).store(life, Ordering::SeqCst);
    two.bells().wake_own();
    assert!(readable(&two, Duration::ZERO));
}

#[test]
fn a_peer_that_writes_garbage_without_end_does_not_keep_others_waiting() {
    let scratch = Scratch::new("without-end");
    let (mut one, mut two, mut three) = (scratch.join(), scratch.join(), scratch.join());
    one.send(3, &packet(1, 3, 1, b"x")).unwrap();
    assert_eq!(psns(&mut three), [1]);
    let intruder = Intruder::new(&one);
    let head = intruder.word(ring_offset(1, 3));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                head.fetch_add(1 << 40, Ordering::SeqCst);
            }
        });
        one.send(3, &packet(1, 3, 2, b"x")).unwrap();
        two.send(3, &packet(2, 3, 3, b"x")).unwrap();
        let mut payload = Vec::new();
        // Each call returns, and the honest peer has its turn.
        eventually("the honest peer is heard", || {
            three.receive(&mut payload).is_some_and(|it| it.psn == 3)
        });
        for _ in 0..100 {
            three.receive(&mut payload);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_truncated_segment_is_noticed_and_ends_no_process() {
    crate::guard::install();
    for (test, left) in [("truncated", 0), ("shortened", ring_offset(1, 2) as u64)] {
        let scratch = Scratch::new(test);
        let (mut one, mut two) = (scratch.join(), scratch.join());
        one.send(2, &packet(1, 2, 1, b"x")).unwrap();
        two.send(1, &packet(2, 1, 1, b"x")).unwrap();
        assert_eq!((psns(&mut one), psns(&mut two)), (vec![1], vec![1]));
        assert!(!one.is_lost() && !two.is_lost());
        open_segment(&one).set_len(left).unwrap();
        assert!(!one.is_lost(), "nobody has looked yet");
        two.bells().begin_sleep();
        eventually("the sender notices", || {
            let _ = one.send(2, &packet(1, 2, 2, b"x"));
            one.is_lost()
        });
        let trouble = one.take_trouble().expect("told once").to_string();
        assert!(trouble.contains("truncated"), "{trouble}");
        assert!(one.take_trouble().is_none());
        assert!(readable(&two, Duration::ZERO), "its peer is woken");
        two.bells().end_sleep();
        eventually("the peer notices, or sees it gone", || {
            let _ = two.send(1, &packet(2, 1, 2, b"x"));
            psns(&mut two);
            two.is_lost() || two.counters().vanished != 0
        });
        // What is lost neither refuses nor waits, nor says anything more.
        assert!(one.has_room(2) && !one.is_unheard(2));
        one.send(2, &packet(1, 2, 3, b"x")).unwrap();
        assert!(psns(&mut one).is_empty() && !one.has_pending());
    }
}
