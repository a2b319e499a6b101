// New NumPy arrays for results. Large arrays use recycled memory, through NumPy's allocator hooks (NEP 49): they own
// their data, can be resized, and give their memory back when they are freed.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#if !defined(_WIN32)
#include <pthread.h>
#endif

#include <cstdint>
#include <cstring>
#include <utility>

#include "arguments.hpp"
#include "recycled.hpp"

namespace fastgae {

namespace py = pybind11;

// The layout of PyDataMem_Handler in NumPy's headers. pybind11 does not need NumPy's headers, so this build has none.
struct DataHandler {
    char name[127];
    std::uint8_t version;
    void* context;
    void* (*allocate)(void*, std::size_t);
    void* (*allocate_zeros)(void*, std::size_t, std::size_t);
    void* (*resize)(void*, void*, std::size_t);
    void (*free)(void*, void*, std::size_t);
};
constexpr const char* kHandlerName = "mem_handler";

// Nothing here is ever destroyed, because an array may outlive the interpreter.
struct Recycling {
    RecycledMemory* memory;
    PyObject* (*current_handler)(), *default_handler;
    PyObject* context;  // a contextvars.Context in which NumPy allocates by our handler
};

inline Recycling recycling;

inline thread_local void* taken = nullptr;  // memory for the next array of this thread

inline void* allocate(void*, std::size_t bytes) {
    return taken ? std::exchange(taken, nullptr) : recycling.memory->take(bytes);
}
inline void* resize(void*, void* data, std::size_t bytes) { return recycling.memory->resize(data, bytes); }
inline void free(void*, void* data, std::size_t) { recycling.memory->give_back(data); }
inline void* allocate_zeros(void*, std::size_t count, std::size_t size) {
    void* const data = recycling.memory->take(count * size);
    return data ? std::memset(data, 0, count * size) : nullptr;
}

inline DataHandler handler = {"fastgae_recycled", 1, nullptr, allocate, allocate_zeros, resize, free};

// Return whether a new array of this many bytes uses recycled memory. If the program has set its own handler, that
// handler allocates all arrays.
inline bool is_recycled(std::size_t bytes) {
    if (bytes < kLeastRecycled || recycling.memory->counts().limit == 0) return false;
    PyObject* const current = recycling.current_handler();
    if (!current) throw py::error_already_set();
    Py_DECREF(current);
    return current == recycling.default_handler;
}

// While this object lives, the next array that NumPy allocates uses recycled memory, if is_recycled says so. No Python
// code may run meanwhile, because another thread could not enter the context. So the memory is taken before: if there
// is none, NumPy allocates as always, and its MemoryError, which Python code builds, is raised outside of the context.
// To enter an existing context creates no object, so the garbage collector, which may run Python code, does not run.
class Recycled {
public:
    explicit Recycled(std::size_t bytes) {
        if (!is_recycled(bytes) || !(taken = recycling.memory->take(bytes))) return;
#if defined(Py_GIL_DISABLED)
        context_ = PyContext_Copy(recycling.context);  // two threads cannot be in one context
#else
        context_ = Py_NewRef(recycling.context);
#endif
        if (context_ && PyContext_Enter(context_) == 0) return;
        give_back();
        Py_XDECREF(context_);
        throw py::error_already_set();
    }
    Recycled(const Recycled&) = delete;
    ~Recycled() {
        if (!context_) return;
        give_back();
        PyContext_Exit(context_);
        Py_DECREF(context_);
    }

private:
    static void give_back() { recycling.memory->give_back(std::exchange(taken, nullptr)); }
    PyObject* context_ = nullptr;
};

// Return numpy.empty(like.shape, dtype, "F" if fortran else "C") without making the shape a Python object. Each number
// takes `itemsize` bytes.
inline py::object new_array(const Operand& like, py::handle dtype, std::size_t itemsize, bool fortran) {
    const auto& numpy = py::detail::npy_api::get();
    const int flags = fortran ? py::detail::npy_api::NPY_ARRAY_F_CONTIGUOUS_ : 0;
    const Recycled recycled(like.elements() * itemsize);
    PyObject* const array =
        numpy.PyArray_NewFromDescr_(numpy.PyArray_Type_, dtype.inc_ref().ptr(), static_cast<int>(like.rank), like.shape,
                                    nullptr, nullptr, flags, nullptr);
    if (!array) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(array);
}

// Return a context in which Python allocates an array of this many bytes, or None if NumPy allocates it as always.
inline py::object context_for(std::size_t bytes) {
    if (!is_recycled(bytes)) return py::none();
    PyObject* const context = PyContext_Copy(recycling.context);
    if (!context) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(context);
}

inline py::dict recycled_counts() {
    const RecycledMemory::Counts counts = recycling.memory->counts();
    py::dict result;
    result["limit"] = counts.limit;
    result["held"] = counts.held;
    result["hits"] = counts.hits;
    result["misses"] = counts.misses;
    return result;
}

inline void define_recycling(py::module_& module) {
    const py::module_ multiarray = py::detail::import_numpy_core_submodule("multiarray");
    void** const numpy = static_cast<void**>(PyCapsule_GetPointer(multiarray.attr("_ARRAY_API").ptr(), nullptr));
    if (!numpy) throw py::error_already_set();
    // Their indices in NumPy's table of functions, which have not changed since NumPy 1.22.
    const auto set_handler = reinterpret_cast<PyObject* (*)(PyObject*)>(numpy[304]);
    recycling.current_handler = reinterpret_cast<PyObject* (*)()>(numpy[305]);
    recycling.default_handler = *static_cast<PyObject**>(numpy[306]);
    // Fresh memory comes from NumPy, which advises the system to use huge pages.
    const auto* const fresh = static_cast<DataHandler*>(PyCapsule_GetPointer(recycling.default_handler, kHandlerName));
    if (!fresh) throw py::error_already_set();
    recycling.memory = new RecycledMemory({fresh->allocate, fresh->free, fresh->context});

    recycling.context = PyContext_New();
    if (!recycling.context || PyContext_Enter(recycling.context) != 0) throw py::error_already_set();
    PyObject* const previous = set_handler(py::capsule(&handler, kHandlerName).ptr());
    PyContext_Exit(recycling.context);
    if (!previous) throw py::error_already_set();
    Py_DECREF(previous);
#if !defined(_WIN32)
    pthread_atfork([] { recycling.memory->lock_for_fork(); }, [] { recycling.memory->unlock_in_parent(); },
                   [] { recycling.memory->unlock_in_child(); });
#endif

    module.attr("least_recycled") = kLeastRecycled;
    module.def(
        "set_recycled_limit", [](std::size_t bytes) { recycling.memory->set_limit(bytes); }, py::arg("nbytes"),
        "Keep at most this many bytes of dropped results from now on; 0 empties the store and keeps nothing.");
    module.def("recycled", recycled_counts, "Return how much dropped memory may be and is kept, and how often it met.");
    module.def("recycling", context_for, py::arg("nbytes"),
               "Return a contextvars.Context in which to allocate a result of this many bytes, or None.");
}

}  // namespace fastgae
