#!/usr/bin/env python3
"""What faults.sh uses.

load MOUNT STOP      writes and reads files, and checks every byte, until there is a file STOP
resize LOOP BYTES    the loop device has only so many bytes from now on; 0: as many as its file
rot LOOP SEED        overwrites parts of the device with garbage, but none of its labels
"""
import fcntl
import hashlib
import mmap
import os
import random
import struct
import sys
import threading
import traceback

BLOCK = 32768
BLOCKS = 600
THREADS = 4
GET_STATUS, SET_STATUS = 0x4C05, 0x4C04
SIZE_LIMIT_AT, STATUS_SIZE = 32, 232


def block(key):
    """Bytes that only this key has."""
    return hashlib.shake_128(key.encode()).digest(BLOCK)


def worker(mount, who, stop, counts):
    """Overwrites blocks of a file, makes and removes small ones, syncs, and reads back past the cache."""
    chance = random.Random(who)
    path = f"{mount}/big{who}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
    page = mmap.mmap(-1, BLOCK)
    versions, small = {}, {}
    number = 0
    while not os.path.exists(stop):
        number += 1
        at = chance.randrange(BLOCKS)
        versions[at] = number
        os.pwrite(fd, block(f"{who}.{at}.{number}"), at * BLOCK)
        if number % 16 == 0:
            os.fsync(fd)
        counts[0] += 1
        for at in chance.sample(sorted(versions), min(3, len(versions))):
            got = os.preadv(direct, [page], at * BLOCK)
            if got != BLOCK or page[:] != block(f"{who}.{at}.{versions[at]}"):
                raise AssertionError(f"wrong bytes in block {at} of {path}")
            counts[1] += 1
        name = f"{mount}/small{who}.{chance.randrange(200)}"
        if name in small:
            with open(name, "rb") as file:
                if file.read() != block(small[name])[:5000]:
                    raise AssertionError(f"wrong bytes in {name}")
            os.unlink(name)
            del small[name]
        else:
            small[name] = f"{name}.{number}"
            with open(name, "wb") as file:
                file.write(block(small[name])[:5000])
    for name, key in small.items():
        with open(name, "rb") as file:
            if file.read() != block(key)[:5000]:
                raise AssertionError(f"wrong bytes in {name}")
    for at, version in versions.items():
        os.preadv(direct, [page], at * BLOCK)
        if page[:] != block(f"{who}.{at}.{version}"):
            raise AssertionError(f"wrong bytes in block {at} of {path}")


def load(mount, stop):
    counts = [[0, 0] for _ in range(THREADS)]

    def guarded(who):
        try:
            worker(mount, who, stop, counts[who])
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    threads = [threading.Thread(target=guarded, args=(who,)) for who in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    written, read = (sum(count[i] for count in counts) for i in (0, 1))
    print(f"{written} blocks written, {read} read, all right")


def resize(loop, size):
    fd = os.open(loop, os.O_RDONLY)
    status = bytearray(STATUS_SIZE)
    fcntl.ioctl(fd, GET_STATUS, status)
    struct.pack_into("<Q", status, SIZE_LIMIT_AT, size)
    fcntl.ioctl(fd, SET_STATUS, bytes(status))


def rot(loop, seed):
    chance = random.Random(seed)
    # Below the device, as bits flip: in the file behind it.
    name = os.path.basename(loop)
    with open(f"/sys/block/{name}/loop/backing_file", encoding="utf-8") as file:
        path = file.read().strip()
    fd = os.open(path, os.O_RDWR)
    end = os.fstat(fd).st_size - (1 << 20)
    for _ in range(3000):
        at = chance.randrange(5 << 20, end) & ~511
        os.pwrite(fd, chance.randbytes(512), at)
    os.fsync(fd)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["load", mount, stop]:
            load(mount, stop)
        case ["resize", loop, size]:
            resize(loop, int(size))
        case ["rot", loop, seed]:
            rot(loop, seed)
        case _:
            sys.exit(__doc__)
