//! The result files of a page, and their names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::results::ResultFile;

/// A result file with its names.
pub(super) struct Input {
    /// As it was given.
    pub(super) path: PathBuf,
    /// Its name on the page; no other file has it.
    pub(super) label: String,
    pub(super) file: ResultFile,
}

/// Names the files: without folder and extension, unless several would have the same
/// name.
pub(super) fn name(inputs: &mut [Input]) {
    let stem = |path: &Path| match path.file_stem() {
        Some(stem) => stem.to_string_lossy().into_owned(),
        None => path.display().to_string(),
    };
    let stems: Vec<String> = inputs.iter().map(|input| stem(&input.path)).collect();
    let mut taken = BTreeSet::new();
    for (input, stem) in inputs.iter_mut().zip(&stems) {
        let is_unique = stems.iter().filter(|other| *other == stem).count() == 1;
        let wanted = match is_unique {
            true => stem.clone(),
            false => input.path.display().to_string(),
        };
        let mut label = wanted.clone();
        let mut number = 2;
        while !taken.insert(label.clone()) {
            label = format!("{wanted} ({number})");
            number += 1;
        }
        input.label = label;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(path: &str, json: &str) -> Input {
        Input {
            path: path.into(),
            label: String::new(),
            file: ResultFile::parse(json).unwrap(),
        }
    }

    #[test]
    fn every_file_has_a_name_of_its_own() {
        let empty = r#"{"schema": "dat-bench/lat/3", "results": []}"#;
        let paths = ["a/before.json", "after.json", "b/before.json", "after.json"];
        let mut inputs = paths.map(|path| input(path, empty));
        name(&mut inputs);
        let labels = inputs.map(|input| input.label);
        assert_eq!(
            labels,
            [
                "a/before.json",
                "after.json",
                "b/before.json",
                "after.json (2)"
            ]
        );
        let mut one = [input("out/r.json", empty)];
        name(&mut one);
        assert_eq!(one[0].label, "r");
    }
}
