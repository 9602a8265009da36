//! What each adapter name opens.
//!
//! A program requests a name together with a thread safety: `dat_ia_open` requests nonthreadsafe,
//! `dat_ia_openv` either. Each entry of this library is opened by itself, to find its own faults.
//! Then each name is opened as a program opens it, which decides which of its entries is used.

use std::collections::BTreeSet;

use dat_api::DatError;
use dat_api::registry::{self, ConfFile, Entry};
use dat_api::safe::{Adapter, OpenOptions};
use dat_engine::{DataPath, PathRequest};

use crate::advice;
use crate::linker::{self, Found};
use crate::opening::{Examined, close, opened};
use crate::problem::Problem;
use crate::report::{self, Outcome};

/// What is examined.
pub(crate) struct Registry<'a> {
    pub(crate) file: &'a ConfFile,
    /// The thread safety that programs request.
    pub(crate) threadsafe: bool,
    /// The version of uDAPL of the programs.
    pub(crate) version: (u32, u32),
}

impl Registry<'_> {
    /// Examines the names; without any, every entry of dat.conf and every device.
    pub(crate) fn examine(&self, names: &[String]) -> Vec<report::Adapter> {
        let all = self.examined(names);
        let mut reports: Vec<_> = all.into_iter().map(|one| one.report).collect();
        if names.is_empty() {
            reports.extend(self.unusable_devices());
            if reports.iter().all(|one| one.result == Outcome::Ignored) {
                reports.push(self.no_device());
            }
        }
        reports
    }

    /// Returns the adapter for a test: the one of this name, or the first that can be used.
    pub(crate) fn choose(&self, name: Option<&str>) -> Examined {
        if let Some(name) = name {
            return best(self.examined(&[name.to_owned()])).unwrap_or_else(|| self.of_name(name));
        }
        let mut failed = None;
        for name in self.names() {
            let examined = best(self.examined(&[name]));
            match examined {
                Some(examined) if examined.adapter.is_some() => return examined,
                Some(examined) if examined.report.result == Outcome::Problem => {
                    failed.get_or_insert(examined);
                }
                _ => {}
            }
        }
        failed.unwrap_or_else(|| Examined::closed(self.no_device()))
    }

    /// Returns the names that a program of this kind can open, each once: entries, then devices.
    fn names(&self) -> Vec<String> {
        let entries = self.file.conf.entries.iter();
        let entries = entries.filter(|entry| {
            (entry.major, entry.minor) == self.version && entry.threadsafe == self.threadsafe
        });
        let devices = registry::device_names().unwrap_or_default();
        let mut seen = BTreeSet::new();
        let names = entries.map(|entry| entry.name.clone()).chain(devices);
        names.filter(|name| seen.insert(name.clone())).collect()
    }

    fn examined(&self, names: &[String]) -> Vec<Examined> {
        let entries = self.file.conf.entries.iter();
        let chosen = entries.filter(|entry| names.is_empty() || names.contains(&entry.name));
        let mut all: Vec<Examined> = chosen.map(|entry| self.of_entry(entry)).collect();
        let keys: BTreeSet<(String, bool)> = all.iter().filter_map(key_of).collect();
        for (name, threadsafe) in &keys {
            self.decide(&mut all, name, *threadsafe);
        }
        for (name, threadsafe) in &keys {
            if *threadsafe != self.threadsafe {
                let other = keys.contains(&(name.clone(), self.threadsafe));
                self.not_requested(&mut all, name, other);
            }
        }
        let others = match names {
            [] => registry::device_names().unwrap_or_default(),
            names => names.to_vec(),
        };
        let mut seen = BTreeSet::new();
        for name in others {
            if keys.contains(&(name.clone(), self.threadsafe)) || !seen.insert(name.clone()) {
                continue;
            }
            let device = self.of_name(&name);
            // If it fails, the entries of the other thread safety have said so.
            if device.report.opened.is_some() || !keys.contains(&(name, !self.threadsafe)) {
                all.push(device);
            }
        }
        all
    }

    /// Completes the entries of a name that have not the thread safety that programs request.
    /// `other`: whether the name also has entries that do.
    fn not_requested(&self, all: &mut [Examined], name: &str, other: bool) {
        let (is, requested, how) = match self.threadsafe {
            false => ("threadsafe", "nonthreadsafe", "dat_ia_open requests"),
            true => (
                "nonthreadsafe",
                "threadsafe",
                "programs that pass DAT_TRUE to dat_ia_openv request",
            ),
        };
        let way = match self.threadsafe {
            false => {
                "a program that passes DAT_TRUE as thread_safety to dat_ia_openv opens the line \
                 (check with --threadsafe)"
            }
            true => "dat_ia_open opens the line (check without --threadsafe)",
        };
        let instead = match other {
            true => Ok(()),
            false => self.open(name, self.threadsafe).map(drop),
        };
        let lines = all.iter_mut().filter(|one| {
            key_of(one).is_some_and(|key| key == (name.to_owned(), !self.threadsafe))
        });
        for one in lines {
            one.adapter = None;
            let report = &mut one.report;
            if !matches!(report.result, Outcome::Ok | Outcome::Foreign) {
                report
                    .notes
                    .push(format!("the line is {is}; {how} {requested}"));
                continue;
            }
            close(one);
            let report = &mut one.report;
            let line = report.line.unwrap_or(0);
            match &instead {
                Ok(()) => {
                    report.result = Outcome::Unused;
                    let what = match other {
                        true => "another line of this name",
                        false => "the device of this name, without the settings of this line",
                    };
                    report.notes.push(format!(
                        "the line is {is}, and {how} {requested}: that opens {what}; {way}"
                    ));
                }
                Err(error) => {
                    report.result = Outcome::Problem;
                    report.problem = Some(Problem::with_next(
                        error,
                        format!("write {requested} instead of {is} in line {line}; {way}"),
                    ));
                }
            }
        }
    }

    /// Returns the devices that have no name because they cannot be opened.
    fn unusable_devices(&self) -> Vec<report::Adapter> {
        let devices = dat_engine::devices_with(PathRequest::Auto).unwrap_or_default();
        let unusable = devices.iter().filter_map(|device| match &device.path {
            DataPath::Unusable { .. } => Some(self.of_name(&device.name).report),
            _ => None,
        });
        unusable.collect()
    }

    /// Returns the report if no name can be opened at all.
    fn no_device(&self) -> report::Adapter {
        let mut report = self.unlisted(report::ANY_NAME);
        report.problem = Some(match dat_engine::devices_with(PathRequest::Auto) {
            Ok(devices) if devices.is_empty() => advice::no_device(),
            Ok(_) => Problem::new("no RDMA device has a port", "see the kernel log (dmesg)"),
            Err(error) => Problem::of_engine(&error),
        });
        report
    }

    /// Opens a name that has no entry.
    fn of_name(&self, name: &str) -> Examined {
        opened(
            self.unlisted(name),
            self.open(name, self.threadsafe),
            || advice::for_name(&advice::devices()),
        )
    }

    /// Opens a name as a program does.
    fn open(&self, name: &str, threadsafe: bool) -> dat_api::Result<Adapter> {
        let options = OpenOptions {
            thread_safe: threadsafe,
            version: self.version,
            ..OpenOptions::default()
        };
        Adapter::open_with(name, options)
    }

    /// Finds out which of the entries of one name and thread safety is used, and says so in all of
    /// them.
    fn decide(&self, all: &mut [Examined], name: &str, threadsafe: bool) {
        let is_listed =
            |one: &Examined| key_of(one).is_some_and(|key| key == (name.to_owned(), threadsafe));
        let lines: Vec<usize> = (0..all.len()).filter(|&at| is_listed(&all[at])).collect();
        match self.what_opens(all, &lines, name, threadsafe) {
            Got::Entry(used) => {
                let number = all[used].report.line.unwrap_or(0);
                for at in lines.into_iter().filter(|&at| at != used) {
                    let note = format!("line {number} has the same name and is used");
                    not_used(&mut all[at], note);
                }
            }
            Got::Failure(error) => {
                let failed = lines.iter().position(|&at| is_failed(&all[at]));
                let failed = failed.unwrap_or_else(|| {
                    all[lines[0]].adapter = None;
                    let report = &mut all[lines[0]].report;
                    report.result = Outcome::Problem;
                    report.problem = Some(Problem::of_error(&error));
                    0
                });
                for &at in &lines[failed + 1..] {
                    if !is_failed(&all[at]) {
                        let note =
                            "not reached: opening the name ends with the error of a line above";
                        not_used(&mut all[at], note.to_owned());
                    }
                }
            }
            Got::Nothing => {}
        }
    }

    /// The library tries the entries in their order. The first entry of its own decides, for all of
    /// its own: it uses the first whose device exists.
    fn what_opens(&self, all: &[Examined], lines: &[usize], name: &str, threadsafe: bool) -> Got {
        for &at in lines {
            let report = &all[at].report;
            if report.result == Outcome::Foreign {
                return Got::Entry(at);
            }
            // This library opens the device of an entry for one that is not installed.
            if report.is_replaced {
                return match report.opened {
                    Some(_) => Got::Entry(at),
                    None => Got::Nothing,
                };
            }
            if !registry::is_ours(&report.library) {
                continue;
            }
            return match self.open(name, threadsafe) {
                Ok(_) => {
                    let mut lines = lines.iter().copied();
                    lines
                        .find(|&at| all[at].report.opened.is_some())
                        .map_or(Got::Nothing, Got::Entry)
                }
                Err(error) => Got::Failure(error),
            };
        }
        Got::Nothing
    }

    /// Returns the report of a name without an entry that was not examined yet.
    fn unlisted(&self, name: &str) -> report::Adapter {
        report::Adapter {
            name: name.to_owned(),
            result: Outcome::Problem,
            line: None,
            dat_version: format!("{}.{}", self.version.0, self.version.1),
            threadsafe: None,
            library: registry::library(self.version).to_owned(),
            library_path: None,
            is_replaced: false,
            instance_data: None,
            opened: None,
            problem: None,
            notes: Vec::new(),
        }
    }

    /// Examines one entry by itself.
    fn of_entry(&self, entry: &Entry) -> Examined {
        let mut report = blank(entry);
        let version = (entry.major, entry.minor);
        if version != self.version {
            of_other_version(&mut report, entry, self.version);
            return Examined::closed(report);
        }
        if !entry.is_ours() {
            look_up(&mut report, version);
            let is_installed = report.problem.is_none();
            if is_installed || !registry::is_replaceable(&entry.library) {
                return Examined::closed(report);
            }
            report.problem = None;
            report.is_replaced = true;
            report.notes.push(format!(
                "{} is not installed, so {} opens the device of the line itself",
                entry.library,
                registry::library(version)
            ));
        }
        opened(report, Adapter::open_entry(entry), || {
            advice::for_entry(entry.line, &entry.instance_data, &advice::devices())
        })
    }
}

