//! A panel has everything that its lines need to be read, and nothing outside it.

use super::super::Axis;
use super::*;

fn line(name: &str, points: &[(f64, f64)]) -> Line {
    Line {
        name: name.into(),
        points: points.to_vec(),
        joined: true,
        ..Line::default()
    }
}

fn panel(lines: Vec<Line>) -> Panel {
    Panel {
        title: "latency over message size".into(),
        subtitle: "engine".into(),
        warning: "EMULATED NIC".into(),
        x: Axis::new("message size", "bytes", Scale::PowersOfTwo),
        y: Axis::new("latency", "us", Scale::Log),
        lines,
        hovers: Vec::new(),
        events: Vec::new(),
        events_name: String::new(),
    }
}

/// Returns the numbers of all attributes of this name.
fn numbers(svg: &str, name: &str) -> Vec<f64> {
    svg.split(&format!(" {name}=\""))
        .skip(1)
        .map(|rest| rest[..rest.find('"').unwrap()].parse().unwrap())
        .collect()
}

#[test]
fn a_panel_names_title_lines_and_axes_with_their_units() {
    let drawn = draw(&panel(vec![
        line("before", &[(2.0, 1.0), (4096.0, 3.0)]),
        line("after <b>", &[(2.0, 2.0), (4096.0, 4.0)]),
    ]));
    for said in [
        "latency over message size",
        "EMULATED NIC",
        "message size [bytes]",
        "latency [us]",
        ">before<",
        "after &lt;b&gt;",
        ">2K<",
    ] {
        assert!(
            drawn.elements.contains(said),
            "{said} in {}",
            drawn.elements
        );
    }
    assert_eq!(drawn.elements.matches("<polyline").count(), 2);
    assert!(!drawn.elements.contains("NaN"));
}

#[test]
fn all_text_is_inside_the_panel_and_outside_the_data() {
    let names = ["short", &"a long name of a result file ".repeat(5)];
    let lines: Vec<Line> = (0..8)
        .map(|index| line(names[index % 2], &[(2.0, 1.0), (1e6, 1e7)]))
        .collect();
    let mut long = panel(lines);
    long.title = "a title that is much longer than a panel is wide, and is broken".into();
    let drawn = draw(&long);
    let line_of_data = drawn.elements.find("<polyline points=\"").unwrap();
    let data = &drawn.elements[line_of_data + 18..];
    let ends: Vec<f64> = data[..data.find('"').unwrap()]
        .split([' ', ','])
        .map(|number| number.parse().unwrap())
        .collect();
    // The first point is at the bottom left, the last one at the top right.
    let (left, bottom, right, top) = (ends[0], ends[1], ends[2], ends[3]);
    for text in drawn.elements.split("<text ").skip(1) {
        let text = &format!(" {text}");
        let (x, y) = (numbers(text, "x")[0], numbers(text, "y")[0]);
        let size = numbers(text, "font-size")[0];
        let content = &text[text.find('>').unwrap() + 1..text.find('<').unwrap()];
        let wide = width(content, size);
        let start = match text {
            text if text.contains("\"end\"") => x - wide,
            text if text.contains("\"middle\"") => x - wide / 2.0,
            _ => x,
        };
        assert!(
            start >= 0.0 && start + wide <= WIDTH,
            "{content}: {start} {wide}"
        );
        assert!(y > 0.0 && y <= drawn.height, "{content}");
        let beside = start + wide < left || start > right || y < top || y - size > bottom;
        assert!(beside, "{content} covers data: {start} {y}");
    }
}

#[test]
fn what_few_samples_support_is_faint_and_an_unreliable_result_says_so() {
    let mut both = panel(vec![
        Line {
            tail: vec![(100.0, 5.0)],
            unreliable: true,
            ..line("poll", &[(2.0, 1.0), (10.0, 3.0)])
        },
        line("block", &[(2.0, 1.0)]),
    ]);
    let drawn = draw(&both);
    assert_eq!(drawn.elements.matches("<polyline").count(), 2);
    assert!(drawn.elements.contains("stroke-opacity"));
    assert!(drawn.elements.contains("poll (UNRELIABLE)"));
    both.lines.pop();
    let drawn = draw(&both);
    assert!(
        drawn
            .elements
            .contains("All of these results are UNRELIABLE")
    );
    assert!(!drawn.elements.contains("poll (UNRELIABLE)"));
}

#[test]
fn a_page_has_all_panels_and_one_without_results_says_so() {
    let svg = page(
        "dat-bench lat",
        &[panel(vec![]), panel(vec![]), panel(vec![])],
    );
    assert_eq!(svg.matches("no results").count(), 3);
    assert!(svg.starts_with("<svg xmlns") && svg.contains("dat-bench lat"));
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

#[test]
fn names_are_an_axis_too() {
    let mut named = panel(vec![line("engine", &[(12.0, 0.0), (30.0, 1.0)])]);
    named.x = Axis::new("time", "ns", Scale::Linear);
    named.y = Axis::new(
        "operation",
        "",
        Scale::Names(vec!["post_recv".into(), "poll".into()]),
    );
    let drawn = draw(&named);
    assert!(drawn.elements.contains(">post_recv<") && drawn.elements.contains(">poll<"));
}
