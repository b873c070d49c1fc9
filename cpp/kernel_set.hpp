// The kernels: loops over ranges of rows or values, in which all the time goes. Their sources
// (KLNMF_KERNEL_SOURCES) are compiled once for every instruction set, each time in
// the namespace KLNMF_SET, and one set is chosen when the module is imported. Everything else is
// compiled once, for any processor.
#pragma once

#include <cstdint>

namespace klnmf {

struct DenseSettings;
struct GuardedSettings;
struct NewtonSettings;
struct PaperSettings;
struct RowTask;
struct SampledNonzeros;
struct ValueFacts;
template <class T>
struct BatchScratch;
template <class T>
struct NewtonScratch;
template <class T>
struct RowJob;
template <class T>
struct RowScratch;

// The rules over the rows of one task; see kernels.hpp.
template <class T>
struct RowKernels {
    void (*guarded)(const RowJob<T>&, const GuardedSettings&, const RowTask&, RowScratch<T>&,
                    BatchScratch<T>&);
    void (*newton)(const RowJob<T>&, const NewtonSettings&, const RowTask&, RowScratch<T>&,
                   NewtonScratch<T>&);
    void (*multiplicative)(const RowJob<T>&, int relaxed, const RowTask&, RowScratch<T>&);
    void (*paper)(const RowJob<T>&, const PaperSettings&, const RowTask&, RowScratch<T>&);
    // `y` points at the first of these rows of the dense product; the others follow.
    void (*dense)(const RowJob<T>&, const DenseSettings&, const RowTask&, double* y);
    void (*evaluate)(const RowJob<T>&, const T* x, bool want_residual, const RowTask&,
                     RowScratch<T>&);
    // The values of a tensor's rows at their new x, see RowOutcome.
    void (*value)(const RowJob<T>&, const RowTask&, RowScratch<T>&);
};

// Passes over values from `begin` to `end`; see kernels.hpp and data_passes.hpp.
template <class T>
struct ValueKernels {
    void (*column_sums)(const T* factor, std::int64_t begin, std::int64_t end, int rank,
                        double* sums);
    void (*column_squares)(const T* factor, std::int64_t begin, std::int64_t end, int rank,
                           double* sums);
    void (*extrapolate)(const T* newest, const T* previous, std::int64_t begin, std::int64_t end,
                        T weight, T keep, T* target);
    void (*zeros)(const T* values, std::int64_t begin, std::int64_t end, std::int64_t& count);
    void (*facts)(const T* values, std::int64_t begin, std::int64_t end, ValueFacts& facts);
    void (*row_sums)(const std::int64_t* indptr, const T* values, std::int64_t begin,
                     std::int64_t end, double* sums);
    void (*divergence_constant)(const T* values, std::int64_t begin, std::int64_t end, double& sum);
};

// Whether column numbers fall anywhere within the rows from `begin` to `end`.
template <class Index>
using FindFalls = void(const Index* indptr, const Index* indices, std::int64_t begin,
                       std::int64_t end, std::uint8_t& any);

struct PassKernels {
    ValueKernels<float> of_floats;
    ValueKernels<double> of_doubles;
    // Whether a float does not hold one of the values.
    void (*wider)(const double* values, std::int64_t begin, std::int64_t end, std::uint8_t& any);
    FindFalls<std::int32_t>* falls_of_int32;
    FindFalls<std::int64_t>* falls_of_int64;
    // Largest of ends[i + 1] - ends[i] for i in [0, size), at least 0.
    std::int64_t (*longest_difference)(const std::int64_t* ends, std::int64_t size);
};

// Over the rows from `begin` to `end`; see component_passes.hpp. There is one for any number of
// other modes, one for 1 and one for 2.
struct ComponentKernels {
    void (*products)(const SampledNonzeros&, const double* W, const double* H, int rank,
                     std::int64_t begin, std::int64_t end, double* model);
    void (*ratios)(const SampledNonzeros&, const double* u, const double* h, int mode,
                   std::int64_t begin, std::int64_t end, double* sums);
    void (*change)(const SampledNonzeros&, const double* w, const double* h, std::int64_t n_columns,
                   int n_terms, double smallest, std::int64_t begin, std::int64_t end,
                   double* terms);
};

struct KernelSet {
    const char* name;         // as GCC, clang and KLNMF_INSTRUCTION_SET call it
    const char* instructions; // what people call it
    const RowKernels<float>* rows_of_floats;
    const RowKernels<double>* rows_of_doubles;
    const PassKernels* passes;
    const ComponentKernels* components;
};

// Declares the kernels of a set, for those who define them and for the list of sets.
#define KLNMF_DECLARE_KERNELS(set)                                                                 \
    namespace set {                                                                                \
    extern const RowKernels<float> rows_of_floats;                                                 \
    extern const RowKernels<double> rows_of_doubles;                                               \
    extern const PassKernels passes;                                                               \
    extern const ComponentKernels components[3];                                                   \
    }

// The set in use.
const KernelSet& kernels();

template <class T>
const RowKernels<T>& row_kernels() {
    if constexpr (sizeof(T) == sizeof(float))
        return *kernels().rows_of_floats;
    else
        return *kernels().rows_of_doubles;
}

template <class T>
const ValueKernels<T>& value_kernels() {
    if constexpr (sizeof(T) == sizeof(float))
        return kernels().passes->of_floats;
    else
        return kernels().passes->of_doubles;
}

} // namespace klnmf
