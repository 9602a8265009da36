#!/usr/bin/env bash
# Programs between two places of this host that share nothing but a network, on the UDP wire.
# shellcheck disable=SC2086 # numbers
set -euo pipefail

usage() {
    cat <<'TXT'
usage: places.sh [--all] [--examples DIR] LAUNCHER PART…

Each program runs as server in one place and as client in the other, by IPv4 and by IPv6. Parts:
  containers  two containers: namespaces of users, networks, processes, mounts and IPC
  host        a container and its host
  interface   two addresses of one network interface
  users       two users of a host by an address each, and by one (as root only)
  address     two network namespaces that have the same address and one /dev/shm
  weather     two network namespaces whose link loses, duplicates, delays and reorders
              packets, and is down for some seconds

Without --all only a few programs run. Prints a line for each: "ok", "SKIPPED" with the reason,
or "FAILED" with the output. LAUNCHER is mlx5-emu; DIR has the project's examples, which are
left out without it.
TXT
}

all='' examples=''
while [ $# -gt 0 ]; do
    case $1 in
    --all) all=yes ;;
    --examples) examples=$(realpath "$2"); shift ;;
    -h | --help) usage; exit 0 ;;
    *) break ;;
    esac
    shift
done
[ $# -ge 2 ] || { usage >&2; exit 1; }
launcher=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
shift

# Each part has a network of its own, with the rights of root in it.
if [ -z "${PLACES_PART-}" ]; then
    failed=0
    for part in "$@"; do
        rights=(--user --map-root-user)
        # Other users exist in the namespace of users that root has now.
        [ "$part" != users ] || rights=()
        unshare "${rights[@]}" --net --mount true 2>/dev/null ||
            { printf 'SKIPPED  %s: no namespaces here (unshare %s --net --mount)\n' "$part" "${rights[*]}"; continue; }
        PLACES_PART=$part timeout --kill-after=5 1800 unshare "${rights[@]}" --net --mount --kill-child --fork --pid \
            "$0" ${all:+--all} ${examples:+--examples "$examples"} "$launcher" "$part" || failed=1
    done
    exit $failed
fi
part=$PLACES_PART
unset PLACES_PART

# --- places ------------------------------------------------------------------

mount -t proc proc /proc
mount -t tmpfs -o mode=1777 shm /dev/shm
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Addresses are usable at once, and those of IPv6 also after the interface was down.
for setting in accept_dad=0 keep_addr_on_down=1; do
    sysctl -qw "net.ipv6.conf.default.$setting" "net.ipv6.conf.all.$setting" 2>/dev/null || true
done
ip link set lo up

# The process whose namespaces a place has, how to enter them, the place's addresses, and its
# wire.
declare -A process=([host]=$$) enter=([host]='') ipv4=() ipv6=() wire=([host]=udp)

skip() { printf 'SKIPPED  %s: %s\n' "$part" "$*"; exit 0; }

# made NAME: waits until the place is there. Its first process is a child of the last job.
made() {
    local outer=$! child
    until [ -e "$work/$1" ]; do
        kill -0 $outer 2>/dev/null || return 1
        sleep 0.02
    done
    child=$(cat "/proc/$outer/task/$outer/children")
    process[$1]=${child// /}
    wire[$1]=udp
}

# container NAME
container() {
    # shellcheck disable=SC2016 # for the shell inside
    unshare --user --map-root-user --net --mount --ipc --uts --pid --fork sh -c 'hostname "$1"
        mount -t proc proc /proc && ip link set lo up && : >"$2/$1" && mount -t tmpfs shm /dev/shm && sleep 1000' \
        sh "$1" "$work" &
    made "$1" || return 1
    enter[$1]="nsenter --preserve-credentials --user --net --mount --ipc --uts --pid -t ${process[$1]}"
}

# network NAME: a network namespace, and nothing else.
network() {
    # shellcheck disable=SC2016
    unshare --net --fork sh -c 'ip link set lo up && : >"$2/$1" && sleep 1000' sh "$1" "$work" &
    made "$1" || return 1
    enter[$1]="nsenter --net -t ${process[$1]}"
}

# inside PLACE COMMAND…
inside() {
    # shellcheck disable=SC2086 # a command and its options
    ${enter[$1]} "${@:2}"
}

# addresses PLACE INTERFACE NUMBER
addresses() {
    ipv4[$1]=10.9.0.$3 ipv6[$1]=fd09::$3
    inside "$1" ip addr add "${ipv4[$1]}/24" dev "$2"
    inside "$1" ip addr add "${ipv6[$1]}/64" dev "$2" nodad
    inside "$1" ip link set "$2" up
}

# --- programs ----------------------------------------------------------------

failed=0 begun=0 families=(4 6) server_at='' client_at=''

# on PLACE COMMAND…: the command under the launcher. Its process is noted, for `end`.
on() {
    # shellcheck disable=SC2016
    inside "$1" sh -c 'echo $$ >"$0"; exec "$@"' "$work/pid.$1" \
        timeout --kill-after=2 60 "$launcher" run --explain --wire "${wire[$1]}" -- "${@:2}"
}

# end PLACE: ends the command there.
end() { inside "$1" kill "$(cat "$work/pid.$1")" 2>/dev/null || true; }

# listens PLACE PORT: whether a process listens on this TCP port, or by rdma_cm ("rdma_cm"), or
# receives RoCE v2 ("roce").
listens() {
    local root=/proc/${process[$1]}
    case $2 in
    rdma_cm) compgen -G "$root/root/dev/shm/mlx5emu-*/udp-*/slot-*.services" >/dev/null ;;
    roce) grep -qs ":12B7 0*:0000 07" "$root/net/udp" "$root/net/udp6" ;;
    *) grep -qs ":$(printf %04X "$2") 0*:0000 0A" "$root/net/tcp" "$root/net/tcp6" ;;
    esac
}

