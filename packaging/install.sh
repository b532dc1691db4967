#!/bin/sh
# Installs Cenote: the program, its names, manual pages, units of systemd and shell completions.
#
# usage: packaging/install.sh [--without-names] [PROGRAM]
#
# PROGRAM is target/release/cenote if none is named. Environment: DESTDIR (put before all paths, for packages),
# PREFIX (/usr/local). --without-names leaves out the names that OpenZFS's tools have too (zpool, zfs, zdb,
# mount.zfs, their manual pages and completions): `cenote zpool ...` works all the same. To take everything away again:
# the files are listed in PREFIX/share/doc/cenote/files.
set -eu

names=yes
case "${1:-}" in
--without-names) names=no; shift ;;
-*) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
source=$(cd "$(dirname "$0")/.." && pwd)
program=${1:-$source/target/release/cenote}
prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}
doc=$prefix/share/doc/cenote
if ! [ -x "$program" ]; then
    echo "$program is not there: cargo build --release -p cenote-cli" >&2
    exit 1
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# put MODE SOURCE PATH: a file.
put() {
    install -D -m "$1" "$2" "$root$3"
    echo "$3" >>"$scratch/files"
}

# name TARGET PATH: a link.
name() {
    mkdir -p "$(dirname "$root$2")"
    ln -sfn "$1" "$root$2"
    echo "$2" >>"$scratch/files"
}

tools=fsstat
[ $names = no ] || tools="zpool zfs zdb zstream zstreamdump fsstat"

# The names of functions and lines are six times as large as the program: they go beside it, where debuggers look.
debug=/usr/lib/debug$prefix/bin/cenote.debug
if command -v objcopy >/dev/null && objcopy --only-keep-debug "$program" "$scratch/cenote.debug"; then
    objcopy --strip-unneeded --add-gnu-debuglink="$scratch/cenote.debug" "$program" "$scratch/cenote"
    put 755 "$scratch/cenote" "$prefix/bin/cenote"
    put 644 "$scratch/cenote.debug" "$debug"
else
    echo "there is no objcopy (package binutils): the program is installed with its debug symbols" >&2
    put 755 "$program" "$prefix/bin/cenote"
fi
for tool in $tools cenoted mount.fuse.cenote; do
    name ../bin/cenote "$prefix/sbin/$tool"
done
[ $names = no ] || name ../bin/cenote "$prefix/sbin/mount.zfs"
[ $names = no ] || name cenote "$prefix/bin/zfs_ids_to_path"
# mount(8) looks for its helpers nowhere else.
if [ "$prefix" != /usr ]; then
    name "$prefix/bin/cenote" /sbin/mount.fuse.cenote
    [ $names = no ] || name "$prefix/bin/cenote" /sbin/mount.zfs
fi

for page in "$source"/docs/man/*.[18]; do
    base=$(basename "$page")
    case $names:$base in no:zpool.8 | no:zfs.8 | no:zdb.8 | no:zstream.8) continue ;; esac
    gzip -9nc "$page" >"$scratch/page"
    put 644 "$scratch/page" "$prefix/share/man/man${base##*.}/$base.gz"
done

for kind in system user; do
    from=$source/packaging/systemd
    [ $kind = system ] || from=$from/user
    for unit in cenoted.service cenoted.socket; do
        sed "s,/usr/sbin/cenoted,$prefix/sbin/cenoted," "$from/$unit" >"$scratch/unit"
        put 644 "$scratch/unit" "$prefix/lib/systemd/$kind/$unit"
    done
done

if "$program" completions bash >"$scratch/bash" && "$program" completions zsh >"$scratch/zsh" &&
    "$program" completions fish >"$scratch/fish"; then
    put 644 "$scratch/bash" "$prefix/share/bash-completion/completions/cenote"
    put 644 "$scratch/zsh" "$prefix/share/zsh/site-functions/_cenote"
    put 644 "$scratch/fish" "$prefix/share/fish/vendor_completions.d/cenote.fish"
    # These two shells look for a file with the name of the command.
    for tool in $tools cenoted; do
        name cenote "$prefix/share/bash-completion/completions/$tool"
        name cenote.fish "$prefix/share/fish/vendor_completions.d/$tool.fish"
    done
else
    echo "$program does not run here: no completions are installed" >&2
fi

for text in LICENSE-APACHE LICENSE-MIT CHANGELOG.md README.md; do
    put 644 "$source/$text" "$doc/$text"
done
echo "$doc/files" >>"$scratch/files"
install -D -m 644 "$scratch/files" "$root$doc/files"
