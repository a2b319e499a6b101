// Sweeps over the nodes of trees without Python: the bits of a plain recursion, with any number of threads, and wrong
// parents are declined without a step beyond an array.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "../../csrc/trees.hpp"

using namespace fastgae;

namespace {

std::mt19937_64 generator(20240607);
Index below(Index n) { return static_cast<Index>(generator() % static_cast<std::uint64_t>(n)); }
double number() { return static_cast<double>(below(1 << 20)) / (1 << 19) - 1; }

void demand(bool right, const char* what, Index round) {
    if (right) return;
    std::printf("wrong in round %td: %s\n", round, what);
    std::exit(1);
}

// An array in a heap block of its own, so that sanitizers see any step beyond it.
template <class Element>
struct Block {
    std::unique_ptr<Element[]> data;
    Index size, stride = sizeof(Element);
    explicit Block(Index count) : data(new Element[count]()), size(count) {}
    Element& operator[](Index i) { return data[i]; }
    View<Element> view() { return {data.get(), 1, 0}; }
    View<const Element> read() { return {data.get(), 1, 0}; }
    Operand operand() {
        Operand operand;
        operand.given = true;
        operand.data = reinterpret_cast<char*>(data.get());
        operand.stored = stored_as<Element>();
        operand.rank = 1;
        operand.shape = &size;
        operand.strides = &stride;
        return operand;
    }
};

template <class Real>
struct Problem {
    Index nodes = 1 + below(200), leaves = 0;
    Block<std::int64_t> parents{nodes};
    Block<std::int32_t> short_parents{nodes};
    Block<Real> rewards{nodes}, values{nodes}, gammas{nodes}, decays{nodes}, others{nodes}, advantages{nodes},
        returns{nodes};
    Block<std::uint8_t> terminated{nodes}, mask{nodes};
    Block<double> weights{nodes};
    std::vector<std::vector<Index>> children;
    bool masked = below(2), two = below(2), by_leaves = below(2), weighted = below(3) == 0;
    Call call;
    CanonicalRollout<Real> rollout;
    std::unique_ptr<Block<Real>> last;

    Problem() : children(nodes) {
        const Index reach = 1 + below(8);
        for (Index i = 0; i < nodes; ++i) {
            const Index parent = std::max<Index>(-1, i - 1 - below(reach));
            parents[i] = short_parents[i] = static_cast<std::int32_t>(below(20) ? parent : -1);
            if (parents[i] >= 0) children[parents[i]].insert(children[parents[i]].begin(), i);  // the last one first
            rewards[i] = static_cast<Real>(number()), values[i] = static_cast<Real>(number());
            gammas[i] = below(8) ? static_cast<Real>(below(3)) / 2 : -Real(0);
            decays[i] = below(8) ? static_cast<Real>(std::abs(number())) : -Real(0);
            if (below(8) == 0) rewards[i] = -Real(0), values[i] = Real(0);  // their difference is -0.0
            others[i] = static_cast<Real>(std::abs(number()));
            mask[i] = below(4) > 0;
            weights[i] = std::abs(number()) + 0.01;
        }
        for (Index i = 0; i < nodes; ++i) {
            leaves += children[i].empty();
            terminated[i] = children[i].empty() && below(2);
        }
        last = std::make_unique<Block<Real>>(below(2) ? leaves : nodes);
        for (Index i = 0; i < last->size; ++i) (*last)[i] = static_cast<Real>(number());
        call.operands[kParents] = below(2) ? parents.operand() : short_parents.operand();
        call.operands[kLastValues] = last->operand();
        call.by_leaves = by_leaves;
        if (weighted) call.operands[kWeights] = weights.operand();
        rollout.steps = nodes, rollout.envs = 1, rollout.env_major = true;
        rollout.rewards = rewards.read(), rollout.values = values.read(), rollout.last_values = last->read();
        rollout.gammas = gammas.read(), rollout.gamma_lambdas = decays.read();
        rollout.terminated = terminated.read();
        if (masked) rollout.mask = mask.read();
        if (two) rollout.returns_gamma_lambdas = others.read();
        rollout.advantages = advantages.view(), rollout.returns = returns.view();
    }

    double weight(Index i) {
        if (weighted) return weights[i];
        double sum = by_leaves && !children[i].empty() ? 0 : 1;
        if (by_leaves)
            for (const Index child : children[i]) sum += weight(child);
        return sum;
    }

    bool exists(Index i) { return !masked || mask[i]; }

    // Return the sum over the children of share y; false: nothing below exists.
    template <class Handed>
    bool sum(Index i, Real& total, const Handed& handed) {
        double weights_of_all = 0;
        for (const Index child : children[i]) weights_of_all += weight(child);
        bool any = false;
        total = -Real(0);
        for (const Index child : children[i]) {
            Real y;
            if (!handed(child, y)) continue;
            const Real part = static_cast<Real>(weight(child) / weights_of_all) * y;
            total += part, any = true;
        }
        return any;
    }

    Real following(Index i) {
        Index leaf = 0;
        for (Index before = 0; before < i; ++before) leaf += children[before].empty();
        if (children[i].empty()) return (*last)[last->size == nodes ? i : leaf];
        Real total;
        sum(i, total, [&](Index child, Real& y) { return y = exists(child) ? values[child] : following(child), true; });
        return total;
    }

    // Return A of each node, by the definition.
    std::vector<Real> expected(Block<Real>& decay) {
        std::vector<Real> passed(nodes), advantage(nodes);
        std::vector<bool> any(nodes);
        for (Index i = nodes; i-- > 0;) {
            Real total;
            any[i] = sum(i, total, [&](Index child, Real& y) { return y = passed[child], bool(any[child]); });
            const Real product = gammas[i] * following(i);
            const Real delta = (terminated[i] ? rewards[i] : rewards[i] + product) - values[i];
            const Real more = decay[i] * total;
            advantage[i] = any[i] && !terminated[i] ? delta + more : delta;
            passed[i] = exists(i) ? advantage[i] : total;
            any[i] = any[i] || exists(i);
        }
        return advantage;
    }
};

RecycledMemory& memory = *new RecycledMemory({std::malloc, std::free});

template <class Real>
void play(Index round) {
    Problem<Real> problem;
    const auto run = [&](Index threads) {
        Trees<Real> trees(problem.call, problem.rollout, threads, memory);
        const bool right = trees.add_up();
        if (right) trees.run();
        return right;
    };
    const auto a = problem.expected(problem.decays), b = problem.two ? problem.expected(problem.others) : a;
    for (Index threads = 1; threads <= 4; ++threads) {
        demand(run(threads), "a right call is declined", round);
        for (Index i = 0; i < problem.nodes; ++i) {
            const Real value = problem.values[i], returned = problem.exists(i) ? b[i] + value : value;
            const Real advantage = problem.exists(i) ? a[i] : Real(0);
            demand(!std::memcmp(&problem.advantages[i], &advantage, sizeof(Real)), "an advantage", round);
            demand(!std::memcmp(&problem.returns[i], &returned, sizeof(Real)), "a return", round);
        }
    }
    const Index node = below(problem.nodes), wrong[] = {node, node + 1, -2, 1 << 30, -(1 << 30)};
    problem.parents[node] = problem.short_parents[node] = static_cast<std::int32_t>(wrong[below(5)]);
    for (Index threads = 1; threads <= 4; ++threads) demand(!run(threads), "a wrong parent is accepted", round);
}

}  // namespace

int main(int, char** arguments) {
    for (Index round = 0; round < std::atoi(arguments[1]); ++round) play<float>(round), play<double>(round);
    std::puts("right");
}
