#!/bin/bash
# Fails when the committed generated code is not what its sources give: when a file
# differs, is missing, or has lost its source. It generates into a temporary folder, so it
# works in a dirty tree and changes nothing in it.
set -euo pipefail
cd "$(dirname "$0")/../.."

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
go tool -modfile=test/tools/go.mod buf generate --output "$fresh"

generated() { (cd "$1" && find xds web -name '*.pb.go' -o -name '*.pb.gw.go' | sort); }

status=0
while read -r file; do
	if ! cmp -s "$file" "$fresh/$file"; then
		echo "generated code is out of date: $file" >&2
		status=1
	fi
done < <({ generated . && generated "$fresh"; } | sort -u)
[[ $status == 0 ]] || echo "Run 'make generate' and commit what it changes." >&2
exit $status
