#!/bin/sh
# hbuf-retire-all ROOT: retires in every buffer of a daemon's root, signing with the daemon's own keys.
#
# Buffers that no rule is set for stay as they are. One that fails is told, and the others go on; the exit code is that
# of the last failure.

[ $# -eq 1 ] || {
    echo "usage: hbuf-retire-all ROOT" >&2
    exit 2
}
code=0
for buffer in "$1"/tenants/*/buffers/*; do
    [ -d "$buffer" ] || continue
    tenant=${buffer%/buffers/*}
    key=$1/keys/${tenant##*/}/${buffer##*/}.key
    if [ -e "$key" ]; then
        hbuf-retire --sign "$key" "$buffer" || code=$?
    else
        hbuf-retire "$buffer" || code=$?
    fi
done
exit "$code"
