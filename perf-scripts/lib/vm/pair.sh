# shellcheck shell=bash
# Two VMs on one emulated Ethernet. Sourced by perf-scripts/vm after run.sh,
# never run. Takes its options (as run.sh; mtu, client_device, ready, events)
# from there.
# shellcheck disable=SC2154

# Exit statuses of a pair.
SERVER_FAILED=21 CLIENT_FAILED=22 BOTH_FAILED=23 EVENT_MISSING=24

# The state of each side ("server", "client"): its directory, QEMU's process, its phase
# (off, booting, running, ended, cut), its exit status, the descriptors of its outputs,
# the beginning of an incomplete line, the number of lines read, and how many of them
# events have used.
declare -A side_dir side_pid side_state side_status side_fd side_partial side_lines side_used
# All lines of both sides: [SIDE NUMBER].
declare -A said
generation=0 # how many times a VM has been booted
is_ready=0   # 1: the server has printed the line of --ready

check_pattern() { # OPTION PATTERN
    local status=0
    grep -qE -- "$2" </dev/null 2>/dev/null || status=$?
    [ $status -le 1 ] || bad_usage "$1: '$2' is no extended regular expression"
}

# An event is "WHEN ACTION". Checked before booting.
check_event() { # WHEN ACTION
    [[ $1 =~ ^[0-9]{1,5}(\.[0-9]{1,3})?$ || $1 =~ ^(server|client):. ]] ||
        bad_usage "--at takes SECONDS, server:PATTERN or client:PATTERN, not '$1'"
    [[ $1 =~ ^[0-9.]+$ ]] || check_pattern --at "${1#*:}"
    case $2 in
    cut:server | cut:client | boot:server | boot:client | link-down | link-up | wait) ;;
    *) bad_usage "--at WHEN takes cut:SIDE, boot:SIDE (SIDE: server, client), link-down, link-up or wait, not '$2'" ;;
    esac
}

# pair_vm COMMAND-OF-SERVER… ::: COMMAND-OF-CLIENT…: runs them, and ends the script with its status.
pair_vm() {
    local base idle ended='' started='' link=on server=() next=0 last=0 side # for all functions here
    while [ "$1" != ::: ]; do server+=("$1"); shift; done
    shift
    local client=("$@")
    grep -qx dgram <<<"$(qemu-system-x86_64 -netdev help 2>/dev/null)" ||
        vm_fail "this QEMU has no -netdev dgram: version 7.2 or newer is needed"
    base=$(mktemp -d "${TMPDIR:-/tmp}/udapl-vm.XXXXXX")
    # shellcheck disable=SC2064 # this directory
    trap "end_servers; rm -rf '$base'" EXIT
    mkfifo "$base/idle"
    exec {idle}<>"$base/idle"
    trap 'ended=130; end_sides' INT
    trap 'ended=143; end_sides' TERM HUP
    [ "$devices" != mlx5 ] || serve_mlx5 "$base/mlx5.server"
    [ "${client_device:-$devices}" != mlx5 ] || serve_mlx5 "$base/mlx5.client"
    boot_side server
    boot_side client
    while :; do
        for side in server client; do look_at "$side"; done
        if [ -z "$started" ] && [ "${side_state[server]}" != booting ] && [ "${side_state[client]}" != booting ]; then
            started=1
            last=${EPOCHREALTIME/./}
        fi
        [ -z "$started" ] || run_events
        [ -z "$ended" ] || exit "$ended"
        if is_over; then break; fi
        read -r -t 0.05 -u "$idle" || true
    done
    end_pair
}