/// Returns the adapter that a program gets, or else the one whose report says why it gets none.
fn best(mut all: Vec<Examined>) -> Option<Examined> {
    let usable = all.iter().position(|one| one.adapter.is_some());
    let with = |result| all.iter().position(|one| one.report.result == result);
    let foreign = with(Outcome::Foreign);
    let at = usable.or(foreign).or_else(|| with(Outcome::Problem))?;
    let mut chosen = all.swap_remove(at);
    if foreign == Some(at) && usable.is_none() {
        let text = format!(
            "{} serves the name, and dat-check tests this library",
            chosen.report.library
        );
        let next = "test with a program of that library, or name libdat.so.1 in the entry";
        chosen.report.result = Outcome::Problem;
        chosen.report.problem = Some(Problem::new(text, next));
    }
    Some(chosen)
}

/// Returns the name and the thread safety of an entry that programs of this library can request.
fn key_of(one: &Examined) -> Option<(String, bool)> {
    let Examined { report, .. } = one;
    let is_entry = report.line.is_some() && report.result != Outcome::Ignored;
    Some((report.name.clone(), report.threadsafe?)).filter(|_| is_entry)
}

/// What a program gets that opens a name.
enum Got {
    /// The entry at this index.
    Entry(usize),
    Failure(DatError),
    /// No entry of the name can be used.
    Nothing,
}

