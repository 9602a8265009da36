//! `DAT_INSUFFICIENT_RESOURCES` and `DAT_CONN_QUAL_UNAVAILABLE`: every call that
//! makes something runs out of the device's memory (on the emulated NIC, which
//! can be made to have none for the n-th command), of descriptors, of qualifiers.
//! Each is tried with its first need refused, then with its second, and so on
//! until it succeeds: so whatever it has to take back, it has to take back here.
//!
//! Queues that are full are in `ep_post_recv`, `posting` and `memory`. Threads
//! cannot be made to lack for a privileged user, who alone can run all tests.

use std::fs;
use std::mem;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use dat::abi::*;
use dat::exports::*;

use mlx5emu::emulator::Emulator;
use mlx5emu::faults::FaultSpec;
use mlx5emu::nic::Census;

use crate::support::{
    Bed, Door, End, Memory, Shape, accept, c_name, device, ep_info, expect, fails, fails_with, ok,
    on_free_qualifier, srq, state_of, wait, words,
};

/// What nobody writes on failure.
const UNTOUCHED: usize = 0x77;

/// How what a call made is unmade.
type Undo = Box<dyn FnOnce()>;

/// A call that makes something, and what it needs.
struct Row {
    call: &'static str,
    make: fn(&World) -> Result<Undo, DAT_RETURN>,
    /// Something on the device; a descriptor. What an endpoint needs of an EVD
    /// that has served another is there already.
    needs: (bool, bool),
}

/// What the calls are tried on.
struct World {
    bed: Bed,
    evds: End,
    memory: Memory,
    srq: DAT_SRQ_HANDLE,
    door: Door,
    end: End,
}

impl World {
    fn new() -> Self {
        let bed = Bed::new();
        Self {
            evds: End::without_ep(&bed, &Shape::default()),
            memory: bed.memory(4096),
            srq: srq(&bed, 8),
            door: Door::new(&bed),
            end: End::new(&bed, &Shape::default()),
            bed,
        }
    }
}

/// Answers how to undo a call that has succeeded; looks that one that has not
/// has left its result alone.
fn made(
    answer: DAT_RETURN,
    handle: DAT_HANDLE,
    free: unsafe extern "C" fn(DAT_HANDLE) -> DAT_RETURN,
) -> Result<Undo, DAT_RETURN> {
    if answer == DAT_SUCCESS {
        // SAFETY: a live handle, freed once.
        Ok(Box::new(move || ok(unsafe { free(handle) })))
    } else {
        assert_eq!(handle.addr(), UNTOUCHED);
        Err(answer)
    }
}

fn blank() -> DAT_HANDLE {
    ptr::without_provenance_mut(UNTOUCHED)
}

fn open_ia() -> Result<Undo, DAT_RETURN> {
    let name = c_name();
    let (mut evd, mut ia) = (ptr::null_mut(), blank());
    // SAFETY: every pointer leads to what the call expects.
    let answer = unsafe {
        dat_ia_openv(
            name.as_ptr().cast_mut(),
            8,
            &raw mut evd,
            &raw mut ia,
            1,
            2,
            DAT_FALSE,
        )
    };
    if answer != DAT_SUCCESS {
        assert_eq!((ia.addr(), evd.addr()), (UNTOUCHED, 0));
        return Err(answer);
    }
    // SAFETY: a live handle.
    let close = move || ok(unsafe { dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG) });
    Ok(Box::new(close))
}

fn create_pz(world: &World) -> Result<Undo, DAT_RETURN> {
    let mut pz = blank();
    // SAFETY: a live handle; the result is writable.
    let answer = unsafe { dat_pz_create(world.bed.ia, &raw mut pz) };
    made(answer, pz, dat_pz_free)
}

