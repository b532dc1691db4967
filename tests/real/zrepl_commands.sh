#!/bin/bash
# The commands that zrepl 0.6 runs for its `push` and `pull` jobs, in its order and with its flags, and the patterns that it
# looks for in their output. zrepl itself is not run: it is a Go program that Debian does not have. The jobs' state is what
# zrepl keeps in pools: placeholders, step holds, cursors as bookmarks, and resume tokens. ROUNDS rounds.
. "$(dirname "$0")/lib.sh"
need pv
. "$(dirname "$0")/backup.bash"
two_pools
job=backup
fs=src/data
copy=dst/sink/host/src/data

ok() { "$@" >"$work/out" 2>&1 || { cat "$work/out"; fail "$*"; }; [ ! -s "$work/out" ] || { cat "$work/out"; fail "$* says something"; }; }
# says PATTERN COMMAND...: the command fails, and one line of its output has the pattern.
says() {
    local pattern=$1
    shift
    "$@" >"$work/out" 2>&1 && fail "not refused: $*"
    grep -qP -e "$pattern" "$work/out" || { cat "$work/out"; fail "$*: not '$pattern'"; }
}
versions() { zfs list -H -p -o type,name,guid,createtxg,creation,userrefs -r -d 1 -t bookmark,snapshot -s createtxg "$1"; }
guid() { zfs get -Hp -o name,property,value,source guid "$1" | cut -f3; }
# A property, if its source begins with the given word.
property() { zfs get -Hp -o name,property,value,source "$1" "$2" | awk -F'\t' -v s="$3" 'NF != 4 { exit 1 } index($4, s) == 1 { print $3 }'; }

# What the commands can do is read in their texts of usage.
for probe in "send|receive_resume_token" "receive|-A <filesystem\\|volume>" "destroy|<filesystem\\|volume>@<snap>\\[%<snap>\\]\\[,\\.\\.\\.\\]" \
    "load-key|load-key" "load-key|keylocation"; do
    says "${probe#*|}" zfs "${probe%%|*}"
done
[[ $(zpool get -H -p -o value feature@extensible_dataset dst) =~ ^(active|enabled)$ ]] || fail "extensible_dataset"
[ "$(property encryption src any)$(zfs get -Hp -o value encryption src)" = off ] || fail "encryption of an unencrypted pool"

ok zfs create $fs && ok zfs create -o recordsize=1M $fs/large && ok zfs create -s -V 64m $fs/disk
# The sink has a placeholder for each level that has no copy of its own.
says "^cannot open 'dst/sink': (dataset does not exist|no such pool or dataset)" zfs get -Hp -o name,property,value,source zrepl:placeholder dst/sink
for level in dst/sink dst/sink/host dst/sink/host/src; do
    ok zfs create -o zrepl:placeholder=on -o mountpoint=none $level
    [ "$(property zrepl:placeholder $level local)" = on ] || fail "the placeholder $level"
done
[ "$(zfs list -H -p -o name -r -t filesystem,volume dst/sink | wc -l)" = 3 ] || fail "placeholders"

