#!/bin/sh
# What the units of Cenote must do under systemd, as root of a machine that may be spoilt. Ends at the first thing that is not so.
set -eu
cd /root
ok() { echo "ok: $*"; }
bad() {
    echo "NOT SO: $*" >&2
    systemctl status --no-pager --full cenoted.service cenoted.socket >&2 || true
    journalctl --no-pager -n 60 -u cenoted >&2 || true
    exit 1
}
pid() { systemctl show -p MainPID --value cenoted.service; }
# Without the process beside each.
daemons() { pgrep -x -a 'cenoted|cenote' | grep -c -v -e ' --release ' || true; }
mounts() { grep -c '^tank' /proc/self/mounts || true; }
# soon WORDS: what they say becomes so within a minute.
soon() {
    for _ in $(seq 600); do
        if "$@"; then return 0; fi
        sleep 0.1
    done
    bad "$@"
}
is_active() { [ "$(systemctl is-active cenoted.service)" = active ]; }
is_inactive() { [ "$(systemctl is-active cenoted.service)" = inactive ]; }
is_another() { [ "$(pid)" != 0 ] && [ "$(pid)" != "$1" ] && is_active; }

systemd-analyze verify cenoted.service cenoted.socket || bad "systemd takes the units"
HOME=/root XDG_RUNTIME_DIR=/run systemd-analyze --user verify /usr/lib/systemd/user/cenoted.service /usr/lib/systemd/user/cenoted.socket ||
    bad "systemd takes the units of a user"
systemd-analyze security --no-pager --threshold=55 cenoted.service >/tmp/security || {
    cat /tmp/security >&2
    bad "its exposure is 5.5 at most"
}
ok "units: $(tail -1 /tmp/security)"

systemctl start cenoted.socket
is_inactive || bad "the socket is there before the daemon"
truncate -s 256M image
zpool create -m /tank tank /root/image
is_active || bad "the first command starts the service"
zfs create tank/a
zfs create tank/b
echo first >/tank/a/file
sync /tank/a/file
[ "$(mounts)" = 3 ] || bad "file systems are mounted for everybody"
ok "a command starts the daemon through the socket; a pool is made and mounted"

status=/proc/$(pid)/status
grep -q '^NoNewPrivs:.1' "$status" && grep -q '^Seccomp:.2' "$status" || bad "it has no new rights, and a filter of calls"
# Neither modules (16), nor networks (12), nor clocks (25), nor another root (18).
rights=$(sed -n 's/^CapEff:.//p' "$status")
[ $((0x$rights >> 16 & 1 | 0x$rights >> 12 & 1 | 0x$rights >> 25 & 1 | 0x$rights >> 18 & 1)) = 0 ] ||
    bad "its rights ($rights) are those that it needs"
case $(cat /proc/"$(pid)"/cgroup) in
*/system.slice/cenoted.service) ;;
*) bad "it is in its own control group" ;;
esac
[ "$(systemctl show -p TasksMax --value cenoted.service)" = 16384 ] || bad "its threads have a bound"
ok "it is confined"

zfs snapshot tank/a@one
zpool scrub -w tank
zpool export tank
zpool import -d /root tank
[ "$(cat /tank/a/.zfs/snapshot/one/file)" = first ] || bad "a snapshot is read after export and import"
chown nobody /tank/b
su -s /bin/sh nobody -c 'echo mine >/tank/b/file && zfs list -H -o name tank/b' >/tmp/said || bad "others use it"
[ "$(cat /tmp/said)" = tank/b ] || bad "others ask it"
ok "scrub, export, import, snapshots, other users"

before=$(pid)
systemctl reload cenoted.service
is_active && [ "$(pid)" = "$before" ] || bad "a reload ends nothing"
zpool list tank >/dev/null
ok "reload"

systemctl restart cenoted.service
is_another "$before" || bad "a restart is another process"
[ "$(mounts)" = 3 ] && [ "$(cat /tank/a/file)" = first ] || bad "after a restart everything is mounted again"
sleep 1000 >/tank/a/open &
user=$!
systemctl restart cenoted.service
[ "$(mounts)" = 3 ] && [ "$(cat /tank/a/file)" = first ] || bad "after a restart with open files everything is mounted again"
kill $user
ok "restart, also with open files"

systemctl stop cenoted.service cenoted.socket
[ "$(mounts)" = 0 ] && [ -z "$(ls /tank 2>/dev/null)" ] || bad "after a stop nothing is mounted"
systemctl start cenoted.service
[ "$(mounts)" = 3 ] || bad "after a start everything is mounted"
ok "stop and start"

before=$(pid)
echo second >/tank/a/file
sync /tank/a/file
kill -9 "$before"
soon is_another "$before"
[ "$(cat /tank/a/file)" = second ] && [ "$(mounts)" = 3 ] || bad "after a kill everything is there again"
ok "killed, and started again"

mkdir -p /etc/systemd/system/cenoted.service.d
printf '[Service]\nWatchdogSec=3s\nTimeoutAbortSec=3s\n' >/etc/systemd/system/cenoted.service.d/proof.conf
systemctl daemon-reload
systemctl restart cenoted.service
before=$(pid)
sleep 7
[ "$(pid)" = "$before" ] || bad "one that is well is left alone"
kill -STOP "$before"
soon is_another "$before"
[ "$(cat /tank/a/file)" = second ] && [ "$(mounts)" = 3 ] || bad "after the watchdog everything is there again"
ok "the watchdog"

systemctl stop cenoted.service cenoted.socket
zpool list tank >/dev/null
is_inactive || bad "without the units a command starts a daemon of its own"
systemctl start cenoted.socket
zpool list tank >/dev/null || bad "the service takes the pools over from a daemon that a command has started"
is_active || bad "the service runs"
[ "$(mounts)" = 3 ] && [ "$(cat /tank/a/file)" = second ] || bad "its mounts are there"
[ "$(daemons)" = 1 ] || bad "there is one daemon"
ok "a daemon that a command has started gives way to the service"

zpool destroy tank
[ "$(mounts)" = 0 ] || bad "a pool is destroyed"
systemctl stop cenoted.service cenoted.socket
systemctl --failed --no-legend | grep cenote && bad "nothing has failed"
ok "the end"