fn create_evd(world: &World) -> Result<Undo, DAT_RETURN> {
    let mut evd = blank();
    // SAFETY: a live handle; the result is writable.
    let answer = unsafe {
        dat_evd_create(
            world.bed.ia,
            8,
            DAT_HANDLE_NULL,
            DAT_EVD_DTO_FLAG,
            &raw mut evd,
        )
    };
    made(answer, evd, dat_evd_free)
}

fn create_cno(world: &World) -> Result<Undo, DAT_RETURN> {
    // SAFETY: a pointer and a function that may be null: zeros are good.
    let (mut cno, nobody) = (blank(), unsafe { mem::zeroed() });
    // SAFETY: a live handle; no agent; the result is writable.
    let answer = unsafe { dat_cno_create(world.bed.ia, nobody, &raw mut cno) };
    made(answer, cno, dat_cno_free)
}

fn create_srq(world: &World) -> Result<Undo, DAT_RETURN> {
    let mut queue = blank();
    let mut attributes = DAT_SRQ_ATTR {
        max_recv_dtos: 8,
        max_recv_iov: 2,
        low_watermark: DAT_SRQ_LW_DEFAULT,
    };
    // SAFETY: live handles; the attributes are ours, the result is writable.
    let answer = unsafe {
        dat_srq_create(
            world.bed.ia,
            world.bed.pz,
            &raw mut attributes,
            &raw mut queue,
        )
    };
    made(answer, queue, dat_srq_free)
}

fn create_ep(world: &World) -> Result<Undo, DAT_RETURN> {
    let (mut ep, evds) = (blank(), world.evds);
    let attributes = Shape::default().attributes();
    // SAFETY: live handles; the attributes are ours, the result is writable.
    let answer = unsafe {
        dat_ep_create(
            world.bed.ia,
            world.bed.pz,
            evds.recv,
            evds.request,
            evds.connect,
            &raw const attributes,
            &raw mut ep,
        )
    };
    made(answer, ep, dat_ep_free)
}

fn create_ep_with_srq(world: &World) -> Result<Undo, DAT_RETURN> {
    let (mut ep, evds) = (blank(), world.evds);
    let mut attributes = Shape::default().attributes();
    attributes.max_recv_dtos = DAT_HW_DEFAULT;
    // SAFETY: live handles; the attributes are ours, the result is writable.
    let answer = unsafe {
        dat_ep_create_with_srq(
            world.bed.ia,
            world.bed.pz,
            evds.recv,
            evds.request,
            evds.connect,
            world.srq,
            &raw const attributes,
            &raw mut ep,
        )
    };
    made(answer, ep, dat_ep_free)
}

fn register(
    world: &World,
    kind: DAT_MEM_TYPE,
    region: DAT_REGION_DESCRIPTION,
) -> Result<Undo, DAT_RETURN> {
    let mut lmr = blank();
    let (mut local, mut remote, mut length, mut address) = (0, 0, 0, 0);
    // SAFETY: live handles; what is registered lives as long as the world.
    let answer = unsafe {
        dat_lmr_create(
            world.bed.ia,
            kind,
            region,
            4096,
            world.bed.pz,
            DAT_MEM_PRIV_ALL_FLAG,
            &raw mut lmr,
            &raw mut local,
            &raw mut remote,
            &raw mut length,
            &raw mut address,
        )
    };
    made(answer, lmr, dat_lmr_free)
}

fn create_lmr(world: &World) -> Result<Undo, DAT_RETURN> {
    let at = ptr::with_exposed_provenance_mut(world.memory.address(0) as usize);
    register(
        world,
        DAT_MEM_TYPE_VIRTUAL,
        DAT_REGION_DESCRIPTION { for_va: at },
    )
}

fn create_lmr_of_an_lmr(world: &World) -> Result<Undo, DAT_RETURN> {
    let region = DAT_REGION_DESCRIPTION {
        for_lmr_handle: world.memory.lmr,
    };
    register(world, DAT_MEM_TYPE_LMR, region)
}

