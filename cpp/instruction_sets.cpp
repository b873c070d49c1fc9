#include "instruction_sets.hpp"

#include <cstdint>
#include <initializer_list>
#include <stdexcept>

#include "kernel_set.hpp"

namespace klnmf {

// What every processor of the architecture can run.
KLNMF_DECLARE_KERNELS(baseline)
#ifdef KLNMF_HIGHER_SETS
KLNMF_DECLARE_KERNELS(x86_64_v3)
KLNMF_DECLARE_KERNELS(x86_64_v4)
#endif

namespace {

#define KLNMF_KERNELS(set)                                                                         \
    &set::rows_of_floats, &set::rows_of_doubles, &set::passes, set::components

// From the lowest to the highest.
constexpr KernelSet compiled_sets[] = {
#if defined(__x86_64__) || defined(_M_X64)
    {"x86-64", "SSE2", KLNMF_KERNELS(baseline)},
#elif defined(__aarch64__) || defined(_M_ARM64)
    {"armv8-a", "NEON", KLNMF_KERNELS(baseline)},
#else
    {"baseline", "the compiler's choice", KLNMF_KERNELS(baseline)},
#endif
#ifdef KLNMF_HIGHER_SETS
    {"x86-64-v3", "AVX2", KLNMF_KERNELS(x86_64_v3)},
    {"x86-64-v4", "AVX-512", KLNMF_KERNELS(x86_64_v4)},
#endif
};

#ifdef KLNMF_HIGHER_SETS

// Asked by hand: what compilers offer for this differs between them and needs libraries of theirs.
struct CpuId {
    std::uint32_t eax, ebx, ecx, edx;
};

CpuId cpuid(std::uint32_t leaf, std::uint32_t subleaf = 0) {
    CpuId id;
    __asm__ volatile("cpuid"
                     : "=a"(id.eax), "=b"(id.ebx), "=c"(id.ecx), "=d"(id.edx)
                     : "a"(leaf), "c"(subleaf));
    return id;
}

// Which registers the operating system saves: bit 1 SSE, 2 AVX, 5 to 7 AVX-512.
std::uint32_t saved_registers() {
    std::uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

constexpr bool has_all(std::uint32_t bits, std::initializer_list<int> wanted) {
    for (const int bit : wanted)
        if (!(bits >> bit & 1))
            return false;
    return true;
}

// The level of the x86-64 psABI: 1 for the baseline, 3 or 4.
int x86_64_level() {
    if (cpuid(0).eax < 7 || cpuid(0x80000000).eax < 0x80000001)
        return 1;
    const std::uint32_t basic = cpuid(1).ecx, extended = cpuid(0x80000001).ecx;
    const std::uint32_t features = cpuid(7).ebx;
    // SSE3, SSSE3, FMA, CMPXCHG16B, SSE4.1, SSE4.2, MOVBE, POPCNT, OSXSAVE, AVX, F16C; LAHF, LZCNT;
    // BMI1, AVX2, BMI2.
    if (!has_all(basic, {0, 9, 12, 13, 19, 20, 22, 23, 27, 28, 29}) || !has_all(extended, {0, 5}) ||
        !has_all(features, {3, 5, 8}) || !has_all(saved_registers(), {1, 2}))
        return 1;
    // AVX512F, DQ, CD, BW, VL.
    return has_all(features, {16, 17, 28, 30, 31}) && has_all(saved_registers(), {5, 6, 7}) ? 4 : 3;
}

int n_usable() {
    return x86_64_level() - 1 > 0 ? x86_64_level() - 1 : 1;
}

#else

int n_usable() {
    return 1;
}

#endif

const KernelSet* in_use = compiled_sets;

std::string names(int count) {
    std::string all = compiled_sets[0].name;
    for (int i = 1; i < count; ++i)
        all += std::string(", ") + compiled_sets[i].name;
    return all;
}

} // namespace

void choose_instruction_set(const std::string& name) {
    constexpr int n_compiled = sizeof compiled_sets / sizeof compiled_sets[0];
    const int usable = n_usable();
    for (int i = 0; i < n_compiled; ++i) {
        if (name.empty() ? i != usable - 1 : name != compiled_sets[i].name)
            continue;
        if (i >= usable)
            throw std::invalid_argument("this processor cannot run that, only " + names(usable));
        in_use = compiled_sets + i;
        return;
    }
    throw std::invalid_argument("there is no such instruction set; this processor can run " +
                                names(usable));
}

const KernelSet& kernels() {
    return *in_use;
}

std::string instruction_set() {
    return std::string(in_use->name) + " (" + in_use->instructions + ")";
}

std::vector<std::string> usable_instruction_sets() {
    std::vector<std::string> usable;
    for (int i = 0; i < n_usable(); ++i)
        usable.emplace_back(compiled_sets[i].name);
    return usable;
}

} // namespace klnmf
