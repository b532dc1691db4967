# Work on file systems and descriptions of snapshots, for both sides of `cargo xtask peer`: the host, with our commands
# and mounts, and the guest with OpenZFS's.
#
# SIDE    ours or theirs, which is also the name of the pool
# SHARE   folder that both sides see
# WORK    folder of this side
export LC_ALL=C TZ=UTC0
DATA=$SHARE/data
DATA_KIB=16384

# Runs an operation of a workload. One that is refused is noted, and the workload goes on.
op() { "$@" 2>"$WORK/why" || echo "refused: $* in $PWD: $(head -n 1 "$WORK/why")"; }

# pick KIND K: the K-th file of a kind below the working directory, counted from 0 and around.
pick() {
    find . -xdev -mindepth 1 -path ./.zfs -prune -o -type "$1" -print | sort >"$WORK/list"
    local count
    count=$(wc -l <"$WORK/list")
    [ "$count" -gt 0 ] && sed -n "$(($2 % count + 1))p" "$WORK/list"
}

# A directory for new names; the top one is among them.
folder() {
    { echo .; find . -xdev -mindepth 1 -path ./.zfs -prune -o -type d -print; } | sort >"$WORK/list"
    sed -n "$(($1 % $(wc -l <"$WORK/list") + 1))p" "$WORK/list"
}

# put FILE OFFSET LENGTH FROM: writes bytes of the data.
put() { tail -c "+$(($4 % (DATA_KIB * 1024 - $3) + 1))" "$DATA" | head -c "$3" | dd of="$1" bs=64k seek="$2" oflag=seek_bytes conv=notrunc iflag=fullblock status=none; }

