//! The options, each a field and a definition: its environment variable, its key in dat.conf, the
//! check of a value with the sentence that refuses it, and its text in the manual.
//!
//! The text is the comment above the definition, in the macros of man(7).
//! `perf-scripts/lib/option-pages --write` puts it into the pages that it names.
//!
//! Keys of the network have no environment variables: a value is right for one port of one device,
//! which an entry of dat.conf names, and a variable would set it for all.
//!
//! Decision: `docs/decisions/078-options-defined-once.md`

use core::fmt::Display;

use dat_engine::cm::ListenOn;
use dat_engine::wait::WaitPolicy;
use dat_engine::{Mtu, PathRequest, TransportOptions};

/// Which connection manager is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CmChoice {
    /// rdma_cm where the kernel has it and the port has an IP address that it serves, otherwise
    /// sockets; on iWARP rdma_cm.
    #[default]
    Auto,
    /// rdma_cm, the kernel's connection manager.
    RdmaCm,
    /// Messages over TCP.
    Socket,
}

/// The NUMA node on which the memory of queues and buffers is placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NumaChoice {
    /// That of the thread that touches it first, unless the process has another policy.
    #[default]
    Any,
    /// That of the device ([`dat_engine::Device::prefer_its_numa_node`]).
    Device,
}

/// The options of an IA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Which data path is used.
    pub path: PathRequest,
    /// How threads wait for events, unless an EVD has a policy of its own.
    pub wait: WaitPolicy,
    /// Which connection manager is used.
    pub cm: CmChoice,
    /// The addresses on which service points listen.
    pub listen: ListenOn,
    /// The index of the GID that connections use.
    pub gid: Option<u8>,
    /// Whether calls are checked as the DAT pages say, also where the reference implementation
    /// (OFED's DAPL) checks less and programs rely on that.
    pub strict: bool,
    /// Whether the device writes every payload to memory, and leaves none in completions
    /// (`scatter=0`).
    pub no_scatter: bool,
    /// The NUMA node of its memory.
    pub numa: NumaChoice,
    /// What the network requires of connections.
    pub transport: TransportOptions,
}

