#!/bin/sh
# hbuf-heads [-e COMMAND] DIR BUF...: keeps the newest head of each signed buffer as a signed note, somewhere else.
#
# DIR must be there: a disk that is not mounted is an error. The note of message 42 of /srv/orders becomes
# DIR/srv/orders/00000000000000000042.note, once it is whole and on disk. A note is never replaced, and none is added
# that is older than the newest one there, or of another buffer. With -e, DIR is on another machine: COMMAND, like
# 'ssh -o BatchMode=yes vault', runs a line of shell there.
#
# Buffers that are not signed, or have no message yet, are passed over, unless a note of them is kept. No key is needed,
# and the buffers are only read.
#
# Silent when all is well (exit 0). Else one line a buffer on standard error (exit 1; 2: usage). A line about a buffer
# that is behind its note, or is another one, is a reason to run hbuf-verify --head with that note.

set -u
via='sh -c'
failed=0

usage() {
    echo 'usage: hbuf-heads [-e COMMAND] DIR BUF...' >&2
    exit 2
}

while getopts e: option; do
    case $option in
        e) via=$OPTARG ;;
        *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -ge 2 ] && [ -n "$via" ] || usage
target=$1
shift

quote() {
    printf "'"
    printf %s "$1" | sed "s/'/'\\\\''/g"
    printf "'"
}

complain() {
    printf 'hbuf-heads: %s\n' "$(printf %s "$1" | tr '\n' ' ')" >&2
    failed=1
}

# What runs where the notes are. The note is part of it, and not on standard input: so it comes whole or not at all.
keep='
cd -- "$target" && umask 022 || exit
kept=
if [ -d "./$place" ]; then
    cd -- "./$place" || exit
    kept=$(ls | grep -x "[0-9]*[.]note" | sort | tail -n 1)
fi
if [ -z "$note" ]; then
    [ -z "$kept" ] || { echo "has no head any more, and $kept is kept"; exit 1; }
    exit 0
fi
if [ -n "$kept" ]; then
    buffer=$(printf "%s\n" "$note" | head -n 1)
    [ "$(head -n 1 -- "$kept")" = "$buffer" ] || { echo "is another buffer than that of $kept"; exit 1; }
    [ "${kept%.note}" -le "$number" ] || { echo "ends with message $number, and $kept is kept"; exit 1; }
else
    mkdir -p -- "./$place" && cd -- "./$place" || exit
fi
if [ -e "$number.note" ]; then
    [ "$(cat -- "$number.note")" = "$note" ] || { echo "has another head than $number.note"; exit 1; }
    exit 0
fi
printf "%s\n" "$note" > ".new-$number" && sync ".new-$number" && mv -- ".new-$number" "$number.note" && sync .
'

for buffer in "$@"; do
    if note=$(hbuf-head -- "$buffer" 2>&1) && [ "${note#hbuf/}" != "$note" ]; then
        number=$(printf '%020d' "$(printf '%s\n' "$note" | sed -n 2p)")
    else
        case $note in
            *': is not signed'* | *': has no message yet'*) note='' number='' ;;
            *)
                complain "$(printf '%s\n' "${note#hbuf-head: }" | head -n 1)"
                continue
                ;;
        esac
    fi
    place=$(cd -P -- "$buffer" && pwd -P) || continue
    line="target=$(quote "$target") place=$(quote "${place#/}") number=$number note=$(quote "$note"); $keep"
    # COMMAND may be several words.
    said=$($via "$line" 2>&1 </dev/null) || complain "$buffer: ${said:-its head could not be kept}"
done
exit $failed
