// Rollouts with 16-bit inputs, which are widened to float32 for the kernels.
//
// A large rollout is widened piece by piece: some steps of some envs at a time, in memory that stays in a cache, where
// the float32 kernels read them. The recursion is carried from one piece to the piece before it. So such a rollout
// moves fewer bytes than a float32 rollout, and its results are the same bits as if it had been widened as a whole.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "arguments.hpp"
#include "parallel.hpp"

namespace fastgae {

// The steps [bottom, top) of the envs [first, last).
struct Piece {
    Index bottom, top, first, last;
};

// The inputs of a rollout that are stored in 16 bits.
class NarrowInputs {
public:
    using Rollout = RolloutWithOptions<float>;
    struct Input {
        View<const float> Rollout::* field;  // what becomes of it
        Stored stored;
        const char* data;
        Index step, env;  // strides in elements
        Index rows;
    };

    explicit operator bool() const { return count_ > 0; }

    void add(const Input& input) { inputs_[count_++] = input; }

    // Set whether V' is V one row later, and whether V' of the last step is stored after the other next values.
    void set_following(bool next_values, bool last_values) {
        next_values_follow_ = next_values;
        last_values_follow_ = last_values;
    }

    // Return how many bytes `widen` writes at most for a rollout as a whole.
    template <class Real>
    Index bytes(const RolloutWithOptions<Real>& rollout) const {
        return room(rollout.steps, rollout.envs, rollout.env_major) * Index(sizeof(float));
    }

    // Return how many numbers `widen` writes at most for pieces of this many steps and envs.
    Index room(Index steps, Index envs, bool env_major) const {
        return count_ * ((env_major ? envs * pitch(steps) : (steps + 1) * envs) + kGap);
    }

    // Widen a piece of every input to memory that has room for it, and point the rollout at it. There the steps and
    // envs of the piece keep their indices; all others are out of bounds.
    void widen(const Target& target, const Piece& piece, void* memory, Rollout& rollout) const {
        auto* to = static_cast<float*>(memory);
        const bool env_major = rollout.env_major;
        const Index envs = piece.last - piece.first;
        for (Index i = 0; i < count_; ++i) {
            const Input& input = inputs_[i];
            const Widen widen = input.stored == Stored::bf16 ? target.widen_bfloat16 : target.widen_float16;
            // V' of the last step may be V one row later.
            const bool one_more = next_values_follow_ && input.field == &Rollout::values;
            const Index steps = std::min(piece.top + one_more, input.rows) - piece.bottom;
            const Index runs = env_major ? envs : steps, length = env_major ? steps : envs;
            const Index stride = env_major ? pitch(piece.top - piece.bottom) : envs;
            const Index between = 2 * (env_major ? input.env : input.step);
            const char* const from = input.data + 2 * (piece.bottom * input.step + piece.first * input.env);
            for (Index run = runs - 1; run >= 0; --run)
                widen(from + run * between, length, -between, to + run * stride);
            const Index step = env_major ? 1 : stride, env = env_major ? stride : 1;
            rollout.*input.field = {to - piece.bottom * step - piece.first * env, step, env};
            to += runs * stride + kGap;
        }
        if (next_values_follow_)
            rollout.next_values = {rollout.values.at(1, 0), rollout.values.step, rollout.values.env};
        if (last_values_follow_)
            rollout.last_values = {rollout.next_values.at(rollout.steps - 1, 0), 0, rollout.next_values.env};
    }

    // Collect the addresses of a piece of all inputs and flags, which kernels prefetch.
    Ahead ahead(const Rollout& rollout, const Piece& piece, Ahead::Run* runs) const {
        Ahead result = {runs, runs, 0};
        const bool env_major = rollout.env_major;
        const auto add = [&](const char* data, Index step, Index env, Index size) {
            const Index steps = piece.top - piece.bottom, envs = piece.last - piece.first;
            const Index stride = size * (env_major ? env : step), length = size * (env_major ? steps : envs);
            data += size * (piece.bottom * step + piece.first * env);
            for (Index run = (env_major ? envs : steps) - 1; run >= 0; --run)
                *result.last++ = {data + run * stride, data + run * stride + length};
            result.bytes += size;
        };
        for (Index i = 0; i < count_; ++i) add(inputs_[i].data, inputs_[i].step, inputs_[i].env, 2);
        for (const View<const std::uint8_t>* flags : {&rollout.terminated, &rollout.truncated, &rollout.mask})
            if (*flags) add(reinterpret_cast<const char*>(flags->data), flags->step, flags->env, 1);
        return result;
    }

