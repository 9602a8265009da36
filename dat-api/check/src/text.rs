//! The report as text.

use std::fmt::Write;

use dat_api::registry;

use crate::problem::Problem;
use crate::report::{ANY_NAME, Adapter, Opened, Outcome, Report, Test};

/// The column at which values begin.
const LABEL: usize = 14;
/// The columns of a value; longer ones continue on the next line.
const VALUE: usize = 86;

/// Returns the report as text; the last line is a summary.
pub(crate) fn of(report: &Report) -> String {
    let mut text = Text::default();
    text.line("dat.conf", &conf(report));
    for line in &report.dat_conf.invalid_lines {
        text.more(&format!(
            "line {} is invalid and ignored: {}",
            line.line, line.cause
        ));
    }
    if report.dat_conf.more_invalid_lines > 0 {
        let count = report.dat_conf.more_invalid_lines;
        let more = counted(count, "more invalid line", "more invalid lines");
        text.more(&format!("and {more}"));
    }
    for line in &report.dat_conf.ignored_lines {
        let name = line.name.as_deref().unwrap_or_default();
        text.more(&format!(
            "line {} ({name}) is ignored: {}",
            line.line, line.cause
        ));
    }
    let ignored = ignored(report);
    if let Some(ignored) = &ignored {
        text.more(ignored);
    }
    text.findings(report.dat_conf.problem.as_ref(), &[]);
    variables(&mut text, report);
    system(&mut text, report);
    let this_library = match report.system.libdat.ours {
        true => "this library",
        false => "this library, built into dat-check",
    };
    for adapter in &report.adapters {
        if adapter.result == Outcome::Ignored && ignored.is_some() {
            continue;
        }
        text.blank();
        text.adapter(adapter, this_library);
    }
    if let Some(test) = &report.test {
        text.blank();
        text.test(test);
    }
    text.blank();
    text.0.push_str(&summary(report));
    text.0.push('\n');
    text.0
}

fn conf(report: &Report) -> String {
    let conf = &report.dat_conf;
    let why = match conf.overridden {
        true => "named by DAT_OVERRIDE",
        false => "DAT_OVERRIDE is not set",
    };
    let state = match (&conf.problem, conf.exists, conf.entries) {
        (Some(_), ..) => "PROBLEM".to_owned(),
        (None, false, _) => "no such file; devices are opened by their own names".to_owned(),
        (None, true, 0) => "no entries; devices are opened by their own names".to_owned(),
        (None, true, count) => counted(count, "entry", "entries"),
    };
    format!("{} ({why}): {state}", conf.path)
}

/// Returns one line for all entries of other versions of DAT, if there are several.
fn ignored(report: &Report) -> Option<String> {
    let all = report.adapters.iter();
    let ignored: Vec<&Adapter> = all.filter(|one| one.result == Outcome::Ignored).collect();
    let (first, last) = (ignored.first()?, ignored.last()?);
    (ignored.len() > 1).then(|| {
        format!(
            "{} are for other versions of DAT and not used by programs of uDAPL {}: {} (line {}) to {} \
             (line {})",
            counted(ignored.len(), "entry", "entries"),
            report.udapl,
            first.name,
            first.line.unwrap_or(0),
            last.name,
            last.line.unwrap_or(0)
        )
    })
}

fn variables(text: &mut Text, report: &Report) {
    let mut label = "variables";
    if report.variables.is_empty() {
        text.line(label, "no DAT_* variable is set");
    }
    for variable in &report.variables {
        text.line(label, &format!("{}={}", variable.name, variable.value));
        label = "";
        text.findings(variable.problem.as_ref(), variable.note.as_slice());
    }
}

