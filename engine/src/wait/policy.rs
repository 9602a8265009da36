//! The wait policy, as a value and as text.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

/// Whether a wait spins, blocks, or spins and then blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Spin until the event: least latency, occupies one core. The spin yields the
    /// processor every 20 microseconds, so that other threads make progress where
    /// every core is busy.
    Poll,
    /// As [`Self::Poll`], but the processor halts between polls until the next completion is
    /// written, at most 10 microseconds at a time (UMWAIT, or MWAITX on AMD). It does not halt
    /// where the processor has no such instruction, and where completions come from several
    /// queues or not from the direct path.
    Umwait,
    /// Block at once: occupies no core, costs a wake-up each time.
    Block,
    /// Spin for a time that is learned from earlier waits, then block.
    Adaptive {
        /// The least time to spin.
        min: Duration,
        /// The most time to spin; `None` allows an endless spin.
        max: Option<Duration>,
    },
}

impl WaitPolicy {
    /// The cap of the default policy. Such a spin costs a few times as much as a
    /// wake-up, as Linux has it for a halted guest processor.
    pub const DEFAULT_MAX: Duration = Duration::from_micros(200);
}

impl Default for WaitPolicy {
    fn default() -> Self {
        Self::Adaptive {
            min: Duration::ZERO,
            max: Some(Self::DEFAULT_MAX),
        }
    }
}

impl fmt::Display for WaitPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poll => f.write_str("poll"),
            Self::Umwait => f.write_str("umwait"),
            Self::Block => f.write_str("block"),
            Self::Adaptive { min, max } => {
                write!(f, "adaptive:{}:", min.as_micros())?;
                match max {
                    Some(max) => write!(f, "{}", max.as_micros()),
                    None => f.write_str("inf"),
                }
            }
        }
    }
}

/// The error for a text that is not a [`WaitPolicy`]; it lists the accepted texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitPolicyError {
    text: String,
    cause: String,
}

impl fmt::Display for WaitPolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "invalid wait policy \"{}\": {}; expected poll, umwait, block, adaptive or \
             adaptive:MIN_US:MAX_US (MAX_US may be inf), such as adaptive:0:200",
            self.text, self.cause
        )
    }
}

impl core::error::Error for WaitPolicyError {}

impl FromStr for WaitPolicy {
    type Err = WaitPolicyError;

    fn from_str(text: &str) -> Result<Self, WaitPolicyError> {
        let refuse = |cause: String| WaitPolicyError {
            text: text.to_owned(),
            cause,
        };
        let mut words = text.trim().split(':');
        let name = words.next().unwrap_or_default();
        let bounds: Vec<&str> = words.collect();
        match (name, bounds.as_slice()) {
            ("poll", []) => Ok(Self::Poll),
            ("pause", []) => {
                tracing::warn!(
                    "the wait policy pause has been removed, and counts as poll: use poll"
                );
                Ok(Self::Poll)
            }
            ("umwait", []) => Ok(Self::Umwait),
            ("block", []) => Ok(Self::Block),
            ("adaptive", []) => Ok(Self::default()),
            ("adaptive", [min, max]) => {
                let micros = |what, text: &str| {
                    text.parse().map(Duration::from_micros).map_err(|_| {
                        refuse(format!("{what} \"{text}\" is not a number of microseconds"))
                    })
                };
                let min = micros("MIN_US", min)?;
                let max = match *max {
                    "inf" => None,
                    max => Some(micros("MAX_US", max)?),
                };
                if max.is_some_and(|max| max < min) {
                    return Err(refuse("MIN_US is above MAX_US".to_owned()));
                }
                Ok(Self::Adaptive { min, max })
            }
            ("adaptive", _) => Err(refuse("adaptive takes two bounds or none".to_owned())),
            ("poll" | "pause" | "umwait" | "block", _) => {
                Err(refuse(format!("{name} takes no bounds")))
            }
            ("", _) => Err(refuse("it is empty".to_owned())),
            _ => Err(refuse(format!("\"{name}\" is not a policy"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adaptive(min: u64, max: Option<u64>) -> WaitPolicy {
        WaitPolicy::Adaptive {
            min: Duration::from_micros(min),
            max: max.map(Duration::from_micros),
        }
    }

    #[test]
    fn policies_are_parsed_and_displayed() {
        for (text, policy, back) in [
            ("poll", WaitPolicy::Poll, "poll"),
            ("pause", WaitPolicy::Poll, "poll"),
            ("umwait", WaitPolicy::Umwait, "umwait"),
            ("block", WaitPolicy::Block, "block"),
            ("adaptive", WaitPolicy::default(), "adaptive:0:200"),
            ("adaptive:0:0", adaptive(0, Some(0)), "adaptive:0:0"),
            ("adaptive:5:5", adaptive(5, Some(5)), "adaptive:5:5"),
            (" adaptive:1:inf ", adaptive(1, None), "adaptive:1:inf"),
        ] {
            assert_eq!(text.parse(), Ok(policy), "{text}");
            assert_eq!(policy.to_string(), back);
            assert_eq!(back.parse(), Ok(policy));
        }
        assert_eq!(WaitPolicy::default(), adaptive(0, Some(200)));
    }

    #[test]
    fn invalid_policies_are_refused_with_the_cause_and_the_choices() {
        for (text, cause) in [
            ("", "empty"),
            ("spin", "\"spin\" is not a policy"),
            ("Poll", "\"Poll\" is not a policy"),
            ("poll:1", "takes no bounds"),
            ("umwait:10", "umwait takes no bounds"),
            ("block:1:2", "takes no bounds"),
            ("adaptive:5", "two bounds or none"),
            ("adaptive:1:2:3", "two bounds or none"),
            ("adaptive:x:2", "MIN_US \"x\" is not a number"),
            ("adaptive:1:-2", "MAX_US \"-2\" is not a number"),
            ("adaptive:inf:inf", "MIN_US \"inf\" is not a number"),
            ("adaptive:1::", "two bounds or none"),
            ("adaptive:9:2", "MIN_US is above MAX_US"),
        ] {
            let error = text.parse::<WaitPolicy>().expect_err(text).to_string();
            assert!(error.contains(cause), "{error}");
            assert!(error.contains("such as adaptive:0:200"), "{error}");
        }
    }
}