say() { # RESULT WHAT LOG…
    local log
    printf '%-8s %s: %s (%d s)\n' "$1" "$part" "$2" $((SECONDS - begun))
    [ "$1" = FAILED ] || return 0
    failed=1
    for log in "${@:3}"; do sed "s/^/    ${log##*.}: /" "$log"; done
}

# pair WHAT PORT [EXPECTED]: runs the commands in the arrays `server` and `client`; both must
# succeed. With EXPECTED, the client must print it instead.
pair() {
    local what=$1 port=$2 expected=${3-} job status=0 end=$((SECONDS + 20))
    begun=$SECONDS
    # What earlier processes listened on.
    rm -rf "/proc/${process[$server_at]}/root/dev/shm/"mlx5emu-* "$work/client_ended"
    on "$server_at" "${server[@]}" >"$work/log.server" 2>&1 &
    job=$!
    until listens "$server_at" "$port" || [ $SECONDS -ge $end ]; do sleep 0.03; done
    on "$client_at" "${client[@]}" >"$work/log.client" 2>&1 || status=$?
    : >"$work/client_ended"
    if [ -n "$expected" ]; then
        status=0
        grep -q "$expected" "$work/log.client" || status=1
        end "$server_at"
        wait $job || true
    else
        [ $status -eq 0 ] || end "$server_at"
        wait $job || status=$?
    fi
    [ $status -eq 0 ] || { say FAILED "$what" "$work"/log.*; return 0; }
    say ok "$what"
}

# is_there PROGRAM PACKAGE
is_there() {
    command -v "$1" >/dev/null && return
    say SKIPPED "$1 is not installed (apt-get install $2)"
    return 1
}

# perftest PROGRAM OPTION…
perftest() {
    is_there "$1" perftest || return 0
    local family port=18515
    case " $* " in *' -R '*) port=rdma_cm ;; esac
    for family in "${families[@]}"; do
        # Version 4.5 connects over IPv4, by TCP and by rdma_cm; the option is for the packets.
        [ "$family$port" != 6rdma_cm ] || continue
        # A peer without a processor for seconds is no failure (-u).
        server=("$@" -F -n 200 -u 17)
        [ "$family" = 4 ] || server+=(--ipv6)
        # With one address, the index of the link-local one, which it takes by itself for IPv6, is
        # refused.
        [ "${wire[$server_at]}" = udp ] || server+=(-x 3)
        client=("${server[@]}" "${ipv4[$server_at]}")
        pair "$* IPv$family" $port
    done
}

# address PLACE FAMILY
address() {
    case $2 in
    4) printf '%s' "${ipv4[$1]}" ;;
    6) printf '%s' "${ipv6[$1]}" ;;
    esac
}