fn system(text: &mut Text, report: &Report) {
    let system = &report.system;
    let libdat = &system.libdat;
    text.line(
        "C programs",
        &match (&libdat.path, libdat.ours, &libdat.error) {
            (Some(path), true, None) => format!("load {path} (this library)"),
            (Some(path), true, Some(error)) => {
                format!("CANNOT load {path} (this library): {error}")
            }
            (Some(path), false, _) => {
                format!("load {path}, ANOTHER library than dat-check has built in")
            }
            (None, _, None) => {
                let name = libdat.name;
                format!("find no {name}; dat-check needs none: it has the library built in")
            }
            (None, _, Some(error)) => {
                format!("not known what they load as {}: {error}", libdat.name)
            }
        },
    );
    let memory = match system.locked_memory_bytes {
        None => "unlimited".to_owned(),
        Some(bytes) => format!("at most {} KiB", bytes >> 10),
    };
    text.line("memlock", &memory);
    let has_verbs = system
        .device_files
        .iter()
        .any(|file| file.path.contains("uverbs"));
    match (&system.emulated_fabric, has_verbs) {
        (Some(fabric), _) => {
            text.line(
                "devices",
                &format!("EMULATED by mlx5-emu (fabric '{fabric}')"),
            );
        }
        (None, false) => text.line("devices", "none: /dev/infiniband has no uverbs file"),
        (None, true) => {
            let files = system.device_files.iter().map(|file| match &file.error {
                None => file.path.clone(),
                Some(error) => format!("{} ({error})", file.path),
            });
            text.line("devices", &files.collect::<Vec<_>>().join(", "));
        }
    }
    if let Some(mode) = system.network_namespaces {
        let meaning = match mode {
            "shared" => "shared: every network namespace sees every RDMA device",
            _ => "exclusive: a network namespace sees the RDMA devices that were moved to it",
        };
        text.line("namespaces", meaning);
    }
    text.findings(None, &system.notes);
}

