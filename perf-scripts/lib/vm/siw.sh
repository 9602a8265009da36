# shellcheck shell=bash
# siw, the kernel's iWARP device in software. Debian's kernels do not have it, but Debian's
# packages of the kernel's source and headers build it as a module. Sourced after prepare.sh,
# never run. Takes `kernel_dir` and `vm_cache` from there.
# shellcheck disable=SC2154

# need_siw: builds siw.ko for the kernel in `kernel_dir` and keeps it with its other modules.
need_siw() {
    local kernel version tmp log build
    [ ! -e "$kernel_dir/modules/siw.ko" ] || return 0
    (need_packages gcc make) >&2 || exit 125
    kernel=$(cat "$kernel_dir/kernel") version=$(cat "$kernel_dir/version")
    tmp=$(mktemp -d "$vm_cache/new.XXXXXX")
    log=$tmp/log
    # shellcheck disable=SC2064 # this directory
    trap "rm -rf '$tmp'" EXIT
    say "Building siw (iWARP) for $kernel: gets Debian's source of the kernel (150 MB; kept is one module, in $vm_cache) …" >&2
    get_siw_packages || no_siw_packages
    for build in "$tmp"/linux-headers-*.deb "$tmp"/linux-kbuild-*.deb; do
        dpkg-deb -x "$build" "$tmp/root" || vm_fail "$build cannot be unpacked"
    done
    dpkg-deb --fsys-tarfile "$tmp"/linux-source-*.deb | tar -xO --wildcards './usr/src/linux-source-*.tar.xz' | xz -dc |
        tar -x -C "$tmp" --strip-components=4 --wildcards 'linux-source-*/drivers/infiniband/sw/siw' ||
        vm_fail "the source of siw is not in $(basename "$tmp"/linux-source-*.deb)"
    # The headers contain the paths at which the package would be installed.
    build=$tmp/root/usr/src/linux-headers-$kernel
    sed -i "s#/usr/src/#$tmp/root/usr/src/#" "$build/Makefile"
    make -C "$build" M="$tmp/siw" CONFIG_RDMA_SIW=m CC="$(siw_compiler)" modules >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        vm_fail "siw does not build for the kernel $kernel; above is the end of make's output" \
            "It takes the compiler of that kernel (gcc-12 for 6.1; here: $(siw_compiler)) and libelf1"
    }
    strip --strip-debug "$tmp/siw/siw.ko"
    mv "$tmp/siw/siw.ko" "$kernel_dir/modules/siw.ko"
    rm -rf "$tmp"
    trap - EXIT
}

# siw_compiler: prints the compiler that built the kernel, or this machine's.
siw_compiler() {
    local wanted
    wanted=$(LC_ALL=C grep -aom1 'gcc-[0-9][0-9]*' "$kernel_dir/vmlinux" | head -n 1) || true
    if [ -n "$wanted" ] && command -v "$wanted" >/dev/null; then printf '%s' "$wanted"; else printf 'gcc'; fi
}

# siw_packages: prints the packages that are needed to build it, all of the kernel's own version.
siw_packages() {
    local number
    number=$(grep -oE '^[0-9]+\.[0-9]+' <<<"$kernel")
    printf '%s\n' "linux-headers-$kernel" "linux-headers-${kernel%-amd64}-common" "linux-kbuild-$number" "linux-source-$number"
}

# get_siw_packages: puts them into $tmp, from the cache or else by apt.
get_siw_packages() {
    local package wanted=()
    for package in $(siw_packages); do
        if compgen -G "$vm_cache/${package}_${version}_*.deb" >/dev/null; then
            cp "$vm_cache/${package}_${version}"_*.deb "$tmp/"
        else
            wanted+=("$package=$version")
        fi
    done
    [ "${#wanted[@]}" -gt 0 ] || return 0
    command -v apt-get >/dev/null 2>&1 || return 1
    (cd "$tmp" && apt-get download -qq -o APT::Sandbox::User=root "${wanted[@]}") >>"$log" 2>&1 && return 0
    update_package_lists >>"$log" 2>&1 || true
    (cd "$tmp" && apt-get download -qq -o APT::Sandbox::User=root "${wanted[@]}") >>"$log" 2>&1
}

no_siw_packages() {
    tail -n 5 "$log" >&2 2>/dev/null || true
    vm_fail "siw cannot be built: apt does not offer these in version $version: $(siw_packages | paste -sd ' ')" \
        "A newer kernel may help, of which apt has the source (--kernel VERSION, or rm -r $vm_cache)" \
        "Or put these packages (snapshot.debian.org has all versions) into $vm_cache"
}
