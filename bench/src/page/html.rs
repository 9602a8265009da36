//! The page. It is well-formed XML, too, so that tests can parse it.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::date;
use super::input::Input;
use crate::charts::Section;
use crate::output::counted;
use crate::plot::{draw, escape};
use crate::results::{Case, Figure, Unit};

const STYLE: &str = include_str!("style.css");

/// Nothing is loaded and no script runs.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

const EMULATED: &str = "EMULATED NIC: the times are those of programs on this host. \
They say nothing about hardware, and are no hardware latencies.";

pub(super) fn page(inputs: &[Input], sections: &[Section]) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\"/>\n\
         <title>dat-bench report</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>dat-bench report</h1>\n"
    );
    banners(&mut out, inputs);
    files(&mut out, inputs);
    for section in sections {
        plots(&mut out, section);
    }
    out.push_str("<section id=\"figures\">\n<h2>Figures</h2>\n");
    for input in inputs {
        figures(&mut out, input);
    }
    out.push_str("</section>\n");
    conditions(&mut out, inputs);
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<footer>Made by dat-bench {} from {}. How to read the figures: docs/measuring.md of dat-bench.</footer>\n</main>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
        counted(inputs.len() as u64, "result file"),
    );
    out
}

/// Returns a title as the name of a file or an element.
pub(super) fn slug(title: &str) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    words.join("-")
}

fn unreliable(input: &Input) -> usize {
    let cases = input.file.cases.iter();
    cases.filter(|case| !case.unreliable.is_empty()).count()
}

/// Says first what must not be overlooked.
fn banners(out: &mut String, inputs: &[Input]) {
    let emulated: Vec<&str> = inputs
        .iter()
        .filter(|input| input.file.emulated)
        .map(|input| input.label.as_str())
        .collect();
    if !emulated.is_empty() {
        let of = match emulated.len() == inputs.len() {
            true => String::new(),
            false => format!(" This holds for {}.", emulated.join(", ")),
        };
        let _ = writeln!(
            out,
            "<p class=\"banner\" role=\"note\">{}</p>",
            escape(&format!("{EMULATED}{of}"))
        );
    }
    let bad: usize = inputs.iter().map(unreliable).sum();
    let all: usize = inputs.iter().map(|input| input.file.cases.len()).sum();
    if bad > 0 {
        let _ = writeln!(
            out,
            "<p class=\"banner\" role=\"note\">UNRELIABLE: {bad} of {}. Their marks in the plots are hollow; \
             the reasons are in the tables.</p>",
            counted(all as u64, "result")
        );
    }
}

fn files(out: &mut String, inputs: &[Input]) {
    let rows = inputs.iter().map(|input| {
        let file = &input.file;
        let device = file.condition("device.name").unwrap_or("?");
        let kind = if file.emulated {
            "emulated NIC"
        } else {
            "not emulated"
        };
        let reliable = match unreliable(input) {
            0 => "all reliable".to_owned(),
            bad => format!("{bad} UNRELIABLE"),
        };
        vec![
            escape(&input.label),
            escape(&input.path.display().to_string()),
            escape(file.command),
            format!("{} ({kind})", escape(device)),
            escape(file.condition("host.name").unwrap_or("?")),
            file.finished_at.map_or("?".to_owned(), date::utc),
            escape(&file.version),
            format!("{}: {reliable}", file.cases.len()),
        ]
    });
    let names = "name|file|command|device|host|finished|dat-bench|results".split('|');
    let names: Vec<String> = names.map(str::to_owned).collect();
    out.push_str("<section id=\"files\">\n<h2>Files</h2>\n");
    table(out, "words", &names, rows);
    out.push_str("</section>\n");
}

