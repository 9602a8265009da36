//! The manual pages agree with the headers of uDAPL 1.2 and 2.0: every call has a page
//! with the header's prototype, all names exist, and every page renders without warnings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Environment variables whose names look like names of the headers, besides those of options.
const VARIABLES: [&str; 3] = ["DAT_DBG_DEST", "DAT_DBG_TYPE", "DAT_OVERRIDE"];

/// Pages under a second name, because programs call a macro.
const OTHER_NAMES: [(&str, &str); 1] = [("dat_ia_open", "dat_ia_openv")];

/// What the library of a version of uDAPL has, and the line of its pages.
struct Version {
    /// The folder of the library.
    folder: &'static str,
    /// The folder of its headers, below `include`.
    headers: &'static str,
    /// The number of its calls.
    calls: usize,
    /// The section LIBRARY of the page of each call.
    library: [&'static str; 2],
}

const VERSIONS: [Version; 2] = [
    Version {
        folder: ".",
        headers: "dat",
        calls: 83,
        library: ["uDAPL 1.2", ".RI ( libdat \", \" \\-ldat )"],
    },
    Version {
        folder: "../libdat2",
        headers: "dat2",
        calls: 91,
        library: ["uDAPL 2.0", ".RI ( libdat2 \", \" \\-ldat2 )"],
    },
];

/// In the required order. Notes and examples are optional; arguments are needed
/// only if the call has any.
const SECTIONS: [&str; 7] = [
    "NAME",
    "LIBRARY",
    "SYNOPSIS",
    "DESCRIPTION",
    "RETURN VALUE",
    "MT LEVEL",
    "SEE ALSO",
];

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

impl Version {
    /// Returns the calls that the library exports, with their MT levels: `safe`, `unstated`
    /// (by DAT), or none.
    fn exports(&self) -> BTreeMap<String, String> {
        let exports: BTreeMap<_, _> = read(&here(self.folder).join("tests/abi/facts/calls.txt"))
            .lines()
            .filter_map(|line| {
                let (kind, rest) = line.split_once(' ')?;
                let is_export = matches!(kind, "call" | "own" | "export");
                let (name, rest) = rest.split_once([':', ' ']).unwrap_or((rest, ""));
                let level = rest.rsplit([')', ' ']).next()?;
                (is_export && name.starts_with("dat_")).then(|| (name.to_owned(), level.to_owned()))
            })
            .collect();
        assert_eq!(exports.len(), self.calls, "{}", self.headers);
        exports
    }

    fn headers(&self) -> String {
        let folder = here(self.folder).join("include").join(self.headers);
        let mut all = String::new();
        for entry in fs::read_dir(folder).expect("the headers") {
            all.push_str(&read(&entry.expect("an entry").path()));
        }
        all
    }

