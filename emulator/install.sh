#!/usr/bin/env bash
# Puts mlx5-emu into a folder and checks that a program gets a device there: for CI.
set -euo pipefail
from=$PWD
cd "$(dirname "$0")/.."
# shellcheck source=perf-scripts/lib/setup.sh
. perf-scripts/lib/setup.sh

usage() {
    cat <<'TXT'
usage: emulator/install.sh [--built FOLDER] DIR
       emulator/install.sh --key

Puts mlx5-emu, libmlx5emu.so and valgrind.supp into DIR. Builds them with cargo, unless DIR has
those of the same sources. Then runs "mlx5-emu run -- ibv_devinfo", and fails unless it shows a
port that is active. Missing packages (a C compiler, libmlx5, ibv_devinfo) are installed first, after naming
them. mlx5-emu itself needs no root, no kernel module and no device.

  --built FOLDER  copy them from the folder of an earlier build (target/release)
  --key           print key=WORD, which changes with the sources, the processor and glibc:
                  the name of DIR in a cache

In a job of GitHub, the steps after this one have DIR on PATH, a fabric of their own
(MLX5EMU_FABRIC), and MLX5EMU_LINK as it is here.
Exit status: 0 done, 1 usage, 2 not possible here.
TXT
}
misuse() { printf 'error: %s (see --help)\n' "$*" >&2; exit 1; }

# absolute PATH: as seen from where the script was called.
absolute() { case $1 in /*) printf '%s' "$1" ;; *) printf '%s/%s' "$from" "$1" ;; esac; }

# key: prints what identifies the files of a build.
key() {
    local sources
    sources=$(find Cargo.toml Cargo.lock build emulator -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)
    printf 'mlx5-emu-%s-%s-%s\n' "$(uname -m)" "$(getconf GNU_LIBC_VERSION | tr ' ' -)" "${sources:0:16}"
}

# writable FOLDER WHY REMEDY: makes the folder, or ends if nothing can be written there.
writable() {
    { mkdir -p "$1" && [ -w "$1" ]; } 2>/dev/null || fail "$1 cannot be written, $2: $3"
}

dir='' built=''
while [ $# -gt 0 ]; do
    case $1 in
    --built)
        [ -n "${2-}" ] || misuse "--built needs a folder"
        built=$(absolute "$2")
        [ -f "$built/libmlx5emu.so" ] || fail "$built has no libmlx5emu.so: --built takes the folder that cargo build --release -p mlx5-emulator fills"
        shift
        ;;
    --key) printf 'key=%s\n' "$(key)"; exit 0 ;;
    -h | --help) usage; exit 0 ;;
    -*) misuse "unknown option $1" ;;
    *) [ -z "$dir" ] || misuse "two folders: $dir and $1"; dir=$(absolute "$1") ;;
    esac
    shift
done
[ -n "$dir" ] || misuse "a folder is missing: where does mlx5-emu go?"
getconf GNU_LIBC_VERSION >/dev/null 2>&1 ||
    fail "this system's C library is not glibc, so no program can load the emulated device: use an image of Debian, Ubuntu or Fedora, for example, in place of Alpine"
writable "$dir" "and mlx5-emu goes there" "name another folder"

if [ -n "$built" ] || [ ! -x "$dir/mlx5-emu" ] || [ "$(cat "$dir/key" 2>/dev/null)" != "$(key)" ]; then
    if [ -z "$built" ]; then
        writable "${CARGO_HOME:-$HOME/.cargo}" "and cargo keeps there what it downloads" "set CARGO_HOME to a folder that can be"
        writable "$TARGET" "and cargo builds there" "set CARGO_TARGET_DIR to a folder that can be"
        need_packages gcc libc6-dev
        need_rust
        cargo build --release --locked -p mlx5-emulator ||
            fail "cargo did not build mlx5-emu; it says above why. Without a network, build it elsewhere and copy it from there with --built, or install the package mlx5-emu (packaging/build deb)"
        built=$TARGET/release
    fi
    # The key comes last: an interrupted copy has none.
    rm -f "$dir"/{key,mlx5-emu,libmlx5emu.so}
    cp "$built/mlx5-emu" "$built/libmlx5emu.so" emulator/valgrind.supp "$dir"
    key >"$dir/key"
fi

need_packages ibverbs-providers ibverbs-utils
status=0
said=$(timeout -k 9 60 "$dir/mlx5-emu" run --explain -- ibv_devinfo 2>&1) || status=$?
if [ $status -ne 0 ] || [[ $said != *PORT_ACTIVE* ]]; then
    printf '%s\n' "$said" >&2
    case $status in
    124 | 137) fail "\"mlx5-emu run -- ibv_devinfo\" did not end within 60 s" ;;
    *) fail "\"mlx5-emu run -- ibv_devinfo\" shows no active port (status $status); it says above why" ;;
    esac
fi
say "$said"

if [ -n "${GITHUB_PATH-}" ]; then
    say "$dir" >>"$GITHUB_PATH"
    # Jobs of several runners may share a host. A runner has one job at a time.
    fabric=ci-${GITHUB_RUN_ID-0}-$(tr -c 'A-Za-z0-9._\n-' - <<<"${RUNNER_NAME-}")
    say "MLX5EMU_FABRIC=${fabric:0:64}" >>"$GITHUB_ENV"
    [ -z "${MLX5EMU_LINK-}" ] || say "MLX5EMU_LINK=$MLX5EMU_LINK" >>"$GITHUB_ENV"
fi
say "mlx5-emu is in $dir"
