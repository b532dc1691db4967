#!/bin/bash
# pyznap takes snapshots by its plan, sends them, and removes old ones, for ROUNDS rounds; a transfer that breaks and one
# that loses its receiver are resumed; a renamed dataset; a target that has no snapshot in common.
. "$(dirname "$0")/lib.sh"
need pyznap pv
. "$(dirname "$0")/backup.bash"
two_pools
run() {
    pyznap -v --config "$work/pyznap.conf" "$@" >"$work/out" 2>&1
}
# It tells problems by messages, not by its exit code.
good() {
    run "$@" || { cat "$work/out"; fail "pyznap $*"; }
    grep -E 'ERROR|Traceback|WARNING' "$work/out" && { cat "$work/out"; fail "pyznap $* complains"; }
}
same_trees() {
    local dataset
    for dataset in "$@"; do same_all "src/$dataset" "dst/backup/$dataset"; done
}
zfs create src/data && zfs create -o recordsize=16k src/data/a && zfs create src/data/excluded && zfs create dst/backup || fail "no datasets"
zfs create dst/backup/data || fail "no target"
for dataset in data data/a; do change "$source/$dataset" 0; done
cat >"$work/pyznap.conf" <<END
[src/data]
    frequent = 2
    hourly = 1
    snap = yes
    clean = yes
    dest = dst/backup/data
    exclude = src/data/excluded
    resume = yes
    dest_auto_create = yes
[src/data/excluded]
    snap = no
    clean = no
[dst/backup/data]
    frequent = 3
    hourly = 1
    clean = yes
END
good snap --take
[ "$(zfs list -Ho name -t snapshot -r src/data | grep -c '_\(frequent\|hourly\)$')" -ge 4 ] || { cat "$work/out"; fail "no snapshots"; }
good send
same_trees data data/a
zfs list dst/backup/data/excluded >/dev/null 2>&1 && fail "what is excluded was sent"
for round in $(seq "$ROUNDS"); do
    change "$source/data/a" "$round"
    # Its own snapshots are due every 15 minutes; it sends others too, and removes its own only.
    zfs snapshot -r "src/data@pyznap_2020-01-0${round}_00:00:00_frequent" || fail "no snapshot"
    zfs snapshot -r "src/data@mine$round"
    good send
    same_trees data data/a
    good snap --clean
    [ "$(zfs list -Ho name -t snapshot -d 1 src/data/a | grep -c '_frequent$')" -le 2 ] || { cat "$work/out"; fail "old snapshots are still there"; }
    [ "$(zfs list -Ho name -t snapshot -d 1 dst/backup/data/a | grep -c '_frequent$')" -le 3 ] || { cat "$work/out"; fail "old snapshots of the target are still there"; }
done
say "$ROUNDS rounds"

# A transfer that breaks.
change "$source/data/a" 8 30
zfs snapshot src/data/a@large
CUT=9000000 run send
grep -q ERROR "$work/out" || { cat "$work/out"; fail "a broken connection is not told"; }
interrupted dst/backup/data/a
good send
grep -q "Found resume token" "$work/out" || { cat "$work/out"; fail "not resumed"; }
same_trees data/a

# The receiver is killed.
change "$source/data/a" 9 30
zfs snapshot src/data/a@larger
SLOW=6m run send &
kill_receive dst/backup/data/a
wait $!
interrupted dst/backup/data/a
good send
grep -q "Found resume token" "$work/out" || { cat "$work/out"; fail "not resumed after a kill"; }
same_trees data/a

# A renamed dataset is new to it. A target that changed is overwritten, one without a common snapshot is refused.
zfs rename src/data/a src/data/b || fail "rename"
zfs mount dst/backup/data >/dev/null 2>&1
echo changed >"$target/backup/data/changed"
change "$source/data" 1
zfs snapshot -r src/data@renamed
good send
same_trees data data/b
[ ! -e "$target/backup/data/changed" ] || fail "a change of the target is still there"
zfs create src/single && zfs snapshot src/single@here && zfs create dst/single && zfs snapshot dst/single@there || fail "no datasets"
pyznap --config "$work/pyznap.conf" send -s src/single -d dst/single >"$work/out" 2>&1
grep -q "No common snapshots" "$work/out" || { cat "$work/out"; fail "a target without a common snapshot"; }
pyznap --config "$work/pyznap.conf" send -s src/single -d dst/nosuch/single >"$work/out" 2>&1
grep -q "does not exist" "$work/out" || { cat "$work/out"; fail "a missing target"; }
judge_both
pass