/// All options, in the order in which messages list them.
pub(super) const DEFINITIONS: [Definition; 17] = [
    // dat.conf(5):
    // .B auto
    // (default: direct on mlx5 devices, verbs on others),
    // .B direct
    // or
    // .BR verbs .
    // udapl(7):
    // The data path, which is how the library drives the device:
    // .RS
    // .TP
    // .B auto
    // The default:
    // .B direct
    // on mlx5 devices,
    // .B verbs
    // on others.
    // .TP
    // .B direct
    // The library itself writes requests to the queues of the device.
    // .TP
    // .B verbs
    // The library posts requests through libibverbs.
    // .RE
    variable("DAT_PATH", "path", |to, value| {
        value.one_of(&mut to.path, &PathRequest::NAMES)
    }),
    // dat.conf(5):
    // .BR adaptive ,
    // .BI adaptive: MIN_US : MAX_US
    // (microseconds;
    // .B inf
    // for no bound),
    // .BR poll ,
    // .B umwait
    // or
    // .BR block .
    // With
    // .BR poll ,
    // .B umwait
    // or
    // .BR inf ,
    // a thread that spins yields the processor every 20 microseconds.
    // udapl(7):
    // The wait policy of
    // .BR dat_evd_wait (3DAT):
    // .RS
    // .TP
    // .B adaptive
    // The default: spins for up to 200 microseconds where events come within 150, which it learns from
    // earlier waits; then sleeps.
    // .TP
    // .BI adaptive: MIN_US : MAX_US
    // The same, with bounds of the spin in microseconds;
    // .B inf
    // means no bound.
    // It spins where events come within three quarters of
    // .IR MAX_US .
    // .TP
    // .B poll
    // Spins without end, and yields the processor every 20 microseconds.
    // .TP
    // .B umwait
    // As
    // .BR poll ,
    // but the core halts between polls until the device writes the next completion, at most 10
    // microseconds at a time.
    // It needs a processor with UMWAIT (Intel) or MWAITX (AMD), an EVD whose completions come from one
    // completion queue, and the data path
    // .BR direct ;
    // otherwise it is
    // .BR poll .
    // It has not yet run on a processor with these instructions.
    // .TP
    // .B block
    // Sleeps at once.
    // .RE
    variable("DAT_WAIT", "wait", |to, value| {
        set(&mut to.wait, value.text.parse())
    }),
    // dat.conf(5):
    // .B auto
    // (default: rdma_cm where the port has an IP address that the kernel serves, else TCP),
    // .B rdma_cm
    // or
    // .BR socket ,
    // which is refused on iWARP adapters.
    // udapl(7):
    // The connection manager, which must be the same at both ends:
    // .RS
    // .TP
    // .B auto
    // The default: rdma_cm where the port has an IP address that the kernel serves, else TCP.
    // .TP
    // .B rdma_cm
    // The connection manager of the kernel.
    // .TP
    // .B socket
    // TCP.
    // .RE
    // .IP
    // iWARP adapters connect through rdma_cm only:
    // .B auto
    // means
    // .B rdma_cm
    // there, and
    // .B socket
    // is refused.
    variable("DAT_CM", "cm", |to, value| {
        let names = [
            ("auto", CmChoice::Auto),
            ("rdma_cm", CmChoice::RdmaCm),
            ("socket", CmChoice::Socket),
        ];
        value.one_of(&mut to.cm, &names)
    }),
    // dat.conf(5):
    // .B all
    // (the default),
    // .B loopback
    // or one IP address of this host, on which service points listen; see
    // .BR udapl (7).
    // udapl(7):
    // The addresses on which service points listen:
    // .B all
    // addresses of this host (default),
    // .B loopback
    // .RB ( 127.0.0.1
    // and
    // .BR ::1 ,
    // which only programs on this host reach) or one IP address of this host.
    // The chosen address, which is
    // .B 127.0.0.1
    // with
    // .BR loopback ,
    // is then also the address of the adapter.
    // rdma_cm serves the addresses of the port's network interface, and no loopback address; on emulated
    // devices the first port of the first device has the loopback addresses, too.
    // With
    // .B DAT_CM=auto
    // and an address that rdma_cm does not serve, connections are made over TCP.
    // On emulated devices
    // .RB ( "mlx5\-emu run" ),
    // .B DAT_LISTEN
    // is set to
    // .B loopback
    // unless it is set already.
    variable("DAT_LISTEN", "listen", |to, value| {
        set(&mut to.listen, value.text.parse())
    }),
    // dat.conf(5):
    // .B 1
    // follows the DAT pages where the reference implementation allows more,
    // .B 0
    // (the default) allows that; see
    // .BR udapl (7).
    // udapl(7):
    // .B 1
    // makes adapters follow the DAT pages where the reference implementation allows more: see
    // .IR "Programs for other implementations" .
    // The default is
    // .BR 0 .
    variable("DAT_STRICT", "strict", |to, value| {
        value.one_of(&mut to.strict, &[("0", false), ("1", true)])
    }),
    // dat.conf(5):
    // .B 1
    // (the default) or
    // .BR 0 ;
    // see "Polling memory" in
    // .BR udapl (7).
    // udapl(7):
    // Where the device puts short payloads that it receives:
    // .RS
    // .TP
    // .B 1
    // The default: it may leave payloads of up to 32 bytes (64 bytes with some completion queues) in the
    // completion, which saves an access to memory.
    // .TP
    // .B 0
    // Always in memory, before the completion; see "Polling memory".
    // .RE
    variable("DAT_SCATTER", "scatter", |to, value| {
        value.one_of(&mut to.no_scatter, &[("0", true), ("1", false)])
    }),
    // No page mentions it.
    variable("DAT_CQ_RECORD", REMOVED_KEY, |_, value| match value.text {
        "lazy" => {
            let cause = "has been removed, and counts as eager: remove the setting";
            tracing::warn!("cq_record=lazy {cause}");
            Ok(())
        }
        _ => value.one_of(&mut (), &[("eager", ())]),
    }),
    // dat.conf(5):
    // .B any
    // (the default) or
    // .BR device .
    // udapl(7):
    // The NUMA node of the memory of queues and of memory that a registration is the first to touch:
    // .RS
    // .TP
    // .B any
    // The default: that of the thread which touches it first, unless the process has another memory policy
    // .RB ( numactl (8)).
    // .TP
    // .B device
    // That of the device, while it has free memory.
    // The library changes the memory policy of the calling thread for the length of the calls that
    // allocate, so memory that the process has used before stays where it is.
    // Where the host does not state the device's node, or the kernel or a container does not allow the change
    // (Docker needs
    // .BR "\-\-cap\-add SYS_NICE" ),
    // memory is placed as with
    // .BR any ;
    // the named attribute
    // .B numa
    // of the provider says why
    // .RB ( dat_ia_query (3DAT)).
    // .RE
    variable("DAT_NUMA", "numa", |to, value| {
        let names = [("any", NumaChoice::Any), ("device", NumaChoice::Device)];
        value.one_of(&mut to.numa, &names)
    }),
    // dat.conf(5):
    // Index in the GID table of the port, 0 to 255; by default the library chooses.
    key("gid", |to, value| {
        let index = value.text.parse().map(Some);
        let cause = |_| format!("invalid GID index \"{}\": expected 0 to 255", value.text);
        set(&mut to.gid, index.map_err(cause))
    }),
    // dat.conf(5):
    // The service level, 0 to 15; 0 by default.
    // On InfiniBand the subnet manager maps it to a virtual lane.
    // On RoCE its lower three bits are the priority (PCP) of packets with a VLAN tag.
    key("sl", |to, value| {
        value.up_to(15, &mut to.transport.sl, "0 to 15")
    }),
    // dat.conf(5):
    // The traffic class, 0 to 255; 0 by default.
    // On RoCE v2 it is the byte of the IP header that holds the DSCP in its upper six bits and ECN in the
    // lower two: DSCP 26 is 104, and 106 with ECN enabled.
    // On InfiniBand it matters only between subnets.
    key("traffic_class", |to, value| {
        value.up_to(
            255,
            &mut to.transport.traffic_class,
            "0 to 255, which is DSCP * 4 + ECN",
        )
    }),
    // dat.conf(5):
    // The most payload of a packet, in bytes: 256, 512, 1024, 2048 or 4096.
    // By default the MTU that the port uses.
    // A connection uses the smallest value of its two sides and their ports.
    key("mtu", |to, value| {
        let expected = "256, 512, 1024, 2048 or 4096 bytes";
        value.number(Mtu::from_bytes, &mut to.transport.mtu, expected)
    }),
    // dat.conf(5):
    // The time to wait for an acknowledgement, 0 to 31, which means 4.096 microseconds * 2^\fIN\fR:
    // 14 is 67 ms, 16 is 268 ms, 18 is 1.1 s, 20 is 4.3 s.
    // Devices may wait up to four times as long.
    // The default is 16, or the device's own delay
    // .RI ( local_ca_ack_delay )
    // if that is longer; smaller values than this delay are refused.
    // 0 waits for ever: a peer that has disappeared is then never noticed.
    key("timeout", |to, value| {
        let expected = "0 to 31, which means 4.096 us * 2^N; 0 waits for ever";
        value.up_to(31, &mut to.transport.timeout, expected)
    }),
    // dat.conf(5):
    // How often a packet is sent again after a timeout, 0 to 7; 7 by default.
    // On devices other than mlx5 6 is the largest value and the default, because some of them take 7 as
    // infinite.
    // After the last retry the request completes with DAT_DTO_ERR_TRANSPORT, and the connection breaks.
    key("retry", |to, value| {
        value.up_to(7, &mut to.transport.retry, "0 to 7")
    }),
    // dat.conf(5):
    // How often a message is sent again for which the peer has no receive posted, 0 to 7.
    // 7, the default, means for ever: the message waits until the peer posts a receive.
    // With 0 to 6, the request completes with DAT_DTO_ERR_RECEIVER_NOT_READY after the last retry, and the
    // connection breaks.
    key("rnr_retry", |to, value| {
        value.up_to(7, &mut to.transport.rnr_retry, "0 to 7; 7 retries for ever")
    }),
    // dat.conf(5):
    // How long a peer has to wait before it sends such a message again, 0 to 31; 12 by default.
    // The value is a code of the InfiniBand specification.
    // Codes and milliseconds:
    // .RS
    // .P
    // .nf
    //  0 655.36    8 0.16    16 2.56    24 40.96
    //  1 0.01      9 0.24    17 3.84    25 61.44
    //  2 0.02     10 0.32    18 5.12    26 81.92
    //  3 0.03     11 0.48    19 7.68    27 122.88
    //  4 0.04     12 0.64    20 10.24   28 163.84
    //  5 0.06     13 0.96    21 15.36   29 245.76
    //  6 0.08     14 1.28    22 20.48   30 327.68
    //  7 0.12     15 1.92    23 30.72   31 491.52
    // .fi
    // .RE
    // .IP
    // This time belongs to the receiving side, unlike
    // .BR rnr_retry .
    key("rnr_timer", |to, value| {
        let expected = "0 to 31, a code of InfiniBand: 1 is 0.01 ms, 12 is 0.64 ms, 0 is 655.36 ms";
        value.up_to(31, &mut to.transport.rnr_timer, expected)
    }),
    // dat.conf(5):
    // The partition: a P_Key of the table of the port, 0x0001 to 0xffff.
    // By default the first one of the table.
    // Bit 15, for full members of the partition, may differ from the table.
    // A RoCE port has one partition, 0xffff.
    key("pkey", |to, value| {
        // The lower 15 bits are the number of the partition, which is never 0.
        let check = |number| u16::try_from(number).ok().filter(|key| key & 0x7fff != 0);
        let expected = "a P_Key of the port's table, 0x0001 to 0xffff without 0x8000";
        value.number(check, &mut to.transport.pkey, expected)
    }),
];

