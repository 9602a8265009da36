//! The page is well-formed, needs nothing else, and says what must not be overlooked.

use super::*;
use crate::charts::{Source, sections};
use crate::results::ResultFile;
use serde_json::json;

fn inputs(files: &[(&str, serde_json::Value)]) -> Vec<Input> {
    let input = |(label, json): &(&str, serde_json::Value)| Input {
        path: format!("{label}.json").into(),
        label: (*label).to_owned(),
        file: ResultFile::parse(&json.to_string()).unwrap(),
    };
    files.iter().map(input).collect()
}

fn html(inputs: &[Input]) -> String {
    let source =
        |input: &'_ Input| -> (String, ResultFile) { (input.label.clone(), input.file.clone()) };
    let all: Vec<_> = inputs.iter().map(source).collect();
    let sources: Vec<_> = all
        .iter()
        .map(|(label, file)| Source { label, file })
        .collect();
    page(inputs, &sections(&sources))
}

/// A result of `lat` whose texts have characters with a meaning in HTML.
fn lat(emulated: bool, unreliable: bool) -> serde_json::Value {
    let problems = match unreliable {
        true => json!([{"kind": "starved", "reason": "it ran <29> % of the time"}]),
        false => json!([]),
    };
    json!({
        "schema": "dat-bench/lat/3", "dat_bench": "0.1.0", "finished_at": 1_795_787_986,
        "emulated": emulated,
        "host": {"name": "a & b", "cpu": "x"}, "device": {"name": "mlx5_<0>"},
        "run": {"operation": "send", "reported": "half_round_trip"},
        "results": [{"bytes": 2, "api": "engine", "iterations": 100, "t_typical": 1.234_567_8,
                     "unreliable": problems,
                     "histogram": {"nanoseconds_and_count": [[1000, 90], [2000, 10]]}}],
        "layers": [],
    })
}

/// Fails the test unless each element ends where it should, and attributes have
/// quotation marks.
fn check_well_formed(html: &str) {
    let mut open: Vec<&str> = Vec::new();
    let body = html
        .strip_prefix("<!DOCTYPE html>\n")
        .expect("a document type");
    // The style sheet is no markup, but has no characters of markup either.
    for tag in body.split('<').skip(1) {
        let (tag, text) = tag
            .split_once('>')
            .unwrap_or_else(|| panic!("no end: <{tag}"));
        assert!(
            !text.contains('"') || open.last() == Some(&"style") || tag == "style",
            "{text}"
        );
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "<{tag}>");
            continue;
        }
        assert!(tag.matches('"').count() % 2 == 0, "<{tag}>");
        if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().unwrap());
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn the_page_is_well_formed_and_loads_nothing() {
    let inputs = inputs(&[("a<b", lat(true, true)), ("c&d", lat(false, false))]);
    let html = html(&inputs);
    check_well_formed(&html);
    for foreign in [
        "://", "<script", "<link", "<img", " src=", "@import", "url(",
    ] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    for said in [
        "a&lt;b",
        "mlx5_&lt;0&gt;",
        "a &amp; b",
        "2026-11-27 13:59:46 UTC",
        "viewport",
    ] {
        assert!(html.contains(said), "{said} in {html}");
    }
    assert!(STYLE.contains("@media print") && STYLE.contains("prefers-color-scheme: dark"));
}

#[test]
fn a_figure_is_shown_rounded_and_kept_exact() {
    let html = html(&inputs(&[("a", lat(false, false))]));
    assert!(
        html.contains("<data value=\"1.2345678\">1.235</data>"),
        "{html}"
    );
    assert!(html.contains("half of a round trip"), "{html}");
}

#[test]
fn emulated_and_unreliable_results_are_named_first_and_others_are_not() {
    let both = html(&inputs(&[("a", lat(true, true)), ("b", lat(false, false))]));
    let head = &both[..both.find("<h2>").unwrap()];
    assert!(
        head.contains("EMULATED NIC") && head.contains("This holds for a."),
        "{head}"
    );
    assert!(head.contains("UNRELIABLE: 1 of 2 results"), "{head}");
    assert!(both.contains("UNRELIABLE</strong>: it ran &lt;29&gt; % of the time"));
    let good = html(&inputs(&[("b", lat(false, false))]));
    assert!(
        !good.contains("EMULATED") && !good.contains("UNRELIABLE"),
        "{good}"
    );
}

#[test]
fn conditions_that_differ_are_marked_and_equal_ones_are_not() {
    let mut other = lat(false, false);
    other["run"]["operation"] = "write".into();
    let html = html(&inputs(&[("a", lat(false, false)), ("b", other)]));
    let row = |name: &str| {
        let from = &html[html.find(&format!(">{name}")).unwrap()..];
        from[..from.find("</tr>").unwrap()].to_owned()
    };
    assert!(row("run.operation").contains('\u{2260}'));
    assert!(row("run.operation").contains(">write<"));
    assert!(!row("run.reported").contains('\u{2260}'));
}

#[test]
fn a_title_is_a_name() {
    assert_eq!(
        slug("Latency over load (open loop)"),
        "latency-over-load-open-loop"
    );
}
