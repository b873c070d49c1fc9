// Array arguments of the extension module: their types are checked when a function is called.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace nb = nanobind;
using namespace nb::literals;

template <class T>
using In1 = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using In2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out1 = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out2 = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Threads never run with the interpreter's lock held.
using Unlocked = nb::call_guard<nb::gil_scoped_release>;

inline void require(bool holds, const char* what) {
    if (!holds)
        throw nb::value_error(what);
}

// The sweeps of klnmf.uncertainty.posterior, in bind_posterior.cpp.
void bind_posterior(nb::module_& m);
