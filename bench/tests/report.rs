//! `dat-bench report` on files of runs on the emulated device: figures, plots, and how
//! Chromium shows the page.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::common::{bench, emulated, file, run};
use serde_json::Value;

/// Measures once, for all tests. Returns the names of the result files.
fn measured() -> &'static [String] {
    static FILES: OnceLock<Vec<String>> = OnceLock::new();
    FILES.get_or_init(|| {
        [
            (
                "closed",
                "lat --loopback -n 1000 --warmup 10 --api engine,rust",
            ),
            ("open", "lat --loopback -n 200 --warmup 10 --rate 1k,2k"),
            (
                "wake",
                "wake --rounds 2 -D 0.05 --wait poll,block --rate 500,1000",
            ),
            ("cost", "cost -n 2 --turns 1 --api engine,c"),
            ("scale", "scale -n 2 -q 1,4"),
        ]
        .into_iter()
        .map(|(name, words)| {
            let path = file(&format!("report-{name}.json")).display().to_string();
            run(emulated("report", &format!("{words} --json {path}"))).expect(0, &["wrote"]);
            path
        })
        .collect()
    })
}

/// Returns the page of all files.
fn page(name: &str) -> (PathBuf, String) {
    let path = file(&format!("report-{name}.html"));
    let words = format!("report {} -o {}", measured().join(" "), path.display());
    run(bench(&words)).expect(0, &["wrote"]);
    let text = fs::read_to_string(&path).expect("the page");
    (path, text)
}

fn document(path: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(path).expect("a result file")).expect("JSON")
}

/// Collects the numbers that the tables must have.
fn figures(of: &Value) -> Vec<f64> {
    let mut all = Vec::new();
    for entry in of["results"].as_array().expect("results") {
        for part in [entry, &entry["service"]] {
            let keys = ["t_min", "t_typical", "t_avg", "t_stdev", "p99", "max"];
            all.extend(keys.iter().filter_map(|key| part[*key].as_f64()));
        }
        for part in ["latency_microseconds", "response_microseconds"] {
            let keys = ["median", "min", "max", "mean"];
            all.extend(keys.iter().filter_map(|key| entry[part][*key].as_f64()));
        }
        all.extend(entry["nanoseconds"]["median"].as_f64());
        all.extend(entry["cpu_microseconds_per_message"].as_f64());
        all.extend(entry["memory"]["engine"].as_f64());
    }
    all
}

#[test]
fn the_tables_have_the_numbers_of_the_files() {
    let (_, page) = page("numbers");
    let shown: Vec<f64> = page
        .split("<data value=\"")
        .skip(1)
        .map(|rest| {
            rest[..rest.find('"').expect("an end")]
                .parse()
                .expect("a number")
        })
        .collect();
    for path in measured() {
        let wanted = figures(&document(path));
        assert!(wanted.len() >= 4, "{path}");
        for figure in wanted {
            assert!(shown.contains(&figure), "{figure} of {path}");
        }
    }
}

