// Sums and normalisation of arrays that _canonical has made.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>
#include <type_traits>

#include "exact_sums.hpp"
#include "kernels.hpp"
#include "parallel.hpp"
#include "python.hpp"

namespace fastgae {

// A matrix of a call of moments: an array that _canonical has made, which may be of a subclass.
inline Operand canonical_array(const py::handle& object) {
    if (py::isinstance<py::array>(object)) return array_operand(object.ptr());
    Operand result;
    result.given = !object.is_none();
    return result;
}

// Throw unless an array that _canonical has made is as promised, because a broken promise would be memory corruption.
inline void require(bool right, const char* name) {
    if (!right) throw std::invalid_argument(std::string(name) + " is read-only, or has another dtype, shape or layout");
}

// Return a stride in elements, and 1 for an axis of one element, whose stride no kernel uses.
inline Index stride_of(const Operand& array, Index axis) {
    return array.shape[axis] == 1 ? 1 : array.strides[axis] / bytes_of(array.type);
}

// Return the view of a matrix, which must lie as `like` does.
template <class Element, class Like>
View<Element> matrix_of(const Operand& array, const MaskedMatrix<Like>& like, const char* name) {
    require(array.rank == 2 && array.type == type_of<std::remove_const_t<Element>> && array.shape[0] == like.steps &&
                array.shape[1] == like.envs && (std::is_const_v<Element> || array.writeable),
            name);
    const View<Element> view = {reinterpret_cast<Element*>(array.data), stride_of(array, 0), stride_of(array, 1)};
    require((like.env_major ? view.step : view.env) == 1 || (like.env_major ? like.steps : like.envs) < 2, name);
    return view;
}

// Return one number per env; null if there are none.
inline const double* row_of(const Operand& array, Index envs, const char* name) {
    if (!array.given) return nullptr;
    require(array.rank == 1 && array.type == Type::f64 && array.shape[0] == envs && stride_of(array, 0) == 1, name);
    return reinterpret_cast<const double*>(array.data);
}

// Return the views of a matrix to add up or to rescale, of its mask, and of its centers and scales per env.
template <class Element>
MaskedMatrix<Element> moments_of(const Operand& matrix, const Operand& mask, const Operand& center,
                                 const Operand& scale) {
    require(matrix.rank == 2, "matrix");
    MaskedMatrix<Element> moments;
    moments.steps = matrix.shape[0];
    moments.envs = matrix.shape[1];
    moments.env_major = moments.envs == 1 || stride_of(matrix, 1) != 1;
    moments.matrix = matrix_of<Element>(matrix, moments, "matrix");
    if (mask.given) moments.mask = matrix_of<const std::uint8_t>(mask, moments, "mask");
    moments.center = row_of(center, moments.envs, "center");
    moments.scale = row_of(scale, moments.envs, "scale");
    return moments;
}

inline py::array block_sums_of(const py::object& matrix, const py::object& mask, const py::object& center,
                               Index num_threads, const py::str& target) {
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

inline void rescale_of(const py::object& matrix, const py::object& mask, const py::object& center,
                       const py::object& scale, Index num_threads, const py::str& target) {
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

inline py::tuple exact_sums_of(const py::object& matrix, const py::object& mask) {
    const Operand numbers = canonical_array(matrix), exists = canonical_array(mask);
    return (numbers.type == Type::f32 ? exact_sums_of_type<float> : exact_sums_of_type<double>)(numbers, exists);
}

}  // namespace fastgae
