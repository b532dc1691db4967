#!/bin/bash
# PostgreSQL under pgbench. Its server is killed in the middle, then (a second cluster) the server of the mount; each
# time it recovers, pg_amcheck finds no error, and every acknowledged transaction is there.
#
# ROUNDS   number of times that each is killed (default: 2)
. "$(dirname "$0")/lib.sh"
need runuser
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
[ -x "${bin:-}/initdb" ] || { echo "SKIP $name: there is no PostgreSQL"; exit 0; }
id postgres >/dev/null 2>&1 || { echo "SKIP $name: there is no user postgres"; exit 0; }
create 8G recordsize=8k compression=lz4
chmod 755 "$REAL_DIR" "$work" 2>/dev/null
mkdir "$work/run" && chown postgres "$work/run"

as() { runuser -u postgres -- env PGHOST="$work/run" PGDATABASE=postgres PGUSER=postgres "$@"; }
start() {
    as "$bin/pg_ctl" -D "$data" -l "$work/run/log" -w -t 120 \
        -o "-c listen_addresses='' -c unix_socket_directories=$work/run -c max_wal_size=256MB -c checkpoint_timeout=30s" \
        start >"$work/ctl" 2>&1 || { tail -n 20 "$work/run/log"; fail "postgres does not start"; }
}
# Kills the postmaster and its children.
kill_postgres() {
    pid=$(head -n 1 "$data/postmaster.pid" 2>/dev/null || cat "$work/pid")
    children=$(cat /proc/"$pid"/task/*/children 2>/dev/null)
    # shellcheck disable=SC2086
    kill -9 "$pid" $children 2>/dev/null
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
}
# Inserts numbers, and records each acknowledged one: psql prints a row when its transaction has ended.
insert() {
    seq -f "insert into acked values (%.0f) returning n;" "$1" $(($1 + 1000000)) |
        as "$bin/psql" -qAt 2>/dev/null >>"$work/acked" &
    inserter=$!
}
check() {
    as "$bin/psql" -qAt -c "select n from acked order by n" >"$work/found" || fail "the table cannot be read"
    sort -n "$work/acked" | comm -23 --nocheck-order - "$work/found" >"$work/lost"
    lost=$(sort "$work/acked" | comm -23 - <(sort "$work/found") | wc -l)
    [ "$lost" = 0 ] || fail "$lost acknowledged transactions are lost"
    as "$bin/pg_amcheck" --all --heapallindexed --install-missing >"$work/amcheck" 2>&1 || { cat "$work/amcheck"; fail "amcheck"; }
    sum=$(as "$bin/psql" -qAt -c "select (select sum(bbalance) from pgbench_branches) = (select sum(abalance) from pgbench_accounts)
        and (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)")
    [ "$sum" = t ] || fail "the balances do not agree"
}
cluster() {
    data=$at/$1
    mkdir "$data" && chown postgres "$data" && chmod 700 "$data"
    as "$bin/initdb" -D "$data" --data-checksums -E UTF8 --locale=C -U postgres >"$work/initdb" 2>&1 || { tail "$work/initdb"; fail "initdb"; }
    start
    as "$bin/pgbench" -i -s 5 -q >/dev/null 2>&1 || fail "pgbench -i"
    as "$bin/psql" -qc "create table acked(n integer primary key)" || fail "no table"
    : >"$work/acked"
}
load() {
    as "$bin/pgbench" -n -c 4 -j 2 -T 60 >"$work/pgbench" 2>&1 &
    bench=$!
    insert "$1"
    sleep $((4 + RANDOM % 5))
}
ended() {
    wait "$inserter" "$bench" 2>/dev/null
    [ -s "$work/acked" ] || fail "nothing was written"
}

cluster one
for round in $(seq "${ROUNDS:-2}"); do
    load "$((round * 1000000))"
    kill_postgres
    ended
    start
    check
done
as "$bin/pg_ctl" -D "$data" -m fast -w stop >/dev/null || fail "postgres does not stop"

cluster two
for round in $(seq "${ROUNDS:-2}"); do
    load "$((round * 1000000))"
    head -n 1 "$data/postmaster.pid" >"$work/pid"
    kill_server
    kill_postgres
    ended
    detach
    serve
    rm -f "$data/postmaster.pid"
    start
    check
done
as "$bin/pg_ctl" -D "$data" -m fast -w stop >/dev/null || fail "postgres does not stop"
as "$bin/pg_checksums" -c -D "$data" >"$work/checksums" 2>&1 || { cat "$work/checksums"; fail "checksums"; }
unmount
judge
pass "$(wc -l <"$work/acked") acknowledged"
