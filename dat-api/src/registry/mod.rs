//! The names of IAs, and the device that each stands for.
//!
//! A name is, in this order:
//! 1. an entry of dat.conf whose name, version and thread safety are the requested ones. Several such
//!    entries are tried in order. The C interface loads libraries other than this one
//!    ([`libraries`]);
//! 2. `DEVICE`, port 1 of that RDMA device, or `DEVICE-PORT`. These need no dat.conf, and have
//!    the version of the caller's interface, and match either thread safety.
//!
//! dat.conf is the file that `DAT_OVERRIDE` names, otherwise `/etc/dat.conf`. It is read each time
//! an IA is opened, so a change needs no restart. A process with more rights than its caller reads
//! `/etc/dat.conf` only.

mod conf;
mod file;
mod instance;
mod interface;

use crate::error::{DatError, Result};
use crate::status::{ReturnType, Subtype};
use crate::warnings::warn_once;

use self::file::File;
pub(crate) use self::instance::Instance;

pub use self::conf::{Conf, Entry, IgnoredLine, LineError, MAX_NAME, ProviderVersion};
pub use self::file::ConfFile;

/// The DAT version of the Rust API. Each C interface has a version of its own.
pub const VERSION: (u32, u32) = (1, 2);
/// The DAT versions of the C interfaces.
pub const VERSIONS: [(u32, u32); 2] = [(1, 2), (2, 0)];

/// The file names of this library in dat.conf.
const OURS: [&str; 6] = [
    "libdat.so",
    "libdat.so.1",
    "libdat2.so",
    "libdat2.so.2",
    "libudapl.so.1",
    "libudapl2.so.2",
];

/// The file names of OFED's providers, whose entries a stock dat.conf has: of DAT 1.2, then of 2.0.
/// Where such a library is not installed, this project's library opens the same device in its place.
const REPLACED: [&str; 5] = [
    "libdaplcma.so.1",
    "libdaplscm.so.1",
    "libdaplofa.so.2",
    "libdaploscm.so.2",
    "libdaploucm.so.2",
];

/// An IA name, as `dat_registry_list_providers` reports it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Provider {
    /// The name.
    pub name: String,
    /// The major DAT version.
    pub major: u32,
    /// The minor DAT version.
    pub minor: u32,
    /// Thread safety, as in dat.conf. Names of devices are listed as not thread safe, which is what
    /// `dat_ia_open` requests; they can be opened either way.
    pub threadsafe: bool,
}

/// Returns every IA name: those of dat.conf in its order, then those of the devices, with this
/// version, except entries that dat.conf has.
///
/// # Errors
/// libibverbs could not list devices.
pub fn list_providers(version: (u32, u32)) -> Result<Vec<Provider>> {
    let all = all_providers(version)?.into_iter();
    Ok(all.map(|listed| listed.provider).collect())
}

/// Returns every IA name as [`list_providers`] does, but those that the library of this version
/// serves come before all others: for a caller that takes only the first ones.
///
/// # Errors
/// As for [`list_providers`].
pub fn list_providers_served_first(version: (u32, u32)) -> Result<Vec<Provider>> {
    Ok(served_first(all_providers(version)?))
}

/// A name in the list.
#[derive(Debug)]
struct Listed {
    provider: Provider,
    /// Whether it is a device, or an entry of this library.
    is_own: bool,
    /// Whether this library opens it, perhaps in the place of another one.
    is_served: bool,
}

fn all_providers(version: (u32, u32)) -> Result<Vec<Listed>> {
    let names = device_names()?.into_iter();
    Ok(listed(&File::read().conf, names, version))
}

/// Returns the IA names that need no dat.conf: `DEVICE` for a device with one port, otherwise
/// `DEVICE-PORT` for each port. A device that cannot be opened has none.
///
/// # Errors
/// libibverbs could not list devices.
pub fn device_names() -> Result<Vec<String>> {
    // Names are the same on every path.
    let devices = dat_engine::devices_with(dat_engine::PathRequest::Auto)?;
    let names = devices
        .into_iter()
        .flat_map(|device| names_of(&device.name, device.ports.len()));
    Ok(names.collect())
}