fn create_rmr(world: &World) -> Result<Undo, DAT_RETURN> {
    let mut rmr = blank();
    // SAFETY: a live handle; the result is writable.
    let answer = unsafe { dat_rmr_create(world.bed.pz, &raw mut rmr) };
    made(answer, rmr, dat_rmr_free)
}

fn create_psp(world: &World) -> Result<Undo, DAT_RETURN> {
    let requests = world.door.requests;
    let (mut psp, mut answer) = (blank(), DAT_SUCCESS);
    on_free_qualifier(|qualifier| {
        // SAFETY: live handles; the result is writable.
        answer = unsafe {
            dat_psp_create(
                world.bed.ia,
                qualifier,
                requests,
                DAT_PSP_CONSUMER_FLAG,
                &raw mut psp,
            )
        };
        let taken = answer & 0x3fff_0000 == DAT_CONN_QUAL_IN_USE;
        if taken { answer } else { DAT_SUCCESS }
    });
    made(answer, psp, dat_psp_free)
}

fn create_psp_any(world: &World) -> Result<Undo, DAT_RETURN> {
    let requests = world.door.requests;
    let (mut psp, mut qualifier) = (blank(), 0);
    // SAFETY: live handles; the results are writable.
    let answer = unsafe {
        dat_psp_create_any(
            world.bed.ia,
            &raw mut qualifier,
            requests,
            DAT_PSP_CONSUMER_FLAG,
            &raw mut psp,
        )
    };
    made(answer, psp, dat_psp_free)
}

const ROWS: [Row; 13] = [
    row("dat_pz_create", create_pz, (true, false)),
    row("dat_evd_create", create_evd, (false, true)),
    row("dat_cno_create", create_cno, (false, true)),
    row("dat_srq_create", create_srq, (true, false)),
    row("dat_ep_create", create_ep, (true, false)),
    row("dat_ep_create_with_srq", create_ep_with_srq, (true, false)),
    row("dat_lmr_create", create_lmr, (true, false)),
    row(
        "dat_lmr_create of an LMR",
        create_lmr_of_an_lmr,
        (true, false),
    ),
    row("dat_rmr_create", create_rmr, (true, false)),
    row("dat_psp_create", create_psp, (false, true)),
    row("dat_psp_create_any", create_psp_any, (false, true)),
    row("dat_ep_connect", connect, (false, true)),
    row("dat_ep_modify", modify, (true, false)),
];

const fn row(
    call: &'static str,
    make: fn(&World) -> Result<Undo, DAT_RETURN>,
    needs: (bool, bool),
) -> Row {
    Row { call, make, needs }
}

/// `dat_ep_connect` of an endpoint that is unconnected before and after.
fn connect(world: &World) -> Result<Undo, DAT_RETURN> {
    let (door, end) = (world.door, world.end);
    let answer = door.knock(end.ep, b"data");
    if answer != DAT_SUCCESS {
        assert_eq!(state_of(end.ep), DAT_EP_STATE_UNCONNECTED);
        return Err(answer);
    }
    Ok(Box::new(move || {
        let cr = door.opens();
        // SAFETY: a live handle of a request that nobody has answered.
        ok(unsafe { dat_cr_reject(cr) });
        expect(end.connect, DAT_CONNECTION_EVENT_PEER_REJECTED);
        // SAFETY: a live handle.
        ok(unsafe { dat_ep_reset(end.ep) });
    }))
}

/// `dat_ep_modify`, to a depth for which the endpoint takes another queue pair.
fn modify(world: &World) -> Result<Undo, DAT_RETURN> {
    fn to(ep: DAT_EP_HANDLE, depth: DAT_COUNT) -> DAT_RETURN {
        let mut change = ep_info(ep);
        change.ep_attr.max_request_dtos = depth;
        // SAFETY: a live handle; the values are ours.
        unsafe { dat_ep_modify(ep, DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS, &raw const change) }
    }
    let ep = world.end.ep;
    let depth = || ep_info(ep).ep_attr.max_request_dtos;
    let before = depth();
    match to(ep, 500) {
        DAT_SUCCESS => Ok(Box::new(move || ok(to(ep, before)))),
        answer => {
            assert_eq!(depth(), before);
            Err(answer)
        }
    }
}

