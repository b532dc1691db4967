#!/bin/bash
# Clones this repository into a mount and builds a part of it there, without a network.
. "$(dirname "$0")/lib.sh"
need git cargo
create 12G compression=lz4
git clone -q "$repo" "$at/clone" || fail "git clone"
cd "$at/clone" || fail "no clone"
git fsck --full >"$work/fsck" 2>&1 || { cat "$work/fsck"; fail "git fsck"; }
[ -z "$(git status --porcelain)" ] || fail "the clone is not clean"
CARGO_TARGET_DIR=$at/clone/target cargo build --offline -q -p "${PACKAGE:-cenote-format}" >"$work/build" 2>&1 ||
    { tail -n 20 "$work/build"; fail "cargo build"; }
# The second build compiles no crate again.
CARGO_TARGET_DIR=$at/clone/target cargo build --offline -p "${PACKAGE:-cenote-format}" >"$work/again" 2>&1 || fail "the second build"
grep -q Compiling "$work/again" && { cat "$work/again"; fail "the second build compiles"; }
cd / && unmount && judge
serve
git -C "$at/clone" fsck --full >/dev/null 2>&1 || fail "git fsck after a new mount"
[ -z "$(git -C "$at/clone" status --porcelain)" ] || fail "the clone is not clean after a new mount"
unmount
pass
