// The border to Python: arrays -> views, drop the GIL, call. The only file that includes pybind11.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "kernels.hpp"
#include "parallel.hpp"
#include "plain.hpp"

namespace py = pybind11;

namespace fastgae {
namespace {

#if defined(__clang__)
constexpr const char* kCompiler = "clang " __clang_version__;
#elif defined(__GNUC__)
constexpr const char* kCompiler = "gcc " __VERSION__;
#else
constexpr const char* kCompiler = "msvc";
#endif

py::tuple supported_targets() {
    py::list names;
    for (const Target* target = targets; target->name; ++target)
        if (target->supported()) names.append(target->name);
    return py::tuple(names);
}

const Target& choose(const std::optional<std::string>& name) {
    for (const Target* target = targets; target->name; ++target)
        if ((!name || *name == target->name) && target->supported()) return *target;
    throw std::invalid_argument("no CPU target " + *name + " here");
}

// What _canonical promises is checked once more: a broken promise here would be memory corruption.
template <class Element>
py::array checked(const py::object& object, const char* name, std::initializer_list<Index> shape) {
    using Number = std::remove_const_t<Element>;
    using Stored = std::conditional_t<std::is_same_v<Number, std::uint8_t>, bool, Number>;
    if (py::isinstance<py::array_t<Stored>>(object)) {
        const auto array = py::reinterpret_borrow<py::array>(object);
        if (array.ndim() == static_cast<Index>(shape.size()) && std::equal(shape.begin(), shape.end(), array.shape()))
            return array;
    }
    throw std::invalid_argument(std::string(name) + " has another dtype or shape than the rollout");
}

template <class Element>
Element* start(const py::array& array) {
    return static_cast<Element*>(const_cast<void*>(array.data()));
}

template <class Element>
View<Element> matrix(const py::object& object, const char* name, Index steps, Index envs) {
    if (object.is_none()) return {};
    const py::array array = checked<Element>(object, name, {steps, envs});
    return {start<Element>(array), array.strides(0) / array.itemsize(), array.strides(1) / array.itemsize()};
}

template <class Element>
View<Element> row(const py::object& object, const char* name, Index envs) {
    const py::array array = checked<Element>(object, name, {envs});
    return {start<Element>(array), 0, array.strides(0) / array.itemsize()};
}

template <class Real>
Index gae_of(const py::object& rewards, const py::object& values, const py::object& next_values, const py::object& last_values,
            const py::object& final_values, const py::object& terminated, const py::object& truncated, double gamma,
            double gamma_lambda, const py::object& advantages, const py::object& returns, Index num_threads,
            const Target& target) {
    Rollout<Real> rollout;
    rollout.steps = py::len(rewards);
    rollout.envs = py::len(last_values);
    const Index steps = rollout.steps, envs = rollout.envs;
    rollout.rewards = matrix<const Real>(rewards, "rewards", steps, envs);
    rollout.values = matrix<const Real>(values, "values", steps, envs);
    rollout.next_values = matrix<const Real>(next_values, "next_values", steps - 1, envs);
    rollout.last_values = row<const Real>(last_values, "last_values", envs);
    rollout.final_values = matrix<const Real>(final_values, "final_values", steps, envs);
    rollout.terminated = matrix<const std::uint8_t>(terminated, "terminated", steps, envs);
    rollout.truncated = matrix<const std::uint8_t>(truncated, "truncated", steps, envs);
    rollout.advantages = matrix<Real>(advantages, "advantages", steps, envs);
    rollout.returns = matrix<Real>(returns, "returns", steps, envs);
    rollout.env_major = envs == 1 || rollout.rewards.env != 1;
    rollout.gamma = static_cast<Real>(gamma);
    rollout.gamma_lambda = static_cast<Real>(gamma_lambda);

    const py::gil_scoped_release released;
    return gae(target, rollout, num_threads);
}

Index gae_any(const py::object& rewards, const py::object& values, const py::object& next_values, const py::object& last_values,
             const py::object& final_values, const py::object& terminated, const py::object& truncated, double gamma,
             double gamma_lambda, const py::object& advantages, const py::object& returns, Index num_threads,
             const std::optional<std::string>& target) {
    const auto run = py::isinstance<py::array_t<float>>(rewards) ? gae_of<float> : gae_of<double>;
    return run(rewards, values, next_values, last_values, final_values, terminated, truncated, gamma, gamma_lambda,
               advantages, returns, num_threads, choose(target));
}

// Plain arrays: NumPy's own type, native and aligned. Anything else has no type and is declined.
Array array_of(const py::object& object) {
    static PyObject* const f32 = py::dtype::of<float>().release().ptr();
    static PyObject* const f64 = py::dtype::of<double>().release().ptr();
    static PyObject* const flag = py::dtype::of<bool>().release().ptr();
    Array result;
    result.given = !object.is_none();
    if (Py_TYPE(object.ptr()) != py::detail::npy_api::get().PyArray_Type_) return result;
    const auto* array = py::detail::array_proxy(object.ptr());
    if (!(array->flags & py::detail::npy_api::NPY_ARRAY_ALIGNED_)) return result;
    result.type = array->descr == f32 ? Type::f32 : array->descr == f64 ? Type::f64 : array->descr == flag ? Type::flag : Type::other;
    result.data = array->data;
    result.rank = array->nd;
    result.shape = array->dimensions;
    result.strides = array->strides;
    result.writeable = array->flags & py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
    return result;
}

// NaN, which no one accepts, for what is not simply a number.
double integer_of(const py::object& object) {
    if (!PyLong_CheckExact(object.ptr())) return std::nan("");
    const double number = PyLong_AsDouble(object.ptr());
    PyErr_Clear();
    return number;
}

double number_of(const py::object& object) {
    return PyFloat_Check(object.ptr()) ? PyFloat_AS_DOUBLE(object.ptr()) : integer_of(object);
}

// numpy.empty(like.shape, order="F" if fortran else "C"), without the shape becoming a Python object on the way.
template <class Real>
py::object empty(const Array& like, bool fortran) {
    const auto& numpy = py::detail::npy_api::get();
    const int flags = fortran ? py::detail::npy_api::NPY_ARRAY_F_CONTIGUOUS_ : 0;
    PyObject* array = numpy.PyArray_NewFromDescr_(numpy.PyArray_Type_, py::dtype::of<Real>().release().ptr(),
                                                  static_cast<int>(like.rank), like.shape, nullptr, nullptr, flags, nullptr);
    if (!array) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(array);
}

template <class Real>
py::object gae_plain_of(const PlainArguments& arguments, const py::object& out, Index num_threads,
                        const std::optional<std::string>& target, const py::object& result_type, const py::object& usable_cpus) {
    PlainRollout<Real> rollout;
    if (!rollout.take(arguments)) return py::none();

    py::object results[2];
    Array arrays[2];
    for (int i = 0; i < 2; ++i) {
        results[i] = out.is_none() ? empty<Real>(rollout.rewards_array(), rollout.fortran_ordered())
                                   : py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(out.ptr(), i));
        arrays[i] = array_of(results[i]);
    }
    if (!rollout.take_outputs(arrays[0], arrays[1])) return py::none();

