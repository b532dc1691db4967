#!/bin/bash
# A mirror and a raidz2 on loop devices, used all the time by programs that check every byte, while devices vanish and
# return and bits flip: no wrong byte, no error to a program, nothing left to repair at the end.
#
# ROUNDS    number of times that devices vanish and are corrupted, for each of the two pools (default: 3)
VIA=daemon
. "$(dirname "$0")/lib.sh"
need python3 losetup
tool=$(dirname "$0")/faults.py
rounds=${ROUNDS:-3}
loops=()
load=

free_loops() {
    [ -z "$load" ] || kill -9 "$load" 2>/dev/null
    clean
    for loop in "${loops[@]}"; do losetup -d "$loop" 2>/dev/null; done
}
trap free_loops EXIT
trap 'exit 1' INT TERM

# devices NUMBER: makes this many loop devices, which the judges find by links.
devices() {
    for loop in "${loops[@]}"; do losetup -d "$loop"; done
    loops=()
    rm -rf "$work/images" "$work/under"
    mkdir -p "$work/images" "$work/under"
    for i in $(seq "$1"); do
        truncate -s 512M "$work/under/$i"
        loop=$(losetup --find --show "$work/under/$i") || { echo "SKIP $name: no loop devices"; exit 0; }
        loops+=("$loop")
        ln -s "$loop" "$work/images/disk$i"
    done
}

# Makes every request of the device fail.
vanish() { python3 "$tool" resize "$1" 512 || fail "$1 does not vanish"; }
# Makes the device work again, with its old data.
come_back() { python3 "$tool" resize "$1" 0 || fail "$1 does not come back"; }

loading() { kill -0 "$load" 2>/dev/null || fail "the programs have ended: $(tail -n 3 "$work/load")"; }

# Waits until no scan runs and all devices are present.
healed() {
    for _ in $(seq 600); do
        loading
        "$CENOTE" zpool status real >"$work/status" || fail "no status"
        # Errors of a device from the time when it was away may remain, but no other state is accepted.
        grep -Eq 'OFFLINE|REMOVED|UNAVAIL|FAULTED|DEGRADED|in progress' "$work/status" || return 0
        sleep 0.2
    done
    cat "$work/status"
    fail "it does not heal"
}

sound() {
    "$CENOTE" zpool status real | grep -q 'errors: No known data errors' || { "$CENOTE" zpool status -v real; fail "data errors"; }
}

# run SPARE VDEV...: runs the test on a pool of which this many devices can be missing.
run() {
    spare=$1
    shift
    start_daemon
    "$CENOTE" zpool create -f -O mountpoint=none real "$@" "${loops[@]}" || fail "no pool"
    "$CENOTE" zfs create -o mountpoint="$at" -o primarycache=metadata -o recordsize=32k real/a || fail "no file system"
    python3 "$tool" load "$at" "$work/stop" >"$work/load" 2>&1 &
    load=$!
    sleep 2
    for round in $(seq "$rounds"); do
        victims=($(shuf -e "${loops[@]}" -n "$spare"))
        say "$1, round $round: ${victims[*]} vanish"
        for loop in "${victims[@]}"; do vanish "$loop"; sleep 1; done
        sleep 4
        loading
        for loop in "${victims[@]}"; do come_back "$loop"; done
        for loop in "${victims[@]}"; do "$CENOTE" zpool online real "$loop" || fail "not online"; done
        "$CENOTE" zpool wait -t resilver real
        healed
        "$CENOTE" zpool clear real || fail "not cleared"
        sound
        victims=($(shuf -e "${loops[@]}" -n "$spare"))
        say "$1, round $round: ${victims[*]} rot"
        for loop in "${victims[@]}"; do python3 "$tool" rot "$loop" "$round"; done
        "$CENOTE" zpool scrub -w real || fail "no scrub"
        loading
        sound
        "$CENOTE" zpool clear real || fail "not cleared"
        "$CENOTE" zpool scrub -w real || fail "no second scrub"
        "$CENOTE" zpool status real >"$work/status"
        grep -Eq 'with 0 errors' "$work/status" || { cat "$work/status"; fail "errors after the scrub"; }
    done
    touch "$work/stop"
    wait "$load" || { tail -n 5 "$work/load"; fail "a program has met an error"; }
    load=
    tail -n 1 "$work/load"
    rm "$work/stop"
    timeout -k 1 120 "$CENOTE" zpool export real || fail "not exported"
    unmount
    judge
}

devices 2
run 1 mirror
devices 5
run 2 raidz2
pass
