#!/bin/bash
# Runs on the host as `ssh`: ssh [OPTION…] HOST COMMAND…: bash runs the command line in the guest, whatever HOST is.
#
# Input goes there only where a stream is received. A connection without a command, or a request to its master, is answered
# with success.
#
# CALLS   folder of the calls, which both see; FOLDER.log there gets the command lines
# CUT     streams of `zfs send` and to `zfs receive` are cut after so many bytes
request=
options() {
    local option OPTIND=1
    while getopts :46AaCfGgKkMNnqsTtVvXxYyB:b:c:D:E:e:F:I:i:J:L:l:m:O:o:p:Q:R:S:W:w: option; do
        case $option in
        O) request=$OPTARG ;;
        \?) echo "ssh: unknown option -$OPTARG" >&2 && exit 255 ;;
        esac
    done
    used=$((OPTIND - 1))
}
options "$@" && shift "$used"
[ $# -gt 0 ] || { echo "ssh: no host" >&2; exit 255; }
shift
# Options may follow the host as well.
options "$@" && shift "$used"
[ -z "$request" ] && [ $# -gt 0 ] || exit 0

line="$*"
printf '%s\n' "$line" >>"$CALLS.log"
id=$CALLS/$$.$RANDOM
is_in() { [[ $line =~ zfs\'?\ +\'?($1)([\ \']|$) ]]; }
if is_in 'receive|recv'; then head -c "${CUT:-9G}" >"$id.in"; else : >"$id.in"; fi
# The sender gets a broken pipe where the stream was cut.
exec <&-
printf '%s\n' "$line" >"$id.sh"
: >"$id.go"
until [ -e "$id.rc" ]; do sleep 0.05; done
code=$(cat "$id.rc")
if [ -n "${CUT:-}" ] && is_in send && [ "$(stat -c %s "$id.out")" -gt "$CUT" ]; then
    head -c "$CUT" "$id.out"
    echo "Connection to the guest closed by remote host." >&2
    code=255
else
    cat "$id.out"
fi
cat "$id.err" >&2
rm -f "$id".*
exit "$code"
