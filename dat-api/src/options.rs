//! The options of an IA, from the environment and dat.conf.
//!
//! `options/definitions.rs` has all of them. A key of the instance data in dat.conf overrides the
//! variable. An empty variable counts as not set, and so does every variable in a process with more
//! rights than its caller ([`dat_engine::environment`]).

mod definitions;

use dat_engine::environment;

use self::definitions::{DEFINITIONS, REMOVED_KEY, Value};
use crate::error::{DatError, Result};
use crate::status::{ReturnType, Subtype};

pub use definitions::{CmChoice, NumaChoice, Options};

/// Returns the keys of the instance data.
fn keys() -> impl Iterator<Item = &'static str> {
    DEFINITIONS.iter().map(|(_, key, _)| *key)
}

/// Returns whether [`Options::set`] knows a key.
pub(crate) fn is_key(key: &str) -> bool {
    keys().any(|known| known == key)
}

/// Returns the environment variables of the options, each with its key.
pub fn variables() -> impl Iterator<Item = (&'static str, &'static str)> {
    let options = DEFINITIONS.into_iter();
    options.filter_map(|(variable, key, _)| Some((variable?, key)))
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
        for (name, key) in variables() {
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
        if let Some((_, key, check)) = DEFINITIONS.into_iter().find(|(_, known, _)| *known == key) {
            return check(self, Value { key, text: value });
        }
        let keys: Vec<&str> = keys().filter(|key| *key != REMOVED_KEY).collect();
        let keys = keys.join(", ");
        Err(format!("unknown key \"{key}\": expected one of {keys}"))
    }
}

fn wrong(cause: String) -> DatError {
    DatError::new(ReturnType::InvalidParameter, Subtype::NoSubtype, cause)
}

#[cfg(test)]
mod tests {
    use dat_engine::cm::ListenOn;
    use dat_engine::wait::WaitPolicy;
    use dat_engine::{Mtu, PathRequest, TransportOptions};

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
        for (name, _) in variables() {
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
        for key in keys() {
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

    fn network(key: &str, value: impl AsRef<str>) -> Result<TransportOptions, String> {
        let mut options = Options::default();
        options.set(key, value.as_ref())?;
        Ok(options.transport)
    }

    #[test]
    fn the_least_and_the_largest_value_of_each_key_are_accepted() {
        let good = |key, value: &str| network(key, value).expect("a good value");
        assert_eq!(good("sl", "0").sl, Some(0));
        assert_eq!(good("sl", "15").sl, Some(15));
        assert_eq!(good("traffic_class", "0").traffic_class, Some(0));
        assert_eq!(good("traffic_class", "106").traffic_class, Some(106));
        assert_eq!(good("traffic_class", "0xff").traffic_class, Some(255));
        for bytes in [256, 512, 1024, 2048, 4096] {
            let options = network("mtu", bytes.to_string()).expect("an MTU");
            assert_eq!(options.mtu.map(Mtu::bytes), Some(bytes));
        }
        assert_eq!(good("timeout", "0").timeout, Some(0));
        assert_eq!(good("timeout", "31").timeout, Some(31));
        assert_eq!(good("retry", "7").retry, Some(7));
        assert_eq!(good("rnr_retry", "0").rnr_retry, Some(0));
        assert_eq!(good("rnr_timer", "31").rnr_timer, Some(31));
        assert_eq!(good("pkey", "0x8001").pkey, Some(0x8001));
        assert_eq!(good("pkey", "0X7FFF").pkey, Some(0x7fff));
        assert_eq!(good("pkey", "1").pkey, Some(1));
    }

    #[test]
    fn a_wrong_value_is_refused_with_the_key_the_value_and_what_is_expected() {
        let cases = [
            ("sl", "16"),
            ("sl", "-1"),
            ("sl", "+1"),
            ("sl", ""),
            ("sl", "high"),
            ("traffic_class", "256"),
            ("traffic_class", "0x"),
            ("traffic_class", "ef"),
            ("mtu", "1500"),
            ("mtu", "0"),
            ("mtu", "8192"),
            ("timeout", "32"),
            ("timeout", "1s"),
            ("retry", "8"),
            ("rnr_retry", "8"),
            ("rnr_timer", "32"),
            ("pkey", "0"),
            ("pkey", "0x8000"),
            ("pkey", "0x10000"),
            ("pkey", "99999999999"),
        ];
        for (key, value) in cases {
            let cause = network(key, value).expect_err(key);
            let sentence = format!("invalid value \"{value}\" of the key {key}: expected ");
            assert!(cause.starts_with(&sentence), "{cause}");
        }
    }
}
