#!/bin/sh
# Checks whether this machine can run a real node and build an image; as root on Debian it installs missing packages.
# `make e2e` runs those tests if it succeeds, and prints its reason if it fails.
set -u

missing() {
    for pair in buildah:buildah mmdebstrap:mmdebstrap containerd:containerd ctr:containerd runc:runc ip:iproute2 \
        busybox:busybox-static; do
        command -v "${pair%%:*}" >/dev/null 2>&1 || printf '%s ' "${pair##*:}"
    done
}

if [ "$(id -u)" != 0 ]; then
    echo "a real node needs root"
    exit 1
fi
packages=$(missing)
if [ -n "$packages" ] && command -v apt-get >/dev/null 2>&1; then
    log=$(mktemp)
    # shellcheck disable=SC2086 # a list of packages
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages; } >"$log" 2>&1 ||
        tail -3 "$log"
    rm -f "$log"
    packages=$(missing)
fi
if [ -n "$packages" ]; then
    echo "a real node needs the Debian packages: $packages"
    exit 1
fi
if ! unshare --pid --mount --net --uts --fork true 2>/dev/null; then
    echo "a real node needs namespaces, which this machine forbids"
    exit 1
fi
