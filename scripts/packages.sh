# To be sourced by the setup scripts.

# Installs Debian packages, and stops the services that they start: the tests start their own, on free ports.
#
#   install_packages MODE HINT SERVICES [PACKAGE..]
#
# With the mode `--plan` it only says so. Without apt-get or root it says what is missing and HINT, and exits.
install_packages() {
    local mode=$1 hint=$2 services=$3 service note=
    shift 3
    [ $# -gt 0 ] || return 0
    if [ "$mode" = --plan ]; then
        [ -z "$services" ] || note=" (stopped again: $services)"
        echo "apt-get install $*$note"
        return 0
    fi
    if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
        echo "missing, and cannot be installed here: $*$hint" >&2
        exit 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y --no-install-recommends "$@" >&2 || {
        apt-get update >&2
        apt-get install -y --no-install-recommends "$@" >&2
    }
    if command -v systemctl >/dev/null; then
        for service in $services; do
            systemctl disable --now "$service" >/dev/null 2>&1 || true
        done
    fi
}
