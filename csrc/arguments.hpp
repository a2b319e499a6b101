// The record that crosses the border, a call, as the border has read it. Nothing here uses Python.
#pragma once

#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels.hpp"
#include "stored.hpp"

namespace fastgae {

// The arguments of a call, in the order of fastgae._call.Call, and the constants of kernels.hpp among them.
enum Argument {
    kRewards,
    kValues,
    kTerminated,
    kTruncated,
    kLastValues,
    kNextValues,
    kFinalValues,
    kAutoreset,
    kPrevDone,
    kMask,
    kGamma,
    kGaeLambda,
    kTimeAxis,
    kOut,
    kNormalize,
    kLastAdvantages,
    kReturnsLambda,
    kTailNormalized,
    kCarryOver,
    kCuSeqlens,
    kN,
    kRecursion,
    kRatios,
    kParents,
    kWeights,
    kFirstConstant,
    kLastConstant = kFirstConstant + kConstants - 1,
    kDeviation,
    kArguments
};
constexpr const char* kArgumentNames[] = {
    "rewards",   "values",          "terminated",     "truncated",       "last_values", "next_values", "final_values",
    "autoreset", "prev_done",       "mask",           "gamma",           "gae_lambda",  "time_axis",   "out",
    "normalize", "last_advantages", "returns_lambda", "tail_normalized", "carry_over",  "cu_seqlens",  "n",
    "recursion", "ratios",          "parents",        "weights",         "rho_clip",    "c_clip",      "advantage_clip",
    "leaky",     "deviation",
};
static_assert(std::size(kArgumentNames) == kArguments, "one name for each argument");

// The numbers of a call, whose dtypes decide on the dtype of the results.
constexpr Argument kNumbers[] = {kRewards, kValues, kLastValues, kNextValues, kFinalValues, kLastAdvantages, kRatios};

// Return whether an argument is a setting, which says how to compute the result, and not an operand.
constexpr bool is_setting(Argument place) {
    return place == kAutoreset || place == kNormalize || place == kTailNormalized || place == kCarryOver ||
           place == kTimeAxis || place == kOut || place == kN || place == kRecursion || place == kDeviation;
}

// The names of the recursions: those in fastgae._equation.arrays.RECURSIONS, and none.
constexpr const char* kRecursionNames[] = {"gae", "n_step_returns", "retrace", "upgo", "tree", "none"};

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The bytes [first, last) of memory.
struct Bytes {
    const char *first = nullptr, *last = nullptr;
    bool overlap(const Bytes& other) const { return first < other.last && other.first < last; }
};

// One argument: a number, an array, or something else, which has neither a number nor a type.
struct Operand {
    double number = kNaN;
    char* data = nullptr;
    const Index *shape = nullptr, *strides = nullptr;  // strides in bytes
    std::int16_t rank = 0;
    std::int8_t size = 0;  // bytes of an element
    Type type = Type::other;
    Stored stored = Stored::other;
    bool given = false;    // it is not None
    bool absent = false;   // it is ABSENT
    bool weak = false;     // a number of Python, which has no effect on the dtype of the results
    bool swapped = false;  // the bytes of each element are in the order of another CPU
    bool writeable = false;

    bool is_number() const { return number == number; }

    Index elements() const { return std::accumulate(shape, shape + rank, Index(1), std::multiplies<Index>()); }

    // The memory that the elements may touch.
    Bytes bytes() const {
        if (!data) return {};
        Index below = 0, above = size;
        for (Index axis = 0; axis < rank; ++axis)
            (strides[axis] < 0 ? below : above) += (shape[axis] - 1) * strides[axis];
        return {data + below, data + above};
    }
};

// Copies of the shapes and strides of a call's arrays. Where another thread gives an array another shape, NumPy frees
// those that the operand points to.
class Shapes {
public:
    Shapes() { copies_.reserve((kArguments + 2) * 2 * kMostAxes); }  // the arguments and two results; it never moves

    void keep(Operand& given) {
        if (given.rank == 0) return;
        for (const Index** const numbers : {&given.shape, &given.strides}) {
            copies_.insert(copies_.end(), *numbers, *numbers + given.rank);
            *numbers = copies_.data() + copies_.size() - given.rank;
        }
    }

private:
    static constexpr Index kMostAxes = 64;  // of NumPy's arrays
    std::vector<Index> copies_;
};

// Let an array without axes be a number. Arguments that must have axes are declined either way.
inline void read_number(Operand& given) {
    if (!given.data || given.rank != 0 || (given.type != Type::f32 && given.type != Type::f64)) return;
    Operand number;
    number.given = true;
    number.stored = given.stored;  // unlike a number of Python, it takes part in promotion
    number.number = given.type == Type::f32 ? *reinterpret_cast<const float*>(given.data)
                                            : *reinterpret_cast<const double*>(given.data);
    given = number;
}

enum class Normalize { nothing, all, per_env };

// The arguments of a call. Settings have their own fields instead of an operand.
struct Call {
    Operand operands[kArguments];
    double time_axis = kNaN;  // NaN if it is not an integer
    bool next_step = false;   // autoreset="next_step"
    bool tail_normalized = false, carry_over = false;
    bool names_weights = false, by_leaves = false;  // weights="children" or "leaves", and which of these
    Index n = 0;                                    // of n_step_returns
    Recursion recursion = Recursion::gae;
    bool checked = false;  // it comes from in_one_layout of Python's _canonical, which has checked it
    Normalize normalize = Normalize::nothing;
    double ddof = 0, eps = 0;  // of the standard deviation: std = sqrt(sum / (count - ddof)) + eps

    const Operand& operator[](Argument argument) const { return operands[argument]; }
    const Operand& operator[](Constant constant) const { return operands[kFirstConstant + constant]; }
};

// Return the type of the results, to which NumPy promotes the numbers of a call; other: declined.
inline Type working_type(const Call& call) {
    bool single = false, wide = false;
    const auto take = [&](const Operand& given) {
        single |= given.stored == Stored::f32 || is_narrow(given.stored);
        wide |= bytes_of(given.stored) > 2 && given.stored != Stored::f32;
        wide |= given.is_number() && !given.weak && given.stored == Stored::other;  // of a subclass of float
        return !given.data || given.stored != Stored::other;
    };
    for (const Argument numbers : kNumbers)
        if (!take(call[numbers])) return Type::other;
    if (call[kTerminated].absent && !take(call[kGaeLambda])) return Type::other;  // the decays of reverse_scan
    return single && !wide ? Type::f32 : Type::f64;
}

inline bool in_unit_interval(double x) { return x >= 0.0 && x <= 1.0; }

}  // namespace fastgae