rping() {
    is_there rping rdmacm-utils || return 0
    local family to
    for family in "${families[@]}"; do
        to=$(address "$server_at" $family)
        server=(rping -s -a "$to" -C 3 -V)
        client=(rping -c -a "$to" -C 3 -V -v)
        # Its main thread closes the event channel that another one reads, over any kernel.
        pair "rping IPv$family" rdma_cm 'ping data: rdma-ping-2'
    done
}

# ucx TRANSPORT…
ucx() {
    is_there ucx_perftest ucx-utils || return 0
    local tls family
    for tls in "$@"; do
        for family in "${families[@]}"; do
            server=(env "UCX_TLS=$tls" ucx_perftest)
            [ "$family" = 4 ] || server+=(-6)
            client=("${server[@]}" "$(address "$server_at" "$family")" -t tag_lat -n 200 -w 20)
            pair "ucx_perftest, $tls, IPv$family" 13337
        done
    done
}

# dat MANAGER PATH
dat() {
    [ -n "$examples" ] || return 0
    local family port=45248
    [ "$1" != rdma_cm ] || port=rdma_cm
    for family in "${families[@]}"; do
        server=(env "DAT_CM=$1" "DAT_PATH=$2" "$examples/ping_pong" -n 200)
        client=("${server[@]}" "$(address "$server_at" $family)")
        pair "ping_pong, $1, $2 path, IPv$family" $port
    done
}

# mpi: two ranks, started by a script instead of ssh.
mpi() {
    is_there mpicc "openmpi-bin libopenmpi-dev" || return 0
    local place tls
    mpicc -O1 -o "$work/mpi_check" "$here/../../../perf-scripts/lib/mpi_check.c"
    {
        # shellcheck disable=SC2016 # for the script
        printf '#!/bin/sh\nplace=$1; shift\ncase $place in\n'
        for place in "$server_at" "$client_at"; do
            printf '%s) exec %s timeout 60 %s run --wire %s -- sh -c "$*" ;;\n' \
                "$place" "${enter[$place]}" "$launcher" "${wire[$place]}"
        done
        printf 'esac\n'
    } >"$work/agent"
    chmod +x "$work/agent"
    for tls in rc_v rc_x ud_v; do
        if timeout 60 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun \
            --host "$server_at:1,$client_at:1" -n 2 --mca plm_rsh_agent "$work/agent" --mca pml ucx --mca btl self \
            --mca mpi_yield_when_idle 1 -x "UCX_TLS=$tls,self" "$work/mpi_check" >"$work/log.mpirun" 2>&1 </dev/null &&
            grep -q '^checked on 2 ranks' "$work/log.mpirun"; then
            say ok "Open MPI with 2 ranks, $tls"
        else
            say FAILED "Open MPI with 2 ranks, $tls" "$work/log.mpirun"
        fi
    done
}

programs() {
    rping
    perftest ib_write_bw
    dat rdma_cm direct
    [ -n "$all" ] || return 0
    local program
    for program in ib_send_lat ib_read_bw; do perftest $program; done
    for program in ib_send_lat ib_write_bw ib_read_bw; do perftest $program -R; done
    dat rdma_cm verbs
    dat socket direct
    dat socket verbs
    ucx rc_v rc_x ud_v ud_x
    mpi
}

# --- parts -------------------------------------------------------------------

# A bridge of the host, with a virtual Ethernet to each container.
bridge() {
    local name number=2
    # With an Ethernet address of its own, or it changes with each container.
    ip link add bridge0 address 02:00:00:09:00:01 type bridge 2>"$work/why" || skip "no bridge here: $(cat "$work/why")"
    addresses host bridge0 1
    for name in "$@"; do
        container "$name" || skip "no namespaces in a namespace here"
        ip link add "to-$name" type veth peer name eth0 netns "${process[$name]}"
        ip link set "to-$name" master bridge0
        ip link set "to-$name" up
        addresses "$name" eth0 $number
        number=$((number + 1))
    done
}

run_containers() {
    bridge one two
    server_at=one client_at=two
    programs
}

run_host() {
    bridge one
    server_at=host client_at=one
    programs
    [ -n "$all" ] || return 0
    server_at=one client_at=host
    programs
}

# Processes of one namespace do not get the packets of another.
run_address() {
    network one
    server_at=host client_at=one
    server=(rping -s -a 127.0.0.1)
    client=(rping -c -a 127.0.0.1 -C 1 -v)
    pair "127.0.0.1 in two network namespaces" rdma_cm 'RDMA_CM_EVENT_REJECTED'
}

