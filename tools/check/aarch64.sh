#!/bin/sh
# Builds the wheel for aarch64 and runs the core's tests in it under QEMU, on Debian x86-64:
#
#     tools/check/aarch64.sh [TEST ...]
#
# Then compares the core's results with those of this machine's core, in the environment of `make develop` (or that of
# PYTHON). A cross compiler builds the wheel; Python and its packages are aarch64's, emulated, so times are meaningless.
# The first run installs a cross compiler, QEMU and mmdebstrap, as root; everything else goes to build/aarch64.
set -eu
cd "$(dirname "$0")/../.."
python="${PYTHON:-.venv/bin/python}"
base="$PWD/build/aarch64"
root="$base/root"
emulated="$base/python"

"$python" -c "from rescore import _core" || {
  echo "$python: expected an environment with rescore to compare with; run make develop, or name one: PYTHON=..." >&2
  exit 1
}

# A folder with Debian's Python for arm64, from this machine's package sources: unpacked, not booted.
if [ ! -e "$root/usr/bin/python3" ]; then
  apt-get -q update
  apt-get -qy install --no-install-recommends cmake g++-aarch64-linux-gnu mmdebstrap ninja-build qemu-user-static
  mkdir -p "$base"
  apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' "Created-By: Packages" "Origin: Debian" |
    sort -u > "$base/sources.list"
  mmdebstrap --quiet --variant=extract --architectures=arm64 --include=libpython3-dev,libstdc++6,python3,python3-pip \
    "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" - < "$base/sources.list"
fi

# Works without kernel support for aarch64: sys.executable, which Python also starts for subprocesses, is a script that
# starts the emulator.
name="$(readlink "$root/usr/bin/python3")"
cat > "$emulated" <<END
#!/bin/sh
PYTHONPATH="\${PYTHONPATH:+\$PYTHONPATH:}$base/packages" \\
  exec qemu-aarch64-static -L "$root" -0 "$emulated" "$root/usr/bin/$name" "\$@"
END
chmod +x "$emulated"
pip() { "$emulated" -m pip --disable-pip-version-check -q "$@"; }

rm -rf "$base/dist"
CXX=aarch64-linux-gnu-g++ CXXFLAGS="-idirafter $root/usr/include" pip wheel --no-deps -w "$base/dist" \
  --config-settings=build-dir="$base/build" --config-settings=cmake.define.Python_INCLUDE_DIR="$root/usr/include/$name" .
[ -e "$base/packages" ] || pip install --root-user-action=ignore -c constraints.txt --target "$base/packages" \
  "$base"/dist/*.whl hypothesis pytest pytest-xdist tokenizers
pip install --root-user-action=ignore --no-deps --upgrade --target "$base/packages" "$base"/dist/*.whl

answers() { "$1" tests/support/core_answers.py | sed 's/"processor": "[^"]*", //'; }
answers "$python" > "$base/here.json"
answers "$emulated" > "$base/emulated.json"
cmp "$base/here.json" "$base/emulated.json"
echo "aarch64: the core's results equal those of $("$python" -c "from rescore import _core; print(_core.processor)")"

[ $# -gt 0 ] || set -- tests/test_core.py tests/lattice tests/lm tests/draft
OMP_NUM_THREADS=1 "$emulated" -m pytest -q -p no:cacheprovider -n "$(nproc)" --dist worksteal "$@"
