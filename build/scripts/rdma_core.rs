//! The probe for what rdma-core must have installed.

#[path = "fail.rs"]
mod fail;

pub(crate) use fail::fail;
use std::path::{Path, PathBuf};

/// The libraries and the oldest version of each that this project builds
/// against: rdma-core 44, what Debian 12 has.
const LIBRARIES: [(&str, [u32; 3]); 3] = [
    ("libibverbs", [1, 14, 44]),
    ("libmlx5", [1, 24, 44]),
    ("librdmacm", [1, 3, 44]),
];

/// Finds libibverbs, libmlx5 and librdmacm; returns their include folders.
///
/// Ends the build with one line that says what to do if a library is missing,
/// too old, without its file for the linker, or of another version of rdma-core
/// than the first.
pub(crate) fn probe() -> Vec<PathBuf> {
    let mut include = Vec::new();
    let mut versions = Vec::new();
    for (library, oldest) in LIBRARIES {
        match pkg_config::Config::new().probe(library) {
            Ok(found) => {
                check(library, &oldest, &found).unwrap_or_else(|wrong| fail(&wrong));
                versions.push((library, found.version));
                // The order is that of pkg-config: what it names first, the
                // compiler has to find first.
                for folder in found.include_paths {
                    if !include.contains(&folder) {
                        include.push(folder);
                    }
                }
            }
            Err(pkg_config::Error::Command { cause, .. }) => {
                fail(&format!("pkg-config cannot be run ({cause})"))
            }
            Err(_) => fail(&format!(
                "{library} {} or newer (rdma-core {}) was not found by pkg-config",
                dotted(&oldest),
                oldest[2]
            )),
        }
    }
    // The third number of each library's version is the version of rdma-core.
    let release = |version: &str| version.split('.').nth(2).map(str::to_owned);
    let (first, of_first) = &versions[0];
    if let Some((other, of_other)) = versions
        .iter()
        .find(|(_, version)| release(version) != release(of_first))
    {
        fail(&format!(
            "{first} {of_first} and {other} {of_other} are of two versions of rdma-core, whose \
             private interfaces differ: remove one of the two, or name one alone in PKG_CONFIG_PATH"
        ))
    }
    include
}

/// Returns what is wrong with a library that pkg-config has found.
fn check(library: &str, oldest: &[u32; 3], found: &pkg_config::Library) -> Result<(), String> {
    let version: Vec<u32> = found
        .version
        .split('.')
        .map(|part| {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            part[..digits].parse().unwrap_or(0)
        })
        .collect();
    if version.as_slice() < oldest.as_slice() {
        return Err(format!(
            "{library} {} is too old: {} or newer is needed (rdma-core {}; Debian 12, Ubuntu \
             24.04 and later have it)",
            found.version,
            dotted(oldest),
            oldest[2]
        ));
    }
    let has_library = |folder: &PathBuf| {
        ["so", "a"]
            .iter()
            .any(|kind| folder.join(format!("{library}.{kind}")).exists())
    };
    if !found.link_paths.is_empty() && !found.link_paths.iter().any(has_library) {
        return Err(format!(
            "pkg-config reports {library} {}, but {library}.so is not in {}",
            found.version,
            list(&found.link_paths)
        ));
    }
    let header = match library {
        "libibverbs" => "infiniband/verbs.h",
        "libmlx5" => "infiniband/mlx5dv.h",
        _ => "rdma/rdma_cma.h",
    };
    let has_header = |folder: &PathBuf| folder.join(header).exists();
    if !found.include_paths.is_empty()
        && !found.include_paths.iter().any(has_header)
        && !Path::new("/usr/include").join(header).exists()
    {
        return Err(format!(
            "pkg-config reports {library} {}, but {header} is not in {}",
            found.version,
            list(&found.include_paths)
        ));
    }
    Ok(())
}

fn dotted(version: &[u32]) -> String {
    version
        .iter()
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join(".")
}

fn list(folders: &[PathBuf]) -> String {
    folders
        .iter()
        .map(|folder| folder.display().to_string())
        .collect::<Vec<_>>()
        .join(", ")
}
