# Runs in the guest beside serve.sh: runs the commands that `there` on the host leaves in /share/peer/calls, each when its
# file ID.go is there, beside each other. Input is ID.in, output goes to ID.out and ID.err, and ID.rc comes last.
at=/share/peer/calls
until [ -e "$at/end" ]; do
    for go in "$at"/*.go; do
        [ -e "$go" ] || continue
        id=${go%.go}
        mv "$go" "$id.taken"
        (
            bash "$id.sh" <"$id.in" >"$id.out" 2>"$id.err"
            echo $? >"$id.rc.new"
            mv "$id.rc.new" "$id.rc"
        ) &
    done
    sleep 0.05
done
