//! Parsing of options, and their defaults.

use super::*;
use crate::options::*;

fn lat(line: &str) -> Result<LatArgs, String> {
    let words = ["dat-bench", "lat"]
        .into_iter()
        .chain(line.split_whitespace());
    match Cli::try_parse_from(words)
        .map_err(|error| error.to_string())?
        .command
    {
        Command::Lat(args) => args
            .check()
            .map(|()| args)
            .map_err(|error| error.to_string()),
        _ => unreachable!(),
    }
}

fn inline(args: &LatArgs) -> u32 {
    args.run.inline_bytes(args.default_inline())
}

#[test]
fn the_definitions_of_all_options_are_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn perftests_letters_keep_their_meaning() {
    let args = lat("-d mlx5_1 -i 2 -s 64 -n 5 -t 4 -r 8 -I 32 -p 7 -x 3 host").unwrap();
    assert_eq!(args.run.on.device.as_deref(), Some("mlx5_1"));
    assert_eq!(
        (args.run.on.ib_port, args.size, args.iterations()),
        (2, Some(64), 5)
    );
    assert_eq!(
        (args.send_depth(), args.run.receive_depth(), inline(&args)),
        (4, 8, 32)
    );
    assert_eq!(
        (args.run.port, args.run.gid_index, args.run.host.as_deref()),
        (7, Some(3), Some("host"))
    );
}

#[test]
fn option_a_is_all_powers_of_two_up_to_8_mib() {
    let sizes = lat("-a").unwrap().sizes();
    assert_eq!((sizes.len(), sizes[0], sizes[22]), (23, 2, 1 << 23));
}

#[test]
fn the_default_warm_up_is_a_tenth_and_at_most_1000() {
    assert_eq!(lat("-n 5").unwrap().warmup(), 1);
    assert_eq!(lat("-n 5000000").unwrap().warmup(), 1000);
    assert_eq!(lat("-D 1").unwrap().warmup(), 1000);
    assert_eq!(lat("-D 1 --warmup 0").unwrap().warmup(), 0);
}

#[test]
fn apis_keep_their_order_and_dat_sets_the_inline_size() {
    assert_eq!(lat("").unwrap().run.api, [Api::Engine]);
    assert_eq!(inline(&lat("").unwrap()), 236);
    let args = lat("--api c,engine,rust").unwrap();
    assert_eq!(args.run.api, [Api::C, Api::Engine, Api::Rust]);
    assert_eq!(inline(&args), 64);
    assert_eq!(inline(&lat("--api c -o read").unwrap()), 0);
}

#[test]
fn a_wait_policy_is_refused_where_nothing_can_wait() {
    for right in [
        "--api rust --wait poll",
        "--api rust,c --wait block host",
        "--api c --wait adaptive -o read --loopback",
    ] {
        assert!(lat(right).is_ok(), "{right}");
    }
    for wrong in [
        "--wait poll",
        "--wait block --api engine,rust",
        "--wait block --api c -o write host",
        "--wait block --api c --loopback",
        "--wait sometimes --api c",
    ] {
        assert!(lat(wrong).is_err(), "{wrong}");
    }
}

fn bw(line: &str) -> Result<BwArgs, String> {
    let words = ["dat-bench", "bw"].into_iter();
    let parsed = Cli::try_parse_from(words.chain(line.split_whitespace()));
    match parsed.map_err(|error| error.to_string())?.command {
        Command::Bw(args) => args
            .check(Throughput::Bw)
            .map(|()| args)
            .map_err(|error| error.to_string()),
        _ => unreachable!(),
    }
}

#[test]
fn bw_has_perftests_defaults_and_rate_those_of_small_messages() {
    let args = bw("").unwrap();
    assert_eq!(args.sizes(Throughput::Bw), [65536]);
    assert_eq!(args.sizes(Throughput::Rate), [2]);
    assert_eq!(bw("-a").unwrap().sizes(Throughput::Rate).len(), 23);
    let iterations = |line, what| bw(line).unwrap().iterations(what);
    assert_eq!(iterations("", Throughput::Bw), 1000);
    assert_eq!(iterations("-o write", Throughput::Bw), 5000);
    assert_eq!(iterations("-o write", Throughput::Rate), 100_000);
    assert_eq!(iterations("-a -o write", Throughput::Bw), 1000);
    assert_eq!(iterations("-n 7", Throughput::Rate), 7);
    let inline = |line, what| bw(line).unwrap().default_inline(what);
    assert_eq!(inline("", Throughput::Bw), 0);
    assert_eq!(inline("", Throughput::Rate), 236);
    assert_eq!(inline("-o read", Throughput::Rate), 0);
}

#[test]
fn large_messages_and_lists_change_how_many_requests_share_a_completion() {
    let moderation = |line, size| bw(line).unwrap().moderation(size);
    assert_eq!(moderation("", 8192), 100);
    assert_eq!(moderation("", 8193), 1);
    assert_eq!(moderation("-a", 8193), 100);
    assert_eq!(moderation("-l 16", 2), 16);
    assert_eq!(moderation("-l 16 -Q 4", 2), 4);
    assert_eq!(moderation("-Q 7", 1 << 20), 7);
    assert!(bw("-l 16 -Q 3").is_err());
    assert!(bw("-l 2 --api c").is_err());
}

#[test]
fn sizes_have_units() {
    assert_eq!(size("4096"), Ok(4096));
    assert_eq!(size("4K"), Ok(4096));
    assert_eq!(size("8MiB"), Ok(1 << 23));
    for wrong in [
        "0",
        "",
        "-1",
        "2G",
        "4 K",
        "0x10",
        "K",
        "99999999999999999999",
    ] {
        assert!(size(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn rates_have_suffixes_and_allow_many_messages_in_flight() {
    let args = lat("--rate 1k,2.5M,300 --loopback").unwrap();
    assert_eq!(args.rates(), [Some(1e3), Some(2.5e6), Some(300.0)]);
    assert_eq!(args.send_depth(), 64);
    assert_eq!(lat("--rate 1k -t 3").unwrap().send_depth(), 3);
    let closed = lat("").unwrap();
    assert_eq!((closed.rates(), closed.send_depth()), (vec![None], 1));
}

#[test]
fn invalid_options_and_combinations_are_refused() {
    for wrong in [
        "-t 0",
        "-r 0",
        "-n 0",
        "-D 0",
        "-D nan",
        "-s 0",
        "-i 0",
        "-p 65536",
        "-x 256",
        "-o atomic",
        "-n 5 -D 1",
        "-a -s 4",
        "--loopback host",
        "--cpu 1,2",
        "--cpu x",
        "-o read -I 8",
        "-o write -r 8",
        "--json x",
        "-p 0 host",
        "--rate 0",
        "--rate 5k,5000",
        "--rate max",
        "--rate 5 --api rust --wait poll host",
        "--api verbs",
        "--api",
        "--api rust,rust",
        "--api rust -I 8",
        "--api engine,c -x 3",
    ] {
        assert!(lat(wrong).is_err(), "{wrong}");
    }
}