/// Appends a table; the cells of `rows` are HTML.
fn table(out: &mut String, class: &str, names: &[String], rows: impl Iterator<Item = Vec<String>>) {
    // Writing to a String cannot fail.
    let _ = write!(out, "<table class=\"{class}\">\n<thead><tr>");
    for name in names {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape(name));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        for (index, (name, cell)) in names.iter().zip(row).enumerate() {
            // On a narrow screen each cell has the name of its column beside it.
            let name = escape(name);
            let _ = match index {
                0 => write!(out, "<th scope=\"row\">{cell}</th>"),
                _ => write!(out, "<td data-label=\"{name}\"><span>{cell}</span></td>"),
            };
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n");
}

fn plots(out: &mut String, section: &Section) {
    let _ = writeln!(
        out,
        "<section id=\"{}\">\n<h2>{}</h2>",
        slug(section.title),
        escape(section.title)
    );
    let has_tail = |panel: &crate::plot::Panel| panel.lines.iter().any(|it| !it.tail.is_empty());
    if section.panels.iter().any(has_tail) {
        out.push_str(
            "<p>Percentiles are on HdrHistogram's axis, 1/(1-p): 90 %, 99 % and 99.9 % have the same distance. \
             A line is dotted where fewer than ten samples are above; it ends at the largest sample.</p>\n",
        );
    }
    if section.panels.iter().any(|panel| !panel.hovers.is_empty()) {
        out.push_str(
            "<p>Each round is divided into parts. Point at one to see its values, and at a mark above the plot to see \
             what disturbed the round.</p>\n",
        );
    }
    if section.is_folded() {
        let _ = writeln!(
            out,
            "<details><summary>{} plots</summary>",
            section.panels.len()
        );
    }
    out.push_str("<div class=\"plots\">\n");
    for panel in &section.panels {
        let drawn = draw(panel);
        let _ = writeln!(
            out,
            "<figure><svg viewBox=\"0 0 {} {:.0}\" role=\"img\" aria-label=\"{}\">\n{}</svg></figure>",
            drawn.width,
            drawn.height,
            escape(&panel.title),
            drawn.elements
        );
    }
    out.push_str("</div>\n");
    if section.is_folded() {
        out.push_str("</details>\n");
    }
    out.push_str("</section>\n");
}

/// Appends all figures of a file.
fn figures(out: &mut String, input: &Input) {
    let file = &input.file;
    let _ = writeln!(
        out,
        "<h3>{}: {}</h3>",
        escape(&input.label),
        escape(&file.heading())
    );
    for note in &file.notes {
        let _ = writeln!(out, "<p>{}</p>", escape(note));
    }
    let name = |figure: &Figure| figure.column(file.command);
    let mut columns: Vec<String> = Vec::new();
    for figure in file.cases.iter().flat_map(|case| &case.figures) {
        if !columns.contains(&name(figure)) {
            columns.push(name(figure));
        }
    }
    let has_samples = file.cases.iter().any(|case| case.samples.is_some());
    let mut names = vec!["result".to_owned()];
    names.extend(has_samples.then(|| "samples".to_owned()));
    names.extend(columns.iter().cloned());
    names.push("reliability".to_owned());
    let rows = file.cases.iter().map(|case| {
        let mut row = vec![escape(&case.name)];
        let samples = || {
            case.samples
                .map_or("-".to_owned(), |count| count.to_string())
        };
        row.extend(has_samples.then(samples));
        row.extend(columns.iter().map(|column| {
            let figure = case.figures.iter().find(|it| name(it) == *column);
            figure.map_or("-".to_owned(), number)
        }));
        row.push(reliability(case));
        row
    });
    table(out, "numbers", &names, rows);
}

fn reliability(case: &Case) -> String {
    match case.unreliable.is_empty() {
        true => "no problem noticed".to_owned(),
        false => format!(
            "<strong class=\"bad\">UNRELIABLE</strong>: {}",
            escape(&case.unreliable.join("; "))
        ),
    }
}

/// Returns a figure, rounded, with the value of the file beside it.
fn number(figure: &Figure) -> String {
    let value = figure.value;
    let shown = match figure.unit {
        Unit::Microseconds | Unit::Megamessages => format!("{value:.3}"),
        Unit::Nanoseconds | Unit::Percent | Unit::Mebibytes => format!("{value:.1}"),
        Unit::None if value.fract() == 0.0 => value.to_string(),
        Unit::None => format!("{value:.2}"),
    };
    format!("<data value=\"{value}\">{shown}</data>")
}

/// Appends a row for each condition, with a column for each file.
fn conditions(out: &mut String, inputs: &[Input]) {
    let short = |name: &str| name.trim_start_matches("conditions.").to_owned();
    let names: BTreeSet<String> = inputs
        .iter()
        .flat_map(|input| input.file.conditions.keys())
        .map(|name| short(name))
        .collect();
    let mut columns = vec!["condition".to_owned()];
    columns.extend(inputs.iter().map(|input| input.label.clone()));
    out.push_str(
        "<section id=\"conditions\">\n<h2>Host and conditions</h2>\n\
         <p>A condition in which the files differ is marked by \u{2260}.</p>\n",
    );
    let rows = names.iter().map(|name| {
        let values: Vec<_> = inputs
            .iter()
            .map(|input| input.file.condition(name))
            .collect();
        let differs = values.iter().any(|value| value != &values[0]);
        let mark = if differs {
            " <strong>\u{2260}</strong>"
        } else {
            ""
        };
        let mut row = vec![escape(name) + mark];
        row.extend(values.iter().map(|value| escape(value.unwrap_or("-"))));
        row
    });
    table(out, "words", &columns, rows);
    out.push_str("</section>\n");
}

#[cfg(test)]
mod tests;
