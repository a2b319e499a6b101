// The views that kernels read and write, and the table of kernels that every CPU target fills.
// Neither this file nor anything that it includes needs Python.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastgae {

using Index = std::ptrdiff_t;

// Return how many elements lie between a pointer and the next start of a cache line.
template <class Real>
Index to_line(const Real* pointer) {
    return -reinterpret_cast<std::uintptr_t>(pointer) % 64 / sizeof(Real);
}

// A (T, N) matrix in someone else's memory. Strides count elements and may be negative or 0. The strides of a missing
// matrix are 0, so that a pointer which walks along it stays null.
template <class Element>
struct View {
    Element* data = nullptr;
    Index step = 0;  // the distance from step t to t + 1
    Index env = 0;   // the distance from env n to n + 1
    explicit operator bool() const { return data != nullptr; }
    Element* at(Index t, Index n) const { return data + t * step + n * env; }
};

// Numbers of a whole call that the step reads, in the order of CONSTANTS in fastgae/_call.py.
enum Constant { kRhoClip, kCClip, kAdvantageClip, kLeaky, kConstants };

// The recursions that kernels compute; none: the advantages are the rewards, which are only normalized.
enum class Recursion { gae, n_step_returns, retrace, upgo, tree, none };

// A rollout with its options and its results. Coefficients are views: the view of one number for all steps has two
// strides of 0. Along the axis where other views have stride 1, a coefficient has stride 1 or 0.
template <class Real>
struct CanonicalRollout {
    Recursion recursion = Recursion::gae;
    Index steps = 0, envs = 0;
    bool env_major = false;  // true: every step stride is 1; false: every env stride is 1
    View<const Real> rewards, values;
    View<const Real> next_values;                    // V' of the steps 0 ... T - 2
    View<const Real> last_values;                    // V' of step T - 1: one row
    View<const Real> final_values;                   // optional: V' of truncated steps
    View<const std::uint8_t> terminated, truncated;  // truncated is optional
    View<const Real> gammas, gamma_lambdas;
    View<const Real> returns_gamma_lambdas;  // optional: the decay of a second recursion, which computes the returns
    View<const Real> tail_lambdas;           // optional: lambda of the tail-normalized estimator
    View<const Real> ratios;                 // optional: importance ratios, of V-trace and Retrace
    View<const double> wide_gammas, wide_lambdas;  // of Retrace, which rounds later
    Real constants[kConstants]{};                  // one number for each Constant
    View<const Real> last_advantages;              // optional: A_T, one row
    View<const std::uint8_t> mask;                 // optional: true where the step exists
    bool mask_passes_values = false;               // true: V' of a step is V of the next step that exists
    bool carry_over = false;                       // true: a step that does not exist gets A of the next one that does
    View<Real> advantages, returns;                // the results; one of the two may be missing

    bool is_vtrace() const { return ratios && recursion == Recursion::gae; }

    // Return whether gamma and gamma lambda are one number each.
    bool has_numbers() const { return !(gammas.step || gammas.env || gamma_lambdas.step || gamma_lambdas.env); }

    // Return whether an option changes the step. last_advantages does not.
    bool has_options() const { return mask || has_options_but_mask(); }
    bool has_options_but_mask() const {
        return recursion != Recursion::gae || !has_numbers() || ratios || returns_gamma_lambdas || tail_lambdas;
    }
};

// Return whether one row of flags of termination stands for all.
template <class Real>
bool repeats_terminated(const CanonicalRollout<Real>& rollout) {
    return rollout.env_major ? rollout.envs > 1 && !rollout.terminated.env : !rollout.terminated.step;
}

// Return whether every matrix of a rollout is one contiguous array; `but_terminated`: every other matrix.
template <class Real>
bool is_dense(const CanonicalRollout<Real>& rollout, bool but_terminated = false) {
    const bool env_major = rollout.env_major;
    if (env_major && rollout.envs == 1) return true;
    const Index length = env_major ? rollout.steps : rollout.envs;
    const auto dense = [&](const auto& view) { return !view || (env_major ? view.env : view.step) == length; };
    return dense(rollout.rewards) && dense(rollout.values) && dense(rollout.next_values) &&
           dense(rollout.final_values) && (but_terminated || dense(rollout.terminated)) && dense(rollout.truncated) &&
           dense(rollout.mask) && dense(rollout.advantages) && dense(rollout.returns);
}

// Return whether V' of a step is read elsewhere than from the values of the next step.
template <class Real>
bool has_own_next_values(const CanonicalRollout<Real>& rollout) {
    return rollout.next_values.data != rollout.values.at(1, 0);
}

// Return how many elements lie between a step and the next one, in a dense rollout.
template <class Real>
Index flat_distance(const CanonicalRollout<Real>& rollout) {
    return rollout.env_major ? 1 : rollout.envs;
}

// Return how many states follow an element of a flat array: an advantage for each element up to the next step; with a
// mask, also the V' that the step after the element passes on if it does not exist, or else 0.
template <class Real>
Index flat_states(const CanonicalRollout<Real>& rollout) {
    return flat_distance(rollout) + bool(rollout.mask);
}

// The numbers that a recursion carries from step t + 1 to step t. step.inl has the equations.
enum State {
    kTrace,         // A; or G of the tail-normalized estimator
    kNextValue,     // V of the next step that exists
    kStepsLeft,     // D of the tail-normalized estimator
    kReturnsTrace,  // A of the second recursion
    kRises,         // 1 if upgo's delta of the next step that exists is at least 0, else 0
    kStates
};

