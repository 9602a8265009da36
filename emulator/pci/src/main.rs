//! `mlx5-emu-pci`: what `mlx5-emu pci` starts. It takes its settings from the environment, as the
//! library of the emulated devices does.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use mlx5emu::config::Config;
use mlx5emu::limits::MAX_DEVICES;
use mlx5pci::server::listen;

/// Exit status for a command line or a variable that is not valid.
const USAGE: u8 = 1;
/// Exit status for a machine that lacks something.
const ENVIRONMENT: u8 = 2;

fn main() -> ExitCode {
    serve().unwrap_or_else(|(status, text)| {
        eprintln!("mlx5-emu pci: {text}");
        status.into()
    })
}

fn serve() -> Result<ExitCode, (u8, String)> {
    let mut arguments = std::env::args_os().skip(1);
    let socket = arguments.next().map(PathBuf::from);
    let index = arguments
        .next()
        .and_then(|it| it.to_str()?.parse::<u8>().ok());
    let (Some(socket), Some(index), None) = (
        socket,
        index.filter(|it| *it < MAX_DEVICES),
        arguments.next(),
    ) else {
        let text = "expected a socket and the number of a device; use mlx5-emu pci, which starts this program";
        return Err((USAGE, text.into()));
    };
    let config = Config::from_env().map_err(|error| (USAGE, error.to_string()))?;
    let open = |path: &PathBuf| {
        let file = File::options().create(true).append(true).open(path);
        file.map_err(|error| {
            (
                ENVIRONMENT,
                format!("cannot write {}: {error}", path.display()),
            )
        })
    };
    let trace = config.trace_commands.as_ref().map(open).transpose()?;
    let listening = listen(&socket, config, index, trace);
    let mut listening = listening.map_err(|error| (ENVIRONMENT, error.to_string()))?;
    println!(
        "mlx5-emu pci: a ConnectX for one virtual machine on {}",
        socket.display()
    );
    listening.serve()
}
