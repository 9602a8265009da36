# shellcheck shell=bash
# The emulated ConnectX as a PCI device of the VM, for the kernel's own driver: `mlx5-emu pci` serves it
# on a socket, and QEMU's vfio-user-pci is its client. Sourced after prepare.sh, never run. Takes
# `vm_cache` from there and `limit` from perf-scripts/vm.
# shellcheck disable=SC2154

# The command that runs QEMU.
qemu_program=(qemu-system-x86_64)

# need_vfio_user: sets `qemu_program` to a QEMU with that device: the system's, or else that of Debian
# 13's backports with its libraries, which is unpacked in the cache and never installed.
need_vfio_user() {
    local root=$vm_cache/qemu-vfio-user tmp log
    ! has_vfio_user || return 0
    if [ ! -e "$root/unpacked" ]; then
        tmp=$(mktemp -d "$vm_cache/new.XXXXXX")
        log=$tmp/log
        # shellcheck disable=SC2064 # this directory
        trap "rm -rf '$tmp'" EXIT
        unpack_qemu
        rm -rf "$root"
        mv "$tmp/root" "$root"
        rm -rf "$tmp"
        trap - EXIT
    fi
    # Modules of the system's QEMU do not fit it.
    qemu_program=(env "QEMU_MODULE_DIR=$root/usr/lib/x86_64-linux-gnu/qemu"
        "$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu"
        "$root/usr/bin/qemu-system-x86_64" -L "$root/usr/share/qemu" -L "$root/usr/share/seabios")
    has_vfio_user || vm_fail "the QEMU in $root does not run here, or has no vfio-user-pci:" \
        "$("${qemu_program[@]}" -version 2>&1 | head -n 1)" "Remove that directory to get it again"
}
has_vfio_user() { grep -q socket= <<<"$("${qemu_program[@]}" -device vfio-user-pci,help 2>/dev/null)"; }

# unpack_qemu: unpacks it in $tmp/root.
unpack_qemu() {
    local mirror apt_options=() packages
    local remedy="Install QEMU 10.1 or newer (Debian 13: from trixie-backports), or on a system with apt set DEBIAN_MIRROR=URI"
    command -v apt-get >/dev/null 2>&1 ||
        vm_fail "this QEMU has no vfio-user-pci, and there is no apt to get another" "$remedy"
    mirror=$(debian_mirror) || vm_fail "this QEMU has no vfio-user-pci, and apt has no Debian mirror here to get another" "$remedy"
    say "Getting QEMU of Debian 13's backports (37 MB; kept in $vm_cache, not installed) …" >&2
    {
        other_apt "$tmp/apt" trixie "$mirror" trixie-backports && apt_options+=(-t trixie-backports) &&
            mapfile -t packages < <(apt-get "${apt_options[@]}" -s --no-install-recommends install qemu-system-x86 | sed -n 's/^Inst \([^ ]*\).*/\1/p') &&
            unpack_debs "$tmp/root" "${packages[@]}"
    } >"$log" 2>&1 || {
        tail -n 3 "$log" >&2
        vm_fail "QEMU of Debian 13's backports cannot be downloaded from $mirror" "$remedy"
    }
    rm -rf "$tmp/root/usr/share/"{doc,man,locale}
    : >"$tmp/root/unpacked"
}

# no_device LINE…: ends the script, because the emulated ConnectX does not start. Not as vm_fail: it is
# what is tested.
no_device() { printf 'perf-scripts/vm: %s\n' "$@" >&2; exit 126; }

# build_server: builds the programs that serve the device, and prints the path of mlx5-emu. With
# --workspace, because -p may build with other features than the tests.
build_server() {
    cd "$vm_lib/../../.." || exit
    { need_rust && cargo build --workspace --locked --quiet --bin mlx5-emu --bin mlx5-emu-pci; } >&2 ||
        no_device "the program that serves the emulated ConnectX cannot be built"
    realpath "$TARGET/debug/mlx5-emu"
}

sockets=() servers=() # of the devices of this run, and the processes that serve them

# serve_mlx5 SOCKET: starts the process for one VM. It serves the VM's next boot, too, and ends with
# the script. The devices of a run share a fabric.
serve_mlx5() {
    [ "${#1}" -lt 108 ] || no_device "the path $1 is too long for a socket: set TMPDIR to a shorter one"
    local program
    program=$(build_server) || exit
    # `timeout` ends it even if this script is killed.
    timeout --kill-after=5 $((limit > 0 ? limit + 10 : 0)) "$program" pci --fabric "vm-$$" --index ${#servers[@]} "$1" \
        </dev/null >"$1.log" 2>&1 &
    servers+=($!) sockets+=("$1")
    disown $! # `wait` is for the VMs
    until [ -S "$1" ]; do
        kill -0 "${servers[-1]}" 2>/dev/null || no_device "the emulated ConnectX did not start:" "$(tail -n 5 "$1.log")"
        sleep 0.05
    done
}
end_servers() { [ "${#servers[@]}" -eq 0 ] || kill "${servers[@]}" 2>/dev/null || true; }
# servers_said: prints the end of what each of them said.
servers_said() {
    local socket
    for socket in "${sockets[@]}"; do tail -n 5 "$socket.log" | sed "s/^/${socket##*/}: /"; done
}
