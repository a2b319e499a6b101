// Runs the kernels without Python and compares them with a scalar loop, bit for bit: every target, dtype, layout,
// option, output and number of threads. Every array is a heap block of its own size, so that sanitizers see any step
// beyond it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "../../csrc/exact_sums.hpp"
#include "../../csrc/parallel.hpp"

namespace {

using fastgae::Index;
using fastgae::View;

// A small generator of random numbers. That of the library would take most of the time under a thread sanitizer.
std::uint64_t random_state = 20240607;

Index below(Index n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<Index>((random_state >> 33) % static_cast<std::uint64_t>(n));
}

// Only some problems have gaps between the rows of their matrices, and rows in reverse order.
bool gaps = false;

// A (T, N) matrix in a heap block of its own, which begins and ends where the matrix does.
template <class Element>
struct Matrix {
    std::unique_ptr<Element[]> block;
    View<Element> view;
    Index steps = 0, envs = 0;

    Matrix(Index steps_, Index envs_, bool env_major) : steps(steps_), envs(envs_) {
        const Index inner = env_major ? steps : envs, outer = env_major ? envs : steps;
        const Index room = inner + (gaps ? below(5) : 0);
        const Index stride = gaps && below(4) == 0 ? -room : room;
        const Index covered = steps && envs ? (outer - 1) * room + inner : 0;
        const Index shift = below(3);  // off the alignment of a vector
        block.reset(new Element[covered + shift]());
        view.data = block.get() + shift + (stride < 0 && covered ? (outer - 1) * room : 0);
        view.step = env_major ? 1 : stride;
        view.env = env_major ? stride : 1;
    }

    template <class Make>
    void fill(Make make) {
        for (Index t = 0; t < steps; ++t)
            for (Index n = 0; n < envs; ++n) *view.at(t, n) = make(t, n);
    }

    View<const Element> read() const { return {view.data, view.step, view.env}; }
};

// Only some problems contain NaN, infinity and subnormal numbers, because they soon displace all others.
bool special_numbers = false;

template <class Real>
Real number() {
    static const std::vector<Real> table = [] {
        using Limits = std::numeric_limits<Real>;
        std::vector<Real> numbers = {
            Limits::infinity(), Limits::quiet_NaN(), Limits::max(), Limits::min() / 4, 0, -Real(0)};
        std::mt19937 bits(7);
        std::normal_distribution<double> normal;
        while (numbers.size() < 1024) numbers.push_back(static_cast<Real>(normal(bits)));
        return numbers;
    }();
    return table[special_numbers ? below(1024) : 4 + below(1020)];
}

// Any two NaNs are the same, because their payloads are not promised.
template <class Real>
bool same(Real a, Real b) {
    return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof a) == 0;
}

struct Problem {
    Index steps, envs;
    bool env_major, truncated, final_values, advantages, returns;
    int flags;  // 0 none, 1 all, 2 first row, 3 last row, 4 random
    Index num_threads;
};

// End the program with what was computed wrongly, in which problem, and at which step t and env n if that is known.
template <class Real>
[[noreturn]] void wrong(const fastgae::Target& target, const Problem& problem, const char* what, Index detail,
                        Index t = -1, Index n = -1) {
    std::printf(
        "%s f%zu: %s %td steps %td envs %td env_major %d truncated %d final %d outputs %d %d flags %d "
        "threads %td: wrong at t %td n %td\n",
        target.name, 8 * sizeof(Real), what, detail, problem.steps, problem.envs, problem.env_major, problem.truncated,
        problem.final_values, problem.advantages, problem.returns, problem.flags, problem.num_threads, t, n);
    std::exit(1);
}

bool ends(const Problem& problem, Index t) {
    switch (problem.flags) {
        case 0: return false;
        case 1: return true;
        case 2: return t == 0;
        case 3: return t == problem.steps - 1;
        default: return below(4) == 0;
    }
}

