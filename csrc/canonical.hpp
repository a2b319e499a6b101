// Canonical arrays as views for the kernels. Python's _canonical promises their types, shapes and strides. The border
// checks the promise once more, because a broken one would be memory corruption.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "arguments.hpp"
#include "kernels.hpp"

namespace fastgae {

// Reads the arrays of one rollout, or throws std::invalid_argument. The first array decides on the numbers of steps and
// envs and on the layout.
class CanonicalArrays {
public:
    CanonicalArrays(const Operand& first, const char* name) {
        if (first.rank != 2) throw std::invalid_argument(std::string(name) + " must be an array of steps and envs");
        steps = first.shape[0];
        envs = first.shape[1];
        env_major = envs == 1 || stride(first, 1) != 1;
    }

    // Coefficients may have a stride of 0 where other arrays have unit stride.
    template <class Element>
    View<Element> matrix(const Operand& array, const char* name, Index rows, bool coefficients = false) const {
        const View<Element> view = {start<Element>(array, name, {rows, envs}), stride(array, 0), stride(array, 1)};
        const Index unit = env_major ? view.step : view.env;
        check_layout(unit == 1 || (coefficients && unit == 0) || (env_major ? rows : envs) < 2, name);
        return view;
    }

    template <class Element>
    View<Element> matrix_or_none(const Operand& array, const char* name, bool coefficients = false) const {
        return array.given ? matrix<Element>(array, name, steps, coefficients) : View<Element>();
    }

    template <class Element>
    View<Element> row(const Operand& array, const char* name, bool any_stride = false) const {
        const View<Element> view = {start<Element>(array, name, {envs}), 0, stride(array, 0)};
        check_layout(any_stride || view.env == 1 || envs < 2, name);
        return view;
    }

    Index steps, envs;
    bool env_major;

private:
    // Return a stride in elements, and 1 for an axis of one element, whose stride no kernel uses.
    static Index stride(const Operand& array, Index axis) {
        return array.shape[axis] == 1 ? 1 : array.strides[axis] / bytes_of(array.type);
    }

    static void check_layout(bool right, const char* name) {
        if (!right) throw std::invalid_argument(std::string(name) + " has another layout than the rollout");
    }

    template <class Element>
    static Element* start(const Operand& array, const char* name, std::initializer_list<Index> shape) {
        const bool fits = array.type == type_of<std::remove_const_t<Element>> &&
                          std::equal(shape.begin(), shape.end(), array.shape, array.shape + array.rank);
        if (fits && (std::is_const_v<Element> || array.writeable)) return reinterpret_cast<Element*>(array.data);
        throw std::invalid_argument(std::string(name) +
                                    " is read-only, or has another dtype or shape than the rollout");
    }
};

// A rollout from its fields, after which come the constants.
template <class Real>
class CanonicalRollout {
public:
    using Fields = Operand[kFields + kConstants];

    explicit CanonicalRollout(const Fields& fields) : fields_(fields), arrays_(fields[kFieldRewards], "rewards") {
        const Index steps = rollout_.steps = arrays_.steps;
        rollout_.envs = arrays_.envs;
        rollout_.env_major = arrays_.env_major;
        read(rollout_.rewards, kFieldRewards, steps);
        read(rollout_.values, kFieldValues, steps);
        read(rollout_.next_values, kFieldNextValues, steps - 1);
        // In env-major layout the last values may be a column of a matrix.
        rollout_.last_values = row(kFieldLastValues, rollout_.env_major);
        read_or_none(rollout_.final_values, kFieldFinalValues);
        read(rollout_.terminated, kFieldTerminated, steps);
        read_or_none(rollout_.truncated, kFieldTruncated);
        rollout_.gammas = coefficients(kFieldGamma, numbers_[0]);
        rollout_.gamma_lambdas = coefficients(kFieldGammaLambda, numbers_[1]);
        read_or_none(rollout_.advantages, kFieldAdvantages);
        read_or_none(rollout_.returns, kFieldReturns);
        rollout_.returns_gamma_lambdas = coefficients(kFieldReturnsGammaLambda, numbers_[2]);
        rollout_.tail_lambdas = coefficients(kFieldTailLambda, numbers_[3]);
        read_or_none(rollout_.mask, kFieldMask);
        rollout_.mask_passes_values = fields[kFieldMaskPassesValues].number != 0;
        rollout_.carry_over = fields[kFieldCarryOver].number != 0;
        if (fields[kFieldLastAdvantages].given) rollout_.last_advantages = row(kFieldLastAdvantages, true);
        read_or_none(rollout_.ratios, kFieldRatios);
        for (Index i = 0; i < kConstants; ++i) rollout_.constants[i] = static_cast<Real>(fields[kFields + i].number);
        if (!rollout_.gammas || !rollout_.gamma_lambdas) throw std::invalid_argument("gamma or gamma_lambda is None");
        if (!rollout_.advantages && !rollout_.returns)
            throw std::invalid_argument("advantages and returns are both None");
    }
    CanonicalRollout(const CanonicalRollout&) = delete;  // views point into it

    RolloutWithOptions<Real>& rollout() { return rollout_; }

private:
    template <class Element>
    void read(View<Element>& view, Field field, Index rows) const {
        view = arrays_.matrix<Element>(fields_[field], kFieldNames[field], rows);
    }

    template <class Element>
    void read_or_none(View<Element>& view, Field field) const {
        view = arrays_.matrix_or_none<Element>(fields_[field], kFieldNames[field]);
    }

    View<const Real> row(Field field, bool any_stride) const {
        return arrays_.row<const Real>(fields_[field], kFieldNames[field], any_stride);
    }

    // Return the view of coefficients. A number becomes a view with strides of 0.
    View<const Real> coefficients(Field field, Real& number) const {
        const Operand& given = fields_[field];
        if (!given.is_number()) return arrays_.matrix_or_none<const Real>(given, kFieldNames[field], true);
        number = static_cast<Real>(given.number);
        return {&number, 0, 0};
    }

    const Fields& fields_;
    CanonicalArrays arrays_;
    RolloutWithOptions<Real> rollout_;
    Real numbers_[4];
};

// Return the views of a matrix to add up or to rescale, of its mask, and of its centers and scales per env.
template <class Element>
Moments<Element> canonical_moments(const Operand& matrix, const Operand& mask, const Operand& center,
                                   const Operand& scale) {
    const CanonicalArrays arrays(matrix, "matrix");
    Moments<Element> moments;
    moments.steps = arrays.steps;
    moments.envs = arrays.envs;
    moments.env_major = arrays.env_major;
    moments.matrix = arrays.matrix<Element>(matrix, "matrix", arrays.steps);
    moments.mask = arrays.matrix_or_none<const std::uint8_t>(mask, "mask");
    if (center.given) moments.center = arrays.row<const double>(center, "center").data;
    if (scale.given) moments.scale = arrays.row<const double>(scale, "scale").data;
    return moments;
}

}  // namespace fastgae