    /// Returns the pages of the calls that this version has: name and source.
    fn calls(&self) -> impl Iterator<Item = (String, String)> {
        let exports = self.exports();
        calls().filter(move |(name, _)| exports.contains_key(name))
    }
}

/// Returns the file of every page: those of calls that only uDAPL 2.0 has are installed with
/// its library.
fn files() -> Vec<PathBuf> {
    let folders = VERSIONS.map(|version| here(version.folder).join("man"));
    let read = |folder| fs::read_dir(folder).expect("the folder of the pages");
    let entries = folders.into_iter().flat_map(read);
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

/// Returns every page: name and section from the file name, and its source.
fn pages() -> Vec<(String, String, String)> {
    let mut pages: Vec<_> = files()
        .into_iter()
        .map(|path| {
            let file = path.file_name().and_then(|name| name.to_str());
            let (name, section) = file
                .and_then(|file| file.rsplit_once('.'))
                .expect("NAME.SECTION");
            (name.to_owned(), section.to_owned(), read(&path))
        })
        .collect();
    pages.sort();
    pages
}

/// Returns the pages of calls: name and source.
fn calls() -> impl Iterator<Item = (String, String)> {
    let other = |name: &str| OTHER_NAMES.iter().any(|(other, _)| *other == name);
    pages()
        .into_iter()
        .filter(move |(name, section, _)| section == "3dat" && !other(name))
        .map(|(name, _, source)| (name, source))
}

/// Returns the lines of a section.
fn section<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    page.lines()
        .skip_while(|line| line.strip_prefix(".SH ") != Some(name))
        .skip(1)
        .take_while(|line| !line.starts_with(".SH"))
        .collect()
}

/// Joins all whitespace, so that line breaks make no difference.
fn join_whitespace(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.replace("( ", "(").replace("* ", "*")
}

/// Joins the arguments of a macro as man(7) does.
fn joined(line: &str) -> String {
    let Some((macro_name, arguments)) = line.split_once(' ') else {
        return String::new();
    };
    let mut quoted = false;
    let mut text = String::new();
    for letter in arguments.chars() {
        match letter {
            '"' => quoted = !quoted,
            ' ' if !quoted && macro_name == ".BI" => {}
            _ => text.push(letter),
        }
    }
    text
}

/// Removes comments, and expands the names of the two provider functions.
fn code(headers: &str) -> String {
    let mut code = String::new();
    let mut rest = headers;
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    code.push_str(rest);
    code.replace(
        "void DAT_PROVIDER_INIT_FUNC_NAME(",
        "void dat_provider_init(",
    )
    .replace(
        "void DAT_PROVIDER_FINI_FUNC_NAME(",
        "void dat_provider_fini(",
    )
}

/// Returns the declaration of a call, and the comment above it.
fn declaration<'a>(code: &'a str, name: &str) -> &'a str {
    let start = [format!("\nDAT_RETURN {name}("), format!("\nvoid {name}(")]
        .iter()
        .find_map(|start| code.find(start.as_str()))
        .unwrap_or_else(|| panic!("no header declares {name}"));
    let length = code[start..].find(';').expect("a declaration ends");
    &code[start..=start + length]
}

/// Returns everything that looks like a name of the headers.
fn names(text: &str) -> BTreeSet<&str> {
    let part =
        |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    let mut names = BTreeSet::new();
    let mut rest = text;
    while let Some(at) = rest.find("DAT_") {
        let boundary = rest[..at].chars().next_back().is_none_or(|letter| {
            // \fBDAT_X: the letter belongs to the font change.
            !part(letter) || rest[..at].ends_with("\\fB") || rest[..at].ends_with("\\fI")
        });
        let length = rest[at..]
            .find(|letter| !part(letter))
            .unwrap_or(rest.len() - at);
        if boundary {
            names.insert(&rest[at..at + length]);
        }
        rest = &rest[at + length..];
    }
    names
}

#[test]
fn every_call_has_a_page_and_every_page_a_call() {
    let exports = VERSIONS.iter().flat_map(Version::exports);
    let mut wanted: BTreeSet<_> = exports.map(|(name, _)| name).collect();
    let written: BTreeSet<String> = calls().map(|(name, _)| name).collect();
    assert_eq!(written, wanted);
    for (other, name) in OTHER_NAMES {
        let page = |name: &str| read(&here("man").join(name).with_extension("3dat"));
        assert_eq!(page(other), page(name), "{other} is {name}");
        wanted.insert(other.to_owned());
    }
    let others: Vec<_> = pages()
        .into_iter()
        .filter(|(_, section, _)| section != "3dat")
        .map(|(name, section, _)| format!("{name}({section})"))
        .collect();
    assert_eq!(others, ["dat-check(1)", "dat.conf(5)", "udapl(7)"]);
}

#[test]
fn every_page_has_the_name_of_its_file_and_all_sections() {
    for (name, section_of, page) in pages() {
        let of = OTHER_NAMES.iter().find(|(other, _)| *other == name);
        let name = of.map_or(name.as_str(), |(_, name)| name);
        let title = format!(".TH {name} {} ", section_of.to_uppercase());
        assert!(
            page.lines().any(|line| line.starts_with(&title)),
            "{name}: {title}"
        );
        let brief = section(&page, "NAME").join(" ");
        assert!(
            brief.starts_with(&format!("{name} \\- ")) || brief.starts_with(&format!("{name}, ")),
            "{name}: {brief}"
        );
    }
    for (name, page) in calls() {
        let found: Vec<_> = page
            .lines()
            .filter_map(|line| line.strip_prefix(".SH "))
            .filter(|section| SECTIONS.contains(section))
            .collect();
        assert_eq!(found, SECTIONS, "{name}");
    }
}