/// Reads the dat.conf that this process uses.
#[must_use]
pub fn read_conf() -> ConfFile {
    ConfFile::read()
}

fn served_first(mut all: Vec<Listed>) -> Vec<Provider> {
    // The sort is stable.
    all.sort_by_key(|listed| (!listed.is_own, !listed.is_served));
    all.into_iter().map(|listed| listed.provider).collect()
}

/// Returns the names of a device: with one port its own, otherwise one per port.
fn names_of(device: &str, ports: usize) -> Vec<String> {
    match ports {
        0 => Vec::new(),
        1 => vec![device.to_owned()],
        _ => (1..=ports).map(|port| format!("{device}-{port}")).collect(),
    }
}

fn listed(conf: &Conf, devices: impl Iterator<Item = String>, version: (u32, u32)) -> Vec<Listed> {
    let (major, minor) = version;
    let mut all: Vec<Listed> = Vec::new();
    for entry in &conf.entries {
        let provider = Provider {
            name: entry.name.clone(),
            major: entry.major,
            minor: entry.minor,
            threadsafe: entry.threadsafe,
        };
        let is_of_version = (entry.major, entry.minor) == version;
        let is_own = is_of_version && is_ours(&entry.library);
        let is_served = is_own || is_of_version && is_replaceable(&entry.library);
        // A further entry with the same key is an alternative for the same name.
        match all.iter_mut().find(|listed| listed.provider == provider) {
            Some(listed) => {
                listed.is_own |= is_own;
                listed.is_served |= is_served;
            }
            None => all.push(Listed {
                provider,
                is_own,
                is_served,
            }),
        }
    }
    for name in devices {
        let provider = Provider {
            name,
            major,
            minor,
            threadsafe: false,
        };
        if all.iter().all(|listed| listed.provider != provider) {
            all.push(Listed {
                provider,
                is_own: true,
                is_served: true,
            });
        }
    }
    all
}

/// The requested name, version and thread safety.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    pub(crate) name: &'a str,
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) threadsafe: bool,
    /// The DAT version of the caller's interface, which serves no other version.
    pub(crate) interface: (u32, u32),
}

/// The devices that a name may stand for, to be tried in order until one exists.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) candidates: Vec<Instance>,
    /// What dat.conf says about the name, for the error message.
    pub(crate) hint: String,
}

impl Resolved {
    /// Parses the instance data of an entry.
    pub(crate) fn configured(instance_data: &str) -> Result<Self> {
        let instance = Instance::of_instance_data(instance_data).map_err(not_found)?;
        Ok(Self {
            candidates: vec![instance],
            hint: format!("the instance data is \"{instance_data}\""),
        })
    }
}

/// A library that serves an IA name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderLibrary {
    /// This one.
    Ours,
    /// Another one: an entry of dat.conf.
    Foreign {
        /// The file name or path.
        library: String,
        /// The instance data, for the library.
        instance_data: String,
        /// The file and line of the entry, for messages.
        place: String,
        /// Whether this library opens the entry's device if the other one cannot be loaded:
        /// OFED's providers.
        is_replaceable: bool,
    },
}

/// Returns the libraries that dat.conf names for an IA name, to be tried in order; all entries of
/// this library appear once, at the place of the first. Empty if the name is not in dat.conf.
#[must_use]
pub fn libraries(wanted: &Provider) -> Vec<ProviderLibrary> {
    libraries_in(&File::read(), wanted)
}

fn libraries_in(file: &File, wanted: &Provider) -> Vec<ProviderLibrary> {
    let mut libraries = Vec::new();
    for entry in file.conf.entries.iter().filter(|entry| {
        entry.name == wanted.name
            && (entry.major, entry.minor) == (wanted.major, wanted.minor)
            && entry.threadsafe == wanted.threadsafe
    }) {
        let found = if is_ours(&entry.library) {
            ProviderLibrary::Ours
        } else {
            ProviderLibrary::Foreign {
                library: entry.library.clone(),
                instance_data: entry.instance_data.clone(),
                place: place_of(file, entry),
                is_replaceable: is_replaceable(&entry.library),
            }
        };
        if !libraries.contains(&found) {
            libraries.push(found);
        }
    }
    libraries
}