// Return the rollout of a problem with what every estimator reads.
template <class Real>
fastgae::CanonicalRollout<Real> rollout_of(const Problem& problem, const Matrix<Real>& rewards,
                                           const Matrix<Real>& values, const Matrix<std::uint8_t>& terminated,
                                           const Matrix<std::uint8_t>& truncated, const Matrix<Real>& finals) {
    fastgae::CanonicalRollout<Real> rollout;
    rollout.steps = problem.steps, rollout.envs = problem.envs, rollout.env_major = problem.env_major;
    rollout.rewards = rewards.read(), rollout.values = values.read(), rollout.terminated = terminated.read();
    if (problem.truncated) rollout.truncated = truncated.read();
    if (problem.truncated && problem.final_values) rollout.final_values = finals.read();
    return rollout;
}

// Compare a rollout, with random options or with none, with a scalar loop over each env.
template <class Real>
void check(const fastgae::Target& target, const Problem& problem) {
    const Index steps = problem.steps, envs = problem.envs;
    const bool env_major = problem.env_major;
    special_numbers = below(2) == 0;
    gaps = below(2) == 0;
    const auto real = [](Index, Index) { return number<Real>(); };
    const auto decay = [](Index, Index) { return Real(below(100)) / 100; };
    const auto matrix = [&](auto make) {
        Matrix<Real> result(steps, envs, env_major);
        result.fill(make);
        return result;
    };
    const auto flag = [&](Index t, Index) { return std::uint8_t(ends(problem, t) && below(3) != 0); };
    const Matrix<Real> rewards = matrix(real), values = matrix(real), finals = matrix(real), ratios = matrix(real);
    const Matrix<Real> gammas = matrix(decay), decays = matrix(decay), returns_decays = matrix(decay),
                       tails = matrix(decay);
    Matrix<double> wide_gammas(steps, envs, env_major), wide_lambdas(steps, envs, env_major);
    for (Matrix<double>* const wide : {&wide_gammas, &wide_lambdas})
        wide->fill([](Index, Index) { return double(below(1000)) / 999; });
    const auto poison = [](Index, Index) { return std::numeric_limits<Real>::signaling_NaN(); };
    // V' of the steps before the last: in a matrix of their own, in one with a row more, or in the values.
    const Index place = below(3);
    Matrix<Real> next_values(steps - (place != 1), envs, env_major), last_values(1, envs, false), later(1, envs, false);
    next_values.fill([&](Index t, Index n) { return place == 2 ? *values.view.at(t + 1, n) : number<Real>(); });
    last_values.fill(real);
    later.fill(real);
    Matrix<std::uint8_t> terminated(steps, envs, env_major), truncated(steps, envs, env_major),
        mask(steps, envs, env_major);
    terminated.fill(flag);
    truncated.fill(flag);
    // Some steps or all, or those of an answer between a prompt and padding.
    const Index existing = below(5), prompt = below(steps + 1), byte = 1 + below(2);
    mask.fill([&](Index t, Index n) {
        const bool answers = t >= prompt * (n % 3) / 2 && t + 3 * n < steps;
        return std::uint8_t((existing < 4 ? below(4) <= existing : answers) ? byte : 0);
    });
    Matrix<Real> advantages = matrix(poison), returns = matrix(poison);

    const Real gamma = Real(0.99), forgotten = Real(below(2) ? 0.99 * 0.95 : 0.5);  // slowly, and soon
    const auto factor = [](const auto& all) -> decltype(all.read()) {
        const Index kind = below(4);
        if (kind == 0) return {all.view.data, 0, 0};
        if (kind == 1) return {all.view.data, all.view.step, 0};  // one for each step
        if (kind == 2) return {all.view.data, 0, all.view.env};   // one for each env
        return all.read();
    };
    fastgae::CanonicalRollout<Real> rollout = rollout_of(problem, rewards, values, terminated, truncated, finals);
    Matrix<std::uint8_t> never(env_major ? steps : 1, env_major ? 1 : envs, env_major);
    if (below(4) == 0) rollout.terminated = {never.view.data, env_major, !env_major};  // one row for all
    rollout.next_values = next_values.read();
    if (place == 2) rollout.next_values = {values.view.at(1, 0), values.view.step, values.view.env};
    rollout.last_values = last_values.read();
    if (problem.advantages) rollout.advantages = advantages.view;
    if (problem.returns) rollout.returns = returns.view;
    rollout.gammas = {&gamma, 0, 0};
    rollout.gamma_lambdas = {&forgotten, 0, 0};
    // 0, 1 without options; 2 masked or with arrays; 3 tail-normalized; 4, 5 V-trace; 6 Retrace; 7 upgo
    const Index form = below(8);
    const bool vtrace = form == 4 || form == 5, retrace = form == 6, upgo = form == 7;
    if (form >= 2 && below(2)) rollout.gammas = factor(gammas), rollout.gamma_lambdas = factor(decays);
    if (form >= 2 && form < 6 && below(3) == 0) rollout.returns_gamma_lambdas = factor(returns_decays);
    if (form == 3) rollout.tail_lambdas = factor(tails);
    if (upgo) rollout.recursion = fastgae::Recursion::upgo;
    if (retrace) {
        rollout.recursion = fastgae::Recursion::retrace;
        rollout.ratios = ratios.read();
        rollout.wide_gammas = factor(wide_gammas);
        rollout.wide_lambdas = factor(wide_lambdas);
    }
    if (vtrace) {
        rollout.ratios = ratios.read();
        rollout.constants[fastgae::kRhoClip] = Real(1);
        rollout.constants[fastgae::kCClip] = Real(0.9);
        rollout.constants[fastgae::kAdvantageClip] = Real(1.5);
        rollout.constants[fastgae::kLeaky] = Real(below(3) == 0 ? 0.25 : 0);
    }
    if (form >= 2 && below(2)) {
        rollout.mask = mask.read();
        rollout.mask_passes_values = below(2);
        rollout.carry_over = form == 2 && below(2);
    }
    if (form != 3 && below(2)) rollout.last_advantages = later.read();
    fastgae::gae(target, rollout, problem.num_threads, below(2) ? fastgae::Store::cached : fastgae::Store::streamed);

    const auto weight = [&](Real ratio, fastgae::Constant clip) {
        const Real most = rollout.constants[clip], clipped = most < ratio ? most : ratio;
        const Real leaky = rollout.constants[fastgae::kLeaky];
        return leaky == 0 ? clipped : (1 - leaky) * clipped + leaky * ratio;
    };
    for (Index n = 0; n < envs; ++n) {
        Real next = 0, trace = rollout.last_advantages ? *later.view.at(0, n) : 0, left = 0, returns_trace = 0;
        Real a = 0, r = 0;
        double next_c = 0;
        bool rises = false;
        for (Index t = steps - 1; t >= 0; --t) {
            const bool ended = *rollout.terminated.at(t, n) != 0;
            const bool cut = problem.truncated && *truncated.view.at(t, n) != 0;
            const bool exists = !rollout.mask || *mask.view.at(t, n);
            const bool follows = !rollout.mask_passes_values || t == steps - 1 || *mask.view.at(t + 1, n);
            if (follows) next = t == steps - 1 ? *last_values.view.at(0, n) : *next_values.view.at(t, n);
            const Real value = *values.view.at(t, n), ratio = *ratios.view.at(t, n);
            const Real gl = retrace ? Real(*rollout.wide_gammas.at(t, n) * next_c) : *rollout.gamma_lambdas.at(t, n);
            Real delta = *rewards.view.at(t, n);
            const Real bootstrap = cut && problem.final_values ? *finals.view.at(t, n) : next;
            if (!ended) delta = delta + *rollout.gammas.at(t, n) * bootstrap;
            delta = delta - value;
            const auto traced = [&](Real term, Real factor, Real y) {
                return ended || cut || (upgo && !rises) ? term : term + factor * y;
            };
            const Real one_step = traced(delta, gl, trace);
            if (exists && form == 3) {
                left = traced(1, *rollout.tail_lambdas.at(t, n), left);
                trace = traced(left * delta, gl, trace);
                a = r = trace / left;
            } else if (exists && vtrace) {
                a = one_step * weight(ratio, fastgae::kAdvantageClip);
                const Real rho = weight(ratio, fastgae::kRhoClip), c = weight(ratio, fastgae::kCClip);
                r = trace = traced(rho * delta, c * gl, trace);
            } else if (exists) {
                a = r = trace = one_step;
            } else if (!rollout.carry_over) {
                a = 0;
            } else {  // A of the next step that exists
                a = r = trace;
            }
            if (exists && retrace) next_c = *rollout.wide_lambdas.at(t, n) * (ratio > 1 ? 1 : double(ratio));
            if (exists) rises = delta >= 0;
            if (exists && rollout.returns_gamma_lambdas)
                r = returns_trace = traced(delta, *rollout.returns_gamma_lambdas.at(t, n), returns_trace);
            if (!exists && rollout.carry_over && rollout.returns_gamma_lambdas) r = returns_trace;
            const Real sum = exists || rollout.carry_over ? r + value : value;
            const bool right = (!problem.advantages || same(*advantages.view.at(t, n), a)) &&
                               (!problem.returns || same(*returns.view.at(t, n), sum));
            if (!right) wrong<Real>(target, problem, "form", form, t, n);
        }
    }
}

