//! Output of `lat`: table and histogram as text, result files as JSON and
//! HdrHistogram's text.

mod conditions;
pub(crate) mod hgrm;
mod histogram;
mod json;
pub(crate) mod layers;
mod table;

use std::path::{Path, PathBuf};

pub(crate) use conditions::{Conditions, DeviceFacts, Goal};
pub(crate) use table::{NOTE, header, rows};

use crate::cli::Api;
use crate::failure::Failure;
use crate::output::{probe, save};
use crate::stats::Samples;

/// The result of one size and interface.
pub(crate) struct Outcome {
    /// Message size in bytes.
    pub(crate) size: u32,
    /// The interface.
    pub(crate) api: Api,
    /// All samples.
    pub(crate) samples: Samples,
    /// The median of each round, in microseconds.
    pub(crate) round_medians: Vec<f64>,
    /// Whether the received bytes were compared with those sent.
    pub(crate) verified: bool,
}

/// Reported quantiles (0 to 1) and their names.
const QUANTILES: [(f64, &str); 6] = [
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
    (0.999_99, "99.999 %"),
];

/// Returns the quantiles that differ from the maximum for this many samples.
fn resolved_quantiles(count: u64) -> impl Iterator<Item = (f64, &'static str)> {
    QUANTILES
        .into_iter()
        .filter(move |&(share, _)| count as f64 * (1.0 - share) >= 1.0)
}

/// Returns the histogram of one size as text.
pub(crate) fn histogram_text(outcome: &Outcome, conditions: &Conditions) -> String {
    histogram::draw(
        &outcome.samples,
        conditions.reported_name(),
        has_unicode_locale(),
    )
}

/// Returns whether the locale has block characters.
fn has_unicode_locale() -> bool {
    ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|value| !value.is_empty())
        .is_some_and(|value| {
            let value = value.to_ascii_lowercase();
            value.contains("utf-8") || value.contains("utf8")
        })
}

/// The requested result files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    json: Option<PathBuf>,
    hgrm: Vec<(u32, Api, PathBuf)>,
}

impl Files {
    /// Chooses the names of the files, and checks before the measurement that
    /// they can be written.
    pub(crate) fn prepare(
        json: Option<&Path>,
        hgrm: Option<&Path>,
        sizes: &[u32],
        apis: &[Api],
    ) -> Result<Self, Failure> {
        let every = sizes
            .iter()
            .flat_map(|&size| apis.iter().map(move |&api| (size, api)));
        let hgrm = hgrm.map_or_else(Vec::new, |path| {
            every
                .map(|(size, api)| {
                    let mut path = path.to_owned();
                    if sizes.len() > 1 {
                        path = with_suffix(&path, &size.to_string());
                    }
                    if apis.len() > 1 {
                        path = with_suffix(&path, api.name());
                    }
                    (size, api, path)
                })
                .collect()
        });
        let files = Self {
            json: json.map(Path::to_owned),
            hgrm,
        };
        for path in files
            .json
            .iter()
            .chain(files.hgrm.iter().map(|(_, _, path)| path))
        {
            probe(path)?;
        }
        Ok(files)
    }

    /// Writes the files, and returns the paths of those written.
    pub(crate) fn write(
        &self,
        conditions: &Conditions,
        outcomes: &[Outcome],
    ) -> Result<Vec<PathBuf>, Failure> {
        let mut written = Vec::new();
        if let Some(path) = &self.json {
            save(path, &json::document(conditions, outcomes))?;
            written.push(path.clone());
        }
        for (size, api, path) in &self.hgrm {
            let wanted = |outcome: &&Outcome| (outcome.size, outcome.api) == (*size, *api);
            if let Some(outcome) = outcomes.iter().find(wanted) {
                save(path, &hgrm::document(&outcome.samples))?;
                written.push(path.clone());
            }
        }
        Ok(written)
    }
}

/// Inserts a word before the extension: `r.hgrm` and `64` give `r.64.hgrm`, `r`
/// gives `r.64`.
pub(crate) fn with_suffix(path: &Path, word: &str) -> PathBuf {
    match path.extension() {
        Some(extension) => path.with_extension(format!("{word}.{}", extension.to_string_lossy())),
        None => path.with_extension(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_and_api_are_inserted_before_the_extension() {
        assert_eq!(
            with_suffix(Path::new("out/r.hgrm"), "64"),
            Path::new("out/r.64.hgrm")
        );
        assert_eq!(with_suffix(Path::new("r"), "2"), Path::new("r.2"));
        let folder = std::env::temp_dir();
        let names = |sizes: &[u32], apis: &[Api]| -> Vec<String> {
            let files = Files::prepare(None, Some(&folder.join("r.hgrm")), sizes, apis).unwrap();
            let name = |(_, _, path): &(u32, Api, PathBuf)| {
                path.file_name().unwrap().to_string_lossy().into_owned()
            };
            files.hgrm.iter().map(name).collect()
        };
        assert_eq!(names(&[2], &[Api::C]), ["r.hgrm"]);
        assert_eq!(
            names(&[2, 4], &[Api::Rust, Api::C]),
            ["r.2.rust.hgrm", "r.2.c.hgrm", "r.4.rust.hgrm", "r.4.c.hgrm"]
        );
    }

    #[test]
    fn an_unwritable_file_is_refused_before_the_run() {
        let failure = Files::prepare(
            Some(Path::new("/nonexistent/r.json")),
            None,
            &[2],
            &[Api::Engine],
        )
        .unwrap_err();
        assert_eq!(failure.status(), 1);
    }

    #[test]
    fn percentiles_that_equal_the_maximum_are_left_out() {
        assert_eq!(resolved_quantiles(1000).last().unwrap().1, "99.9 %");
        assert_eq!(resolved_quantiles(0).count(), 0);
    }
}