/// Resolves an IA name.
///
/// # Errors
/// - A name that is too long: `DAT_INVALID_PARAMETER`, argument 1.
/// - Another version, or an entry of dat.conf that cannot be used: `DAT_PROVIDER_NOT_FOUND`.
/// - No descriptor to read dat.conf: `DAT_INSUFFICIENT_RESOURCES`.
pub(crate) fn resolve(key: Key<'_>) -> Result<Resolved> {
    if key.name.len() > MAX_NAME {
        return Err(DatError::new(
            ReturnType::InvalidParameter,
            Subtype::InvalidArg1,
            format!(
                "the name has {} bytes: expected at most {MAX_NAME}",
                key.name.len()
            ),
        ));
    }
    resolve_in(&File::read(), key)
}

fn resolve_in(file: &File, key: Key<'_>) -> Result<Resolved> {
    if file.unread {
        return Err(DatError::new(
            ReturnType::InsufficientResources,
            Subtype::ResourceDevice,
            file.read_error.clone().unwrap_or_default(),
        ));
    }
    let version = (key.major, key.minor);
    let same = |entry: &&Entry| {
        (
            entry.name.as_str(),
            entry.major,
            entry.minor,
            entry.threadsafe,
        ) == (key.name, key.major, key.minor, key.threadsafe)
    };
    if version != key.interface {
        let (major, minor) = key.interface;
        // A program of one version that was linked with the library of the other.
        let remedy = match version {
            (1, 2) => "; link programs that include <dat/udat.h> with `pkg-config --libs dat`",
            (2, 0) => "; link programs that include <dat2/udat.h> with `pkg-config --libs dat2`",
            _ => "",
        };
        return Err(not_found(format!(
            "no adapter \"{}\" of DAT version {}.{}: {} has {major}.{minor}{remedy}; {}",
            key.name,
            key.major,
            key.minor,
            library(key.interface),
            hint(file, key)
        )));
    }
    let matching: Vec<&Entry> = file.conf.entries.iter().filter(same).collect();
    if !matching.is_empty() {
        return configured(file, &matching);
    }
    let hint = hint(file, key);
    Ok(Resolved {
        candidates: Instance::of_device_name(key.name),
        hint,
    })
}

/// Resolves one entry of dat.conf.
///
/// # Errors
/// `DAT_PROVIDER_NOT_FOUND`: the entry is for another library, which is not
/// [replaceable](is_replaceable), or for another version of DAT than [`VERSIONS`], or its instance
/// data are invalid.
pub(crate) fn resolve_entry(entry: &Entry) -> Result<Resolved> {
    if !entry.is_ours() && !is_replaceable(&entry.library) {
        let library = &entry.library;
        return Err(not_found(format!(
            "the entry is for the library {library}, not for this one"
        )));
    }
    if !VERSIONS.contains(&(entry.major, entry.minor)) {
        return Err(not_found(format!(
            "the entry is for DAT {}.{}; this library has 1.2 and 2.0",
            entry.major, entry.minor
        )));
    }
    let mut resolved = Resolved::configured(&entry.instance_data)?;
    for instance in &mut resolved.candidates {
        instance.place = Some(format!("dat.conf:{}", entry.line));
    }
    Ok(resolved)
}

