# shellcheck shell=bash
# Set-up for all scripts: checks for missing programs and packages, and installs them.
# Sourced, never run.

# The oldest Rust this project builds with; the same number as `rust-version` in Cargo.toml.
oldest_rust() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -n 1; }

# Where cargo builds.
# shellcheck disable=SC2034 # used by the scripts that source this file
TARGET=${CARGO_TARGET_DIR:-target}

# Most tests wait for another process, a timer or the NIC's thread, so twice as many run as
# there are processors.
export NEXTEST_TEST_THREADS=${NEXTEST_TEST_THREADS:-$((2 * $(nproc)))}
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$NEXTEST_TEST_THREADS}

# run_tests OPTION…: runs tests of the workspace with nextest or, without it, with cargo test,
# but not those in `skip_binaries` (lib/skips.sh). First prints the variables that the tests get,
# for the commands that repeat one (lib/failures). Tests that pass show their output, too: it says
# what they skipped.
run_tests() {
    local filter=() i
    say "+ $(env | grep -E '^(DAT_(PATH|CM|TEST_CM)|MLX5EMU_[A-Z_]*)=' | sort | tr '\n' ' ')"
    if cargo nextest --version >/dev/null 2>&1; then
        for i in "${!skip_binaries[@]}"; do
            filter+=("not (binary(=${skip_binaries[i]}) & test(~${skip_patterns[i]}))")
        done
        [ "${#filter[@]}" -eq 0 ] || set -- "$@" -E "$(printf '%s & ' "${filter[@]}")all()"
        cargo nextest run --workspace --locked --no-fail-fast --success-output immediate "$@"
    elif [ -z "${skip_binaries[*]-}" ]; then
        [[ " $* " == *" -- "* ]] || set -- "$@" --
        cargo test --workspace --locked --no-fail-fast "$@" --show-output
    else
        run_without_skipped "$@"
    fi
}

# run_without_skipped --test=NAME…: as run_tests with cargo test, which takes
# tests to leave out for all programs at once only.
run_without_skipped() {
    local failed=0 option skip_options
    for option in "$@"; do
        skips_of "${option#--test=}"
        cargo test --workspace --locked --no-fail-fast "$option" -- "${skip_options[@]}" --show-output || failed=1
    done
    return $failed
}

# test_programs NAME…: prints the name and the path of each of these test programs, and builds
# them if need be. With --workspace everywhere, because -p may build with other features.
test_programs() {
    cargo test --workspace --locked --quiet --no-run --message-format=json-render-diagnostics "${@/#/--test=}" |
        sed -n 's/.*"target":{"kind":\["test"\][^}]*"name":"\([^"]*\)".*"executable":"\([^"]*\)".*/\1 \2/p'
}