/// Returns the last line.
fn summary(report: &Report) -> String {
    let mut parts = Vec::new();
    for (result, what) in [
        (Outcome::Ok, "ok"),
        (Outcome::Foreign, "of other libraries"),
        (Outcome::Ignored, "ignored"),
        (Outcome::Unused, "unused"),
        (Outcome::Problem, "cannot be used"),
    ] {
        match report.count(result) {
            0 => {}
            count => parts.push(format!("{count} {what}")),
        }
    }
    let names = match &report.adapters[..] {
        [none] if none.name == ANY_NAME => "no RDMA device".to_owned(),
        all => format!(
            "{}: {}",
            counted(all.len(), "name", "names"),
            parts.join(", ")
        ),
    };
    let test = match &report.test {
        None => String::new(),
        Some(test) if !test.run => format!("; {} NOT RUN", test.kind),
        Some(test) if test.result == Outcome::Ok => format!("; {} passed", test.kind),
        Some(test) => format!("; {} FAILED", test.kind),
    };
    let problems = match report.problems {
        0 if report.system.libdat.path.is_some() && !report.system.libdat.ours => {
            "no problems in this library; C programs load ANOTHER one".to_owned()
        }
        0 => "no problems".to_owned(),
        count => counted(count, "PROBLEM", "PROBLEMS"),
    };
    format!("{names}{test}; {problems}")
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Lines of a label and a value.
#[derive(Default)]
struct Text(String);

impl Text {
    fn line(&mut self, label: &str, value: &str) {
        let mut label = label;
        for value in wrapped(value) {
            // Writing to a String cannot fail.
            let _ = writeln!(self.0, "{label:<LABEL$}{value}");
            label = "";
        }
    }

    fn more(&mut self, value: &str) {
        self.line("", value);
    }

    fn blank(&mut self) {
        self.0.push('\n');
    }

    /// Adds a problem with the next step, and notes.
    fn findings(&mut self, problem: Option<&Problem>, notes: &[String]) {
        if let Some(Problem { problem, next }) = problem {
            self.line("  why", problem);
            self.line("  next", next);
        }
        for note in notes {
            self.line("  note", note);
        }
    }

    fn adapter(&mut self, adapter: &Adapter, this_library: &str) {
        let origin = match (adapter.line, &adapter.opened) {
            (Some(line), _) => format!("dat.conf, line {line}"),
            (None, Some(_)) => "a device; needs no entry".to_owned(),
            (None, None) => format!("no entry of dat.conf for uDAPL {}", adapter.dat_version),
        };
        let result = match adapter.result {
            Outcome::Problem => "PROBLEM",
            other => other.name(),
        };
        let Adapter { name, library, .. } = adapter;
        if name == ANY_NAME {
            self.line(
                "RDMA devices",
                &format!("{result:<9}none was found, so no name opens"),
            );
            return self.findings(adapter.problem.as_ref(), &adapter.notes);
        }
        let label = format!("{name}{}", separator(name));
        self.line(&label, &format!("{result:<9}{origin}"));
        match (&adapter.library_path, adapter.line) {
            (Some(path), _) => {
                self.line(
                    "  library",
                    &format!("{library}: a program would load {path}"),
                );
            }
            (None, Some(_)) if registry::is_ours(library) => {
                self.line("  library", &format!("{library} ({this_library})"));
            }
            (None, Some(_)) => self.line("  library", library),
            (None, None) if adapter.opened.is_some() => self.line("  library", this_library),
            (None, None) => {}
        }
        if let (None, Some(data)) = (&adapter.opened, &adapter.instance_data) {
            self.line("  instance", &format!("\"{data}\""));
        }
        if let Some(opened) = &adapter.opened {
            self.opened(opened);
        }
        self.findings(adapter.problem.as_ref(), &adapter.notes);
    }

    fn opened(&mut self, opened: &Opened) {
        let Opened {
            device,
            port,
            transport,
            link_layer,
            ..
        } = opened;
        let link = match transport == link_layer {
            true => transport.clone(),
            false => format!("{transport} on {link_layer}"),
        };
        let (state, mtu) = (&opened.port_state, opened.port_mtu);
        self.line(
            "  device",
            &format!("{device}, port {port}: {link}, {state}, MTU {mtu}"),
        );
        let path = match &opened.path_reason {
            None => opened.path.clone(),
            Some(reason) => format!("{}: {reason}", opened.path),
        };
        self.line("  path", &path);
        let (cm, address) = (&opened.connection_manager, &opened.address);
        self.line("  connects", &format!("by {cm}, as {address}"));
        let attributes = opened.attributes.iter();
        let attributes = attributes.map(|(name, value)| format!("{name}={value}"));
        self.line("  attributes", &attributes.collect::<Vec<_>>().join(" "));
    }

    fn test(&mut self, test: &Test) {
        let result = match test.result {
            Outcome::Ok => "ok",
            _ if !test.run => "NOT RUN",
            _ => "PROBLEM",
        };
        self.line(test.kind, result);
        for operation in ["send", "rdma_write", "rdma_read"] {
            let done = test
                .transfers
                .iter()
                .filter(|one| one.operation == operation);
            let sizes: Vec<String> = done.map(|one| one.bytes.to_string()).collect();
            if !sizes.is_empty() {
                let value = format!("{} bytes, both ways, every byte compared", sizes.join(", "));
                self.line(&format!("  {operation}"), &value);
            }
        }
        self.findings(test.problem.as_ref(), &test.notes);
    }
}

/// Breaks a value at blanks.
fn wrapped(value: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in value.split(' ') {
        let last = lines.last_mut().expect("never empty");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > VALUE {
            lines.push(word.to_owned());
            continue;
        }
        // Runs of blanks align columns, so they are kept.
        if !last.is_empty() {
            last.push(' ');
        }
        last.push_str(word);
    }
    lines
}

/// Returns what separates a name from its result: a blank if the name fills the column.
fn separator(name: &str) -> &'static str {
    if name.len() < LABEL { "" } else { " " }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_continue_below_their_column() {
        let mut text = Text::default();
        text.line("label", &"word ".repeat(40));
        for (at, line) in text.0.lines().enumerate() {
            let (label, value) = line.split_at(LABEL);
            assert_eq!(label.trim(), if at == 0 { "label" } else { "" });
            assert!(value.starts_with("word") && value.len() <= VALUE, "{line}");
        }
        assert!(text.0.lines().count() > 2);
        assert_eq!(wrapped(&"x".repeat(200)).len(), 1, "a word is not broken");
    }

    #[test]
    fn a_long_name_is_separated_from_its_result() {
        assert_eq!(separator("mlx5_0"), "");
        assert_eq!(separator("ofa-v2-mlx5_0-1"), " ");
    }
}
