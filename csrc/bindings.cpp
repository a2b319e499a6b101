// The module: reads a call from Python, drops the GIL, and computes it.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "call_reader.hpp"
#include "fill.hpp"
#include "kernels.hpp"
#include "new_arrays.hpp"
#include "packed.hpp"
#include "python.hpp"
#include "python_moments.hpp"
#include "python_programs.hpp"
#include "threads.hpp"

namespace fastgae {
namespace {

// Read the name of a recursion; false: declined.
bool read_recursion(PyObject* name, Recursion& recursion) {
    if (name == Py_None) return true;  // the call of gae is a shorter tuple
    for (std::size_t i = 0; i < std::size(kRecursionNames); ++i)
        if (is_text(name, kRecursionNames[i])) {
            recursion = static_cast<Recursion>(i);
            return true;
        }
    return false;
}

// Read ddof and eps; false: declined.
bool read_deviation(PyObject* pair, Call& call) {
    if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2) return false;
    PyObject* const eps = PyTuple_GET_ITEM(pair, 1);
    call.ddof = integer_of(PyTuple_GET_ITEM(pair, 0));
    call.eps = PyFloat_CheckExact(eps) ? PyFloat_AS_DOUBLE(eps) : kNaN;
    return call.ddof >= 0 && call.eps >= 0 && call.eps < std::numeric_limits<double>::infinity();
}

// Read the settings; false: declined.
bool read_settings(const Arguments& given, Call& call) {
    PyObject *const autoreset = given[kAutoreset], *const normalize = given[kNormalize];
    PyObject *const tail_normalized = given[kTailNormalized], *const carry_over = given[kCarryOver];
    call.time_axis = integer_of(given[kTimeAxis]);
    const double n = integer_of(given[kN]);
    call.n = n >= 1 ? static_cast<Index>(std::min(n, 1e15)) : 0;
    const bool no_mode = autoreset == Py_None;
    call.next_step = !no_mode && is_mode(autoreset, "next_step");
    call.tail_normalized = tail_normalized == Py_True;
    call.carry_over = carry_over == Py_True;
    call.by_leaves = is_text(given[kWeights], "leaves");
    call.names_weights = call.by_leaves || is_text(given[kWeights], "children");
    call.eps = registered.eps;
    if (is_text(normalize, "global")) call.normalize = Normalize::all;
    if (is_text(normalize, "per_env")) call.normalize = Normalize::per_env;
    const bool known_mode =
        no_mode || call.next_step || is_mode(autoreset, "same_step") || is_mode(autoreset, "disabled");
    return known_mode && read_recursion(given[kRecursion], call.recursion) &&
           (call.n || call.recursion != Recursion::n_step_returns) &&
           (normalize == Py_None || call.normalize != Normalize::nothing) &&
           (given.count <= kDeviation || read_deviation(given[kDeviation], call)) &&
           (given.count <= kTailNormalized || tail_normalized == Py_False || tail_normalized == Py_True) &&
           (given.count <= kCarryOver || carry_over == Py_False || carry_over == Py_True);
}

// Read which two results to fill; false: declined.
bool read_out(PyObject* given, PyObject* (&out)[2]) {
    if (given == Py_None) {
        out[0] = out[1] = registered.new_output;
        return true;
    }
    if (!PyTuple_CheckExact(given) || PyTuple_GET_SIZE(given) != 2) return false;  // other threads may change lists
    for (int i = 0; i < 2; ++i) out[i] = PyTuple_GET_ITEM(given, i);
    return true;
}

// Count CPUs only for a large rollout, because counting takes longer than a small one. It runs Python code, so it comes
// before anything points into arrays.
Index threads_for(PyObject* rewards, Index num_threads) {
    if (num_threads != 0) return num_threads;
    return worth_threads(operand_of(rewards).elements()) ? index_from(py::handle(registered.usable_cpus)().ptr()) : 1;
}

// Operands point into arrays, so from reading them to the results nothing may run that could change an array: no Python
// code, and no garbage collector.
template <class Real>
py::object computed(const Call& call, PyObject* const (&out)[2], Index num_threads, const Target& target,
                    Shapes* shapes) {
    CallReader<Real> reader(call, num_threads, recycled_memory);
    if (!reader.read_layout()) return py::none();
    // New results lie as numpy.empty_like puts them, which has an order of its own for broadcast rewards.
    const bool any_new = out[0] == registered.new_output || out[1] == registered.new_output;
    if (any_new && reader.is_broadcast()) return py::none();
    py::object results[2];
    for (int i = 0; i < 2; ++i)
        results[i] = out[i] == registered.new_output
                         ? new_array(call[kRewards], sizeof(Real) == sizeof(float) ? registered.f32 : registered.f64,
                                     sizeof(Real), reader.fortran_ordered())
                         : py::reinterpret_borrow<py::object>(out[i]);
    Operand advantages = operand_of(results[0].ptr(), call.checked);
    Operand returns = operand_of(results[1].ptr(), call.checked);
    const How how = {target, num_threads, recycled_memory};
    std::optional<WithoutGil> released;
    if (shapes) shapes->keep(advantages), shapes->keep(returns), released.emplace();
    const bool filled = fill(call, reader, advantages, returns, how);
    released.reset();
    if (!filled) return py::none();
    // GAEResult(advantages, returns), as tuple.__new__ would make it.
    PyObject* const pair = registered.result_type->tp_alloc(registered.result_type, 2);
    if (!pair) throw py::error_already_set();
#if PY_VERSION_HEX >= 0x030E0000
    reinterpret_cast<PyTupleObject*>(pair)->ob_hash = -1;  // unknown: a hash of 0 would be taken for the right one
#endif
    for (int i = 0; i < 2; ++i) PyTuple_SET_ITEM(pair, i, results[i].release().ptr());
    return py::reinterpret_steal<py::object>(pair);
}

// Compute a call, or return None where it must be checked and converted first.
py::object gae_of_call(PyObject* arguments, PyObject* num_threads, PyObject* target, bool checked) {
    if (!registered.result_type) throw std::logic_error("connect was not called");
    if (!PyTuple_Check(arguments)) throw py::type_error("call must be a tuple");
    const Target& chosen = choose(target);
    const Arguments given = {arguments, PyTuple_GET_SIZE(arguments)};
    if (given.count > kArguments) return py::none();
    const Index threads = threads_for(given[kRewards], index_from(num_threads));

    Call call;
    call.checked = checked;
    PyObject* out[2];
    Lists lists;
    if (!read_settings(given, call) || !read_out(given[kOut], out)) return py::none();
    for (Index i = 0; i < given.count; ++i)
        if (PyObject* const object = PyTuple_GET_ITEM(arguments, i); object != Py_None && !is_setting(Argument(i))) {
            const bool is_list = PyList_CheckExact(object) || PyTuple_CheckExact(object);
            call.operands[i] = is_list ? lists.operand_of(object) : operand_of(object, checked);
            read_number(call.operands[i]);
        }
    OneEnv one_env;
    const bool packed = call[kCuSeqlens].given && !call[kCuSeqlens].absent;
    if (packed && !one_env.replace(call)) return py::none();
    const bool recorded = recordings && recording && !checked && !packed;
    if (recorded) recording->call = call;
    const Type type = working_type(call);
    if (type == Type::other) return py::none();
    // To drop the GIL and take it again costs a small call as much as a quarter of the recursion.
    std::optional<Shapes> without_gil;
    if (call[kRewards].elements() > kSmallSteps) {
        without_gil.emplace();
        for (Operand& operand : call.operands) without_gil->keep(operand);
    }
    py::object result = (type == Type::f32 ? computed<float> : computed<double>)(call, out, threads, chosen,
                                                                                 without_gil ? &*without_gil : nullptr);
    if (recorded && !result.is_none()) record(given, out, index_from(num_threads), chosen);
    return result;
}

// A function that Python calls directly, because pybind11's dispatcher would cost as much as the kernel on a small
// rollout.
template <bool checked>
PyObject* gae_called(PyObject*, PyObject* const* given, Py_ssize_t count) {
    try {
        if (count == 3) {
            py::object result = gae_of_call(given[0], given[1], given[2], checked);
            if (checked && result.is_none()) throw std::logic_error("this call does not come from in_one_layout");
            return result.release().ptr();
        }
        PyErr_Format(PyExc_TypeError, "expected 3 arguments, got %zd", count);
    } catch (py::error_already_set& error) {
        error.restore();
    } catch (const py::builtin_exception& error) {
        error.set_error();
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
    }
    return nullptr;
}

// Return what is known of each kind of sweep.
py::list prefetching() {
    py::list known;
    const auto add = [&](const char* dtype, const auto& choices) {
        for (std::size_t i = 0; i < std::size(kSweepNames); ++i)
            if (const PrefetchChoice& choice = choices[i]; choice.known())
                known.append(py::make_tuple(dtype, kSweepNames[i], Index(choice.way), double(choice.gain)));
    };
    add("float32", prefetch_choices<float>), add("float64", prefetch_choices<double>);
    return known;
}

void prefetch_into(Index way) {
    for (PrefetchChoice& choice : prefetch_choices<float>) choice.take(way);
    for (PrefetchChoice& choice : prefetch_choices<double>) choice.take(way);
}

// What compiled the kernels, and for which vectors, as `fastgae info` shows it.
#if defined(__clang__)
constexpr const char* kCompiler = "clang " __clang_version__ FASTGAE_VECTORS FASTGAE_THRESHOLDS;
#elif defined(__GNUC__)
constexpr const char* kCompiler = "gcc " __VERSION__ FASTGAE_VECTORS FASTGAE_THRESHOLDS;
#else
constexpr const char* kCompiler = "msvc" FASTGAE_VECTORS FASTGAE_THRESHOLDS;
#endif

template <bool checked>
PyCFunction as_method() {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(gae_called<checked>));
}

