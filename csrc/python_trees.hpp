// The recursion over the nodes of trees, from the last node, because every parent comes before its children.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "python.hpp"

namespace fastgae {

// Return the elements of an array with one per node; throw unless it is as promised.
template <class Element>
Element* nodes_of(const py::array& array, Index nodes, const char* name) {
    using Exactly = py::array_t<std::remove_const_t<Element>, py::array::c_style>;
    if (!py::isinstance<Exactly>(array) || array.size() != nodes || !(std::is_const_v<Element> || array.writeable()))
        throw std::invalid_argument(std::string(name) + " is read-only, or has another dtype, size or layout");
    return static_cast<Element*>(const_cast<void*>(array.data()));
}

template <class Real>
void scan_nodes(const py::array& parents, const py::array& shares, const py::array& terms, const py::array& decay,
                const py::array& gate, const py::object& exists, const py::array& follows, const py::array& sums,
                const py::array& y) {
    const Index nodes = y.size();
    const auto* const parent = nodes_of<const std::int64_t>(parents, nodes, "parents");
    const auto* const share = nodes_of<const Real>(shares, nodes, "shares");
    const auto* const term = nodes_of<const Real>(terms, nodes, "terms");
    const auto* const factor = nodes_of<const Real>(decay, nodes, "decay");
    const auto* const open = nodes_of<const bool>(gate, nodes, "gate");
    const auto* const here =
        exists.is_none() ? nullptr : nodes_of<const bool>(exists.cast<py::array>(), nodes, "exists");
    auto* const followed = nodes_of<bool>(follows, nodes, "follows");
    auto* const sum = nodes_of<Real>(sums, nodes, "sums");
    auto* const to = nodes_of<Real>(y, nodes, "y");
    for (Index node = 0; node < nodes; ++node)
        if (parent[node] >= node) throw std::invalid_argument("a parent does not come before its child");
    const WithoutGil released;
    for (Index node = nodes; node-- > 0;) {
        to[node] = open[node] && followed[node] ? term[node] + factor[node] * sum[node] : term[node];
        if (here && !here[node])
            to[node] = sum[node];
        else
            followed[node] = true;
        if (parent[node] < 0 || !followed[node]) continue;
        sum[parent[node]] += share[node] * to[node];
        followed[parent[node]] = true;
    }
}

// fastgae/_equation/trees.py says what it computes.
inline void tree_scan(const py::array& parents, const py::array& shares, const py::array& terms, const py::array& decay,
                      const py::array& gate, const py::object& exists, const py::array& follows, const py::array& sums,
                      const py::array& y) {
    const bool single = y.itemsize() == sizeof(float);
    (single ? scan_nodes<float> : scan_nodes<double>)(parents, shares, terms, decay, gate, exists, follows, sums, y);
}

}  // namespace fastgae
