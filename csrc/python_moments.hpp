// Sums and normalisation of arrays that _canonical has made.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>

#include "exact_sums.hpp"
#include "kernels.hpp"
#include "parallel.hpp"
#include "python.hpp"

namespace fastgae {

// Throw unless an array that _canonical has made is as promised, because a broken promise would be memory corruption.
inline void require(bool right, const char* name) {
    if (!right) throw std::invalid_argument(std::string(name) + " is read-only, or has another dtype, shape or layout");
}

// Reads the arrays of a call of moments, each of which may be of a subclass.
template <class Real>
class MomentsReader {
public:
    MaskedMatrix<Real> moments;

    MomentsReader(const Operand& matrix, const py::object& mask) {
        require(matrix.rank == 2, "matrix");
        moments.steps = matrix.shape[0];
        moments.envs = matrix.shape[1];
        moments.env_major = moments.envs == 1 || stride_of<Real>(matrix, 1) != 1;
        moments.matrix = matrix_of<const Real>(matrix, "matrix");
        if (matrix.writeable) moments.rescaled = matrix_of<Real>(matrix, "matrix");
        if (!mask.is_none()) moments.mask = matrix_of<const std::uint8_t>(operand_of(mask.ptr(), true), "mask");
    }

    // Return one number per env; null if there are none.
    const double* row_of(const py::object& given, const char* name) const {
        if (given.is_none()) return nullptr;
        const Operand array = operand_of(given.ptr(), true);
        require(array.rank == 1 && array.type == Type::f64 && array.shape[0] == moments.envs &&
                    stride_of<double>(array, 0) == 1,
                name);
        return reinterpret_cast<const double*>(array.data);
    }

private:
    // Return a stride in elements, and 1 for an axis of one element, whose stride no kernel uses.
    template <class Element>
    static Index stride_of(const Operand& array, Index axis) {
        return array.shape[axis] == 1 ? 1 : array.strides[axis] / Index(sizeof(Element));
    }

    template <class Element>
    View<Element> matrix_of(const Operand& array, const char* name) const {
        require(array.rank == 2 && array.type == type_of<std::remove_const_t<Element>> &&
                    array.shape[0] == moments.steps && array.shape[1] == moments.envs,
                name);
        const View<Element> view = {reinterpret_cast<Element*>(array.data), stride_of<Element>(array, 0),
                                    stride_of<Element>(array, 1)};
        const bool env_major = moments.env_major;
        require((env_major ? view.step : view.env) == 1 || (env_major ? moments.steps : moments.envs) < 2, name);
        return view;
    }
};

// Call run with the reader of a matrix and its mask.
template <class Run>
auto with_moments(const py::object& matrix, const py::object& mask, const Run& run) {
    const Operand numbers = operand_of(matrix.ptr(), true);
    if (numbers.type == Type::f32) return run(MomentsReader<float>(numbers, mask));
    return run(MomentsReader<double>(numbers, mask));
}

inline py::array block_sums_of(const py::object& matrix, const py::object& mask, const py::object& center,
                               Index num_threads, const py::str& target) {
    const Target& chosen = choose(target);
    return with_moments(matrix, mask, [&](auto reader) {
        auto& moments = reader.moments;
        moments.center = reader.row_of(center, "center");
        py::array_t<double> sums({(moments.steps + kMomentSteps - 1) / kMomentSteps, moments.envs});
        double* const to = sums.mutable_data();
        const WithoutGil released;
        block_sums(chosen, moments, num_threads, to);
        return sums;
    });
}

inline void rescale_of(const py::object& matrix, const py::object& mask, const py::object& center,
                       const py::object& scale, Index num_threads, const py::str& target) {
    const Target& chosen = choose(target);
    require(operand_of(matrix.ptr(), true).writeable, "matrix");
    with_moments(matrix, mask, [&](auto reader) {
        auto& moments = reader.moments;
        moments.center = reader.row_of(center, "center");
        moments.scale = reader.row_of(scale, "scale");
        const WithoutGil released;
        rescale(chosen, moments, num_threads);
    });
}

inline py::tuple exact_sums_of(const py::object& matrix, const py::object& mask) {
    return with_moments(matrix, mask, [](const auto& reader) {
        using Sums = ExactSums<std::remove_pointer_t<decltype(reader.moments.rescaled.data)>>;
        Sums sums;
        py::array_t<std::int64_t> bins({Sums::exponents, Index(Sums::Format::digits)});
        std::int64_t* const to = bins.mutable_data();
        {
            const WithoutGil released;
            sums.add(reader.moments);
            sums.write(to);
        }
        return py::make_tuple(bins, py::make_tuple(sums.count, sums.nans, sums.infinities[0], sums.infinities[1]));
    });
}

}  // namespace fastgae
