// GAE of nodes of trees. Every parent comes before its children, so a sweep from the last node to the first finds the
// sums over the children of a node complete.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "arguments.hpp"
#include "bits.hpp"
#include "conversion.hpp"
#include "recycled.hpp"
#include "threads.hpp"

namespace fastgae {

template <class Real>
class Trees {
public:
    // Allocates all memory, because nothing may fail once results are written.
    Trees(const Call& call, const CanonicalRollout<Real>& rollout, Index threads, RecycledMemory& memory)
        : rollout_(rollout), by_leaves_(call.by_leaves),
          given_last_(call[kLastValues].data ? call[kLastValues].shape[0] : 0),
          totals_block_(memory, rollout.steps * sizeof(double)), totals_(static_cast<double*>(totals_block_.data())),
          nodes_block_(memory, rollout.steps * sizeof(Node)), nodes_(static_cast<Node*>(nodes_block_.data())),
          copies_(threads, memory) {
        if (rollout.mask || rollout.returns_gamma_lambdas) {
            options_block_.emplace(memory, rollout.steps * sizeof(Options));
            options_ = static_cast<Options*>(options_block_->data());
        }
        const Operand &parents = call[kParents], &weights = call[kWeights];
        parents_ = copies_.of<std::int64_t>(parents, {1, 0, rollout.steps, parents.strides[0]});
        if (weights.data) weights_ = copies_.of<double>(weights, {1, 0, rollout.steps, weights.strides[0]});
        cut(std::min(threads, rollout.steps / kNodesPerThread));
    }

    // Add up the weights of the children of each node; false: declined, because a parent does not come before its
    // child, a child follows a terminated node, a weight is wrong, or there are more or fewer leaves than values after
    // them.
    bool add_up() {
        std::atomic<bool> right{true};
        each_span([&](Index span, Index first, Index last) {
            if (!add_up(first, last, leaves_[span + 1])) right = false;
        });
        for (std::size_t i = 1; i < leaves_.size(); ++i) leaves_[i] += leaves_[i - 1];
        return right && (!given_last_ || given_last_ == rollout_.steps || given_last_ == leaves_.back());
    }

    void run() const {
        each_span([&](Index span, Index first, Index last) {
            options_ ? run<true>(first, last, leaves_[span + 1]) : run<false>(first, last, leaves_[span + 1]);
        });
    }

private:
    // Sums over the children of a node begin with -0.0, to which any number can be added without a change.
    struct Node {
        Real following = -Real(0), trace = -Real(0);
    };
    struct Options {
        Real returns_trace = -Real(0);
        bool followed = false;  // a node below this one exists
    };

    // Cut the nodes into spans of whole trees: before a root to whose left no later node has its parent.
    void cut(Index spans) {
        const Index nodes = rollout_.steps, length = nodes / std::max<Index>(spans, 1);
        borders_.assign(1, nodes);
        Index lowest = nodes;
        for (Index node = nodes, next = (spans - 1) * length; next > 0 && node-- > 1;) {
            if (parents_[node] >= 0) {
                lowest = std::min<Index>(lowest, parents_[node]);
            } else if (node <= next && node <= lowest) {
                borders_.push_back(node);
                next = (node - 1) / length * length;
            }
        }
        borders_.push_back(0);
        std::reverse(borders_.begin(), borders_.end());
        leaves_.assign(borders_.size(), 0);
    }

    // Call work(span, first, last) on every span of nodes. Where the system gives no thread, one computes several.
    template <class Work>
    void each_span(const Work& work) const {
        const Index spans = borders_.size() - 1;
        spread({spans, 1, spans}, [&](Index, Index span, Index end) {
            for (; span < end; ++span) work(span, borders_[span], borders_[span + 1]);
        });
    }

    // Return the parent of a node as an index into a span; beyond the node: it is a root, or the parent is wrong.
    std::size_t parent_of(Index node, Index first) const { return std::size_t(parents_[node] - first); }

    // The weight of a node by leaves is their number, and its total counts those of the children.
    double weight_of(Index node) const {
        return weights_ ? weights_[node] : by_leaves_ ? std::max(totals_[node], 1.0) : 1.0;
    }

