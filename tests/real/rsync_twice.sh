#!/bin/bash
# rsync -aHAX of TREE (default: /usr/share and /etc) into a mount, twice: the second run transfers no file.
. "$(dirname "$0")/lib.sh"
need rsync
create 20G compression=lz4 xattr=sa acltype=posix
source=$work/source
mkdir "$source"
# Hard links, ACLs, attributes, holes and special files, in addition to the files of the machine.
mkdir -p "$source/odd/d"
echo content >"$source/odd/file"
ln "$source/odd/file" "$source/odd/d/link"
ln -s ../file "$source/odd/d/symlink"
mkfifo "$source/odd/fifo"
truncate -s 10M "$source/odd/sparse"
printf x | dd of="$source/odd/sparse" bs=1 seek=5000000 conv=notrunc status=none
chmod 4751 "$source/odd/file"
command -v setfattr >/dev/null && setfattr -n user.key -v value "$source/odd/file"
command -v setfacl >/dev/null && setfacl -m u:1234:rw "$source/odd/file" && setfacl -d -m g:77:rx "$source/odd/d"
touch -h -d '1999-12-31 23:59:59.123456789' "$source/odd/d/symlink"
trees=${TREE:-/usr/share /etc}
copy() {
    # shellcheck disable=SC2086
    rsync -aHAXS --numeric-ids --no-specials --no-devices -i --stats "$source/" $trees "$at/"
}
copy >"$work/first" 2>&1 || { tail -n 5 "$work/first"; fail "rsync"; }
copy >"$work/second" 2>&1 || { tail -n 5 "$work/second"; fail "the second rsync"; }
grep -q "^Number of regular files transferred: 0$" "$work/second" || { head -n 20 "$work/second"; fail "the second run transfers files"; }
grep -E '^[<>ch.*][fdLDS]' "$work/second" | head -n 5 | grep . && fail "the second run changes something"
unmount
judge
serve
copy >"$work/third" 2>&1 || fail "rsync after a new mount"
grep -E '^[<>ch.*][fdLDS]' "$work/third" | head -n 5 | grep . && fail "after a new mount something is changed"
# shellcheck disable=SC2086
rsync -aHAXSnc -i --numeric-ids --no-specials --no-devices "$source/" $trees "$at/" >"$work/checksums" 2>&1
grep -E '^[<>ch.*][fdLDS]' "$work/checksums" | head -n 5 | grep . && fail "contents differ"
unmount
pass
