//! What each adapter name opens.
//!
//! A program requests a name together with a thread safety: `dat_ia_open` requests nonthreadsafe,
//! `dat_ia_openv` either. Each entry of this library is opened by itself, to find its own faults.
//! Then each name is opened as a program opens it, which decides which of its entries is used.

use std::collections::BTreeSet;

use dat_api::registry::{self, ConfFile, Entry};
use dat_api::safe::{Adapter, OpenOptions};
use dat_engine::{DataPath, DeviceInfo, PathRequest};

use crate::advice;
use crate::linker::{self, Found};
use crate::opening::{Examined, opened};
use crate::problem::{AGAIN, Problem};
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
        let names = Vec::from_iter(name.map(str::to_owned));
        best(self.examined(&names)).unwrap_or_else(|| match name {
            Some(name) => self.of_name(name),
            None => Examined::closed(self.no_device()),
        })
    }

    fn examined(&self, names: &[String]) -> Vec<Examined> {
        let entries = self.file.conf.entries.iter();
        let chosen = entries.filter(|entry| names.is_empty() || names.contains(&entry.name));
        let mut all: Vec<Examined> = chosen.map(|entry| self.of_entry(entry)).collect();
        let keys: BTreeSet<Key> = all.iter().filter_map(key_of).collect();
        for key in &keys {
            self.decide(&mut all, key);
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
        let (is, requested, how, way) = match self.threadsafe {
            false => (
                "threadsafe",
                "nonthreadsafe",
                "dat_ia_open requests",
                "a program that passes DAT_TRUE as thread_safety to dat_ia_openv opens the line \
                 (check with --threadsafe)",
            ),
            true => (
                "nonthreadsafe",
                "threadsafe",
                "programs that pass DAT_TRUE to dat_ia_openv request",
                "dat_ia_open opens the line (check without --threadsafe)",
            ),
        };
        let instead = match other {
            true => Ok("another line of this name"),
            false => self
                .open(name, self.threadsafe)
                .map(|_| "the device of this name, without the settings of this line"),
        };
        for at in lines_of(all, &(name.to_owned(), !self.threadsafe)) {
            let one = &mut all[at];
            if !matches!(one.report.result, Outcome::Ok | Outcome::Foreign) {
                one.adapter = None;
                let note = format!("the line is {is}; {how} {requested}");
                one.report.notes.push(note);
                continue;
            }
            match &instead {
                Ok(what) => one.not_used(format!(
                    "the line is {is}, and {how} {requested}: that opens {what}; {way}"
                )),
                Err(error) => {
                    let line = one.report.line.unwrap_or(0);
                    let next = format!("write {requested} instead of {is} in line {line}; {way}");
                    one.close();
                    one.fail(Problem::with_next(error, next));
                }
            }
        }
    }

    /// Returns the devices that have no name because they cannot be opened.
    fn unusable_devices(&self) -> Vec<report::Adapter> {
        let devices = dat_engine::devices_with(PathRequest::Auto).unwrap_or_default();
        let unusable = |one: &&DeviceInfo| matches!(one.path, DataPath::Unusable { .. });
        let reports = devices.iter().filter(unusable);
        reports.map(|one| self.of_name(&one.name).report).collect()
    }

    /// Returns the report if no name can be opened at all.
    fn no_device(&self) -> report::Adapter {
        let mut report = self.unlisted(report::ANY_NAME);
        report.problem = Some(match dat_engine::devices_with(PathRequest::Auto) {
            Ok(devices) if devices.is_empty() => advice::no_device(),
            Ok(_) => Problem::new("no RDMA device has a port", "see the kernel log (dmesg)"),
            Err(error) => Problem::of_engine(&error, AGAIN),
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
        let (major, minor) = self.version;
        let mut options = OpenOptions::new().version(major, minor);
        if threadsafe {
            options = options.thread_safe();
        }
        Adapter::open_with(name, options)
    }

    /// Finds out which of the entries of one name and thread safety is used, and says so in all of
    /// them.
    fn decide(&self, all: &mut [Examined], key: &Key) {
        let lines = lines_of(all, key);
        match self.what_opens(all, key) {
            Ok(Some(used)) => {
                let number = all[used].report.line.unwrap_or(0);
                for at in lines.into_iter().filter(|&at| at != used) {
                    all[at].not_used(format!("line {number} has the same name and is used"));
                }
            }
            Ok(None) => {}
            Err(error) => {
                let failed = lines.iter().position(|&at| all[at].is_failed());
                let failed = failed.unwrap_or_else(|| {
                    all[lines[0]].fail(Problem::of_error(&error));
                    0
                });
                for &at in &lines[failed + 1..] {
                    let note = "not reached: opening the name ends with the error of a line above";
                    if !all[at].is_failed() {
                        all[at].not_used(note.to_owned());
                    }
                }
            }
        }
    }

    /// Returns which entry a program gets that opens the name, if it gets one. The library tries the
    /// entries in their order. The first entry of its own decides, for all of its own: it uses the
    /// first whose device exists.
    fn what_opens(&self, all: &[Examined], key: &Key) -> dat_api::Result<Option<usize>> {
        let ((name, threadsafe), lines) = (key, lines_of(all, key));
        for &at in &lines {
            let report = &all[at].report;
            if report.result == Outcome::Foreign {
                return Ok(Some(at));
            }
            // This library opens the device of an entry for one that is not installed.
            if report.is_replaced {
                return Ok(report.opened.as_ref().map(|_| at));
            }
            if registry::is_ours(&report.library) {
                self.open(name, *threadsafe)?;
                return Ok(lines
                    .into_iter()
                    .find(|&at| all[at].report.opened.is_some()));
            }
        }
        Ok(None)
    }

    /// Returns the report of a name without an entry that was not examined yet.
    fn unlisted(&self, name: &str) -> report::Adapter {
        report::Adapter {
            name: name.to_owned(),
            dat_version: format!("{}.{}", self.version.0, self.version.1),
            library: registry::library(self.version).to_owned(),
            ..report::Adapter::default()
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
    let at = usable
        .or_else(|| with(Outcome::Foreign))
        .or_else(|| with(Outcome::Problem))?;
    let mut chosen = all.swap_remove(at);
    if chosen.report.result == Outcome::Foreign {
        let text = format!(
            "{} serves the name, and dat-check tests this library",
            chosen.report.library
        );
        let next = "test with a program of that library, or name libdat.so.1 in the entry";
        chosen.fail(Problem::new(text, next));
    }
    Some(chosen)
}

/// The name and the thread safety that a program requests.
type Key = (String, bool);

/// Returns what programs of this library request to open an entry.
fn key_of(one: &Examined) -> Option<Key> {
    let Examined { report, .. } = one;
    let is_entry = report.line.is_some() && report.result != Outcome::Ignored;
    Some((report.name.clone(), report.threadsafe?)).filter(|_| is_entry)
}

fn lines_of(all: &[Examined], key: &Key) -> Vec<usize> {
    let is_listed = |&at: &usize| key_of(&all[at]).is_some_and(|one| one == *key);
    (0..all.len()).filter(is_listed).collect()
}

/// Returns the report of an entry that was not examined yet.
fn blank(entry: &Entry) -> report::Adapter {
    report::Adapter {
        name: entry.name.clone(),
        line: Some(entry.line),
        dat_version: format!("{}.{}", entry.major, entry.minor),
        threadsafe: Some(entry.threadsafe),
        library: entry.library.clone(),
        instance_data: Some(entry.instance_data.clone()),
        notes: entry.unused_platform_data().into_iter().collect(),
        ..report::Adapter::default()
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
        Found::Nowhere(reason) => {
            report.problem = Some(Problem::new(
                format!("the dynamic linker does not load {library}: {reason}"),
                format!(
                    "install the package of {library}, or add its folder to LD_LIBRARY_PATH; to use this \
                     library instead, write {} in the line",
                    registry::library(version)
                ),
            ));
        }
        Found::Unknown(reason) => {
            report.result = Outcome::Foreign;
            report.notes.push(format!(
                "not known whether {library} is installed: {reason}"
            ));
        }
    }
}
