"""A link between two network namespaces that loses, duplicates, delays and reorders packets.

usage: weather.py PID SEED [drop=P] [dup=P] [reorder=P] [delay=MS]

Makes an interface eth0 in this namespace and one in that of process PID, prints "ready", and
moves Ethernet frames between them. What happens to a frame with UDP is chosen at random, the
others all arrive. Prints what happened when it is ended by SIGTERM.
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import signal
import struct
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI, UDP = 0x400454CA, 0x0002, 0x1000, 17
REORDERED = 0.002  # seconds by which other frames overtake


def tap():
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", b"eth0", IFF_TAP | IFF_NO_PI))
    return fd


def enter(pid):
    with open(f"/proc/{pid}/ns/net") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")


def is_udp(frame):
    kind = frame[12:14]
    return (kind == b"\x08\x00" and frame[23] == UDP) or (kind == b"\x86\xdd" and frame[20] == UDP)


def main():
    pid, seed = sys.argv[1:3]
    chance = {"drop": 0.0, "dup": 0.0, "reorder": 0.0, "delay": 0.0}
    for argument in sys.argv[3:]:
        name, value = argument.split("=")
        chance[name] += float(value)
    choose = random.Random(int(seed))
    first = tap()
    enter(pid)
    second = tap()
    other = {first: second, second: first}
    counts = {"passed": 0, "drop": 0, "dup": 0, "reorder": 0}
    waiting = []  # (time at which it is due, number, descriptor, frame)
    number = 0
    is_over = []
    signal.signal(signal.SIGTERM, lambda *_: is_over.append(True))
    print("ready", flush=True)
    while not is_over:
        timeout = max(0, waiting[0][0] - time.monotonic()) if waiting else 0.1
        for fd in select.select([first, second], [], [], timeout)[0]:
            try:
                frame = os.read(fd, 65536)
            except OSError:  # the interface is down
                time.sleep(0.001)
                continue
            due, copies = time.monotonic(), 1
            if is_udp(frame):
                due += chance["delay"] / 1000
                if choose.random() < chance["drop"]:
                    counts["drop"] += 1
                    copies = 0
                elif choose.random() < chance["dup"]:
                    counts["dup"] += 1
                    copies = 2
                if choose.random() < chance["reorder"]:
                    counts["reorder"] += 1
                    due += REORDERED
            for _ in range(copies):
                heapq.heappush(waiting, (due, number, other[fd], frame))
                number += 1
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, fd, frame = heapq.heappop(waiting)
            try:
                os.write(fd, frame)
                counts["passed"] += 1
            except OSError:  # down, or its queue is full
                pass
    print(counts, flush=True)


main()