    static constexpr Index kArrays = 8;  // five inputs and three flags

private:
    // Kernels may read a whole vector at the end of an env. The steps of a piece are a power of two: without a gap all
    // its envs would fall into one cache set.
    static constexpr Index kGap = 32;
    static constexpr Index pitch(Index steps) { return rounded_up(steps + 1, 16) + kGap; }

    Input inputs_[5];  // rewards, values, next_values, final_values and ratios
    Index count_ = 0;
    bool next_values_follow_ = false, last_values_follow_ = false;
};

// Return whether a rollout is computed piece by piece. Small rollouts stay in a cache anyway. Rollouts of few envs are
// cut along time by kernels that need the whole rollout, and n-step returns need it too.
template <class Real>
bool in_pieces(const Target& target, const Call& call, const RolloutWithOptions<Real>& rollout) {
    return call.recursion != Recursion::n_step_returns && rollout.steps * rollout.envs >= kNarrowSteps &&
           rollout.envs >= target.f32.width;
}

// Env-major: some lanes, from their last steps to their first.
inline void pieces_of_lanes(const Target& target, const NarrowInputs& narrow, const RolloutWithOptions<float>& rollout,
                            bool plain, Index num_threads, Store store) {
    const Kernels<float>& kernel = target.f32;
    const Index lanes = std::min(kernel.width, kTileLanes), steps = rollout.steps, end = rounded_up(steps, kBlockSteps);
    // The kernel without options skips the steps after the last one; the kernel with options skips the steps before the
    // first.
    const Index origin = plain ? 0 : steps - end;
    const Spans spans(rollout.envs, lanes, num_threads);
    const Scratch<float> scratch(plain ? kernel.lanes_scratch : kernel.options_scratch, spans.number);
    const Scratch<float> widened(narrow.room(kNarrowPieceSteps, lanes, true), spans.number);
    const auto piece_of = [&](Index first, Index last, Index top) {
        const Index bottom = std::max<Index>(0, top - kNarrowPieceSteps);
        return Piece{std::max<Index>(0, origin + bottom), std::min(origin + top, steps), first,
                     std::min(first + lanes, last)};
    };
    spread(spans, [&](Index thread, Index first, Index last) {
        RolloutWithOptions<float> piece = rollout;
        Ahead ahead;
        Ahead::Run runs[NarrowInputs::kArrays * kMaxLanes];
        piece.ahead = &ahead;
        for (; first < last; first += lanes) {
            const Index count = std::min(lanes, last - first);
            Lane taken[kMaxLanes];
            alignas(64) float states[kStates * kMaxLanes] = {};
            for (Index i = 0; i < count; ++i) {
                taken[i] = {first + i, origin};
                if (!plain) begin_states(rollout, first + i, states + i, kMaxLanes);
            }
            for (Index top = end, bottom; top > 0; top = bottom) {
                bottom = std::max<Index>(0, top - kNarrowPieceSteps);
                narrow.widen(target, piece_of(first, last, top), widened.of(thread), piece);
                const bool ends = bottom == 0;  // so the next piece belongs to the lanes that follow
                ahead = {};
                if (!ends) ahead = narrow.ahead(rollout, piece_of(first, last, bottom), runs);
                if (ends && first + lanes < last)
                    ahead = narrow.ahead(rollout, piece_of(first + lanes, last, end), runs);
                const auto run = [&](const auto& kernel_of) {
                    kernel_of(piece, taken, count, bottom, top, states, scratch.of(thread), store);
                };
                plain ? run(kernel.lanes) : run(kernel.lanes_with_options);
            }
        }
        kernel.finish(store);
    });
}

// Return the steps [bottom, top) of a time-major rollout as a separate rollout. V' of its last step is stored after the
// other next values, or at the same place as in the whole rollout.
inline RolloutWithOptions<float> rows_of(const RolloutWithOptions<float>& rollout, Index bottom, Index top) {
    RolloutWithOptions<float> rows = rollout;
    rows.steps = top - bottom;
    const auto begin = [&](auto&... views) { ((views.data = views ? views.at(bottom, 0) : nullptr), ...); };
    begin(rows.rewards, rows.values, rows.next_values, rows.final_values, rows.terminated, rows.truncated,
          rows.advantages, rows.returns, rows.gammas, rows.gamma_lambdas, rows.returns_gamma_lambdas, rows.tail_lambdas,
          rows.mask, rows.ratios);
    if (rows.sparse_finals) rows.sparse_finals.starts += bottom;
    if (top < rollout.steps) rows.last_values = {rows.next_values.at(rows.steps - 1, 0), 0, rows.next_values.env};
    return rows;
}

// Time-major: some rows, from the last to the first.
inline void pieces_of_rows(const Target& target, const NarrowInputs& narrow, const RolloutWithOptions<float>& rollout,
                           bool plain, Index num_threads, Store store) {
    const Kernels<float>& kernel = target.f32;
    const Index envs = rollout.envs;
    const Spans spans(envs, 64, num_threads);
    const Index columns = std::min(spans.length, kNarrowPieceColumns);
    const Index rows = std::max(kNarrowPieceRows, kNarrowPieceColumns * kNarrowPieceRows / columns);
    // As in gae_time_major.
    const auto results =
        reinterpret_cast<std::uintptr_t>(rollout.advantages ? rollout.advantages.data : rollout.returns.data);
    const Index shift = store == Store::streamed ? results % 64 / sizeof(float) : 0;
    const Index carried = columns + 64 / Index(sizeof(float));
    const Scratch<float> carries(shift + carried + columns, spans.number);
    const Scratch<float> states(plain ? 0 : kStates * envs), scratch(plain ? 0 : kernel.options_scratch, spans.number);
    const Scratch<float> widened(narrow.room(rows, columns, false), spans.number);
    std::vector<Ahead::Run> runs(NarrowInputs::kArrays * rows * spans.number);
    const bool passes_values = !plain && rollout.mask && rollout.mask_passes_values;
    for (Index n = 0; n < envs && !plain; ++n) begin_states(rollout, n, states.of(0) + n, envs);

    spread(spans, [&](Index thread, Index first, Index last) {
        RolloutWithOptions<float> piece = rollout;
        Ahead ahead;
        Ahead::Run* const taken = runs.data() + thread * NarrowInputs::kArrays * rows;
        piece.ahead = &ahead;
        float *const carry = carries.of(thread) + shift, *const others = carry + carried;
        for (Index end; first < last; first = end) {
            end = std::min(first + columns, last);
            std::fill_n(carry, end - first, 0.0f);
            for (Index top = rollout.steps, bottom; top > 0; top = bottom) {
                bottom = std::max<Index>(0, top - rows);
                narrow.widen(target, {bottom, top, first, end}, widened.of(thread), piece);
                ahead = narrow.ahead(rollout, {std::max<Index>(0, bottom - rows), bottom, first, end}, taken);
                RolloutWithOptions<float> here = rows_of(piece, bottom, top);
                if (plain) {
                    kernel.rows(here, first, end, carry, others, store);
                    continue;
                }
                if (passes_values && top < rollout.steps) {  // V' of the step before a skipped one is that one's V'
                    const float* const passed = states.of(0) + kNextValue * envs + first;
                    const float* const values = here.last_values.at(0, first);
                    const std::uint8_t* const exists = rollout.mask.at(top, first);
                    for (Index n = 0; n < end - first; ++n) others[n] = exists[n] ? values[n] : passed[n];
                    here.last_values = {others - first, 0, 1};
                }
                kernel.rows_with_options(here, first, end, states.of(0) + first, scratch.of(thread), store);
            }
        }
        kernel.finish(store);
    });
}

// Compute a rollout piece by piece.
inline void gae_in_pieces(const Target& target, const NarrowInputs& narrow, const RolloutWithOptions<float>& rollout,
                          bool plain, Index num_threads) {
    const Index threads = useful_threads(num_threads, rollout.steps, rollout.envs);
    const auto run = rollout.env_major ? pieces_of_lanes : pieces_of_rows;
    run(target, narrow, rollout, plain, threads, store_of(rollout, stream_bytes));
}

}  // namespace fastgae
