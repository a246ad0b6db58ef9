#!/bin/bash
# Runs every fuzz target for a while, one after the other: fuzz.sh 20s. The seeds and the kept findings
# (testdata/fuzz beside a target) run with every go test as well.
set -euo pipefail
cd "$(dirname "$0")/../.."

for file in $(grep -rl --include='*_test.go' '^func Fuzz' . | sort); do
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
		echo "fuzz $(dirname "$file") $target for $1"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime 1s "$(dirname "$file")" | tail -n 2
	done
done
