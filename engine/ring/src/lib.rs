//! The queues of mlx5 devices (ConnectX) as they lie in memory: send, receive,
//! shared receive and completion rings.
//!
//! An mlx5 device reads requests from rings in the program's memory, and writes
//! completions to others. Given the addresses of its rings, a program posts and
//! polls by loads and stores alone, without a call into a library or the kernel.
//! This crate contains those loads and stores.
//!
//! The crate opens no device and creates no queue. A [`layout`] describes where a
//! ring lies, by plain addresses and sizes. A driver library exports them
//! (`mlx5dv_init_obj` of rdma-core); a test can use ordinary memory.
//! [The example](#example) at the end of this page simulates the device.
//!
//! # Rings in memory
//!
//! | memory | content |
//! | --- | --- |
//! | send ring | requests (WQE) of one or more blocks of 64 bytes (WQEBB), without gaps |
//! | receive ring | receives, one `stride` apart; data segments only |
//! | shared receive ring | the same; each WQE begins with the index of the next one |
//! | completion ring | completions (CQE) of 64 or 128 bytes |
//! | doorbell records | big-endian counters that the device reads: how far each ring is written, how far completions are read |
//! | doorbell register | a page of the device (UAR): a store there starts the device |
//!
//! A send WQE is a row of segments, each of them one or more units of 16 bytes:
//!
//! ```text
//! unit 0  control segment  opcode, WQEBB counter, QP, size, flags, immediate
//! unit 1  remote segment   RDMA and atomics: the peer's address and key
//! unit 2  atomic segment   atomics only: the operands
//! then    data segments    one unit each: length, local key, address
//!         or inline data   a header of 4 bytes, and the message itself
//! ```
//!
//! # Layers
//!
//! | layer | what it does |
//! | --- | --- |
//! | [`wire`] | the bytes of segments and CQEs, as values. Accesses no memory |
//! | [`mmio`] | barriers, shared words, doorbell records, doorbell registers |
//! | [`send`], [`receive`], [`shared`], [`complete`] | the rings: where bytes are written, and in which order |
//!
//! Each layer uses those above it. Besides, [`layout`], [`request`] and [`status`] are
//! the plain types of arguments and results, [`scatter`] copies messages that arrived
//! in a CQE, and [`sync`] has the locks.
//!
//! # From a request to the device
//!
//! [`SendProducer::post`](send::SendProducer::post) takes these steps:
//!
//! 1. **Reserve.** [`Credits`] compare two counters. The ring has room for as many of
//!    the longest WQEs as may be outstanding, so a free credit means free room.
//! 2. **Write the segments**, from unit 1 on. A WQE that reaches the end of the ring
//!    continues at its start.
//! 3. **Commit.** The control segment is written last. The data that the completion
//!    needs are stored beside the ring: the request's `wr_id` (64 bits of the caller),
//!    its `wr_data` (32 more bits), and the count of requests so far.
//! 4. **Doorbell record.** After `before_record` the
//!    count of WQEBBs is stored in the record. From then on the WQE belongs to the
//!    device.
//! 5. **Register.** After `before_register` the first
//!    eight bytes of the WQE are stored in the register, which starts the device. A
//!    register that only this queue pair rings can take the whole WQE (*BlueFlame*); the
//!    device then need not fetch it. `after_register` flushes the
//!    stores, and the next doorbell goes to the other half of the register.
//!
//! Several requests of one [`post_list`](send::SendProducer::post_list) share steps 4
//! and 5. Receives ([`RecvProducer`](receive::RecvProducer),
//! [`SharedRecvProducer`](shared::SharedRecvProducer), both through [`PostReceives`])
//! have no control segment and no register: step 4 is the last.
//!
//! # From the device to a completion
//!
//! 1. **Peek.** [`CompletionRing::peek`](complete::CompletionRing::peek) reads the last
//!    byte of the next CQE: the opcode, and the *owner bit*. The device writes that byte
//!    last, and inverts the owner bit on each lap of the ring, so the bit distinguishes
//!    a new CQE from that of the previous lap. In a ring of `count` entries the CQE of
//!    counter `n` is written once its owner bit equals `n & count != 0`.
//! 2. **Barrier.** `after_ownership` keeps the
//!    processor from reading the rest earlier than that byte.
//! 3. **Read** through the [`Slot`](complete::Slot): which queue pair, which request
//!    (`wqe_counter`), how many bytes.
//! 4. **Retire** the request:
//!    [`SendConsumer::retire`](send::SendConsumer::retire) returns its `wr_id`, and
//!    releases all requests up to it to the producer. Requests without
//!    [`SIGNALED`](request::SendFlags::SIGNALED) write no CQE, and are retired with the
//!    next one that does.
//! 5. **Release the CQE.** [`advance`](complete::CompletionRing::advance) consumes it, and
//!    [`publish`](complete::CompletionRing::publish) stores the consumer index in the
//!    completion queue's doorbell record. One `publish` can follow many `advance`.
//!
//! To sleep instead of polling, [`arm`](complete::CompletionRing::arm) the completion
//! queue, poll once more, and wait for the event.
//!
//! # Numbers and units
//!
//! | number | unit | bits |
//! | --- | --- | --- |
//! | size of a WQE in its control segment (`ds`) | 16 bytes ([`wire::UNIT`]) | 6 |
//! | counter of a send ring, and `wqe_counter` of its CQEs | WQEBB, 64 bytes ([`wire::WQEBB`]) | 16 |
//! | counter of a receive ring, and `wqe_counter` of its CQEs | WQE | 16 |
//! | `wqe_counter` of CQEs of a shared receive ring | index of the WQE | 16 |
//! | consumer index of a completion ring | CQE | 24 |
//! | queue pair, SRQ and CQ numbers | | 24 |
//!
//! Counters run freely and are masked to the ring where it is accessed ([`RingSize`]).
//! Everything that the device reads or writes is big endian ([`wire::Be32`] and its
//! siblings); arguments and results of this crate are in host order.
//!
//! # Threads
//!
//! The send and receive rings have two halves. The *producer* posts, through `&mut`; the
//! *consumer* retires, through `&`, on the thread that polls the completion queue. The
//! two may run on different threads and never wait for each other: they share the
//! counter of retired requests and the `wr_id`s, all atomics. Threads wait for each other at a
//! register that several send rings share, and at a shared receive ring with several pollers. A
//! [`CompletionRing`](complete::CompletionRing) has one user at a time; any thread can read
//! its [`Entries`](complete::Entries). Nothing here allocates after a ring is created.
//!
//! # Errors
//!
//! - [`LayoutError`](layout::LayoutError): a layout is inconsistent.
//! - [`PostError`](request::PostError): a request was refused; nothing of it reaches the
//!   device. [`ListError`](request::ListError) also has the number of requests that were
//!   posted before it.
//! - An error CQE: its [`Syndrome`](wire::Syndrome) is a [`Status`](status::Status), with
//!   a likely cause ([`Status::hint`](status::Status::hint)).
//!
//! # Safety
//!
//! The device accesses memory by itself, so some conditions cannot be checked here. The
//! caller of an `unsafe` function promises them. There are four kinds:
//!
//! - **Constructors**: the memory and registers of the layout are valid, aligned, and
//!   used by nothing else, for as long as the ring exists; a producer's consumer is not
//!   moved.
//! - **Posts**: the memory of the segments is not used until the request completes.
//! - **Retiring**: the device is done with a request, because its completion was read.
//!   A request that is released too early is overwritten while the device reads it.
//! - **Advancing**: the device has written the CQE.
//!
//! Indices and counters from the device are masked to the ring. So a faulty device leads
//! to a wrong `wr_id`, but never to an access outside the ring. No reference is formed to
//! memory that the device writes; this crate reads it by atomic and volatile loads.
//!
//! # Sources
//!
//! *PRM* is the vendor's Adapters Programmer's Reference Manual (MLNX-15-4845;
//! section numbers differ between revisions). `mlx5dv.h` is the installed
//! header; the other files are rdma-core's.
//!
//! | fact | source |
//! | --- | --- |
//! | segments, opcodes and flags of WQEs | `mlx5dv.h` (`mlx5_wqe_*_seg`, `MLX5_OPCODE_*`); PRM "Work Queues" |
//! | CQE, owner bit, syndromes | `mlx5dv.h` (`mlx5_cqe64`, `mlx5_err_cqe`, `MLX5_CQE_*`); `providers/mlx5/cq.c`: `get_sw_cqe`; PRM "Completion Queues" |
//! | order of a doorbell's stores, BlueFlame | `providers/mlx5/qp.c`: `post_send_db`; PRM "User Access Region" |
//! | receives: empty segments, terminator | `providers/mlx5/qp.c`: `mlx5_post_recv`; `providers/mlx5/srq.c`: `mlx5_post_srq_recv` |
//! | order of the links of a shared ring | `providers/mlx5/srq.c` since v48 |
//! | messages in CQEs | `providers/mlx5/qp.c`: `mlx5_copy_to_recv_wqe`, `mlx5_copy_to_send_wqe` |
//! | consumer index, arming | `providers/mlx5/cq.c`: `update_cons_index`, `mlx5_arm_cq` |
//! | atomic operations | `mlx5dv.h` (`mlx5_wqe_atomic_seg`); `providers/mlx5/qp.c`: `set_atomic_seg` |
//! | memory windows of type 1 | `providers/mlx5/qp.c`: `set_bind_wr`; `mlx5dv.h` (`mlx5_wqe_umr_ctrl_seg`) |
//! | barriers | `util/udma_barrier.h`, and the sources named in [`mmio::barrier`] |
//!
//! # Example
//!
//! A send ring and a completion ring over plain memory. The program posts one send. Then
//! it simulates the device: it reads what the device would read, and writes the CQE.
//!
//! ```
//! use core::ptr::NonNull;
//!
//! use mlx5_rings::complete::CompletionRing;
//! use mlx5_rings::layout::{CompletionLayout, RegisterLayout, SendLayout};
//! use mlx5_rings::mmio::{DmaCell, DoorbellRecord};
//! use mlx5_rings::request::{Segment, SendFlags, SendOp, SendRequest};
//! use mlx5_rings::send::{DoorbellPolicy, SendConsumer, SendProducer};
//! use mlx5_rings::wire::{CqeOpcode, CtrlSegment, DataSegment, WqeOpcode, cqe_offset};
//!
//! /// Memory that is never freed, aligned as rings, records and registers are.
//! #[repr(align(4096))]
//! struct Page([u8; 4096]);
//!
//! fn page() -> NonNull<u8> {
//!     NonNull::from(Box::leak(Box::new(Page([0; 4096])))).cast()
//! }
//!
//! /// Reads a word as the device would, in one access.
//! ///
//! /// # Safety
//! /// The word is valid.
//! unsafe fn word(at: NonNull<u8>, index: usize) -> u64 {
//!     unsafe { DmaCell::new(at.cast::<u64>().add(index)) }.read()
//! }
//!
//! const QPN: u32 = 0x12_3456;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let (sends, completions, records, uar) = (page(), page(), page(), page());
//!     // SAFETY: all offsets in this program are inside their page, and aligned.
//!     let record = |word: usize| unsafe { records.cast::<u32>().add(word) };
//!     let register = unsafe { uar.add(0x800) };
//!
//!     // As a driver leaves a completion ring: every entry has the opcode INVALID.
//!     const ENTRIES: u32 = 16;
//!     for entry in 0..ENTRIES as usize {
//!         let last_byte = 64 * entry + cqe_offset::OWN_OP;
//!         unsafe { completions.add(last_byte).write(CqeOpcode::INVALID.0 << 4) };
//!     }
//!
//!     // Where the rings lie.
//!     let doorbell = RegisterLayout::new(register);
//!     let send_layout = SendLayout::new(sends, 16, record(1), doorbell, QPN);
//!     let completion_layout = CompletionLayout {
//!         buf: completions,
//!         cqe_count: ENTRIES,
//!         cqe_size: 64,
//!         dbrec: record(16),
//!         uar,
//!         cqn: 7,
//!     };
//!
//!     // SAFETY: the pages are large enough, never freed, and used by nothing else.
//!     let consumer = unsafe { SendConsumer::new(&send_layout) }?;
//!     // SAFETY: as above.
//!     let mut ring = unsafe { CompletionRing::new(&completion_layout) }?;
//!     let policy = DoorbellPolicy {
//!         blue_flame: false,
//!         locked: false,
//!     };
//!     // SAFETY: the consumer is not moved, and outlives the only producer.
//!     let mut producer = unsafe { SendProducer::new(&send_layout, policy, &consumer) };
//!     producer.open(); // The queue pair has reached RTS.
//!
//!     // Post a send.
//!     let message = *b"hello";
//!     let segment = Segment {
//!         addr: message.as_ptr().expose_provenance() as u64,
//!         length: 5,
//!         lkey: 0x1100,
//!     };
//!     let request = SendRequest {
//!         wr_id: 42,
//!         op: SendOp::Send,
//!         flags: SendFlags::SIGNALED,
//!         segments: &[segment],
//!     };
//!     // SAFETY: the message outlives the request.
//!     unsafe { producer.post(&request, 0) }?;
//!
//!     // What the device reads. The doorbell record: one WQEBB is written.
//!     let sent = unsafe { DoorbellRecord::new(record(1)) };
//!     assert_eq!(sent.get(), 1);
//!     // The ring: a control segment, then one data segment.
//!     let unit = |index: usize| unsafe { [word(sends, 2 * index), word(sends, 2 * index + 1)] };
//!     let control = CtrlSegment::from_words(unit(0));
//!     assert_eq!(
//!         control.to_string(),
//!         "SEND index 0x0000 qpn 0x123456 ds 2 fm_ce_se 0x08 imm 0x00000000"
//!     );
//!     let data = DataSegment::from_words(unit(1));
//!     assert_eq!(data.segment(), segment);
//!     // The register: the first eight bytes of the WQE.
//!     assert_eq!(unsafe { word(register, 0) }, unit(0)[0]);
//!
//!     // Nothing has completed yet. The device sends the message and writes the CQE,
//!     // last of all the byte with the owner bit, which is 0 on the first lap.
//!     assert!(ring.peek().is_none());
//!     let write = |offset: usize, bytes: &[u8]| {
//!         for (at, byte) in bytes.iter().enumerate() {
//!             unsafe { completions.add(offset + at).write_volatile(*byte) };
//!         }
//!     };
//!     let opcode_qpn = (WqeOpcode::Send as u32) << 24 | QPN;
//!     write(cqe_offset::REQUEST_QPN, &opcode_qpn.to_be_bytes());
//!     write(cqe_offset::WQE_COUNTER, &control.index().to_be_bytes());
//!     write(cqe_offset::OWN_OP, &[CqeOpcode::REQUESTER.0 << 4]);
//!
//!     // Poll it.
//!     let (slot, own_op) = ring.peek().expect("a completion");
//!     assert_eq!(own_op.opcode(), CqeOpcode::REQUESTER);
//!     assert_eq!(slot.request_qpn().qpn(), QPN);
//!     // SAFETY: this completion names the request.
//!     let done = unsafe { consumer.retire(slot.wqe_counter()) };
//!     assert_eq!(done.wr_id, 42);
//!     assert!(producer.is_idle());
//!     // SAFETY: `peek` has returned this entry.
//!     unsafe { ring.advance() };
//!     ring.publish();
//!
//!     // The device may write that entry again.
//!     let consumed = unsafe { DoorbellRecord::new(record(16)) };
//!     assert_eq!(consumed.get(), 1);
//!     assert!(ring.peek().is_none());
//!     Ok(())
//! }
//! ```
//!
//! Decisions:
//! - `docs/decisions/005-posting-and-polling-share-no-lock.md`
//! - `docs/decisions/059-rings-are-a-crate.md`

#![deny(missing_docs)]

pub mod complete;
mod cursor;
mod free_set;
pub mod layout;
pub mod mmio;
pub mod receive;
mod recv_wqe;
pub mod request;
pub mod scatter;
pub mod send;
pub mod shared;
pub mod status;
pub mod sync;
#[cfg(test)]
mod testing;
mod units;
pub mod wire;

pub(crate) use cursor::distance24;
pub use cursor::{Credits, RingSize};
pub use recv_wqe::PostReceives;

/// Marks a branch as unlikely: `core::hint::cold_path`, which Rust 1.95 introduced.
#[cold]
#[inline]
pub(crate) fn cold_path() {}
