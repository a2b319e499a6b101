// Calls from programs that XLA has compiled: how one is recorded, and what XLA calls.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.hpp"
#include "arithmetic.hpp"
#include "new_arrays.hpp"
#include "python.hpp"
#include "recorded.hpp"
#include "xla.hpp"

namespace fastgae {

// A call of the short cut on this thread that may become a recorded one. Its arrays are known by their objects.
struct Recording {
    std::vector<PyObject*> inputs, outputs;
    Call call;
    Index calls = 0;
    std::optional<xla::Recorded> recorded;
};

inline thread_local Recording* recording = nullptr;
// Of all threads. To look at it takes less time than to find a thread's own variable.
inline std::atomic<int> recordings{0};

inline Index place_of(const std::vector<PyObject*>& objects, PyObject* object) {
    const auto found = std::find(objects.begin(), objects.end(), object);
    return found == objects.end() ? -1 : found - objects.begin();
}

// Record a call, unless it reads or fills other arrays than those of the recording.
inline void record(const Arguments& given, PyObject* const (&out)[2], Index num_threads, const Target& target) {
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

inline xla::Records& records = *new xla::Records();
inline PyObject* without_a_record = nullptr;  // computes a call that no record fits, and may record it
inline int xla_minor = 0;

// Make a call while its short cut is recorded, and keep the record under a key.
inline void record_call(const std::string& key, const py::tuple& inputs, const py::tuple& outputs,
                        const py::function& call) {
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

inline py::list described(const xla::Buffers& buffers) {
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
inline void* handle(xla::Frame* frame) noexcept {
    if (xla::say_version(*frame, xla_minor)) return nullptr;
    if (frame->stage != xla::kExecute) return nullptr;
    const IeeeArithmetic here;
    try {
        if (frame->struct_size < sizeof(xla::Frame)) throw std::runtime_error("this XLA is too old for fastgae");
        const std::optional<std::string_view> key = xla::key_of(*frame);
        if (!key) throw std::runtime_error("the attribute `call` is missing");
        const xla::Recorded* const recorded = records.find(*key);
        if (recorded && xla::compute(*frame, *recorded, recycled_memory)) return nullptr;
        const py::gil_scoped_acquire acquired;
        try {
            py::reinterpret_borrow<py::object>(without_a_record)(std::string(*key), described(frame->arguments),
                                                                 described(frame->results));
            return nullptr;
        } catch (py::error_already_set& error) {
            const std::string message = py::str(error.value());
            // XLA's error must not take the place of Ctrl-C, so let it come again, to the main thread.
            if (error.matches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();
            return xla::error(*frame, message, xla::kInvalidArgument);
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
inline py::capsule xla_handler(int minor, const py::function& fallback) {
    xla_minor = minor;
    without_a_record = fallback.inc_ref().ptr();
    return py::capsule(reinterpret_cast<void*>(handle));
}

}  // namespace fastgae
