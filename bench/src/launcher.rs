//! The emulated device: telling whether we run on it, and starting ourselves
//! again on it.
//!
//! The engine cannot tell and must not: only the launcher's environment says
//! so. `-d emu` outside of it replaces this process by
//! `mlx5-emu run -- dat-bench …` with the same arguments.

use std::convert::Infallible;
use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;

/// The device name that asks for the emulated one.
pub(crate) const EMULATED: &str = "emu";
/// Set by the launcher for the programs it runs: the name of their fabric.
const FABRIC: &str = "MLX5EMU_FABRIC";
/// Set by us for ourselves, so that a launcher that emulates nothing is not started for ever.
const RELAUNCHED: &str = "DAT_BENCH_RELAUNCHED";
const LAUNCHER: &str = "mlx5-emu";

/// The fabric of the emulated devices that this process sees, if it runs under the launcher.
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

/// Replaces this process by itself under the launcher. Comes back only to say why not.
pub(crate) fn relaunch() -> Result<Infallible, Failure> {
    if env::var_os(RELAUNCHED).is_some() {
        return Err(Failure::environment(format!(
            "{LAUNCHER} ran this program but set no {FABRIC}; is it of the same build?"
        )));
    }
    let this = env::current_exe()
        .map_err(|error| Failure::environment(format!("cannot find my own executable: {error}")))?;
    let launcher = beside(&this)?;
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

/// The launcher in the folder of this executable.
fn beside(executable: &Path) -> Result<PathBuf, Failure> {
    let launcher = executable.with_file_name(LAUNCHER);
    if launcher.is_file() {
        return Ok(launcher);
    }
    Err(Failure::environment(format!(
        "the emulated device needs {}, which is not there; build it (cargo build --release) or name a real device with -d",
        launcher.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_launcher_is_an_environment_failure_that_says_where_it_was_sought() {
        let failure = beside(Path::new("/nonexistent/bin/dat-bench")).unwrap_err();
        assert_eq!(failure.status(), 2);
        assert!(
            failure.to_string().contains("/nonexistent/bin/mlx5-emu"),
            "{failure}"
        );
    }
}
