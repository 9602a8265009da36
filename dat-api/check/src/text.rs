//! The report as text.

use std::fmt::Write;

use dat_api::registry;

use crate::problem::Problem;
use crate::report::{ANY_NAME, Adapter, Conf, Opened, Outcome, Report, System, Test};

/// The column at which values begin.
const LABEL: usize = 14;
/// The columns of a value; longer ones continue on the next line.
const VALUE: usize = 86;

/// Adds a label and a formatted value.
macro_rules! line {
    ($text:expr, $label:expr, $($value:tt)+) => {
        $text.line($label, &format!($($value)+))
    };
}

/// Returns the report as text; the last line is a summary.
pub(crate) fn of(report: &Report) -> String {
    let mut text = Text::default();
    text.conf(&report.dat_conf);
    let ignored = ignored(report);
    text.line("", &ignored);
    text.findings(report.dat_conf.problem.as_ref(), &[]);
    if report.variables.is_empty() {
        text.line("variables", "no DAT_* variable is set");
    }
    for (at, variable) in report.variables.iter().enumerate() {
        let label = if at == 0 { "variables" } else { "" };
        line!(text, label, "{}={}", variable.name, variable.value);
        text.findings(variable.problem.as_ref(), variable.note.as_slice());
    }
    text.system(&report.system);
    let this_library = match report.system.libdat.ours {
        true => "this library",
        false => "this library, built into dat-check",
    };
    for adapter in &report.adapters {
        if adapter.result != Outcome::Ignored || ignored.is_empty() {
            text.blank();
            text.adapter(adapter, this_library);
        }
    }
    if let Some(test) = &report.test {
        text.blank();
        text.test(test);
    }
    text.blank();
    text.0 + &summary(report) + "\n"
}

/// Returns one line for all entries of other versions of DAT, if there are several.
fn ignored(report: &Report) -> String {
    let all = report.adapters.iter();
    let ignored: Vec<&Adapter> = all.filter(|one| one.result == Outcome::Ignored).collect();
    let [first, .., last] = &ignored[..] else {
        return String::new();
    };
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
}

