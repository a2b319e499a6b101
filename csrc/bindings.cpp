// The border to Python: arrays -> views, drop the GIL, call. It and new_arrays.hpp are all that includes pybind11.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "canonical.hpp"
#include "compiler.hpp"
#include "exact_sums.hpp"
#include "kernels.hpp"
#include "n_step_returns.hpp"
#include "narrow.hpp"
#include "new_arrays.hpp"
#include "normalize.hpp"
#include "packed.hpp"
#include "parallel.hpp"
#include "short_cut.hpp"

namespace py = pybind11;

namespace fastgae {
namespace {

// Drops the GIL during its lifetime. Until Python 3.14, a thread that wants the GIL back while the interpreter exits is
// ended: its stack is unwound, and the process aborts if the unwinding meets a destructor that must not throw, such as
// py::gil_scoped_release's. Here the unwinding stops: the thread waits for the end of the process, as in Python 3.14.
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

Registered& registered = *new Registered();

void register_types() {
    registered.f32 = py::dtype::of<float>().release().ptr();
    registered.f64 = py::dtype::of<double>().release().ptr();
    registered.array_type = py::detail::npy_api::get().PyArray_Type_;
    for (const Target* const* target = targets; *target; ++target)
        if ((*target)->supported())
            registered.targets.emplace_back(PyUnicode_InternFromString((*target)->name), *target);
}

void connect(const py::type& result_type, const py::object& new_output, const py::object& absent,
             const py::function& usable_cpus, double eps) {
    const auto type = reinterpret_cast<PyTypeObject*>(result_type.ptr());
    if (!PyType_IsSubtype(type, &PyTuple_Type)) throw py::type_error("result_type must be a subclass of tuple");
    registered.result_type = reinterpret_cast<PyTypeObject*>(result_type.inc_ref().ptr());
    registered.new_output = new_output.inc_ref().ptr();
    registered.absent = absent.inc_ref().ptr();
    registered.usable_cpus = usable_cpus.inc_ref().ptr();
    registered.eps = eps;
}

bool is_text(PyObject* object, const char* text) {
    return PyUnicode_CheckExact(object) && PyUnicode_CompareWithASCIIString(object, text) == 0;
}

// Find a CPU target by its name; null if it cannot run. Interned names are tried first, because nearly all are.
const Target* find_target(PyObject* name) {
    for (const auto& [interned, target] : registered.targets)
        if (interned == name) return target;
    for (const auto& [interned, target] : registered.targets)
        if (is_text(name, target->name)) return target;
    return nullptr;
}

const Target& choose(const py::handle& name) {
    if (const Target* const target = find_target(name.ptr())) return *target;
    throw std::invalid_argument("no CPU target " + std::string(py::str(name)) + " here");
}

// Return the result of a Python function, or raise its exception; -1 may mean either.
template <class Number>
Number or_raise(Number number) {
    if (number == -1 && PyErr_Occurred()) throw py::error_already_set();
    return number;
}

Index index_from(PyObject* object) { return or_raise(PyNumber_AsSsize_t(object, PyExc_OverflowError)); }

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
Operand array_operand(PyObject* object) {
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

// Read an array that _canonical has made. It may be of a subclass.
Operand canonical_array(const py::handle& object) {
    if (py::isinstance<py::array>(object)) return array_operand(object.ptr());
    Operand result;
    result.given = !object.is_none();
    return result;
}

template <class Real>
Index gae_of(const typename CanonicalRollout<Real>::Fields& fields, Index num_threads, const Target& target) {
    CanonicalRollout<Real> canonical(fields);
    const WithoutGil released;
    return gae(target, canonical.rollout(), num_threads);
}

Index gae_of_fields(const py::tuple& rollout, Index num_threads, const py::str& target) {
    if (rollout.size() != kFields) throw std::invalid_argument("rollout has another number of fields than a Rollout");
    PyObject* given[kFields + kConstants];
    std::fill(std::copy_n(&PyTuple_GET_ITEM(rollout.ptr(), 0), kFields, given), std::end(given), Py_None);
    PyObject* const constants = std::exchange(given[kFieldConstants], Py_None);
    if (PyTuple_Check(constants) && PyTuple_GET_SIZE(constants) == kConstants)
        std::copy_n(&PyTuple_GET_ITEM(constants, 0), kConstants, given + kFields);
    else if (constants != Py_None || given[kFieldRatios] != Py_None)
        throw std::invalid_argument("constants must be a tuple with a number for each, or None where ratios is None");

    // Conversions to numbers may run Python code, so they come before anything that points into arrays.
    Operand fields[kFields + kConstants];
    for (Index i = 0; i < kFields + kConstants; ++i)
        if (given[i] != Py_None && !py::isinstance<py::array>(given[i])) {
            fields[i].number = or_raise(PyFloat_AsDouble(given[i]));
            fields[i].given = true;
        }
    for (Index i = 0; i < kFields + kConstants; ++i)
        if (py::isinstance<py::array>(given[i])) fields[i] = canonical_array(given[i]);
    const auto run = fields[kFieldRewards].type == Type::f32 ? gae_of<float> : gae_of<double>;
    return run(fields, num_threads, choose(target));
}

py::array block_sums_of(const py::object& matrix, const py::object& mask, const py::object& center, Index num_threads,
                        const py::str& target) {
    const Target& chosen = choose(target);
    const auto sums_of = [&](auto moments) {
        py::array_t<double> sums({(moments.steps + kMomentSteps - 1) / kMomentSteps, moments.envs});
        double* const to = sums.mutable_data();
        const WithoutGil released;
        block_sums(chosen, moments, num_threads, to);
        return sums;
    };
    const Operand numbers = canonical_array(matrix), exists = canonical_array(mask), centers = canonical_array(center);
    if (numbers.type == Type::f32) return sums_of(canonical_moments<const float>(numbers, exists, centers, {}));
    return sums_of(canonical_moments<const double>(numbers, exists, centers, {}));
}

void rescale_of(const py::object& matrix, const py::object& mask, const py::object& center, const py::object& scale,
                Index num_threads, const py::str& target) {
    const Target& chosen = choose(target);
    const auto run = [&](auto moments) {
        const WithoutGil released;
        rescale(chosen, moments, num_threads);
    };
    const Operand numbers = canonical_array(matrix), exists = canonical_array(mask);
    const Operand centers = canonical_array(center), scales = canonical_array(scale);
    if (numbers.type == Type::f32)
        run(canonical_moments<float>(numbers, exists, centers, scales));
    else
        run(canonical_moments<double>(numbers, exists, centers, scales));
}

template <class Real>
py::tuple exact_sums_of_type(const Operand& matrix, const Operand& mask) {
    const auto numbers = canonical_moments<const Real>(matrix, mask, {}, {});
    ExactSums<Real> sums;
    py::array_t<std::int64_t> bins({ExactSums<Real>::exponents, Index(ExactFormat<Real>::digits)});
    std::int64_t* const to = bins.mutable_data();
    {
        const WithoutGil released;
        sums.add(numbers);
        sums.write(to);
    }
    return py::make_tuple(bins, py::make_tuple(sums.count, sums.nans, sums.infinities[0], sums.infinities[1]));
}

py::tuple exact_sums_of(const py::object& matrix, const py::object& mask) {
    const Operand numbers = canonical_array(matrix), exists = canonical_array(mask);
    return (numbers.type == Type::f32 ? exact_sums_of_type<float> : exact_sums_of_type<double>)(numbers, exists);
}

using Floats = py::array_t<float, py::array::c_style>;
void streaming_add(const Floats& a, const Floats& b, Floats& out) {
    if (a.size() != out.size() || b.size() != out.size()) throw std::invalid_argument("a, b and out differ in size");
    registered.targets.front().second->f32.streaming_add(a.data(), b.data(), out.mutable_data(), out.size());
}

// Return NaN, which nothing accepts, for anything but a Python int.
double integer_of(PyObject* object) {
    if (!PyLong_CheckExact(object)) return kNaN;
    int overflow;  // not an exception: making one may start the garbage collector, which runs Python code
    const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
    return overflow ? kNaN : static_cast<double>(number);
}

// Read an argument. Arrays of other types than NumPy's own are declined, because they do not hold numbers.
Operand operand_of(PyObject* object) {
    if (Py_TYPE(object) == registered.array_type) return array_operand(object);
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

// Read the settings; false: declined.
bool read_settings(const Arguments& given, Call& call) {
    PyObject *const autoreset = given[kAutoreset], *const normalize = given[kNormalize];
    PyObject *const tail_normalized = given[kTailNormalized], *const carry_over = given[kCarryOver];
    call.time_axis = integer_of(given[kTimeAxis]);
    const double n = given[kN] == Py_None ? 0 : integer_of(given[kN]);
    call.n = n >= 1 ? static_cast<Index>(std::min(n, 1e15)) : 0;
    call.next_step = is_text(autoreset, "next_step");
    call.tail_normalized = tail_normalized == Py_True;
    call.carry_over = carry_over == Py_True;
    if (is_text(normalize, "global")) call.normalize = Normalize::all;
    if (is_text(normalize, "per_env")) call.normalize = Normalize::per_env;
    const bool known_mode =
        autoreset == Py_None || call.next_step || is_text(autoreset, "same_step") || is_text(autoreset, "disabled");
    return known_mode && (n == 0 || call.n) && (normalize == Py_None || call.normalize != Normalize::nothing) &&
           (tail_normalized == Py_False || tail_normalized == Py_True) &&
           (carry_over == Py_False || carry_over == Py_True);
}

// Read which two results to fill; false: declined.
bool read_out(PyObject* given, PyObject* (&out)[2]) {
    if (given == Py_None) {
        out[0] = out[1] = registered.new_output;
        return true;
    }
    if (!(PyTuple_CheckExact(given) || PyList_CheckExact(given)) || PySequence_Fast_GET_SIZE(given) != 2) return false;
    for (int i = 0; i < 2; ++i) out[i] = PySequence_Fast_GET_ITEM(given, i);
    return true;
}

// Count CPUs only for a large rollout, because counting takes longer than a small one. It runs Python code, so it comes
// before anything points into arrays.
Index threads_for(PyObject* rewards, Index num_threads) {
    if (num_threads != 0) return num_threads;
    return worth_threads(operand_of(rewards).elements()) ? index_from(py::handle(registered.usable_cpus)().ptr()) : 1;
}

// Run the kernels. Inputs of 16 bits are widened piece by piece if there is no memory to widen them as a whole.
template <class Real>
void run_kernels(const Call& call, const Target& target, ShortCut<Real>& short_cut,
                 const std::optional<RecycledBlock>& widened, Index num_threads) {
    RolloutWithOptions<Real>& rollout = short_cut.rollout();
    if constexpr (std::is_same_v<Real, float>) {
        const NarrowInputs& narrow = short_cut.narrow();
        if (narrow && !widened) return gae_in_pieces(target, narrow, rollout, num_threads);
        if (narrow) narrow.widen(target, {0, rollout.steps, 0, rollout.envs}, widened->data(), rollout);
    }
    call.n ? n_step_returns(rollout, call.n) : void(gae(target, rollout, num_threads));
}

// Operands point into arrays, so from reading them to the results nothing may run that could change an array: no Python
// code, and no garbage collector.
template <class Real>
py::object computed(const Call& call, PyObject* const (&out)[2], Index num_threads, const Target& target) {
    ShortCut<Real> short_cut(call);
    if (!short_cut.read()) return py::none();
    // For one result Python calls numpy.empty_like, which has an order of its own for broadcast rewards.
    if ((out[0] == Py_None || out[1] == Py_None) && short_cut.is_broadcast()) return py::none();
    py::object results[2];
    for (int i = 0; i < 2; ++i)
        results[i] = out[i] == registered.new_output
                         ? new_array(call[kRewards], sizeof(Real) == sizeof(float) ? registered.f32 : registered.f64,
                                     sizeof(Real), short_cut.fortran_ordered())
                         : py::reinterpret_borrow<py::object>(out[i]);
    if (!short_cut.read_outputs(operand_of(results[0].ptr()), operand_of(results[1].ptr()))) return py::none();
    std::optional<RecycledBlock> widened;
    if (const NarrowInputs& narrow = short_cut.narrow(); narrow && !in_pieces(target, call, short_cut.rollout()))
        widened.emplace(*recycling.memory, narrow.bytes(short_cut.rollout()));
    {
        const WithoutGil released;
        std::optional<Normalization<Real>> normalization;
        if (call.normalize != Normalize::nothing)
            normalization.emplace(short_cut.rollout(), call.normalize == Normalize::per_env);
        run_kernels(call, target, short_cut, widened, num_threads);
        if (normalization) normalization->run(target, registered.eps, num_threads);
    }
    // GAEResult(advantages, returns), as tuple.__new__ would make it.
    PyObject* const pair = registered.result_type->tp_alloc(registered.result_type, 2);
    if (!pair) throw py::error_already_set();
    for (int i = 0; i < 2; ++i) PyTuple_SET_ITEM(pair, i, results[i].release().ptr());
    return py::reinterpret_steal<py::object>(pair);
}

py::object short_cut(PyObject* arguments, PyObject* num_threads, PyObject* target) {
    if (!registered.result_type) throw std::logic_error("connect was not called");
    if (!PyTuple_Check(arguments)) throw py::type_error("call must be a tuple");
    const Target& chosen = choose(target);
    const Arguments given = {arguments, PyTuple_GET_SIZE(arguments)};
    if (given.count > kArguments) return py::none();
    const Index threads = threads_for(given[kRewards], index_from(num_threads));

    Call call;
    PyObject* out[2];
    if (!read_settings(given, call) || !read_out(given[kOut], out)) return py::none();
    for (Index i = 0; i < given.count; ++i)
        if (PyObject* const object = PyTuple_GET_ITEM(arguments, i); object != Py_None && !is_setting(Argument(i)))
            call.operands[i] = operand_of(object);
    std::optional<Packed> packed;
    if (call[kCuSeqlens].given && !packed.emplace(call, *recycling.memory).unpack()) return py::none();
    const Type type = working_type(call);
    if (type == Type::other) return py::none();
    return (type == Type::f32 ? computed<float> : computed<double>)(call, out, threads, chosen);
}

// A function that Python calls directly, because pybind11's dispatcher would cost as much as the kernel on a small
// rollout.
PyObject* short_cut_called(PyObject*, PyObject* const* given, Py_ssize_t count) {
    try {
        if (count == 3) return short_cut(given[0], given[1], given[2]).release().ptr();
        PyErr_Format(PyExc_TypeError, "short_cut takes 3 arguments, got %zd", count);
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

PyMethodDef raw_functions[] = {
    {"short_cut", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(short_cut_called)), METH_FASTCALL,
     "short_cut($module, call, num_threads, target, /)\n--\n\n"
     "Return the result of a call, or None where the call must be checked and converted first."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace
}  // namespace fastgae

PYBIND11_MODULE(_core, module, py::mod_gil_not_used()) {
    using namespace fastgae;
    module.doc() = "The compiled kernels of fastgae. Internal: call fastgae.gae.";
    register_types();
    define_recycling(module);
    using Names = std::vector<std::string>;
    Names arguments(std::begin(kArgumentNames), std::end(kArgumentNames)), compiled_targets;
    arguments.insert(arguments.end(), std::begin(kConstantNames), std::end(kConstantNames));
    for (const Target* const* target = targets; *target; ++target) compiled_targets.push_back((*target)->name);
    module.attr("compiler") = kCompiler;
    module.attr("arguments") = py::tuple(py::cast(arguments));
    module.attr("rollout_fields") = py::tuple(py::cast(Names(std::begin(kFieldNames), std::end(kFieldNames))));
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
    module.def("gae", gae_of_fields,
               "Fill advantages and returns of a Rollout. Return how many steps of long trajectories were redone.",
               py::arg("rollout"), py::arg("num_threads"), py::arg("target"));
    module.def("block_sums", block_sums_of, "Return float64 sums, (blocks, N), of existing steps or of (x - center)^2.",
               py::arg("matrix"), py::arg("mask"), py::arg("center"), py::arg("num_threads"), py::arg("target"));
    module.def("rescale", rescale_of, "Set x = (x - center) scale, in place.", py::arg("matrix"), py::arg("mask"),
               py::arg("center").none(false), py::arg("scale").none(false), py::arg("num_threads"), py::arg("target"));
    module.def(
        "exact_sums", exact_sums_of,
        "Return int64 digits, (exponents, digits), of the exact sums, and the counts of numbers, NaN and infinities.",
        py::arg("matrix"), py::arg("mask"));
    module.def("streaming_add", streaming_add, "Set out = a + b by streaming stores, for benchmarks.",
               py::arg("a").noconvert(), py::arg("b").noconvert(), py::arg("out").noconvert());
    if (PyModule_AddFunctions(module.ptr(), raw_functions) != 0) throw py::error_already_set();
}
