// The two records that cross the border, a call and a rollout, as the border has read them. Nothing here knows Python.
#pragma once

#include <algorithm>
#include <limits>

#include "kernels.hpp"

namespace fastgae {

// The arguments of a call, in the order of fastgae._call.Call. The constants of kernels.hpp come last.
enum Argument {
    kRewards,
    kValues,
    kTerminated,
    kTruncated,
    kLastValues,
    kNextValues,
    kFinalValues,
    kAutoreset,
    kLastAdvantages,
    kPrevDone,
    kMask,
    kGamma,
    kGaeLambda,
    kReturnsLambda,
    kNormalize,
    kTailNormalized,
    kTimeAxis,
    kOut,
    kRatios,
    kFirstConstant,
    kArguments = kFirstConstant + kConstants
};
constexpr const char* kArgumentNames[] = {
    "rewards",   "values",          "terminated", "truncated", "last_values", "next_values", "final_values",
    "autoreset", "last_advantages", "prev_done",  "mask",      "gamma",       "gae_lambda",  "returns_lambda",
    "normalize", "tail_normalized", "time_axis",  "out",       "ratios",
};
static_assert(sizeof kArgumentNames / sizeof *kArgumentNames == kFirstConstant, "one name for each argument");

// The fields of a rollout, in the order of fastgae._canonical.Rollout. The last field is a tuple of all constants.
enum Field {
    kFieldRewards,
    kFieldValues,
    kFieldNextValues,
    kFieldLastValues,
    kFieldFinalValues,
    kFieldTerminated,
    kFieldTruncated,
    kFieldGamma,
    kFieldGammaLambda,
    kFieldAdvantages,
    kFieldReturns,
    kFieldReturnsGammaLambda,
    kFieldTailLambda,
    kFieldMask,
    kFieldMaskPassesValues,
    kFieldLastAdvantages,
    kFieldRatios,
    kFieldConstants,
    kFields
};
constexpr const char* kFieldNames[] = {
    "rewards",     "values", "next_values",        "last_values",     "final_values", "terminated",
    "truncated",   "gamma",  "gamma_lambda",       "advantages",      "returns",      "returns_gamma_lambda",
    "tail_lambda", "mask",   "mask_passes_values", "last_advantages", "ratios",       "constants",
};
static_assert(sizeof kFieldNames / sizeof *kFieldNames == kFields, "one name for each field");

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The bytes [first, last) of memory.
struct Bytes {
    const char *first = nullptr, *last = nullptr;
    bool overlap(const Bytes& other) const { return first < other.last && other.first < last; }
};

// The type of the elements of an array. The short cut declines arrays of other types.
enum class Type { other, f32, f64, flag };

template <class Element>
constexpr Type type_of = Type::other;
template <>
constexpr Type type_of<float> = Type::f32;
template <>
constexpr Type type_of<double> = Type::f64;
template <>
constexpr Type type_of<std::uint8_t> = Type::flag;

inline Index bytes_of(Type type) { return type == Type::flag ? 1 : type == Type::f32 ? sizeof(float) : sizeof(double); }

// One argument or field: a number, an array, or something else, which has neither a number nor a type.
struct Operand {
    double number = kNaN;
    bool given = false;  // it is not None
    bool writeable = false;
    Type type = Type::other;
    Index rank = 0;
    char* data = nullptr;
    const Index *shape = nullptr, *strides = nullptr;  // strides in bytes

    bool is_number() const { return number == number; }

    // The memory that the elements may touch.
    Bytes bytes() const {
        if (!data) return {};
        Index below = 0, above = bytes_of(type);
        for (Index axis = 0; axis < rank; ++axis)
            (strides[axis] < 0 ? below : above) += (shape[axis] - 1) * strides[axis];
        return {data + below, data + above};
    }
};

enum class Normalize { nothing, all, per_env };

// The arguments of a call. Settings have a field of their own in place of an operand.
struct Call {
    Operand operands[kArguments];
    double time_axis = kNaN;  // NaN if it is no integer
    bool next_step = false;   // autoreset="next_step"
    bool tail_normalized = false;
    Normalize normalize = Normalize::nothing;

    const Operand& operator[](Argument argument) const { return operands[argument]; }
    const Operand& operator[](Constant constant) const { return operands[kFirstConstant + constant]; }
};

inline bool in_unit_interval(double x) { return x >= 0.0 && x <= 1.0; }

}  // namespace fastgae
