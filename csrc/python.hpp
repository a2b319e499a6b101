// What the border reads from Python: the GIL, registered objects, CPU targets, and arrays as operands.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <chrono>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "kernels.hpp"
#include "stored.hpp"

namespace fastgae {

namespace py = pybind11;

// Until Python 3.14, a thread that wants the GIL while the interpreter exits is ended: its stack is unwound, and the
// process aborts if the unwinding meets a destructor that must not throw, such as py::gil_scoped_release's. Where the
// unwinding is caught, the thread waits for the end of the process, as in Python 3.14.
[[noreturn]] inline void wait_for_the_end() {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

// Drops the GIL during its lifetime.
class WithoutGil {
public:
    WithoutGil() : thread_(PyEval_SaveThread()) {}
    WithoutGil(const WithoutGil&) = delete;
    ~WithoutGil() {
        try {
            PyEval_RestoreThread(thread_);
        } catch (...) {
            wait_for_the_end();
        }
    }

private:
    PyThreadState* thread_;
};

// The module looks these up when it is loaded. If the first call looked them up, for a static variable, its thread
// would drop the GIL meanwhile, and a second thread could wait for the variable while it holds the GIL: a deadlock.
// Nothing here is ever destroyed, because a thread may still run when the process exits.
struct Registered {
    PyObject *f32, *f64;  // NumPy's dtypes of results
    PyTypeObject* array_type;
    std::vector<std::pair<PyObject*, const Target*>> targets;  // that can run here, after their interned names
    PyTypeObject* result_type;                                 // this and the rest come from connect()
    PyObject *new_output, *absent, *usable_cpus;
    double eps;
};

inline Registered& registered = *new Registered();

inline void register_types() {
    registered.f32 = py::dtype::of<float>().release().ptr();
    registered.f64 = py::dtype::of<double>().release().ptr();
    registered.array_type = py::detail::npy_api::get().PyArray_Type_;
    for (const Target* const* target = targets; *target; ++target)
        if ((*target)->supported())
            registered.targets.emplace_back(PyUnicode_InternFromString((*target)->name), *target);
}

inline void connect(const py::type& result_type, const py::object& new_output, const py::object& absent,
                    const py::function& usable_cpus, double eps) {
    const auto type = reinterpret_cast<PyTypeObject*>(result_type.ptr());
    if (!PyType_IsSubtype(type, &PyTuple_Type)) throw py::type_error("result_type must be a subclass of tuple");
    registered.result_type = reinterpret_cast<PyTypeObject*>(result_type.inc_ref().ptr());
    registered.new_output = new_output.inc_ref().ptr();
    registered.absent = absent.inc_ref().ptr();
    registered.usable_cpus = usable_cpus.inc_ref().ptr();
    registered.eps = eps;
}

inline bool is_text(PyObject* object, const char* text) {
    return PyUnicode_CheckExact(object) && PyUnicode_CompareWithASCIIString(object, text) == 0;
}

// Find a CPU target by its name; null if it cannot run. Interned names are tried first, because nearly all are.
inline const Target* find_target(PyObject* name) {
    for (const auto& [interned, target] : registered.targets)
        if (interned == name) return target;
    for (const auto& [interned, target] : registered.targets)
        if (is_text(name, target->name)) return target;
    return nullptr;
}

inline const Target& choose(const py::handle& name) {
    if (const Target* const target = find_target(name.ptr())) return *target;
    throw std::invalid_argument("no CPU target " + std::string(py::str(name)) + " here");
}

// Return the result of a Python function, or raise its exception; -1 may mean either.
template <class Number>
Number or_raise(Number number) {
    if (number == -1 && PyErr_Occurred()) throw py::error_already_set();
    return number;
}

inline Index index_from(PyObject* object) { return or_raise(PyNumber_AsSsize_t(object, PyExc_OverflowError)); }

// Find a float of 16 bits among NumPy's dtypes. bfloat16 is not one of NumPy's own dtypes. It is recognised by the name
// of its type, which comes from ml_dtypes, or from fastgae._interop in a program without ml_dtypes.
template <class Dtype>
Stored narrow_stored(const Dtype& dtype) {
    constexpr int float16 = 23;  // NPY_HALF
    if (dtype.type_num == float16) return Stored::f16;
    const char* const name = reinterpret_cast<PyTypeObject*>(dtype.typeobj)->tp_name;
    const bool is_bfloat16 = std::strcmp(name, "bfloat16") == 0 || std::strcmp(name, "ml_dtypes.bfloat16") == 0;
    return is_bfloat16 ? Stored::bf16 : Stored::other;
}

// Unaligned and byte-swapped arrays get no type. Arrays without numbers cannot be read at all.
inline Operand array_operand(PyObject* object) {
    const auto* const array = py::detail::array_proxy(object);
    const auto* const dtype = py::detail::array_descriptor_proxy(array->descr);
    const auto number = static_cast<std::size_t>(dtype->type_num);
    const auto has = [&](int flag) { return (array->flags & flag) != 0; };
    Operand result;
    result.given = true;
    result.writeable = has(py::detail::npy_api::NPY_ARRAY_WRITEABLE_);
    result.swapped = dtype->byteorder == (PY_BIG_ENDIAN ? '<' : '>');
    result.stored = number < std::size(kStored) ? kStored[number] : narrow_stored(*dtype);
    const bool plain = has(py::detail::npy_api::NPY_ARRAY_ALIGNED_) && !result.swapped;
    result.type = plain ? type_of_stored(result.stored) : Type::other;
    result.size = bytes_of(result.stored);
    result.rank = static_cast<std::int16_t>(array->nd);
    result.data = array->data;
    result.shape = array->dimensions;
    result.strides = array->strides;
    return result;
}

// Return NaN, which nothing accepts, for anything but a Python int.
inline double integer_of(PyObject* object) {
    if (!PyLong_CheckExact(object)) return kNaN;
    int overflow;  // not an exception: making one may start the garbage collector, which runs Python code
    const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
    return overflow ? kNaN : static_cast<double>(number);
}

// Read an argument. Arrays of other types than NumPy's own are declined, because they may not hold numbers, unless
// _canonical has checked them.
inline Operand operand_of(PyObject* object, bool checked = false) {
    if (Py_TYPE(object) == registered.array_type) return array_operand(object);
    if (checked && py::isinstance<py::array>(object)) return array_operand(object);
    Operand result;
    if (object == Py_None) return result;
    result.given = true;
    result.absent = object == registered.absent;
    result.weak = PyFloat_CheckExact(object) || PyLong_CheckExact(object);
    result.number = PyFloat_Check(object) ? PyFloat_AS_DOUBLE(object) : integer_of(object);
    return result;
}

// The arguments of a call. Arguments that a shorter tuple leaves out are None.
struct Arguments {
    PyObject* tuple;
    Index count;
    PyObject* operator[](Argument place) const { return place < count ? PyTuple_GET_ITEM(tuple, place) : Py_None; }
};

}  // namespace fastgae