#[test]
fn every_series_is_plotted_and_the_emulated_nic_is_named() {
    let (_, page) = page("series");
    for said in [
        "EMULATED NIC",
        "Latency by percentile",
        "Latency over time",
        "t_typical [usec]",
        "Median latency over load",
        "Median wake-up latency over rate",
        "CPU time over rate",
        "Time per operation",
        "Memory",
        "Host and conditions",
        "host.cpu",
    ] {
        assert!(page.contains(said), "{said}");
    }
    let series = page.matches("<title>").count() - 1;
    let legends: Vec<&str> = page
        .split("<title>")
        .skip(2)
        .map(|rest| &rest[..rest.find('<').expect("an end")])
        .collect();
    assert_eq!(series, legends.len());
    for name in [
        "engine",
        "rust",
        "response time",
        "service time",
        "poll",
        "block",
        "libmlx5",
        "dat",
    ] {
        let has = |legend: &&str| legend.split(", ").any(|word| word == name);
        assert!(legends.iter().any(has), "{name} in {legends:?}");
    }
    // Interfaces of lat; the two times of two rates, and both over the rate; ...
    assert!(series >= 2 + 4 + 2 + 8, "{legends:?}");
    for foreign in ["://", "<script", "<link", "<img"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

#[test]
fn a_folder_gets_the_page_and_its_plots() {
    let folder = file("report-folder");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    let words = format!("report {} -o {}", measured()[2], folder.display());
    run(bench(&words)).expect(0, &["report.html", "wait-policies.svg"]);
    let svg = fs::read_to_string(folder.join("wait-policies.svg")).expect("the plots");
    assert!(svg.starts_with("<svg") && svg.contains("rate [/s]"));
}

#[test]
fn files_that_cannot_be_used_are_refused_by_name() {
    let text = file("report-text.json");
    fs::write(&text, "no JSON").unwrap();
    let lat = &measured()[0];
    for (words, named) in [
        ("report".to_owned(), "FILE"),
        ("report /nonexistent.json".into(), "/nonexistent.json"),
        (format!("report {}", text.display()), "not JSON"),
        (format!("report {lat} -o {lat}"), "would replace"),
        (
            format!("report {lat} -o /nonexistent/r.html"),
            "name another file",
        ),
    ] {
        run(bench(&words)).expect(1, &[named]);
    }
    let page = run(bench(&format!("report {lat} -o -"))).expect(0, &[]);
    assert!(page.stdout.starts_with("<!DOCTYPE html>") && page.stdout.ends_with("</html>\n"));
    run(bench("report --help")).expect(0, &["HdrHistogram", "-o"]);
}

/// Runs Chromium without a window; returns its standard output.
fn chromium(name: &str, words: &[&str], page: &Path) -> Option<String> {
    let profile = file(&format!("chromium-{name}"));
    let mut command = Command::new("chromium");
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
    ]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    command
        .args(words)
        .arg(format!("file://{}", page.display()));
    match Command::new("chromium").arg("--version").output() {
        Err(_) => {
            eprintln!(
                "SKIPPED: chromium is not installed, so nothing has shown the page (apt-get install chromium)"
            );
            None
        }
        Ok(_) => Some(run(command).expect(0, &[]).stdout),
    }
}

#[test]
fn chromium_shows_the_page_without_horizontal_scrolling_and_prints_it() {
    let (path, text) = page("chromium");
    // The page has no script. It is put into a frame of a page that measures it, because
    // the window of Chromium has at least 500 pixels.
    let policy = text.find("<meta http-equiv").expect("a policy");
    let end = policy + text[policy..].find("/>").expect("an end") + 2;
    let framed = text.replace(&text[policy..end], "");
    let framed = framed.replace('&', "&amp;").replace('"', "&quot;");
    for width in [360, 1280] {
        let measuring = file(&format!("report-{width}.html"));
        let script = "window.onload = () => { const w = document.getElementById('f').contentWindow, d = w.document; \
                      const all = [...d.querySelectorAll('main *')]; \
                      const right = Math.max(...all.map(e => e.getBoundingClientRect().right)); \
                      document.title = `width ${d.documentElement.scrollWidth} right ${Math.ceil(right)} \
                      of ${w.innerWidth} plots ${d.querySelectorAll('svg').length}`; };";
        let frame = format!(
            "<!DOCTYPE html><html><head><title>none</title></head><body>\
             <iframe id=\"f\" style=\"width:{width}px;height:2000px;border:0\" srcdoc=\"{framed}\"></iframe>\
             <script>{script}</script></body></html>"
        );
        fs::write(&measuring, frame).expect("writable");
        let name = format!("report-{width}");
        let words = ["--window-size=1600,2000", "--dump-dom"];
        let Some(dom) = chromium(&name, &words, &measuring) else {
            return;
        };
        let title =
            &dom[dom.find("<title>").expect("a title") + 7..dom.find("</title>").expect("an end")];
        let number = |word: &str| -> f64 {
            let mut words = title.split(' ').skip_while(|it| *it != word).skip(1);
            words
                .next()
                .and_then(|it| it.parse().ok())
                .unwrap_or_else(|| panic!("{title}"))
        };
        assert_eq!(number("of"), f64::from(width), "{title}");
        assert!(number("plots") >= 8.0, "{title}");
        assert!(number("width") <= number("of"), "{title}");
        assert!(number("right") <= number("of"), "{title}");
    }
    let pdf = file("report.pdf");
    let _ = fs::remove_file(&pdf);
    let print = format!("--print-to-pdf={}", pdf.display());
    chromium("report-print", &[&print], &path);
    assert!(fs::read(&pdf).expect("a PDF").starts_with(b"%PDF"));
}
