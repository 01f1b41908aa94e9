#!/bin/sh
# Brings the servers that the tests start onto this machine, where they are missing and that is possible: a line for each.
# PostgreSQL is not here: it comes with a wheel (the extra "dev").
set -u

# bring PROGRAM PACKAGE: install a Debian package unless its program is there.
bring() {
    command -v "$1" >/dev/null 2>&1 && return 0
    if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" -ne 0 ]; then
        echo "services: $1 is missing; install the package $2 (Debian: sudo apt-get install $2)"
        return 0
    fi
    echo "services: installing $2"
    # policy-rc.d keeps the package from starting a service of its own: the tests start and stop their servers.
    added=
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d && added=yes
    fi
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$2"; } >/dev/null 2>&1 ||
        echo "services: apt-get could not install $2; the tests that need it will fail"
    [ -n "$added" ] && rm -f /usr/sbin/policy-rc.d
    return 0
}

bring redis-server redis-server
