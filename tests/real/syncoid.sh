#!/bin/bash
# syncoid and sanoid replicate a tree with a clone and a volume for ROUNDS rounds; transfers that break or whose receiver
# is killed are resumed by their token; a target that was changed is rolled back; a removed snapshot is replaced by its
# bookmark; sanoid removes old snapshots.
. "$(dirname "$0")/lib.sh"
need syncoid sanoid pv
. "$(dirname "$0")/backup.bash"
two_pools
sync_to() {
    # Its snapshots are named after the second.
    sleep 1
    syncoid --no-command-checks --compress=none "$@" >"$work/out" 2>&1
}
good() {
    sync_to "$@" || { cat "$work/out"; fail "syncoid $*"; }
    grep -iE 'warn|critical|cannot|invalid|uninitialized|usage:' "$work/out" && { cat "$work/out"; fail "syncoid $* complains"; }
}
zfs create src/data && zfs create -o recordsize=16k src/data/a && zfs create -o compression=off src/data/deep || fail "no source"
change "$source/data" 0
change "$source/data/a" 0 20
zfs snapshot src/data/a@base && zfs clone src/data/a@base src/data/clone || fail "no clone"
zfs create -s -V 64m src/data/volume || fail "no volume"
change "$source/data/clone" 1

good -r src/data dst/data
for dataset in data data/a data/deep data/clone; do same_all "src/$dataset" "dst/$dataset"; done
[ "$(zfs get -Ho value origin dst/data/clone)" = dst/data/a@base ] || fail "the clone has no origin"
[ "$(zfs get -Hpo value guid dst/data/volume@"$(zfs list -Ho name -t snapshot dst/data/volume | cut -d@ -f2)")" ] || fail "no volume"
for round in $(seq "$ROUNDS"); do
    change "$source/data" "$round"
    change "$source/data/a" "$round"
    zfs snapshot -r "src/data@mine$round" || fail "no snapshot"
    change "$source/data/clone" "$((round + 1))"
    # The target is changed as well; syncoid rolls back.
    echo changed >"$target/data/changed"
    good -r src/data dst/data
    for dataset in data data/a data/deep data/clone; do same_all "src/$dataset" "dst/$dataset"; done
    [ ! -e "$target/data/changed" ] || fail "a change of the target is still there"
done
say "$ROUNDS rounds"

# The connection breaks in a full and in an incremental stream.
change "$source/data/deep" 1 30
zfs snapshot src/data/deep@large
CUT=9000000 sync_to --identifier=broken src/data/deep dst/broken && fail "a broken connection is not told"
interrupted dst/broken
good --identifier=broken src/data/deep dst/broken
grep -q "^Resuming" "$work/out" || { cat "$work/out"; fail "not resumed"; }
same_all src/data/deep dst/broken
change "$source/data/deep" 2 30
CUT=9000000 sync_to --identifier=broken src/data/deep dst/broken && fail "a broken connection is not told"
interrupted dst/broken
good --identifier=broken src/data/deep dst/broken
grep -q "^Resuming" "$work/out" || { cat "$work/out"; fail "the increment is not resumed"; }
same_all src/data/deep dst/broken

# The receiving command is killed.
change "$source/data/deep" 3 30
SLOW=6m sync_to --identifier=broken src/data/deep dst/broken &
kill_receive dst/broken
wait $!
interrupted dst/broken
good --identifier=broken src/data/deep dst/broken
grep -q "^Resuming" "$work/out" || { cat "$work/out"; fail "not resumed after a kill"; }
same_all src/data/deep dst/broken

# The snapshot that was being sent is gone: syncoid recognizes the message, and begins anew.
change "$source/data/deep" 4 30
zfs snapshot src/data/deep@gone
CUT=9000000 sync_to --no-sync-snap --identifier=broken src/data/deep dst/broken && fail "a broken connection is not told"
interrupted dst/broken
zfs destroy src/data/deep@gone
sync_to --identifier=broken src/data/deep dst/broken || { cat "$work/out"; fail "a lost snapshot"; }
grep -q "resetting partially receive state" "$work/out" || { cat "$work/out"; fail "no reset"; }
same_all src/data/deep dst/broken

# A bookmark stands for a snapshot that was removed.
zfs create src/marked && change "$source/marked" 0 && zfs snapshot src/marked@one || fail "no source"
good --no-sync-snap --create-bookmark src/marked dst/marked
zfs list -t bookmark "src/marked#one" >/dev/null || fail "no bookmark"
zfs destroy src/marked@one && change "$source/marked" 1 && zfs snapshot src/marked@two || fail "no second snapshot"
good --no-sync-snap src/marked dst/marked
same src/marked@two dst/marked@two

# A renamed dataset is a new one for syncoid; properties and flags of send and receive.
zfs rename src/data/deep src/data/renamed || fail "rename"
good -r --sendoptions="L c e p" --recvoptions="u o canmount=noauto x compression" src/data dst/data
same_all src/data/renamed dst/data/renamed
[ "$(zfs get -Ho value,source canmount dst/data/renamed)" = $'noauto\tlocal' ] || fail "-o canmount"
good --force-delete --identifier=marked src/data/renamed dst/marked
same_all src/data/renamed dst/marked

# Retention.
mkdir -p "$work/sanoid" "$work/cache" "$work/run"
cp /usr/share/sanoid/sanoid.defaults.conf "$work/sanoid/" || fail "no defaults of sanoid"
cat >"$work/sanoid/sanoid.conf" <<END
[src/data]
    use_template = short
    recursive = yes
[template_short]
    hourly = 1
    daily = 1
    monthly = 0
    yearly = 0
    autosnap = yes
    autoprune = yes
END
keep() {
    sanoid --configdir="$work/sanoid" --cache-dir="$work/cache" --run-dir="$work/run" "$@" >"$work/out" 2>&1 || { cat "$work/out"; fail "sanoid $*"; }
    grep -iE 'cannot|could not|error|uninit' "$work/out" && fail "sanoid $* complains"
}
keep --take-snapshots --verbose
[ "$(zfs list -Ho name -t snapshot -r src/data | grep -c '@autosnap_.*_hourly')" = 5 ] || { cat "$work/out"; fail "sanoid made no snapshots"; }
# The age of a snapshot is its property `creation`, which nothing changes: the newest ones are kept, none is wanted now.
sed -i 's/hourly = 1/hourly = 0/' "$work/sanoid/sanoid.conf"
sleep 2
keep --prune-snapshots --verbose --force-update
zfs list -Ho name -t snapshot -r src/data | grep '_hourly' && { cat "$work/out"; fail "sanoid removed nothing"; }
sanoid --configdir="$work/sanoid" --cache-dir="$work/cache" --run-dir="$work/run" --monitor-health | grep "^OK" >/dev/null || fail "the health of the pools"
good -r src/data dst/data
judge_both
pass