/// Objects on the device, descriptors, threads.
type Held = (Option<Census>, usize, usize);

fn held() -> Held {
    let count = |folder: &str| fs::read_dir(folder).expect("proc(5)").count();
    (
        device::emulator().map(|emulator| emulator.nic().census()),
        count("/proc/self/fd"),
        count("/proc/self/task"),
    )
}

/// Whether nothing is held beyond what was.
fn is_no_more((objects, fds, tasks): &Held, (objects_then, fds_then, tasks_then): &Held) -> bool {
    let counts = |objects: &Option<Census>| {
        let all = objects.unwrap_or_default();
        [all.contexts, all.pds, all.keys, all.cqs, all.srqs, all.qps]
    };
    let pairs = counts(objects).into_iter().zip(counts(objects_then));
    pairs
        .chain([(*fds, *fds_then), (*tasks, *tasks_then)])
        .all(|(now, then)| now <= then)
}

/// What a call holds back for a moment: threads end on their own time, and so do
/// streams whose peer has hung up. So what was held before may have been too much
/// already, and less is right too; the answer is what the next call starts from.
#[track_caller]
fn all_is_back(before: Held, what: &str) -> Held {
    let begin = Instant::now();
    loop {
        let now = held();
        if is_no_more(&now, &before) {
            return now;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(5),
            "{what}: {now:?}, and before {before:?}"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// Calls again and again, with one need more satisfied each time, until the call
/// succeeds; answers how many needs it has.
#[track_caller]
fn needs(
    call: &str,
    make: impl Fn() -> Result<Undo, DAT_RETURN>,
    but: impl Fn(usize, bool),
) -> usize {
    const MANY: usize = 200;
    // What comes once and stays is there.
    make().unwrap_or_else(|answer| panic!("{call}: {}", words(answer)))();
    let mut before = held();
    for satisfied in 0..MANY {
        but(satisfied, true);
        let answer = make();
        but(satisfied, false);
        match answer {
            Ok(undo) => {
                undo();
                all_is_back(before, call);
                return satisfied;
            }
            Err(answer) => {
                let kind = answer & 0x3fff_0000;
                let text = words(answer);
                assert_eq!(
                    kind, DAT_INSUFFICIENT_RESOURCES,
                    "{call}, {satisfied}: {text}"
                );
                before = all_is_back(before, &format!("{call} with {satisfied}"));
            }
        }
    }
    panic!("{call} never succeeds");
}

/// The device has no memory for what comes after so many commands; nor when
/// libmlx5 asks again, as it does to open the device.
fn device_lacks(emulator: &Emulator, satisfied: usize, lacks: bool) {
    let words: Vec<_> = (1..=4)
        .map(|next| format!("enomem@{}", satisfied + next))
        .collect();
    let spec: FaultSpec = words.join(",").parse().expect("faults");
    emulator.set_faults(lacks.then_some(&spec));
}

/// The process may have so many descriptors more.
fn process_lacks(limit: &Limit, satisfied: usize, lacks: bool) {
    match lacks {
        true => limit.leave(satisfied),
        false => limit.lift(),
    }
}

#[test]
fn resources_of_the_device_are_told_and_nothing_is_left_behind() {
    let world = World::new();
    let Some(emulator) = device::emulator() else {
        eprintln!("SKIPPED: a device does not run out of memory on demand; the emulated one does");
        return;
    };
    for row in &ROWS {
        let lacks = |satisfied, lacks| device_lacks(emulator, satisfied, lacks);
        let count = needs(row.call, || (row.make)(&world), lacks);
        assert_eq!(count > 0, row.needs.0, "{}: {count}", row.call);
    }
}

#[test]
fn resources_of_the_process_are_told_and_nothing_is_left_behind() {
    let world = World::new();
    let limit = Limit::now(libc::RLIMIT_NOFILE);
    // By rdma_cm all connections of a process share a descriptor.
    let by_kernel = world.bed.manager() == "rdma_cm";
    let connects = ["dat_psp_create", "dat_psp_create_any", "dat_ep_connect"];
    for row in &ROWS {
        let lacks = |satisfied, lacks| process_lacks(&limit, satisfied, lacks);
        let count = needs(row.call, || (row.make)(&world), lacks);
        let needs = row.needs.1 && !(by_kernel && connects.contains(&row.call));
        assert_eq!(count > 0, needs, "{}: {count}", row.call);
    }
}

/// Opening an adapter whose device nobody has open.
#[test]
fn resources_for_an_adapter_are_told_and_nothing_is_left_behind() {
    let _turn = device::turn();
    let limit = Limit::now(libc::RLIMIT_NOFILE);
    let lacks = |satisfied, lacks| process_lacks(&limit, satisfied, lacks);
    assert!(needs("dat_ia_open", open_ia, lacks) > 3);
    match device::emulator() {
        Some(emulator) => {
            let lacks = |satisfied, lacks| device_lacks(emulator, satisfied, lacks);
            assert!(needs("dat_ia_open", open_ia, lacks) > 0);
        }
        None => eprintln!(
            "SKIPPED: the device's memory, which is used up on demand by an emulated one only"
        ),
    }
}

/// What libraries load when they are first used is loaded later if there were
/// no descriptors for it then.
#[test]
fn resources_for_the_first_adapter_of_a_process_may_come_later() {
    let _turn = device::turn();
    let limit = Limit::now(libc::RLIMIT_NOFILE);
    for more in 0..8 {
        limit.leave(more);
        let answer = open_ia();
        limit.lift();
        match answer {
            Ok(close) => close(),
            Err(answer) => fails(answer, DAT_INSUFFICIENT_RESOURCES),
        }
    }
    match open_ia() {
        Ok(close) => close(),
        Err(answer) => panic!("{}", words(answer)),
    }
}

/// A limit of the process, put back at the end.
struct Limit {
    of: libc::__rlimit_resource_t,
    before: libc::rlimit,
}

impl Limit {
    fn now(of: libc::__rlimit_resource_t) -> Self {
        let mut before = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the result is writable.
        let answer = unsafe { libc::getrlimit(of, &raw mut before) };
        assert_eq!(answer, 0);
        Self { of, before }
    }

    fn set(&self, value: libc::rlim_t) {
        let limit = libc::rlimit {
            rlim_cur: value,
            ..self.before
        };
        // SAFETY: a limit.
        let answer = unsafe { libc::setrlimit(self.of, &raw const limit) };
        assert_eq!(answer, 0);
    }

    fn lift(&self) {
        self.set(self.before.rlim_cur);
    }

    /// Of descriptors: lets so many more be made, as many as are free below it.
    fn leave(&self, more: usize) {
        let mut free = 0;
        let first_beyond = (0..).find(|&number| {
            // SAFETY: asks about a number.
            let is_free = unsafe { libc::fcntl(number, libc::F_GETFD) } < 0;
            free += usize::from(is_free);
            free > more
        });
        self.set(first_beyond.expect("a free one") as libc::rlim_t);
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        self.lift();
    }
}

/// A connection is made with the first, the second, … of what its two queue
/// pairs need refused. If the acceptor's cannot even begin, `dat_cr_accept` fails
/// and has changed nothing: the request waits for another try. After that it is
/// too late to go back, there and at the requester, who begins when he is told
/// that he is accepted: both ends hear of it, and serve again.
#[test]
fn resources_for_a_connection_lack_at_either_end_and_both_are_told() {
    let world = World::new();
    let Some(emulator) = device::emulator() else {
        eprintln!("SKIPPED: a device does not run out of memory on demand; the emulated one does");
        return;
    };
    let shape = Shape::default();
    let ends = [End::new(&world.bed, &shape), End::new(&world.bed, &shape)];
    let [active, passive] = &ends;
    let states = || ends.each_ref().map(|end| state_of(end.ep));
    let (mut refused, mut failed) = (0, 0);
    for satisfied in 0.. {
        ok(world.door.knock(active.ep, b"data"));
        let cr = world.door.opens();
        device_lacks(emulator, satisfied, true);
        let answer = accept(cr, passive.ep);
        if answer != DAT_SUCCESS {
            device_lacks(emulator, satisfied, false);
            fails_with(answer, DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
            assert_eq!(state_of(passive.ep), DAT_EP_STATE_UNCONNECTED);
            refused += 1;
            ok(accept(cr, passive.ep));
        }
        let (told, event, _) = wait(active.connect, 10_000_000, 1);
        ok(told);
        let event = event.event_number;
        device_lacks(emulator, satisfied, false);
        if event == DAT_CONNECTION_EVENT_ESTABLISHED {
            expect(passive.connect, event);
            if answer == DAT_SUCCESS {
                break;
            }
            assert_eq!(states(), [DAT_EP_STATE_CONNECTED; 2]);
            for end in &ends {
                // SAFETY: a live handle.
                ok(unsafe { dat_ep_disconnect(end.ep, DAT_CLOSE_ABRUPT_FLAG) });
                expect(end.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
            }
        } else {
            assert_eq!(event, DAT_CONNECTION_EVENT_NON_PEER_REJECTED, "{satisfied}");
            expect(
                passive.connect,
                DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR,
            );
            failed += 1;
        }
        assert_eq!(states(), [DAT_EP_STATE_DISCONNECTED; 2]);
        for end in &ends {
            // SAFETY: a live handle.
            let reset = || unsafe { dat_ep_reset(end.ep) };
            device_lacks(emulator, 0, true);
            let answer = reset();
            device_lacks(emulator, 0, false);
            fails_with(answer, DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
            assert_eq!(state_of(end.ep), DAT_EP_STATE_DISCONNECTED);
            ok(reset());
        }
    }
    assert!(refused > 0 && failed > 0, "{refused} {failed}");
}

/// A network of this thread's own that has so many ports to give; `false`, and
/// said why, if the system does not allow that.
fn ports_of_our_own(first: u16, last: u16) -> bool {
    const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
    // SAFETY: a flag.
    let unshared = match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => fs::write(RANGE, format!("{first} {last}")),
        _ => Err(std::io::Error::last_os_error()),
    };
    if let Err(error) = &unshared {
        eprintln!("SKIPPED: no network of its own for a thread: {error} (needs CAP_SYS_ADMIN)");
    }
    unshared.is_ok()
}

/// `dat_psp_create_any` when no qualifier is left on the host, and after that.
#[test]
fn resources_no_qualifier_is_left_until_one_is_given_back() {
    const PORTS: std::ops::RangeInclusive<u16> = 40_000..=40_003;
    let bed = Bed::new();
    let requests = bed.evd(8, DAT_EVD_CR_FLAG);
    let any = || {
        let (mut psp, mut qualifier) = (blank(), 0);
        // SAFETY: live handles; the results are writable.
        let answer = unsafe {
            dat_psp_create_any(
                bed.ia,
                &raw mut qualifier,
                requests,
                DAT_PSP_CONSUMER_FLAG,
                &raw mut psp,
            )
        };
        match answer {
            DAT_SUCCESS => Ok((psp, qualifier)),
            answer => {
                assert_eq!((psp.addr(), qualifier), (UNTOUCHED, 0));
                Err(answer)
            }
        }
    };
    if !ports_of_our_own(*PORTS.start(), *PORTS.end()) {
        return;
    }
    let mut points: Vec<_> = PORTS.map(|_| any().expect("one is left")).collect();
    let mut given: Vec<_> = points.iter().map(|(_, qualifier)| *qualifier).collect();
    given.sort_unstable();
    assert_eq!(given, PORTS.map(DAT_CONN_QUAL::from).collect::<Vec<_>>());
    let nothing_left = || {
        let answer = any().expect_err("none is left");
        fails_with(answer, DAT_CONN_QUAL_UNAVAILABLE, DAT_NO_SUBTYPE);
    };
    nothing_left();
    let (psp, qualifier) = points.pop().expect("four");
    // SAFETY: live handles, freed once.
    unsafe {
        ok(dat_psp_free(psp));
        let (psp, again) = any().expect("one is left");
        assert_eq!(again, qualifier);
        nothing_left();
        ok(dat_psp_free(psp));
        for (psp, _) in points {
            ok(dat_psp_free(psp));
        }
    }
}

/// The calling thread without `CAP_IPC_LOCK`, which it has again in the end.
struct Unprivileged([u32; 6]);

impl Unprivileged {
    const IPC_LOCK: u32 = 1 << 14;

    fn now() -> Self {
        let mut rights = [0; 6];
        Self::capabilities(libc::SYS_capget, &mut rights);
        let before = Self(rights);
        // What is in effect is the first word of the first half.
        rights[0] &= !Self::IPC_LOCK;
        Self::capabilities(libc::SYS_capset, &mut rights);
        before
    }

    /// `capget(2)` or `capset(2)` of the calling thread.
    fn capabilities(call: libc::c_long, rights: &mut [u32; 6]) {
        const VERSION_3: u32 = 0x2008_0522;
        let mut header = [VERSION_3, 0];
        // SAFETY: a header of version 3, which has two halves of three words.
        let answer = unsafe { libc::syscall(call, header.as_mut_ptr(), rights.as_mut_ptr()) };
        assert_eq!(answer, 0);
    }
}

impl Drop for Unprivileged {
    fn drop(&mut self) {
        Self::capabilities(libc::SYS_capset, &mut self.0);
    }
}

/// What may not be locked is no memory for the device: told as a lack of it, and
/// over when the limit is raised, or what was locked is freed.
#[test]
fn resources_memory_that_may_not_be_locked_cannot_be_registered() {
    let bed = Bed::new();
    let Some(emulator) = device::emulator() else {
        eprintln!("SKIPPED: a kernel's own limit (ulimit -l) would bind other tests, too");
        return;
    };
    let bytes = vec![0_u8; 64 << 10];
    let register = |len: u64| {
        let mut lmr = blank();
        let (mut local, mut remote, mut length, mut address) = (0, 0, 0, 0);
        let at = bytes.as_ptr().cast_mut().cast();
        // SAFETY: live handles; the memory lives to the end.
        let answer = unsafe {
            dat_lmr_create(
                bed.ia,
                DAT_MEM_TYPE_VIRTUAL,
                DAT_REGION_DESCRIPTION { for_va: at },
                len,
                bed.pz,
                DAT_MEM_PRIV_ALL_FLAG,
                &raw mut lmr,
                &raw mut local,
                &raw mut remote,
                &raw mut length,
                &raw mut address,
            )
        };
        made(answer, lmr, dat_lmr_free)
    };
    let refused = |call: Result<Undo, DAT_RETURN>| {
        let answer = call.err().expect("more than may be locked");
        fails_with(answer, DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    };
    emulator.nic().enforce_memlock(true);
    {
        let (_unprivileged, limit) = (Unprivileged::now(), Limit::now(libc::RLIMIT_MEMLOCK));
        limit.set(40 << 10);
        refused(register(64 << 10));
        let first = register(16 << 10).expect("little");
        refused(register(32 << 10));
        first();
        register(32 << 10).expect("as much as may be locked")();
    }
    register(64 << 10).expect("no limit any more")();
    emulator.nic().enforce_memlock(false);
}
