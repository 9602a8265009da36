//! The result: the fields of the JSON document, which dat-check(1) lists.
//!
//! Fields are only added; a change of a field's meaning gets a new [`SCHEMA`].

use std::collections::BTreeMap;

use dat_api::registry::ConfFile;
use serde::Serialize;

use crate::PROBLEM;
use crate::problem::Problem;

/// The name in the report if no name can be opened, because there is no device.
pub(crate) const ANY_NAME: &str = "(any)";
/// The name and version of the document.
pub(crate) const SCHEMA: &str = "dat-check/1";

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) schema: &'static str,
    /// The version of dat-check, and of the library that it contains.
    pub(crate) version: &'static str,
    /// The version of uDAPL of the programs that are checked for.
    pub(crate) udapl: String,
    pub(crate) dat_conf: Conf,
    pub(crate) variables: Vec<Variable>,
    pub(crate) system: System,
    pub(crate) adapters: Vec<Adapter>,
    pub(crate) test: Option<Test>,
    /// The number of problems.
    pub(crate) problems: usize,
    /// The exit status.
    pub(crate) status: u8,
}

/// The file of names.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Conf {
    pub(crate) path: String,
    /// Whether `DAT_OVERRIDE` names it.
    pub(crate) overridden: bool,
    pub(crate) exists: bool,
    pub(crate) read_error: Option<String>,
    pub(crate) entries: usize,
    pub(crate) invalid_lines: Vec<Line>,
    /// The number of invalid lines that are not listed.
    pub(crate) more_invalid_lines: usize,
    pub(crate) ignored_lines: Vec<Line>,
    /// Why the file cannot be used.
    #[serde(flatten)]
    pub(crate) problem: Option<Problem>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) line: usize,
    /// The name of an ignored line.
    pub(crate) name: Option<String>,
    pub(crate) cause: String,
}

impl Conf {
    pub(crate) fn new(file: &ConfFile) -> Self {
        let conf = &file.conf;
        let invalid = conf.line_errors.iter().map(|error| Line {
            line: error.line,
            name: None,
            cause: error.cause.clone(),
        });
        let ignored = conf.ignored.iter().map(|ignored| Line {
            line: ignored.line,
            name: Some(ignored.name.clone()),
            cause: ignored.cause.to_owned(),
        });
        // A file that `DAT_OVERRIDE` names has to exist.
        let is_missing = file.overridden && !file.exists;
        let missing = is_missing.then(|| format!("there is no file {}", file.path.display()));
        let problem = file.read_error.clone().or(missing);
        let remedy = match file.overridden {
            true => "correct DAT_OVERRIDE or unset it",
            false => "make it a file that this user can read",
        };
        let next = format!("{remedy}: until then programs see no entry at all");
        Self {
            path: file.path.display().to_string(),
            overridden: file.overridden,
            exists: file.exists,
            read_error: file.read_error.clone(),
            entries: conf.entries.len(),
            invalid_lines: invalid.collect(),
            more_invalid_lines: conf.more_line_errors,
            ignored_lines: ignored.collect(),
            problem: problem.map(|problem| Problem::new(problem, next)),
        }
    }

    /// Returns the number of problems.
    fn problems(&self) -> usize {
        usize::from(self.problem.is_some()) + self.invalid_lines.len() + self.more_invalid_lines
    }
}

/// An environment variable.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) value: String,
    #[serde(flatten)]
    pub(crate) problem: Option<Problem>,
    pub(crate) note: Option<String>,
}

