# shellcheck shell=bash
# Facts about the host and the device for a report. Sourced, never run.

# driver_of DEVICE: prints the kernel driver from sysfs; rxe has none.
driver_of() {
    local link=/sys/class/infiniband/$1/device/driver
    if [ -e "$link" ]; then basename "$(readlink -f "$link")"; else printf '%s\n' "${1%%[0-9]*}"; fi
}

# show TITLE COMMAND…: prints its output under a title; names a command that is missing.
show() {
    local title=$1
    shift
    printf '\n== %s\n' "$title"
    if ! command -v "$1" >/dev/null 2>&1; then
        printf '(%s is not installed)\n' "$1"
        return 0
    fi
    timeout 30 "$@" 2>&1 || printf '(%s ended with status %d)\n' "$1" $?
}

# contents TITLE FILE…: prints the existing ones of these files.
contents() {
    local title=$1 file
    shift
    printf '\n== %s\n' "$title"
    for file in "$@"; do
        if [ ! -r "$file" ] || [ ! -f "$file" ]; then continue; fi
        printf '%s: %s\n' "${file##*/}" "$(head -c 4000 "$file" 2>/dev/null)"
    done
}

# rdma_core: prints the version of the installed rdma-core.
rdma_core() {
    local version
    version=$(dpkg-query -W -f='${Version}' libibverbs1 2>/dev/null || rpm -q --qf '%{VERSION}-%{RELEASE}' rdma-core 2>/dev/null || true)
    [ -n "$version" ] || version=$(pkg-config --modversion libibverbs 2>/dev/null || printf 'unknown')
    printf '%s\n' "$version"
}

# firmware DEVICE
firmware() { cat "/sys/class/infiniband/$1/fw_ver" 2>/dev/null || printf 'unknown\n'; }

# board DEVICE: prints the vendor's name of the board.
board() {
    cat "/sys/class/infiniband/$1/hca_type" "/sys/class/infiniband/$1/board_id" 2>/dev/null | tr '\n' ' '
}

# gather_facts DEVICE PORT
gather_facts() {
    local device=$1 port=$2 at pci netdev
    at=/sys/class/infiniband/$device
    show "date" date -u
    show "project" git describe --always --dirty --tags
    show "kernel" uname -a
    contents "distribution" /etc/os-release
    printf '\n== rdma-core\n%s\n' "$(rdma_core)"
    show "rust" rustc --version
    show "processor" lscpu
    show "memory" free -m
    printf '\n== locked memory (KiB)\n%s\n' "$(ulimit -l)"
    contents "kernel command line, huge pages, C states" /proc/cmdline \
        /sys/kernel/mm/transparent_hugepage/enabled /sys/module/intel_idle/parameters/max_cstate \
        /sys/devices/system/cpu/cpuidle/current_driver /sys/devices/system/cpu/smt/active
    contents "governors" /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor
    # The results of perf-scripts/check, if it exists.
    [ ! -x perf-scripts/check ] || show "perf-scripts/check" perf-scripts/check
    if [ "$device" = emu ]; then
        printf '\n== device\nthe emulated one: no hardware\n'
        return 0
    fi
    printf '\n== driver\n%s\n' "$(driver_of "$device")"
    contents "device" "$at"/{fw_ver,hca_type,board_id,hw_rev,node_guid,sys_image_guid,node_desc}
    contents "port $port" "$at/ports/$port"/{state,phys_state,rate,link_layer,lid,cap_mask}
    contents "GIDs" "$at/ports/$port"/gids/{0,1,2,3,4,5,6,7}
    contents "GID types" "$at/ports/$port"/gid_attrs/types/{0,1,2,3,4,5,6,7}
    contents "counters before" "$at/ports/$port"/hw_counters/*
    show "ibv_devinfo" ibv_devinfo -v -d "$device"
    if [ -e "$at/device" ]; then
        contents "PCI" "$at/device"/{vendor,device,numa_node,local_cpulist,current_link_speed,current_link_width,max_link_speed,max_link_width,enable,irq}
        pci=$(basename "$(readlink -f "$at/device")")
        show "lspci" lspci -vvs "$pci"
    fi
    # shellcheck disable=SC2012 # names of interfaces have no odd letters
    netdev=$(ls "$at/device/net" 2>/dev/null | head -n 1 || true)
    [ -z "$netdev" ] || show "ethtool" ethtool -i "$netdev"
    show "modules" sh -c 'lsmod | grep -E "^(ib_|mlx|rdma_|iw_|rxe|siw|rpcrdma)" || true'
}