// Compare returns of n steps that exist with the sums of their rewards, from the last one to the first.
template <class Real>
void check_n_step_returns(const fastgae::Target& target, const Problem& problem) {
    const Index steps = problem.steps, envs = problem.envs, n = 1 + below(7);
    special_numbers = below(2) == 0;
    gaps = below(2) == 0;
    const bool env_major = problem.env_major, number_gamma = below(2), masked = below(2);
    Matrix<Real> rewards(steps, envs, env_major), values(steps + 1, envs, env_major), finals(steps, envs, env_major),
        gammas(steps, envs, env_major), returns(steps, envs, env_major);
    for (Matrix<Real>* const each : {&rewards, &values, &finals})
        each->fill([](Index, Index) { return number<Real>(); });
    gammas.fill([&](Index, Index) { return number_gamma ? Real(0.9) : Real(below(100)) / 100; });
    Matrix<std::uint8_t> terminated(steps, envs, env_major), truncated(steps, envs, env_major),
        mask(steps, envs, env_major);
    for (Matrix<std::uint8_t>* const each : {&terminated, &truncated})
        each->fill([&](Index t, Index) { return std::uint8_t(ends(problem, t) && below(3) != 0); });
    mask.fill([](Index, Index) { return std::uint8_t(below(4) != 0); });
    fastgae::CanonicalRollout<Real> rollout = rollout_of(problem, rewards, values, terminated, truncated, finals);
    if (masked) rollout.mask = mask.read();
    rollout.mask_passes_values = masked && below(2);
    rollout.next_values = {values.view.at(1, 0), values.view.step, values.view.env};
    rollout.last_values = {values.view.at(steps, 0), 0, values.view.env};
    rollout.gammas = number_gamma ? View<const Real>{gammas.view.data, 0, 0} : gammas.read();
    rollout.returns = returns.view;
    fastgae::n_step_returns(target, rollout, n, problem.num_threads);
    for (Index env = 0; env < envs; ++env)
        for (Index t = 0; t < steps; ++t) {
            const auto ended = [&](Index at) { return *terminated.view.at(at, env) != 0; };
            const auto cut = [&](Index at) { return problem.truncated && *truncated.view.at(at, env) != 0; };
            const auto exists = [&](Index at) { return !masked || *mask.view.at(at, env) != 0; };
            const auto after = [&](Index at) {
                while (++at < steps && !exists(at)) continue;
                return at;
            };
            Index last = t;
            for (Index count = 1; count < n && after(last) < steps && !ended(last) && !cut(last); ++count)
                last = after(last);
            Real sum = *values.view.at(rollout.mask_passes_values ? after(last) : last + 1, env);
            if (cut(last) && problem.final_values) sum = *finals.view.at(last, env);
            for (Index at = last; at >= t; --at) {
                const Real reward = *rewards.view.at(at, env);
                if (exists(at)) sum = at == last && ended(at) ? reward : reward + *gammas.view.at(at, env) * sum;
            }
            if (!exists(t)) sum = *values.view.at(t, env);
            if (!same(*returns.view.at(t, env), sum)) wrong<Real>(target, problem, "returns of n steps", n, t, env);
        }
}