/// Returns the last line.
fn summary(report: &Report) -> String {
    let results = [
        (Outcome::Ok, "ok"),
        (Outcome::Foreign, "of other libraries"),
        (Outcome::Ignored, "ignored"),
        (Outcome::Unused, "unused"),
        (Outcome::Problem, "cannot be used"),
    ];
    let parts = results.map(|(result, what)| {
        let all = report.adapters.iter();
        (all.filter(|one| one.result == result).count(), what)
    });
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<_> = parts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let names = match &report.adapters[..] {
        [none] if none.name == ANY_NAME => "no RDMA device".to_owned(),
        all => counted(all.len(), "name", "names") + ": " + &parts.join(", "),
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
    /// Adds a label and a value, unless the value is empty.
    fn line(&mut self, label: &str, value: &str) {
        // A label that fills the column is separated by a blank.
        let mut label = format!("{label} ");
        for value in wrapped(value) {
            // Writing to a String cannot fail.
            let _ = writeln!(self.0, "{label:<LABEL$}{value}");
            label.clear();
        }
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

    fn conf(&mut self, conf: &Conf) {
        let why = match conf.overridden {
            true => "named by DAT_OVERRIDE",
            false => "DAT_OVERRIDE is not set",
        };
        let state = match (&conf.problem, conf.exists, conf.entries) {
            (Some(_), ..) => "PROBLEM",
            (None, false, _) => "no such file; devices are opened by their own names",
            (None, true, 0) => "no entries; devices are opened by their own names",
            (None, true, count) => &counted(count, "entry", "entries"),
        };
        line!(self, "dat.conf", "{} ({why}): {state}", conf.path);
        for invalid in &conf.invalid_lines {
            let (line, cause) = (invalid.line, &invalid.cause);
            line!(self, "", "line {line} is invalid and ignored: {cause}");
        }
        if conf.more_invalid_lines > 0 {
            let count = conf.more_invalid_lines;
            let more = counted(count, "more invalid line", "more invalid lines");
            line!(self, "", "and {more}");
        }
        for ignored in &conf.ignored_lines {
            let name = ignored.name.as_deref().unwrap_or_default();
            let (line, cause) = (ignored.line, &ignored.cause);
            line!(self, "", "line {line} ({name}) is ignored: {cause}");
        }
    }

    fn system(&mut self, system: &System) {
        self.line("C programs", &system.libdat.text);
        match system.locked_memory_bytes {
            None => self.line("memlock", "unlimited"),
            Some(bytes) => line!(self, "memlock", "at most {} KiB", bytes >> 10),
        }
        let files = &system.device_files;
        match &system.emulated_fabric {
            Some(fabric) => line!(self, "devices", "EMULATED by mlx5-emu (fabric '{fabric}')"),
            None if !files.iter().any(|file| file.path.contains("uverbs")) => {
                self.line("devices", "none: /dev/infiniband has no uverbs file");
            }
            None => {
                let files = files.iter().map(|file| match &file.error {
                    None => file.path.clone(),
                    Some(error) => format!("{} ({error})", file.path),
                });
                self.line("devices", &files.collect::<Vec<_>>().join(", "));
            }
        }
        self.line(
            "namespaces",
            match system.network_namespaces {
                None => "",
                Some("shared") => "shared: every network namespace sees every RDMA device",
                Some(_) => {
                    "exclusive: a network namespace sees the RDMA devices that were moved to it"
                }
            },
        );
        self.findings(None, &system.notes);
    }

    fn adapter(&mut self, adapter: &Adapter, this_library: &str) {
        let Adapter {
            name,
            library,
            library_path,
            line,
            opened,
            ..
        } = adapter;
        let result = adapter.result.text();
        let origin = match (line, opened) {
            _ if name == ANY_NAME => "none was found, so no name opens".to_owned(),
            (Some(line), _) => format!("dat.conf, line {line}"),
            (None, Some(_)) => "a device; needs no entry".to_owned(),
            (None, None) => format!("no entry of dat.conf for uDAPL {}", adapter.dat_version),
        };
        let label = match name.as_str() {
            ANY_NAME => "RDMA devices",
            name => name,
        };
        line!(self, label, "{result:<9}{origin}");
        let library = match (library_path, line, opened) {
            (Some(path), ..) => format!("{library}: a program would load {path}"),
            (None, Some(_), _) if registry::is_ours(library) => {
                format!("{library} ({this_library})")
            }
            (None, Some(_), _) => library.clone(),
            (None, None, Some(_)) => this_library.to_owned(),
            (None, None, None) => String::new(),
        };
        self.line("  library", &library);
        match (opened, &adapter.instance_data) {
            (Some(opened), _) => self.opened(opened),
            (None, Some(data)) => line!(self, "  instance", "\"{data}\""),
            (None, None) => {}
        }
        self.findings(adapter.problem.as_ref(), &adapter.notes);
    }

    fn opened(&mut self, opened: &Opened) {
        let link = match (&opened.transport, &opened.link_layer) {
            (transport, layer) if transport == layer => transport.clone(),
            (transport, layer) => format!("{transport} on {layer}"),
        };
        line!(
            self,
            "  device",
            "{}, port {}: {link}, {}, MTU {}",
            opened.device,
            opened.port,
            opened.port_state,
            opened.port_mtu
        );
        let reason = opened
            .path_reason
            .iter()
            .map(|reason| format!(": {reason}"));
        line!(
            self,
            "  path",
            "{}{}",
            opened.path,
            reason.collect::<String>()
        );
        let (cm, address) = (&opened.connection_manager, &opened.address);
        line!(self, "  connects", "by {cm}, as {address}");
        let attributes = opened.attributes.iter();
        let attributes = attributes.map(|(name, value)| format!("{name}={value}"));
        self.line("  attributes", &attributes.collect::<Vec<_>>().join(" "));
    }

    fn test(&mut self, test: &Test) {
        let result = test.result.text();
        self.line(test.kind, if test.run { result } else { "NOT RUN" });
        for operation in ["send", "rdma_write", "rdma_read"] {
            let done = test.transfers.iter();
            let done = done.filter(|one| one.operation == operation);
            let sizes: Vec<String> = done.map(|one| one.bytes.to_string()).collect();
            if !sizes.is_empty() {
                let (label, sizes) = (format!("  {operation}"), sizes.join(", "));
                line!(
                    self,
                    &label,
                    "{sizes} bytes, both ways, every byte compared"
                );
            }
        }
        self.findings(test.problem.as_ref(), &test.notes);
    }
}

/// Breaks a value at blanks.
fn wrapped(value: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in value.split(' ') {
        match lines.last_mut() {
            // Runs of blanks align columns, so they are kept.
            Some(last) if last.chars().count() + 1 + word.chars().count() <= VALUE => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
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
        let mut text = Text::default();
        text.line("mlx5_0", "ok");
        text.line("ofa-v2-mlx5_0-1", "ok");
        assert_eq!(text.0, "mlx5_0        ok\nofa-v2-mlx5_0-1 ok\n");
    }
}
