// What the border reads from Python: the GIL, registered objects, CPU targets, and arrays as operands.
#pragma once

#include <pybind11/critical_section.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <list>
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
    PyTypeObject *array_type, *enum_type;
    std::vector<std::pair<PyTypeObject*, Stored>> scalars;     // NumPy's types of one number, but for floats of 16 bits
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
    const auto type = [](py::object object) { return reinterpret_cast<PyTypeObject*>(object.release().ptr()); };
    registered.enum_type = type(py::module_::import("enum").attr("Enum"));
    for (std::size_t number = 1; number < std::size(kStored); ++number)  // from the integers on
        registered.scalars.emplace_back(type(py::dtype(static_cast<int>(number)).attr("type")), kStored[number]);
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

inline Index index_from(PyObject* object) {
    const Index index = PyNumber_AsSsize_t(object, PyExc_OverflowError);
    if (index == -1 && PyErr_Occurred()) throw py::error_already_set();
    return index;
}

// Find a float of 16 bits among NumPy's dtypes. bfloat16 is not one of NumPy's own dtypes. It is recognised by the name
// of its type, which comes from ml_dtypes, or from fastgae._interop in a program without ml_dtypes.
inline Stored narrow_stored(PyObject* dtype) {
    const auto* const fields = py::detail::array_descriptor_proxy(dtype);
    constexpr int float16 = 23;  // NPY_HALF
    if (fields->type_num == float16) return Stored::f16;
    const char* const name = reinterpret_cast<PyTypeObject*>(fields->typeobj)->tp_name;
    const bool is_named_so = std::strcmp(name, "bfloat16") == 0 || std::strcmp(name, "ml_dtypes.bfloat16") == 0;
    return is_named_so && py::reinterpret_borrow<py::dtype>(dtype).itemsize() == 2 ? Stored::bf16 : Stored::other;
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
    result.stored = number < std::size(kStored) ? kStored[number] : narrow_stored(array->descr);
    const bool plain = has(py::detail::npy_api::NPY_ARRAY_ALIGNED_) && !result.swapped;
    result.type = plain ? type_of_stored(result.stored) : Type::other;
    result.size = bytes_of(result.stored);
    result.rank = static_cast<std::int16_t>(array->nd);
    result.data = array->data;
    result.shape = array->dimensions;
    result.strides = array->strides;
    return result;
}

// Return how NumPy stores a number that is one of its scalars; other: it is none.
inline Stored scalar_of(PyObject* object) {
    if (object == Py_None) return Stored::other;  // as most settings are, so that they are not compared with every type
    for (const auto& [type, stored] : registered.scalars)
        if (Py_TYPE(object) == type) return stored;
    return Stored::other;
}

// Return NaN, which nothing accepts, for anything but an integer of Python or NumPy.
inline double integer_of(PyObject* object) {
    py::object integer;
    if (!PyLong_CheckExact(object)) {
        const Stored stored = scalar_of(object);
        if (stored < Stored::i8 || stored > Stored::u64) return kNaN;
        integer = py::reinterpret_steal<py::object>(PyNumber_Index(object));
        object = integer.ptr();
    }
    int overflow;  // not an exception: making one may start the garbage collector, which runs Python code
    const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
    return overflow ? kNaN : static_cast<double>(number);
}

// Return whether an object is a text, or the member of an enumeration with this name, in upper or lower case.
inline bool is_mode(PyObject* object, const char* name) {
    py::object text = py::reinterpret_borrow<py::object>(object);
    if (PyType_IsSubtype(Py_TYPE(object), registered.enum_type)) text = text.attr("name");
    if (!PyUnicode_CheckExact(text.ptr()) || !PyUnicode_IS_ASCII(text.ptr())) return false;
    const auto* const given = reinterpret_cast<const char*>(PyUnicode_1BYTE_DATA(text.ptr()));
    const auto same = [](char a, char b) { return a == b || (b >= 'A' && b <= 'Z' && a == b - 'A' + 'a'); };
    return std::equal(name, name + std::strlen(name), given, given + PyUnicode_GET_LENGTH(text.ptr()), same);
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
    const bool is_pythons = PyFloat_CheckExact(object) || PyLong_CheckExact(object);
    if (!is_pythons) result.stored = scalar_of(object);  // it takes part in promotion
    result.weak = is_pythons;
    if (PyFloat_Check(object))
        result.number = PyFloat_AS_DOUBLE(object);
    else if (result.stored == Stored::f32)
        result.number = py::reinterpret_steal<py::float_>(PyNumber_Float(object));
    else
        result.number = integer_of(object);
    return result;
}

// Arrays made of Python's lists of its own numbers.
class Lists {
public:
    // Return a list or tuple of floats and integers as an array of float64, and one of bools as flags.
    Operand operand_of(PyObject* list) {
        Operand result;
        result.given = true;
        const py::scoped_critical_section locked(list);  // without a GIL, other threads may change the list
        const Index count = PySequence_Fast_GET_SIZE(list);
        Index bools = 0;
        Array& array = arrays_.emplace_back();
        array.numbers.resize(count);
        for (Index i = 0; i < count; ++i) {
            PyObject* const item = PySequence_Fast_GET_ITEM(list, i);
            bools += PyBool_Check(item);
            array.flags.push_back(item == Py_True);
            array.numbers[i] = PyFloat_CheckExact(item) ? PyFloat_AS_DOUBLE(item) : integer_of(item);
            if (!(PyFloat_CheckExact(item) || PyLong_CheckExact(item) || PyBool_Check(item))) return result;
            if (PyLong_CheckExact(item) && !(array.numbers[i] == array.numbers[i])) return result;
        }
        if (count == 0 || (bools && bools < count)) return result;
        result.stored = bools ? Stored::boolean : Stored::f64;
        result.type = type_of_stored(result.stored);
        result.size = bytes_of(result.stored);
        result.rank = 1;
        result.data =
            bools ? reinterpret_cast<char*>(array.flags.data()) : reinterpret_cast<char*>(array.numbers.data());
        array.shape = count;
        array.stride = result.size;
        result.shape = &array.shape;
        result.strides = &array.stride;
        return result;
    }

private:
    struct Array {
        std::vector<double> numbers;
        std::vector<std::uint8_t> flags;
        Index shape, stride;
    };
    std::list<Array> arrays_;
};

// The arguments of a call. Arguments that a shorter tuple leaves out are None.
struct Arguments {
    PyObject* tuple;
    Index count;
    PyObject* operator[](Argument place) const { return place < count ? PyTuple_GET_ITEM(tuple, place) : Py_None; }
};

}  // namespace fastgae
