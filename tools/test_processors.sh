#!/usr/bin/env bash
# Fits on emulated processors of lower instruction sets, compared with this machine's: an instruction
# that they do not have ends the emulator. On Debian it needs: apt-get install qemu-user
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${1:?the Python that has klnmf}
command -v qemu-x86_64 >/dev/null ||
    { echo "There is no qemu-x86_64: apt-get install qemu-user" >&2; exit 1; }
folder=build/processors
mkdir -p "$folder"
# The emulator does not follow the starter script of a virtual environment: its Python by its path.
binary=$(readlink -f "$python")
packages=$("$python" -c 'import site; print(site.getsitepackages()[0])')
# OpenBLAS mistakes an emulated processor for a later one, and the sorting of NumPy for AVX2 crashes in
# QEMU 7.2: neither is what is tested.
compare() { # the emulated processor, and the set that it has
    echo "==> $1, emulated, and $2 here"
    KLNMF_INSTRUCTION_SET=$2 "$python" tools/small_fits.py "$folder/here.npz" | grep -F "$2 ("
    PYTHONPATH=$PWD/src:$packages OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=1 OPENBLAS_CORETYPE=Nehalem \
        NPY_DISABLE_CPU_FEATURES=X86_V3 \
        qemu-x86_64 -cpu "$1" "$binary" -c "import site, sys; site.addsitedir('$packages')
sys.argv = ['tools/small_fits.py', '$folder/emulated.npz', '--compare', '$folder/here.npz']
import runpy; runpy.run_path('tools/small_fits.py', run_name='__main__')" | tee "$folder/log"
    grep -qF "$2 (" "$folder/log"
}
compare Nehalem x86-64
compare Haswell x86-64-v3
