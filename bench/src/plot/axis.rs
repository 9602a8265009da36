//! Axes: scales, ranges and ticks with their labels.

use super::text;

/// How values are placed on an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scale {
    /// From zero.
    Linear,
    Log,
    /// Logarithmic; ticks are powers of two, as for sizes in bytes.
    PowersOfTwo,
    /// HdrHistogram's: values are 1/(1-p), ticks are 90 %, 99 %, 99.9 %, …
    Percentile,
    /// Values are indices of names, the first one on top.
    Names(Vec<String>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis {
    /// What it shows, and its unit.
    pub(crate) label: String,
    pub(crate) scale: Scale,
}

impl Axis {
    /// Returns an axis; its label is the quantity and its unit in brackets.
    pub(crate) fn new(quantity: &str, unit: &str, scale: Scale) -> Self {
        let label = match unit {
            "" => quantity.to_owned(),
            unit => format!("{quantity} [{unit}]"),
        };
        Self { label, scale }
    }
}

/// A tick: its place from 0 (left, bottom) to 1, and its label, empty for a minor one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: String,
}

/// A scale with the range of its values.
pub(super) struct Range<'a> {
    scale: &'a Scale,
    low: f64,
    high: f64,
    pub(super) ticks: Vec<Tick>,
}

/// Values that are farther from zero are at the end of the axis.
const FARTHEST: f64 = 1e30;
/// Most labels of an axis.
const MOST_TICKS: usize = 8;

impl<'a> Range<'a> {
    /// Chooses range and ticks for these values; `room` is the length of a horizontal
    /// axis, on which labels must not overlap.
    pub(super) fn new(
        scale: &'a Scale,
        values: impl Iterator<Item = f64>,
        room: Option<(f64, f64)>,
    ) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        // A file may have any numbers.
        for value in values.filter(|value| value.abs() < FARTHEST) {
            if matches!(scale, Scale::Linear | Scale::Names(_)) || value > 1.0 / FARTHEST {
                (low, high) = (low.min(value), high.max(value));
            }
        }
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        (low, high) = match scale {
            Scale::Linear => (0.0, if high > 0.0 { high * 1.05 } else { 1.0 }),
            Scale::Log => spread(low, high, 1.12, 1.8),
            Scale::PowersOfTwo => spread(low, high, 1.15, 4.0),
            Scale::Percentile => (1.0, high.max(10.0) * 1.05),
            Scale::Names(names) => (0.0, names.len().max(1) as f64),
        };
        let mut range = Self {
            scale,
            low,
            high,
            ticks: Vec::new(),
        };
        range.ticks = range.choose_ticks(room);
        range
    }

    /// Returns the place of a value, from 0 (left, bottom) to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = match self.scale {
            Scale::Linear => value / self.high,
            Scale::Names(_) => 1.0 - (value + 0.5) / self.high,
            // Not max, which ignores a value that is no number.
            _ if value < self.low => 0.0,
            _ => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        place.clamp(0.0, 1.0)
    }

    fn choose_ticks(&self, room: Option<(f64, f64)>) -> Vec<Tick> {
        let values: Vec<(f64, String)> = match self.scale {
            Scale::Names(names) => names
                .iter()
                .enumerate()
                .map(|(index, name)| (index as f64, name.clone()))
                .collect(),
            Scale::Linear => even(self.low, self.high),
            Scale::Log => self.log(),
            Scale::PowersOfTwo => self.powers_of_two(),
            Scale::Percentile => self.percentiles(),
        };
        let mut ticks: Vec<Tick> = values
            .into_iter()
            .map(|(value, label)| Tick {
                at: self.place(value),
                label,
            })
            .collect();
        if let Some((room, size)) = room {
            thin_out(&mut ticks, room, size);
        }
        ticks
    }

    /// Returns powers of ten; 1, 2 and 5 times them if the range is short; even steps
    /// if it is shorter still.
    fn log(&self) -> Vec<(f64, String)> {
        let decades = (self.high / self.low).log10();
        let mantissas: &[f64] = match decades {
            decades if decades < 0.8 => return even(self.low, self.high),
            decades if decades < 2.7 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let exponents = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        exponents
            .flat_map(|exponent| mantissas.iter().map(move |m| m * 10f64.powi(exponent)))
            .filter(|value| (self.low..=self.high).contains(value))
            .map(|value| (value, number(value)))
            .collect()
    }

    fn powers_of_two(&self) -> Vec<(f64, String)> {
        let all: Vec<i32> =
            (self.low.log2().ceil() as i32..=self.high.log2().floor() as i32).collect();
        let step = all.len().div_ceil(MOST_TICKS).max(1);
        all.into_iter()
            .step_by(step)
            .map(|power| (2f64.powi(power), bytes(2f64.powi(power))))
            .collect()
    }

    fn percentiles(&self) -> Vec<(f64, String)> {
        let nines = self.high.log10().floor() as usize;
        (0..=nines)
            .map(|nines| {
                let label = match nines {
                    0 => "0".to_owned(),
                    1 => "90".to_owned(),
                    2 => "99".to_owned(),
                    more => format!("99.{}", "9".repeat(more - 2)),
                };
                (10f64.powi(nines as i32), label)
            })
            .collect()
    }
}

