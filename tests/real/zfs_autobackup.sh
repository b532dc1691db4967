#!/bin/bash
# zfs-autobackup selects datasets by a property, makes snapshots where something was written, sends them with properties
# and holds, and thins both sides, for ROUNDS rounds; then transfers that break, that lose their receiver or their
# snapshot, and a dataset that is missing at the source.
. "$(dirname "$0")/lib.sh"
need zfs-autobackup pv mbuffer
. "$(dirname "$0")/backup.bash"
two_pools
# Its snapshots are named after the second.
backup() {
    sleep 1
    zfs-autobackup --verbose --debug-output "$@" >"$work/out" 2>&1
}
good() {
    backup "$@" || { tail -n 40 "$work/out"; fail "zfs-autobackup $*"; }
    grep -E '^! |Traceback|STDERR' "$work/out" | grep -v 'dataset does not exist\|failed to read from stream\|mbuffer\|summary' && { KEEP=1; fail "zfs-autobackup $* complains: $work/out"; }
}
same_trees() {
    local dataset
    for dataset in "$@"; do same_all "src/$dataset" "dst/backup/src/$dataset"; done
}
zfs create dst/backup && zfs create -o autobackup:off=true src/data && zfs create src/data/a || fail "no datasets"
zfs create -o compression=zstd -o com.example:note="two words" src/data/b && zfs create src/data/skipped || fail "no datasets"
zfs create -s -V 64m src/data/volume || fail "no volume"
zfs set autobackup:off=false src/data/skipped || fail "a property"
for dataset in data data/a data/b; do change "$source/$dataset" 0; done

good --clear-mountpoint --clear-refreservation off dst/backup
same_trees data data/a data/b
zfs list dst/backup/src/data/volume >/dev/null || fail "no volume"
zfs list dst/backup/src/data/skipped >/dev/null 2>&1 && fail "what was not selected is there"
[ "$(zfs get -Ho value,source com.example:note dst/backup/src/data/b)" = $'two words\treceived' ] || fail "a user property"
[ "$(zfs get -Ho value,source compression dst/backup/src/data/b)" = $'zstd\treceived' ] || fail "the compression"
newest=$(zfs list -Ho name -t snapshot -S createtxg -d 1 src/data/a | head -n 1)
[ "$(zfs get -Ho value userrefs "$newest")" = 1 ] || fail "the newest snapshot is not held"
zfs destroy "$newest" >/dev/null 2>&1 && fail "a held snapshot was destroyed"

for round in $(seq "$ROUNDS"); do
    # Where nothing was written no snapshot is made.
    before=$(zfs list -Ho name -t snapshot -d 1 src/data/b | wc -l)
    change "$source/data/a" "$round"
    good --clear-mountpoint --keep-source=2 --keep-target=3 off dst/backup
    same_trees data data/a data/b
    [ "$(zfs list -Ho name -t snapshot -d 1 src/data/b | wc -l)" -le "$before" ] || fail "a snapshot without changes"
    [ "$(zfs list -Ho name -t snapshot -d 1 dst/backup/src/data/a | wc -l)" -le 3 ] || fail "not thinned"
done
say "$ROUNDS rounds"

# The connection breaks, then the receiver is killed: each time the next run resumes.
change "$source/data/a" 8 30
CUT=9000000 backup --clear-mountpoint off dst/backup && fail "a broken connection is not told"
interrupted dst/backup/src/data/a
good --clear-mountpoint --debug off dst/backup
grep -qi "resum" "$work/out" || { cat "$work/out"; fail "not resumed"; }
same_trees data/a
change "$source/data/a" 9 40
backup --clear-mountpoint --rate 6M off dst/backup &
kill_receive dst/backup/src/data/a
wait $! && fail "a killed receiver is not told"
interrupted dst/backup/src/data/a
good --clear-mountpoint off dst/backup
grep -qi "resum" "$work/out" || { cat "$work/out"; fail "not resumed after a kill"; }
same_trees data/a

# The snapshot of the token is gone: the state is discarded.
change "$source/data/b" 8 30
CUT=9000000 backup --no-holds off dst/backup && fail "a broken connection is not told"
interrupted dst/backup/src/data/b
newest=$(zfs list -Ho name -t snapshot -S createtxg -d 1 src/data/b | head -n 1)
zfs holds -H "$newest" | cut -f2 | while read -r tag; do zfs release "$tag" "$newest"; done
zfs destroy "$newest" || fail "the snapshot stays"
change "$source/data/b" 9
backup off dst/backup || { tail -n 40 "$work/out"; fail "a lost snapshot"; }
grep -q "no longer exists" "$work/out" || fail "the lost snapshot is not told"
same_trees data/b

# The target was changed, and has a snapshot of its own.
zfs mount dst/backup/src/data/a >/dev/null 2>&1
echo changed >"$(zfs get -Ho value mountpoint dst/backup/src/data/a)/changed"
zfs snapshot dst/backup/src/data/a@own
change "$source/data/a" 10
backup off dst/backup && fail "a changed target was overwritten"
good --rollback --destroy-incompatible off dst/backup
same_trees data/a

# Gone at the source: destroyed at the target after its time.
zfs list -Ho name -t snapshot -d 1 src/data/b | while read -r snapshot; do
    zfs holds -H "$snapshot" | cut -f2 | while read -r tag; do zfs release "$tag" "$snapshot"; done
done
zfs destroy -r src/data/b || fail "data/b stays"
sleep 2
good --destroy-missing=1s off dst/backup
backup --destroy-missing=1s off dst/backup
zfs list dst/backup/src/data/b >/dev/null 2>&1 && { cat "$work/out"; fail "what is missing at the source is still there"; }

# Another tree, sent compressed, with filtered and set properties, under a shorter name.
zfs create -o autobackup:two=child -o compression=lz4 -o recordsize=1M src/other && zfs create -o atime=off src/other/x || fail "no datasets"
change "$source/other/x" 0 10
good --strip-path=1 --zfs-compressed --filter-properties=atime --set-properties=canmount=noauto,readonly=on --buffer=16M two dst/backup
same_all src/other/x dst/backup/other/x
[ "$(zfs get -Ho value readonly dst/backup/other/x)" = on ] || fail "a property was not set"
[ "$(zfs get -Ho source atime dst/backup/other/x)" = default ] || fail "a property was not filtered"
judge_both
pass
