# What the scripts beside this file share: a pool on a file, a file system of it mounted, and its judges.
#
# CENOTE      the program (default: target/release/cenote of this repository)
# REAL_DIR    folder for pools and reference trees (default: /var/tmp); some GB are needed
# MOUNT       options of `cenote mount` (default: none; --write-through: the kernel keeps nothing back)

set -u
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
: "${CENOTE:=$repo/target/release/cenote}" "${REAL_DIR:=/var/tmp}" "${MOUNT:=}"
[ -x "$CENOTE" ] || { echo "SKIP $CENOTE is not built"; exit 0; }
[ "$(id -u)" = 0 ] || { echo "SKIP only root can run this"; exit 0; }
[ -e /dev/fuse ] || { echo "SKIP there is no /dev/fuse"; exit 0; }

name=$(basename "$0" | sed 's/\.[a-z]*$//')
work=$(mktemp -d -p "$REAL_DIR" cenote-real.XXXXXX)
chmod 755 "$work"
at=$work/at
mkdir -p "$at" "$work/images" "$work/state"
export CENOTE_DIRECT=1 CENOTE_DEVICES=$work/images CENOTE_STATE=$work/state
server=

say() { echo "$name: $*"; }

fail() {
    say "$*"
    echo "FAIL $name"
    exit 1
}

# A program that must be there.
need() {
    for program; do
        command -v "$program" >/dev/null || { echo "SKIP $name: there is no $program"; exit 0; }
    done
}

# create SIZE [property=value...]: a pool `real` with the file system `real/a`, mounted.
create() {
    truncate -s "$1" "$work/images/disk" || fail "no disk"
    shift
    "$CENOTE" zpool create real "$work/images/disk" || fail "no pool"
    "$CENOTE" zfs create "${@/#/-o}" real/a || fail "no file system"
    serve
}

# Mounts and serves it.
serve() {
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

# The server is gone from one moment to the next. Who uses the mount gets errors; when nobody does, `detach`.
kill_server() {
    kill -9 "$server"
    wait "$server" 2>/dev/null
}

detach() {
    umount -l "$at" 2>/dev/null
}

unmount() {
    timeout -k 1 120 umount "$at" || fail "it cannot be unmounted"
    wait "$server" || fail "the server: $(tail -n 3 "$work/log")"
    server=
}

# Nothing is wrong in the pool.
judge() {
    "$CENOTE" verify real >"$work/verify" 2>&1 || { cat "$work/verify"; fail "verify finds errors"; }
    command -v zdb >/dev/null || return 0
    zdb -e -p "$work/images" -bcc real >"$work/zdb" 2>&1 && grep -q "No leaks" "$work/zdb" ||
        { tail -n 30 "$work/zdb"; fail "zdb finds errors"; }
}

pass() {
    echo "PASS $name${*:+ ($*)}"
    exit 0
}

clean() {
    if [ -n "$server" ]; then
        kill -9 "$server" 2>/dev/null
        umount -l "$at" 2>/dev/null
    fi
    [ -n "${KEEP:-}" ] || rm -rf "$work"
}
trap clean EXIT
