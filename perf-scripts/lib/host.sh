# shellcheck shell=bash
# Facts of a host that latency depends on. Sourced by check, tune and restore.

# Where the host's /sys and /proc are: empty for this host.
ROOT=''

# Exit latency in microseconds of the deepest idle state that is left on.
DEEPEST=10

# one FILE: prints its first line; fails if it cannot be read.
one() { local line; { IFS= read -r line || [ -n "$line" ]; } 2>/dev/null <"$ROOT$1" && printf '%s\n' "$line"; }

# chosen FILE: prints the value in use: the word in brackets, if the file lists several.
chosen() {
    local text
    text=$(one "$1") || return 1
    case $text in *\[*\]*) text=${text#*\[} text=${text%%\]*} ;; esac
    printf '%s\n' "$text"
}

# cpus_in LIST: prints the numbers in a list such as 0-3,8; fails if it is none.
cpus_in() {
    local range
    [[ $1 =~ ^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$ ]] || return 1
    for range in ${1//,/ }; do seq "${range%-*}" "${range#*-}"; done
}

# as_list NUMBER…: prints numbers in ascending order as a list with ranges.
as_list() {
    local number first='' last='' out=''
    for number in "$@" ''; do
        if [ -n "$first" ] && [ "$number" != $((last + 1)) ]; then
            out+=,$first
            [ "$last" = "$first" ] || out+=-$last
            first=''
        fi
        [ -n "$first" ] || first=$number
        last=$number
    done
    printf '%s\n' "${out#,}"
}

# both LIST LIST: prints the numbers that are in both lists, one per line.
both() { comm -12 <(cpus_in "$1" | sort) <(cpus_in "$2" | sort) | sort -n; }

# without LIST LIST: prints the numbers of the first list that are not in the second.
without() { comm -23 <(cpus_in "$1" | sort) <(cpus_in "$2" 2>/dev/null | sort) | sort -n; }

# rdma_device: prints the first RDMA device that has a PCI device, or nothing.
rdma_device() {
    local at
    for at in "$ROOT"/sys/class/infiniband/*/device; do
        if [ -e "$at" ]; then basename "$(dirname "$at")"; return 0; fi
    done
}

# pci_of DEVICE: prints the device's directory in sysfs, without $ROOT.
pci_of() { printf '/sys/class/infiniband/%s/device\n' "$1"; }

# interrupts_of DEVICE: prints the numbers of its interrupts.
interrupts_of() {
    local at
    for at in "$ROOT$(pci_of "$1")"/msi_irqs/*; do [ ! -e "$at" ] || basename "$at"; done | sort -n
}

# governors: prints the files of all processors' frequency governors.
governors() { files '/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor'; }
# preferences: prints the files of the processors' own choice between energy and speed.
preferences() { files '/sys/devices/system/cpu/cpu[0-9]*/cpufreq/energy_performance_preference'; }

# files PATTERN: prints the files that exist, without $ROOT.
files() {
    local file
    # shellcheck disable=SC2086 # a pattern
    for file in $ROOT$1; do [ ! -e "$file" ] || printf '%s\n' "${file#"$ROOT"}"; done
}

# deep_states: prints the switches of idle states that take longer than $DEEPEST to
# leave and are on.
deep_states() {
    local file latency
    while IFS= read -r file; do
        latency=$(one "${file%/disable}/latency") || continue
        if [ "$latency" -gt "$DEEPEST" ] && [ "$(one "$file")" = 0 ]; then printf '%s\n' "$file"; fi
    done < <(files '/sys/devices/system/cpu/cpu[0-9]*/cpuidle/state[0-9]*/disable')
}

# has_irqbalance: whether that daemon runs.
has_irqbalance() {
    local file
    for file in "$ROOT"/proc/[0-9]*/comm; do
        [ "$(cat "$file" 2>/dev/null)" != irqbalance ] || return 0
    done
    return 1
}

# nodes: prints how many NUMA nodes there are.
nodes() { files '/sys/devices/system/node/node[0-9]*' | wc -l; }

# is_virtual: whether the host is a virtual machine.
is_virtual() { grep -qsw '^flags.*hypervisor' "$ROOT/proc/cpuinfo"; }

# parameter NAME: prints the value of a parameter of the kernel's command line; fails if it is
# not there.
parameter() {
    local word
    for word in $(one /proc/cmdline || true); do
        case $word in "$1" | "$1="*) printf '%s\n' "${word#"$1"}" | sed 's/^=//'; return 0 ;; esac
    done
    return 1
}

# device_control DEVICE: prints the two sizes in bytes of the PCI Express device control
# register, payload and read request; and 1 if it enables relaxed ordering, else 0. Fails if
# the configuration space cannot be read (only root reads beyond its first 64 bytes).
# PCI Express Base Specification, 7.5.3.4: bits 7:5 and 14:12, 128 bytes times a power of 2; 4.
device_control() {
    local bytes at steps=0
    mapfile -t bytes < <(od -An -v -tu1 -w1 "$ROOT$(pci_of "$1")/config" 2>/dev/null)
    [ "${#bytes[@]}" -ge 256 ] || return 1
    at=$((bytes[0x34] & 0xfc))
    while [ "$at" -ge 64 ] && [ "$steps" -lt 48 ]; do
        if [ $((bytes[at])) -eq 16 ]; then
            printf '%d %d %d\n' $((128 << (bytes[at + 8] >> 5 & 7))) \
                $((128 << (bytes[at + 9] >> 4 & 7))) $((bytes[at + 8] >> 4 & 1))
            return 0
        fi
        at=$((bytes[at + 1] & 0xfc)) steps=$((steps + 1))
    done
    return 1
}