/// A key of earlier versions, which messages do not offer.
pub(super) const REMOVED_KEY: &str = "cq_record";

/// An option: its variable, its key, and what sets it or says what is wrong with a value.
pub(super) type Definition = (Option<&'static str>, &'static str, Check);
type Check = fn(&mut Options, Value<'_>) -> Result<(), String>;

const fn variable(variable: &'static str, key: &'static str, check: Check) -> Definition {
    (Some(variable), key, check)
}

const fn key(key: &'static str, check: Check) -> Definition {
    (None, key, check)
}

/// A value, and the key that it is for.
#[derive(Clone, Copy)]
pub(super) struct Value<'a> {
    pub(super) key: &'static str,
    pub(super) text: &'a str,
}

impl Value<'_> {
    /// Sets what the text names.
    fn one_of<T: Copy>(self, to: &mut T, names: &[(&str, T)]) -> Result<(), String> {
        let named = names.iter().find(|(name, _)| *name == self.text);
        let named = named.map(|&(_, named)| named).ok_or_else(|| {
            let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            let (text, names) = (self.text, names.join(", "));
            format!("invalid value \"{text}\": expected one of {names}")
        });
        set(to, named)
    }

    /// Sets a number that the check accepts.
    fn number<T>(
        self,
        check: impl Fn(u32) -> Option<T>,
        to: &mut Option<T>,
        expected: &str,
    ) -> Result<(), String> {
        let Self { key, text } = self;
        let number = number(text).and_then(check);
        let wrong = || format!("invalid value \"{text}\" of the key {key}: expected {expected}");
        set(to, number.ok_or_else(wrong).map(Some))
    }

    /// Sets a number of 0 to `most`.
    fn up_to(self, most: u8, to: &mut Option<u8>, expected: &str) -> Result<(), String> {
        let check = |number| u8::try_from(number).ok().filter(|number| *number <= most);
        self.number(check, to, expected)
    }
}

/// Sets a value that has been parsed.
fn set<T>(to: &mut T, parsed: Result<T, impl Display>) -> Result<(), String> {
    *to = parsed.map_err(|error| error.to_string())?;
    Ok(())
}

/// Parses a decimal number, or a hexadecimal one after `0x`.
fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let plain = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    plain.then(|| u32::from_str_radix(digits, radix).ok())?
}
