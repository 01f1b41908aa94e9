#!/bin/sh
# Brings the servers that the tests talk to, from Debian's packages. What is there already is left alone.
# One line for each server, at the end: the program that shows it is there, and the package.
#
# Where there is no apt-get, or no right to use it, this says so and is no failure: the tests of that server then fail,
# with the line that installs it.
set -u
cd "$(dirname "$0")/.." || exit 1
LOG=.tools/services.log
mkdir -p .tools
: >"$LOG"

say() { printf 'services: %s\n' "$*"; }

bring() { # program package
    [ -n "$(command -v "$1")" ] && return
    if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" -ne 0 ]; then
        say "$2 is missing; install it: apt-get update && apt-get install -y --no-install-recommends $2"
        return
    fi
    say "installing $2"
    # policy-rc.d keeps the package from starting a server of its own: the tests start and stop theirs.
    policy=/usr/sbin/policy-rc.d
    added=
    [ -e "$policy" ] || { printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && added=yes; }
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$2"; } >>"$LOG" 2>&1 ||
        say "apt-get could not install $2; see $LOG"
    [ -z "$added" ] || rm -f "$policy"
}

PATH="$PATH:/usr/sbin"
bring redis-server redis-server
bring rabbitmq-server rabbitmq-server
bring mariadbd mariadb-server
bring chromium chromium
bring gocryptfs gocryptfs
# Recommended by gocryptfs, not required; a volume cannot be mounted without it.
bring fusermount fuse
exit 0
