#!/bin/bash
# Runs on the host: there zfs ARG...: that command in the guest, with this input and output. The command of a policy.
#
# CALLS   folder of the calls, which both see
# CUT     streams are cut after so many bytes: those to `receive` and those of `send`
id=$CALLS/$$.$RANDOM
case $2 in
receive) head -c "${CUT:-9G}" >"$id.in" ;;
*) : >"$id.in" ;;
esac
printf '%q ' "$@" >"$id.sh"
: >"$id.go"
until [ -e "$id.rc" ]; do sleep 0.05; done
code=$(cat "$id.rc")
if [ "$2" = send ] && [ -n "${CUT:-}" ] && [ "$(stat -c %s "$id.out")" -gt "$CUT" ]; then
    head -c "$CUT" "$id.out"
    echo "cut" >&2
    code=1
else
    cat "$id.out"
fi
cat "$id.err" >&2
rm -f "$id".*
exit "$code"
