# Common part of the scripts in this folder: a pool on a file, a mounted file system of it, and its judges.
#
# CENOTE      the program (default: target/release/cenote of this repository)
# REAL_DIR    folder for pools and reference trees (default: /var/tmp); some GB are needed
# VIA         server of the mount: daemon (the default: a cenoted of the script's own), or mount (`cenote mount`, where
#             the kernel may cache writes for some seconds)
# MOUNT       with VIA=mount: options of `cenote mount` (--write-through: the kernel caches no writes)
# URING       1: mounts are served over io_uring; the parameter of the kernel's module is restored after each

set -u
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
: "${CENOTE:=$repo/target/release/cenote}" "${REAL_DIR:=/var/tmp}" "${MOUNT:=}" "${VIA:=daemon}" "${URING:=}"
case $VIA in daemon | mount) ;; *) echo "VIA must be daemon or mount" >&2; exit 2 ;; esac
[ -x "$CENOTE" ] || { echo "SKIP $CENOTE is not built"; exit 0; }
[ "$(id -u)" = 0 ] || { echo "SKIP only root can run this"; exit 0; }
[ -e /dev/fuse ] || { echo "SKIP there is no /dev/fuse"; exit 0; }

name=$(basename "$0" | sed 's/\.[a-z]*$//')
work=$(mktemp -d -p "$REAL_DIR" cenote-real.XXXXXX)
chmod 755 "$work"
at=$work/at
mkdir -p "$at" "$work/images" "$work/state"
export CENOTE CENOTE_DEVICES=$work/images CENOTE_STATE=$work/state CENOTE_SOCKET=$work/state/socket CENOTE_NO_START=1
[ "$VIA" = daemon ] || export CENOTE_DIRECT=1
server=

say() { echo "$name: $*"; }

fail() {
    say "$*"
    echo "FAIL $name"
    exit 1
}

# Checks that a program is installed.
need() {
    for program; do
        command -v "$program" >/dev/null || { echo "SKIP $name: there is no $program"; exit 0; }
    done
}

# Runs a command that mounts, over the selected transport.
parameter=/sys/module/fuse/parameters/enable_uring
uring_was=
mounting() {
    [ -n "$URING" ] || { "$@"; return; }
    uring_was=$(cat "$parameter") && echo Y >"$parameter" || fail "this kernel has no FUSE over io_uring"
    "$@"
    local code=$?
    as_it_was
    return "$code"
}

as_it_was() {
    [ -z "$uring_was" ] || echo "$uring_was" >"$parameter"
    uring_was=
}

# create SIZE [property=value...]: makes a pool `real` with the file system `real/a`, and mounts it.
create() {
    truncate -s "$1" "$work/images/disk" || fail "no disk"
    shift
    [ "$VIA" = mount ] || mounting start_daemon
    "$CENOTE" zpool create -O mountpoint=none real "$work/images/disk" || fail "no pool"
    mounting "$CENOTE" zfs create -o mountpoint="$at" "${@/#/-o}" real/a || fail "no file system"
    serve
}

# Starts a daemon; it imports the pools of the last one and mounts their file systems.
start_daemon() {
    setsid "$CENOTE" daemon >>"$work/log" 2>&1 &
    server=$!
    for _ in $(seq 1200); do
        "$CENOTE" daemon --status >/dev/null 2>&1 && return
        kill -0 "$server" 2>/dev/null || fail "no daemon: $(tail -n 3 "$work/log")"
        sleep 0.05
    done
    fail "the daemon does not answer"
}

# Mounts the file system and serves it.
serve() {
    mounting start_server
}

start_server() {
    if [ "$VIA" = daemon ]; then
        [ -n "$server" ] || start_daemon
        mountpoint -q "$at" || fail "not mounted: $(tail -n 3 "$work/log")"
        return
    fi
    # shellcheck disable=SC2086
    setsid "$CENOTE" mount -w --allow-other $MOUNT real/a "$at" >>"$work/log" 2>&1 &
    server=$!
    for _ in $(seq 600); do
        mountpoint -q "$at" && return
        kill -0 "$server" 2>/dev/null || fail "not mounted: $(tail -n 3 "$work/log")"
        sleep 0.1
    done
    fail "not mounted"
}

# Kills the server. Programs that use the mount get errors; call `detach` when none does any more.
kill_server() {
    { kill -9 "$server" && wait "$server"; } 2>/dev/null
    server=
}

# Detaches the mount of a killed server. A daemon does that for mounts of the daemon before it.
detach() {
    [ "$VIA" = daemon ] || umount -l "$at" 2>/dev/null
}

# Closes the pool, with all data on disk.
unmount() {
    if [ "$VIA" = daemon ]; then
        timeout -k 1 120 "$CENOTE" daemon --stop || fail "the daemon does not end"
        grep "gets errors from now on" "$work/log" && fail "it was in use"
    else
        timeout -k 1 120 umount "$at" || fail "it cannot be unmounted"
    fi
    wait "$server" || fail "the server: $(tail -n 3 "$work/log")"
    server=
    mountpoint -q "$at" && fail "it is still mounted"
    return 0
}

# Checks that the pool has no errors, and that no process has panicked.
judge() {
    grep -a "panicked" "$work/log" && fail "a panic"
    "$CENOTE" verify real >"$work/verify" 2>&1 || { cat "$work/verify"; fail "verify finds errors"; }
    local zdb=/usr/sbin/zdb
    [ -x "$zdb" ] || return 0
    "$zdb" -e -p "$work/images" -bcc real >"$work/zdb" 2>&1 && grep -q "No leaks" "$work/zdb" ||
        { tail -n 30 "$work/zdb"; fail "zdb finds errors"; }
}

pass() {
    echo "PASS $name${*:+ ($*)}"
    exit 0
}

clean() {
    as_it_was
    [ -z "$server" ] || kill -9 "$server" 2>/dev/null
    grep -o " $work/[^ ]*" /proc/mounts | sort -r | while read -r left; do umount -l "$left"; done
    [ -n "${KEEP:-}" ] || rm -rf "$work"
}
trap clean EXIT