/// Widens a logarithmic range by a factor at both ends, and to a least ratio.
fn spread(low: f64, high: f64, margin: f64, least: f64) -> (f64, f64) {
    let (low, high) = (low.max(high * 1e-12) / margin, high * margin);
    if high / low >= least {
        return (low, high);
    }
    let middle = (low * high).sqrt();
    (middle / least.sqrt(), middle * least.sqrt())
}

/// Returns ticks at even steps of 1, 2 or 5 times a power of ten.
fn even(low: f64, high: f64) -> Vec<(f64, String)> {
    let rough = (high - low) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|&step| step >= rough * 0.999)
        .unwrap_or(rough);
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last)
        .map(|index| index as f64 * step)
        .map(|value| match value < 10_000.0 {
            true => (value, format!("{value:.decimals$}")),
            false => (value, number(value)),
        })
        .collect()
}

/// Removes the labels that would overlap the label before them. The tick remains.
fn thin_out(ticks: &mut [Tick], room: f64, size: f64) {
    let mut end = f64::NEG_INFINITY;
    for tick in ticks {
        let half = text::width(&tick.label, size) / 2.0;
        let centre = tick.at * room;
        if centre - half < end {
            tick.label.clear();
        } else {
            end = centre + half + size * 0.5;
        }
    }
}

/// Returns a number as a label.
pub(crate) fn number(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        size if size >= 1e15 => return format!("{value:.0e}"),
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    // Nine decimals at most, without the noise of the last binary digits.
    let digits = format!("{scaled:.9}");
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}{suffix}")
}

/// Returns a number of bytes as a label.
fn bytes(value: f64) -> String {
    match value {
        value if value >= 1_048_576.0 => format!("{}M", value / 1_048_576.0),
        value if value >= 1024.0 => format!("{}K", value / 1024.0),
        value => number(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(scale: &Scale, values: &[f64]) -> Vec<String> {
        let range = Range::new(scale, values.iter().copied(), None);
        range.ticks.into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn percentiles_are_at_hdrhistograms_places() {
        let range = Range::new(&Scale::Percentile, [1.0, 10_000.0].into_iter(), None);
        let labels: Vec<&str> = range.ticks.iter().map(|it| it.label.as_str()).collect();
        assert_eq!(labels, ["0", "90", "99", "99.9", "99.99"]);
        // 1/(1-p), logarithmic: every nine has the same length.
        let steps: Vec<f64> = range
            .ticks
            .windows(2)
            .map(|it| it[1].at - it[0].at)
            .collect();
        assert!(
            steps.iter().all(|step| (step - steps[0]).abs() < 1e-9),
            "{steps:?}"
        );
    }

    #[test]
    fn sizes_are_powers_of_two_and_numbers_are_short() {
        assert_eq!(
            labels(&Scale::PowersOfTwo, &[2.0, 8_388_608.0])[..3],
            ["2", "16", "128"]
        );
        assert_eq!(labels(&Scale::PowersOfTwo, &[1024.0]), ["512", "1K", "2K"]);
        assert_eq!(labels(&Scale::Log, &[1.0, 1e6])[3..5], ["1000", "10k"]);
        assert_eq!(number(0.1 + 0.2), "0.3");
        assert_eq!(number(2_500_000.0), "2.5M");
    }

    #[test]
    fn labels_that_would_overlap_are_left_out_and_their_ticks_remain() {
        let scale = Scale::Percentile;
        let range = Range::new(&scale, [1.0, 1e9].into_iter(), Some((200.0, 12.0)));
        assert_eq!(range.ticks.len(), 10);
        let shown = range.ticks.iter().filter(|it| !it.label.is_empty()).count();
        assert!((3..10).contains(&shown), "{shown}");
    }

    proptest! {
        #[test]
        fn every_axis_has_labels_and_every_value_is_on_it(
            values in proptest::collection::vec(1e-3..1e9f64, 1..20), kind in 0..3usize
        ) {
            let scale = [Scale::Linear, Scale::Log, Scale::PowersOfTwo][kind].clone();
            let range = Range::new(&scale, values.iter().copied(), None);
            let labels = range.ticks.iter().filter(|tick| !tick.label.is_empty()).count();
            let least = if kind == 2 { 1 } else { 2 };
            prop_assert!(labels >= least, "{labels} {:?}", range.ticks);
            prop_assert!(labels <= 12, "{:?}", range.ticks);
            for value in values {
                prop_assert!((0.0..=1.0).contains(&range.place(value)), "{value}");
            }
            for tick in &range.ticks {
                prop_assert!((-1e-9..=1.0 + 1e-9).contains(&tick.at), "{tick:?}");
            }
        }
    }
}