create() { put "$(folder "$1")/$2" 0 "$3" "$4"; }
sparse() { put "$(folder "$1")/$2" "$3" 70000 "$4"; }
patch() { local f; f=$(pick f "$1") || return 0; put "$f" "$2" "$3" "$4"; }
append() { local f; f=$(pick f "$1") || return 0; put "$f" "$(stat -c %s "$f")" "$2" "$3"; }
zeros() { local f; f=$(pick f "$1") || return 0; dd if=/dev/zero of="$f" bs=4k seek="$2" count="$3" conv=notrunc status=none; }
punch() { local f; f=$(pick f "$1") || return 0; fallocate -p -o "$2" -l "$3" "$f"; }
cut_at() { local f; f=$(pick f "$1") || return 0; truncate -s "$2" "$f"; }
move() { local f; f=$(pick f "$1") || return 0; mv -nT "$f" "$(folder "$2")/$3"; }
over() { local f g; f=$(pick f "$1") && g=$(pick f "$2") || return 0; [ "$f" = "$g" ] || mv -fT "$f" "$g"; }
move_dir() {
    local d to
    d=$(pick d "$1") || return 0
    to=$(folder "$2")/$3
    case $to in "$d"/*) return 0 ;; esac
    mv -nT "$d" "$to"
}
make_dir() { mkdir -p "$(folder "$1")/$2"; }
drop() { local f; f=$(pick "$1" "$2") || return 0; rm -rf "$f"; }
hard() { local f; f=$(pick f "$1") || return 0; ln -fT "$f" "$(folder "$2")/$3"; }
soft() { ln -sfnT "$(head -c "$3" /dev/zero | tr '\0' x)" "$(folder "$1")/$2"; }
special() { local at; at=$(folder "$1")/$2; [ -e "$at" ] || mknod "$at" $3; }
attr() {
    local f v
    f=$(pick "$1" "$2") || return 0
    v=$(tail -c "+$(($5 + 1))" "$DATA" | head -c "$4" | od -An -v -tx1 | tr -d ' \n')
    setfattr -n "user.$3" -v "0x$v" "$f"
}
no_attr() { local f; f=$(pick "$1" "$2") || return 0; setfattr -x "user.$3" "$f" 2>/dev/null || :; }
acl() { local f; f=$(pick "$1" "$2") || return 0; setfacl -m "$3" "$f"; }
mode() { local f; f=$(pick "$1" "$2") || return 0; chmod "$3" "$f"; }
owner() { local f; f=$(pick "$1" "$2") || return 0; chown -h "$3" "$f"; }
project() { local f; f=$(pick "$1" "$2") || return 0; zfs project -p "$3" "$f"; }
times() { local f; f=$(pick "$1" "$2") || return 0; touch -d "@$3" "$f"; }
# many FOLDER PREFIX COUNT: a directory of many names grows beyond one block.
many() {
    local d i
    d=$(folder "$1")
    for ((i = 0; i < $3; i++)); do echo "$i" >"$d/$2 with a name of some length $i"; done
}
few() { local d; d=$(folder "$1"); find "$d" -maxdepth 1 -type f -name "$2*[$3]" -delete; }

# Works in a file system: within DATASET COMMANDS…, one a line.
within() { cd "$(zfs get -H -o value mountpoint "$1")" || exit 1; }

# look SNAPSHOT: describes all that a user sees of it, one fact a line.
look() {
    local set=${1%@*} at
    if [ "$(zfs get -H -o value type "$1")" != snapshot ]; then echo "no snapshot $1"; return 1; fi
    if [ "$(zfs get -H -p -o value volsize "$1")" != - ]; then
        echo "volume $(zfs get -H -p -o value volsize "$1") $(zfs get -H -p -o value volblocksize "$set" | tr '\n' ' ') $(volume_hash "$1")"
        return
    fi
    if [ "$SIDE" = ours ]; then
        at=$(zfs get -H -o value mountpoint "$set")/.zfs/snapshot/${1#*@}
    else
        at=$WORK/look
        mkdir -p "$at" && mount -t zfs "$1" "$at" || return 1
    fi
    (cd "$at" && look_files) || return 1
    [ "$SIDE" = ours ] || umount "$at"
    local kind numeric=-n
    for kind in user group project; do
        # Projects have no names.
        [ $kind != project ] || numeric=
        zfs "${kind}space" -H -p $numeric -o type,name,objused,quota,objquota "$1" | sort | sed "s/^/${kind}space /"
    done
}

look_files() {
    [ -r . ] || return 1
    find . -mindepth 1 -printf 'file %P\t%y %m %U:%G links=%n size=%s [%l] m=%T@ c=%C@ ino %i\n' | numbers | sort
    find . -maxdepth 0 -printf 'root %y %m %U:%G links=%n size=%s m=%T@ c=%C@\n'
    # The largest are all holes: hashing them takes minutes.
    find . -type f -size -1048576k -print0 | sort -z | xargs -0 -r sha256sum
    getfattr -R -P -h -d -m - -e hex . | awk '/^# file: /{f=$0;next} NF{print f "\t" $0}' | sort
}

# In our mounts the upper bits of a number of a file tell the snapshot. Projects show in the space of each.
numbers() { awk '{ $NF = $NF % 281474976710656; print }'; }

volume_hash() {
    if [ "$SIDE" = ours ]; then
        zpool sync ours && cenote cat "$1" | sha256sum
    else
        # The device of a name that was just destroyed may still be going.
        local clone=theirs/look-$RANDOM
        zfs clone -o volmode=dev "$1" "$clone" && for _ in $(seq 300); do [ -e "/dev/zvol/$clone" ] && break; udevadm settle; sleep 0.1; done
        sha256sum <"/dev/zvol/$clone"
        for _ in $(seq 20); do zfs destroy "$clone" 2>/dev/null && return; sleep 0.5; done
        echo "$clone stays"
    fi
}

# facts DATASET: properties as they are in effect.
facts() {
    zfs get -H -p -o property,value recordsize,compression,atime,xattr,acltype,dnodesize,checksum,copies,volblocksize,user:note "$1" | sort
}
