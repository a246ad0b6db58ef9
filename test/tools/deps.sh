#!/bin/bash
# Installs what `make test` needs beside Go, with apt, on Debian and Ubuntu:
#
#   gcc, libc6-dev          the race detector needs cgo
#   postgresql              test/harness starts a throwaway server from its binaries
#   redis-server            the same
#   nginx, caddy, haproxy   test/e2e runs them with the files of deploy/examples
#   systemd                 systemd-analyze checks the units there
#   prometheus              promtool checks and tests the rules of deploy/prometheus
#   prometheus-alertmanager a real one receives alerts
#   chromium                test/browser opens the dashboard in it; Google Chrome does as well
#
# Only what is missing is installed, and only by root or where sudo asks for no password.
# Otherwise the command to run is printed and the script fails: tests are never skipped.
#
# Debian's packages start a server of their own where an init system runs. The tests do
# not use those, and this script leaves them as the distribution made them: switching
# them off would need settings in /etc that outlive the tests.
set -euo pipefail

have() { command -v "$1" >/dev/null 2>&1; }

# Debian keeps the server's binaries out of PATH.
have_postgres() {
	have initdb && have postgres && return
	compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

missing=()
have gcc && [[ -e /usr/include/stdlib.h ]] || missing+=(gcc libc6-dev)
[[ -n ${TEST_POSTGRES_URL:-} ]] || have_postgres || missing+=(postgresql)
have redis-server || missing+=(redis-server)
have systemd-analyze || missing+=(systemd)
have promtool || missing+=(prometheus)
have prometheus-alertmanager || missing+=(prometheus-alertmanager)
have chromium || have chromium-browser || have google-chrome || have google-chrome-stable || missing+=(chromium)
for server in nginx caddy haproxy; do
	have "$server" || [[ -x /usr/sbin/$server ]] || missing+=("$server")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

# Ubuntu has no package of it but a snap, which needs snapd and so does not run in most containers.
if [[ " ${missing[*]} " == *" chromium "* ]] && grep -qs '^ID=ubuntu' /etc/os-release; then
	echo "missing for the tests: a Chromium. Install it with" >&2
	echo "  sudo snap install chromium" >&2
	echo "or, where there are no snaps, take Google Chrome:" >&2
	echo "  curl -O https://dl.google.com/linux/direct/google-chrome-stable_current_amd64.deb" >&2
	echo "  sudo apt-get install -y ./google-chrome-stable_current_amd64.deb" >&2
	exit 1
fi

install="apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ${missing[*]}"

if have apt-get && [[ $(id -u) == 0 ]]; then
	sh -c "$install" >&2
elif have apt-get && sudo -n true 2>/dev/null; then
	sudo -n sh -c "$install" >&2
else
	echo "missing for the tests: ${missing[*]}. Install them with" >&2
	echo "  sudo sh -c '$install'" >&2
	exit 1
fi