# is_over: whether both sides have ended, and no event can start one again.
is_over() {
    local side
    for side in server client; do
        case ${side_state[$side]} in ended | cut) ;; *) return 1 ;; esac
    done
    [ "$next" -ge ${#events[@]} ] || [[ ! ${events[next]} =~ ^[0-9] ]]
}
other_side() { if [ "$1" = server ]; then echo client; else echo server; fi; }

# end_pair: prints how both ended, and exits.
end_pair() {
    local side status=0 code
    for side in server client; do
        code=${side_status[$side]}
        [ "$code" != cut ] || continue
        [ "$code" != 0 ] || continue
        printf 'perf-scripts/vm: the %s failed with status %s\n' "$side" "$code" >&2
        if [ $status -ne 0 ]; then status=$BOTH_FAILED
        elif [ $side = server ]; then status=$SERVER_FAILED
        else status=$CLIENT_FAILED; fi
    done
    if [ "$next" -lt ${#events[@]} ]; then
        printf 'perf-scripts/vm: --at %s did not happen: the pair had ended\n' "${events[next]}" >&2
        [ $status -ne 0 ] || status=$EVENT_MISSING
    fi
    exit "$status"
}

# boot_side SIDE: starts its VM; the command in it is the same each time.
boot_side() {
    local side=$1 dir qemu command number=1 stream fd
    command=("${server[@]}")
    if [ "$side" = client ]; then number=2; command=("${client[@]}"); fi
    generation=$((generation + 1))
    dir=$base/$side.$generation
    mkdir -p "$dir/job"
    # shellcheck disable=SC2034 # for make_vm
    local host=$side waits=0 on=$devices interfaces mlx5=''
    if [ "$side" = client ]; then
        on=${client_device:-$devices}
        # shellcheck disable=SC2034
        [ -z "$ready" ] || waits=1
    else
        is_ready=0
    fi
    [ "$on" != none ] || on=
    # shellcheck disable=SC2034
    [ "$on" != mlx5 ] || mlx5=$base/mlx5.$side
    # shellcheck disable=SC2034
    interfaces="eth0 02:99:00:00:00:0$number 10.99.0.$number/24 fd99::$number/64 $mtu ${on//+/ }"
    make_vm "$dir" "${command[@]}"
    for stream in monitor go; do mkfifo "$dir/$stream.in" "$dir/$stream.out"; done
    qemu+=(-chardev "pipe,id=monitor,path=$dir/monitor" -mon "chardev=monitor,mode=readline")
    qemu+=(-chardev "pipe,id=go,path=$dir/go" -device "virtserialport,chardev=go,name=go")
    # One datagram per frame, so each end may stop and restart. A relative path, because
    # the path of a socket must be short.
    qemu+=(-netdev "dgram,id=net0,local.type=unix,local.path=wire.$side,remote.type=unix,remote.path=wire.$(other_side "$side")")
    qemu+=(-device "virtio-net-pci,netdev=net0,mac=02:99:00:00:00:0$number,romfile=")
    (cd "$base" && exec timeout --kill-after=5 "$limit" "${qemu[@]}" -serial "file:$dir/console") \
        </dev/null >"$dir/qemu" 2>&1 &
    side_pid[$side]=$! side_dir[$side]=$dir side_state[$side]=booting side_status[$side]=''
    # Events ignore lines of an earlier boot.
    side_lines[$side]=${side_lines[$side]-0} side_used[$side]=${side_lines[$side]}
    for stream in stdout stderr; do
        exec {fd}<"$dir/$stream"
        side_fd[$side.$stream]=$fd side_partial[$side.$stream]=
    done
    for stream in monitor go; do
        exec {fd}<>"$dir/$stream.in"
        side_fd[$side.$stream]=$fd
    done
    [ "$link" = on ] || set_link "$side"
    [ $is_ready = 0 ] || start_client
}

# monitor SIDE COMMAND: sends a command to its QEMU.
monitor() { printf '%s\n' "$2" >&"${side_fd[$1.monitor]}"; }

# look_at SIDE: shows its new output, and updates its state.
look_at() {
    local side=$1 dir=${side_dir[$1]} alive=1
    case ${side_state[$side]} in ended | cut) return 0 ;; esac
    kill -0 "${side_pid[$side]}" 2>/dev/null || alive=0 # before the last look at what it printed
    read_lines "$side" stdout
    read_lines "$side" stderr
    if [ "${side_state[$side]}" = booting ] && grep -qx up "$dir/status"; then side_state[$side]=running; fi
    [ $alive -eq 1 ] || side_ended "$side"
}

# side_ended SIDE: handles a QEMU that has ended, not by an event.
side_ended() {
    local side=$1 dir=${side_dir[$1]} code=0
    wait "${side_pid[$side]}" 2>/dev/null || code=$?
    close_side "$side"
    side_status[$side]=$(sed -n 's/^exit //p' "$dir/status")
    side_state[$side]=ended
    [ -z "${side_status[$side]}" ] || return 0
    [ -z "$ended" ] || return 0
    console_end
    end_sides
    if [ $code -eq 124 ]; then
        printf 'perf-scripts/vm: the %s had not ended after %s s (--limit); above is the end of its console\n' \
            "$side" "$limit" >&2
        ended=124
    else
        printf 'perf-scripts/vm: the VM of the %s ended by itself; above is the end of its console, or QEMU'\''s messages\n' \
            "$side" >&2
        ended=125
    fi
}

# close_side SIDE: shows the rest, and closes its files.
close_side() {
    local side=$1 stream fd
    for stream in stdout stderr; do
        read_lines "$side" $stream
        [ -z "${side_partial[$side.$stream]}" ] || one_line "$side" $stream "${side_partial[$side.$stream]}"
    done
    for stream in stdout stderr monitor go; do
        fd=${side_fd[$side.$stream]}
        exec {fd}>&-
    done
}

# end_sides: ends all VMs.
end_sides() {
    local side
    for side in server client; do
        case ${side_state[$side]-off} in
        booting | running) kill "${side_pid[$side]}" 2>/dev/null || true ;;
        esac
    done
    end_servers
    wait
}

# read_lines SIDE STREAM: reads new lines.
read_lines() {
    local key=$1.$2 part
    while IFS= read -r -u "${side_fd[$key]}" part; do
        one_line "$1" "$2" "${side_partial[$key]}$part"
        side_partial[$key]=
    done
    side_partial[$key]+=$part
}

# one_line SIDE STREAM LINE
one_line() {
    if [ "$2" = stdout ]; then printf '%s: %s\n' "$1" "$3"; else printf '%s: %s\n' "$1" "$3" >&2; fi
    said[$1 ${side_lines[$1]}]=$3
    side_lines[$1]=$((side_lines[$1] + 1))
    if [ "$1" = server ] && [ -n "$ready" ] && [[ $3 =~ $ready ]]; then start_client; fi
}

# start_client: starts its command, if it waits for the server; also after a later boot.
start_client() {
    is_ready=1
    case ${side_state[client]-off} in booting | running) printf 'go\n' >&"${side_fd[client.go]}" ;; esac
}