PyMethodDef raw_functions[] = {
    {"short_cut", as_method<false>(), METH_FASTCALL,
     "short_cut($module, call, num_threads, target, /)\n--\n\n"
     "Return the result of a call, or None where the call must be checked and converted first."},
    {"gae", as_method<true>(), METH_FASTCALL,
     "gae($module, call, num_threads, target, /)\n--\n\n"
     "Return the result of a call that in_one_layout has made."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace
}  // namespace fastgae

PYBIND11_MODULE(_core, module, pybind11::mod_gil_not_used()) {
    using namespace fastgae;
    module.doc() = "The compiled kernels of fastgae. Internal: call fastgae.gae.";
    register_types();
    define_recycling(module);
#if !defined(_WIN32)
    pthread_atfork(nullptr, nullptr, end_measuring);
#endif
    using Names = std::vector<std::string>;
    Names compiled_targets;
    for (const Target* const* target = targets; *target; ++target) compiled_targets.push_back((*target)->name);
    module.attr("compiler") = kCompiler;
    module.attr("arguments") = py::tuple(py::cast(Names(std::begin(kArgumentNames), std::end(kArgumentNames))));
    module.attr("numbers") = py::tuple(py::cast(std::vector<int>(std::begin(kNumbers), std::end(kNumbers))));
    module.attr("recursions") = py::tuple(py::cast(Names(std::begin(kRecursionNames), std::end(kRecursionNames))));
    module.attr("compiled_targets") = py::tuple(py::cast(compiled_targets));
    module.attr("moment_steps") = kMomentSteps;
    module.def("connect", connect, "Say what results are made of and how CPUs are counted, before the first call.",
               py::arg("result_type"), py::arg("new_output"), py::arg("absent"), py::arg("usable_cpus"),
               py::arg("eps"));
    module.def(
        "supports", [](const py::str& name) { return find_target(name.ptr()) != nullptr; },
        "Return whether this build has the CPU target, and this CPU can run it.", py::arg("name"));
    module.def(
        "cache_sizes", [] { return py::make_tuple(cache_sizes.l1d, cache_sizes.l2, cache_sizes.l3); },
        "Return the bytes of L1d, L2 and L3; 0 where the CPU does not say.");
    module.def("prefetching", prefetching,
               "Return what large calls have measured: dtype, sweep, the chosen way, how often as fast as without "
               "prefetches.");
    module.def("prefetch_into", prefetch_into,
               "Take this way for large calls, until they measure again: 0 prefetches nothing, 1 into L1, 2 into L2, "
               "and 3 into L2 with short runs.",
               py::arg("way"));
    module.def(
        "redone", [] { return redone; },
        "Return how many steps of long trajectories the last call of this thread computed again.");
    module.def("block_sums", block_sums_of, "Return float64 sums, (blocks, N), of existing steps or of (x - center)^2.",
               py::arg("matrix"), py::arg("mask"), py::arg("center"), py::arg("num_threads"), py::arg("target"));
    module.def("rescale", rescale_of, "Set x = (x - center) scale, in place.", py::arg("matrix"), py::arg("mask"),
               py::arg("center").none(false), py::arg("scale").none(false), py::arg("num_threads"), py::arg("target"));
    module.def(
        "exact_sums", exact_sums_of,
        "Return int64 digits, (exponents, digits), of the exact sums, and the counts of numbers, NaN and infinities.",
        py::arg("matrix"), py::arg("mask"));
    module.def("record_call", record_call, "Make a call of the short cut, and keep it for compiled programs.",
               py::arg("key"), py::arg("inputs"), py::arg("outputs"), py::arg("call"));
    module.def("xla_handler", xla_handler, "Return what XLA calls from compiled programs.", py::arg("minor"),
               py::arg("fallback"));
    if (PyModule_AddFunctions(module.ptr(), raw_functions) != 0) throw py::error_already_set();
}
