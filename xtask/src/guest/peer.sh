# Runs in the guest: peer.sh LAYOUT... For each pool in /share/out/LAYOUT: imports it, checks that its status reports
# no problem, scrubs it, compares its contents with the list `ours`, changes it, writes the list `theirs`, and exports
# it. The exit status is the number of pools with an error.
P=judged
R=/mnt/kp
MARK=$(printf '\t')

# A line for each file below the working directory: dataset, hash, path.
files() {
    find . -xdev -path ./.zfs -prune -o -type f -print0 | xargs -0 -r sha256sum | sed -E "s|^([0-9a-f]{64})  (.*)\$|$1$MARK\1$MARK\2|"
}

# Lines for all datasets of the pool.
list() {
    zfs list -H -o name,mountpoint -t filesystem -r $P | while IFS=$MARK read -r ds at; do
        (cd "$at" && files "$ds") || echo "$ds: not mounted"
    done
    zfs list -H -o name,type -t snapshot -r $P | while IFS=$MARK read -r snap _; do
        if [ "$(zfs get -H -o value type "${snap%@*}")" = volume ]; then
            zfs clone -o volmode=dev "$snap" $P/look || continue
            block $P/look "$snap"
            cd / && zfs destroy $P/look
        else
            mkdir -p /mnt/snap && mount -t zfs "$snap" /mnt/snap && { (cd /mnt/snap && files "$snap"); umount /mnt/snap; }
        fi
    done
    zfs list -H -o name -t volume -r $P | while read -r vol; do block "$vol" "$vol"; done
}

# A line for a volume.
block() {
    for _ in 1 2 3 4 5 6 7 8 9 10; do [ -e "/dev/zvol/$1" ] && break; udevadm settle 2>/dev/null; sleep 0.3; done
    printf '%s\t%s\t-\n' "$2" "$(sha256sum < "/dev/zvol/$1" | cut -d' ' -f1)"
}

healthy() {
    zpool status -x $P | grep -q "is healthy" && ! zpool status -v $P | grep -E "^ *(status|action):" &&
        zpool status $P | grep -q "errors: No known data errors"
}

# Makes changes of every kind.
change() {
    set -e
    zfs create $P/guest
    cp -r /opt/kp $R/$P/guest/
    zfs list -H -o name,mountpoint -t filesystem -r $P | while IFS=$MARK read -r ds at; do
        head -c 300000 /dev/urandom > "$at/from the kernel"
        find "$at" -xdev -maxdepth 1 -type f -name 'f*' | head -1 | while read -r f; do
            head -c 5000 /dev/urandom | dd of="$f" bs=1000 seek=3 conv=notrunc status=none
        done
        find "$at" -xdev -maxdepth 1 -type f -name 'f[0-9]*' | tail -1 | tr '\n' '\0' | xargs -0 -r rm
    done
    zfs snapshot -r $P@kernel
    zfs clone $P/guest@kernel $P/kclone
    head -c 100000 /dev/urandom > $R/$P/kclone/more
    zfs promote $P/kclone
    head -c 100000 /dev/urandom > $R/$P/guest/gone
    zfs rollback $P@kernel
    zfs bookmark $P@kernel $P#kernel
    zfs rename $P/guest $P/kguest
    zpool sync $P
    set +e
}

try() {
    D=/share/out/$1
    zpool import -d "$D" -R $R $P || { echo "import failed"; return 1; }
    healthy || { echo "not healthy after import"; zpool status -v $P; return 1; }
    zpool scrub -w $P
    zpool status $P | grep -q "repaired 0B in .* with 0 errors" || { echo "scrub"; zpool status -v $P; return 1; }
    healthy || { echo "not healthy after scrub"; zpool status -v $P; return 1; }
    list | sort > "$D/seen"
    cmp -s "$D/ours" "$D/seen" || { echo "other contents"; diff "$D/ours" "$D/seen" | head -10; return 1; }
    (change) || { echo "change failed"; zpool status -v $P; return 1; }
    list | sort > "$D/theirs"
    healthy || { echo "not healthy after change"; zpool status -v $P; return 1; }
    cd / && zpool export $P || { echo "export failed"; return 1; }
}

export LC_ALL=C
bad=0
for layout in "$@"; do
    if try "$layout"; then
        echo "$layout: fine"
    else
        bad=$((bad + 1))
        echo "$layout: WRONG"
        zpool export -f $P 2>/dev/null
    fi
done
exit $bad
