#!/bin/bash
# The server of a mount is killed at random moments under load, ROUNDS times (default: 5). After each kill the pool is
# imported again, and all data that were reported as durable to programs (and to the commands for file systems and
# snapshots) must exist; at the end the pool must have no errors.
. "$(dirname "$0")/lib.sh"
need python3
export VIA
create 3G compression=lz4 recordsize=32k
chmod 777 "$at"
for round in $(seq "${ROUNDS:-5}"); do
    python3 "$(dirname "$0")/kill9.py" load "$at" "$work/acked" "$round" >"$work/load" 2>&1 &
    load=$!
    # Some servers die before the first write, some in the middle of many transaction groups.
    sleep "$((RANDOM % 8)).$((RANDOM % 10))"
    kill_server
    wait "$load" 2>/dev/null
    detach
    serve
    python3 "$(dirname "$0")/kill9.py" check "$at" "$work/acked" >"$work/check" 2>&1 || { tail -n 10 "$work/check"; KEEP=1 fail "round $round: $work is kept"; }
    if [ $((round % 10)) = 0 ]; then
        unmount
        judge
        serve
        say "round $round: $(cat "$work/check")"
    fi
done
unmount
judge
pass "$(tail -n 1 "$work/check")"
