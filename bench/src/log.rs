//! The log, which `RUST_LOG` switches on: what dat-bench, the engine and DAT do before and
//! between measurements. The measuring loops and the data paths log nothing; a thread of a
//! connection manager may, at any time.

use std::env;
use std::io;

use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::failure::Failure;

/// Names the levels, for each module if need be: `debug`, `dat_engine=debug,warn`.
const VARIABLE: &str = "RUST_LOG";

/// Starts the log on standard error if the variable is set.
pub(crate) fn start() -> Result<(), Failure> {
    let Some(value) = env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(());
    };
    let value = value.to_string_lossy();
    let targets: Targets = value.parse().map_err(|error| {
        Failure::usage(format!(
            "{VARIABLE}={value}: {error}; expected a level (error, warn, info, debug, trace, off) or MODULE=LEVEL, with commas between: {VARIABLE}=debug, {VARIABLE}=dat_engine=debug,warn"
        ))
    })?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_filter(targets);
    tracing_subscriber::registry().with(lines).init();
    Ok(())
}
