# shellcheck shell=bash
# Prepares what the VM needs on this machine: programs, a kernel, an initramfs. The
# last two are kept in a cache outside the tree. Sourced, never run.

# vm_fail LINE…: ends the script, because there can be no VM.
vm_fail() { printf 'perf-scripts/vm: %s\n' "$@" >&2; exit 125; }

vm_lib=$(dirname "${BASH_SOURCE[0]}")
vm_cache=${XDG_CACHE_HOME:-$HOME/.cache}/udapl-vm

VM_PACKAGES=(qemu-system-x86 busybox-static cpio kmod iproute2 xz-utils util-linux gcc libc6-dev)
VM_PROGRAMS=(qemu-system-x86_64 busybox cpio depmod ip rdma xz flock cc)

# The modules, in sets: "base" is in every VM, the others if requested. Within a set they are
# loaded in this order, after their dependencies from modules.dep. rdma_rxe and siw also need
# crc32_generic and crc32c_generic, which modules.dep does not list, because they request an
# algorithm by name. siw itself is built (siw.sh). ib_uverbs is loaded before rdma_cm, as udev
# does: a removed device detaches from them in the opposite order. Otherwise ib_uverbs would wait
# for programs to which rdma_cm reports the removal only afterwards.
# "mlx5" is only put there, for modprobe: the session loads the driver when the VM is up, because a
# device whose driver fails is no reason to say that there is no VM.
VM_SETS=(base rxe siw net mlx5)
declare -A VM_MODULES=(
    [base]="virtio_pci virtio_console 9pnet_virtio 9p overlay ib_uverbs rdma_ucm dummy"
    [rxe]="crc32_generic rdma_rxe"
    [siw]="crc32c_generic libcrc32c"
    [net]="virtio_net sch_netem"
    [mlx5]="mlx5_ib ib_umad ib_ipoib"
)

# prepare KERNEL [SET…]: sets `kernel_dir`, `tsc_khz` and `initramfs`, for that kernel or, if KERNEL is
# a series such as 6.12, any of it. The initramfs has the modules of the base and of these sets.
prepare() {
    local wanted=$1
    shift
    [ "$(uname -m)" = x86_64 ] ||
        vm_fail "the VM runs this machine's programs on an x86-64 kernel; this machine is $(uname -m)"
    mkdir -p "$vm_cache" || vm_fail "no place for the VM's kernel; set XDG_CACHE_HOME to a directory you can write to"
    exec 9>"$vm_cache/lock"
    flock 9 # two runs prepare one after the other
    need_programs
    find_kernel "$wanted" || get_kernel "$wanted"
    case " $* " in *" siw "*) need_siw ;; esac
    case " $* " in *" mlx5 "*) need_vfio_user ;; esac
    make_initramfs "$@"
    measure_tsc
    exec 9>&-
}

# measure_tsc: sets `tsc_khz`, the frequency of this machine's time stamp counter.
measure_tsc() {
    local source=$vm_lib/tsc-khz.c program
    program=$vm_cache/tsc-khz-$(sha256sum <"$source" | cut -c1-16)
    if [ ! -x "$program" ]; then
        cc -O2 -o "$program.new" "$source" || vm_fail "cc cannot compile $source"
        mv "$program.new" "$program"
    fi
    # shellcheck disable=SC2034 # for run.sh
    tsc_khz=$("$program")
}

missing_programs() {
    local program
    for program in "${VM_PROGRAMS[@]}"; do
        command -v "$program" >/dev/null 2>&1 || printf ' %s' "$program"
    done
    # A dynamically linked busybox cannot run in the initramfs.
    if command -v busybox >/dev/null 2>&1 && LC_ALL=C grep -qa '/ld-linux-x86-64' "$(command -v busybox)"; then
        printf ' busybox(static)'
    fi
}

need_programs() {
    local missing
    missing=$(missing_programs)
    [ -n "$missing" ] || return 0
    (need_packages "${VM_PACKAGES[@]}") >&2 || exit 125
    missing=$(missing_programs)
    [ -z "$missing" ] || vm_fail "not on PATH:$missing" \
        "Debian, Ubuntu: apt-get install ${VM_PACKAGES[*]}" \
        "Fedora, RHEL: dnf install qemu-system-x86 busybox cpio kmod iproute xz util-linux gcc glibc-devel"
}

# --- the kernel ---------------------------------------------------------------

# The version of a kernel's directory in the cache; a directory of another version is remade.
kernel_contents() {
    local set
    printf 'vmlinux, modules 2:'
    for set in "${VM_SETS[@]}"; do printf ' %s: %s;' "$set" "${VM_MODULES[$set]}"; done
    printf '\n'
}
# Directories with other modules have other names, so two versions of this script can share the
# cache.
kernel_contents_id() { kernel_contents | sha256sum | cut -c1-8; }

