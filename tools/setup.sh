#!/usr/bin/env bash
# Everything a fresh machine needs to run this project, in parts: controller, lab, browser. Quick when it is done already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

UV_VERSION=0.13.9
CACHE=${GPUNODE_CACHE:-/var/cache/gpunode}
say() { printf 'setup: %s\n' "$*" >&2; }

apt_packages() {
    local missing=()
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    if [ "$(id -u)" -ne 0 ]; then
        say "these packages are missing: ${missing[*]}"
        say "install them (apt-get install ${missing[*]}), or run this as root"
        exit 2
    fi
    say "installing packages: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -o DPkg::Lock::Timeout=300 -qq update
    apt-get -o DPkg::Lock::Timeout=300 -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
}

# An interpreter that was seen to run: a pyenv shim on PATH answers `which` and then fails.
find_python() {
    local candidate
    for candidate in "${GPUNODE_PYTHON:-}" "$HOME"/.pyenv/versions/3.1[2-4]*/bin/python3 \
        /usr/bin/python3.1[2-4] /usr/local/bin/python3.1[2-4] /usr/bin/python3; do
        [ -x "$candidate" ] || continue
        "$candidate" -c 'import sys, venv, ssl; sys.exit(not (3, 12) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null &&
            { echo "$candidate"; return 0; }
    done
    return 1
}

controller() {
    apt_packages ca-certificates git make openssh-client python3 python3-venv shellcheck
    local stamp=.venv/.gpunode-setup key
    key=$({ cat tools/locks/controller.txt pyproject.toml tools/setup.sh; pwd; } | sha256sum | cut -d' ' -f1)
    if [ -x .venv/bin/ansible-playbook ] && [ "$(cat $stamp 2>/dev/null)" = "$key" ]; then
        return 0
    fi
    local uv=.venv-tools/bin/uv
    local home="$CACHE/uv-$UV_VERSION"
    mkdir -p "$CACHE" 2>/dev/null || home="$HOME/.cache/gpunode/uv-$UV_VERSION"
    uv="$home/bin/uv"
    if ! "$uv" --version >/dev/null 2>&1; then
        say "installing uv $UV_VERSION into $home"
        rm -rf "$home"
        /usr/bin/python3 -m venv "$home.new"
        "$home.new/bin/python" -m pip install -q --disable-pip-version-check "uv==$UV_VERSION"
        mv "$home.new" "$home"
    fi
    local python
    if ! python=$(find_python); then
        say "no Python 3.12 to 3.14 found; uv fetches one"
        "$uv" python install 3.12
        python=$("$uv" python find 3.12)
    fi
    say "virtual environment .venv with $python"
    "$uv" venv --quiet --clear --python "$python" .venv
    say "installing what tools/locks/controller.txt pins"
    "$uv" pip sync --quiet --python .venv/bin/python --require-hashes tools/locks/controller.txt
    "$uv" pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .
    echo "$key" >"$stamp"
}

lab() {
    apt_packages acl curl debootstrap gcc gnupg iproute2 libc6-dev lxc nftables openssh-client procps xz-utils zstd
}

browser() {
    apt_packages chromium
}

# Developers run this after changing a dependency in pyproject.toml.
lock() {
    controller_uv="$CACHE/uv-$UV_VERSION/bin/uv"
    say "resolving tools/locks"
    "$controller_uv" pip compile --quiet --universal --python-version 3.12 --generate-hashes --no-emit-index-url --no-annotate \
        --no-header --group ansible --group dev pyproject.toml -o tools/locks/controller.txt "$@"
    "$controller_uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
        --no-header pyproject.toml -o tools/locks/node.txt "$@"
    # The exporter of GPU metrics that the role node_metrics installs beside the tools, for Debian 12's Python and newer.
    "$controller_uv" pip compile --quiet --python-platform x86_64-unknown-linux-gnu --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-annotate --no-header - -o roles/node_metrics/files/nvitop-exporter.txt "$@" <<<'nvitop-exporter>=1.7,<2'
}

[ $# -gt 0 ] || set -- controller
for part in "$@"; do
    case $part in
        controller | lab | browser | lock) "$part" ;;
        *) say "unknown part: $part (controller, lab, browser, lock)"; exit 2 ;;
    esac
done
