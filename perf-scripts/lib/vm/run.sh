# shellcheck shell=bash
# One run of the VM. Sourced by perf-scripts/vm after prepare.sh, never run.
# Takes its options (limit, cpus, mem, nodes, icount, devices, keep_env, shares) from there.
# shellcheck disable=SC2154

# Environment variables that are passed to the VM; `--env` adds to them.
passes() { # NAME
    case $1 in
    PATH | HOME | USER | LANG | LC_* | TERM | LD_LIBRARY_PATH) return 0 ;;
    CARGO_* | RUST_* | RUSTUP_* | DAT_* | MLX5_* | IBV_* | RDMAV_*) return 0 ;;
    *) return 1 ;;
    esac
}

# vm_interfaces: prints one line for each interface with RDMA devices: name, MAC address, IPv4 and IPv6
# address, MTU, kinds of the devices. In `devices`, a comma is between interfaces, a plus between
# the devices of one interface.
vm_interfaces() {
    local number=0 kinds
    for kinds in ${devices//,/ }; do
        [ "$kinds" != none ] || continue
        printf 'dummy%d 02:99:00:00:00:%02x 10.99.%d.1/24 ' $number $((number + 1)) $number
        if [ $number -eq 0 ]; then printf 'fd99::1/64'; else printf 'fd99:%x::1/64' $number; fi
        printf ' 1500 %s\n' "${kinds//+/ }"
        number=$((number + 1))
    done
}

# write_job DIR COMMAND…: the files that become /run/vm in the VM; no COMMAND is a shell. From the
# caller: `interfaces`, `host` (the VM's name), `waits` (1: COMMAND waits for a line on the port "go"),
# `mlx5` (the socket of its emulated ConnectX, or empty).
write_job() {
    local dir=$1 name ipv4 ipv6 on rows_cols
    shift
    printf 'vm_shell=%d vm_bash=%q vm_host=%q vm_waits=%q vm_mlx5=%q\n' $(($# == 0)) "$BASH" "$host" "$waits" "${mlx5:+1}" >"$dir/settings"
    printf '%s\n' "$interfaces" >"$dir/interfaces"
    : >"$dir/shares"
    for name in "${!shares[@]}"; do printf 'share%d %s\n' "$name" "${shares[name]}" >>"$dir/shares"; done
    {
        for name in $(compgen -e); do
            ! passes "$name" || printf 'export %s=%q\n' "$name" "${!name}"
        done
        for name in "${keep_env[@]}"; do printf 'export %s=%q\n' "${name%%=*}" "${name#*=}"; done
        printf 'ulimit -Sn %q\n' "$(ulimit -Sn)"
        printf 'cd %q || { echo "perf-scripts/vm: this directory cannot be seen in the VM" >&2; exit 125; }\n' "$PWD"
        if [ $# -eq 0 ]; then
            rows_cols=$(stty size)
            printf 'stty rows %d cols %d\n' "${rows_cols% *}" "${rows_cols#* }"
            while read -r name _ ipv4 ipv6 _ on && [ -n "$name" ]; do
                printf 'echo "%s is on %s: %s, %s."\n' "${on// /0, }0" "$name" "${ipv4%/*}" "${ipv6%/*}"
            done <"$dir/interfaces"
            printf 'echo "What is written is lost. exit or Ctrl-A X ends the VM."\n'
            # Without ~/.bashrc, which may start dozens of programs: that takes a minute in the VM.
            printf "PS1='vm:\\w\\$ ' exec %q --norc -i\n" "$BASH"
        else
            printf 'exec --'
            printf ' %q' "$@"
            printf '\n'
        fi
    } >"$dir/job"
}

# qemu_command DIR: sets `qemu`.
qemu_command() {
    local dir=$1 name share node last kind
    # TSC: the emulation passes on the host's TSC, but the kernel would not trust it and would
    # read the slow HPET. Its frequency is measured outside: on a busy machine the kernel's own
    # measurement was wrong by up to 70 times in one boot of six, and all timeouts with it.
    # Self-tests, protected text and AppArmor only cost time here.
    local append="console=ttyS0 loglevel=4 panic=-1 tsc=reliable cryptomgr.notests rodata=off apparmor=0"
    append+=" mitigations=off nokaslr random.trust_cpu=on audit=0"
    # On a busy machine the emulation is late, which the kernel would take for a broken timer.
    append+=" no_timer_check nowatchdog"
    qemu=("${qemu_program[@]}" -nodefaults -no-user-config -display none -no-reboot)
    qemu+=(-cpu "max,la57=off" -m "$((mem / nodes * nodes))" -kernel "$kernel_dir/vmlinux" -initrd "$dir/initramfs")
    # Software emulation even if /dev/kvm exists, so that it is the same everywhere.
    if [ "$icount" = 1 ]; then
        qemu+=(-accel "tcg,thread=single" -smp 1 -icount "shift=0,sleep=off")
        append+=" tsc_early_khz=1000000" # one per nanosecond
    else
        qemu+=(-accel "tcg,thread=multi" -smp "$cpus")
        append+=" tsc_early_khz=$tsc_khz"
    fi
    # The process that serves the emulated ConnectX maps the memory.
    kind=ram
    [ -z "$mlx5" ] || kind=memfd,share=on
    if [ "$nodes" -gt 1 ] || [ -n "$mlx5" ]; then
        for node in $(seq 0 $((nodes - 1))); do
            # CPU n belongs to node n, those beyond to the last one.
            last=''
            if [ "$node" -eq $((nodes - 1)) ]; then last=-$((cpus - 1)); fi
            qemu+=(-object "memory-backend-$kind,id=node$node,size=$((mem / nodes))M")
            qemu+=(-numa "node,nodeid=$node,memdev=node$node,cpus=$node$last")
        done
    fi
    if [ -n "$mlx5" ]; then
        qemu+=(-machine q35) # with PCI Express
        qemu+=(-device "{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"$mlx5\"},\"rombar\":0}")
    fi
    qemu+=(-append "$append")
    qemu+=(-fsdev "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap")
    qemu+=(-device "virtio-9p-pci,fsdev=root,mount_tag=root")
    for share in "${!shares[@]}"; do
        # QEMU's options need commas doubled.
        qemu+=(-fsdev "local,id=share$share,path=${shares[share]//,/,,},security_model=none,multidevs=remap")
        qemu+=(-device "virtio-9p-pci,fsdev=share$share,mount_tag=share$share")
    done
    qemu+=(-device virtio-serial-pci)
    for name in stdout stderr status; do
        # Into files: QEMU writes the guest's output before the guest continues, so nothing is lost.
        : >"$dir/$name"
        qemu+=(-chardev "file,id=$name,path=$dir/$name" -device "virtserialport,chardev=$name,name=$name")
    done
}

# make_vm DIR COMMAND…: puts the VM's files into DIR and its command line into `qemu`. From the
# caller: the variables of write_job.
make_vm() {
    local dir=$1
    shift
    mkdir -p "$dir/job"
    write_job "$dir/job" "$@"
    # The kernel accepts several archives in one file.
    { cat "$initramfs"; (cd "$dir" && find job | cpio -o -H newc --quiet); } >"$dir/initramfs"
    qemu_command "$dir"
}

# new_run COMMAND…: sets `dir`, which is removed when the script ends, and `qemu`.
new_run() {
    local interfaces host=vm waits=0 mlx5=''
    dir=$(mktemp -d "${TMPDIR:-/tmp}/udapl-vm.XXXXXX")
    # shellcheck disable=SC2064 # this directory
    trap "end_servers; rm -rf '$dir'" EXIT
    if [ "$devices" = mlx5 ]; then
        mlx5=$dir/mlx5
        serve_mlx5 "$mlx5"
    fi
    interfaces=$(vm_interfaces)
    make_vm "$dir" "$@"
}

# console_end: prints the end of the console of the VM in `dir`, or QEMU's messages.
console_end() {
    {
        servers_said
        grep -v ': terminating on signal' "$dir/qemu" | sed 's/^/qemu: /'
        if [ -s "$dir/console" ]; then
            tail -n 25 "$dir/console" | tr -d '\r' | sed 's/^/console: /'
        else
            echo "console: (nothing)"
        fi
    } >&2 || true
}

# boots: waits until the VM in `dir` is up, or half of the time limit (and a minute) is over, or QEMU,
# `pid`, has ended. An emulated kernel that stops on a busy machine does so before it is up: such a VM is
# ended, and false is returned, as for one that ended by itself. One that says why does not count.
boots() {
    local half=$((limit < 120 ? 60 : limit / 2))
    half=$((half + SECONDS))
    while kill -0 "$pid" 2>/dev/null && [ -z "$ended" ]; do
        ! grep -qx up "$dir/status" || return 0
        [ $SECONDS -lt $half ] || kill "$pid" 2>/dev/null || true
        sleep 0.1
    done
    [ -n "$ended" ] || grep -qx up "$dir/status" || grep -qs '^vm: ' "$dir/console"
}

# run_vm COMMAND…: runs it, and ends the script with its status.
run_vm() {
    local dir qemu pid code=0 status='' ended='' end=$((SECONDS + limit)) attempt
    new_run "$@"
    trap 'ended=130; kill $pid 2>/dev/null' INT
    trap 'ended=143; kill $pid 2>/dev/null' TERM HUP
    for attempt in 1 2; do
        # `timeout` ends QEMU at its time limit, even if this script is killed before.
        timeout --kill-after=5 $((end > SECONDS ? end - SECONDS : 1)) "${qemu[@]}" -serial "file:$dir/console" </dev/null >"$dir/qemu" 2>&1 &
        pid=$!
        tail -s 0.1 -n +1 -f --pid=$pid "$dir/stdout" 2>/dev/null &
        tail -s 0.1 -n +1 -f --pid=$pid "$dir/stderr" >&2 2>/dev/null &
        boots || [ "$attempt" = 2 ] || {
            printf 'perf-scripts/vm: the VM did not boot; it is started again\n' >&2
            wait
            continue
        }
        break
    done
    # A signal ends this `wait`, not the VM: `timeout` passes it on.
    while kill -0 $pid 2>/dev/null; do code=0; wait $pid || code=$?; done
    end_servers # after a signal, bash would wait for these, too
    wait
    [ -z "$ended" ] || exit "$ended"
    status=$(sed -n 's/^exit //p' "$dir/status")
    if [ -n "$status" ]; then exit "$status"; fi
    console_end
    if ! grep -qx up "$dir/status"; then
        [ "$code" != 124 ] || printf 'perf-scripts/vm: the VM had not booted after %s s (--limit)\n' "$limit" >&2
        [ "$code" != 124 ] || exit 124
        vm_fail "the VM did not boot; above is the end of its console, or QEMU's messages" \
            "More memory may help (--mem), or another kernel (--kernel), or a fresh cache: rm -r $vm_cache"
    fi
    if [ "$code" = 124 ]; then
        printf 'perf-scripts/vm: ended after %s s (--limit); above is the end of its console\n' "$limit" >&2
        exit 124
    fi
    vm_fail "the VM ended before the command did; above is the end of its console, or QEMU's messages"
}

# shell_vm: runs a shell on the VM's serial console, until it exits.
shell_vm() {
    local dir qemu terminal
    [ -t 0 ] || { printf 'perf-scripts/vm: shell needs a terminal; use run for commands\n' >&2; exit 2; }
    new_run
    qemu+=(-chardev "stdio,id=con,mux=on,signal=off" -serial chardev:con -mon chardev=con)
    terminal=$(stty -g)
    timeout --foreground --kill-after=5 "$limit" "${qemu[@]}" || true
    stty "$terminal"
}
