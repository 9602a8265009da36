//! The result files of a command that measures latencies: one for the run (JSON),
//! and one for each case (HdrHistogram's text).

use std::path::{Path, PathBuf};

use super::hgrm;
use crate::failure::Failure;
use crate::output::probe_all;
use crate::stats::Samples;

/// The requested result files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    json: Option<PathBuf>,
    /// One per case, or none.
    hgrm: Vec<PathBuf>,
}

impl Files {
    /// Chooses the names of the files, and checks before the measurement that
    /// they can be written. `cases` are the words that distinguish the cases, in
    /// their order; a single case has none.
    pub(crate) fn prepare(
        json: Option<&Path>,
        hgrm: Option<&Path>,
        cases: &[Vec<String>],
    ) -> Result<Self, Failure> {
        let named = |path: &Path, words: &Vec<String>| {
            words.iter().fold(path.to_owned(), |path, word| {
                with_suffix(&path, &word.replace(':', "-"))
            })
        };
        let hgrm = hgrm.map_or_else(Vec::new, |path| {
            cases.iter().map(|words| named(path, words)).collect()
        });
        let json = json.map(Path::to_owned);
        probe_all(json.iter().chain(&hgrm))?;
        Ok(Self { json, hgrm })
    }

    /// Returns names and contents. `cases` are the samples of all cases, in the
    /// order of [`Files::prepare`].
    pub(crate) fn contents<'a>(
        self,
        json: impl FnOnce() -> String,
        cases: impl IntoIterator<Item = &'a Samples>,
    ) -> Vec<(PathBuf, String)> {
        let run = self.json.map(|path| (path, json()));
        let each = self.hgrm.into_iter().zip(cases);
        run.into_iter()
            .chain(each.map(|(path, samples)| (path, hgrm::document(samples))))
            .collect()
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
        let path = std::env::temp_dir().join("r.hgrm");
        let names = |cases: &[&[&str]]| -> Vec<String> {
            let words = |case: &&[&str]| case.iter().map(|&word| word.to_owned()).collect();
            let cases: Vec<_> = cases.iter().map(words).collect();
            let files = Files::prepare(None, Some(&path), &cases).unwrap();
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
    fn an_unwritable_file_is_refused_before_the_run() {
        let path = Path::new("/nonexistent/r.json");
        let failure = Files::prepare(Some(path), None, &[]).unwrap_err();
        assert_eq!(failure.status(), 1);
    }
}
