#!/bin/sh
# hbuf-audit.sh DIR: verifies the hash chain of a buffer with a shell, POSIX tools (plus head -c) and a hash
# tool alone: b3sum, or sha256sum for a buffer whose PUT says `x-hbuf-hash: sha256`. None of hbuf is used.
# Compressed segments (.http.zst) are unpacked with zstdcat.
#
#   commit = H("hbuf1 body " salt "\n" fields body)
#   id     = H("hbuf1 id\n" id-before "\n" commit "\n" head)
#
# Checked, for every record of every segment in order: the frame (request line, host, order of head, fields
# and trailer, content-length, the CRLF behind the body, a header section of at most 65535 bytes), the id, that
# each segment opens with a PUT whose x-hbuf-prev is the id before (64 zeros for the very first), and that numbers
# begin at x-hbuf-first and have no gaps. A buffer that does not begin at 1 needs a DELETE that retires the rest.
#
# NOT checked:
# - signatures. Without them a chain shows that nothing was changed since somebody noted its last id, and no more:
#   whoever can write the files can compute a new chain. Compare the id that is printed with one noted elsewhere.
#   Records missing at the very end leave a valid, shorter chain: again only a noted number and id tell.
# - erased messages (x-hbuf-gone): the commitment they state is taken as it is. Whether a DELETE covers it, and whether
#   fields and body are really blank, is not looked at. How many there are is said on standard error.
# - the fine grammar: which fields and lines may stand where, UTF-8, that times exist and never go back, names,
#   atomic units (x-hbuf-batch), producers, data keys, encrypted bodies.
# - settings: the PUT's JSON, buffer.json, and whether records obey them.
# - everything beside the segments: seek tables of compressed ones, .idx, .tags, keys.http, consumers, quarantine.
# - a buffer that is being written to: take a copy, or pause it, or a record under way may look torn.
#
# Prints `DIR: N messages, last SEQ ID` (exit 0) or `FILE: byte B: what is wrong` (exit 65: the first fault only).
# Exit 2: usage, 66: no such buffer, 69: the hash tool or zstdcat is missing, 70: the audit itself could not be finished.
# Bodies are copied to a directory of its own in ${TMPDIR:-/tmp}, some at a time, compressed segments unpacked there, and
# all is removed.

LC_ALL=C
export LC_ALL
umask 077
zeros=0000000000000000000000000000000000000000000000000000000000000000
batch_records=256
batch_bytes=16777216