// Compare the sums and the rescaling of one matrix with loops over each env.
template <class Real>
void check_moments(const fastgae::Target& target, const Problem& problem) {
    const Index steps = problem.steps, envs = problem.envs;
    const Index blocks = (steps + fastgae::kMomentSteps - 1) / fastgae::kMomentSteps;
    special_numbers = below(2) == 0;
    Matrix<Real> matrix(steps, envs, problem.env_major);
    Matrix<std::uint8_t> mask(steps, envs, problem.env_major);
    matrix.fill([](Index, Index) { return number<Real>(); });
    mask.fill([](Index, Index) { return std::uint8_t(below(4) != 0); });
    const Index numbers = std::max(envs, fastgae::kMaxLanes), varies = -Index(below(2));
    std::vector<double> center(numbers), scale(numbers), sums(blocks * envs);
    for (Index n = 0; n < numbers; ++n) {
        const bool repeated = n && n < fastgae::kMaxLanes && !varies;  // the others must not be read then
        center[n] = repeated ? center[0] : number<double>();
        scale[n] = repeated ? scale[0] : number<double>();
    }
    const bool masked = below(2), centered = below(2), in_place = below(2);
    const View<const std::uint8_t> exists = masked ? mask.read() : View<const std::uint8_t>();
    Matrix<Real> other(steps, envs, problem.env_major);
    const View<Real> rescaled = in_place ? matrix.view : other.view;
    const double* const shift = centered ? center.data() : nullptr;
    fastgae::MaskedMatrix<Real> of = {steps,        envs,   problem.env_major, matrix.read(), exists, shift,
                                      scale.data(), varies, rescaled};
    fastgae::block_sums(target, of, problem.num_threads, sums.data());
    std::vector<Real> expected;
    bool right = true;
    for (Index n = 0; n < envs; ++n) {
        double sum = 0;
        for (Index t = 0; t < steps; ++t) {
            const Real x = *matrix.view.at(t, n);
            const double mean = center[n & varies], term = centered ? (x - mean) * (x - mean) : x;
            if (t % fastgae::kMomentSteps == 0) sum = 0;
            if (!masked || *mask.view.at(t, n)) sum += term;
            if (t + 1 == steps || (t + 1) % fastgae::kMomentSteps == 0)
                right = right && same(sums[t / fastgae::kMomentSteps * envs + n], sum);
            expected.push_back(!masked || *mask.view.at(t, n) ? static_cast<Real>((x - mean) * scale[n & varies]) : 0);
        }
    }
    of.center = center.data();
    fastgae::rescale(target, of, problem.num_threads);
    for (Index n = 0; n < envs; ++n)
        for (Index t = 0; t < steps; ++t) right = right && same(*rescaled.at(t, n), expected[n * steps + t]);
    if (!right) wrong<Real>(target, problem, "moments, masked", masked);
}