    // Counting CPUs takes longer than a small rollout.
    if (num_threads == 0) num_threads = worth_threads(rollout) ? usable_cpus().cast<Index>() : 1;
    {
        const py::gil_scoped_release released;
        gae<Real>(choose(target), rollout, num_threads);
    }
    // GAEResult(advantages, returns), as tuple.__new__ would make it.
    const auto type = reinterpret_cast<PyTypeObject*>(result_type.ptr());
    PyObject* tuple = type->tp_alloc(type, 2);
    if (!tuple) throw py::error_already_set();
    for (int i = 0; i < 2; ++i) PyTuple_SET_ITEM(tuple, i, results[i].release().ptr());
    return py::reinterpret_steal<py::object>(tuple);
}

py::object gae_plain(const py::object& rewards, const py::object& values, const py::object& terminated,
                     const py::object& truncated, const py::object& last_values, const py::object& next_values,
                     const py::object& final_values, const py::object& gamma, const py::object& gae_lambda,
                     const py::object& time_axis, const py::object& out, Index num_threads,
                     const std::optional<std::string>& target, const py::object& result_type,
                     const py::object& usable_cpus) {
    const bool pair = PyTuple_CheckExact(out.ptr()) || PyList_CheckExact(out.ptr());
    if (!out.is_none() && !(pair && PySequence_Fast_GET_SIZE(out.ptr()) == 2)) return py::none();
    const PlainArguments arguments = {array_of(rewards),     array_of(values),       array_of(terminated),
                                      array_of(truncated),   array_of(last_values),  array_of(next_values),
                                      array_of(final_values), number_of(last_values), number_of(gamma),
                                      number_of(gae_lambda), integer_of(time_axis)};
    if (arguments.rewards.type == Type::f32)
        return gae_plain_of<float>(arguments, out, num_threads, target, result_type, usable_cpus);
    if (arguments.rewards.type == Type::f64)
        return gae_plain_of<double>(arguments, out, num_threads, target, result_type, usable_cpus);
    return py::none();
}

}  // namespace
}  // namespace fastgae

PYBIND11_MODULE(_core, module, py::mod_gil_not_used()) {
    using namespace fastgae;
    module.doc() = "The compiled kernels of fastgae. Internal: call fastgae.gae.";
    module.attr("compiler") = kCompiler;
    module.def("targets", supported_targets, "The CPU targets that this build can run here, best first.");
    module.def("gae", gae_any, py::arg("rewards"), py::arg("values"), py::arg("next_values"), py::arg("last_values"),
               py::arg("final_values").none(true), py::arg("terminated"), py::arg("truncated").none(true), py::arg("gamma"),
               py::arg("gamma_lambda"), py::arg("advantages").none(true), py::arg("returns").none(true), py::arg("num_threads"),
               py::arg("target").none(true), "Fill advantages and returns of one canonical rollout. Returns how many steps of a long trajectory, cut into pieces "
               "to run side by side, had to be redone to get the sequential bits.");
    module.def("gae_plain", gae_plain,
               "The short cut for plain arrays: what fastgae.gae returns, or None where only the long way will do.");
}
