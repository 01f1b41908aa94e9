#!/bin/sh
# Brings the peers of bench-scale onto this machine: Spark's connector for Kafka and Flink's, as jars into
# .tools/kafka-readers. Kafka and S3Proxy are brought by bench/setup.sh, Flink by bench/views/setup.sh.
#
# What cannot be had is told in one line and is no failure: the benchmark then says "not available" for it.
# Read next: bench/scale/sources.py.
set -u
cd "$(dirname "$0")/../.." || exit 1

POM=bench/scale/pom.xml
FOLDER=.tools/kafka-readers
LOG=.tools/setup-scale.log
# The stamp is the pom itself: a newer version in it brings newer jars.
cmp -s "$POM" "$FOLDER/pom.xml" && exit 0
mkdir -p .tools
rm -rf "$FOLDER"
printf 'bench set-up: getting the connectors for Kafka with mvn\n'
if mvn -B -q -f "$POM" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$PWD/$FOLDER" >"$LOG" 2>&1; then
    cp "$POM" "$FOLDER/pom.xml"
else
    rm -rf "$FOLDER"
    printf 'bench set-up: mvn could not get the connectors for Kafka; see %s\n' "$LOG"
fi
exit 0
