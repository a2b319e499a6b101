// The border to Python: arrays -> views, drop the GIL, call. The only file that includes pybind11.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>

#include "kernels.hpp"
#include "normalize.hpp"
#include "optional.hpp"
#include "parallel.hpp"
#include "plain.hpp"
#include "tuning.hpp"

namespace py = pybind11;

namespace fastgae {
namespace {

#if defined(__clang__)
constexpr const char* kCompiler = "clang " __clang_version__ FASTGAE_THRESHOLDS;
#elif defined(__GNUC__)
constexpr const char* kCompiler = "gcc " __VERSION__ FASTGAE_THRESHOLDS;
#else
constexpr const char* kCompiler = "msvc" FASTGAE_THRESHOLDS;
#endif

// Drops the GIL while it lives. Until Python 3.14, a thread that wants the GIL back while the interpreter exits is
// ended: its stack is unwound, and the process aborts where that meets a destructor, which must not throw, such as that
// of py::gil_scoped_release. Here the unwinding stops: the thread waits for the end of the process, as in Python 3.14.
class WithoutGil {
public:
    WithoutGil() : thread_(PyEval_SaveThread()) {}
    WithoutGil(const WithoutGil&) = delete;
    ~WithoutGil() {
        try {
            PyEval_RestoreThread(thread_);
        } catch (...) {
            for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
        }
    }

private:
    PyThreadState* thread_;
};

py::tuple supported_targets() {
    py::list names;
    for (const Target* const* target = targets; *target; ++target)
        if ((*target)->supported()) names.append((*target)->name);
    return py::tuple(names);
}

const Target& choose(const std::optional<std::string>& name) {
    for (const Target* const* target = targets; *target; ++target)
        if ((!name || *name == (*target)->name) && (*target)->supported()) return **target;
    throw std::invalid_argument("no CPU target " + *name + " here");
}

// What _canonical promises is checked once more: a broken promise here would be memory corruption.
template <class Element>
py::array checked(const py::object& object, const char* name, std::initializer_list<Index> shape) {
    using Number = std::remove_const_t<Element>;
    using Stored = std::conditional_t<std::is_same_v<Number, std::uint8_t>, bool, Number>;
    if (py::isinstance<py::array_t<Stored>>(object)) {
        const auto array = py::reinterpret_borrow<py::array>(object);
        const bool fits = std::equal(shape.begin(), shape.end(), array.shape(), array.shape() + array.ndim());
        if (fits && (std::is_const_v<Element> || array.writeable())) return array;
    }
    throw std::invalid_argument(std::string(name) + " is read-only, or has another dtype or shape than the rollout");
}

template <class Element>
Element* start(const py::array& array) {
    return static_cast<Element*>(const_cast<void*>(array.data()));
}

template <class Element>
View<Element> matrix(const py::object& object, const char* name, Index steps, Index envs) {
    const py::array array = checked<Element>(object, name, {steps, envs});
    // What lies behind an axis of one element is nobody's.
    const auto stride = [&](int axis) { return array.shape(axis) == 1 ? 1 : array.strides(axis) / array.itemsize(); };
    return {start<Element>(array), stride(0), stride(1)};
}

template <class Element>
View<Element> matrix_or_none(const py::object& object, const char* name, Index steps, Index envs) {
    return object.is_none() ? View<Element>() : matrix<Element>(object, name, steps, envs);
}

template <class Element>
View<Element> row(const py::object& object, const char* name, Index envs) {
    const py::array array = checked<Element>(object, name, {envs});
    return {start<Element>(array), 0, array.strides(0) / array.itemsize()};
}

// Where the kernels expect neighbours, there must be some.
template <class Element>
void check_stride(const View<Element>& view, const char* name, bool env_major, Index steps, Index envs,
                  bool or_zero = false) {
    const Index stride = env_major ? view.step : view.env, length = env_major ? steps : envs;
    if (!view || length < 2 || stride == 1 || (or_zero && stride == 0)) return;
    throw std::invalid_argument(std::string(name) + " has another layout than the rollout");
}

// The arrays that every rollout has.
template <class Real>
void take_arrays(Rollout<Real>& rollout, const py::object& rewards, const py::object& values, const py::object& next_values,
                 const py::object& last_values, const py::object& final_values, const py::object& terminated,
                 const py::object& truncated, const py::object& advantages, const py::object& returns) {
    rollout.steps = py::len(rewards);
    rollout.envs = py::len(last_values);
    const Index steps = rollout.steps, envs = rollout.envs;
    rollout.rewards = matrix<const Real>(rewards, "rewards", steps, envs);
    rollout.values = matrix<const Real>(values, "values", steps, envs);
    rollout.next_values = matrix<const Real>(next_values, "next_values", steps - 1, envs);
    rollout.last_values = row<const Real>(last_values, "last_values", envs);
    rollout.final_values = matrix_or_none<const Real>(final_values, "final_values", steps, envs);
    rollout.terminated = matrix<const std::uint8_t>(terminated, "terminated", steps, envs);
    rollout.truncated = matrix_or_none<const std::uint8_t>(truncated, "truncated", steps, envs);
    rollout.advantages = matrix_or_none<Real>(advantages, "advantages", steps, envs);
    rollout.returns = matrix_or_none<Real>(returns, "returns", steps, envs);
    if (!rollout.advantages && !rollout.returns) throw std::invalid_argument("advantages and returns are both None");
    rollout.env_major = envs == 1 || rollout.rewards.env != 1;
    const auto check = [&](const auto& view, const char* name) {
        check_stride(view, name, rollout.env_major, steps, envs);
    };
    check(rollout.rewards, "rewards");
    check(rollout.values, "values");
    check_stride(rollout.next_values, "next_values", rollout.env_major, steps - 1, envs);
    check_stride(rollout.last_values, "last_values", rollout.env_major, 1, envs);
    check(rollout.final_values, "final_values");
    check(rollout.terminated, "terminated");
    check(rollout.truncated, "truncated");
    check(rollout.advantages, "advantages");
    check(rollout.returns, "returns");
}

template <class Real>
Index gae_of(const py::object& rewards, const py::object& values, const py::object& next_values, const py::object& last_values,
             const py::object& final_values, const py::object& terminated, const py::object& truncated, double gamma,
             double gamma_lambda, const py::object& advantages, const py::object& returns, Index num_threads,
             const Target& target) {
    Rollout<Real> rollout;
    take_arrays(rollout, rewards, values, next_values, last_values, final_values, terminated, truncated, advantages, returns);
    rollout.gamma = static_cast<Real>(gamma);
    rollout.gamma_lambda = static_cast<Real>(gamma_lambda);

    const WithoutGil released;
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

// A number becomes a view without strides.
template <class Real>
View<const Real> coefficients(const py::object& object, const char* name, const Rollout<Real>& rollout, Real& number) {
    if (!PyFloat_Check(object.ptr())) return matrix_or_none<const Real>(object, name, rollout.steps, rollout.envs);
    number = static_cast<Real>(PyFloat_AS_DOUBLE(object.ptr()));
    return {&number, 0, 0};
}

template <class Real>
Index gae_general_of(const py::object& rewards, const py::object& values, const py::object& next_values,
                     const py::object& last_values, const py::object& final_values, const py::object& terminated,
                     const py::object& truncated, const py::object& gamma, const py::object& gamma_lambda,
                     const py::object& advantages, const py::object& returns, const py::object& returns_gamma_lambda,
                     const py::object& tail_lambda, const py::object& mask, bool mask_passes_values,
                     const py::object& last_advantages, const py::object& ratios, const py::object& clips, Index num_threads,
                     const Target& target) {
    RolloutWithOptions<Real> rollout;
    Real numbers[4];
    if (!ratios.is_none()) {  // what may run Python code comes before what points into arrays
        const auto [deltas, traces, results] = clips.cast<std::tuple<Real, Real, Real>>();
        const Real constants[kConstants] = {deltas, traces, results};
        std::copy_n(constants, kConstants, rollout.constants);
    }
    take_arrays(rollout, rewards, values, next_values, last_values, final_values, terminated, truncated, advantages, returns);
    const Index steps = rollout.steps, envs = rollout.envs;
    rollout.gammas = coefficients(gamma, "gamma", rollout, numbers[0]);
    rollout.gamma_lambdas = coefficients(gamma_lambda, "gamma_lambda", rollout, numbers[1]);
    rollout.returns_gamma_lambdas = coefficients(returns_gamma_lambda, "returns_gamma_lambda", rollout, numbers[2]);
    rollout.tail_lambdas = coefficients(tail_lambda, "tail_lambda", rollout, numbers[3]);
    rollout.mask = matrix_or_none<const std::uint8_t>(mask, "mask", steps, envs);
    rollout.mask_passes_values = mask_passes_values;
    if (!last_advantages.is_none()) rollout.last_advantages = row<const Real>(last_advantages, "last_advantages", envs);
    rollout.ratios = matrix_or_none<const Real>(ratios, "ratios", steps, envs);
    if (!rollout.gammas || !rollout.gamma_lambdas) throw std::invalid_argument("gamma or gamma_lambda is None");
    const auto check = [&](const auto& view, const char* name, bool or_zero = false) {
        check_stride(view, name, rollout.env_major, steps, envs, or_zero);
    };
    check(rollout.gammas, "gamma", true);
    check(rollout.gamma_lambdas, "gamma_lambda", true);
    check(rollout.returns_gamma_lambdas, "returns_gamma_lambda", true);
    check(rollout.tail_lambdas, "tail_lambda", true);
    check(rollout.mask, "mask");
    check(rollout.ratios, "ratios");

    const WithoutGil released;
    return gae(target, rollout, num_threads);
}

Index gae_general(const py::object& rewards, const py::object& values, const py::object& next_values,
                  const py::object& last_values, const py::object& final_values, const py::object& terminated,
                  const py::object& truncated, const py::object& gamma, const py::object& gamma_lambda,
                  const py::object& advantages, const py::object& returns, const py::object& returns_gamma_lambda,
                  const py::object& tail_lambda, const py::object& mask, bool mask_passes_values,
                  const py::object& last_advantages, const py::object& ratios, const py::object& clips, Index num_threads,
                  const std::optional<std::string>& target) {
    const auto run = py::isinstance<py::array_t<float>>(rewards) ? gae_general_of<float> : gae_general_of<double>;
    return run(rewards, values, next_values, last_values, final_values, terminated, truncated, gamma, gamma_lambda, advantages,
               returns, returns_gamma_lambda, tail_lambda, mask, mask_passes_values, last_advantages, ratios, clips, num_threads,
               choose(target));
}

// The matrix of moments, which also says which they are, and its mask.
template <class Element>
Moments<Element> moments_of(const py::object& object, const py::object& mask) {
    const py::array array = py::reinterpret_borrow<py::array>(object);
    Moments<Element> moments;
    moments.steps = array.shape(0);
    moments.envs = array.shape(1);
    moments.matrix = matrix<Element>(object, "matrix", moments.steps, moments.envs);
    moments.mask = matrix_or_none<const std::uint8_t>(mask, "mask", moments.steps, moments.envs);
    moments.env_major = moments.envs == 1 || moments.matrix.env != 1;
    check_stride(moments.matrix, "matrix", moments.env_major, moments.steps, moments.envs);
    check_stride(moments.mask, "mask", moments.env_major, moments.steps, moments.envs);
    return moments;
}

const double* numbers_of_envs(const py::object& object, const char* name, Index envs) {
    const View<const double> view = row<const double>(object, name, envs);
    check_stride(view, name, false, 1, envs);
    return view.data;
}

void check_matrix(const py::object& object) {
    if (!py::isinstance<py::array>(object) || py::reinterpret_borrow<py::array>(object).ndim() != 2)
        throw std::invalid_argument("matrix must be an array of steps and envs");
}

py::array block_sums_of(const py::object& matrix, const py::object& mask, const py::object& center, Index num_threads,
                        const std::optional<std::string>& target) {
    check_matrix(matrix);
    const auto sums_of = [&](auto moments) {
        if (!center.is_none()) moments.center = numbers_of_envs(center, "center", moments.envs);
        py::array_t<double> sums({(moments.steps + kMomentSteps - 1) / kMomentSteps, moments.envs});
        double* const to = sums.mutable_data();
        const Target& chosen = choose(target);
        const WithoutGil released;
        block_sums(chosen, moments, num_threads, to);
        return sums;
    };
    if (py::isinstance<py::array_t<float>>(matrix)) return sums_of(moments_of<const float>(matrix, mask));
    return sums_of(moments_of<const double>(matrix, mask));
}

void rescale_of(const py::object& matrix, const py::object& mask, const py::object& center, const py::object& scale,
                Index num_threads, const std::optional<std::string>& target) {
    check_matrix(matrix);
    const auto run = [&](auto moments) {
        moments.center = numbers_of_envs(center, "center", moments.envs);
        moments.scale = numbers_of_envs(scale, "scale", moments.envs);
        const Target& chosen = choose(target);
        const WithoutGil released;
        rescale(chosen, moments, num_threads);
    };
    if (py::isinstance<py::array_t<float>>(matrix))
        run(moments_of<float>(matrix, mask));
    else
        run(moments_of<double>(matrix, mask));
}

// NumPy's dtypes of plain arrays, looked up when the module is loaded. If the first call did it, for a static variable,
// its thread would drop the GIL on the way, and a second one could wait for the variable with the GIL held: a deadlock.
PyObject *f32, *f64, *flag;

void find_dtypes() {
    f32 = py::dtype::of<float>().release().ptr();
    f64 = py::dtype::of<double>().release().ptr();
    flag = py::dtype::of<bool>().release().ptr();
}

// Plain arrays: NumPy's own type, native and aligned. Anything else has no type and is declined.
Array array_of(const py::object& object) {
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
    int overflow;  // not an exception: making one may start the garbage collector, which runs Python code
    const long long number = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
    return overflow ? std::nan("") : static_cast<double>(number);
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

// Counting CPUs takes longer than a small rollout. It calls Python, so it comes before anything points into arrays.
Index threads_for(const py::object& rewards, Index num_threads, const py::object& usable_cpus) {
    if (num_threads != 0) return num_threads;
    const Array array = array_of(rewards);
    const Index steps = std::accumulate(array.shape, array.shape + array.rank, Index(1), std::multiplies<Index>());
    return worth_threads(steps) ? usable_cpus().cast<Index>() : 1;
}

// How a short cut is asked to run, and what it is to return.
struct Call {
    const py::object& out;
    Index num_threads;
    const Target& target;
    const py::object& result_type;
};

// What fastgae.gae returns, or None where the rollout declines. compute(rollout) fills it. The arguments point into
// arrays, so from here to the results nothing may run that could change one: no Python code, and no garbage collector.
template <class Real, class Taken, class Arguments, class Compute>
py::object short_cut(Taken& rollout, const Arguments& arguments, const Call& call, const Compute& compute) {
    if (!rollout.take(arguments)) return py::none();

    py::object results[2];
    Array arrays[2];
    for (int i = 0; i < 2; ++i) {
        results[i] = call.out.is_none() ? empty<Real>(rollout.rewards_array(), rollout.fortran_ordered())
                                        : py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(call.out.ptr(), i));
        arrays[i] = array_of(results[i]);
    }
    if (!rollout.take_outputs(arrays[0], arrays[1])) return py::none();
    {
        const WithoutGil released;
        compute(rollout);
    }
    // GAEResult(advantages, returns), as tuple.__new__ would make it.
    const auto type = reinterpret_cast<PyTypeObject*>(call.result_type.ptr());
    PyObject* tuple = type->tp_alloc(type, 2);
    if (!tuple) throw py::error_already_set();
    for (int i = 0; i < 2; ++i) PyTuple_SET_ITEM(tuple, i, results[i].release().ptr());
    return py::reinterpret_steal<py::object>(tuple);
}

bool none_or_pair(const py::object& out) {
    const bool sequence = PyTuple_CheckExact(out.ptr()) || PyList_CheckExact(out.ptr());
    return out.is_none() || (sequence && PySequence_Fast_GET_SIZE(out.ptr()) == 2);
}

py::object gae_plain(const py::object& rewards, const py::object& values, const py::object& terminated,
                     const py::object& truncated, const py::object& last_values, const py::object& next_values,
                     const py::object& final_values, const py::object& gamma, const py::object& gae_lambda,
                     const py::object& time_axis, const py::object& out, Index num_threads,
                     const std::optional<std::string>& target, const py::object& result_type,
                     const py::object& usable_cpus) {
    if (!none_or_pair(out)) return py::none();
    const Call call = {out, threads_for(rewards, num_threads, usable_cpus), choose(target), result_type};
    const PlainArguments arguments = {array_of(rewards),     array_of(values),       array_of(terminated),
                                      array_of(truncated),   array_of(last_values),  array_of(next_values),
                                      array_of(final_values), number_of(last_values), number_of(gamma),
                                      number_of(gae_lambda), integer_of(time_axis)};
    const auto run = [&](auto real) {
        using Real = decltype(real);
        PlainRollout<Real> rollout;
        return short_cut<Real>(rollout, arguments, call,
                               [&](const Rollout<Real>& rollout) { gae(call.target, rollout, call.num_threads); });
    };
    if (arguments.rewards.type == Type::f32) return run(float());
    if (arguments.rewards.type == Type::f64) return run(double());
    return py::none();
}

Coefficient coefficient_of(const py::object& object) {
    const double number = number_of(object);
    return number == number ? Coefficient{{}, number} : Coefficient{array_of(object), number};
}

bool is_text(const py::object& object, const char* text) {
    return PyUnicode_CheckExact(object.ptr()) && PyUnicode_CompareWithASCIIString(object.ptr(), text) == 0;
}

py::object gae_optional(const py::object& rewards, const py::object& values, const py::object& terminated,
                        const py::object& truncated, const py::object& last_values, const py::object& next_values,
                        const py::object& final_values, const py::object& gamma, const py::object& gae_lambda,
                        const py::object& time_axis, const py::object& out, Index num_threads,
                        const std::optional<std::string>& target, const py::object& result_type,
                        const py::object& usable_cpus, const py::object& autoreset, const py::object& prev_done,
                        const py::object& mask, const py::object& last_advantages, const py::object& returns_lambda,
                        const py::object& tail_normalized, const py::object& normalize_by, double eps, const py::object& ratios,
                        const py::object& clips) {
    const bool known_mode = autoreset.is_none() || is_text(autoreset, "next_step") || is_text(autoreset, "same_step") ||
                            is_text(autoreset, "disabled");
    const bool per_env = is_text(normalize_by, "per_env"), all = is_text(normalize_by, "global");
    if (!none_or_pair(out) || !known_mode || !(per_env || all || normalize_by.is_none())) return py::none();
    if (ratios.is_none() != clips.is_none()) return py::none();
    if (tail_normalized.ptr() != Py_True && tail_normalized.ptr() != Py_False) return py::none();
    const Call call = {out, threads_for(rewards, num_threads, usable_cpus), choose(target), result_type};
    OptionalArguments arguments;
    if (!clips.is_none()) {
        const auto [deltas, traces, advantages] = clips.cast<std::tuple<py::object, py::object, py::object>>();
        const double constants[kConstants] = {number_of(deltas), number_of(traces), number_of(advantages)};
        std::copy_n(constants, kConstants, arguments.constants);
    }
    arguments.plain = {array_of(rewards),      array_of(values),       array_of(terminated),  array_of(truncated),
                       array_of(last_values),  array_of(next_values),  array_of(final_values), number_of(last_values),
                       std::nan(""),           std::nan(""),           integer_of(time_axis)};
    arguments.gamma = coefficient_of(gamma);
    arguments.gae_lambda = coefficient_of(gae_lambda);
    arguments.mask = array_of(mask);
    arguments.prev_done = array_of(prev_done);
    arguments.last_advantages = array_of(last_advantages);
    arguments.second = !returns_lambda.is_none();
    if (arguments.second) arguments.returns_lambda = coefficient_of(returns_lambda);
    arguments.tail_normalized = tail_normalized.ptr() == Py_True;
    arguments.next_step = is_text(autoreset, "next_step");
    arguments.normalized = per_env || all;
    arguments.ratios = array_of(ratios);
    const auto run = [&](auto real) {
        using Real = decltype(real);
        OptionalRollout<Real> rollout;
        return short_cut<Real>(rollout, arguments, call, [&](const RolloutWithOptions<Real>& rollout) {
            std::optional<Normalization<Real>> normalization;
            if (arguments.normalized) normalization.emplace(rollout, per_env);
            if (rollout.is_plain())
                gae<Real>(call.target, static_cast<const Rollout<Real>&>(rollout), call.num_threads);
            else
                gae(call.target, rollout, call.num_threads);
            if (normalization) normalization->run(call.target, eps, call.num_threads);
        });
    };
    if (arguments.plain.rewards.type == Type::f32) return run(float());
    if (arguments.plain.rewards.type == Type::f64) return run(double());
    return py::none();
}

}  // namespace
}  // namespace fastgae

PYBIND11_MODULE(_core, module, py::mod_gil_not_used()) {
    using namespace fastgae;
    module.doc() = "The compiled kernels of fastgae. Internal: call fastgae.gae.";
    module.attr("compiler") = kCompiler;
    find_dtypes();
    module.def("targets", supported_targets, "The CPU targets that this build can run here, best first.");
    module.def("gae", gae_any, py::arg("rewards"), py::arg("values"), py::arg("next_values"), py::arg("last_values"),
               py::arg("final_values").none(true), py::arg("terminated"), py::arg("truncated").none(true), py::arg("gamma"),
               py::arg("gamma_lambda"), py::arg("advantages").none(true), py::arg("returns").none(true), py::arg("num_threads"),
               py::arg("target").none(true), "Fill advantages and returns of one canonical rollout. Returns how many steps of a long trajectory, cut into pieces "
               "to run side by side, had to be redone to get the sequential bits.");
    module.def("gae_general", gae_general, "The same of one with options, in the order in which a Rollout has them.",
               py::arg("rewards"), py::arg("values"), py::arg("next_values"), py::arg("last_values"),
               py::arg("final_values").none(true), py::arg("terminated"), py::arg("truncated").none(true), py::arg("gamma"),
               py::arg("gamma_lambda"), py::arg("advantages").none(true), py::arg("returns").none(true),
               py::arg("returns_gamma_lambda").none(true), py::arg("tail_lambda").none(true), py::arg("mask").none(true),
               py::arg("mask_passes_values"), py::arg("last_advantages").none(true), py::arg("ratios").none(true),
               py::arg("clips").none(true), py::arg("num_threads"), py::arg("target").none(true));
    module.def("block_sums", block_sums_of, "(blocks, N), float64: sums of the existing steps, or of (x - center)^2.",
               py::arg("matrix"), py::arg("mask").none(true), py::arg("center").none(true), py::arg("num_threads"),
               py::arg("target").none(true));
    module.def("rescale", rescale_of, "x = (x - center) scale, in place.", py::arg("matrix"), py::arg("mask").none(true),
               py::arg("center"), py::arg("scale"), py::arg("num_threads"), py::arg("target").none(true));
    module.def("gae_plain", gae_plain,
               "The short cut for plain arrays: what fastgae.gae returns, or None where only the long way will do.");
    module.def("gae_optional", gae_optional, "The same with options.");
}
