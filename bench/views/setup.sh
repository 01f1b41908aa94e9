#!/bin/sh
# Brings the peers of the views' benchmark onto this machine: Flink SQL and Pathway, each into a Python environment
# of its own under .tools, for they pin versions that would fight with ours. What is there already is left alone.
#
# A peer that cannot be had is told in one line and is no failure: the benchmark then says "not available" for it.
# Read next: bench/views/peers/runs.py, which runs what is brought here.
set -u
cd "$(dirname "$0")/../.." || exit 1

PYTHON=.venv/bin/python
[ -x "$PYTHON" ] || PYTHON=python3
LOG=.tools/setup-views.log
mkdir -p .tools
: >"$LOG"

say() { printf 'bench set-up: %s\n' "$*"; }

# bring NAME PACKAGE==VERSION: the stamp is the version, so a newer one here is installed anew.
bring() {
    [ "$(cat ".tools/$1/.ready" 2>/dev/null)" = "$2" ] && return 0
    say "installing $2 into .tools/$1 (some minutes)"
    rm -rf ".tools/$1"
    if "$PYTHON" -m venv ".tools/$1" >>"$LOG" 2>&1 &&
        ".tools/$1/bin/python" -m pip install --quiet --disable-pip-version-check "$2" >>"$LOG" 2>&1; then
        printf '%s\n' "$2" >".tools/$1/.ready"
    else
        rm -rf ".tools/$1"
        say "pip could not install $2; see $LOG"
    fi
}

command -v java >/dev/null 2>&1 || say "Flink needs Java 17 or newer; install openjdk-17-jre-headless"
bring flink apache-flink==2.3.0
bring pathway pathway==0.33.0
exit 0
