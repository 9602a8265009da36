# shellcheck shell=bash
# The parts of packaging/test that run inside a Debian tree: what in-tree-deb and in-tree-rpm share.
# Sourced with the folders of the packages and of the test as arguments, never run.
packages=$1 work=$2
here=$(cd "$(dirname "$0")/../.." && pwd)
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fabric=packages-$$

say() { printf '%s\n' "$*"; }
fail() { printf 'FAILED %s\n' "$*" >&2; exit 1; }

# quiet COMMAND…: runs it, and shows its output if it fails. The output is in $scratch/log.
quiet() {
    "$@" >"$scratch/log" 2>&1 && return 0
    cat "$scratch/log"
    fail "$*"
}
# files: prints the files of the system, without those that dpkg, rpm, apt and ldconfig keep for themselves.
files() {
    find /etc /opt /usr /var \( -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/lib/rpm -o -path /var/cache -o -path /var/log \
        -o -path "$here" -o -path "$work" -o -path "$packages" \) -prune -o -print | grep -v '^/etc/ld.so.cache$' | sort
}
emu() { mlx5-emu run --fabric "$fabric" -- "$@"; }
# pair SAYS SERVER ::: CLIENT: runs both on the emulated device until they end; the client prints SAYS.
pair() {
    local says=$1 server=() status=0
    shift
    while [ "$1" != ::: ]; do server+=("$1"); shift; done
    shift
    emu timeout 100 "${server[@]}" >"$scratch/server" 2>&1 & local process=$!
    # The server has no file or word in common that tells when it listens: the client is run again until then.
    until emu timeout 100 "$@" >"$scratch/client" 2>&1 && grep -qF "$says" "$scratch/client"; do
        status=$((status + 1))
        if [ $status -eq 20 ] || ! kill -0 $process 2>/dev/null; then
            cat "$scratch/server" "$scratch/client"
            fail "${server[*]}, $*"
        fi
        sleep 0.5
    done
    wait $process || { cat "$scratch/server"; fail "${server[*]}"; }
}

# example: compiles and runs an example in C.
example() {
    say "an example in C"
    cp "$here"/examples/c/* "$scratch"
    # shellcheck disable=SC2046 # words of options
    quiet gcc -O2 -o "$scratch/ping_pong" "$scratch/ping_pong.c" $(pkg-config --cflags --libs dat)
    pair 'round trip' "$scratch/ping_pong" -p 15931 -n 100 ::: "$scratch/ping_pong" -p 15931 -n 100 127.0.0.1
}
# emulator: runs Debian's ibv_devinfo on the emulated device.
emulator() {
    quiet emu ibv_devinfo
    grep -q 'PORT_ACTIVE' "$scratch/log" || fail "ibv_devinfo: $(cat "$scratch/log")"
    quiet man -w mlx5-emu
}
# tools SAMPLE: runs dat-check with the sample of dat.conf, and looks for manual pages.
tools() {
    local page
    quiet dat-check --help
    for page in dat-check udapl dat.conf dat_evd_wait; do quiet man -w "$page"; done
    quiet emu env DAT_OVERRIDE="$1" dat-check
    grep -q dat1-mlx5 "$scratch/log" || fail "the sample dat.conf: $(cat "$scratch/log")"
}
# older_trees LIBRARY: leaves what install.sh may have left: a libdat2.so.2 in /usr/local, and files in /usr.
older_trees() {
    cp "$1" /usr/local/lib/libdat2.so.2
    mkdir /usr/share/udapl
    touch /usr/lib/libdat2.so.2
    printf '%s\n' 'folder share/udapl' 'file share/udapl/installed' 'file lib/libdat2.so.2' 'file include/dat2/dat.h' >/usr/share/udapl/installed
}
# warned: checks that the last command has warned of these, and of nothing else; removes them.
warned() {
    grep -q '^warning: the dynamic linker takes /usr/local/lib/libdat2.so.2 ' "$scratch/log" || fail "no warning: $(cat "$scratch/log")"
    grep -q '^warning: dat-api/install.sh has installed below /usr ' "$scratch/log" || fail "no warning: $(cat "$scratch/log")"
    ! grep -q 'takes .*/libdat.so.1 ' "$scratch/log" || fail "a warning without cause: $(cat "$scratch/log")"
    rm /usr/local/lib/libdat2.so.2
    quiet "$here/dat-api/install.sh" --prefix /usr --uninstall
    [ ! -e /usr/lib/libdat2.so.2 ] || fail "install.sh has not removed its own file"
    [ -e /usr/include/dat2/dat.h ] || fail "install.sh has removed a file of a package"
}
# nothing_left: compares the files with those before the test.
nothing_left() {
    files >"$scratch/after"
    diff "$scratch/before" "$scratch/after" || fail "files differ"
    say "passed"
}

files >"$scratch/before"
