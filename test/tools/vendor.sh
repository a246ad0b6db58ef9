#!/bin/bash
# Fetches the browser libraries of the dashboard anew with npm, as web/ui/static/vendor/vendor.json names them, and writes
# their sums there. To take another version, change it there first; then look at what changed, and run the tests.
#
# It needs npm and jq. Neither the build nor the tests do: the files are part of the repository.
set -euo pipefail

cd "$(dirname "$0")/../../web/ui/static/vendor"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for i in $(jq -r 'keys[]' vendor.json); do
	field() { jq -r ".[$i].$1" vendor.json; }
	package=$(field package)@$(field version)
	folder=$work/${package//\//_}
	if [[ ! -d $folder ]]; then
		mkdir "$folder"
		npm pack --silent --pack-destination "$folder" "$package" >/dev/null
		tar -xzf "$folder"/*.tgz -C "$folder"
	fi
	cp "$(find "$folder/package" -name "$(field file)" | head -1)" "$(field file)"
	cp "$(find "$folder/package" -maxdepth 1 -iname 'licen[sc]e*' | head -1)" "$(field license_file)"
	jq --arg sum "$(sha256sum "$(field file)" | cut -d' ' -f1)" ".[$i].sha256 = \$sum" vendor.json >"$work/vendor.json"
	# One library a line, as people read it.
	jq -r '"[\n" + (map("  " + (tojson | gsub("\":"; "\": ") | gsub(",\""; ", \""))) | join(",\n")) + "\n]"' "$work/vendor.json" >vendor.json
done