# weather SETTING…: makes a link to the place "one" on which frames are lost and so on, at random.
weather() {
    # Else the weather before would be ready.
    rm -f "$work/sky"
    python3 "$here/weather.py" "${process[one]}" "$@" >"$work/sky" 2>&1 &
    sky=$!
    until grep -qs ready "$work/sky"; do
        kill -0 $sky 2>/dev/null || skip "no tap device: $(tail -n 1 "$work/sky")"
        sleep 0.02
    done
    addresses host eth0 1
    addresses one eth0 2
}

# calm: ends it, and prints what it has done.
calm() {
    kill $sky
    wait $sky || true
    sed -n '$s/^/         /p' "$work/sky"
}

# once WHAT ROUNDS TIMEOUT
once() {
    local family
    for family in "${families[@]}"; do
        # The client asks again if the answer to its disconnect is lost: the host must still be there.
        # shellcheck disable=SC2016
        server=(sh -c '"$@"; status=$?; until [ -e "$0" ]; do sleep 0.05; done; exit $status' "$work/client_ended"
            "$work/exactly_once" server "$(address one "$family")" "$2" "$3")
        client=("$work/exactly_once" client "$(address one "$family")" "$2" "$3")
        pair "$1, IPv$family" rdma_cm
    done
}

run_weather() {
    local rounds=60 seconds=1
    network one || skip "no network namespaces here"
    cc -O1 -Wall -Wextra -o "$work/exactly_once" "$here/exactly_once.c" -lrdmacm -libverbs
    server_at=one client_at=host
    [ -z "$all" ] || { rounds=2000 seconds=4; }
    weather 1 drop=0.02 dup=0.05 reorder=0.1
    once "loss, duplicates and reordering" $rounds 14
    calm
    weather 2 delay=1
    families=(4)
    rm "$work"/log.*
    (
        until grep -qs begun "$work/log.client"; do sleep 0.02; done
        ip link set eth0 down
        sleep $seconds
        ip link set eth0 up
    ) &
    once "a delay of 1 ms, and the link down for $seconds s" $rounds 0
    calm
}

# neighbours: runs the programs in the two places, with an address for each.
neighbours() {
    families=(4) wire[$server_at]=udp=${ipv4[$server_at]} wire[$client_at]=udp=${ipv4[$client_at]}
    programs
    families=(6) wire[$server_at]=udp=${ipv6[$server_at]} wire[$client_at]=udp=${ipv6[$client_at]}
    programs
}

run_interface() {
    local number
    for number in 1 2; do
        process[place$number]=$$ enter[place$number]=''
        addresses place$number lo $number
    done
    server_at=place1 client_at=place2
    neighbours
}

# Of users that no system has.
run_users() {
    setpriv --reuid 65101 --clear-groups true 2>"$work/why" || skip "this needs root: $(cat "$work/why")"
    local number user both
    # They cannot read a folder of root. What is mounted in $work would be removed at the end.
    chmod 777 "$work"
    mkdir /dev/shm/launcher /dev/shm/examples
    mount --bind "$(dirname "$launcher")" /dev/shm/launcher
    launcher=/dev/shm/launcher/$(basename "$launcher")
    [ -z "$examples" ] || { mount --bind "$examples" /dev/shm/examples && examples=/dev/shm/examples; }
    for number in 1 2; do
        user=user$number
        process[$user]=$$ enter[$user]=''
        addresses $user lo $number
        enter[$user]="setpriv --reuid 6510$number --regid 6510$number --clear-groups"
    done
    server_at=user1 client_at=user2
    neighbours
    for both in "udp=${ipv4[user1]}" "udp=${ipv6[user1]}"; do
        wire[user1]=$both wire[user2]=$both
        server=(sleep 50)
        client=(true)
        pair "on one address, $both" roce "user 65101 receives on UDP port 4791 of ${both#udp=}, "
    done
}

case $part in
interface) run_interface ;;
users) run_users ;;
weather) run_weather ;;
containers) run_containers ;;
host) run_host ;;
address) run_address ;;
*) printf 'places.sh: unknown part "%s"; see --help\n' "$part" >&2; exit 1 ;;
esac
exit $failed
