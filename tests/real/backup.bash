# Common part of the scripts that run programs for backups: two pools on files, `src` and `dst`, of one daemon, and the
# commands under their own names in PATH. Sourced after `lib.sh`.
#
# CUT         if set, `zfs send` writes so many bytes only: the connection breaks
# SLOW        if set, `zfs send` writes so many bytes a second
# ROUNDS      rounds of changes (default: 3)

: "${ROUNDS:=3}"
[ "$VIA" = daemon ] || { echo "SKIP $name: needs VIA=daemon"; exit 0; }
source=$work/mounts/src target=$work/mounts/dst

# Makes the two pools, mounted at $source and $target.
two_pools() {
    mkdir -p "$work/bin" "$work/mounts"
    cat >"$work/bin/zfs" <<-END
	#!/bin/bash
	# A send is cut or slowed down; everything else goes to the program as it is.
	if [ "\${1:-}" = send ] && [ -n "\${CUT:-}\${SLOW:-}" ] && ! [[ " \$* " =~ \ -[A-Za-z]*n ]]; then
	    if [ -n "\${CUT:-}" ]; then
	        bash -c 'exec -a zfs "\$0" "\$@"' "$CENOTE" "\$@" | head -c "\$CUT"
	    else
	        bash -c 'exec -a zfs "\$0" "\$@"' "$CENOTE" "\$@" | pv -q -L "\$SLOW"
	    fi
	    exit "\${PIPESTATUS[0]}"
	fi
	exec -a zfs "$CENOTE" "\$@"
	END
    chmod 755 "$work/bin/zfs"
    ln -s "$CENOTE" "$work/bin/zpool"
    PATH=$work/bin:$PATH
    truncate -s 6G "$work/images/src" "$work/images/dst"
    start_daemon
    zpool create -O mountpoint="$source" -O compression=lz4 -O xattr=sa src "$work/images/src" || fail "no pool src"
    zpool create -O mountpoint="$target" dst "$work/images/dst" || fail "no pool dst"
}

# change FOLDER ROUND [MB]: new, changed, renamed and removed files; MB of data that does not compress.
change() {
    local at=$1 round=$2 size=${3:-4} n
    mkdir -p "$at/d$round/deep" || fail "$at cannot be changed"
    for n in 1 2 3 4 5; do
        head -c $((n * 7000)) /dev/urandom >"$at/d$round/small$n"
    done
    head -c "${size}M" /dev/urandom >"$at/d$round/large"
    truncate -s 3M "$at/d$round/deep/holes"
    printf 'round %s' "$round" | dd of="$at/d$round/deep/holes" bs=1 seek=1500000 conv=notrunc status=none
    ln "$at/d$round/small1" "$at/d$round/deep/link"
    ln -s ../small2 "$at/d$round/deep/symlink"
    chmod 4750 "$at/d$round/small3"
    chown 1234:77 "$at/d$round/small4"
    setfattr -n user.round -v "$round" "$at/d$round/small5" 2>/dev/null
    local before=$at/d$((round - 1))
    if [ -d "$before" ]; then
        head -c 100000 /dev/urandom | dd of="$before/large" bs=1000 seek=700 conv=notrunc status=none
        rm "$before/small1" && mv "$before/small2" "$at/d$round/moved"
        truncate -s 1M "$before/deep/holes"
    fi
    sync -f "$at"
}

# The sum of a tree: names, kinds, owners, modes, times, links, contents.
sum() {
    (
        cd "$1" || exit
        find . -mindepth 1 -printf '%P %y %m %U %G %n %l %T@\n' | sort
        find . -type f -print0 | sort -z | xargs -0r sha256sum
    ) | sha256sum
}

# same SNAPSHOT SNAPSHOT: two snapshots have the same files and the same guid.
same() {
    local one other
    [ "$(zfs get -Hp -o value guid "$1")" = "$(zfs get -Hp -o value guid "$2")" ] || fail "$1 and $2 have different guids"
    one=$(sum "$(snapshot_folder "$1")") && other=$(sum "$(snapshot_folder "$2")") || fail "no tree of $1 or $2"
    [ "$one" = "$other" ] || { KEEP=1; fail "$1 and $2 differ; $work is kept"; }
}

# The folder of a snapshot in its mounted file system.
snapshot_folder() {
    local at
    at=$(zfs get -Ho value mountpoint "${1%@*}")
    [ "$(zfs get -Ho value mounted "${1%@*}")" = yes ] || zfs mount "${1%@*}" >/dev/null || fail "$1 is not mounted"
    echo "$at/.zfs/snapshot/${1#*@}"
}

# same_all DATASET DATASET: snapshots with the same name have the same files, and the newest ones have the same name.
# Either may have snapshots that were removed at the other.
same_all() {
    local snapshot last= newest
    for snapshot in $(zfs list -H -o name -t snapshot -s createtxg -d 1 "$2"); do
        last=${snapshot#*@}
        ! zfs list "$1@$last" >/dev/null 2>&1 || same "$1@$last" "$snapshot"
    done
    newest=$(zfs list -H -o name -t snapshot -S createtxg -d 1 "$1" | head -n 1)
    [ -n "$last" ] && [ "${newest#*@}" = "$last" ] || fail "$newest is not at $2"
}

token() { zfs get -H -p -o value receive_resume_token "$1"; }

# Fails unless a dataset has the state of an interrupted receive, with data.
interrupted() {
    local token
    token=$(token "$1") || fail "there is no $1"
    [ "$token" != - ] || fail "$1 has no token"
    zfs send -nvt "$token" >"$work/token" 2>&1 || { cat "$work/token"; fail "the token of $1 is not good"; }
}

# Waits until a dataset is being received, then kills the receiving command.
kill_receive() {
    local pid
    for _ in $(seq 400); do
        for pid in $(pgrep -f "^zfs (receive|recv) .*$1"); do
            # Until something is on disk there is nothing to resume.
            sleep 1.5
            kill -9 "$pid"
            return
        done
        sleep 0.05
    done
    fail "nothing is received into $1"
}

# Checks both pools.
judge_both() {
    local pool
    timeout -k 1 120 "$CENOTE" daemon --stop || fail "the daemon does not end"
    wait "$server" || fail "the server: $(tail -n 3 "$work/log")"
    server=
    grep -a "panicked" "$work/log" && fail "a panic"
    for pool in src dst; do
        "$CENOTE" verify "$pool" >"$work/verify" 2>&1 || { cat "$work/verify"; fail "verify finds errors in $pool"; }
        [ ! -x /usr/sbin/zdb ] || { /usr/sbin/zdb -e -p "$work/images" -bcc "$pool" >"$work/zdb" 2>&1 && grep -q "No leaks" "$work/zdb"; } ||
            { tail -n 30 "$work/zdb"; fail "zdb finds errors in $pool"; }
    done
}