/// What all adapters depend on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct System {
    /// The fabric of the emulated devices, if `mlx5-emu` started dat-check.
    pub(crate) emulated_fabric: Option<String>,
    /// The library that C programs load as `libdat.so.1` or `libdat2.so.2`.
    pub(crate) libdat: Libdat,
    /// How much memory this process may lock, bytes; null if any amount.
    pub(crate) locked_memory_bytes: Option<u64>,
    pub(crate) device_files: Vec<DeviceFile>,
    /// Whether RDMA devices belong to one network namespace (`exclusive`) or to all (`shared`);
    /// null if the kernel does not say.
    pub(crate) network_namespaces: Option<&'static str>,
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Libdat {
    /// The name by which programs load it.
    pub(crate) name: &'static str,
    pub(crate) path: Option<String>,
    /// Whether it is this library.
    pub(crate) ours: bool,
    /// Why the path is not known, or the file cannot be loaded.
    pub(crate) error: Option<String>,
    /// All of this in words.
    #[serde(skip)]
    pub(crate) text: String,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct DeviceFile {
    pub(crate) path: String,
    /// Why it cannot be opened.
    pub(crate) error: Option<String>,
}

/// How a name came out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Ok,
    #[default]
    Problem,
    Foreign,
    Ignored,
    Unused,
}

impl Outcome {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Problem => "PROBLEM",
            Self::Foreign => "foreign",
            Self::Ignored => "ignored",
            Self::Unused => "unused",
        }
    }
}

/// An adapter name.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Adapter {
    pub(crate) name: String,
    pub(crate) result: Outcome,
    /// The line of dat.conf; null for the name of a device.
    pub(crate) line: Option<usize>,
    /// The DAT version of the name.
    pub(crate) dat_version: String,
    /// Whether programs have to request thread safety to open the name; null if either opens it.
    pub(crate) threadsafe: Option<bool>,
    /// The library of the entry.
    pub(crate) library: String,
    /// The file of another library.
    pub(crate) library_path: Option<String>,
    /// Whether this library takes the place of the entry's.
    #[serde(skip)]
    pub(crate) is_replaced: bool,
    pub(crate) instance_data: Option<String>,
    /// Absent unless the adapter was opened.
    #[serde(flatten)]
    pub(crate) opened: Option<Opened>,
    #[serde(flatten)]
    pub(crate) problem: Option<Problem>,
    pub(crate) notes: Vec<String>,
}

/// An adapter that was opened.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Opened {
    pub(crate) device: String,
    pub(crate) firmware: String,
    pub(crate) port: u8,
    pub(crate) transport: String,
    pub(crate) link_layer: String,
    pub(crate) port_state: String,
    /// The MTU of the port, bytes.
    pub(crate) port_mtu: u32,
    /// The address that peers connect to.
    pub(crate) address: String,
    pub(crate) connection_manager: String,
    pub(crate) path: String,
    /// Why the path is not direct.
    pub(crate) path_reason: Option<String>,
    /// The named attributes of `dat_ia_query`.
    pub(crate) attributes: BTreeMap<String, String>,
}

/// A connection test.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Test {
    /// `loopback`, `listen` or `connect`.
    pub(crate) kind: &'static str,
    pub(crate) result: Outcome,
    /// Whether it was run; not if the adapter cannot be used.
    pub(crate) run: bool,
    /// The peer: a host that was connected to.
    pub(crate) host: Option<String>,
    pub(crate) qualifier: Option<u64>,
    /// The transfers that were verified, in order.
    pub(crate) transfers: Vec<Transfer>,
    #[serde(flatten)]
    pub(crate) problem: Option<Problem>,
    pub(crate) notes: Vec<String>,
}

/// A transfer in both directions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Transfer {
    /// `send`, `rdma_write` or `rdma_read`.
    pub(crate) operation: &'static str,
    pub(crate) bytes: usize,
}

impl Report {
    /// Counts the problems.
    pub(crate) fn finish(&mut self) {
        let failed = |result: Outcome| result == Outcome::Problem;
        let adapters = self.adapters.iter().filter(|one| failed(one.result));
        let variables = self.variables.iter().filter(|one| one.problem.is_some());
        // A test that was not run is no problem beside that of its adapter.
        let test = self
            .test
            .iter()
            .filter(|test| failed(test.result) && test.run);
        self.problems =
            self.dat_conf.problems() + variables.count() + adapters.count() + test.count();
        self.status = if self.problems == 0 { 0 } else { PROBLEM };
    }

    pub(crate) fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self)
            .expect("the document has text keys and integers only");
        text.push('\n');
        text
    }
}
