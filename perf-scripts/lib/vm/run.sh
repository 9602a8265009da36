# shellcheck shell=bash
# One run of the VM. Sourced, never run.

# write_job DIR COMMAND…: the files that become /run/vm in the guest.
write_job() {
    local dir=$1 name
    shift
    printf 'vm_rxe=%d\n' "$rxe" >"$dir/settings"
    {
        for name in $(compgen -e); do
            case $name in
            PATH | HOME | LANG | LC_* | TERM | LD_LIBRARY_PATH | CARGO_* | RUST_* | RUSTUP_* | DAT_* | MLX5_* | RDMAV_*)
                printf 'export %s=%s\n' "$name" "${!name@Q}" ;;
            esac
        done
        printf 'cd %s || exit 126\n' "${PWD@Q}"
        printf 'exec'
        printf ' %s' "${@@Q}"
        printf '\n'
    } >"$dir/job"
}

run_vm() {
    local dir pid code=0 status tails=()
    dir=$(mktemp -d "${TMPDIR:-/tmp}/udapl-vm.XXXXXX")
    # shellcheck disable=SC2064 # now
    trap "rm -rf '$dir'" EXIT
    mkdir "$dir/job"
    write_job "$dir/job" "$@"
    { cat "$initramfs"; (cd "$dir" && find job | cpio -o -H newc --quiet); } >"$dir/initramfs"
    touch "$dir/stdout" "$dir/stderr" "$dir/status"
    local qemu=(qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot
        -cpu max,la57=off -m "$mem"
        -kernel "$kernel_dir/vmlinuz" -initrd "$dir/initramfs"
        -append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr random.trust_cpu=on audit=0 ${VM_APPEND-}"
        -serial "file:$dir/console"
        -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap
        -device virtio-9p-pci,fsdev=root,mount_tag=hostroot
        -device virtio-serial-pci)
    local name
    for name in stdout stderr status; do
        qemu+=(-chardev "file,id=$name,path=$dir/$name" -device "virtserialport,chardev=$name,name=$name")
    done
    if [ "$icount" = 1 ]; then
        qemu+=(-accel tcg,thread=single -smp 1 -icount shift=0,sleep=off)
    else
        qemu+=(-accel tcg,thread=multi -smp "$cpus")
    fi
    timeout --kill-after=5 "$limit" "${qemu[@]}" </dev/null >"$dir/qemu" 2>&1 &
    pid=$!
    trap 'kill $pid 2>/dev/null; exit 130' INT TERM
    tail -s 0.1 -n +1 -f --pid=$pid "$dir/stdout" 2>/dev/null & tails+=($!)
    tail -s 0.1 -n +1 -f --pid=$pid "$dir/stderr" >&2 2>/dev/null & tails+=($!)
    wait $pid || code=$?
    wait "${tails[@]}" || true
    status=$(sed -n 's/^exit //p' "$dir/status")
    [ -n "$status" ] && exit "$status"
    { cat "$dir/qemu"; tail -n 20 "$dir/console"; } >&2
    [ $code = 124 ] && { printf 'perf-scripts/vm: stopped after %s seconds (--limit)\n' "$limit" >&2; exit 124; }
    vm_fail "the VM ended without a result"
}
