#!/bin/bash
# SQLite in its journal modes: transactions, a killed writer, integrity checks, a vacuum.
. "$(dirname "$0")/lib.sh"
need sqlite3
create 4G recordsize=16k
for mode in delete truncate persist wal; do
    db=$at/$mode.db
    [ "$(sqlite3 "$db" "pragma journal_mode=$mode;")" = "$mode" ] || fail "no journal mode $mode"
    sqlite3 "$db" "create table t(id integer primary key, k integer, v blob); create index i on t(k);" || fail "$mode: create"
    rows() { sqlite3 -cmd ".timeout 20000" "$db" "$@"; }
    fill="with recursive n(x) as (select 1 union all select x+1 from n where x<500) insert into t(k,v) select abs(random())%1000, randomblob(200) from n;"
    # Three writers and a reader at the same time; locks keep them apart.
    writers=()
    for _ in 1 2 3; do
        (for _ in $(seq 10); do rows "begin immediate; $fill commit;" || exit 1; done) &
        writers+=($!)
    done
    for _ in $(seq 10); do rows "select count(*), sum(k) from t;" >/dev/null || fail "$mode: read"; done
    for writer in "${writers[@]}"; do wait "$writer" || fail "$mode: write"; done
    [ "$(rows "select count(*) from t;")" = 15000 ] || fail "$mode: rows are missing"
    # A writer that is killed in the middle of a transaction leaves no part of it.
    (echo "begin immediate; $fill"; sleep 5) | sqlite3 -cmd "pragma cache_size=5;" "$db" >/dev/null 2>&1 &
    sleep 1
    kill -9 $! 2>/dev/null
    pkill -9 -P $$ -x sqlite3
    wait $! 2>/dev/null
    [ "$(rows "select count(*) from t;")" = 15000 ] || fail "$mode: half a transaction is there"
    rows "delete from t where id%3=0; vacuum;" || fail "$mode: vacuum"
    [ "$(rows "pragma integrity_check;")" = ok ] || fail "$mode: integrity"
done
unmount
judge
serve
for mode in delete truncate persist wal; do
    [ "$(sqlite3 "$at/$mode.db" "pragma integrity_check;")" = ok ] || fail "$mode: integrity after a new mount"
    [ "$(sqlite3 "$at/$mode.db" "select count(*) from t;")" = 10000 ] || fail "$mode: rows after a new mount"
done
unmount
pass