# run_events: runs the events that are due, in their order.
run_events() {
    local when action now
    while [ "$next" -lt ${#events[@]} ]; do
        when=${events[next]% *} action=${events[next]##* }
        now=${EPOCHREALTIME/./}
        if [[ $when =~ ^[0-9.]+$ ]]; then
            [ $((now - last)) -ge "$(microseconds "$when")" ] || return 0
        else
            was_said "${when%%:*}" "${when#*:}" || return 0
        fi
        run_action "$action"
        printf 'perf-scripts/vm: %s, at %s\n' "$action" "$when" >&2
        last=${EPOCHREALTIME/./}
        next=$((next + 1))
    done
}
microseconds() { awk -v seconds="$1" 'BEGIN { printf "%d", seconds * 1000000 }'; }

# was_said SIDE PATTERN: whether a line matches, after the lines that earlier events have used.
was_said() {
    local line
    while [ "${side_used[$1]}" -lt "${side_lines[$1]}" ]; do
        line=${said[$1 ${side_used[$1]}]}
        side_used[$1]=$((side_used[$1] + 1))
        [[ ! $line =~ $2 ]] || return 0
    done
    return 1
}

run_action() { # ACTION
    local side=${1#*:}
    case $1 in
    link-down) link=off; for side in server client; do set_link $side; done ;;
    link-up) link=on; for side in server client; do set_link $side; done ;;
    cut:*)
        case ${side_state[$side]} in booting | running) ;; *) return 0 ;; esac
        # QEMU ends at once, without a shutdown of the guest.
        monitor "$side" quit
        wait "${side_pid[$side]}" || true
        close_side "$side"
        side_state[$side]=cut side_status[$side]=cut
        ;;
    boot:*)
        case ${side_state[$side]} in ended | cut) boot_side "$side" ;; esac
        ;;
    esac
}
set_link() { # SIDE
    case ${side_state[$1]} in booting | running) monitor "$1" "set_link net0 $link" ;; esac
}