/// Returns whether an entry could not be opened or loaded by itself.
fn is_failed(one: &Examined) -> bool {
    one.report.opened.is_none() && one.report.result == Outcome::Problem
}

fn not_used(one: &mut Examined, note: String) {
    close(one);
    one.report.result = Outcome::Unused;
    one.report.notes.push(note);
}

/// Returns the report of an entry that was not examined yet.
fn blank(entry: &Entry) -> report::Adapter {
    report::Adapter {
        name: entry.name.clone(),
        result: Outcome::Problem,
        line: Some(entry.line),
        dat_version: format!("{}.{}", entry.major, entry.minor),
        threadsafe: Some(entry.threadsafe),
        library: entry.library.clone(),
        library_path: None,
        is_replaced: false,
        instance_data: Some(entry.instance_data.clone()),
        opened: None,
        problem: None,
        notes: entry.unused_platform_data().into_iter().collect(),
    }
}

/// Completes the report of an entry that is not for the programs that are checked for.
fn of_other_version(report: &mut report::Adapter, entry: &Entry, checked: (u32, u32)) {
    let Entry {
        line, major, minor, ..
    } = entry;
    if !registry::VERSIONS.contains(&(*major, *minor)) {
        report.problem = Some(Problem::new(
            format!("no program opens a name of uDAPL {major}.{minor}: there are 1.2 and 2.0"),
            format!(
                "in line {line} of dat.conf, write u1.2 for programs that use libdat.so.1, or u2.0 for \
                 those that use libdat2.so.2"
            ),
        ));
        return;
    }
    report.result = Outcome::Ignored;
    report.notes.push(format!(
        "for programs of uDAPL {major}.{minor}, which use {} (`dat-check --udapl {major}.{minor}` shows \
         what they get); programs of uDAPL {}.{} do not see it",
        registry::library((*major, *minor)),
        checked.0,
        checked.1
    ));
}

/// Looks another library up.
fn look_up(report: &mut report::Adapter, version: (u32, u32)) {
    let library = &report.library;
    match linker::find(library) {
        Found::At { path, missing } => {
            report.library_path = Some(path);
            if missing.is_empty() {
                report.result = Outcome::Foreign;
            } else {
                report.problem = Some(Problem::new(
                    format!(
                        "{library} needs {}, not found by the dynamic linker",
                        missing.join(", ")
                    ),
                    "install the packages that contain them (`ldd` shows the libraries of a file)",
                ));
            }
        }
        Found::Nowhere { reason } => {
            report.problem = Some(Problem::new(
                format!("the dynamic linker does not load {library}: {reason}"),
                format!(
                    "install the package of {library}, or add its folder to LD_LIBRARY_PATH; to use this \
                     library instead, write {} in the line",
                    registry::library(version)
                ),
            ));
        }
        Found::Unknown { reason } => {
            report.result = Outcome::Foreign;
            report.notes.push(format!(
                "not known whether {library} is installed: {reason}"
            ));
        }
    }
}