// Compare the exact sums of a matrix with sums in long long of numbers that are small multiples of 1/8, some of them
// not finite. The digits of a sum are put together in float64, where all of them are exact.
template <class Real>
void check_exact_sums(const fastgae::Target& target, const Problem& problem) {
    using Sums = fastgae::ExactSums<Real>;
    gaps = below(2) == 0;
    const Index steps = problem.steps, envs = problem.envs;
    const Real odd[] = {std::numeric_limits<Real>::quiet_NaN(), std::numeric_limits<Real>::infinity(),
                        -std::numeric_limits<Real>::infinity()};
    Matrix<Real> matrix(steps, envs, problem.env_major);
    Matrix<std::uint8_t> mask(steps, envs, problem.env_major);
    const Index rare = below(2) ? 50 : 1000000;
    matrix.fill([&](Index, Index) { return below(rare) == 0 ? odd[below(3)] : Real(below(2001) - 1000) / 8; });
    mask.fill([](Index, Index) { return std::uint8_t(below(4) != 0 ? 1 + below(255) : 0); });
    const bool masked = below(2);
    Sums sums;
    sums.add({steps, envs, problem.env_major, matrix.read(), masked ? mask.read() : View<const std::uint8_t>(), nullptr,
              nullptr});

    long long eighths = 0, squares = 0;
    Index count = 0, nans = 0, infinities[2] = {};
    for (Index t = 0; t < steps; ++t)
        for (Index n = 0; n < envs; ++n) {
            const Real x = *matrix.view.at(t, n);
            if (masked && !*mask.view.at(t, n)) continue;
            ++count;
            if (std::isnan(x)) ++nans;
            if (std::isinf(x)) ++infinities[x < 0];
            if (!std::isfinite(x)) continue;
            eighths += static_cast<long long>(8 * x);
            squares += static_cast<long long>(64 * x * x);
        }
    std::vector<std::int64_t> bins(Sums::exponents * Sums::Format::digits);
    sums.write(bins.data());
    double sum = 0, sum_of_squares = 0;
    constexpr int bias = std::numeric_limits<Real>::max_exponent - 1 + Sums::Format::fraction_bits;
    constexpr int number_digits = Sums::Format::number_digits;
    for (Index exponent = 0; exponent < Sums::exponents; ++exponent)
        for (int digit = 0; digit < Sums::Format::digits; ++digit) {
            const auto bin = static_cast<double>(bins[exponent * Sums::Format::digits + digit]);
            const int power = std::max<int>(static_cast<int>(exponent), 1) - bias;
            if (bin == 0) continue;
            if (digit < number_digits)
                sum += std::ldexp(bin, power + fastgae::kDigitBits * digit);
            else
                sum_of_squares += std::ldexp(bin, 2 * power + fastgae::kDigitBits * (digit - number_digits));
        }
    const bool right = 8 * sum == static_cast<double>(eighths) && 64 * sum_of_squares == static_cast<double>(squares) &&
                       sums.count == count && sums.nans == nans && sums.infinities[0] == infinities[0] &&
                       sums.infinities[1] == infinities[1];
    if (!right) wrong<Real>(target, problem, "exact sums, masked", masked);
}