#[test]
fn prototypes_are_those_of_the_headers() {
    for version in &VERSIONS {
        let code = code(&version.headers());
        for (name, page) in version.calls() {
            let synopsis = section(&page, "SYNOPSIS")
                .into_iter()
                .filter(|line| line.starts_with(".BI "))
                .map(joined)
                .collect::<Vec<_>>()
                .join(" ");
            // One prototype for both, or that of 1.2 first and that of 2.0 last.
            let mut prototypes = synopsis.split(';').filter(|text| text.contains(&name));
            let prototype = match version.headers {
                "dat" => prototypes.next(),
                _ => prototypes.next_back(),
            };
            assert_eq!(
                join_whitespace(&format!("{};", prototype.expect("a prototype"))),
                join_whitespace(declaration(&code, &name)),
                "{name} of {}",
                version.headers
            );
        }
    }
}

#[test]
fn the_library_of_each_page_is_that_of_its_call() {
    for (name, page) in calls() {
        let has = |version: &Version| version.exports().contains_key(&name);
        let expected: Vec<_> = VERSIONS.iter().filter(|version| has(version)).collect();
        let expected: Vec<_> = expected
            .iter()
            .flat_map(|version| version.library)
            .collect();
        let found: Vec<_> = section(&page, "LIBRARY")
            .into_iter()
            .map(|line| line.trim_end_matches(','))
            .collect();
        assert_eq!(found, expected, "{name}");
    }
}

/// As in `DAT_SOFTWARE_EVENT (0x10001)`.
#[test]
fn numbers_beside_names_are_those_of_the_facts() {
    let known: BTreeMap<_, _> = crate::abi::facts::values()
        .into_iter()
        .map(|fact| (fact.name, fact.value))
        .collect();
    let text = read(&here("man/udapl.7"));
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut seen = 0;
    for pair in words.windows(2) {
        let number = pair[1]
            .strip_prefix('(')
            .and_then(|word| word.split_once(')'));
        let Some((number, _)) = number.filter(|(number, _)| {
            known.contains_key(pair[0]) && number.starts_with(|it: char| it.is_ascii_digit())
        }) else {
            continue;
        };
        let value = match number.strip_prefix("0x") {
            Some(digits) => i128::from_str_radix(digits, 16),
            None => number.parse(),
        };
        assert_eq!(value, Ok(known[pair[0]]), "{}", pair[0]);
        seen += 1;
    }
    assert_eq!(seen, 28);
}

#[test]
fn names_that_a_page_mentions_exist() {
    let headers = VERSIONS.each_ref().map(Version::headers).concat();
    let mut known = names(&headers);
    known.extend(VARIABLES);
    known.extend(dat_api::options::variables().map(|(name, _)| name));
    for (name, _, page) in pages() {
        let unknown: Vec<_> = names(&page).difference(&known).copied().collect();
        assert!(unknown.is_empty(), "{name}: {unknown:?}");
    }
}

#[test]
fn the_errors_in_a_header_are_on_the_page_of_the_call() {
    for version in &VERSIONS {
        let headers = version.headers().replace("\n * ", " ");
        for (name, page) in version.calls() {
            let Some(at) = headers.find(&format!("\nDAT_RETURN {name}(")) else {
                continue; // functions of providers answer nothing
            };
            let comment = headers[..at].rfind("/*").expect("a comment");
            let (_, errors) = headers[comment..at]
                .split_once("Errors:")
                .expect("its errors");
            let values = section(&page, "RETURN VALUE").join("\n");
            let missing: Vec<_> = names(errors).difference(&names(&values)).copied().collect();
            assert!(missing.is_empty(), "{name}: {missing:?}");
        }
    }
}