say() { printf '%s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 2; }

# os_release NAME: prints that entry of the system's description, or nothing.
os_release() { (. /etc/os-release 2>/dev/null && printf '%s\n' "${!1-}"); }

# need_rust: checks for a current Rust, which the user has to install.
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

# is_installed PACKAGE: whether the Debian package is installed.
is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# need_packages PACKAGE…: installs the Debian packages that are missing, saying
# which. Without apt it checks what the packages provide, names the missing
# parts and the packages of this system that have them, and ends with status 2.
need_packages() {
    if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
        need_parts "$@"
        return 0
    fi
    local missing=() package
    for package in "$@"; do
        is_installed "$package" || missing+=("$package")
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
    { "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=300 update -qq &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "${missing[@]}"; } \
        >"$setup_log" 2>&1 || {
        tail -n 20 "$setup_log" >&2
        fail "the packages could not be installed (whole log: $setup_log); try by hand: apt-get install ${missing[*]}"
    }
}

# What the Debian packages provide, and the packages of other systems with the
# same: package, check, and the names for dnf, zypper, pacman and apk.
PARTS='
gcc                program:cc                         gcc                gcc                 gcc         gcc
libc6-dev          header:stdlib.h                    glibc-devel        glibc-devel         glibc       musl-dev
make               program:make                       make               make                make        make
pkg-config         program:pkg-config                 pkgconf-pkg-config pkgconf-pkg-config  pkgconf     pkgconf
libclang-dev       library:libclang                   clang-devel        clang-devel         clang       clang-dev
libibverbs-dev     modules:libibverbs>=1.14.44,libmlx5>=1.24.44 rdma-core-devel rdma-core-devel rdma-core rdma-core-dev
librdmacm-dev      modules:librdmacm>=1.3.44          rdma-core-devel    rdma-core-devel     rdma-core   rdma-core-dev
ibverbs-providers  provider:libmlx5                   libibverbs         libibverbs          rdma-core   rdma-core
ibverbs-utils      program:ibv_devinfo                libibverbs-utils   libibverbs-utils    rdma-core   rdma-core
rdmacm-utils       program:rping                      librdmacm-utils    librdmacm-utils     rdma-core   rdma-core
perftest           program:ib_send_lat                perftest           perftest            perftest    perftest
g++                program:c++                        gcc-c++            gcc-c++             gcc         g++
clang              program:clang                      clang              clang               clang       clang
valgrind           program:valgrind                   valgrind           valgrind            valgrind    valgrind
shellcheck         program:shellcheck                 ShellCheck         ShellCheck          shellcheck  shellcheck
unifdef            program:unifdef                    unifdef            unifdef             unifdef     unifdef
python3            program:python3                    python3            python3             python      python3
python3-venv       python:ensurepip                   python3            python3             python      py3-pip
python3-yaml       python:yaml                        python3-pyyaml     python3-PyYAML      python-yaml py3-yaml
man-db             program:man                        man-db             man                 man-db      man-db
groff              program:groff                      groff              groff               groff       groff
libcap2-bin        program:setcap                     libcap             libcap-progs        libcap      libcap-utils
rpm                program:rpmbuild                   rpm-build          rpm-build           rpm-tools   rpm
elfutils           program:eu-strip                   elfutils           elfutils            elfutils    elfutils
'

# need_parts PACKAGE…: ends with status 2 if something that these provide is missing.
need_parts() {
    local missing=() install=() manager='' debian check names wanted wanted_here
    declare -A columns=([dnf]=0 [zypper]=1 [pacman]=2 [apk]=3)
    declare -A commands=([dnf]='dnf install' [zypper]='zypper install' [pacman]='pacman -S' [apk]='apk add')
    for wanted in dnf zypper pacman apk; do
        command -v $wanted >/dev/null 2>&1 && { manager=$wanted; break; }
    done
    for wanted in "$@"; do
        while read -r debian check names; do
            [ "$debian" = "$wanted" ] || continue
            has_part "$check" && continue
            missing+=("$(sed 's/^[a-z]*://; s/,/, /g; s/>=/ >= /g' <<<"$check")")
            read -ra names <<<"$names"
            [ -n "$manager" ] || continue
            wanted_here=${names[${columns[$manager]}]}
            [[ " ${install[*]} " == *" $wanted_here "* ]] || install+=("$wanted_here")
        done <<<"$PARTS"
    done
    [ "${#missing[@]}" -eq 0 ] && return 0
    local list
    list=$(printf '%s; ' "${missing[@]}")
    if [ -n "$manager" ]; then
        fail "missing here: ${list%; }. Install with: ${commands[$manager]} ${install[*]}"
    fi
    fail "missing here: ${list%; }. This system has none of apt, dnf, zypper, pacman and apk: install them by hand."
}

# has_part CHECK: whether this system has what a line of PARTS names.
has_part() {
    local what=${1#*:} module
    case $1 in
    # Programs of administrators are not on the path of every user.
    program:*) PATH=$PATH:/usr/sbin:/sbin command -v "$what" >/dev/null 2>&1 ;;
    python:*) /usr/bin/python3 -c "import $what" 2>/dev/null ;;
    header:*) echo "#include <$what>" | cc -E - >/dev/null 2>&1 ;;
    modules:*)
        for module in ${what//,/ }; do pkg-config --exists "${module/>=/ >= }" 2>/dev/null || return 1; done ;;
    library:*)
        # bindgen searches LIBCLANG_PATH, LLVM's own directories and the loader's path.
        compgen -G "${LIBCLANG_PATH:-/nonexistent}/$what*.so*" >/dev/null ||
            compgen -G "/usr/lib*/$what*.so*" >/dev/null || compgen -G "/usr/lib/*/$what*.so*" >/dev/null ||
            compgen -G "/usr/lib*/llvm*/lib*/$what*.so*" >/dev/null || grep -q "$what" <<<"$(ldconfig -p 2>/dev/null)" ;;
    provider:*)
        # A provider is named after the private interface of its libibverbs.
        compgen -G "$(pkg-config --variable=libdir libibverbs 2>/dev/null)/libibverbs/$what-rdmav*.so" >/dev/null ||
            compgen -G "/usr/lib*/libibverbs/$what-rdmav*.so" >/dev/null || compgen -G "/usr/lib/*/libibverbs/$what-rdmav*.so" >/dev/null ;;
    esac
}

