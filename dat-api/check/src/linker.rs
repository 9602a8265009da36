//! What the dynamic linker finds for the name of a library, without running code of the library.

use std::env;
use std::process::Command;

/// The answer of the dynamic linker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The file, and the libraries that it needs and that are not found.
    At { path: String, missing: Vec<String> },
    /// No such file; the linker's reason.
    Nowhere(String),
    /// The linker cannot be asked, for this reason.
    Unknown(String),
}

/// Asks glibc's dynamic linker, which lists the libraries of a program instead of running it if
/// `LD_TRACE_LOADED_OBJECTS` is set, as ldd(1) does. A preloaded library is searched as dlopen(3)
/// searches: in `LD_LIBRARY_PATH`, the cache of ldconfig, and the system's directories.
pub(crate) fn find(library: &str) -> Found {
    if library.contains([':', ' ', '\t', '\n']) {
        return Found::Unknown("the name has a blank or a colon".to_owned());
    }
    let this = env::current_exe();
    let output = this.and_then(|this| {
        Command::new(this)
            .env("LD_TRACE_LOADED_OBJECTS", "1")
            .env("LD_PRELOAD", library)
            .env_remove("LD_DEBUG")
            .env_remove("LD_VERBOSE")
            // Not reached with glibc: the option ends a program that runs after all.
            .arg("--version")
            .output()
    });
    match output {
        Ok(output) => parse(
            library,
            &String::from_utf8_lossy(&output.stdout),
            &String::from_utf8_lossy(&output.stderr),
        ),
        Err(error) => Found::Unknown(error.to_string()),
    }
}

fn parse(library: &str, list: &str, errors: &str) -> Found {
    let refused = format!("object '{library}' from LD_PRELOAD cannot be preloaded");
    if let Some((_, rest)) = errors.split_once(&refused) {
        let reason = rest.trim_start().trim_start_matches('(');
        let reason = reason.split(')').next().unwrap_or_default();
        return Found::Nowhere(reason.to_owned());
    }
    let mut path = None;
    let mut missing = Vec::new();
    for line in list.lines().map(str::trim) {
        let (name, place) = line.split_once(" => ").unwrap_or((line, line));
        if place == "not found" {
            missing.push(name.to_owned());
        }
        let place = place.split(" (0x").next().unwrap_or(place);
        let same = name == library || place == library;
        if same && place.contains('/') {
            path = Some(place.to_owned());
        }
    }
    match path {
        Some(path) => Found::At { path, missing },
        None => Found::Unknown("the dynamic linker does not list it".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\tlinux-vdso.so.1 (0x00007f1b2cd61000)\n\
        \tlibone.so.1 => /opt/lib/libone.so.1 (0x00007f1b2cd2f000)\n\
        \t/opt/own/libtwo.so (0x00007f1b2cd2e000)\n\
        \tlibc.so.6 => /lib/libc.so.6 (0x00007f1b2cb4d000)\n\
        \tlibmissing.so.3 => not found\n";

    #[test]
    fn names_and_paths_are_found_in_the_linkers_list() {
        let at = |library: &str| match parse(library, LIST, "") {
            Found::At { path, missing } => {
                assert_eq!(missing, ["libmissing.so.3"]);
                path
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(at("libone.so.1"), "/opt/lib/libone.so.1");
        assert_eq!(at("/opt/own/libtwo.so"), "/opt/own/libtwo.so");
        assert!(matches!(parse("libthree.so", LIST, ""), Found::Unknown(_)));
    }

    #[test]
    fn the_linkers_reason_is_reported() {
        let errors = "ERROR: ld.so: object 'libno.so' from LD_PRELOAD cannot be preloaded \
                      (cannot open shared object file): ignored.\n";
        let reason = "cannot open shared object file".to_owned();
        assert_eq!(parse("libno.so", LIST, errors), Found::Nowhere(reason));
    }

    #[test]
    fn the_linker_of_this_host_is_asked() {
        assert!(matches!(find("libno-such-library.so.1"), Found::Nowhere(_)));
        match find("libibverbs.so.1") {
            Found::At { path, missing } => {
                assert!(path.ends_with("/libibverbs.so.1"), "{path}");
                assert_eq!(missing, [""; 0]);
            }
            other => panic!("{other:?}"),
        }
    }
}
