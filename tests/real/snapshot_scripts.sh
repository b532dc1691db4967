#!/bin/bash
# What home-made scripts for snapshots and backups do: rolling recursive snapshots, retention by creation time and by
# ranges, holds, bookmarks, replication with `-R -I`, with a raw list of missing snapshots, and through files; transfers that
# break; renamed and promoted datasets; ROUNDS rounds.
. "$(dirname "$0")/lib.sh"
need pv
. "$(dirname "$0")/backup.bash"
two_pools
ok() { "$@" >"$work/out" 2>&1 || { cat "$work/out"; fail "$*"; }; [ ! -s "$work/out" ] || { cat "$work/out"; fail "$* says something"; }; }
refused() {
    local message=$1
    shift
    "$@" >"$work/out" 2>&1 && fail "not refused: $*"
    grep -qF "$message" "$work/out" || { cat "$work/out"; fail "$*: not '$message'"; }
}
newest() { zfs list -H -p -t snapshot -o name -S createtxg -d 1 "$1" | head -n 1 | cut -d@ -f2; }
common() {
    comm -12 <(zfs list -Hp -t snapshot -o guid -d 1 "$1" | sort) <(zfs list -Hp -t snapshot -o guid -d 1 "$2" | sort) |
        while read -r guid; do zfs list -Hp -t snapshot -o createtxg,guid,name -d 1 "$1" | awk -v g="$guid" '$2 == g'; done |
        sort -n | tail -n 1 | cut -d@ -f2
}
ok zfs create src/home && ok zfs create -o compression=gzip src/home/ann && ok zfs create -o quota=1G src/home/bob
ok zfs create -s -V 32m src/home/disk
for user in ann bob; do change "$source/home/$user" 0; done
ok zfs snapshot -r src/home@snap-0
zfs send -R src/home@snap-0 >"$work/full" && ok zfs receive -u dst/home <"$work/full"
for user in ann bob; do same_all "src/home/$user" "dst/home/$user"; done
[ "$(zfs get -Hp -o value,source quota dst/home/bob)" = "$((1 << 30))"$'\treceived' ] || fail "the quota"
for round in $(seq "$ROUNDS"); do
    for user in ann bob; do change "$source/home/$user" "$round"; done
    for n in 1 2 3; do
        ok zfs snapshot -r "src/home@snap-$round.$n"
        echo "$n" >>"$source/home/ann/log"
    done
    [ "$(zfs get -Hp -o value "written@snap-$round.1" src/home/ann)" -gt 0 ] || fail "nothing written"
    from=$(common src/home dst/home) && [ -n "$from" ] || fail "no snapshot in common"
    to=$(newest src/home)
    ok zfs hold -r backup "src/home@$to"
    zfs send -R -I "@$from" "src/home@$to" | pv -q | zfs receive -u -F dst/home >"$work/out" 2>&1 || { cat "$work/out"; fail "replication"; }
    zfs list -H -r -t snapshot -o name src/home | grep "@$from$" | while read -r one; do
        [ "$(zfs get -Hp -o value userrefs "$one")" = 0 ] || ok zfs release backup "$one"
    done
    for user in ann bob; do same_all "src/home/$user" "dst/home/$user"; done
    # Retention: a range in the middle, and all but the two newest at the target.
    zfs destroy -nvp "src/home/ann@snap-$round.1%snap-$round.2" >"$work/out" || fail "a dry run"
    [ "$(grep -c ^destroy "$work/out")" = 2 ] || { cat "$work/out"; fail "a range"; }
    ok zfs destroy -r "src/home@snap-$round.1%snap-$round.2"
    zfs list -H -t snapshot -o name -s creation -d 1 dst/home/bob | head -n -2 | while read -r one; do ok zfs destroy "$one"; done
    [ "$(zfs list -H -t snapshot -o name -d 1 dst/home/bob | wc -l)" = 2 ] || fail "retention at the target"
    refused "it's being held" zfs destroy "src/home/ann@$to"
