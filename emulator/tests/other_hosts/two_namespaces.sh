# Runs a command of rping in two network namespaces of a user without privileges, connected by
# a virtual Ethernet, over IPv4 and IPv6. Arguments: the command, up to rping's options.
set -e
ip link set lo up
unshare -n sleep 300 &
other=$!
trap 'kill $other' EXIT
own=$(readlink /proc/self/ns/net)
while [ "$(readlink /proc/$other/ns/net)" = "$own" ]; do sleep 0.02; done
in_other() { nsenter -n -t $other "$@"; }
ip link add eth0 type veth peer name eth0 netns $other
ip addr add 10.9.0.1/24 dev eth0
ip addr add fd09::1/64 dev eth0 nodad
ip link set eth0 up
in_other ip addr add 10.9.0.2/24 dev eth0
in_other ip addr add fd09::2/64 dev eth0 nodad
in_other ip link set lo up
in_other ip link set eth0 up
for address in 10.9.0.1 fd09::1; do
    "$@" -s -a $address -C 3 -V &
    server=$!
    # The client is rejected until the server listens.
    tries=0
    until in_other "$@" -c -a $address -C 3 -V -v; do
        tries=$((tries + 1))
        [ $tries -lt 30 ]
        sleep 0.2
    done
    wait $server || true
done