# find_kernel KERNEL: finds it, or the newest of the series, in the cache, which needs no network.
find_kernel() {
    local dir name=$1
    ! is_series "$1" || name="$1.*"
    while read -r dir; do
        if [ "$(cat "$dir/contents" 2>/dev/null)" = "$(kernel_contents)" ]; then
            kernel_dir=$dir
            return 0
        fi
    done < <(find "$vm_cache" -mindepth 1 -maxdepth 1 -type d -name "$name.$(kernel_contents_id)" | sort -rV)
    return 1
}
# is_series KERNEL: whether it is two numbers, such as 6.12.
is_series() { [[ $1 =~ ^[0-9]+\.[0-9]+$ ]]; }

# release_of KERNEL: prints the name of the Debian release with kernels of that series, or nothing.
release_of() {
    case $1 in
    6.1 | 6.1.*) echo bookworm ;;
    6.12 | 6.12.*) echo trixie ;;
    esac
}

# kernel_packages KERNEL: Debian's packages of it, or of the series (neither real-time nor for
# clouds), best first. With the apt of `apt_options`. Debian 12 has 6.12, too, as +deb12.
kernel_packages() {
    local pattern=${1//./\\.}
    pattern=${pattern//+/\\+}
    case $1 in
    6.12) pattern+='\.[0-9]+\+deb13-amd64' ;;
    *) ! is_series "$1" || pattern+='\.[0-9]+(-[0-9]+|\+deb[0-9]+)-amd64' ;;
    esac
    apt-cache "${apt_options[@]}" search --names-only "^linux-image-$pattern(-unsigned)?\$" 2>/dev/null | cut -d' ' -f1 | sort -rV
}

# download_kernel KERNEL DIR: gets its package with the apt of `apt_options`.
download_kernel() {
    local package packages=()
    mapfile -t packages < <(kernel_packages "$1")
    # A mirror may list packages that it no longer has.
    for package in "${packages[@]:0:4}"; do
        say "Getting the VM's kernel, $package (70 to 110 MB; kept in $vm_cache, not installed) …" >&2
        (cd "$2" && apt-get "${apt_options[@]}" download -qq -o APT::Sandbox::User=root "$package") >>"$log" 2>&1 && return 0
    done
    return 1
}

# get_kernel KERNEL: unpacks a kernel package into the cache; it is never installed.
get_kernel() {
    local wanted=$1 tmp log apt_options=() mirror release
    tmp=$(mktemp -d "$vm_cache/new.XXXXXX")
    log=$tmp/log
    # shellcheck disable=SC2064 # this directory
    trap "rm -rf '$tmp'" EXIT
    if compgen -G "$vm_cache/linux-image-${wanted}[.-]*_amd64.deb" >/dev/null; then
        cp "$(compgen -G "$vm_cache/linux-image-${wanted}[.-]*_amd64.deb" | sort -rV | head -n 1)" "$tmp/"
    elif command -v apt-get >/dev/null 2>&1; then
        download_kernel "$wanted" "$tmp" || { update_package_lists >>"$log" 2>&1 || true; download_kernel "$wanted" "$tmp"; } || {
            # Another release may have it.
            release=$(release_of "$wanted")
            ! mirror=$(debian_mirror) || [ -z "$release" ] || ! other_apt "$tmp/apt" "$release" "$mirror" >>"$log" 2>&1 ||
                download_kernel "$wanted" "$tmp" || true
        }
    fi
    compgen -G "$tmp/linux-image-*.deb" >/dev/null || no_kernel "$wanted" "$log"
    unpack_kernel "$tmp" "$tmp"/linux-image-*.deb
    rm -rf "$tmp"
    trap - EXIT
}

no_kernel() { # KERNEL LOG
    tail -n 5 "$2" 2>/dev/null >&2 || true
    vm_fail "no kernel for the VM: apt offers no linux-image-$1*-amd64-unsigned that can be downloaded" \
        "apt-cache search '^linux-image-.*-amd64' shows what there is (for --kernel, without 'linux-image-')" \
        "Systems other than Debian: set DEBIAN_MIRROR=URI, for 6.1 and 6.12" \
        "Or put Debian's linux-image-$1…-amd64-unsigned_…_amd64.deb (packages.debian.org) into $vm_cache"
}

