// The border to Python: arrays -> views, drop the GIL, call. It and new_arrays.hpp are all that includes pybind11.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <iterator>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "call_reader.hpp"
#include "compiler.hpp"
#include "exact_sums.hpp"
#include "kernels.hpp"
#include "n_step_returns.hpp"
#include "narrow.hpp"
#include "new_arrays.hpp"
#include "normalize.hpp"
#include "packed.hpp"
#include "parallel.hpp"
#include "xla.hpp"

namespace py = pybind11;

namespace fastgae {
namespace {

// Until Python 3.14, a thread that wants the GIL while the interpreter exits is ended: its stack is unwound, and the
// process aborts if the unwinding meets a destructor that must not throw, such as py::gil_scoped_release's. Where the
// unwinding is caught, the thread waits for the end of the process, as in Python 3.14.
[[noreturn]] void wait_for_the_end() {
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

// How many steps of long trajectories the last call of this thread computed again.
thread_local Index redone = 0;

// A matrix of a call of moments: an array that _canonical has made, which may be of a subclass.
Operand canonical_array(const py::handle& object) {
    if (py::isinstance<py::array>(object)) return array_operand(object.ptr());
    Operand result;
    result.given = !object.is_none();
    return result;
}

// Throw unless an array that _canonical has made is as promised, because a broken promise would be memory corruption.
void require(bool right, const char* name) {
    if (!right) throw std::invalid_argument(std::string(name) + " is read-only, or has another dtype, shape or layout");
}

// Return a stride in elements, and 1 for an axis of one element, whose stride no kernel uses.
Index stride_of(const Operand& array, Index axis) {
    return array.shape[axis] == 1 ? 1 : array.strides[axis] / bytes_of(array.type);
}

// Return the view of a matrix, which must lie as `like` does.
template <class Element, class Like>
View<Element> matrix_of(const Operand& array, const Moments<Like>& like, const char* name) {
    require(array.rank == 2 && array.type == type_of<std::remove_const_t<Element>> && array.shape[0] == like.steps &&
                array.shape[1] == like.envs && (std::is_const_v<Element> || array.writeable),
            name);
    const View<Element> view = {reinterpret_cast<Element*>(array.data), stride_of(array, 0), stride_of(array, 1)};
    require((like.env_major ? view.step : view.env) == 1 || (like.env_major ? like.steps : like.envs) < 2, name);
    return view;
}

// Return one number per env; null if there are none.
const double* row_of(const Operand& array, Index envs, const char* name) {
    if (!array.given) return nullptr;
    require(array.rank == 1 && array.type == Type::f64 && array.shape[0] == envs && stride_of(array, 0) == 1, name);
    return reinterpret_cast<const double*>(array.data);
}

// Return the views of a matrix to add up or to rescale, of its mask, and of its centers and scales per env.
template <class Element>
Moments<Element> moments_of(const Operand& matrix, const Operand& mask, const Operand& center, const Operand& scale) {
    require(matrix.rank == 2, "matrix");
    Moments<Element> moments;
    moments.steps = matrix.shape[0];
    moments.envs = matrix.shape[1];
    moments.env_major = moments.envs == 1 || stride_of(matrix, 1) != 1;
    moments.matrix = matrix_of<Element>(matrix, moments, "matrix");
    if (mask.given) moments.mask = matrix_of<const std::uint8_t>(mask, moments, "mask");
    moments.center = row_of(center, moments.envs, "center");
    moments.scale = row_of(scale, moments.envs, "scale");
    return moments;
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
    if (numbers.type == Type::f32) return sums_of(moments_of<const float>(numbers, exists, centers, {}));
    return sums_of(moments_of<const double>(numbers, exists, centers, {}));
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
        run(moments_of<float>(numbers, exists, centers, scales));
    else
        run(moments_of<double>(numbers, exists, centers, scales));
}

template <class Real>
py::tuple exact_sums_of_type(const Operand& matrix, const Operand& mask) {
    const auto numbers = moments_of<const Real>(matrix, mask, {}, {});
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

// Read an argument. Arrays of other types than NumPy's own are declined, because they may not hold numbers, unless
// _canonical has checked them.
Operand operand_of(PyObject* object, bool checked = false) {
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

// Read the settings; false: declined.
bool read_settings(const Arguments& given, Call& call) {
    PyObject *const autoreset = given[kAutoreset], *const normalize = given[kNormalize];
    PyObject *const tail_normalized = given[kTailNormalized], *const carry_over = given[kCarryOver];
    call.time_axis = integer_of(given[kTimeAxis]);
    const double n = given[kN] == Py_None ? 1 : integer_of(given[kN]);
    call.n = n >= 1 ? static_cast<Index>(std::min(n, 1e15)) : 0;
    call.next_step = is_text(autoreset, "next_step");
    call.tail_normalized = tail_normalized == Py_True;
    call.carry_over = carry_over == Py_True;
    if (is_text(normalize, "global")) call.normalize = Normalize::all;
    if (is_text(normalize, "per_env")) call.normalize = Normalize::per_env;
    const bool known_mode =
        autoreset == Py_None || call.next_step || is_text(autoreset, "same_step") || is_text(autoreset, "disabled");
    return known_mode && call.n && read_recursion(given[kRecursion], call.recursion) &&
           (normalize == Py_None || call.normalize != Normalize::nothing) &&
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
void run_kernels(const Call& call, const Target& target, CallReader<Real>& reader,
                 const std::optional<RecycledBlock>& widened, Index num_threads) {
    Rollout<Real>& rollout = reader.rollout();
    reader.reduce();
    if constexpr (std::is_same_v<Real, float>) {
        const NarrowInputs& narrow = reader.narrow();
        if (narrow && !widened) return gae_in_pieces(target, narrow, rollout, num_threads);
        if (narrow) narrow.widen(target, {0, rollout.steps, 0, rollout.envs}, widened->data(), rollout);
    }
    if (call.recursion == Recursion::n_step_returns) return n_step_returns(rollout, call.n);
    redone = gae(target, rollout, num_threads);
}

// Fill the results of a call that has been read; false: declined, and nothing is written. Needs no Python.
template <class Real>
bool fill(const Call& call, CallReader<Real>& reader, const Operand& advantages, const Operand& returns,
          Index num_threads, const Target& target) {
    if (!reader.read_outputs(advantages, returns)) return false;
    std::optional<RecycledBlock> widened;
    if (const NarrowInputs& narrow = reader.narrow(); narrow && !in_pieces(target, call, reader.rollout()))
        widened.emplace(*recycling.memory, narrow.bytes(reader.rollout()));
    std::optional<Normalization<Real>> normalization;
    if (call.normalize != Normalize::nothing)
        normalization.emplace(reader.rollout(), call.normalize == Normalize::per_env);
    run_kernels(call, target, reader, widened, num_threads);
    if (normalization) normalization->run(target, registered.eps, num_threads);
    return true;
}

// Operands point into arrays, so from reading them to the results nothing may run that could change an array: no Python
// code, and no garbage collector.
template <class Real>
py::object computed(const Call& call, PyObject* const (&out)[2], Index num_threads, const Target& target) {
    CallReader<Real> reader(call);
    if (!reader.read()) return py::none();
    // New results lie as numpy.empty_like puts them, which has an order of its own for broadcast rewards.
    const bool any_new = out[0] == registered.new_output || out[1] == registered.new_output;
    if (any_new && reader.is_broadcast()) return py::none();
    py::object results[2];
    for (int i = 0; i < 2; ++i)
        results[i] = out[i] == registered.new_output
                         ? new_array(call[kRewards], sizeof(Real) == sizeof(float) ? registered.f32 : registered.f64,
                                     sizeof(Real), reader.fortran_ordered())
                         : py::reinterpret_borrow<py::object>(out[i]);
    const Operand advantages = operand_of(results[0].ptr(), call.checked);
    const Operand returns = operand_of(results[1].ptr(), call.checked);
    bool filled;
    {
        const WithoutGil released;
        filled = fill(call, reader, advantages, returns, num_threads, target);
    }
    if (!filled) return py::none();
    // GAEResult(advantages, returns), as tuple.__new__ would make it.
    PyObject* const pair = registered.result_type->tp_alloc(registered.result_type, 2);
    if (!pair) throw py::error_already_set();
    for (int i = 0; i < 2; ++i) PyTuple_SET_ITEM(pair, i, results[i].release().ptr());
    return py::reinterpret_steal<py::object>(pair);
}

// A call of the short cut on this thread that may become a recorded one. Its arrays are known by their objects.
struct Recording {
    std::vector<PyObject*> inputs, outputs;
    Call call;
    Index calls = 0;
    std::optional<xla::Recorded> recorded;
};

thread_local Recording* recording = nullptr;
std::atomic<int> recordings{0};  // of all threads; to look at it takes less time than to find a thread's own variable

Index place_of(const std::vector<PyObject*>& objects, PyObject* object) {
    const auto found = std::find(objects.begin(), objects.end(), object);
    return found == objects.end() ? -1 : found - objects.begin();
}

// Record a call, unless it reads or fills other arrays than those of the recording.
void record(const Arguments& given, PyObject* const (&out)[2], Index num_threads, const Target& target) {
    recording->recorded.reset();
    if (++recording->calls != 1) return;
    xla::Recorded recorded;
    recorded.call = recording->call;
    recorded.target = &target;
    recorded.inputs.resize(recording->inputs.size(), {kArguments, 0});
    for (Index i = 0; i < given.count; ++i) {
        PyObject* const object = given[Argument(i)];
        if (is_setting(Argument(i)) || !py::isinstance<py::array>(object)) continue;
        const Index place = place_of(recording->inputs, object);
        if (place < 0 || recorded.inputs[place].first != kArguments) return;
        recorded.inputs[place] = {Argument(i), py::detail::array_proxy(object)->nd};
        recorded.call.operands[i] = Operand();
    }
    for (const auto& input : recorded.inputs)
        if (input.first == kArguments) return;
    for (int i = 0; i < 2; ++i)
        if (out[i] != Py_None && (recorded.outputs[i] = place_of(recording->outputs, out[i])) < 0) return;
    recorded.threads = std::max<Index>(num_threads, 1);
    recorded.large_threads = num_threads ? num_threads : index_from(py::handle(registered.usable_cpus)().ptr());
    recording->recorded = recorded;
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
    if (!read_settings(given, call) || !read_out(given[kOut], out)) return py::none();
    for (Index i = 0; i < given.count; ++i)
        if (PyObject* const object = PyTuple_GET_ITEM(arguments, i); object != Py_None && !is_setting(Argument(i))) {
            call.operands[i] = operand_of(object, checked);
            read_number(Argument(i), call.operands[i]);
        }
    const bool recorded = recordings && recording && !checked;
    if (recorded) recording->call = call;  // before it is unpacked
    std::optional<Packed> packed;
    if (call[kCuSeqlens].given && !packed.emplace(call, *recycling.memory).unpack()) return py::none();
    const Type type = working_type(call);
    if (type == Type::other) return py::none();
    py::object result = (type == Type::f32 ? computed<float> : computed<double>)(call, out, threads, chosen);
    if (recorded && !result.is_none()) record(given, out, index_from(num_threads), chosen);
    return result;
}

xla::Records& records = *new xla::Records();
PyObject* without_a_record = nullptr;  // computes a call that no record fits, and may record it
int xla_minor = 0;

// Make a call while its short cut is recorded, and keep the record under a key.
void record_call(const std::string& key, const py::tuple& inputs, const py::tuple& outputs, const py::function& call) {
    Recording here;
    for (const auto& each : inputs) here.inputs.push_back(each.ptr());
    for (const auto& each : outputs) here.outputs.push_back(each.ptr());
    struct Scope {
        explicit Scope(Recording* here) { recording = here, ++recordings; }
        ~Scope() { recording = nullptr, --recordings; }
    } const scope(&here);
    call();
    if (here.recorded) records.add(key, *here.recorded);
}

// Compute a call from a compiled program by its record; false: declined.
template <class Real>
bool compute_recorded(const Call& call, const Operand& advantages, const Operand& returns, Index num_threads,
                      const Target& target) {
    CallReader<Real> reader(call);
    return reader.read() && fill(call, reader, advantages, returns, num_threads, target);
}

bool computed_without_python(const xla::Frame& frame, const xla::Recorded& recorded) {
    const xla::Batch batch(frame, recorded);
    if (!batch.fits()) return false;
    xla::Strides strides[kArguments + 2];
    const Index calls = batch.calls();
    for (Index number = 0; number < calls; ++number) {
        Call call = recorded.call;
        Operand results[2];
        for (std::size_t i = 0; i < recorded.inputs.size(); ++i) {
            const Argument place = recorded.inputs[i].first;
            call.operands[place] = batch.argument(i, number, strides[i]);
            read_number(place, call.operands[place]);
        }
        for (int i = 0; i < 2; ++i)
            if (const Index place = recorded.outputs[i]; place >= 0)
                results[i] = batch.result(*frame.results.items[place], number, strides[recorded.inputs.size() + i]);
        const Index threads = worth_threads(call[kRewards].elements()) ? recorded.large_threads : recorded.threads;
        std::optional<Packed> packed;
        if (call[kCuSeqlens].given && !packed.emplace(call, *recycling.memory).unpack()) return false;
        const Type type = working_type(call);
        if (type == Type::other ||
            !(type == Type::f32 ? compute_recorded<float> : compute_recorded<double>)(call, results[0], results[1],
                                                                                      threads, *recorded.target))
            return false;
    }
    return true;
}

py::list described(const xla::Buffers& buffers) {
    py::list result;
    for (std::int64_t i = 0; i < buffers.size; ++i) {
        const xla::Buffer& buffer = *buffers.items[i];
        py::tuple shape(buffer.rank);
        for (std::int64_t axis = 0; axis < buffer.rank; ++axis) shape[axis] = buffer.shape[axis];
        result.append(py::make_tuple(reinterpret_cast<std::uintptr_t>(buffer.data), buffer.dtype, shape));
    }
    return result;
}

// What XLA calls. It returns null, or an error that XLA owns.
void* handle(xla::Frame* frame) noexcept {
    if (xla::say_version(*frame, xla_minor)) return nullptr;
    if (frame->stage != xla::kExecute) return nullptr;
    try {
        if (frame->struct_size < sizeof(xla::Frame)) throw std::runtime_error("this XLA is too old for fastgae");
        const std::optional<std::string_view> key = xla::key_of(*frame);
        if (!key) throw std::runtime_error("the attribute `call` is missing");
        const xla::Recorded* const recorded = records.find(*key);
        if (recorded && computed_without_python(*frame, *recorded)) return nullptr;
        const py::gil_scoped_acquire acquired;
        try {
            py::reinterpret_borrow<py::object>(without_a_record)(std::string(*key), described(frame->arguments),
                                                                 described(frame->results));
            return nullptr;
        } catch (py::error_already_set& error) {
            return xla::error(*frame, py::str(error.value()), xla::kInvalidArgument);
        }
    } catch (const std::bad_alloc&) {
        return xla::error(*frame, "out of memory", xla::kResourceExhausted);
    } catch (const std::exception& error) {
        return xla::error(*frame, error.what(), xla::kInvalidArgument);
    } catch (...) {  // the interpreter exits, and this thread wanted the GIL
        wait_for_the_end();
    }
}

// Return the handler for jax.ffi.register_ffi_target.
py::capsule xla_handler(int minor, const py::function& fallback) {
    xla_minor = minor;
    without_a_record = fallback.inc_ref().ptr();
    return py::capsule(reinterpret_cast<void*>(handle));
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
    module.def("streaming_add", streaming_add, "Set out = a + b by streaming stores, for benchmarks.",
               py::arg("a").noconvert(), py::arg("b").noconvert(), py::arg("out").noconvert());
    module.def("record_call", record_call, "Make a call of the short cut, and keep it for compiled programs.",
               py::arg("key"), py::arg("inputs"), py::arg("outputs"), py::arg("call"));
    module.def("xla_handler", xla_handler, "Return what XLA calls from compiled programs.", py::arg("minor"),
               py::arg("fallback"));
    if (PyModule_AddFunctions(module.ptr(), raw_functions) != 0) throw py::error_already_set();
}
