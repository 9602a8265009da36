# shellcheck shell=bash
# What the VM needs on this machine: programs, a kernel, an initramfs.
# Sourced, never run. All of it but the Debian packages is in a cache outside the tree.

vm_fail() { printf 'perf-scripts/vm: %s\n' "$*" >&2; exit 125; }

VM_PACKAGES=(qemu-system-x86 busybox-static cpio kmod rdma-core iproute2)
vm_cache=${XDG_CACHE_HOME:-$HOME/.cache}/udapl-vm

# In the order in which they are wanted; what they depend on is found in modules.dep.
# rdma_rxe needs crc32_generic without saying so: it asks the kernel's crypto for "crc32".
VM_MODULES=(virtio_pci virtio_console 9pnet_virtio 9p overlay crc32_generic rdma_rxe rdma_ucm dummy)

# The newest 6.1 kernel that apt knows, neither real-time nor for clouds. The unsigned
# package is the one with the same files and no dependency on a boot loader's signature.
newest_kernel() {
    apt-cache search --names-only '^linux-image-6\.1\.[0-9]+-[0-9]+-amd64-unsigned$' 2>/dev/null |
        sed -n 's/^linux-image-\(6\.1[^ ]*\)-unsigned .*/\1/p' | sort -V | tail -n 1
}

prepare() {
    need_packages "${VM_PACKAGES[@]}" >&2
    mkdir -p "$vm_cache"
    exec 9>"$vm_cache/lock"
    flock 9
    # A kernel that is there already is good enough: it needs no network.
    kernel=$(find "$vm_cache" -mindepth 2 -maxdepth 2 -name modules.list -printf '%h\n' | sort -V | tail -n 1)
    kernel=${kernel##*/}
    [ -n "$kernel" ] || get_kernel
    kernel_dir=$vm_cache/$kernel
    make_initramfs
    exec 9>&-
}

get_kernel() {
    kernel=$(newest_kernel)
    [ -n "$kernel" ] || vm_fail "apt knows no linux-image-6.1…-amd64-unsigned"
    local package=linux-image-$kernel-unsigned tmp
    say "Getting the VM's kernel $kernel (70 MB, kept in $vm_cache, not installed) …" >&2
    tmp=$(mktemp -d "$vm_cache/new.XXXXXX")
    (cd "$tmp" && apt-get download -qq "$package" >&2)
    dpkg-deb --fsys-tarfile "$tmp/$package"_*.deb | tar -x -C "$tmp" ./boot ./lib
    depmod -b "$tmp" "$kernel"
    mkdir "$tmp/keep" "$tmp/keep/modules"
    mv "$tmp/boot/vmlinuz-$kernel" "$tmp/keep/vmlinuz"
    # modules.dep names a module's dependencies last first.
    local module line path seen=" "
    for module in "${VM_MODULES[@]}"; do
        line=$(grep -E "/${module//_/[-_]}\.ko:" "$tmp/lib/modules/$kernel/modules.dep") || vm_fail "no module $module in $package"
        # shellcheck disable=SC2086 # words
        for path in $(printf '%s\n' ${line/:/} | tac); do
            case $seen in *" $path "*) continue ;; esac
            seen+="$path "
            cp "$tmp/lib/modules/$kernel/$path" "$tmp/keep/modules/"
            printf '%s\n' "${path##*/}" >>"$tmp/keep/modules.list"
        done
    done
    rm -rf "${vm_cache:?}/$kernel"
    mv "$tmp/keep" "$vm_cache/$kernel"
    rm -rf "$tmp"
}

make_initramfs() {
    local lib=$here/lib/vm tag tmp
    tag=$(cat "$lib/init" "$lib/session" "$(command -v busybox)" "$kernel_dir/modules.list" | sha256sum | cut -c1-16)
    initramfs=$kernel_dir/initramfs-$tag
    [ -e "$initramfs" ] && return 0
    tmp=$(mktemp -d "$vm_cache/new.XXXXXX")
    mkdir "$tmp/bin"
    cp "$(command -v busybox)" "$tmp/bin/busybox"
    ln -s busybox "$tmp/bin/sh"
    cp "$lib/init" "$lib/session" "$tmp/"
    chmod +x "$tmp/init"
    cp -r "$kernel_dir/modules" "$tmp/modules"
    cp "$kernel_dir/modules.list" "$tmp/modules/order"
    (cd "$tmp" && find . | cpio -o -H newc --quiet) >"$initramfs.new"
    mv "$initramfs.new" "$initramfs"
    rm -rf "$tmp"
}
