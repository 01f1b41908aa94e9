#!/usr/bin/env bash
# Formats and lints the dashboard's JavaScript with Biome, by the rules of biome.json; lines have at most 140 columns.
# Biome comes from npm into .tools, once. `--write` as argument corrects the files in place.
# Not here: tests of the dashboard (tests/browser).
set -eu
cd "$(dirname "$0")/.."

BIOME=2.6.7
COLUMNS_MAX=140
FILES=src/headwater/server/dashboard

if [ "$(.tools/biome/node_modules/.bin/biome --version 2>/dev/null || true)" != "Version: $BIOME" ]; then
    if ! command -v npm >/dev/null 2>&1; then
        echo "headwater: npm is needed to check the dashboard's JavaScript; install Node.js 18 or newer." >&2
        exit 1
    fi
    mkdir -p .tools/biome
    npm install --prefix .tools/biome --no-audit --no-fund --silent "@biomejs/biome@$BIOME"
fi
.tools/biome/node_modules/.bin/biome check --error-on-warnings "$@" "$FILES"
long="$(find "$FILES" -name '*.js' -exec awk -v most="$COLUMNS_MAX" 'length($0) > most { print FILENAME ":" FNR }' {} +)"
if [ -n "$long" ]; then
    printf 'lines of more than %s columns:\n%s\n' "$COLUMNS_MAX" "$long" >&2
    exit 1
fi
