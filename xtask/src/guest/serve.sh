# Runs in the guest: serve.sh. Runs the scripts that the host leaves in /share/peer/requests, one after another: N.sh is
# there when N.go is, its output goes to N.out, and N.rc with its exit status comes last. The script `exit` ends it.
at=/share/peer/requests
n=1
while :; do
    until [ -e "$at/$n.go" ]; do sleep 0.05; done
    [ "$(cat "$at/$n.sh")" != exit ] || exit 0
    bash "$at/$n.sh" >"$at/$n.out" 2>&1 </dev/null
    echo $? >"$at/$n.rc.new" && mv "$at/$n.rc.new" "$at/$n.rc"
    n=$((n + 1))
done