#[test]
fn mt_levels_are_those_of_dat() {
    let pages: BTreeMap<_, _> = calls().collect();
    for (name, level) in VERSIONS.iter().flat_map(Version::exports) {
        let written = section(&pages[&name], "MT LEVEL").join(" ");
        let expected = match level.as_str() {
            "safe" => "Safe: ",
            "unstated" => "Not stated by DAT",
            "" => "Unsafe: ",
            _ => panic!("{name}: {level} is no level"),
        };
        assert!(written.starts_with(expected), "{name}: {written}");
    }
}

#[test]
fn every_referenced_page_exists() {
    let here: BTreeSet<String> = pages()
        .into_iter()
        .map(|(name, section, _)| format!("{name}({section})"))
        .collect();
    for (name, section_of, page) in pages() {
        // As NAME (SECTION) after .BR, or NAME\fR(SECTION) in a line; \% marks where a name
        // may be hyphenated.
        let text = page
            .replace("\\%", "")
            .replace(" (", "(")
            .replace("\\fR(", "(")
            .replace("\\fB", " ");
        let mut count = 0;
        for word in text.split_whitespace() {
            let word = word.trim_end_matches(['.', ',', ';', ':']).to_lowercase();
            let Some(("dat-check", "1") | (_, "5" | "7" | "3dat")) =
                word.strip_suffix(')').and_then(|word| word.split_once('('))
            else {
                continue;
            };
            assert!(here.contains(&word), "{name}: no page {word}");
            count += 1;
        }
        assert!(count > 0, "{name}({section_of}) refers to no other page");
        // dat_x() in the text.
        for call in text.split("()").filter_map(|before| {
            let word = before.rsplit([' ', '\n']).next()?;
            word.starts_with("dat_").then_some(word)
        }) {
            let call = call.trim_end_matches("\\fR");
            assert!(
                here.contains(&format!("{call}(3dat)")),
                "{name}: no page for {call}"
            );
        }
    }
}

#[test]
fn examples_compile() {
    let mut program = String::from("#include \"manual.h\"\n");
    let mut count = 0;
    for (name, page) in calls() {
        let example = section(&page, "EXAMPLES");
        if example.is_empty() {
            continue;
        }
        let code: Vec<_> = example
            .into_iter()
            .skip_while(|line| *line != ".EX")
            .skip(1)
            .take_while(|line| *line != ".EE")
            .map(|line| {
                line.replace("\\-", "-")
                    .replace("\\e", "\\")
                    .replace("\\&", "")
            })
            .collect();
        let code = code.join("\n");
        program += &format!("int {name}_example(void);\nint {name}_example(void)\n{{\n");
        program += &format!("#line 1 \"{name}\"\n{code}\nreturn 0;\n}}\n");
        count += 1;
    }
    assert!(count > 20, "{count} examples");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("manual.c");
    fs::write(&file, program).expect("the file can be written");
    let output = Command::new("cc")
        .args(["-std=c99", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"])
        // The examples are fragments: variables are used or set elsewhere.
        .args(["-Wno-unused-but-set-variable", "-Wno-unused-variable", "-I"])
        .arg(here("include"))
        .arg("-I")
        .arg(here("tests/support"))
        .arg(&file)
        .output()
        .expect("cc can be run");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
}

/// Runs a checker on every page, which must print nothing.
fn check(program: &str, arguments: &[&str]) {
    if which(program).is_none() {
        eprintln!("SKIPPED: {program} is not installed; the pages are not checked by it");
        return;
    }
    for path in files() {
        let output = Command::new(program)
            .args(arguments)
            .arg(&path)
            .output()
            .expect("the program can be run");
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed);
        assert!(printed.is_empty(), "{printed}");
        assert!(
            output.status.success(),
            "{}: {}",
            path.display(),
            output.status
        );
    }
}

fn which(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

#[test]
fn mandoc_reports_nothing() {
    check("mandoc", &["-Tlint", "-Wwarning"]);
}

#[test]
fn groff_reports_nothing() {
    check("groff", &["-ww", "-z", "-t", "-man", "-Tutf8"]);
}
