// Sweeps over the nodes of trees without Python: any number of threads gives the bits of one, and wrong parents are
// declined without a step beyond an array. tests/test_trees.py says what is right, also with these small thresholds.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
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
        operand.type = type_of_stored(operand.stored);
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
    Call call;
    CanonicalRollout<Real> rollout;
    std::unique_ptr<Block<Real>> last;

    Problem() {
        const Index reach = 1 + below(8);
        std::vector<bool> is_leaf(nodes, true);
        for (Index i = 0; i < nodes; ++i) {
            const Index parent = std::max<Index>(-1, i - 1 - below(reach));
            parents[i] = short_parents[i] = static_cast<std::int32_t>(below(20) ? parent : -1);
            if (parents[i] >= 0) is_leaf[parents[i]] = false;
            rewards[i] = static_cast<Real>(number()), values[i] = static_cast<Real>(number());
            gammas[i] = below(8) ? static_cast<Real>(below(3)) / 2 : -Real(0);
            decays[i] = below(8) ? static_cast<Real>(std::abs(number())) : -Real(0);
            if (below(8) == 0) rewards[i] = -Real(0), values[i] = Real(0);  // their difference is -0.0
            others[i] = static_cast<Real>(std::abs(number()));
            mask[i] = below(4) > 0;
            weights[i] = std::abs(number()) + 0.01;
        }
        for (Index i = 0; i < nodes; ++i) {
            leaves += is_leaf[i];
            terminated[i] = is_leaf[i] && below(2);
        }
        last = std::make_unique<Block<Real>>(below(2) ? leaves : nodes);
        for (Index i = 0; i < last->size; ++i) (*last)[i] = static_cast<Real>(number());
        call.operands[kParents] = below(2) ? parents.operand() : short_parents.operand();
        call.operands[kLastValues] = last->operand();
        call.by_leaves = below(2);
        if (below(3) == 0) call.operands[kWeights] = weights.operand();
        rollout.steps = nodes, rollout.envs = 1, rollout.env_major = true;
        rollout.rewards = rewards.read(), rollout.values = values.read(), rollout.last_values = last->read();
        rollout.gammas = gammas.read(), rollout.gamma_lambdas = decays.read();
        rollout.terminated = terminated.read();
        if (below(2)) rollout.mask = mask.read();
        if (below(2)) rollout.returns_gamma_lambdas = others.read();
        rollout.advantages = advantages.view(), rollout.returns = returns.view();
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
    const auto results = [&](Index threads) {
        std::vector<Real> both;
        for (auto* const each : {&problem.advantages, &problem.returns})
            std::fill_n(each->data.get(), problem.nodes, std::numeric_limits<Real>::quiet_NaN());
        demand(run(threads), "a right call is declined", round);
        for (auto* const each : {&problem.advantages, &problem.returns})
            both.insert(both.end(), each->data.get(), each->data.get() + problem.nodes);
        return both;
    };
    const std::vector<Real> expected = results(1);
    for (const Real each : expected) demand(each == each, "a number is not written", round);
    for (Index threads = 2; threads <= 4; ++threads) {
        const std::vector<Real> got = results(threads);
        demand(!std::memcmp(got.data(), expected.data(), got.size() * sizeof(Real)), "other bits", round);
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
