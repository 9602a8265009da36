# shellcheck shell=bash
# Set-up shared by the scripts: finds what is missing, names it, installs it.
# Sourced, never run.

# The oldest Rust this project builds with; the same number as `rust-version` in Cargo.toml.
oldest_rust() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -n 1; }

# Where cargo builds.
# shellcheck disable=SC2034 # used by the scripts that source this file
TARGET=${CARGO_TARGET_DIR:-target}

say() { printf '%s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 2; }

# need_rust: a current Rust is the one thing the user brings.
need_rust() {
    command -v cargo >/dev/null 2>&1 || {
        # A fresh login shell may not have it on PATH yet.
        [ -x "$HOME/.cargo/bin/cargo" ] && PATH="$HOME/.cargo/bin:$PATH"
    }
    command -v cargo >/dev/null 2>&1 ||
        fail "Rust is not installed. Install it from https://rustup.rs, then run this again."
    local have want
    have=$(rustc --version | awk '{print $2}')
    want=$(oldest_rust)
    if [ "$(printf '%s\n%s\n' "$want" "${have%%-*}" | sort -V | head -n 1)" != "$want" ]; then
        fail "Rust $have is too old, $want or newer is needed: rustup update stable"
    fi
}

# need_packages PACKAGE…: installs the Debian packages that are missing, saying which.
need_packages() {
    if ! command -v dpkg-query >/dev/null 2>&1; then
        say "This is not Debian or Ubuntu. Make sure that your packages of these are installed: $*"
        say "(Fedora, RHEL: dnf install rdma-core-devel libibverbs-utils perftest clang-devel pkgconf gcc valgrind ShellCheck man-db groff)"
        return 0
    fi
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    [ "${#missing[@]}" -eq 0 ] && return 0
    say "Missing packages, to be installed now: ${missing[*]}"
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null 2>&1 ||
            fail "not root and no sudo; as root run: apt-get install ${missing[*]}"
        say "(root is needed for that; sudo may ask for your password)"
        as_root=(sudo)
    fi
    # A fresh image may have no package lists, or old ones.
    { "${as_root[@]}" apt-get update -qq &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } \
        >"$setup_log" 2>&1 || {
        tail -n 20 "$setup_log" >&2
        fail "the packages could not be installed (whole log: $setup_log); try by hand: apt-get install ${missing[*]}"
    }
}

# want_packages PACKAGE…: as need_packages, for those that this system has; the others are named.
want_packages() {
    command -v dpkg-query >/dev/null 2>&1 || return 0
    local there=() package
    for package in "$@"; do
        if dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
            apt-cache show "$package" >/dev/null 2>&1; then
            there+=("$package")
        elif update_package_lists >/dev/null 2>&1 && apt-cache show "$package" >/dev/null 2>&1; then
            there+=("$package")
        else
            say "$package cannot be had here; what needs it is skipped"
        fi
    done
    [ "${#there[@]}" -eq 0 ] || need_packages "${there[@]}"
}

# shellcheck disable=SC2034 # used by the scripts that source this file
# What building needs: rdma-core's headers and providers, libclang for bindgen.
BUILD_PACKAGES=(gcc libc6-dev make pkg-config libclang-dev libibverbs-dev librdmacm-dev ibverbs-providers)
# shellcheck disable=SC2034 # likewise
# What only the tests need: the unmodified programs that run on the emulated NIC, and checkers.
TEST_PACKAGES=(ibverbs-utils perftest g++ clang valgrind shellcheck python3 man-db groff)
# shellcheck disable=SC2034 # likewise
# Programs for the emulated NIC that not every distribution has.
FURTHER_TEST_PACKAGES=(dapl2-utils libdapl2 python3-pyverbs mandoc)

setup_log=${TMPDIR:-/tmp}/udapl-setup.$$.log

# update_package_lists: makes apt know what there is, as root or with a sudo that does not ask.
update_package_lists() {
    if [ "$(id -u)" -eq 0 ]; then apt-get update -qq; else sudo -n apt-get update -qq; fi
}
