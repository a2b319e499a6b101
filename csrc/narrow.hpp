// Inputs of 16-bit floats, which are widened to float32 as a whole, before the kernels run.
#pragma once

#include <algorithm>
#include <optional>

#include "arguments.hpp"
#include "recycled.hpp"
#include "threads.hpp"

namespace fastgae {

class NarrowInputs {
public:
    using Field = View<const float> CanonicalRollout<float>::*;

    explicit operator bool() const { return count_ > 0; }

    // Add an input of `rows` steps, which becomes a field of the rollout. The strides of `view` count its elements.
    void add(Field field, const Operand& array, const View<const float>& view, Index rows) {
        inputs_[count_++] = {field, &array, view, rows};
    }

    // Widen all inputs, and point the rollout at them.
    void widen(const Target& target, Index num_threads, RecycledMemory& memory, CanonicalRollout<float>& rollout) {
        const bool env_major = rollout.env_major;
        Index rows = 0;  // of all inputs
        for (Index i = 0; i < count_; ++i) rows += inputs_[i].rows;
        memory_.emplace(memory, rows * rollout.envs * sizeof(float));
        auto* to = static_cast<float*>(memory_->data());
        for (Index i = 0; i < count_; ++i) {
            const Input& input = inputs_[i];
            const Index count = input.rows * rollout.envs;
            const Index width = env_major ? input.rows : rollout.envs;  // of a row in memory
            const Index stride = env_major ? input.view.env : input.view.step;
            const Index length = stride == width ? count : width;  // dense rows are widened at once
            const Widen widen = input.array->stored == Stored::bf16 ? target.widen_bfloat16 : target.widen_float16;
            const Spans spans(count, 64, useful_threads(num_threads, input.rows, rollout.envs));
            spread(spans, [&](Index, Index first, Index last) {
                for (Index some; first < last; first += some) {
                    const Index run = first / length, begin = first % length;
                    some = std::min(length - begin, last - first);
                    widen(input.array->data + 2 * (run * stride + begin), some, to + first);
                }
            });
            rollout.*input.field = {to, env_major ? 1 : width, env_major ? width : 1};
            to += count;
        }
    }

private:
    struct Input {
        Field field;
        const Operand* array;
        View<const float> view;
        Index rows;
    };
    Input inputs_[std::size(kNumbers)];
    Index count_ = 0;
    std::optional<RecycledBlock> memory_;
};

}  // namespace fastgae
