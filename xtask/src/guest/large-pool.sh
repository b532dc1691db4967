# Runs in the guest: large-pool.sh IMAGE. Makes the pool `large` of more than 4 GiB in an attached image, for
# `cargo xtask bench read --peer`: lz4, half of it in small files, half in large records, a quarter of each block compresses.
set -e
zpool create -f -O compression=lz4 -O atime=off -O mountpoint=/mnt/large large "/kp/files/$1"
zfs create large/small
zfs create -o recordsize=1M large/records
python3 - <<'PYTHON'
import os, random
random.seed(1)
noise = os.urandom(64 << 20)
def block(size):
    at = random.randrange(0, len(noise) - size)
    return noise[at:at + size * 3 // 4] + bytes(size - size * 3 // 4)
with open("/mnt/large/records/file", "wb", buffering=0) as out:
    for _ in range(3 << 10):
        out.write(block(1 << 20))
# Sizes of 1 to 64 KiB, small ones more often.
total, number = 0, 0
while total < 3 << 30:
    if number % 500 == 0:
        folder = "/mnt/large/small/%d" % (number // 500)
        os.mkdir(folder)
    size = 1 << random.randrange(10, 17)
    with open("%s/%d" % (folder, number), "wb", buffering=0) as out:
        out.write(block(size))
    total, number = total + size, number + 1
PYTHON
zpool sync large
zpool list large
zpool export large
