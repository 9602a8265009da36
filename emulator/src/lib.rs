//! An emulated ConnectX NIC for unmodified libibverbs + libmlx5 programs.
//!
//! The application uses the system's libibverbs and libmlx5. This crate takes the
//! place of the kernel (the uverbs device files and their commands) and of the NIC
//! (doorbells, WQEs, packets, CQEs). It needs no privileges, kernel module or
//! hardware. `mlx5-emu run -- PROGRAM` starts any dynamically linked program on it;
//! a test binary can also contain the devices ([`preload::install`]).
//!
//! # How an unmodified program runs on it
//!
//! ```text
//!  application ── libibverbs ── libmlx5
//!    │ open, ioctl, write, mmap    │ doorbells             ▲ CQEs, events
//!    ▼                             ▼                       │
//!  preload ─▶ uverbs           UAR pages (uar)             │
//!               │ commands         │                       │
//!               ▼                  ▼                       │
//!             ┌─────────────────────────────┐              │
//!             │ nic, locked and run by      │──────────────┘
//!             │ runner                      │◀──▶ application memory: rings,
//!             └─────────────────────────────┘     doorbell records, regions
//!                    packets │ ▲
//!                            ▼ │
//!                      faults, fabric ◀──▶ NICs of other processes
//! ```
//!
//! 1. The launcher writes a sysfs tree that describes the devices ([`sysfs`]), sets
//!    `SYSFS_PATH` to it, and preloads this library. libibverbs finds the devices in
//!    the tree and loads libmlx5 for them.
//! 2. libibverbs opens `/dev/infiniband/uverbs0`. The library interposes the libc
//!    calls for device access ([`preload`]); calls for all other files go to libc.
//!    The first open starts the emulator ([`emulator::Emulator`]).
//! 3. Commands (`ALLOC_PD`, `REG_MR`, `CREATE_QP`, `MODIFY_QP`, …) arrive as
//!    `RDMA_VERBS_IOCTL` or by `write()`. `uverbs` parses them as the kernel's ib_core
//!    and mlx5_ib do, and calls the NIC with the values in [`spec`].
//! 4. libmlx5 allocates rings and doorbell records in the application's memory and
//!    maps a UAR page. To post, it writes a WQE to the ring, the index to the doorbell
//!    record, and the first 8 bytes of the WQE to a doorbell register of the UAR page.
//! 5. The NIC takes the doorbell from the page, reads WQEs, and accesses memory
//!    regions through their mkeys. It sends packets to the peer QP, in this process or
//!    over shared memory in another one ([`fabric`]). The transport is that of
//!    InfiniBand: PSNs, acks, RNR NAKs, retries and timeouts.
//! 6. Completions are CQEs in the application's CQ ring; completion and asynchronous
//!    events are records in the descriptors of libibverbs' channels.
//!
//! # Layers
//!
//! A module names only those below it in this table, which `perf-scripts/lib/layers`
//! checks, so each can be read without the modules above.
//!
//! | module | contents | does not contain |
//! |---|---|---|
//! | `fuzzing` | what `fuzz/` calls; in such builds only | |
//! | [`gateway`] | receives for all processes of an address | devices |
//! | [`preload`] | interposed libc calls | device logic |
//! | `uverbs` | ioctl and write commands, handles, event files | WQE and CQE formats |
//! | `ucma` | `/dev/infiniband/rdma_cm`: ids, addresses, ports, events | connection states |
//! | [`emulator`] | the emulator of the process: its start, its lock, what a test steps | |
//! | `hardware` | NIC, wire and faults together, as a runner moves them | bytes of any format |
//! | `runner` | the NIC thread, doorbells on the storing thread, stepped mode; the clock | |
//! | `nldev` | RDMA netlink, by which libibverbs and `rdma`(8) find devices | sockets |
//! | [`sysfs`] | the sysfs tree that libibverbs reads | |
//! | [`capture`] | the packets on the wire as a capture file | queues |
//! | `udp` | the sockets by which a process sends to other hosts, and decoding what arrives | queues |
//! | `addressing` | the addresses of the ports, and the port of an address | |
//! | [`config`] | the settings | |
//! | [`faults`] | fault injection between NIC and fabric, and in the NIC | queues |
//! | `cm` | messages between hosts that connect queue pairs | clocks, I/O |
//! | [`nic`] | queues, mkeys, requester and responder | threads, clocks, uverbs formats |
//! | [`nasty`] | modes in which the device forgives no mistake | queues |
//! | [`decode`] | WQE parsing, CQE encoding, text for traces | memory accesses |
//! | [`fabric`] | packets between NICs, their bytes on a link, shared memory rings | queues |
//! | `uar` | UAR pages: doorbells, write protection | queues |
//! | `residency` | which registered pages left their addresses; `--nasty pin` | queues, keys |
//! | `user` | copies of a command's memory, which fail with `EFAULT` | |
//! | `log` | what a person sees: commands, explanations, warnings | |
//! | `refusal` | why commands are refused: error numbers with a sentence each | |
//! | `trap` | `SIGBUS` of protected pages; signal masks and handlers of the program | queues |
//! | `guard` | accesses to memory that may be unmapped, and their signals | |
//! | `fork` | what a forked child begins anew | |
//! | `hidden` | descriptors that the program does not know | |
//! | [`spec`] | numbers, attributes and errors that commands and NIC exchange; ports, time | |
//! | [`limits`] | the limits that the devices report | |
//! | `abi`, `sync`, `random`, `fuzz_bytes`, `real` | layouts of the kernel's structures; locks; random numbers; the bytes of `fuzzing`; libc's own functions | |
//!
//! Nothing is shared with the engine (`dat-engine`): two independent implementations
//! of the mlx5 formats must agree, and libmlx5 is the reference for both.
//!
//! # Threads
//!
//! All access to the NIC is under one lock. In [`Mode::Threaded`](config::Mode) the NIC
//! thread spins while there is work, then protects the UAR pages against stores and
//! sleeps. The next doorbell wakes it, or runs the NIC on the storing thread
//! ([`config::Wake`]). Commands run on the application's threads. The emulator calls
//! no function of the application.
//!
//! In [`Mode::Stepped`](config::Mode) there is no thread, and time stands still: the
//! test calls [`step`](emulator::Emulator::step),
//! [`run_until_idle`](emulator::Emulator::run_until_idle) and
//! [`advance`](emulator::Emulator::advance). With one seed, every run is the same.
//!
//! # Lifetimes
//!
//! A process has one emulator. It starts when the first device is opened and exists
//! until the process exits; closing a device destroys its objects, as closing the
//! descriptor does in the kernel. The fabric in shared memory exists as long as a
//! process is attached to it, and packets to a process that has died are dropped, so
//! that its peers exceed their retries. A forked child begins
//! anew: it can open devices, but not use its parent's contexts.
//!
//! The NIC accesses application memory at virtual addresses, without pinning it. If
//! the application unmaps a ring or a registered region, the request fails, and the
//! process continues (`guard`). A use of registered memory that has been unmapped or
//! replaced is reported; with `--nasty pin` it uses the old pages (`residency`).
//!
//! # Errors
//!
//! An application receives the error numbers of the kernel ([`spec::Errno`]) from
//! commands, CQEs with the syndromes of a ConnectX from requests, and asynchronous
//! events. A setting that is not valid is a [`config::ConfigError`], which names the
//! variable, the value and the accepted values. If the emulator cannot start, opening
//! a device fails with `ENODEV`, and one line on standard error has the reason
//! ([`emulator::StartError`]).
//!
//! # Units
//!
//! Times in the NIC are [`Nanos`](spec::Nanos), nanoseconds of the monotonic clock; CQE
//! timestamps are ticks of 12.8 ns ([`nic::ticks`]). Sizes are in bytes, WQE indices in
//! WQEBBs (64 bytes), and the `ds` field of a WQE in units of 16 bytes. PSNs, QP numbers
//! and message sequence numbers have 24 bits; the upper 8 bits of a QP number are the
//! slot of its process on the fabric. Numbers in the types of [`spec`] are in host
//! byte order, GIDs and GUIDs in network byte order.
//!
//! # Examples
//!
//! A test with a device in its own process, whose NIC the test steps. The binary must be
//! linked with `-rdynamic` (`cargo::rustc-link-arg-tests=-rdynamic` in its build script),
//! so that libibverbs resolves `open`, `ioctl` and `mmap` to this crate:
//!
//! ```no_run
//! use std::ffi::{c_int, c_void};
//! use std::time::Duration;
//!
//! use mlx5emu::config::{Config, Mode};
//! use mlx5emu::emulator::Emulator;
//! use mlx5emu::faults::FaultSpec;
//!
//! #[link(name = "ibverbs")]
//! unsafe extern "C" {
//!     fn ibv_get_device_list(count: *mut c_int) -> *mut *mut c_void;
//!     fn ibv_open_device(device: *mut c_void) -> *mut c_void;
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config { mode: Mode::Stepped, ..Config::default() };
//! // SAFETY: no other thread runs yet, so none accesses the environment.
//! let _installed = unsafe { mlx5emu::preload::install(&config) }?;
//! // SAFETY: the list has at least one device, the emulated one.
//! let context = unsafe { ibv_open_device(*ibv_get_device_list(std::ptr::null_mut())) };
//! assert!(!context.is_null());
//!
//! let emulator = Emulator::get().expect("the first opened device started it");
//! let faults: FaultSpec = "seed=7,drop=0.01".parse()?;
//! emulator.set_faults(Some(&faults));
//! // … create QPs, connect them and post requests through libibverbs …
//! emulator.run_until_idle();
//! emulator.advance(Duration::from_millis(10)); // ack timeouts expire
//! # Ok(())
//! # }
//! ```
//!
//! Settings are parsed from text, as the launcher's options are:
//!
//! ```
//! use mlx5emu::faults::FaultSpec;
//! use mlx5emu::limits::Limits;
//!
//! let faults: FaultSpec = "seed=7,drop=0.01,kill-qp@500".parse()?;
//! assert_eq!(faults.to_string(), "seed=7,drop=0.01,kill-qp@500");
//!
//! let limits: Limits = "max_inline=0,no_srq".parse()?;
//! assert_eq!((limits.max_inline, limits.has_srqs()), (0, false));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The decoder turns bytes into text, as `mlx5-emu dump` does:
//!
//! ```
//! use mlx5emu::decode::text;
//!
//! // Opcode 0x0a (SEND), WQE index 5, QP number 0x010042, 2 units of 16 bytes.
//! let doorbell = [0, 0, 5, 0x0a, 0x01, 0x00, 0x42, 2];
//! assert_eq!(
//!     text::send_doorbell(&doorbell)?,
//!     "  send    QPN 0x010042, last WQE SEND (opcode 0x0a) at index 5, 2 units\n",
//! );
//! assert!(text::send_doorbell(&doorbell[..4]).is_err());
//! # Ok::<(), text::TextError>(())
//! ```

mod abi;
mod addressing;
pub mod capture;
mod cm;
pub mod config;
pub mod decode;
pub mod emulator;
pub mod fabric;
pub mod faults;
mod fork;
#[cfg(fuzzing)]
mod fuzz_bytes;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
pub mod gateway;
mod guard;
#[allow(unreachable_pub, reason = "`pub` is for the rest of the emulator")]
mod hardware;
mod hidden;
pub mod limits;
mod log;
pub mod nasty;
pub mod nic;
mod nldev;
pub mod preload;
mod random;
mod real;
mod refusal;
mod residency;
#[allow(unreachable_pub, reason = "`pub` is for the rest of the emulator")]
mod runner;
pub mod spec;
mod sync;
pub mod sysfs;
#[allow(unreachable_pub, reason = "`pub` is for the rest of the emulator")]
mod trap;
#[allow(unreachable_pub, reason = "`pub` is for the rest of the emulator")]
mod uar;
mod ucma;
mod udp;
mod user;
#[allow(unreachable_pub, reason = "`pub` is for the rest of the emulator")]
mod uverbs;
