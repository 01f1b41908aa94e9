#!/bin/sh
# Brings the peer of bench/watch/searches.py onto this machine: the jars of Lucene's monitor into .tools/lucene-monitor.
#
# What cannot be had is told in one line and is no failure: the benchmark then says "not available" for it.
# Read next: bench/watch/searches.py.
set -u
cd "$(dirname "$0")/../.." || exit 1

POM=bench/watch/pom.xml
FOLDER=.tools/lucene-monitor
LOG=.tools/setup-watch.log
# The stamp is the pom itself: a newer version in it brings newer jars.
cmp -s "$POM" "$FOLDER/pom.xml" && exit 0
mkdir -p .tools
rm -rf "$FOLDER"
printf 'bench set-up: getting the jars of Lucene with mvn\n'
if mvn -B -q -f "$POM" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$PWD/$FOLDER" >"$LOG" 2>&1; then
    cp "$POM" "$FOLDER/pom.xml"
else
    rm -rf "$FOLDER"
    printf 'bench set-up: mvn could not get the jars of Lucene; see %s\n' "$LOG"
fi
exit 0
