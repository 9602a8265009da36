//! Programs of other packages that tests run.

/// Returns whether a program is on the path. If not, prints what is skipped.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !is_there {
        let test = std::thread::current();
        let test = test.name().unwrap_or("a test");
        eprintln!("SKIPPED: {test}: {program} is not installed");
    }
    is_there
}
