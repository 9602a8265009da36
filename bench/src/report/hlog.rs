//! HdrHistogram's log (.hlog), which its tools read and merge: one line per case, with the whole
//! histogram in nanoseconds. A case is one interval, from the begin of the run to its end, with
//! the words that distinguish it as its tag.

use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::failure::Failure;
use crate::stats::Samples;

/// Histograms are in nanoseconds, the maximum beside each in microseconds.
const NANOSECONDS_PER_MICROSECOND: f64 = 1000.0;

/// Returns the text of a file. `began` is when the run began, `took` how long it took.
pub(crate) fn document<'a>(
    began: SystemTime,
    took: Duration,
    cases: impl Iterator<Item = (&'a [String], &'a Samples)>,
) -> Result<String, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::run(format!("cannot encode a histogram for --hlog: {error}"))
    };
    let mut out = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("dat-bench: histograms in nanoseconds, Interval_Max in microseconds")
        .with_start_time(began)
        .with_max_value_divisor(NANOSECONDS_PER_MICROSECOND)
        .begin_log_with(&mut out, &mut serializer)
        .map_err(|error| failed(&error))?;
    for (words, samples) in cases {
        let name = words.join("-");
        let tag = Tag::new(&name).filter(|_| !name.is_empty());
        log.write_histogram(samples.histogram(), Duration::ZERO, took, tag)
            .map_err(|error| failed(&format!("{error:?}")))?;
    }
    String::from_utf8(out).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;
    use crate::clock::Clock;
    use crate::stats::Reported;

    #[test]
    fn a_reader_finds_every_case_with_its_tag_and_its_samples() {
        let clock = Clock::monotonic();
        let mut samples = Samples::new(&clock, Reported::FullRoundTrip);
        for nanoseconds in [1_000, 2_000, 2_000, 9_000] {
            samples.record(nanoseconds);
        }
        let words = [vec!["64".to_owned(), "rust".to_owned()], Vec::new()];
        let cases = words.iter().map(|words| (&words[..], &samples));
        let took = Duration::from_millis(1500);
        let text = document(SystemTime::UNIX_EPOCH, took, cases).unwrap();
        assert!(
            text.starts_with("#dat-bench") && text.contains("#[StartTime: 0.000"),
            "{text}"
        );
        let mut tags = Vec::new();
        for entry in IntervalLogIterator::new(text.as_bytes()) {
            let LogEntry::Interval(interval) = entry.unwrap() else {
                continue;
            };
            tags.push(interval.tag().map(|tag| tag.as_str().to_owned()));
            assert_eq!(interval.duration(), took);
            assert!((interval.max() - 9.0).abs() < 0.01, "{}", interval.max());
            let encoded = interval.encoded_histogram();
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(encoded)
                .unwrap();
            let read = Deserializer::new()
                .deserialize::<u64, _>(&mut &bytes[..])
                .unwrap();
            assert_eq!(read.len(), 4);
            assert_eq!(
                read.value_at_quantile(0.5),
                samples.histogram().value_at_quantile(0.5)
            );
        }
        assert_eq!(tags, [Some("64-rust".to_owned()), None]);
    }
}