# replicate FS COPY [CUT]: one step, from the newest version in common.
replicate() {
    local fs=$1 copy=$2 to from= flags=() receive=(-s -x mountpoint -o canmount=noauto) size tag=zrepl_STEP_J_$job token
    [[ $fs != */disk ]] || receive=(-s)
    to=$(versions "$fs" | awk -F'\t' '$1 == "snapshot" { n = $2 } END { sub(/.*@/, "", n); print n }')
    if zfs list -H -o name "$copy" >/dev/null 2>&1; then
        from=$(versions "$fs" | while IFS=$'\t' read -r _ name guid _; do
            versions "$copy" | cut -f3 | grep -qx "$guid" && echo "${name#"$fs"}"
        done | tail -n 1)
        [ -n "$from" ] || fail "$fs and $copy have no version in common"
        [ "$(guid "$fs$from")" != "$(guid "$fs@$to")" ] || fail "$fs: nothing new"
        flags=(-i "$fs$from")
    fi
    # zrepl holds what it sends, and what it sends from.
    ok zfs hold $tag "$fs@$to"
    says "tag already exists on this dataset" zfs hold $tag "$fs@$to"
    [[ $from != @* ]] || ok zfs hold $tag "$fs$from"
    [ "$(zfs holds -H "$fs@$to" | cut -f1,2)" = "$fs@$to"$'\t'$tag ] || fail "zfs holds"
    # The plan shows a size.
    zfs send -n -v -P -L -c -e "${flags[@]}" "$fs@$to" >"$work/dry" 2>&1 || { cat "$work/dry"; fail "a dry send"; }
    if [ -z "$from" ]; then
        size=$(grep -oP "^full\t[^\t]+@[^\t]+\t\K[0-9]+$" "$work/dry")
    else
        size=$(grep -oP "^incremental\t[^\t]+\t[^\t]+@[^\t]+\t\K[0-9]+$" "$work/dry")
    fi
    [ -n "$size" ] || { cat "$work/dry"; fail "the plan of $fs"; }
    if [ -n "${3:-}" ]; then
        zfs send -L -c -e "${flags[@]}" "$fs@$to" | head -c "$3" | zfs recv "${receive[@]}" "$copy@$to" >"$work/out" 2>&1 &&
            fail "a broken transfer is not told"
        token=$(grep -ozP "A resuming stream can be generated on the sending system by running:\s+zfs send -t\s\K(\S+)" "$work/out" | tr -d '\0')
        [ "$token" = "$(property receive_resume_token "$copy" -)" ] || { cat "$work/out"; fail "the token of $copy"; }
        zfs send -nvt "$token" >"$work/token" 2>&1
        grep -qzP "resume token contents:\nnvlist version: 0" "$work/token" || { cat "$work/token"; fail "the contents of a token"; }
        [ "$(($(grep -oP "\ttoguid = \K.*" "$work/token")))" = "$(($(guid "$fs@$to")))" ] || fail "toguid"
        [ "$(grep -oP "\ttoname = \K.*" "$work/token")" = "$fs@$to" ] || fail "toname"
        [ -z "$from" ] || [ "$(($(grep -oP "\tfromguid = \K.*" "$work/token")))" = "$(($(guid "$fs$from")))" ] || fail "fromguid"
        zfs send -t "$token" | zfs recv -s "$copy@$to" || fail "not resumed"
    else
        zfs send -L -c -e "${flags[@]}" "$fs@$to" | zfs recv "${receive[@]}" "$copy@$to" >"$work/out" 2>&1 ||
            { cat "$work/out"; fail "receive"; }
    fi
    [ "$(property receive_resume_token "$copy" -)" = - ] || fail "a token is left"
    # The cursor moves, the sink holds its newest, and the holds of the step go.
    local cursor=zrepl_CURSOR_G_$(printf %x "$(guid "$fs@$to")")_J_$job
    ok zfs bookmark "$fs@$to" "$fs#$cursor"
    says "^cannot create bookmark '[^']+': bookmark exists" zfs bookmark "$fs@$to" "$fs#$cursor"
    [ "$(guid "$fs#$cursor")" = "$(guid "$fs@$to")" ] || fail "the cursor"
    ok zfs hold zrepl_last_received_J_$job "$copy@$to"
    versions "$fs" | awk -F'\t' '$1 == "snapshot" && $6 > 0 { print $2 }' >"$work/held"
    mapfile -t held <"$work/held"
    zfs release $tag "${held[@]}" >"$work/out" 2>&1
    ! grep -v "no such tag on this dataset" "$work/out" || fail "zfs release"
    versions "$copy" | awk -F'\t' -v new="$copy@$to" '$1 == "snapshot" && $6 > 0 && $2 != new { print $2 }' >"$work/held"
    while read -r old; do ok zfs release zrepl_last_received_J_$job "$old"; done <"$work/held"
    versions "$fs" | awk -F'\t' -v new="$fs#$cursor" '$1 == "bookmark" && $2 != new { print $2 }' >"$work/old"
    while read -r old; do ok zfs destroy "$old"; done <"$work/old"
    zfs snapshot "$fs@$to" >"$work/out" 2>&1 && fail "a snapshot twice"
}

all=("" /large /disk)
for round in $(seq 0 "$ROUNDS"); do
    change "$source/data" "$round" 8
    change "$source/data/large" "$round" 8
    pv -q -S -s 3m /dev/urandom >"$work/block"
    for part in "${all[@]}"; do ok zfs snapshot "$fs$part@zrepl_$round"; done
    for part in "${all[@]}"; do
        cut=
        [ "$part" = /disk ] || [ $((round % 2)) = 0 ] || cut=3000000
        replicate "$fs$part" "$copy$part" $cut
    done
    for part in "" /large; do
        [ "$(zfs get -Ho value mounted "$copy$part")" = yes ] || zfs mount "$copy$part" 2>/dev/null || {
            # A parent without a mount point: the copy is looked at in a place of its own.
            ok zfs set mountpoint="$work/mounts/copy$part" "$copy$part"
            zfs mount "$copy$part" >/dev/null 2>&1
        }
        same_all "$fs$part" "$copy$part"
    done
done
say "$((ROUNDS + 1)) rounds"

# Pruning destroys several at once, leaves what cannot go, and finds what is gone already.
for n in 1 2 3; do ok zfs snapshot "$fs@prune_$n"; done
ok zfs hold keep "$fs@prune_2"
says "^cannot destroy snapshot $fs@prune_2: " zfs destroy "$fs@prune_1,prune_2,prune_3"
ok zfs release keep "$fs@prune_2"
for n in 1 2 3; do zfs list -H "$fs@prune_$n" >/dev/null 2>&1 && left="${left:+$left,}prune_$n"; done
ok zfs destroy "$fs@$left"
says "^could not find any snapshots to destroy; check snapshot names\." zfs destroy "$fs@$left"
says "^bookmark '[^']+' does not exist" zfs destroy "$fs#gone"

# The pruner removed the common snapshot at the source: the cursor stands for it.
ok zfs destroy "$fs@zrepl_$ROUNDS"
change "$source/data" $((ROUNDS + 1)) 4
ok zfs snapshot "$fs@from_cursor"
replicate $fs $copy
same_all $fs $copy

# The sink was given up: abort, roll back to the oldest, destroy it, and receive from the start.
says "does not have any resumable receive state to abort" zfs recv -A "$copy"
ok zfs release zrepl_last_received_J_$job "$copy@from_cursor"
oldest=$(versions "$copy" | awk -F'\t' '$1 == "snapshot" { print $2; exit }')
ok zfs rollback -r "$oldest" && ok zfs destroy "$oldest"
zfs send -L -c -e "$fs@from_cursor" | zfs recv -F -s "$copy@from_cursor" >"$work/out" 2>&1 || { cat "$work/out"; fail "a forced receive"; }
same "$fs@from_cursor" "$copy@from_cursor"
judge_both
pass
