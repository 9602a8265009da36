//! `dat-bench report`: one HTML page from result files, with plots, figures and
//! conditions. The page needs no network and no script.
//!
//! ```text
//! run     reads the files, names them, writes the page
//! html    the page                 date    seconds since 1970 as date and time
//! ```

mod date;
mod html;
pub(crate) mod options;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::charts::{Section, Source, sections};
use crate::failure::Failure;
use crate::output::{finish, is_stdout, probe_all};
use crate::page::options::ReportArgs;
use crate::plot::page;
use crate::results::ResultFile;

/// The name of the page in a folder.
const PAGE: &str = "report.html";

/// A result file with its names.
struct Input {
    /// As it was given.
    path: PathBuf,
    /// Its name on the page; no other file has it.
    label: String,
    file: ResultFile,
}

/// Runs the command.
pub(crate) fn run(args: &ReportArgs) -> Result<(), Failure> {
    let mut inputs = Vec::new();
    for path in &args.files {
        inputs.push(Input {
            path: path.clone(),
            label: String::new(),
            file: ResultFile::read(path)?,
        });
    }
    name(&mut inputs);
    let sources: Vec<Source<'_>> = inputs
        .iter()
        .map(|input| Source {
            label: &input.label,
            file: &input.file,
        })
        .collect();
    let sections = sections(&sources);
    let files = match args.out.is_dir() {
        true => folder(&args.out, &inputs, &sections),
        false => vec![(args.out.clone(), html::page(&inputs, &sections))],
    };
    for (path, _) in &files {
        if !is_stdout(path) && args.files.iter().any(|input| is_same(input, path)) {
            return Err(Failure::usage(format!(
                "-o {} is one of the result files, which the page would replace: name another file",
                path.display()
            )));
        }
    }
    probe_all(files.iter().map(|(path, _)| path))?;
    finish("", files)
}

/// Returns the page and a file of plots for each section, for an existing folder.
fn folder(folder: &Path, inputs: &[Input], sections: &[Section]) -> Vec<(PathBuf, String)> {
    let mut files = vec![(folder.join(PAGE), html::page(inputs, sections))];
    for section in sections {
        let name = format!("{}.svg", html::slug(section.title));
        files.push((folder.join(name), page(section.title, &section.panels)));
    }
    files
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// Names the files: without folder and extension, unless several would have the same
/// name.
fn name(inputs: &mut [Input]) {
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

    pub(super) fn input(path: &str, json: &str) -> Input {
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