// Return how many states a recursion carries: without options A alone.
template <class Real>
Index states_of(const CanonicalRollout<Real>& rollout) {
    return rollout.has_options() ? kStates : 1;
}

// The rows of scratch memory with which a time-major sweep computes options.
constexpr Index kScratchRows = 5;

// Moments are sums of blocks of this many steps. Rounding depends on the number, so all backends use the same one.
constexpr Index kMomentSteps = 128;

// A matrix whose steps may be masked, to add up or to rescale. The kernels that sum it read center unless it is null;
// the kernel that rescales it reads both center and scale, and writes to `rescaled`, which may be the matrix itself.
template <class Real>
struct MaskedMatrix {
    Index steps = 0, envs = 0;
    bool env_major = false;
    View<const Real> matrix;
    View<const std::uint8_t> mask;   // optional: true where the step exists
    const double* center = nullptr;  // one number per env
    const double* scale = nullptr;   // one number per env
    Index varies = -1;               // 0: all envs have the same center and scale, of which there is a vector
    View<Real> rescaled = {};

    // Return the address of the number of env n, behind which those of the next envs lie.
    const double* in_env(const double* numbers, Index n) const { return numbers + (n & varies); }
};

// Env-major rollouts are cut at multiples of kBlockSteps.
constexpr Index kBlockSteps = 16;
// No target runs more lanes at once, because fewer lanes mean longer runs along each env. AVX-512 on Zen 5, advantages:
// 1024 x 4096 from memory in 3.0 ms with 32 lanes x 512 steps, 2.2 with 16 x 1024; 1008 x 128 in cache in 43.3 and 39.5
// us.
constexpr Index kMaxLanes = 16;

// The most envs of a time-major rollout that is computed as one flat array, as env-major ones of any size are.
constexpr Index kFlatDistance = 8;
static_assert(kFlatDistance >= 2, "there is room for the states of a rollout with a mask");

// A run of steps of one env. Its recursion runs at the same time as the recursions of other lanes. Its step 0 is the
// step `origin` of the env. A lane ends with the rollout or before it, but it may begin before step 0.
struct Lane {
    Index env, origin;
};

class Prefetching;

// How results are written: not at all, with ordinary stores, or with streaming stores, which bypass the caches.
enum class Store { nothing, cached, streamed };

// The kernels of one CPU target and one type. They allocate nothing and throw nothing. `states` has a row for each
// state of the rollout, `stride` numbers apart: those that follow the steps before the call, and those of the first
// step after it.
template <class Real>
struct Kernels {
    // How many numbers a vector has.
    Index vector;
    // How many lanes make full use of the CPU, as does any multiple of it in one call of `lanes`.
    Index width;
    // How many numbers of scratch memory each thread needs for `lanes`, without options and with them.
    Index lanes_scratch, options_scratch;
    // Time-major: compute all steps of the envs [first, last). A row of `states` has room for a cache line more than
    // there are envs, and so has each of the rows of `scratch`, kScratchRows if there are options. `prefetching` is
    // read where results are streamed.
    // Where a row has fewer than two vectors, the states after the call are undefined.
    void (*rows)(const CanonicalRollout<Real>&, Index first, Index last, Real* states, Index stride, Real* scratch,
                 Store, Prefetching& prefetching);
    // Env-major: compute the steps [bottom, top) of `count` lanes. Both limits are multiples of kBlockSteps. `states`
    // and `scratch` are aligned to 64 bytes, and a row of `states` has room for a multiple of `width` numbers.
    void (*lanes)(const CanonicalRollout<Real>&, const Lane* lanes, Index count, Index bottom, Index top, Real* states,
                  Index stride, Real* scratch, Store, Prefetching& prefetching);
    // A rollout for which is_flat is true: compute the elements [bottom, top) of `flat_lanes` runs. Run i begins at
    // element first + i * stride of the memory. `carry` is a (flat_states, flat_lanes) matrix with the states that
    // follow the elements before the call, and those of the first elements after it. No run may reach the last row of a
    // time-major rollout, or the last step of the last env. The limits are multiples of a cache line, and streamed
    // results begin at one. `prefetching` is read as in `rows`.
    Index flat_lanes;
    void (*flat)(const CanonicalRollout<Real>&, Index first, Index stride, Index bottom, Index top, Real* carry, Store,
                 Prefetching& prefetching);
    // Fill the returns of the envs [first, last) with those of n steps, at most as many as the rollout has.
    void (*n_step_returns)(const CanonicalRollout<Real>&, Index n, Index first, Index last);
    // Write the sum of every kMomentSteps steps of an env to `sums`, a (blocks, N) matrix; and x = (x - center) scale.
    // Both take the envs [first, last) of a time-major matrix, or the blocks [first, last) of an env-major one.
    void (*block_sums)(const MaskedMatrix<Real>&, Index first, Index last, double* sums);
    void (*rescale)(const MaskedMatrix<Real>&, Index first, Index last);
};

struct Target {
    const char* name;
    bool (*supported)();
    Kernels<float> f32;
    Kernels<double> f64;
    const Target* shorter;  // the target with the next shorter vectors, which every CPU with this one has; or null
};

inline const Kernels<float>& kernels(const Target& target, float) { return target.f32; }
inline const Kernels<double>& kernels(const Target& target, double) { return target.f64; }

// All targets of this build; a null pointer ends the list. The last target runs on every CPU.
extern const Target* const targets[];

}  // namespace fastgae
