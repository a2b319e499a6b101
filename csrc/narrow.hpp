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
    using CanonicalRollout = fastgae::CanonicalRollout<float>;
    struct Input {
        View<const float> CanonicalRollout::* field;  // what becomes of it
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
    Index bytes(const fastgae::CanonicalRollout<Real>& rollout) const {
        return room(rollout.steps, rollout.envs, rollout.env_major) * Index(sizeof(float));
    }

    // Return how many numbers `widen` writes at most for pieces of this many steps and envs.
    Index room(Index steps, Index envs, bool env_major) const {
        return kGap + count_ * ((env_major ? envs * pitch(steps) : (steps + 1) * envs) + kGap);
    }

    // Widen a piece of every input to memory that has room for it, and point the rollout at it. There the steps and
    // envs of the piece keep their indices; all others are out of bounds.
    void widen(const Target& target, const Piece& piece, void* memory, CanonicalRollout& rollout) const {
        auto* to = static_cast<float*>(memory) + kGap;
        const bool env_major = rollout.env_major;
        const Index envs = piece.last - piece.first;
        for (Index i = 0; i < count_; ++i) {
            const Input& input = inputs_[i];
            const Widen widen = input.stored == Stored::bf16 ? target.widen_bfloat16 : target.widen_float16;
            // V' of the last step may be V one row later.
            const bool one_more = next_values_follow_ && input.field == &CanonicalRollout::values;
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
    Ahead ahead(const CanonicalRollout& rollout, const Piece& piece, Ahead::Run* runs) const {
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
    // Kernels may read a whole vector before an env, and a step after its last one. The steps of a piece are a power of
    // two: without a gap all its envs would fall into one cache set.
    static constexpr Index kGap = 32;
    static constexpr Index pitch(Index steps) { return rounded_up(steps + 1, 16) + kGap; }

    Input inputs_[5];  // rewards, values, next_values, final_values and ratios
    Index count_ = 0;
    bool next_values_follow_ = false, last_values_follow_ = false;
};

// Return whether a rollout is computed piece by piece. Small rollouts stay in a cache anyway. Rollouts of few envs are
// cut along time by kernels that need the whole rollout, and n-step returns need it too.
template <class Real>
bool in_pieces(const Target& target, const Call& call, const CanonicalRollout<Real>& rollout) {
    return call.recursion != Recursion::n_step_returns && rollout.steps * rollout.envs >= kNarrowSteps &&
           rollout.envs >= target.f32.width;
}

// Env-major: some lanes, from their last steps to their first.
inline void pieces_of_lanes(const Target& target, const NarrowInputs& narrow, const CanonicalRollout<float>& rollout,
                            Index num_threads, Store store) {
    const Kernels<float>& kernel = target.f32;
    const Index lanes = kernel.width, steps = rollout.steps, end = rounded_up(steps, kBlockSteps);
    const Index origin = steps - end;  // the kernel skips the steps before the first one
    const Spans spans(rollout.envs, lanes, num_threads);
    const Scratch<float> scratch(lanes_scratch(kernel, rollout), spans.number);
    const Scratch<float> widened(narrow.room(kNarrowPieceSteps, lanes, true), spans.number);
    const auto piece_of = [&](Index first, Index last, Index top) {
        const Index bottom = std::max<Index>(0, top - kNarrowPieceSteps);
        return Piece{std::max<Index>(0, origin + bottom), origin + top, first, std::min(first + lanes, last)};
    };
    spread(spans, [&](Index thread, Index first, Index last) {
        CanonicalRollout<float> piece = rollout;
        Ahead ahead;
        Ahead::Run runs[NarrowInputs::kArrays * kMaxLanes];
        piece.ahead = &ahead;
        for (; first < last; first += lanes) {
            const Index count = std::min(lanes, last - first);
            Lane taken[kMaxLanes];
            alignas(64) float states[kStates * kMaxLanes] = {};
            for (Index i = 0; i < count; ++i) {
                taken[i] = {first + i, origin};
                begin_states(rollout, first + i, states + i, kMaxLanes);
            }
            for (Index top = end, bottom; top > 0; top = bottom) {
                bottom = std::max<Index>(0, top - kNarrowPieceSteps);
                narrow.widen(target, piece_of(first, last, top), widened.of(thread), piece);
                const bool ends = bottom == 0;  // so the next piece belongs to the lanes that follow
                ahead = {};
                if (!ends) ahead = narrow.ahead(rollout, piece_of(first, last, bottom), runs);
                if (ends && first + lanes < last)
                    ahead = narrow.ahead(rollout, piece_of(first + lanes, last, end), runs);
                kernel.lanes(piece, taken, count, bottom, top, states, kMaxLanes, scratch.of(thread), store);
            }
        }
        kernel.finish(store);
    });
}

// Time-major: some rows, from the last to the first.
inline void pieces_of_rows(const Target& target, const NarrowInputs& narrow, const CanonicalRollout<float>& rollout,
                           Index num_threads, Store store) {
    const Kernels<float>& kernel = target.f32;
    const Spans spans(rollout.envs, 64, num_threads);
    const Index columns = std::min(spans.length, kNarrowPieceColumns);
    const Index rows = std::max(kNarrowPieceRows, kNarrowPieceColumns * kNarrowPieceRows / columns);
    const SweepMemory<float> memory(rollout, columns, spans.number, store);
    const Scratch<float> widened(narrow.room(rows, columns, false), spans.number);
    std::vector<Ahead::Run> runs(NarrowInputs::kArrays * rows * spans.number);

    spread(spans, [&](Index thread, Index first, Index last) {
        CanonicalRollout<float> piece = rollout;
        Ahead ahead;
        Ahead::Run* const taken = runs.data() + thread * NarrowInputs::kArrays * rows;
        piece.ahead = &ahead;
        for (Index end; first < last; first = end) {
            end = std::min(first + columns, last);
            memory.begin(thread, first, end);
            for (Index top = rollout.steps, bottom; top > 0; top = bottom) {
                bottom = std::max<Index>(0, top - rows);
                narrow.widen(target, {bottom, top, first, end}, widened.of(thread), piece);
                ahead = narrow.ahead(rollout, {std::max<Index>(0, bottom - rows), bottom, first, end}, taken);
                memory.run(kernel, piece.rows(bottom, top), thread, first, end, store);
            }
        }
        kernel.finish(store);
    });
}

// Compute a rollout piece by piece.
inline void gae_in_pieces(const Target& target, const NarrowInputs& narrow, const CanonicalRollout<float>& rollout,
                          Index num_threads) {
    const Index threads = useful_threads(num_threads, rollout.steps, rollout.envs);
    const auto run = rollout.env_major ? pieces_of_lanes : pieces_of_rows;
    run(target, narrow, rollout, threads, store_of(rollout, stream_bytes));
}

}  // namespace fastgae
