//! `dat-bench report`: one HTML page from result files, with plots, figures and
//! conditions. The page needs no network and no script.
//!
//! ```text
//! run     reads the files, names them, writes the page
//! html    the page                 date    seconds since 1970 as date and time
//! input   the result files, and their names
//! ```

mod date;
mod html;
mod input;
pub(crate) mod options;

use std::path::{Path, PathBuf};

use self::input::{Input, name};
use crate::charts::{Section, Source, sections};
use crate::failure::Failure;
use crate::output::{finish, is_stdout, probe_all};
use crate::page::options::ReportArgs;
use crate::plot::page;
use crate::results::ResultFile;

/// The name of the page in a folder.
const PAGE: &str = "report.html";

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

/// Returns the page of these files, for `fuzz/`.
#[cfg(fuzzing)]
pub(crate) fn of(files: &[(&str, ResultFile)]) -> String {
    let input = |(path, file): &(&str, ResultFile)| Input {
        path: path.into(),
        label: String::new(),
        file: file.clone(),
    };
    let mut inputs: Vec<Input> = files.iter().map(input).collect();
    name(&mut inputs);
    let sources: Vec<Source<'_>> = inputs
        .iter()
        .map(|Input { label, file, .. }| Source { label, file })
        .collect();
    html::page(&inputs, &sections(&sources))
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
