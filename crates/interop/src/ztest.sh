# ztest.sh COMMAND...: runs it where a file /dev/zfs exists that is no device. Without one ztest of OpenZFS 2.3 takes
# every pool for active, and then finds none to use (`ztest -E`). For mount namespaces of one's own: the machine's
# /dev stays as it is.
set -e
mount -t tmpfs none /mnt
for node in null zero full random urandom; do
    : > "/mnt/$node"
    mount --bind "/dev/$node" "/mnt/$node"
done
: > /mnt/zfs
mount --rbind /mnt /dev
umount -R /mnt
exec "$@"
