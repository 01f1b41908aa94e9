#!/usr/bin/env bash
# Formats and lints the dashboard's JavaScript with Biome, by the rules of biome.json, and checks its types with
# TypeScript, by tsconfig.json and the shapes in dashboard/types.d.ts; lines have at most 140 columns.
# Both come from npm into .tools, once. `--write` as argument corrects the files in place.
# Not here: tests of the dashboard (tests/browser).
set -eu
cd "$(dirname "$0")/.."

BIOME=2.6.7
TYPESCRIPT=7.0.2
COLUMNS_MAX=140
FILES=src/headwater/server/dashboard

# `installed FOLDER COMMAND VERSION PACKAGE`: install a package, unless that version of its command is there.
installed() {
    case "$(".tools/$1/node_modules/.bin/$2" --version 2>/dev/null || true)" in *" $3") return ;; esac
    if ! command -v npm >/dev/null 2>&1; then
        echo "headwater: npm is needed to check the dashboard's JavaScript; install Node.js 18 or newer." >&2
        exit 1
    fi
    mkdir -p ".tools/$1"
    npm install --prefix ".tools/$1" --no-audit --no-fund --silent "$4@$3"
}

installed biome biome "$BIOME" @biomejs/biome
installed typescript tsc "$TYPESCRIPT" typescript
.tools/biome/node_modules/.bin/biome check --error-on-warnings "$@" "$FILES"
.tools/typescript/node_modules/.bin/tsc --project tsconfig.json
long="$(find "$FILES" -name '*.js' -exec awk -v most="$COLUMNS_MAX" 'length($0) > most { print FILENAME ":" FNR }' {} +)"
if [ -n "$long" ]; then
    printf 'lines of more than %s columns:\n%s\n' "$COLUMNS_MAX" "$long" >&2
    exit 1
fi
