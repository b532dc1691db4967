#!/bin/bash
# The server of the mount and the programs that use it share a memory limit (LIMIT_MB), several times smaller than the
# data that are written and read (SIZE_MB): no process is killed or hangs, and all data read are right. TREE is a
# folder of /usr.
. "$(dirname "$0")/lib.sh"
need fio tar
: "${LIMIT_MB:=1024}" "${SIZE_MB:=4096}" "${PATIENCE:=900}"

# The control group: version 2 if it has the memory controller, else version 1.
for group in /sys/fs/cgroup /sys/fs/cgroup/unified; do
    grep -qw memory "$group/cgroup.controllers" 2>/dev/null && kind=2 && break
done
if [ -n "${kind:-}" ]; then
    echo +memory >"$group/cgroup.subtree_control" 2>/dev/null
    group=$group/cenote-real.$$
    mkdir "$group" && echo $((LIMIT_MB << 20)) >"$group/memory.max" || { echo "SKIP $name: no cgroup"; exit 0; }
    echo 0 >"$group/memory.swap.max" 2>/dev/null
    peak=memory.peak
    killed() { awk '$1 == "oom_kill" { print $2 }' "$group/memory.events"; }
else
    group=/sys/fs/cgroup/memory/cenote-real.$$
    mkdir "$group" 2>/dev/null && echo $((LIMIT_MB << 20)) >"$group/memory.limit_in_bytes" ||
        { echo "SKIP $name: no cgroup"; exit 0; }
    peak=memory.max_usage_in_bytes
    killed() { awk '$1 == "oom_kill" { print $2 }' "$group/memory.oom_control"; }
fi
leave() {
    clean
    while read -r process; do echo "$process" >"$group/../cgroup.procs"; done <"$group/cgroup.procs" 2>/dev/null
    rmdir "$group"
}
trap leave EXIT
echo $$ >"$group/cgroup.procs" || fail "the group takes nobody in"
# fio leaves files in its working folder.
cd "$work" || fail "no folder"

within() {
    timeout -k 5 "$PATIENCE" "$@"
    case $? in
        0) ;;
        124 | 137) fail "killed, or it hangs: $*" ;;
        *) fail "$*" ;;
    esac
    [ "$(killed)" = 0 ] || fail "somebody was killed for want of memory"
    kill -0 "$server" 2>/dev/null || fail "the server is gone: $(tail -n 3 "$work/log")"
}
io() {
    within fio --directory="$at" --verify=crc32c --verify_fatal=1 --randseed=5 --bs=128k --output="$work/fio" "$@"
}

create $((SIZE_MB * 2))M
grep -q "$(basename "$group")" "/proc/$server/cgroup" || fail "the server is not in the group"
io --name=stream --rw=write --size="${SIZE_MB}M" --end_fsync=1 --do_verify=1
rm "$at"/stream*
# Many writers at once, direct and through the cache, and pages that are written through memory maps.
io --name=random --rw=randwrite --numjobs=8 --size=$((SIZE_MB / 16))M --bs=16k --do_verify=1
io --name=direct --rw=randwrite --numjobs=8 --size=$((SIZE_MB / 16))M --bs=16k --direct=1 --do_verify=1
rm "$at"/direct*
io --name=mapped --rw=randwrite --ioengine=mmap --numjobs=4 --size=$((SIZE_MB / 8))M --bs=4k --do_verify=1
rm "$at"/mapped*
mkdir "$at/tree"
within tar -C /usr -cf "$at/tree.tar" "${TREE:-include}"
within tar -C "$at/tree" -xf "$at/tree.tar"
within diff -r --no-dereference "/usr/${TREE:-include}" "$at/tree/${TREE:-include}"
say "peak $(($(cat "$group/$peak") >> 20)) MiB of $LIMIT_MB, of the server $(awk '/VmHWM/ { print int($2 / 1024) }' "/proc/$server/status")"
unmount
# The judges are outside of the limit: zdb needs much memory.
echo $$ >"$group/../cgroup.procs" || fail "the group lets nobody out"
judge
pass
