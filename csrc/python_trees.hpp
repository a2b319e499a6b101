// The recursion over the nodes of trees, from the last node, because every parent comes before its children.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <stdexcept>

#include "python.hpp"

namespace fastgae {

template <class Element>
using Nodes = py::array_t<Element, py::array::c_style>;

// fastgae/_backends/trees.py says what it computes.
template <class Real>
void tree_scan(const Nodes<std::int64_t>& parents, const Nodes<Real>& shares, const Nodes<Real>& terms,
               const Nodes<Real>& decay, const Nodes<bool>& gate, const std::optional<Nodes<bool>>& exists,
               Nodes<bool>& follows, Nodes<Real>& sums, Nodes<Real>& y) {
    const Index nodes = parents.size();
    for (const Index size : {shares.size(), terms.size(), decay.size(), gate.size(), exists ? exists->size() : nodes,
                             follows.size(), sums.size(), y.size()})
        if (size != nodes) throw std::invalid_argument("the arrays of a tree differ in size");
    const std::int64_t* const parent = parents.data();
    for (Index node = 0; node < nodes; ++node)
        if (parent[node] >= node) throw std::invalid_argument("a parent does not come before its child");
    const Real *const share = shares.data(), *const term = terms.data(), *const factor = decay.data();
    const bool *const open = gate.data(), *const here = exists ? exists->data() : nullptr;
    bool* const followed = follows.mutable_data();
    Real *const sum = sums.mutable_data(), *const to = y.mutable_data();
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

template <class Real>
void define_trees(py::module_& module) {
    module.def("tree_scan", tree_scan<Real>, "Compute a recursion over the nodes of trees.",
               py::arg("parents").noconvert(), py::arg("shares").noconvert(), py::arg("terms").noconvert(),
               py::arg("decay").noconvert(), py::arg("gate").noconvert(), py::arg("exists").noconvert().none(true),
               py::arg("follows").noconvert(), py::arg("sums").noconvert(), py::arg("y").noconvert());
}

}  // namespace fastgae