done
say "$ROUNDS rounds"

# One by one what is missing, from bookmarks, as a user would catch up.
last=$(newest src/home/bob)
ok zfs bookmark "src/home/bob@$last" "src/home/bob#last"
for n in 1 2 3; do
    change "$source/home/bob" $((ROUNDS + n)) 1
    ok zfs snapshot "src/home/bob@day-$n"
done
zfs send -i "#last" src/home/bob@day-1 | zfs receive -u dst/home/bob || fail "from a bookmark"
zfs send -I @day-1 src/home/bob@day-3 | zfs receive -u dst/home/bob || fail "an interval"
same_all src/home/bob dst/home/bob

# A broken transfer, resumed, then one that is given up.
change "$source/home/ann" 20 30
ok zfs snapshot src/home/ann@large
last=$(common src/home/ann dst/home/ann)
zfs send -i "@$last" src/home/ann@large | head -c 9000000 | zfs receive -s -u dst/home/ann >"$work/out" 2>&1 && fail "a broken transfer is not told"
grep -q "zfs send -t 1-" "$work/out" || { cat "$work/out"; fail "no token is told"; }
interrupted dst/home/ann
refused 'contains partially-complete state from "zfs receive -s"' bash -c "zfs send -i '@$last' src/home/ann@large | zfs receive -u dst/home/ann"
zfs send -t "$(token dst/home/ann)" | head -c 9000000 | zfs receive -s -u dst/home/ann >/dev/null 2>&1 && fail "a broken transfer is not told"
zfs send -t "$(token dst/home/ann)" | zfs receive -s -u dst/home/ann || fail "not resumed"
[ "$(token dst/home/ann)" = - ] || fail "the token is still there"
same_all src/home/ann dst/home/ann
change "$source/home/ann" 21 30
ok zfs snapshot src/home/ann@huge
zfs send -i @large src/home/ann@huge | head -c 9000000 | zfs receive -s -u dst/home/ann >/dev/null 2>&1
interrupted dst/home/ann
ok zfs receive -A dst/home/ann
refused "does not have any resumable receive state to abort" zfs receive -A dst/home/ann
zfs send -i @large src/home/ann@huge | zfs receive -u dst/home/ann || fail "after giving up"
same_all src/home/ann dst/home/ann

# Renamed, moved, cloned and promoted, and destroyed at the source; the target follows.
zfs list -H -r -t snapshot -o name src/home | while read -r one; do
    zfs holds -H "$one" | cut -f2 | while read -r tag; do ok zfs release "$tag" "$one"; done
done
ok zfs snapshot -r src/home@before
zfs send -R -I "@$(common src/home dst/home)" src/home@before | zfs receive -F dst/home 2>"$work/out" || { cat "$work/out"; fail "before renames"; }
ok zfs rename src/home/bob src/home/bert && ok zfs create src/home/group && ok zfs rename src/home/ann src/home/group/ann
ok zfs clone src/home/bert@before src/home/bill && change "$source/home/bill" 40 && ok zfs promote src/home/bill
ok zfs destroy -r src/home/disk
ok zfs snapshot -r src/home@after
zfs send -R -I @before src/home@after >"$work/stream" || fail "send"
zfs receive -v -F dst/home <"$work/stream" >"$work/out" 2>&1 || { cat "$work/out"; fail "after renames"; }
[ "$(zfs list -H -r -o name dst/home | sed s/^dst/src/)" = "$(zfs list -H -r -o name src/home)" ] || { zfs list -r dst/home; fail "other datasets"; }
[ "$(zfs get -Ho value origin dst/home/bert)" = dst/home/bill@before ] || fail "not promoted"
for dataset in group/ann bert bill; do
    same_all "src/home/$dataset" "dst/home/$dataset"
    [ "$(zfs get -Ho value mounted "dst/home/$dataset")" = yes ] || fail "$dataset is not mounted"
done
judge_both
pass
