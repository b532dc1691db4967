# Runs in the guest: logs.sh. Imports each pool in /share/out/CASE, which claims its log, mounts it, which replays the
# log, and exports it. The exit status is the number of pools for which that failed.
P=crash

# Mounts without reading files, so that access times stay.
replay() {
    zfs mount $P || { echo "mount failed"; return 1; }
    zpool sync $P
}

try() {
    D=/share/out/$1
    zpool import -N -f -d "$D" -R /mnt/kp $P || { echo "import failed"; return 1; }
    zpool sync $P
    case $1 in
    clones-claimed-there)
        zpool export $P && zpool import -N -d "$D" -R /mnt/kp $P && replay || return 1 ;;
    clones-replayed-here) ;;
    *) replay || return 1 ;;
    esac
    zpool scrub -w $P
    zpool status -v $P | grep -q "errors: No known data errors" || { zpool status -v $P; return 1; }
    cd / && zpool export $P || { echo "export failed"; return 1; }
}

export LC_ALL=C
bad=0
for case in "$@"; do
    dmesg -C 2>/dev/null
    if try "$case"; then
        echo "$case: done"
    else
        bad=$((bad + 1))
        echo "$case: WRONG"
        zpool export -f $P 2>/dev/null
    fi
    dmesg 2>/dev/null | grep -i "zfs\|panic\|replay" | head -5
done
exit $bad