/// Resolves the matching entries of dat.conf.
fn configured(file: &File, entries: &[&Entry]) -> Result<Resolved> {
    let mut causes = Vec::new();
    let mut candidates = Vec::new();
    for entry in entries {
        let place = place_of(file, entry);
        if is_ours(&entry.library) {
            if let Some(unused) = entry.unused_platform_data() {
                warn_once(0, &format!("{place}: {unused}"));
            }
            match Instance::of_instance_data(&entry.instance_data) {
                Ok(instance) => candidates.push(Instance {
                    place: Some(place),
                    ..instance
                }),
                Err(cause) => causes.push(format!("{place}: {cause}")),
            }
        } else {
            causes.push(format!(
                "{place} names the library {}, a provider for C programs, which libdat loads when they \
                 open the IA; name {} there to use this library's adapters",
                entry.library,
                library((entry.major, entry.minor))
            ));
        }
    }
    let hint = causes.join("; ");
    if candidates.is_empty() {
        return Err(not_found(hint));
    }
    Ok(Resolved { candidates, hint })
}

/// Returns the file and line of an entry, for messages.
fn place_of(file: &File, entry: &Entry) -> String {
    format!("{}:{}", file.path.display(), entry.line)
}

/// Returns whether this project's library opens the device of an entry if the library of the
/// entry, one of OFED's providers, is not installed.
#[must_use]
pub fn is_replaceable(library: &str) -> bool {
    REPLACED.contains(&file_name(library))
}

fn file_name(library: &str) -> &str {
    library.rsplit('/').next().unwrap_or(library)
}

/// Returns the file name of the library of a DAT version, for messages.
#[must_use]
pub fn library(version: (u32, u32)) -> &'static str {
    match version {
        (2, 0) => "libdat2.so.2",
        _ => "libdat.so.1",
    }
}

/// Returns whether the library of an entry is one of this project, by its file name.
#[must_use]
pub fn is_ours(library: &str) -> bool {
    OURS.contains(&file_name(library))
}

/// Returns the entry of dat.conf that comes nearest, or what is wrong with the file, as text.
fn hint(file: &File, key: Key<'_>) -> String {
    let entries = &file.conf.entries;
    let same_version = |entry: &&Entry| (entry.major, entry.minor) == (key.major, key.minor);
    let mut named = entries.iter().filter(|entry| entry.name == key.name);
    let near = named.clone().find(same_version).or_else(|| named.next());
    if let Some(entry) = near {
        return not_this_entry(&place_of(file, entry), entry, key);
    }
    let path = file.path.display();
    if let Some(error) = &file.read_error {
        return error.clone();
    }
    let mut ignored = file.conf.ignored.iter();
    if let Some(IgnoredLine { line, cause, .. }) = ignored.find(|line| line.name == key.name) {
        return format!("{path}:{line} has the name, but is ignored: {cause}");
    }
    let mut text = match entries.len() {
        0 => format!("{path} has no entries"),
        1 => format!("the only entry of {path} has another name"),
        count => format!("none of the {count} entries of {path} has this name"),
    };
    if let Some(LineError { line, cause }) = file.conf.line_errors.first() {
        text += &format!("; {path}:{line} is ignored: {cause}");
    }
    text
}

/// Returns why an entry of this name is not the requested one, and what to do.
fn not_this_entry(place: &str, entry: &Entry, key: Key<'_>) -> String {
    let Entry { major, minor, .. } = entry;
    if (*major, *minor) != (key.major, key.minor) || (*major, *minor) != key.interface {
        let mut text = format!("{place} has the name for DAT version {major}.{minor}");
        if (*major, *minor) != key.interface {
            let (major, minor) = key.interface;
            text += &format!(
                "; for this library, add a line with u{major}.{minor} and {}, or open the device by \
                 its own name",
                library(key.interface)
            );
        }
        return text;
    }
    let [is, requested] = [entry.threadsafe, key.threadsafe].map(|threadsafe| match threadsafe {
        true => "threadsafe",
        false => "nonthreadsafe",
    });
    format!(
        "{place} has the name as {is}, but the program has requested {requested}: write {requested} \
         in that line (dat_ia_open requests nonthreadsafe; the last argument of dat_ia_openv decides)"
    )
}

/// The error if there is no such IA.
pub(crate) fn not_found(cause: String) -> DatError {
    DatError::new(
        ReturnType::ProviderNotFound,
        Subtype::NameNotRegistered,
        cause,
    )
}

#[cfg(test)]
mod tests;
