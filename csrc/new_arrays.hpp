// New NumPy arrays for results. Large arrays lie in recycled memory: a capsule, which is the base of the array, gives
// it back when the array is freed.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if !defined(_WIN32)
#include <pthread.h>
#endif

#include <cstdint>
#include <cstdlib>

#include "arguments.hpp"
#include "recycled.hpp"

namespace fastgae {

namespace py = pybind11;

// Allocate memory, and ask for huge pages as NumPy does.
inline void* allocate(std::size_t bytes) {
    void* const memory = std::malloc(bytes);
#if defined(MADV_HUGEPAGE)
    constexpr std::uintptr_t page = 4096;
    const std::uintptr_t skipped = -reinterpret_cast<std::uintptr_t>(memory) % page;
    if (memory && bytes >= std::size_t(1) << 22)
        madvise(static_cast<char*>(memory) + skipped, bytes - skipped, MADV_HUGEPAGE);
#endif
    return memory;
}

// It is never destroyed, because an array may outlive the interpreter.
inline RecycledMemory& recycled_memory = *new RecycledMemory({allocate, std::free});

// Return the owner of recycled memory of this many bytes, or null if NumPy allocates as always.
inline PyObject* take_recycled(std::size_t bytes) {
    void* const data = recycled_memory.keeps(bytes) ? recycled_memory.take(bytes) : nullptr;
    if (!data) return nullptr;
    const auto give_back = [](PyObject* owner) { recycled_memory.give_back(PyCapsule_GetPointer(owner, nullptr)); };
    PyObject* const owner = PyCapsule_New(data, nullptr, give_back);
    if (owner) return owner;
    recycled_memory.give_back(data);
    throw py::error_already_set();
}

// Return numpy.empty(like.shape, dtype, "F" if fortran else "C") without making the shape a Python object. Each number
// takes `itemsize` bytes.
inline py::object new_array(const Operand& like, py::handle dtype, std::size_t itemsize, bool fortran) {
    const auto& numpy = py::detail::npy_api::get();
    const auto owner = py::reinterpret_steal<py::object>(take_recycled(like.elements() * itemsize));
    void* const data = owner ? PyCapsule_GetPointer(owner.ptr(), nullptr) : nullptr;
    int flags = fortran ? numpy.NPY_ARRAY_F_CONTIGUOUS_ : 0;
    if (data) flags |= numpy.NPY_ARRAY_ALIGNED_ | numpy.NPY_ARRAY_WRITEABLE_;
    PyObject* const array =
        numpy.PyArray_NewFromDescr_(numpy.PyArray_Type_, dtype.inc_ref().ptr(), static_cast<int>(like.rank), like.shape,
                                    nullptr, data, flags, nullptr);
    if (!array) throw py::error_already_set();
    if (data) numpy.PyArray_SetBaseObject_(array, owner.inc_ref().ptr());
    return py::reinterpret_steal<py::object>(array);
}

// Return new memory as an array of bytes.
inline py::object new_bytes(Index count) {
    Operand like;
    like.rank = 1;
    like.shape = &count;
    return new_array(like, py::dtype::of<std::uint8_t>(), 1, false);
}

inline py::dict recycled_counts() {
    const RecycledMemory::Counts counts = recycled_memory.counts();
    py::dict result;
    result["limit"] = counts.limit;
    result["held"] = counts.held;
    result["hits"] = counts.hits;
    result["misses"] = counts.misses;
    return result;
}

inline void define_recycling(py::module_& module) {
#if !defined(_WIN32)
    pthread_atfork([] { recycled_memory.lock_for_fork(); }, [] { recycled_memory.unlock_in_parent(); },
                   [] { recycled_memory.unlock_in_child(); });
#endif
    module.attr("least_recycled") = kLeastRecycled;
    module.def(
        "set_recycled_limit", [](std::size_t bytes) { recycled_memory.set_limit(bytes); }, py::arg("nbytes"),
        "Keep at most this many bytes of dropped results from now on; 0 empties the store and keeps nothing.");
    module.def("recycled", recycled_counts,
               "Return the limit and the size of the kept memory, and how many results used it and how many did not.");
    module.def("new_bytes", new_bytes, py::arg("count"), "Return new memory, recycled if it is large.");
}

}  // namespace fastgae