    bool add_up(Index first, Index last, Index& leaves) {
        constexpr double infinity = std::numeric_limits<double>::infinity();
        const std::uint8_t* const terminated = rollout_.terminated.data;
        std::fill(totals_ + first, totals_ + last, -0.0);
        bool right = true;
        Index count = 0;
        for (Index node = last; node-- > first;) {
            nodes_[node] = Node();
            if (options_) options_[node] = Options();
            const double total = totals_[node], weight = weight_of(node);
            const bool leaf = std::signbit(total), ends = terminated && terminated[node];
            count += leaf;
            right &= leaf | ((total > 0) & (total < infinity) & !ends);
            right &= (weight >= 0) & (weight < infinity);
            const std::size_t parent = parent_of(node, first);
            if (parent < std::size_t(node - first))
                totals_[first + parent] += weight + 0.0;  // a weight of -0.0 counts as 0.0
            else
                right &= parents_[node] == -1;
        }
        leaves = count;
        return right;
    }

    // Return a coefficient, or 0.0 for -0.0 where it multiplies a sum of nothing, -0.0: the product must be -0.0.
    static Real coefficient(const View<const Real>& of, Index node, bool of_nothing) {
        const BitsOf<Real> sign = BitsOf<Real>(of_nothing) << (8 * sizeof sign - 1);
        return with_bits_of<Real>(bits_of(*of.at(node, 0)) & ~sign);
    }

    // No branch depends on the shape of the trees, which no CPU could predict: twice as fast on random ones. So a
    // terminated reward, and the delta of a node that nothing follows, get -0.0 added to them, which changes no number.
    template <bool options>
    void run(Index first, Index last, Index leaves) const {
        const CanonicalRollout<Real>& rollout = rollout_;
        const Real zero = 0, nothing = -zero;
        const View<const Real>& last_values = rollout.last_values;
        const bool per_node = given_last_ == rollout.steps;
        const Real* const after = last_values ? last_values.data : &zero;
        for (Index node = last; node-- > first;) {
            const Node& here = nodes_[node];
            const bool leaf = std::signbit(totals_[node]), ends = rollout.terminated && rollout.terminated.data[node];
            const bool exists = !options || !rollout.mask || rollout.mask.data[node];
            leaves -= leaf;
            const Real* const next = leaf ? after + (per_node ? node : leaves * last_values.step) : &here.following;
            const Real following = *(ends ? &nothing : next);
            const Real value = *rollout.values.at(node, 0);
            const Real delta =
                (rollout.rewards.data[node] + coefficient(rollout.gammas, node, ends) * following) - value;
            const bool alone = options ? !options_[node].followed : leaf;  // its sums are those of nothing
            const auto traced = [&](const View<const Real>& decay, Real sum) {
                return delta + coefficient(decay, node, alone) * sum;
            };
            Real advantage = traced(rollout.gamma_lambdas, here.trace), other = advantage;
            if (options && rollout.returns_gamma_lambdas)
                other = traced(rollout.returns_gamma_lambdas, options_[node].returns_trace);
            if (rollout.advantages) rollout.advantages.data[node] = exists ? advantage : Real(0);
            if (rollout.returns) rollout.returns.data[node] = exists ? other + value : value;
            const std::size_t parent = parent_of(node, first);
            if (parent >= std::size_t(node - first)) continue;
            Node& above = nodes_[first + parent];
            const Real share = static_cast<Real>(weight_of(node) / totals_[first + parent]);
            above.following += share * (exists ? value : *next);
            if constexpr (options) {
                Options &options_here = options_[node], &options_above = options_[first + parent];
                if (!exists) advantage = here.trace, other = options_here.returns_trace;
                if (exists || options_here.followed) {
                    above.trace += share * advantage;
                    options_above.returns_trace += share * other;
                    options_above.followed = true;
                }
            } else {
                above.trace += share * advantage;
            }
        }
    }

    const CanonicalRollout<Real>& rollout_;
    bool by_leaves_;
    Index given_last_;  // how many values after leaves there are, if they are an array: one per leaf, or per node
    RecycledBlock totals_block_;
    double* totals_;
    RecycledBlock nodes_block_;
    Node* nodes_;
    std::optional<RecycledBlock> options_block_;
    Options* options_ = nullptr;
    Copies copies_;
    const std::int64_t* parents_ = nullptr;
    const double* weights_ = nullptr;
    std::vector<Index> borders_, leaves_;  // where spans begin and the last one ends; how many leaves come before
};

}  // namespace fastgae