# want_packages PACKAGE…: as need_packages, for packages that this system offers; names the others.
want_packages() {
    command -v dpkg-query >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1 || return 0
    local there=() package
    for package in "$@"; do
        if is_installed "$package" ||
            apt-cache show "$package" >/dev/null 2>&1; then
            there+=("$package")
        elif update_package_lists >/dev/null 2>&1 && apt-cache show "$package" >/dev/null 2>&1; then
            there+=("$package")
        else
            say "$package is not available here; steps that need it are skipped"
        fi
    done
    [ "${#there[@]}" -eq 0 ] || need_packages "${there[@]}"
}

# shellcheck disable=SC2034 # used by the scripts that source this file
# What building needs: rdma-core's headers and providers, libclang for bindgen.
BUILD_PACKAGES=(gcc libc6-dev make pkg-config libclang-dev libibverbs-dev librdmacm-dev ibverbs-providers)
# shellcheck disable=SC2034 # likewise
# What only the tests need: the unmodified programs that run on the emulated NIC, and checkers.
TEST_PACKAGES=(ibverbs-utils rdmacm-utils perftest g++ clang valgrind shellcheck unifdef python3 python3-venv python3-yaml man-db groff libcap2-bin)
# shellcheck disable=SC2034 # likewise
# Programs for the emulated NIC that not every distribution has.
FURTHER_TEST_PACKAGES=(dapl2-utils libdapl2 python3-pyverbs infiniband-diags ucx-utils iproute2 mandoc tshark
    libfabric-bin openmpi-bin libopenmpi-dev qperf debhelper lintian mmdebstrap rpm elfutils rpmlint)

# python_tools: installs the programs and modules of packaging/lib/python-tools.txt for this project
# alone, each file checked by its hash, and prints their folder of programs; fails with the reason.
python_tools() {
    local folder=$TARGET/tools/python list=packaging/lib/python-tools.txt
    if ! cmp -s $list "$folder/installed"; then
        rm -rf "$folder"
        mkdir -p "$TARGET/tools"
        { python3 -m venv "$folder" && "$folder/bin/pip" --disable-pip-version-check install --quiet --retries 1 --require-hashes -r $list; } >"$setup_log" 2>&1 || {
            say "the tools of $list cannot be installed: $({ grep '^ERROR' "$setup_log" || cat "$setup_log"; } | tail -n 1) (it takes python3-venv, x86-64 and PyPI)"
            rm -rf "$folder"
            return 1
        }
        cp $list "$folder/installed"
    fi
    printf '%s/bin\n' "$(realpath "$folder")"
}

setup_log=${TMPDIR:-/tmp}/udapl-setup.$$.log

# update_package_lists: runs apt-get update, as root or with a sudo that needs no password.
update_package_lists() {
    if [ "$(id -u)" -eq 0 ]; then apt-get update -qq; else sudo -n apt-get update -qq; fi
}