if [ $# -ne 1 ] || [ -z "$1" ]; then
    echo "usage: hbuf-audit.sh DIR" >&2
    exit 2
fi
shown=$1
case $1 in
/*) dir=$1 ;;
*) dir=./$1 ;;
esac
found=
for file in "$dir"/segments/*.http "$dir"/segments/*.http.zst; do
    [ -f "$file" ] || continue
    found=1
    case $file in
    *.zst)
        if ! command -v zstdcat >/dev/null 2>&1; then
            printf '%s: zstdcat is needed, and is not installed\n' "$shown" >&2
            exit 69
        fi
        ;;
    esac
done
if [ -z "$found" ]; then
    printf '%s: no such buffer\n' "$shown" >&2
    exit 66
fi

work=${TMPDIR:-/tmp}/hbuf-audit.$$
case $work in
/*) ;;
*) work=./$work ;;
esac
mkdir "$work" || exit 70 # fails where the name is taken, so it is ours alone
trap 'rm -rf "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Reads one segment, in which every NUL was made a \001 (same lengths, and any awk can read it). Writes for each whole
# record a line of what the chain needs, its head to h.N, and what is hashed before its body to c.N. Heads and fields
# have no control characters, so they are exact; bodies are only counted here, and read from the segment later.
# shellcheck disable=SC2016
frame='
function fault(what) {
    printf "F %.0f %s\n", start, what
    failed = 1
    exit 1
}
function value(name) {
    return substr(line, length(name) + 3)
}
function is(name) {
    return index(line, name ": ") == 1
}
function is_id(text) {
    return length(text) == 64 && text !~ /[^0-9a-f]/
}
function is_number(text) {
    return text ~ /^[1-9][0-9]*$/ && length(text) <= 18
}
function hex_of(text,    i, v, hex) { # 32 bytes in base64url: 43 characters, the last with 4 bits
    hex = ""
    for (i = 1; i < 43; i += 2) {
        v = (index(base64, substr(text, i, 1)) - 1) * 64 + index(base64, substr(text, i + 1, 1)) - 1
        hex = hex sprintf("%03x", v)
    }
    return hex sprintf("%x", int((index(base64, substr(text, 43, 1)) - 1) / 4))
}
function begin_record() {
    start = at
    step = "request"
    method = head = fields = salt = id = ""
    seq = gone = hash = first = before = retires = "-"
    put_format = 0
}
function begin_body() {
    if (method == "PUT" && put_format && (hash == "-" || first == "-" || before == "-"))
        fault("a PUT lacks one of its lines")
    if (method == "PUT" && !put_format)
        hash = first = before = "-"
    body_at = at
    left = body_length
    step = "body"
}
function end_record() {
    if (at > size)
        fault("the record is cut short")
    number = segment "-" ++records
    printf "%s", head > (work "/h." number)
    close(work "/h." number)
    if (gone == "-") {
        printf "hbuf1 body %s\n", salt > (work "/c." number)
        printf "%s", fields > (work "/c." number)
        close(work "/c." number)
    }
    printf "R %s %.0f %.0f %.0f", number, start, body_at, body_length
    printf " %s %s %s %s %s %s %s %s\n", method, seq, id, gone, hash, first, before, retires
    begin_record()
}
BEGIN {
    RS = "\n"
    base64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    at = 0
    begin_record()
}
step == "body" {
    n = length($0)
    at += n + 1
    if (left > n) {
        left -= n + 1
        next
    }
    if (substr($0, left + 1) != "\r")
        fault(at > size ? "the record is cut short" : "the body is not followed by an empty line")
    end_record()
    next
}
{
    n = length($0)
    at += n + 1
    if (at - start > 65535)
        fault("the header section is too long")
    if (at > size)
        fault("the header section is cut short")
    if (substr($0, n) != "\r")
        fault("a line of the header section does not end in CRLF")
    line = substr($0, 1, n - 1)
    if (line ~ /[\001-\037\177]/)
        fault("a control character in the header section")
}
step == "request" {
    if (line !~ /^(POST|PUT|DELETE) \/b\/_?[a-z0-9][a-z0-9._-]* HTTP\/1\.1$/)
        fault("no record begins here")
    method = substr(line, 1, index(line, " ") - 1)
    head = $0 "\n"
    step = "host"
    next
}
step == "host" {
    if (line != "host: hbuf")
        fault("the second line is not the host")
    head = head $0 "\n"
    step = method == "PUT" ? "time" : "seq"
    next
}
step == "seq" {
    seq = value("x-hbuf-seq")
    if (!is("x-hbuf-seq") || !is_number(seq))
        fault("the third line is not a number that can be counted")
    head = head $0 "\n"
    step = "time"
    next
}
step == "time" {
    if (!is("x-hbuf-time"))
        fault("the time is missing")
    head = head $0 "\n"
    step = "own"
    next
}
step == "own" {
    head = head $0 "\n"
    if (is("content-length")) {
        body_length = value("content-length")
        if (body_length !~ /^(0|[1-9][0-9]*)$/ || length(body_length) > 10)
            fault("content-length is not as it may be")
        body_length += 0
        step = "fields"
        next
    }
    if (line !~ /^x-hbuf-[a-z0-9-]+: / || line ~ /^x-hbuf-(seq|time|key|tag|salt|gone|id|sig): /)
        fault("a line that has no place in the head")
    if (method == "PUT") {
        if (is("x-hbuf-format")) {
            if (put_format++)
                fault("x-hbuf-format is there twice")
            if (value("x-hbuf-format") != "1")
                fault("a format that this audit does not know")
        } else if (is("x-hbuf-hash")) {
            if (hash != "-")
                fault("x-hbuf-hash is there twice")
            hash = value("x-hbuf-hash")
            if (hash != "blake3" && hash != "sha256")
                fault("a hash that this audit does not know")
        } else if (is("x-hbuf-first")) {
            if (first != "-")
                fault("x-hbuf-first is there twice")
            first = value("x-hbuf-first")
            if (!is_number(first))
                fault("x-hbuf-first is not a number that can be counted")
        } else if (is("x-hbuf-prev")) {
            if (before != "-")
                fault("x-hbuf-prev is there twice")
            before = value("x-hbuf-prev")
            if (!is_id(before))
                fault("x-hbuf-prev is not an id")
        }
    } else if (method == "DELETE" && is("x-hbuf-retires")) {
        split(value("x-hbuf-retires"), part, " ")
        if (part[1] ~ /^1-/ && is_number(substr(part[1], 3)) && is_id(part[2]))
            retires = substr(part[1], 3) ":" part[2]
    }
    next
}
step == "fields" && (is("x-hbuf-salt") || is("x-hbuf-gone")) {
    salt = substr(line, 14)
    if (length(salt) != 43 || salt ~ /[^A-Za-z0-9_-]/ || salt !~ /[AEIMQUYcgkosw048]$/)
        fault("the salt is not as it may be")
    if (is("x-hbuf-gone")) {
        if (method != "POST")
            fault("only a message can be erased")
        gone = hex_of(salt)
    }
    step = "id"
    next
}
(step == "fields" || step == "id") && is("x-hbuf-id") {
    id = value("x-hbuf-id")
    if (!is_id(id))
        fault("x-hbuf-id is not an id")
    step = "sig"
    next
}
step == "fields" {
    if (line !~ /^[a-z][^ :]*: / && line !~ /^[a-z][^ :]*: *$/)
        fault("a line that is no field")
    if (line ~ /^x-hbuf-/ && !is("x-hbuf-key") && !is("x-hbuf-tag"))
        fault("a line that has no place in the fields")
    fields = fields $0 "\n"
    next
}
step == "sig" && is("x-hbuf-sig") {
    sig = value("x-hbuf-sig")
    if (length(sig) != 86 || sig ~ /[^A-Za-z0-9_-]/ || sig !~ /[AQgw]$/)
        fault("the signature is not as it may be")
    step = "blank"
    next
}
(step == "sig" || step == "blank") && line == "" {
    begin_body()
    next
}
{
    fault("the trailer is not as it must be")
}
END {
    if (failed)
        exit 1
    if (step == "body")
        fault("the record is cut short")
    if (step != "request")
        fault("the header section is cut short")
    if (size == 0)
        fault("the segment is empty")
    if (at != size) {
        start = at
        fault("bytes that could not be read")
    }
}'

# All segments, one behind the other: `S file-name number`, then what `frame` says; `E` when everything was read. A
# compressed one is unpacked to s.number, unless the plain one is there too, which counts then.
frames() {
    segment=0
    for file in "$dir"/segments/*.http*; do
        name=${file##*/}
        case $name in
        *.http.zst) [ ! -f "${file%.zst}" ] || continue ;;
        *.http) ;;
        *) continue ;;
        esac
        case ${name%.http*} in
        '' | *[!0-9]*)
            printf 'S ? 0\nF 0 %s\n' "the name is not a number"
            return
            ;;
        esac
        segment=$((segment + 1))
        printf 'S %s %s\n' "$name" "$segment"
        case $name in
        *.zst)
            if ! zstdcat -q "$file" >"$work/s.$segment" 2>/dev/null; then
                printf 'F 0 %s\n' "the compressed segment cannot be unpacked"
                return
            fi
            file=$work/s.$segment
            ;;
        esac
        size=$(wc -c <"$file") || return
        # `work` goes by the environment: -v would take a backslash in it for an escape.
        tr '\000' '\001' <"$file" |
            work=$work awk -v size="$((size))" -v segment="$segment" \
                'BEGIN { work = ENVIRON["work"] }'"$frame" || return
    done
    echo E
}

