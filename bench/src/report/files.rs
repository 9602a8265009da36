//! The result files of a command: four for the run (JSON, CSV, SVG, HdrHistogram's
//! log), and one for each case (HdrHistogram's text).

use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use super::reliability::{self, Reliability};
use super::{csv, hgrm, hlog, svg};
use crate::failure::Failure;
use crate::options::{HistogramArgs, ResultArgs};
use crate::output::{finish, is_stdout, probe_all};
use crate::results;
use crate::stats::Samples;

/// The requested result files.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    results: ResultArgs,
    /// One per case, or none.
    hgrm: Vec<PathBuf>,
    hlog: Option<PathBuf>,
    /// The words that distinguish the cases.
    cases: Vec<Vec<String>>,
    /// When the run began, by two clocks.
    began: (SystemTime, Instant),
    /// Other files: names and contents.
    others: Vec<(PathBuf, String)>,
}

impl Files {
    /// Chooses the names of the files, and checks before the measurement that
    /// they can be written. `cases` are the words that distinguish the cases, in
    /// their order; a single case has none.
    pub(crate) fn prepare(
        results: &ResultArgs,
        histograms: &HistogramArgs,
        cases: Vec<Vec<String>>,
    ) -> Result<Self, Failure> {
        let named = |path: &Path, words: &Vec<String>| {
            words.iter().fold(path.to_owned(), |path, word| {
                with_suffix(&path, &word.replace(':', "-"))
            })
        };
        let HistogramArgs { hgrm, hlog } = histograms.clone();
        if cases.len() > 1 && hgrm.as_deref().is_some_and(is_stdout) {
            return Err(Failure::usage(format!(
                "--hgrm - is for one case, and this run has {}: name a file",
                cases.len()
            )));
        }
        let hgrm = hgrm.map_or_else(Vec::new, |path| {
            cases.iter().map(|words| named(&path, words)).collect()
        });
        let ResultArgs { json, csv, svg, .. } = results;
        let of_run = [json, csv, svg, &hlog].into_iter().flatten();
        probe_all(of_run.chain(&hgrm))?;
        Ok(Self {
            results: results.clone(),
            hgrm,
            hlog,
            cases,
            began: (SystemTime::now(), Instant::now()),
            others: Vec::new(),
        })
    }

    /// As [`Files::prepare`], for a command without histograms.
    pub(crate) fn of_run(results: &ResultArgs) -> Result<Self, Failure> {
        Self::prepare(results, &HistogramArgs::default(), Vec::new())
    }

    /// Adds a file that the command has made; its name must have been checked before the
    /// measurement.
    pub(crate) fn add(&mut self, path: PathBuf, text: String) {
        self.others.push((path, text));
    }

    /// Ends a command: prints its text, writes the files, and fails if the run failed, or if its
    /// results are not as requested. `json` is the JSON file, from which the CSV and SVG files are
    /// made. `cases` are the samples of the cases, in the order of [`Files::prepare`]; cases that
    /// were not measured may be missing at the end.
    pub(crate) fn conclude<'a>(
        self,
        ended: Result<(), Failure>,
        text: String,
        json: &str,
        cases: impl IntoIterator<Item = &'a Samples>,
        judged: &[Reliability<'_>],
    ) -> Result<(), Failure> {
        let ResultArgs {
            strict, fail_if, ..
        } = self.results.clone();
        let finished = finish(text, self.contents(json, cases)?);
        ended.and(finished)?;
        results::require(json, &fail_if)?;
        reliability::require(strict, judged)
    }

    /// Returns names and contents.
    fn contents<'a>(
        self,
        json: &str,
        cases: impl IntoIterator<Item = &'a Samples>,
    ) -> Result<Vec<(PathBuf, String)>, Failure> {
        let csv = self
            .results
            .csv
            .map(|path| Ok((path, csv::document(json)?)));
        let svg = self
            .results
            .svg
            .map(|path| Ok((path, svg::document(json)?)));
        let made = csv.into_iter().chain(svg);
        let mut files: Vec<_> = made.collect::<Result<_, Failure>>()?;
        files.extend(self.results.json.map(|path| (path, json.to_owned())));
        let cases: Vec<&Samples> = cases.into_iter().collect();
        if let Some(path) = self.hlog {
            let (began, at) = self.began;
            let words = self.cases.iter().map(Vec::as_slice);
            let text = hlog::document(began, at.elapsed(), words.zip(cases.iter().copied()))?;
            files.push((path, text));
        }
        let each = self.hgrm.into_iter().zip(cases);
        files.extend(each.map(|(path, samples)| (path, hgrm::document(samples))));
        files.extend(self.others);
        Ok(files)
    }
}

/// Inserts a word before the extension: `r.hgrm` and `64` give `r.64.hgrm`, `r`
/// gives `r.64`.
fn with_suffix(path: &Path, word: &str) -> PathBuf {
    match path.extension() {
        Some(extension) => path.with_extension(format!("{word}.{}", extension.to_string_lossy())),
        None => path.with_extension(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_case_are_inserted_before_the_extension() {
        assert_eq!(
            with_suffix(Path::new("out/r.hgrm"), "64"),
            Path::new("out/r.64.hgrm")
        );
        assert_eq!(with_suffix(Path::new("r"), "2"), Path::new("r.2"));
        let histograms = HistogramArgs {
            hgrm: Some(std::env::temp_dir().join("r.hgrm")),
            hlog: None,
        };
        let names = |cases: &[&[&str]]| -> Vec<String> {
            let words = |case: &&[&str]| case.iter().map(|&word| word.to_owned()).collect();
            let cases: Vec<_> = cases.iter().map(words).collect();
            let files = Files::prepare(&ResultArgs::default(), &histograms, cases).unwrap();
            let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
            files.hgrm.iter().map(name).collect()
        };
        assert_eq!(names(&[&[]]), ["r.hgrm"]);
        assert_eq!(
            names(&[&["2", "rust"], &["adaptive:0:50", "1000"]]),
            ["r.2.rust.hgrm", "r.adaptive-0-50.1000.hgrm"]
        );
    }

    #[test]
    fn standard_output_has_room_for_one_histogram() {
        let cases = vec![vec!["2".to_owned()], vec!["4".to_owned()]];
        let histograms = HistogramArgs {
            hgrm: Some("-".into()),
            hlog: None,
        };
        let failure = Files::prepare(&ResultArgs::default(), &histograms, cases).unwrap_err();
        assert_eq!(failure.status(), 1);
    }

    #[test]
    fn an_unwritable_file_is_refused_before_the_run() {
        let results = ResultArgs {
            json: Some("/nonexistent/r.json".into()),
            ..ResultArgs::default()
        };
        let failure = Files::of_run(&results).unwrap_err();
        assert_eq!(failure.status(), 1);
    }
}
