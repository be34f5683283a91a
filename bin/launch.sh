# shellcheck shell=sh
# Runs hbuf from this checkout as it is: when its environment is ready this costs two forks, then exec.
#
# Sourced by the programs in bin/, which set $launcher to their own path with every symlink resolved.
# set_up.py makes the environment, and describes the mark by which it is known to be ready.

checkout=${launcher%/bin/*}

# These would put other modules before ours (PYTHONPATH) or stop our Python from starting (PYTHONHOME).
unset PYTHONPATH PYTHONHOME

# is_ready: whether $environment is whole and made for this place and for this very pyproject.toml.
# Its mark holds the checkout's path on one line, then pyproject.toml byte for byte. -x follows the
# symlink to the Python it was made with, and so is false once that Python has been removed.
is_ready() {
    [ -r "$environment/$mark" ] && [ -x "$environment/bin/python" ] || return 1
    {
        IFS= read -r place && [ "$place" = "$checkout" ] && cmp -s - "$checkout/pyproject.toml" 2>/dev/null
    } <"$environment/$mark"
}

# find_python: sets $python to the real path of a Python that is new enough. The real path is the one
# with the version in its name (python3.11, not python3): an upgrade of the system that replaces
# python3 then leaves the environment without its Python, and not with one that finds no packages.
find_python() {
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        python=$("$name" -E -c '
import os, sys
if sys.version_info >= (3, 11):
    print(os.path.realpath(sys._base_executable))
' </dev/null 2>/dev/null) && [ -n "$python" ] && return
    done
    echo "hbuf: needs Python 3.11 or newer on PATH (Debian: apt-get install python3 python3-venv)" >&2
    exit 69
}

# use_environment [EXTRA]: sets $environment to a ready one, made now if need be, with the
# requirements of pyproject.toml and of its EXTRA. Set-up gets neither our stdin nor our stdout: they
# are the user's pipe.
use_environment() {
    mark=hbuf-ready${1:+-$1}
    environment=$checkout/.venv
    is_ready && return
    if [ ! -w "$checkout" ] || { [ -e "$environment" ] && [ ! -w "$environment" ]; }; then
        environment=${XDG_CACHE_HOME:-${HOME-}/.cache}/hbuf$checkout/.venv
        is_ready && return
    fi
    find_python
    "$python" -E -P "$checkout/bin/set_up.py" "$checkout" "$environment" "$@" </dev/null >&2 || exit $?
}

# run_program NAME MODULE ARGUMENT...: becomes MODULE's main(). -P keeps the current directory, which
# may hold anything, off sys.path.
run_program() {
    program=$1 module=$2
    shift 2
    use_environment
    exec "$environment/bin/python" -P -c "import sys
sys.argv[0] = '$program'
from $module import main
main()" "$@"
}