template <class Real>
void check_all(const fastgae::Target& target, const Problem& problem) {
    for (int i = 0; i < 2; ++i) check<Real>(target, problem);
    check_n_step_returns<Real>(target, problem);
    check_moments<Real>(target, problem);
    check_exact_sums<Real>(target, problem);
}

void check_both(const fastgae::Target& target, const Problem& problem) {
    check_all<float>(target, problem);
    check_all<double>(target, problem);
}

Problem random_problem(Index steps, Index envs, Index num_threads) {
    const Index outputs = below(4);
    return {steps,        envs,         below(2) == 0, below(3) != 0, below(2) == 0,
            outputs != 1, outputs != 2, int(below(5)), num_threads};
}

}  // namespace

// `harness [problems [threads]]` runs this many small random problems on each target, some long ones, and large ones
// with up to this many threads.
int main(int argc, char** argv) {
    const int problems = argc > 1 ? std::atoi(argv[1]) : 2000;
    const Index most_threads = argc > 2 ? std::atoi(argv[2]) : 7;
    const Index edges[] = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 97, 127, 128, 129, 130};
    const Index count = sizeof edges / sizeof *edges;
    for (const fastgae::Target* const* entry = fastgae::targets; *entry; ++entry) {
        const fastgae::Target& target = **entry;
        if (!target.supported()) continue;
        for (int i = 0; i < problems; ++i)
            check_both(target, random_problem(edges[below(count)], edges[below(count)], 1));
        for (int i = 0; i < problems / 20; ++i) check_both(target, random_problem(200 + below(3000), 1 + below(9), 1));
        for (const Index num_threads : {2, 3, 7}) {
            if (num_threads > most_threads) break;
            const Index area = num_threads * fastgae::kStepsPerThread;
            for (const bool env_major : {false, true}) {
                const Index envs = (env_major ? 3 : 65) * num_threads;
                Problem problem = random_problem(area / envs + 1, envs, num_threads);
                problem.env_major = env_major;
                env_major == (num_threads == 3) ? check_all<float>(target, problem)
                                                : check_all<double>(target, problem);
            }
        }
        std::printf("%s: right\n", target.name);
    }
}