unpack_kernel() { # TMP PACKAGE-FILE
    local tmp=$1 kernel set
    dpkg-deb -x "$2" "$tmp" || vm_fail "$2 cannot be unpacked"
    [ -d "$tmp/lib" ] || mv "$tmp/usr/lib" "$tmp/lib" # from Debian 13 on
    kernel=$(basename "$tmp"/lib/modules/*)
    depmod -b "$tmp" "$kernel"
    mkdir -p "$tmp/keep/modules"
    unpack_image "$tmp/boot/vmlinuz-$kernel" "$tmp/keep/vmlinux"
    for set in "${VM_SETS[@]}"; do unpack_modules "$tmp" "$kernel" "$set"; done
    echo siw.ko >>"$tmp/keep/siw.list"
    printf '%s\n' "$kernel" >"$tmp/keep/kernel"
    dpkg-deb -f "$2" Version >"$tmp/keep/version"
    kernel_contents >"$tmp/keep/contents"
    kernel_dir=$vm_cache/$kernel.$(kernel_contents_id)
    rm -rf "$kernel_dir"
    mv "$tmp/keep" "$kernel_dir"
}

# unpack_modules TMP KERNEL SET: its modules, and SET.list with their names in loading order.
unpack_modules() {
    local tmp=$1 kernel=$2 set=$3 module line path
    for module in ${VM_MODULES[$set]}; do
        # A module is listed with what it depends on, which is to be loaded from the last to the first.
        ! grep -qE "/${module//_/[-_]}\.ko\$" "$tmp/lib/modules/$kernel/modules.builtin" || continue
        line=$(grep -E "/${module//_/[-_]}\.ko[.xz]*:" "$tmp/lib/modules/$kernel/modules.dep") ||
            vm_fail "the kernel $kernel has no module $module; try another one: --kernel"
        for path in $(tr ' ' '\n' <<<"${line/:/}" | tac); do
            module=${path##*/}
            module=${module%.xz}
            printf '%s\n' "$module" >>"$tmp/keep/$set.list"
            [ ! -e "$tmp/keep/modules/$module" ] || continue
            cp "$tmp/lib/modules/$kernel/$path" "$tmp/keep/modules/"
            [ "${path%.xz}" = "$path" ] || xz -d "$tmp/keep/modules/$module.xz"
        done
    done
}

# unpack_image VMLINUZ FILE: extracts the kernel without its decompressor, which QEMU does not
# need and which takes seconds under emulation. Copies an image that has no such part.
unpack_image() {
    local offset
    offset=$(LC_ALL=C grep -abo -m1 $'\xfd7zXZ' "$1" | head -n 1 | cut -d: -f1) || true
    if [ -n "$offset" ]; then
        # xz reports an error about the bytes after the compressed part; the result decides.
        tail -c +$((offset + 1)) "$1" | xz -dc --single-stream >"$2" 2>/dev/null || true
        [ "$(head -c 4 "$2" | tail -c 3)" = ELF ] && return 0
    fi
    cp "$1" "$2"
}

# --- the initramfs ------------------------------------------------------------

# make_initramfs SET…: with the modules of the base and of these sets.
make_initramfs() {
    local busybox tmp lists=("$kernel_dir/base.list") set modules=() loaded=() kernel
    busybox=$(command -v busybox)
    kernel=$(cat "$kernel_dir/kernel")
    for set in "$@"; do [ "$set" = mlx5 ] || lists+=("$kernel_dir/$set.list"); done
    mapfile -t loaded < <(awk '!seen[$0]++' "${lists[@]}")
    case " $* " in *" mlx5 "*) lists+=("$kernel_dir/mlx5.list") ;; esac
    mapfile -t modules < <(awk '!seen[$0]++' "${lists[@]}")
    initramfs=$kernel_dir/initramfs-$(
        { cat "$vm_lib/init" "$vm_lib/session" "$busybox" "$kernel_dir/contents"; printf '%s\n' "${loaded[@]}" -- "${modules[@]}"; } |
            sha256sum | cut -c1-16
    )
    [ ! -e "$initramfs" ] || return 0
    # Remove those of other versions; a run that starts at this moment may still need a new one.
    find "$kernel_dir" -name 'initramfs-*' -mmin +60 -delete
    tmp=$(mktemp -d "$vm_cache/new.XXXXXX")
    mkdir -p "$tmp/bin" "$tmp/lib/modules/$kernel"
    cp "$busybox" "$tmp/bin/busybox"
    ln -s busybox "$tmp/bin/sh"
    cp "$vm_lib/init" "$vm_lib/session" "$tmp/"
    cp "${modules[@]/#/$kernel_dir/modules/}" "$tmp/lib/modules/$kernel/"
    depmod -b "$tmp" "$kernel" 2>/dev/null # it misses lists that only the whole kernel has
    printf '%s\n' "${loaded[@]}" >"$tmp/modules.list"
    chmod +x "$tmp/init"
    (cd "$tmp" && find . | cpio -o -H newc --quiet) >"$initramfs.new"
    mv "$initramfs.new" "$initramfs"
    rm -rf "$tmp"
}
