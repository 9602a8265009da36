//! Options and help.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Parser};

/// The connection qualifier of --listen and --connect: a TCP port, for rdma_cm a service id.
pub(crate) const QUALIFIER: u64 = 18515;
/// How long a test may take, seconds.
const LIMIT: u64 = 10;
/// How long --listen waits for the other side, seconds.
const LISTEN_LIMIT: u64 = 60;

const ABOUT: &str = "\
Show what every adapter name of this host opens, and test connections.

A DAT program opens an adapter by its name: an entry of dat.conf, or the name of
an RDMA device (mlx5_0, or mlx5_0-2 for its port 2), which needs no entry.
dat-check reads the dat.conf that a program started here gets, opens every name
as dat_ia_open does, and shows the library, device, port, address, connection
manager and data path. For a name that cannot be opened it prints the reason and
what to do.

Programs of uDAPL 2.0 (libdat2.so.2) use other entries of the same file: --udapl 2.0
shows what those programs get.

Names of other libraries are not opened: dat-check shows which library a program
would load, and whether the dynamic linker finds it.

With --loopback, --listen or --connect it then connects, moves data both ways by
send, RDMA write and RDMA read, and compares every byte.";

const EXAMPLES: &str = "\
Results of a name:
  ok        opens here, and an endpoint can be created
  problem   cannot be used; the lines below say why, and what to do next
  foreign   another library serves it, which is installed; not opened
  ignored   an entry that programs of this version of uDAPL do not use
  unused    opening the name does not get to this entry; the note says why

Examples:
  dat-check                          every name
  dat-check mlx5_0                   one name
  dat-check --json | jq .adapters    for programs; dat-check(1) lists the fields
  dat-check --loopback mlx5_0        one adapter, connected to itself;
  dat-check mlx5_0 --connect         the same: --connect without a host
  dat-check --listen mlx5_0          on one host,
  dat-check --connect HOST mlx5_0    and on another: moves data between the two
  DAT_OVERRIDE=my.conf dat-check     another file than /etc/dat.conf
  dat-check --program /usr/bin/app   what a setuid program gets: it ignores DAT_* variables
  dat-check --udapl 2.0              what programs of libdat2.so.2 get
  mlx5-emu run -- dat-check          on an emulated ConnectX, without hardware

If a program still fails: DAT_DBG_TYPE=1 makes the library print the cause of each
call that fails. See also udapl(7), dat.conf(5).

Exit status: 0 everything that was checked can be used, 1 usage, 2 something cannot be used.";

/// Show what the adapter names of this host open, and test connections
#[derive(Debug, Parser)]
#[command(name = "dat-check", version, long_about = ABOUT, after_long_help = EXAMPLES, after_help = "See --help for the results and for examples.")]
#[command(group(ArgGroup::new("test").args(["loopback", "listen", "connect"])))]
pub(crate) struct Cli {
    /// Names to check [default: all; for a test, the first one that can be used]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Connect the adapter to itself and move data
    #[arg(long)]
    pub(crate) loopback: bool,
    /// Wait for `dat-check --connect` on another host, then move data
    #[arg(long, visible_alias = "serve")]
    pub(crate) listen: bool,
    /// Connect to `dat-check --listen` on HOST, a name or an IP address, and move data; without
    /// HOST, as --loopback
    #[arg(long, value_name = "HOST", num_args = 0..=1)]
    pub(crate) connect: Option<Option<String>>,
    /// Connection qualifier of --listen and --connect; 1024 to 65535 is also the TCP port
    #[arg(short = 'p', long, value_name = "N", default_value_t = QUALIFIER, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) port: u64,
    /// Time limit of a test [default: 10; with --listen 60]
    #[arg(short = 't', long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) timeout: Option<u64>,
    /// Open names as programs do that pass DAT_TRUE as thread_safety to dat_ia_openv
    #[arg(long)]
    pub(crate) threadsafe: bool,
    /// Check what programs of this version of uDAPL get: 1.2 (libdat.so.1) or 2.0 (libdat2.so.2)
    #[arg(long, value_name = "VERSION", default_value = "1.2", value_parser = version())]
    pub(crate) udapl: (u32, u32),
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Check what this program gets: one with more rights than its caller ignores DAT_* variables
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,
}

/// Returns the parser of a version of uDAPL.
fn version() -> impl TypedValueParser<Value = (u32, u32)> {
    PossibleValuesParser::new(["1.2", "2.0"]).map(|text| match text.as_str() {
        "2.0" => (2, 0),
        _ => (1, 2),
    })
}

/// A connection test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    Loopback,
    Listen,
    Connect(String),
}

impl Cli {
    /// Returns the test that was asked for.
    pub(crate) fn test(&self) -> Result<Option<Test>, String> {
        let test = match &self.connect {
            Some(Some(host)) => Test::Connect(host.clone()),
            Some(None) => Test::Loopback,
            None if self.loopback => Test::Loopback,
            None if self.listen => Test::Listen,
            None => return Ok(None),
        };
        match self.names.len() {
            0 | 1 => Ok(Some(test)),
            count => Err(format!(
                "a test uses one adapter, and {count} names were given: run dat-check once for each"
            )),
        }
    }

    /// Returns the time limit of a test.
    pub(crate) fn limit(&self) -> Duration {
        let default = if self.listen { LISTEN_LIMIT } else { LIMIT };
        Duration::from_secs(self.timeout.unwrap_or(default))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_test_takes_one_name_and_excludes_other_tests() {
        let parse = |words: &str| Cli::try_parse_from(words.split_whitespace());
        let cli = parse("dat-check --connect host mlx5_0").expect("a name and a host");
        assert_eq!(cli.test(), Ok(Some(Test::Connect("host".to_owned()))));
        assert_eq!(cli.names, ["mlx5_0"]);
        assert!(parse("dat-check --listen --loopback").is_err());
        assert!(parse("dat-check --serve --connect").is_err());
        let cli = parse("dat-check --loopback a b").expect("names");
        assert!(cli.test().expect_err("two names").contains("2 names"));
        let cli = parse("dat-check a b").expect("names");
        assert_eq!(cli.test(), Ok(None));
    }

    #[test]
    fn connect_without_a_host_is_a_loopback_and_serve_listens() {
        let test = |words: &str| {
            let cli = Cli::try_parse_from(words.split_whitespace()).expect("options");
            (cli.test().expect("one name at most"), cli.names)
        };
        let name = vec!["mlx5_0".to_owned()];
        for words in [
            "mlx5_0 --connect",
            "--json mlx5_0 --connect",
            "--connect -- mlx5_0",
        ] {
            let expected = (Some(Test::Loopback), name.clone());
            assert_eq!(test(&format!("dat-check {words}")), expected, "{words}");
        }
        assert_eq!(test("dat-check --connect"), (Some(Test::Loopback), vec![]));
        let host = Some(Test::Connect("host".to_owned()));
        assert_eq!(
            test("dat-check mlx5_0 --connect host"),
            (host, name.clone())
        );
        assert_eq!(test("dat-check mlx5_0 --serve"), (Some(Test::Listen), name));
    }

    #[test]
    fn the_time_limit_is_longer_for_the_side_that_waits() {
        let limit = |words: &str| {
            let cli = Cli::try_parse_from(words.split_whitespace()).expect("options");
            cli.limit().as_secs()
        };
        assert_eq!(limit("dat-check --listen"), LISTEN_LIMIT);
        assert_eq!(limit("dat-check --loopback"), LIMIT);
        assert_eq!(limit("dat-check --listen -t 5"), 5);
    }
}
