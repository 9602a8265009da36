//! The options of an IA, from the environment and dat.conf.
//!
//! | variable | key | values |
//! | --- | --- | --- |
//! | `DAT_PATH` | `path` | `auto` (default), `direct`, `verbs` |
//! | `DAT_WAIT` | `wait` | `adaptive` (default), `adaptive:MIN_US:MAX_US`, `poll`, `umwait`, `block` |
//! | `DAT_CM` | `cm` | `auto` (default), `rdma_cm`, `socket`; both sides must use the same; on iWARP only rdma_cm connects |
//! | `DAT_LISTEN` | `listen` | where service points listen: `all` (default), `loopback`, one IP address of this host |
//! | `DAT_STRICT` | `strict` | `0` (default): as the reference implementation allows; `1`: as the DAT pages say |
//! | `DAT_SCATTER` | `scatter` | `1` (default): the device may leave short payloads in completions; `0`: it writes all to memory |
//! | `DAT_NUMA` | `numa` | where the memory of queues and buffers is placed: `any` (default): on the node of the thread that touches it first; `device`: on that of the device |
//! | – | `gid` | index in the port's GID table; the engine chooses one if it is not given |
//! | – | `sl`, `traffic_class`, `mtu`, `timeout`, `retry`, `rnr_retry`, `rnr_timer`, `pkey` | see [`TransportOptions`] |
//!
//! A key of the instance data in dat.conf overrides the variable. An empty variable counts as not
//! set, and so does every variable in a process with more rights than its caller
//! ([`dat_engine::environment`]).
//!
//! Decision: `docs/decisions/061-allow-what-the-reference-allows.md`

mod transport;

use dat_engine::cm::ListenOn;
use dat_engine::environment;
use dat_engine::wait::WaitPolicy;
use dat_engine::{PathRequest, TransportOptions};

use crate::error::{DatError, Result};
use crate::status::{ReturnType, Subtype};

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

/// The variables and their keys.
const VARIABLES: [(&str, &str); 8] = [
    ("DAT_PATH", "path"),
    ("DAT_WAIT", "wait"),
    ("DAT_CM", "cm"),
    ("DAT_LISTEN", "listen"),
    ("DAT_STRICT", "strict"),
    ("DAT_SCATTER", "scatter"),
    ("DAT_CQ_RECORD", REMOVED_KEY),
    ("DAT_NUMA", "numa"),
];

/// The keys that are not those of the network.
const KEYS: [&str; 8] = [
    "path", "wait", "cm", "listen", "strict", "scatter", "numa", "gid",
];
/// A key of earlier versions, which messages do not offer.
const REMOVED_KEY: &str = "cq_record";

/// Returns the keys of the instance data.
fn keys() -> impl Iterator<Item = &'static str> {
    KEYS.into_iter()
        .chain(transport::KEYS.iter().map(|(key, _)| *key))
}

/// Returns whether [`Options::set`] knows a key.
pub(crate) fn is_key(key: &str) -> bool {
    key == REMOVED_KEY || keys().any(|known| known == key)
}

/// Returns the environment variables of the options, each with its key.
#[must_use]
pub const fn variables() -> &'static [(&'static str, &'static str)] {
    &VARIABLES
}

impl Options {
    /// Returns the defaults, overridden by environment variables.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER`: a variable has an invalid value.
    pub fn from_environment() -> Result<Self> {
        Self::read(|name| {
            let value = environment::variable(name)?;
            Some(value.to_string_lossy().into_owned())
        })
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let mut options = Self::default();
        for (name, key) in VARIABLES {
            match variable(name) {
                Some(value) if !value.is_empty() => options
                    .set(key, &value)
                    .map_err(|cause| wrong(format!("environment variable {name}: {cause}")))?,
                _ => {}
            }
        }
        Ok(options)
    }

    /// Sets the option of one key of the instance data.
    ///
    /// # Errors
    /// What is wrong with the key or its value, as text.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let unknown = |values: &str| format!("invalid value \"{value}\": expected one of {values}");
        match key {
            "path" => {
                self.path = match value {
                    "auto" => PathRequest::Auto,
                    "direct" => PathRequest::Direct,
                    "verbs" => PathRequest::Verbs,
                    _ => return Err(unknown("auto, direct, verbs")),
                }
            }
            "cm" => {
                self.cm = match value {
                    "auto" => CmChoice::Auto,
                    "rdma_cm" => CmChoice::RdmaCm,
                    "socket" => CmChoice::Socket,
                    _ => return Err(unknown("auto, rdma_cm, socket")),
                }
            }
            "wait" => {
                let policy: Result<WaitPolicy, _> = value.parse();
                self.wait = policy.map_err(|error| error.to_string())?;
            }
            "listen" => {
                let on: Result<ListenOn, _> = value.parse();
                self.listen = on.map_err(|error| error.to_string())?;
            }
            "gid" => match value.parse() {
                Ok(index) => self.gid = Some(index),
                Err(_) => return Err(format!("invalid GID index \"{value}\": expected 0 to 255")),
            },
            "strict" => {
                self.strict = match value {
                    "0" => false,
                    "1" => true,
                    _ => return Err(unknown("0, 1")),
                }
            }
            "scatter" => {
                self.no_scatter = match value {
                    "0" => true,
                    "1" => false,
                    _ => return Err(unknown("0, 1")),
                }
            }
            REMOVED_KEY => match value {
                "eager" => {}
                "lazy" => tracing::warn!(
                    "cq_record=lazy has been removed, and counts as eager: remove the setting"
                ),
                _ => return Err(unknown("eager")),
            },
            "numa" => {
                self.numa = match value {
                    "any" => NumaChoice::Any,
                    "device" => NumaChoice::Device,
                    _ => return Err(unknown("any, device")),
                }
            }
            _ if transport::set(&mut self.transport, key, value)? => {}
            _ => {
                let keys: Vec<&str> = keys().collect();
                return Err(format!(
                    "unknown key \"{key}\": expected one of {}",
                    keys.join(", ")
                ));
            }
        }
        Ok(())
    }
}

