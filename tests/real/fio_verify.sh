#!/bin/bash
# fio writes with every engine, direct and through the cache, and verifies what it reads; then once more after a mount.
. "$(dirname "$0")/lib.sh"
need fio
create 8G recordsize=16k
run() {
    fio --directory="$at" --size="${SIZE:-48M}" --bsrange=4k-64k --bs_unaligned=0 --ba=4k --verify=crc32c --verify_fatal=1 --verify_state_save=0 \
        --randseed=7 --rw=randwrite --output="$work/fio" "$@" ||
        { tail -n 20 "$work/fio"; fail "fio $*"; }
}
jobs() {
    for engine in sync psync libaio io_uring mmap; do
        for direct in 0 1; do
            [ "$engine$direct" = mmap1 ] && continue
            depth=1
            case $engine in libaio | io_uring) depth=16 ;; esac
            run --name="$engine$direct" --ioengine="$engine" --direct="$direct" --iodepth="$depth" "$@"
        done
    done
}
jobs --do_verify=1
jobs --fsync=32 --do_verify=1
unmount
judge
serve
jobs --verify_only --fsync=32
unmount
pass
