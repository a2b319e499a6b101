// What the kernels take and which of them exist. Nothing here or below knows Python.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace fastgae {

using Index = std::ptrdiff_t;

// A (T, N) view; strides in elements, of any sign.
template <class Element>
struct View {
    Element* data = nullptr;
    Index step = 0;  // from t to t + 1
    Index env = 0;   // from one env to the next
    explicit operator bool() const { return data != nullptr; }
    Element* at(Index t, Index n) const { return data + t * step + n * env; }
};

// Final values that are given one by one, sorted as they lie in memory: a row is a step in time-major, an env in env-major.
template <class Real>
struct SparseFinals {
    const Index* starts = nullptr;  // of the rows, and the end, in the two arrays below
    const Index* columns = nullptr;
    const Real* values = nullptr;
    explicit operator bool() const { return starts != nullptr; }

    // Those of the columns [first, last) of a row, to where they belong among as many numbers.
    void scatter(Index row, Index first, Index last, Real* to) const {
        const Index* const end = columns + starts[row + 1];
        for (const Index* at = std::lower_bound(columns + starts[row], end, first); at < end && *at < last; ++at)
            to[*at - first] = values[at - columns];
    }
};

template <class Real>
struct Rollout {
    Index steps = 0, envs = 0;
    bool env_major = false;  // step strides are 1; otherwise env strides are 1
    View<const Real> rewards, values;
    View<const Real> next_values;                    // V' of all steps but the last
    View<const Real> last_values;                    // V' of the last step: one row
    View<const Real> final_values;                   // optional: V' where truncated,
    SparseFinals<Real> sparse_finals;                // or these in its place
    View<const std::uint8_t> terminated, truncated;  // truncated: optional
    Real gamma{}, gamma_lambda{};
    View<Real> advantages, returns;                  // either may be missing
};

// The numbers that the step with options reads: V-trace clips importance ratios to them in deltas, in traces and in its
// advantages.
enum Constant { kRhoClip, kCClip, kAdvantageClip, kConstants };
constexpr const char* kConstantNames[kConstants] = {"rho_clip", "c_clip", "advantage_clip"};

// A rollout with options. Its coefficients are views in place of the numbers of Rollout: without strides where they are
// numbers after all, and with a stride of 1 or 0 where other views have 1.
template <class Real>
struct General : Rollout<Real> {
    View<const Real> gammas, gamma_lambdas;
    View<const Real> returns_gamma_lambdas;  // optional: of a second recursion, for returns
    View<const Real> tail_lambdas;           // optional: tail-normalized
    View<const std::uint8_t> mask;           // optional: the steps that exist
    bool mask_passes_values = false;         // V' of a step before skipped ones is V of the next that exists
    View<const Real> last_advantages;        // optional: A_T, one row
    View<const Real> ratios;                 // optional: V-trace,
    Real constants[kConstants]{};            // with these

    // Whether nothing is given of what is optional here, and the coefficients are numbers.
    bool is_plain() const {
        const auto number = [](const View<const Real>& view) { return view.step == 0 && view.env == 0; };
        return number(gammas) && number(gamma_lambdas) &&
               !(returns_gamma_lambdas || tail_lambdas || mask || last_advantages || ratios);
    }
};

template <class Real>
using RolloutWithOptions = General<Real>;

// What the recursion with options takes from one step to the one before it: V', A (or, tail-normalized, G), D, and A of the
// second recursion.
enum State { kNextValue, kTrace, kStepsLeft, kReturnsTrace, kStates };

// Steps whose sum is one number: part of what is computed, and the same as in the contract of the backends.
constexpr Index kMomentSteps = 128;

// What is normalized: T x N numbers, the steps that exist, and a number of each env.
template <class Element>
struct Moments {
    Index steps = 0, envs = 0;
    bool env_major = false;
    View<Element> matrix;
    View<const std::uint8_t> mask;    // optional
    const double* center = nullptr;  // optional for sums
    const double* scale = nullptr;   // for rescaling only
};

// Steps are cut at multiples of this, and no target runs more lanes at once than that.
constexpr Index kBlockSteps = 16;
constexpr Index kMaxLanes = 32;

// One recursion that runs beside others: steps of one env, counted from origin. Past the end of the rollout A is 0.
struct Lane {
    Index env, origin;
};

enum class Store { nothing, cached, streamed };

// The kernels compiled for one CPU target and one type.
template <class Real>
struct Kernels {
    // Lanes that one call of `lanes` runs at most.
    Index width;
    // Scratch per thread, in numbers, of `lanes` and of the kernels for options. Kernels allocate nothing.
    Index lanes_scratch, general_scratch;
    // Time-major: all steps of the envs [first, last). carry: one number per env of the span; finals: as many, where the
    // final values are sparse.
    void (*rows)(const Rollout<Real>&, Index first, Index last, Real* carry, Real* finals, Store);
    // Env-major: the steps [bottom, top) of up to `width` lanes, from A_top in carry to A_bottom in carry.
    // bottom and top are multiples of kBlockSteps; carry and scratch are aligned to 64 bytes, and carry has room for
    // `width` lanes.
    void (*lanes)(const Rollout<Real>&, const Lane* lanes, Index count, Index bottom, Index top, Real* carry,
                  Real* scratch, Store);
    // The same with options. states: kStates rows of one number per env of the rollout, from that of `first` on, or of
    // kMaxLanes numbers. An origin may be negative: there is nothing before 0.
    void (*general_rows)(const General<Real>&, Index first, Index last, Real* states, Real* scratch, Store);
    void (*general_lanes)(const General<Real>&, const Lane* lanes, Index count, Index bottom, Index top, Real* states,
                          Real* scratch, Store);
    // Sums of kMomentSteps steps to (blocks, N) numbers, and x = (x - center) scale. Of the envs [first, last), or, where
    // env-major, of the blocks, counted from 0.
    void (*block_sums)(const Moments<const Real>&, Index first, Index last, double* sums);
    void (*rescale)(const Moments<Real>&, Index first, Index last);
    // After the last of them in a thread: what was streamed is there for all to see.
    void (*finish)(Store);
};

struct Target {
    const char* name;
    bool (*supported)();
    Kernels<float> f32;
    Kernels<double> f64;
};

inline const Kernels<float>& kernels(const Target& target, float) { return target.f32; }
inline const Kernels<double>& kernels(const Target& target, double) { return target.f64; }

// All targets of this build, best first, closed by a null pointer. The last one runs everywhere.
extern const Target* const targets[];

}  // namespace fastgae
