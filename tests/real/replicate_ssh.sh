#!/bin/bash
# `cenote replicate` to an ssh:// target and from an ssh:// source: a server on a port of localhost with keys of its own.
# A connection that is killed is continued by its token; a host whose key is not known, one whose key has changed and a
# user without a key are told in ssh's words; names of hosts do not become options.
. "$(dirname "$0")/lib.sh"
need ssh ssh-keygen
sshd=$(command -v sshd || echo /usr/sbin/sshd)
[ -x "$sshd" ] || { echo "SKIP $name: there is no sshd"; exit 0; }
. "$(dirname "$0")/backup.bash"
trap 'stop_sshd; clean' EXIT
keys=$work/keys
port=
server_of_ssh=

stop_sshd() {
    [ -z "$server_of_ssh" ] || kill "$server_of_ssh" 2>/dev/null
    server_of_ssh=
}

# Starts a server whose clients get the commands of this script: `zfs` of Cenote.
start_sshd() {
    mkdir -p -m 700 "$keys" && mkdir -p /run/sshd
    [ -e "$keys/host" ] || ssh-keygen -q -t ed25519 -N '' -f "$keys/host" || fail "no key"
    [ -e "$keys/user" ] || ssh-keygen -q -t ed25519 -N '' -f "$keys/user" || fail "no key"
    cp "$keys/user.pub" "$keys/authorized"
    cat >"$keys/sshd_config" <<-END
	ListenAddress 127.0.0.1
	HostKey $keys/host
	PidFile none
	AuthorizedKeysFile $keys/authorized
	PasswordAuthentication no
	KbdInteractiveAuthentication no
	PermitRootLogin prohibit-password
	UsePAM no
	StrictModes no
	SetEnv PATH=$PATH CENOTE_SOCKET=$CENOTE_SOCKET CENOTE_STATE=$CENOTE_STATE CENOTE_NO_START=1
	END
    local try
    for try in $(seq 20); do
        port=$((20000 + (RANDOM + try) % 20000))
        "$sshd" -D -e -f "$keys/sshd_config" -p "$port" 2>>"$work/sshd.log" &
        server_of_ssh=$!
        for _ in $(seq 50); do
            ssh-keyscan -p "$port" 127.0.0.1 2>/dev/null | grep -q ed25519 && return
            kill -0 "$server_of_ssh" 2>/dev/null || break
            sleep 0.1
        done
        stop_sshd
    done
    fail "no sshd: $(tail -n 3 "$work/sshd.log")"
}

# policies HOSTS [RATE]: both directions, with a file of known hosts; streams have so many bytes a second.
policies() {
    local ssh="ssh = [\"ssh\", \"-F\", \"none\", \"-o\", \"BatchMode=yes\", \"-o\", \"IdentitiesOnly=yes\", \"-i\", \"$keys/user\", \"-o\", \"UserKnownHostsFile=$1\", \"-o\", \"StrictHostKeyChecking=yes\"]"
    cat >"$work/policies.toml" <<-END
	[policy.to]
	from = "src/data"
	to = "ssh://root@127.0.0.1:$port/dst/data"
	recursive = true
	zstd = $zstd
	keep-source = { last = 2 }
	keep-target = { last = 3 }
	verify = true
	rate = "${2:-1G}"
	$ssh

	[policy.from]
	from = "ssh://root@127.0.0.1:$port/dst/back"
	to = "src/back"
	guard = "hold"
	keep-source = { last = 2 }
	keep-target = { last = 3 }
	rate = "${2:-1G}"
	$ssh
	END
}

run() {
    # Snapshots are named after the second.
    sleep 1
    "$CENOTE" replicate run --policy-file "$work/policies.toml" -v "$@" >"$work/out" 2>&1
}

good() { run "$@" || { cat "$work/out"; fail "replicate $*"; }; }

# refused WORDS COMMAND…: it fails with these words.
refused() {
    local words=$1
    shift
    "$@" && { cat "$work/out"; fail "not refused: $words"; }
    grep -qi -- "$words" "$work/out" || { cat "$work/out"; fail "'$words' is not said"; }
}

# Waits until a stream runs through ssh, then kills the server's side of the connection.
kill_connection() {
    local pid
    for _ in $(seq 600); do
        for pid in $(pgrep -P "$server_of_ssh"); do
            if pgrep -f "^zfs (receive|recv|send) .*$1" >/dev/null; then
                # Until something is on disk there is nothing to resume.
                sleep 2
                kill -9 $(pgrep -P "$pid") "$pid"
                return
            fi
        done
        sleep 0.05
    done
    fail "nothing goes over ssh"
}

two_pools
zstd=false
! command -v zstd >/dev/null || zstd=true
start_sshd
known=$keys/known
ssh-keyscan -p "$port" 127.0.0.1 >"$known" 2>/dev/null || fail "no key of the host"
zfs create src/data && zfs create src/data/a && zfs create dst/back || fail "no source"
policies "$known"
for round in $(seq "$ROUNDS"); do
    change "$source/data" "$round"
    change "$source/data/a" "$round"
    change "$target/back" "$round"
    good to from
    for dataset in data data/a; do same_all "src/$dataset" "dst/$dataset"; done
    same_all dst/back src/back
done
say "$ROUNDS rounds"

# A connection that is killed: the next run goes on.
change "$source/data/a" 20 40
policies "$known" 6M
run to &
kill_connection dst/data/a
wait $! && fail "a killed connection is not told"
interrupted dst/data/a
policies "$known"
good to
grep -q "data/a: continue @" "$work/out" || { cat "$work/out"; fail "not continued"; }
same_all src/data/a dst/data/a
change "$target/back" 20 40
policies "$known" 6M
run from &
kill_connection dst/back
wait $! && fail "a killed connection is not told"
interrupted src/back
policies "$known"
good from
grep -q "back: continue @" "$work/out" || { cat "$work/out"; fail "not continued"; }
same_all dst/back src/back

# What ssh says is the reason.
policies "$keys/none"
refused "host key verification failed" run to
refused "host key verification failed" run from
sed "s|\(ssh-ed25519\) .*|\1 $(cut -d ' ' -f 2 "$keys/user.pub")|" "$known" | grep ed25519 >"$keys/changed"
policies "$keys/changed"
refused "host key verification failed" run to
policies "$known"
: >"$keys/authorized"
refused "permission denied" run to
stop_sshd
refused "connection refused" run to
"$CENOTE" replicate status --policy-file "$work/policies.toml" >"$work/out" 2>&1
grep -qi "connection refused" "$work/out" || { cat "$work/out"; fail "the status does not say why"; }

# Names of hosts are no options.
for place in "ssh://-oProxyCommand=touch%20$work%2Fmarker/dst/x" "ssh://-oProxyCommand=id/dst/x" "ssh://-l@127.0.0.1/dst/x" \
    "ssh://127.0.0.1:-p/dst/x" 'ssh://$(id)/dst/x' "ssh://127.0.0.1/-x"; do
    "$CENOTE" replicate src/data "$place" >"$work/out" 2>&1
    [ $? = 2 ] || { cat "$work/out"; fail "$place is taken"; }
done
[ ! -e "$work/marker" ] || fail "a name of a host was a command"
judge_both
pass
