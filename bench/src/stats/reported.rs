//! What is reported: which part of a round trip, and which percentiles.

/// Least number of samples above a percentile: with fewer, it says more about
/// chance than about the distribution.
const LEAST_ABOVE: f64 = 10.0;

/// Returns whether this many samples are enough for a percentile (0 to 1).
pub(crate) fn supports(samples: u64, share: f64) -> bool {
    // The tolerance is for shares such as 0.999, whose complement is not exact.
    samples as f64 * (1.0 - share) + 1e-6 >= LEAST_ABOVE
}

/// The part of a round trip that is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reported {
    /// Half of it: one way (send and write).
    HalfRoundTrip,
    /// All of it (read, which returns the data within the operation).
    FullRoundTrip,
}

impl Reported {
    pub(super) fn divisor(self) -> f64 {
        match self {
            Self::HalfRoundTrip => 2.0,
            Self::FullRoundTrip => 1.0,
        }
    }
}
