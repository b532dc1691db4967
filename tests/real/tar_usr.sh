#!/bin/bash
# A round trip of /usr (or of TREE): tar into a mount, compared there, tar out of it, compared again.
. "$(dirname "$0")/lib.sh"
need tar diff
: "${TREE:=/usr}"
create 60G compression=lz4 xattr=sa acltype=posix
options=(--one-file-system --acls --xattrs --xattrs-include='*' --numeric-owner -S)
# Attributes of every file: kind, mode, owner, links in the tree, size, time, name and target.
describe() {
    (cd "$1" && find . -xdev \( -type d -printf '%i %y %m %U:%G %T@ %p\n' -o -printf '%i %y %m %U:%G %s %T@ %p %l\n' \)) |
        awk '{ number[NR] = $1; links[$1]++; sub(/^[0-9]+ /, ""); line[NR] = $0 }
            END { for (i = 1; i <= NR; i++) print links[number[i]], line[i] }' | sort
}
mkdir "$at/in"
tar -C "$TREE" "${options[@]}" -cf - . | tar -C "$at/in" "${options[@]}" -xpf - || fail "tar in"
describe "$TREE" >"$work/before"
describe "$at/in" >"$work/in"
diff "$work/before" "$work/in" >"$work/differences" || { head -n 20 "$work/differences"; fail "it is not the same in the mount"; }
unmount
judge
serve
describe "$at/in" >"$work/in"
diff "$work/before" "$work/in" >"$work/differences" || { head -n 20 "$work/differences"; fail "it is not the same after a new mount"; }
diff -r --no-dereference "$TREE" "$at/in" 2>&1 | grep -v "is a \(fifo\|socket\|character\|block\)" | head -n 20 >"$work/differences"
[ -s "$work/differences" ] && { cat "$work/differences"; fail "contents differ"; }
# Out again: the archive of the mount must equal that of the tree, file by file.
tar -C "$at/in" "${options[@]}" -cf - . | (cd "$TREE" && tar "${options[@]}" -df - 2>&1) | grep -v "Mod time\|^$" | head -n 20 >"$work/compare"
[ -s "$work/compare" ] && { cat "$work/compare"; fail "tar finds differences"; }
rm -rf "$at/in" || fail "rm"
unmount
judge
pass "$(wc -l <"$work/before") files"
