#!/bin/sh
# Becomes a systemd that sees this machine's programs, with what is installed in $1/installed over them, and nothing else of it.
# To be run in mount, process, cgroup, ipc and uts namespaces of its own.
set -eu
work=$1
root=$work/root
mkdir -p "$root" "$work/over"
# What is unmounted outside goes here too, until nothing of outside is left.
mount --make-rslave /
mount -t tmpfs -o mode=755 tmpfs "$work/over"
mkdir "$work/over/upper" "$work/over/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/over/upper,workdir=$work/over/work" "$root"
cp -a "$work/installed/." "$root/"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup" 2>/dev/null || {
    mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
}
mount --bind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t devpts devpts "$root/dev/pts"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
rm -rf "$root/etc/zfs/zpool.cache" "$root/var/lib/cenote"
echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id"
printf '[Unit]\nDefaultDependencies=no\nWants=systemd-journald.service\n' >"$root/etc/systemd/system/proof.target"
cd "$root"
mkdir -p .outside
pivot_root . .outside
umount -l /.outside
exec env -i container=other PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /usr/lib/systemd/systemd --system --unit=proof.target --show-status=0 --log-target=journal </dev/null