fault() { # FILE-NAME BYTE WHAT: what was read before it is checked first
    check_batch
    printf '%s: byte %s: %s\n' "$shown/segments/$1" "$2" "$3"
    exit 65
}

unfinished() {
    printf '%s: the audit could not be finished: %s\n' "$shown" "$1" >&2
    exit 70
}

hash_files() { # the digest of each $prefix.N that the batch has, as lines `digest  name`
    (
        cd "$work" || exit
        set --
        while read -r n _; do
            [ -f "$prefix.$n" ] && set -- "$@" "$prefix.$n"
        done <batch
        [ $# -eq 0 ] || "$tool" "$@"
    ) >"$work/$prefix" || unfinished "$tool failed"
}

# Two calls of the hash tool for a whole batch: the ids can be checked all at once because each record states its own.
check_batch() {
    [ "$waiting" -gt 0 ] || return 0
    prefix=c
    hash_files
    (
        cd "$work" || exit
        awk '
            FILENAME == "c" { commit[substr($2, 3)] = $1; next }
            {
                out = "i." $1
                printf "hbuf1 id\n%s\n%s\n", $4, $6 == "-" ? commit[$1] : $6 > out
                while ((getline line < ("h." $1)) > 0)
                    printf "%s\n", line > out
                close("h." $1)
                close(out)
            }' c batch
    ) || unfinished "awk failed"
    prefix=i
    hash_files
    wrong=$(cd "$work" && awk '
        FILENAME == "i" { id[substr($2, 3)] = $1; next }
        id[$1] != $5 { print $2, $3; exit }' i batch) || unfinished "awk failed"
    if [ -n "$wrong" ]; then
        printf '%s: byte %s: %s\n' "$shown/segments/${wrong% *}" "${wrong#* }" "the id does not match what it covers"
        exit 65
    fi
    (
        cd "$work" || exit
        while read -r n _; do
            set -- "$@" "c.$n" "h.$n" "i.$n"
        done <batch
        rm -f "$@"
    )
    : >"$work/batch"
    waiting=0
    waiting_bytes=0
}

audit() {
    : >"$work/batch"
    waiting=0 waiting_bytes=0 messages=0 erased=0
    hash='' tool='' id_before='' next='' retired='' start='' ended='' name=''
    while read -r kind a at body_at length method seq id gone its_hash first before retires; do
        case $kind in
        S)
            rm -f "$work/s.$((at - 1))"
            name=$a
            case $name in
            *.zst) file=$work/s.$at ;;
            *) file=$dir/segments/$name ;;
            esac
            opening=1
            continue
            ;;
        F)
            # What is wrong was split into words by read.
            what="$at $body_at $length $method $seq $id $gone $its_hash $first $before $retires"
            while [ "$what" != "${what% }" ]; do what=${what% }; done
            fault "$name" "$a" "$what"
            ;;
        E)
            ended=1
            continue
            ;;
        R) ;;
        *) unfinished "a line that was not expected" ;;
        esac

        if [ -n "$opening" ]; then
            [ "$first" != - ] || fault "$name" "$at" "the segment does not begin with a PUT that opens it"
            opening=
        fi
        if [ "$first" != - ]; then
            if [ -z "$hash" ]; then # the very first record
                hash=$its_hash
                case $hash in
                blake3) tool=b3sum ;;
                *) tool=sha256sum ;;
                esac
                if ! command -v "$tool" >/dev/null 2>&1; then
                    printf '%s: %s is needed, and is not installed\n' "$shown" "$tool" >&2
                    exit 69
                fi
                if [ "$first" = 1 ]; then id_before=$zeros; else id_before=$before; fi
                next=$first
                start=$((first - 1)):$before
                last=$((first - 1))
                last_id=$before
                first_name=$name
            fi
            [ "$its_hash" = "$hash" ] || fault "$name" "$at" "the hash is not that of the first PUT"
            [ "$before" = "$id_before" ] || fault "$name" "$at" "x-hbuf-prev is not the id before"
            [ "$first" = "$next" ] || fault "$name" "$at" "x-hbuf-first is $first where $next must follow"
        fi
        if [ "$seq" != - ]; then
            [ "$seq" = "$next" ] || fault "$name" "$at" "the number is $seq where $next must follow"
            next=$((next + 1))
            messages=$((messages + 1))
            last=$seq
            last_id=$id
        fi
        if [ "$retires" != - ] && [ "${retires%%:*}" -ge "${start%%:*}" ]; then
            # What is retired and not yet removed is still there to be checked.
            if [ "$retires" = "$start" ] || [ "${retires%%:*}" -gt "${start%%:*}" ]; then retired=1; fi
        fi

        if [ "$gone" != - ]; then
            erased=$((erased + 1))
        elif [ "$length" -gt 0 ]; then
            tail -c "+$((body_at + 1))" "$file" | head -c "$length" >>"$work/c.$a" ||
                unfinished "a body could not be copied"
        fi
        printf '%s %s %s %s %s %s\n' "$a" "$name" "$at" "$id_before" "$id" "$gone" >>"$work/batch"
        id_before=$id
        waiting=$((waiting + 1))
        waiting_bytes=$((waiting_bytes + length))
        if [ "$waiting" -ge "$batch_records" ] || [ "$waiting_bytes" -ge "$batch_bytes" ]; then check_batch; fi
    done
    check_batch
    [ -n "$ended" ] || unfinished "a segment could not be read"
    if [ "${start%%:*}" -gt 0 ] && [ -z "$retired" ]; then
        fault "$first_name" 0 "the messages up to ${start%%:*} are missing, and no DELETE retires them"
    fi
    [ "$erased" -eq 0 ] || printf '%s: %s erased, taken at their word\n' "$shown" "$erased" >&2
    printf '%s: %s messages, last %s %s\n' "$shown" "$messages" "$last" "$last_id"
}

frames | audit
