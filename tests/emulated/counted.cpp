// Runs one call of every kind on the baseline target. instructions.py counts the instructions between the two marks
// of each call.
#include <cstdio>
#include <new>
#include <vector>

#include "../../csrc/parallel.hpp"

namespace {

using fastgae::Index;
using fastgae::Store;
using fastgae::View;

const fastgae::Target& target() {
    const fastgae::Target* const* last = fastgae::targets;
    while (last[1]) ++last;
    return **last;
}

}  // namespace

// An emulator's trace shows the names of these functions.
extern "C" {
__attribute__((noinline)) void count_begins() { __asm__ volatile(""); }
__attribute__((noinline)) void count_ends() { __asm__ volatile(""); }
}

namespace {

// Make a call between the marks, and print what was counted.
template <class Call>
void count(const char* what, std::size_t bytes, Index steps, const Call& call) {
    count_begins();
    call();
    count_ends();
    std::printf("%s, float%zu\t%td\n", what, 8 * bytes, steps);
}

// Begins every array at a cache line, because the streamed sweeps count differently elsewhere.
template <class Element>
struct AtCacheLine {
    using value_type = Element;
    static constexpr std::align_val_t line{64};

    AtCacheLine() = default;
    template <class Other>
    AtCacheLine(const AtCacheLine<Other>&) {}
    Element* allocate(std::size_t count) {
        return static_cast<Element*>(::operator new(count * sizeof(Element), line));
    }
    void deallocate(Element* array, std::size_t) { ::operator delete(array, line); }
    bool operator==(const AtCacheLine&) const { return true; }
    bool operator!=(const AtCacheLine&) const { return false; }
};
template <class Element>
using Array = std::vector<Element, AtCacheLine<Element>>;

// The arrays of a rollout. One step in 64 is terminated, and another one truncated.
template <class Real>
struct Arrays {
    Index steps, envs;
    bool env_major;
    Array<Real> rewards, values, factors, advantages, returns;
    Array<std::uint8_t> terminated, truncated, mask;

    Arrays(Index steps_, Index envs_, bool env_major_)
        : steps(steps_), envs(envs_), env_major(env_major_), rewards(steps * envs), values((steps + 1) * envs),
          factors(steps * envs), advantages(steps * envs), returns(steps * envs), terminated(steps * envs),
          truncated(steps * envs), mask(steps * envs, 1) {
        for (Index i = 0; i < steps * envs; ++i) {
            rewards[i] = Real(i % 7) / 8, values[i] = Real(i % 11) / 8, factors[i] = Real(i % 5 + 1) / 8;
            terminated[i] = i % 64 == 5, truncated[i] = i % 64 == 29;
        }
    }

    template <class Element>
    View<Element> view(Array<Element>& array, Index start = 0) const {
        return env_major ? View<Element>{array.data() + start, 1, steps} : View<Element>{array.data() + start, envs, 1};
    }
    template <class Element>
    View<const Element> read(Array<Element>& array, Index start = 0) const {
        const View<Element> matrix = view(array, start);
        return {matrix.data, matrix.step, matrix.env};
    }

    fastgae::CanonicalRollout<Real> rollout() {
        static constexpr Real gamma = Real(0.99), gamma_lambda = Real(0.99 * 0.95);
        fastgae::CanonicalRollout<Real> made;
        made.steps = steps, made.envs = envs, made.env_major = env_major;
        made.rewards = read(rewards), made.values = read(values), made.terminated = read(terminated);
        made.next_values = read(values, env_major ? 1 : envs);
        made.last_values = {values.data() + steps * envs, 0, 1};
        made.gammas = {&gamma, 0, 0}, made.gamma_lambdas = {&gamma_lambda, 0, 0};
        made.advantages = view(advantages), made.returns = view(returns);
        return made;
    }
};

template <class Real>
void count_plain(const char* what, Arrays<Real> arrays, Store store, bool with_truncated) {
    fastgae::CanonicalRollout<Real> rollout = arrays.rollout();
    if (with_truncated) rollout.truncated = arrays.read(arrays.truncated);
    count(what, sizeof(Real), arrays.steps * arrays.envs, [&] { fastgae::gae(target(), rollout, 1, store); });
}

template <class Real>
void count_options(const char* what, Arrays<Real> arrays, bool with_ratios) {
    fastgae::CanonicalRollout<Real> rollout = arrays.rollout();
    if (with_ratios) {
        rollout.ratios = arrays.read(arrays.factors);
        for (const auto clip : {fastgae::kRhoClip, fastgae::kCClip, fastgae::kAdvantageClip})
            rollout.constants[clip] = 1;
    } else {
        rollout.gammas = rollout.gamma_lambdas = arrays.read(arrays.factors);
        rollout.mask = arrays.read(arrays.mask);
    }
    count(what, sizeof(Real), arrays.steps * arrays.envs, [&] { fastgae::gae(target(), rollout, 1, Store::cached); });
}

template <class Real>
void count_moments(const char* what, Arrays<Real> arrays) {
    const std::vector<double> center(arrays.envs, 0.5), scale(arrays.envs, 2);
    std::vector<double> sums((arrays.steps / fastgae::kMomentSteps + 1) * arrays.envs);
    const fastgae::MaskedMatrix<Real> all = {
        arrays.steps, arrays.envs, arrays.env_major,           arrays.read(arrays.rewards), {}, center.data(),
        scale.data(), -1,          arrays.view(arrays.rewards)};
    count(what, sizeof(Real), arrays.steps * arrays.envs, [&] {
        fastgae::block_sums(target(), all, 1, sums.data());
        fastgae::rescale(target(), all, 1);
    });
}

template <class Real>
void count_all() {
    const Arrays<Real> time_major(64, 64, false), env_major(256, 16, true), single(8192, 1, true), few(2048, 4, false);
    count_plain("time-major 64×64", time_major, Store::cached, false);
    count_plain("time-major 64×64, truncated", time_major, Store::cached, true);
    count_plain("time-major 64×64, streamed", time_major, Store::streamed, false);
    count_plain("time-major 2048×4", few, Store::cached, false);
    count_plain("env-major 256×16", env_major, Store::cached, false);
    count_plain("env-major 256×16, truncated", env_major, Store::cached, true);
    count_plain("one trajectory of 8192 steps", single, Store::cached, false);
    count_options("time-major 64×64, mask and gamma per step", time_major, false);
    count_options("time-major 64×64, V-trace", time_major, true);
    count_options("env-major 256×16, mask and gamma per step", env_major, false);
    count_options("env-major 256×16, V-trace", env_major, true);
    count_moments("time-major 64×64, moments", time_major);
    count_moments("env-major 256×16, moments", env_major);
}

}  // namespace

int main() {
    count_all<float>();
    count_all<double>();
}
