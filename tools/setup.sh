#!/usr/bin/env bash
# Sets up .venv for the Makefile: checks Java and Python first, then installs the package with its extras.
# Everything that can be missing is told in one sentence before anything is downloaded.
# Not here: the servers that the benchmarks compare with (bench/setup.sh).
set -eu
cd "$(dirname "$0")/.."

PYTHON_MINOR_MIN=11
JAVA_MAJOR_MIN=17

fail() {
    echo "headwater: $*" >&2
    exit 1
}

# The first number of `java -version` ("17.0.15" is 17, "1.8.0" is 1), or nothing when Java does not run.
java_major() {
    "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

check_java() {
    local java=java install major
    if [ -n "${JAVA_HOME:-}" ]; then java="$JAVA_HOME/bin/java"; fi
    install="Debian/Ubuntu: apt-get install openjdk-17-jre-headless (Debian 13: openjdk-21-jre-headless); macOS: brew install openjdk@17; conda: conda install -c conda-forge openjdk=17"
    major="$(java_major "$java" || true)"
    if [ -z "$major" ]; then
        fail "Java $JAVA_MAJOR_MIN or newer is needed for Spark and $java does not run; install it with one of: $install."
    fi
    if [ "$major" -lt "$JAVA_MAJOR_MIN" ]; then
        fail "Java $JAVA_MAJOR_MIN or newer is needed for Spark and $java is older; install it with one of: $install (and set JAVA_HOME to it)."
    fi
}

new_enough() {
    "$1" -c "import sys; sys.exit(sys.version_info < (3, $PYTHON_MINOR_MIN))" >/dev/null 2>&1
}

pick_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not a Python 3.$PYTHON_MINOR_MIN or newer."
        echo "$PYTHON"
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11 python; do
        if new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "Python 3.$PYTHON_MINOR_MIN or newer is needed and none was found; install one, or name it: make PYTHON=/path/to/python3.12 ..."
}

make_venv() {
    local python="$1" version
    # A venv that was begun and not finished, or whose Python has gone, is made anew.
    if .venv/bin/python -m pip --version >/dev/null 2>&1; then return; fi
    version="$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        fail "Python $version at $python cannot make virtual environments; on Debian/Ubuntu: apt-get install python$version-venv."
    fi
    rm -rf .venv
    "$python" -m venv .venv
}

install() { # extras
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$1]" ||
        fail "pip could not install the packages (its words are above); check the network and run make again."
}

check_java
python="$(pick_python)"
make_venv "$python"

echo "headwater: installing Spark, Arrow and the tools into .venv (first time only, a few minutes) ..."
install spark
# Half a minute of Java's time, while pip waits for the network; without it the first demo waits for Spark twice as long.
# The path: pip replaces the package's entry in .venv meanwhile.
PYTHONPATH=src .venv/bin/python -m tools.java_archive &
install spark,dev,bench
wait "$!" || true
touch .venv/.ready
echo "headwater: ready (${SECONDS} s)"
