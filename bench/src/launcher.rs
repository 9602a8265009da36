//! The launcher of the emulated device: whether it runs this process, and
//! restarting dat-bench under it.
//!
//! The engine does not distinguish an emulated device; only the launcher's
//! environment variable says so. Without the launcher, `-d emu` replaces this
//! process by `mlx5-emu run -- dat-bench …` with the same arguments.

use std::convert::Infallible;
use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;

/// The device name that stands for the emulated device.
pub(crate) const EMULATED: &str = "emu";
/// Set by the launcher for the program that it runs: the name of the fabric.
const FABRIC: &str = "MLX5EMU_FABRIC";
/// Set by dat-bench before it restarts itself, so that a launcher without a
/// device is not started again and again.
const RELAUNCHED: &str = "DAT_BENCH_RELAUNCHED";
const LAUNCHER: &str = "mlx5-emu";

/// Returns the name of the emulated fabric, if this process runs under the launcher.
pub(crate) fn fabric() -> Option<String> {
    env::var_os(FABRIC).map(|name| {
        let name = name.to_string_lossy();
        if name.is_empty() {
            "default".into()
        } else {
            name.into_owned()
        }
    })
}

/// Replaces this process by a dat-bench under the launcher. Returns only on
/// failure.
pub(crate) fn relaunch() -> Result<Infallible, Failure> {
    if env::var_os(RELAUNCHED).is_some() {
        return Err(Failure::environment(format!(
            "{LAUNCHER} ran dat-bench but did not set {FABRIC}: is it of the same build? (cargo build --release)"
        )));
    }
    let this = own_executable()?;
    let launcher = beside(&this)?;
    tracing::info!(launcher = %launcher.display(), "starts again on the emulated device");
    let error = Command::new(&launcher)
        .args([OsString::from("run"), "--".into(), this.into()])
        .args(env::args_os().skip(1))
        .env(RELAUNCHED, "1")
        .exec();
    Err(Failure::environment(format!(
        "cannot start {}: {error}",
        launcher.display()
    )))
}

/// Returns the launcher in the folder of this executable.
fn beside(executable: &Path) -> Result<PathBuf, Failure> {
    let launcher = executable.with_file_name(LAUNCHER);
    if launcher.is_file() {
        return Ok(launcher);
    }
    Err(Failure::environment(format!(
        "the emulated device needs {}, which does not exist: build it (cargo build --release), or name a real device with -d",
        launcher.display()
    )))
}

/// Returns the path of this program.
pub(crate) fn own_executable() -> Result<PathBuf, Failure> {
    env::current_exe().map_err(|error| {
        Failure::environment(format!(
            "cannot find dat-bench's own executable: {error}; is /proc mounted?"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_launcher_is_an_environment_failure_with_its_path() {
        let failure = beside(Path::new("/nonexistent/bin/dat-bench")).unwrap_err();
        assert_eq!(failure.status(), 2);
        assert!(
            failure.to_string().contains("/nonexistent/bin/mlx5-emu"),
            "{failure}"
        );
    }
}