fn wrong(cause: String) -> DatError {
    DatError::new(ReturnType::InvalidParameter, Subtype::NoSubtype, cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &'static str) -> Result<Options> {
        Options::read(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn unset_and_empty_variables_leave_the_defaults() {
        let none = Options::read(|_| None).expect("nothing to refuse");
        assert_eq!(none, Options::default());
        assert_eq!(none.path, PathRequest::Auto);
        assert!(matches!(none.wait, WaitPolicy::Adaptive { .. }));
        assert_eq!(with("DAT_WAIT", "").expect("as if unset"), none);
    }

    #[test]
    fn every_value_of_every_variable_is_accepted() {
        let path = |value| with("DAT_PATH", value).expect("a value").path;
        assert_eq!(path("auto"), PathRequest::Auto);
        assert_eq!(path("direct"), PathRequest::Direct);
        assert_eq!(path("verbs"), PathRequest::Verbs);
        let cm = |value| with("DAT_CM", value).expect("a value").cm;
        assert_eq!(cm("rdma_cm"), CmChoice::RdmaCm);
        assert_eq!(cm("socket"), CmChoice::Socket);
        let listen = |value| with("DAT_LISTEN", value).expect("a value").listen;
        assert_eq!(listen("all"), ListenOn::All);
        assert_eq!(listen("loopback"), ListenOn::Loopback);
        let address = "192.0.2.9".parse().expect("an address");
        assert_eq!(listen("192.0.2.9"), ListenOn::One(address));
        let strict = |value| with("DAT_STRICT", value).expect("a value").strict;
        assert!(strict("1") && !strict("0"));
        let scatter = |value| with("DAT_SCATTER", value).expect("a value").no_scatter;
        assert!(scatter("0") && !scatter("1"));
        let record = |value| with("DAT_CQ_RECORD", value).expect("a value");
        assert_eq!(record("eager"), record("lazy"));
        let numa = |value| with("DAT_NUMA", value).expect("a value").numa;
        assert_eq!(numa("any"), NumaChoice::Any);
        assert_eq!(numa("device"), NumaChoice::Device);
        let wait = |value| with("DAT_WAIT", value).expect("a value").wait;
        assert_eq!(wait("poll"), WaitPolicy::Poll);
        assert_eq!(wait("block"), WaitPolicy::Block);
        assert!(matches!(
            wait("adaptive:1:inf"),
            WaitPolicy::Adaptive { max: None, .. }
        ));
    }

    #[test]
    fn a_wrong_value_is_an_error_that_names_the_variable() {
        for (name, _) in VARIABLES {
            let error = with(name, "sideways").expect_err("invalid");
            assert_eq!(error.code().kind(), Some(ReturnType::InvalidParameter));
            assert!(error.cause().contains(name), "{error}");
            assert!(error.cause().contains("sideways"), "{error}");
        }
    }

    #[test]
    fn keys_override_variables_and_unknown_keys_are_errors() {
        let mut options = with("DAT_WAIT", "poll").expect("a value");
        options.set("wait", "block").expect("a value");
        options.set("gid", "3").expect("an index");
        assert_eq!((options.wait, options.gid), (WaitPolicy::Block, Some(3)));
        assert!(options.set("gid", "256").is_err());
        options.set("traffic_class", "104").expect("a class");
        assert_eq!(options.transport.traffic_class, Some(104));
        let cause = options.set("sl", "16").expect_err("15 is the largest");
        assert!(cause.contains("sl") && cause.contains("0 to 15"), "{cause}");
        for key in keys().chain([REMOVED_KEY]) {
            assert!(is_key(key), "{key}");
            let cause = options.set(key, "?").expect_err("no value");
            assert!(!cause.contains("unknown key"), "{cause}");
        }
        let cause = options.set("colour", "red").expect_err("no key");
        assert!(
            cause.contains("colour") && cause.contains("path"),
            "{cause}"
        );
        assert!(!cause.contains(REMOVED_KEY), "{cause}");
    }
}
