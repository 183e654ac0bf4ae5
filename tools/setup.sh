#!/bin/sh
# Brings in what `make demo` or `make test` needs from the system: Debian packages on Debian 12 as root; elsewhere
# it only says what is missing. Usage: tools/setup.sh build|demo|test
set -eu

goal=${1:?usage: tools/setup.sh build|demo|test}
# The oldest Linux on which mgpu was seen to work (docs/hosts.md).
least=5.10

# command:package, or the path of a file that the package brings
build='gcc:gcc /usr/include/stdio.h:libc6-dev python3:python3 /usr/lib/python3.11/ensurepip/__init__.py:python3-venv'
demo="$build runc:runc containerd:containerd ctr:containerd mmdebstrap:mmdebstrap mount:mount unshare:util-linux"
test="$demo git:git crun:crun dockerd:docker.io docker:docker.io podman:podman \
/usr/lib/x86_64-linux-gnu/libseccomp.so.2:libseccomp2 busybox:busybox-static clang-format:clang-format \
shellcheck:shellcheck strace:strace zsh:zsh fish:fish groff:groff-base promtool:prometheus systemd-analyze:systemd mke2fs:e2fsprogs clang:clang chromium:chromium \
/usr/lib/llvm-14/lib/clang/14.0.6/lib/linux/libclang_rt.fuzzer-x86_64.a:libclang-rt-14-dev"

case $goal in
build) needed=$build ;;
demo) needed=$demo ;;
test) needed=$test ;;
*)
    echo "setup: \"$goal\" is not build, demo or test" >&2
    exit 2
    ;;
esac

die() {
    echo "setup: $*" >&2
    exit 1
}

have() {
    case $1 in
    # Only Debian puts its files there; another system has them elsewhere, and the build says so if not.
    /*) [ -z "$debian" ] || [ -e "$1" ] ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

missing() {
    for pair in $needed; do
        have "${pair%%:*}" || echo "${pair#*:}"
    done | sort -u | tr '\n' ' '
}

# A service that a package starts would be the user's to explain: none is started here.
no_services() {
    policy=/usr/sbin/policy-rc.d
    [ ! -e $policy ] || return 0
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
    trap 'rm -f $policy' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

PATH=$PATH:/usr/sbin:/sbin
# shellcheck source=/dev/null
debian=$(. /etc/os-release 2>/dev/null && [ "${ID:-}${VERSION_ID:-}" = debian12 ] && echo 12) || true

[ "$(uname -s)" = Linux ] || die "mgpu runs on Linux, and this is $(uname -s)"
[ "$(uname -m)" = x86_64 ] || die "mgpu runs on x86-64, and this is $(uname -m)"
if [ "$goal" != build ]; then
    # mgpu install refuses such a path, since an engine's configuration would need it escaped.
    case $PWD in *[[:space:]]*) die "no engine takes mgpu from \"$PWD\": clone it where no space is in the path" ;; esac
    [ "$(id -u)" = 0 ] || die "\"make $goal\" starts containers: run it as root"
    oldest=$(printf '%s\n' "$least" "$(uname -r)" | sort -V | head -n 1)
    [ "$oldest" = "$least" ] || die "mgpu needs Linux $least, and this is $(uname -r)"
fi

lacking=$(missing)
[ -n "$lacking" ] || exit 0
[ -n "$debian" ] || die "not Debian 12, so nothing is installed here; missing (Debian's package names): $lacking"
[ "$(id -u)" = 0 ] || die "not root; missing packages: $lacking"

echo "setup: installing $lacking"
no_services
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq </dev/null
log=$(mktemp)
# Unquoted: one argument each.
# shellcheck disable=SC2086
apt-get install -qq -y --no-install-recommends $lacking </dev/null >"$log" 2>&1 || {
    cat "$log" >&2
    die "apt-get could not install: $lacking"
}
rm "$log"
lacking=$(missing)
[ -z "$lacking" ] || die "still missing after the installation: $lacking"
