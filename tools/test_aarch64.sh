#!/usr/bin/env bash
# Cross-compiles the core for aarch64 and runs its kernel tests in an emulator, then compares fits
# with those of this machine. On Debian 12 it needs: apt-get install g++-aarch64-linux-gnu qemu-user
# All else is downloaded into build/aarch64: Debian's Python for arm64, and wheels.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${1:?the Python that has klnmf, and nanobind to build it with}
shift
here=$PWD/build/aarch64 root=$PWD/build/aarch64/root site=$PWD/build/aarch64/site
for tool in aarch64-linux-gnu-g++ qemu-aarch64; do
    command -v $tool >/dev/null ||
        { echo "There is no $tool: apt-get install g++-aarch64-linux-gnu qemu-user" >&2; exit 1; }
done

if [ ! -e "$root/.complete" ]; then
    echo "==> Python for arm64"
    mkdir -p "$here"/{apt/lists/partial,apt/cache/archives/partial,debs} "$root"
    # Of its own state, so that the system's list of architectures stays as it is.
    apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=
        -o Dir::State="$here/apt" -o Dir::State::status=/dev/null -o Dir::Cache="$here/apt/cache")
    "${apt[@]}" update
    packages=(libbz2-1.0 libc6 libcrypt1 libexpat1 libffi8 libgcc-s1 liblzma5 libpython3.11-dev
        libpython3.11-minimal libpython3.11-stdlib libsqlite3-0 libssl3 libstdc++6 libuuid1
        python3.11-minimal zlib1g)
    (cd "$here/debs" && "${apt[@]}" download "${packages[@]}")
    for deb in "$here"/debs/*.deb; do dpkg -x "$deb" "$root"; done
    touch "$root/.complete"
fi
if [ ! -e "$site/.complete" ]; then
    echo "==> wheels for aarch64"
    "$python" -m pip --disable-pip-version-check install --quiet --upgrade --target "$site" \
        --only-binary=:all: --python-version 3.11 --implementation cp \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 \
        $("$python" tools/requirements.py needed) pytest hypothesis
    touch "$site/.complete"
fi

echo "==> core for aarch64"
nanobind=$("$python" -m nanobind --cmake_dir)
cmake -S . -B "$here/cmake" -G Ninja -DSKBUILD=2 -DSKBUILD_PROJECT_VERSION=0 -DKLNMF_WERROR=ON \
    -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -Dnanobind_DIR="$nanobind" \
    -DPython_EXECUTABLE="$(command -v "$python")" -DPython_INCLUDE_DIR="$root/usr/include/python3.11" \
    -DCMAKE_CXX_FLAGS="-isystem $root/usr/include" \
    -DNB_SUFFIX=.cpython-311-aarch64-linux-gnu.so -DNB_SUFFIX_S=.abi3.so -DNB_ABI=311 >/dev/null
cmake --build "$here/cmake" --target _core
rm -rf "$site"/klnmf "$site"/klnmf-*.dist-info
cp -r src/klnmf "$site/klnmf"
rm -f "$site"/klnmf/_core.*.so
cp "$here"/cmake/_core.cpython-311-aarch64-linux-gnu.so "$site/klnmf/"
mkdir "$site/klnmf-0.dist-info" # the version is read from the metadata of the package
printf 'Metadata-Version: 2.1\nName: klnmf\nVersion: 0\n' >"$site/klnmf-0.dist-info/METADATA"

emulated() {
    env PYTHONHOME="$root/usr" PYTHONPATH="$site" PYTHONDONTWRITEBYTECODE=1 QEMU_LD_PREFIX="$root" \
        OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=1 qemu-aarch64 "$root/usr/bin/python3.11" "$@"
}
echo "==> fits on aarch64, and on this machine"
emulated tools/small_fits.py "$here/aarch64.npz"
"$python" tools/small_fits.py "$here/this.npz" --compare "$here/aarch64.npz"
echo "==> kernel tests on aarch64"
emulated -m pytest -q -p no:cacheprovider "$@"
