"""The conventions that ``identify`` knows, as data: what a loop may do, and the call of fastgae that does the same.

A convention is some ``Choice``s. Each changes a few of the expressions in ``Fields``, and ``call_of`` makes one call of
fastgae of them, as text. The search evaluates this text, so a report shows the very call that it compared.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, product
from typing import NamedTuple

NOTHING = "0 * {v}[0]"  # for ``last``

# Name -> an expression of NumPy. A name in braces stands for the expression of that name.
Fields = dict[str, str]

DEFAULTS: Fields = {
    "r": "rewards",
    "v": "values",
    "last": "last_values",  # V after the last step
    "final": "final_values",
    "following": "np.concatenate([{v}[1:], {last}[np.newaxis]])",  # V of the next row
    "n": "{following}",  # V', the next value that is used
    "e": "terminated",
    "u": "truncated",
    "either": "({e} | {u})",
    "nowhere": "({e} & False)",
    "b": "{e}",  # where the bootstrap is closed
    "c": "{either}",  # where the trace is closed
    "discount": "gamma",
    "decay": "gamma * gae_lambda",
    "delta": "(({r} + {discount} * np.where({b}, 0, {n})) - {v})",
    "estimator": "gae",
    "settings": "",  # other arguments of the estimator
    "coefficients": "gamma=gamma, gae_lambda=gae_lambda",
    "less": "",  # what is subtracted from its result to give advantages
    "order": "",  # of the rows of its result
}

LATE = "np.concatenate([{0}[:1] & False, {0}[:-1]])"
EARLY = "np.concatenate([{0}[1:], {0}[:1] & False])"
BEGINS = "right only if row t says that observation t begins an episode"
EARLY_REWARDS = "np.concatenate([{r}[1:], {r}[:1] * 0])"
MASKED = {"r": "({r} * mask)", "v": "({v} * mask)", "settings": ""}
FINAL = "bootstrap truncated steps with V of their final observation"
CUT = "cut the bootstrap where terminated, and the trace where terminated or truncated"
OWN_ROW = "read the flag of row t at step t"
LAST_ROW = "bootstrap the last row with V of the state after it"
NEXT_EPISODE = "values and advantages of the next episode leak into this one"
LAMBDA = "multiply the next advantage by gamma * gae_lambda"

# What may be wrong: name -> why, and what to change. A choice with another name is no mistake.
MISTAKES = {
    "flags_late": (
        "each episode runs on for one step, into the first step of the next episode",
        f"{OWN_ROW}; if row t is about step t, names={{...: 'done'}} says so",
    ),
    "flags_early": (
        "each episode ends one step too early",
        f"{OWN_ROW}; if row t is about observation t, names={{...: 'starts'}} and an argument next_done say so",
    ),
    "flags_apart": ("each episode ends at another step for its bootstrap than for its trace", OWN_ROW),
    "flags_inverted": ("every step but the last one of an episode is taken for its end", "multiply by 1 - flag"),
    "rewards_late": (
        "each action is judged by the reward of the action before it",
        "read the reward of row t at step t",
    ),
    "rewards_early": ("each action is judged by the next reward", "read the reward of row t at step t"),
    "rewards_whitened": (
        "rewards of other steps change the reward of a step, and a step that costs may seem to pay",
        "divide rewards by a running std, and leave their mean; or normalise the advantages",
    ),
    "last_row_dropped": (
        "its reward and its flag have no effect, and its action is not judged: of T steps, T - 1 teach something",
        "give the last row an advantage, too, with V of the state after it",
    ),
    "last_values_ignored": ("the last episode of the rollout looks as if it had ended there", LAST_ROW),
    "last_values_of_the_last_step": ("V' of the last step is V of the state before its action", LAST_ROW),
    "last_values_of_the_first_step": ("V' of the last step is V of the first state of the rollout", LAST_ROW),
    "last_values_twice": (
        "V' of the step before the last one is not the value of the state to which it led",
        "bootstrap it with V of the last state",
    ),
    "last_values_missing": (
        "an episode that goes on after the last row looks as if it had ended there",
        "take V of the state after the last step, as an argument or as one more row of values",
    ),
    "truncation_as_termination": (
        "the state after a truncated step has no value then, so values near a time limit become too small",
        FINAL,
    ),
    "value_of_padding": (
        "what masked steps hold flows into the last step of an answer",
        "multiply rewards and values by the mask",
    ),
    "value_of_the_same_state": ("V(s_t) is not the value of the state to which the step led", FINAL),
    "value_of_the_reset_observation": ("values[t + 1] belongs to the first observation of the next episode", FINAL),
    "truncation_dropped": ("truncated steps, and their rewards, teach nothing", FINAL),
    "ends_dropped": (
        "the last reward of an episode, often its only one, teaches nothing",
        "let the TD error of a terminated step be r_t - V(s_t)",
    ),
    "truncation_ignored": (NEXT_EPISODE, CUT),
    "bootstrap_at_termination": ("a terminated state has no value", CUT),
    "bootstrap_cut_early": ("V of the last state of each episode is never used, and V of the next episode is", OWN_ROW),
    "trace_cut_early": (
        "the step before the last one of an episode knows nothing of the end, and the next episode leaks into the last",
        OWN_ROW,
    ),
    "flags_ignored": (NEXT_EPISODE, CUT),
    "trace_not_cut": ("advantages of the next episode leak into this one", CUT),
    "flags_mixed_up": (
        "values are taken where there are none and left out where there are some, or the next episode leaks in",
        CUT,
    ),
    "rows_reversed": (
        "each action is judged by the advantage of another one",
        "reverse the list that is filled from the last step to the first",
    ),
    "one_episode": (
        "values and advantages of the next episode, or of masked steps, leak into this one",
        "pass one episode per call, or per row of a padded batch",
    ),
    "values_not_subtracted": (
        "the result grows with V(s_t), so it is no advantage",
        "subtract values[t] from the target of step t",
    ),
    "values_exchanged": ("good steps look bad", "subtract values[t], and bootstrap from the next value"),
    "no_bootstrap": (
        "the value of the next state is missing from every target",
        "add gamma * V' to the reward where not terminated",
    ),
    "discount_missing": ("the target of a step is wrong", "multiply V' by gamma"),
    "coefficients_exchanged": ("the target of a step is wrong", "multiply V' by gamma"),
    "lambda_missing": ("gae_lambda has no effect on the trace", LAMBDA),
    "gamma_missing": ("later rewards count too much", LAMBDA),
    "gamma_twice": ("later rewards count too little", LAMBDA),
    "no_trace": ("gae_lambda has no effect", LAMBDA),
    "coefficient_ignored": ("who passes another number trains with the old one", "use the argument, or do without it"),
    "returns_of_normalised_advantages": (
        "the critic learns values in units of the normalised advantages, and not of the rewards",
        "add values to the advantages before they are normalised",
    ),
    "returns_normalised": (
        "the critic then learns numbers that are not in units of the rewards, with which V' is added to rewards",
        "return advantages + values, and normalise only advantages",
    ),
    "first_flag": (
        "the first rollout of a training begins with an episode, and so may others",
        "leave the flag of row 0 out: it is about a step before the rollout",
    ),
    "numbers_clipped": (
        "beyond some number, a better step is no better",
        "clip rewards before they are stored, and leave TD errors and advantages as they are",
    ),
    "long_rollouts": (
        "the weights of late steps become 0 or infinite, or are cut off",
        "add up from the last step to the first, with one number that goes on from step to step",
    ),
    "one_env": ("each env gets advantages of others", "keep each env in its own column, or pass one env per call"),
    "raises": ("such rollouts occur, and stop the training", "let it take rollouts of any length, and any flags"),
    "inputs_written": ("the caller's arrays change", "write into new arrays"),
    "not_deterministic": (
        "nobody can repeat a run",
        "look for random numbers, for memory that is not initialised, and for what an earlier call has left",
    ),
    "not_finite": ("they spread to the loss", "look for a division by 0"),
    "output_unknown": (
        "nothing was compared with it",
        "return advantages + values if it is meant as returns, or leave it out, in a lambda, if it is something else",
    ),
    "outputs_equal": (
        "if one of them is meant as returns, the critic learns advantages, or the policy returns",
        "return advantages, and advantages + values as returns",
    ),
    "outputs_exchanged": (
        "if they are used as they are called, the policy or the critic learns from the wrong one",
        "return advantages as advantages, and advantages + values as returns",
    ),
    "both_flags": (
        "Gymnasium may set both. The episode ended for good then",
        "let terminated win: do not bootstrap there",
    ),
}
ONE_EPISODE = "each call gets one episode, with the flag in its last row"
# What is said of a mistake that is no choice of a convention.
ODD = {
    "one_episode": "right only if {}: with more, it is nothing that fastgae knows",
    "first_flag": "not the same as fastgae's where observation 0 begins an episode: {}",
    "outputs_exchanged": "{}",
    "numbers_clipped": "right only where rewards and values are small: {}",
    "long_rollouts": "right only in short episodes, and not the same as fastgae's in long ones: {}",
    "one_env": "right only if each call gets one env: with {}, it gives nothing that fastgae knows",
    "last_values_missing": "right only if the last row ends an episode: there is no V after it",
    "raises": "it stops at some rollouts: {}",
    "inputs_written": "it writes into {}",
    "not_deterministic": "two calls with the same arrays give different numbers in {}",
    "not_finite": "{} has numbers that are not finite, from rewards and values that are",
    "output_unknown": "{} is nothing that fastgae knows",
    "outputs_equal": "{} are returned twice",
    "coefficient_ignored": "{} has no effect, because the function has a number of its own",
    "both_flags": "not the same as fastgae's where terminated and truncated are both set: {}",
    "returns_of_normalised_advantages": "{} is returns of normalised advantages",
    "returns_normalised": "right only if V is scaled back before it is used: {} is normalised",
}


class Choice(NamedTuple):
    """One thing that a loop may do in place of what fastgae does."""

    words: str
    name: str
    needs: tuple[str, ...]  # a function must have one of them, if there are any, so that the choice has a meaning
    fields: Fields

    @property
    def wrong(self) -> bool:
        return self.name in MISTAKES


def does(words: str) -> Callable[..., Choice]:
    """Return a function that makes the choice of its name, what it needs, and the expressions that it changes."""
    return lambda name, *needs, **fields: Choice(words, name, needs, fields)


def _moved(flags: str) -> Fields:
    return {"e": flags.format("{e}"), "u": flags.format("{u}")}


def _one_row_less(rows: str) -> Fields:
    """Return the fields of a loop that gives these rows, and takes the last value for the one after them."""
    of_rows = {name: f"{{{name}}}[{rows}]" for name in ("r", "e", "u", "final")}
    return {**of_rows, "v": "values[:-1]", "last": "values[-1]", "settings": ""}


# In each axis, at most one choice is made. Those that need "e" or "u" are for functions with one or two flags.
AXES: dict[str, tuple[Choice, ...]] = {
    "flags": (
        *(
            does(f"step t takes the flag of row t {row}")(f"flags_{word}", "e", **_moved(flags))
            for word, row, flags in (
                ("late", "- 1", LATE),
                ("late", "- 1, and the last step its own", f"np.concatenate([{LATE}[:-1], {{0}}[-1:]])"),
                ("early", f"+ 1, and the last step none: {BEGINS}", EARLY),
                ("early", f"+ 1, and the last step its own: {BEGINS}", "np.concatenate([{0}[1:], {0}[-1:]])"),
            )
        ),
        *(
            does(f"step t takes {name} of row {row}, and the other flag of its own row")(
                "flags_apart", "u", **{field: flags.format(f"{{{field}}}")}
            )
            for field, name in (("e", "terminated"), ("u", "truncated"))
            for row, flags in (("t - 1", LATE), ("t + 1", EARLY))
        ),
        does("a flag that is False ends the episode")("flags_inverted", "e", e="~{e}"),
        does("the flag of the last step has no effect")(
            "flags_ignored", "next_done", "next_going_on", **_moved("np.concatenate([{0}[:-1], {0}[-1:] & False])")
        ),
        does("the last step takes the flag of its own observation, and not of the next one")(
            "flags_ignored", "next_done", "next_going_on", **_moved(f"np.concatenate([{{0}}[:-1], {LATE}[-1:]])")
        ),
    ),
    "rewards": (
        does("step t takes the reward of row t - 1")("rewards_late", r="np.concatenate([{r}[:1] * 0, {r}[:-1]])"),
        does("right only if rewards[t] came with observation t: step t takes the reward of row t + 1")(
            "rewards_early", r=EARLY_REWARDS
        ),
        *(
            does(f"rewards are normalised{words}: mean 0, {std} 1")(
                "rewards_whitened", r=f"(({{r}} - {{r}}.mean({axis})) / ({{r}}.std({axis}{ddof}) + 1e-8))"
            )
            for axis, words in (("", ""), ("0", " in each env"))
            for ddof, std in (("", "std"), (f"{', ' * bool(axis)}ddof=1", "Bessel's std"))
        ),
    ),
    "rows": (
        does("rewards and flags come one row late, with the next observation, and the last row gives nothing")(
            "rows_late",
            "e",
            **_moved(EARLY),
            r=EARLY_REWARDS,
            last="0 * {v}[-1]",
            delta="np.concatenate([{delta}[:-1], {delta}[:1] * 0])",
        ),
        does("rewards and flags come one row late, with the next observation, and there is one result less")(
            "rows_late", "same rows", **_one_row_less("1:")
        ),
    ),
    "last": (
        does("the last row gives no advantage, and its V is the bootstrap of the row before")(
            "last_row_dropped", "T values", **_one_row_less(":-1")
        ),
        does("after the last step, V is 0")("last_values_ignored", "last", last=NOTHING),
        does("the last step bootstraps from V of its own state")(
            "last_values_of_the_last_step", "last", "same rows", last="{v}[-1]"
        ),
        does("the last step bootstraps from V of row 0, as np.roll(values, -1) gives it")(
            "last_values_of_the_first_step", "last", "same rows", last="{v}[0]"
        ),
        does("the step before the last one bootstraps from V after the last one")(
            "last_values_twice", "e", v="np.concatenate([{v}[:-1], np.where({e}[-1:], 0, last_values)])"
        ),
    ),
    "ends": (
        does("a truncated step counts as terminated")("truncation_as_termination", "u", b="{either}", c="{either}"),
        does("a truncated step bootstraps from V(s_t), the state before its action")(
            "value_of_the_same_state", "u", n="np.where({u}, {v}, {following})"
        ),
        does(
            'right only if row t + 1 holds the final observation, as with autoreset="next_step": a truncated step '
            "bootstraps from values[t + 1]"
        )("value_of_the_reset_observation", "u", n="{following}"),
        does("the TD error of a truncated step is 0, so its advantage is 0 and its return is V")(
            "truncation_dropped", "u", r="np.where({u}, {v}, {r})", b="{either}", c="{either}", n="{following}"
        ),
        does("the TD error of a step that ends an episode is 0, so its advantage is 0 and its return is V")(
            "ends_dropped", "e", r="np.where({either}, {v}, {r})", b="{either}", c="{either}"
        ),
        does("V(s_t) is not subtracted in the TD error of a step that ends an episode")(
            "values_not_subtracted", "e", r="np.where({either}, {r} + {v}, {r})"
        ),
        does(
            "truncation counts as termination, and the step before a truncated one takes no advantage from it, because "
            "truncated steps are left out of the loss"
        )("steps_before_truncation", "u", b="{either}", c=f"({{either}} | {EARLY.format('{u}')})"),
        does("right only if V' is 0 where terminated: flags cut the trace alone, and every step bootstraps")(
            "bootstrap_at_termination", "e", b="{nowhere}", c="{either}"
        ),
        does("flags cut the trace alone, and every step bootstraps from values[t + 1]")(
            "bootstrap_at_termination", "e", b="{nowhere}", c="{either}", n="{following}"
        ),
        does("the bootstrap takes the flag of row t + 1, and the trace the flag of row t")(
            "bootstrap_cut_early", "e", b=EARLY.format("{either}"), c="{either}"
        ),
        does("the trace takes the flags of row t + 1, and the bootstrap those of row t")(
            "trace_cut_early", "e", c=EARLY.format("{either}")
        ),
        does("a truncated step is no boundary: bootstrap and trace go on to the next row")(
            "truncation_ignored", "u", c="{e}", n="{following}"
        ),
        does("flags have no effect")("flags_ignored", "e", b="{nowhere}", c="{nowhere}", n="{following}"),
        does("the trace is never cut")("trace_not_cut", "e", c="{nowhere}"),
        does("the trace is cut where terminated alone")("trace_not_cut", "u", c="{e}"),
        does("no end bootstraps, and none cuts the trace")(
            "trace_not_cut", "u", b="{either}", c="{nowhere}", n="{following}"
        ),
        does("no end bootstraps, and terminated cuts the trace")(
            "trace_not_cut", "u", b="{either}", c="{e}", n="{following}"
        ),
        *(
            does(f"terminated and truncated are mixed up: {words}")("flags_mixed_up", "u", b=b, c=c, n=n)
            for words, b, c in (
                ("truncated steps do not bootstrap, and terminated steps do", "{u}", "{either}"),
                ("truncated steps end the episode, and terminated steps do not", "{u}", "{u}"),
                ("truncated closes the bootstrap, and terminated cuts the trace", "{u}", "{e}"),
                ("terminated closes the bootstrap, and truncated cuts the trace", "{e}", "{u}"),
            )
            for n in ("{n}", "{following}", "np.where({e}, {final}, {following})")
        ),
    ),
    "delta": (
        does("V(s_t) is not subtracted in the TD error")(
            "values_not_subtracted", delta="({r} + {discount} * np.where({b}, 0, {n}))"
        ),
        does("the TD error has V(s_t) and the next value exchanged")(
            "values_exchanged", delta="(({r} + {discount} * np.where({b}, 0, {v})) - {n})"
        ),
        does("no step bootstraps: the TD error is r_t - V(s_t)")("no_bootstrap", delta="({r} - {v})"),
    ),
    "coefficients": (
        does("V' is not discounted")("discount_missing", discount="1.0"),
        does("V' is discounted by gae_lambda")("coefficients_exchanged", discount="gae_lambda"),
        does("the trace decays by gamma")("lambda_missing", decay="gamma"),
        does("the trace decays by gae_lambda")("gamma_missing", decay="gae_lambda"),
        does("the trace decays by gamma * gamma * gae_lambda")("gamma_twice", decay="gamma * gamma * gae_lambda"),
        does("the trace is left out")("no_trace", decay="0.0"),
    ),
    "mask": (
        does("rewards and values outside the mask are 0, and the recursion runs through them")(
            "masked_as_zero", "mask", **MASKED
        ),
        does("a step before a masked one ends the sequence")(
            "mask_cuts", "mask", e="({e} | ~np.concatenate([mask[1:], mask[:1] | True]))", settings=""
        ),
        does("a masked step ends the sequence")("masked_ends", "mask and e", e="({e} | ~mask)", settings=""),
        does("right only if rewards and V of masked steps are 0: a masked step ends the sequence, not the one before")(
            "value_of_padding", "mask alone", e="({e} | ~mask)", settings=""
        ),
        does("V of a masked step is 0, and the trace passes it without a discount")(
            "masked_without_discount", "mask", **MASKED, last="({last} * mask[-1])", decay="np.where(mask, {decay}, 1)"
        ),
        does("right only if V of a masked step is 0: its TD error is 0, and the step before bootstraps from its V")(
            "value_of_padding", "mask", delta="({delta} * mask)", settings=""
        ),
        does("right only if V of a masked step is 0: its advantage is 0, and the step before bootstraps from its V")(
            "value_of_padding", "V of masked", delta="({delta} * mask)", c="({c} | ~mask)", settings=""
        ),
        does("right only if rewards and V of masked steps are 0: the mask has no effect on the recursion")(
            "value_of_padding", "mask", settings=""
        ),
    ),
    "form": (
        does("the results come in reverse order, the last step first")("rows_reversed", order="[::-1]"),
        does("the finite-horizon form: weights of k-step advantages add up to 1 also near the end")(
            "tail_normalized", settings="{settings}, tail_normalized=True"
        ),
        does("upgoing returns (UPGO)")("upgo", estimator="upgo", coefficients="gamma=gamma"),
        *(
            does(f"{n}-step returns")(
                "n_step", needs, estimator="n_step_returns", coefficients=f"n={n}, gamma=gamma", less="{v}", settings=""
            )
            for n, needs in (("n", "n"), *((n, "no n") for n in range(2, 6)))
        ),
    ),
}

# What a function may return: words -> an expression. It is known by one of the first four; the others are returned
# beside them. All may be normalised.
OUTPUTS = {
    "advantages": "A",
    "returns": "R",
    "returns of normalised advantages": "A",
    "normalised returns minus values": "R",
    "values": "V",
    "rewards to go (returns with lambda 1)": "of(1.0) + V",
    "TD(0) targets": "of(0.0) + V",
    "TD errors": "of(0.0)",
    "one more TD step on the returns": "one_step(R)",
}
PRIMARY = tuple(OUTPUTS)[:4]
TOO_EARLY = PRIMARY[2]
SHIFTED = dict(zip(PRIMARY[2:], (1, -1), strict=True))  # how often values are added to what is normalised already

# Where bootstrap and trace are closed -> the flags to pass to ``gae`` as terminated and truncated.
GATES = {
    ("{e}", "{either}"): ("{e}", "{u}"),
    ("{u}", "{either}"): ("{u}", "{e}"),
    ("{nowhere}", "{either}"): ("{nowhere}", "{either}"),
}


def conventions(
    base: Fields, given: set[str], mistakes: int, others: int
) -> Iterator[tuple[tuple[Choice, ...], Fields]]:
    """Yield the conventions with so many mistakes and other choices for which a function has the arguments."""
    open_axes = [[each for each in axis if not each.needs or given & {*each.needs}] for axis in AXES.values()]
    for axes in combinations(open_axes, mistakes + others):
        for choices in product(*axes):
            if sum(choice.wrong for choice in choices) == mistakes:
                yield choices, composed(base, choices)


def composed(base: Fields, choices: Iterable[Choice]) -> Fields:
    """Return a convention with some choices made."""
    fields = dict(base)
    for choice in choices:
        # A field that names itself stands for its expression before this choice.
        fields |= {name: new.replace(f"{{{name}}}", fields[name]) for name, new in choice.fields.items()}
    return fields


def expression(fields: Fields, text: str) -> str:
    """Return an expression in which no name is left in braces."""
    while "{" in text:
        text = text.format_map(fields)
    return text


def call_of(fields: Fields) -> str:
    """Return the call that gives the advantages: an estimator if its gates can express them, else ``reverse_scan``.

    Empty if there is no such call.
    """
    return _call_of(tuple(fields.items()))  # each way to call a function tries the same conventions


@functools.lru_cache(2**14)
def _call_of(items: tuple[tuple[str, str], ...]) -> str:
    fields = dict(items)
    gates, estimator = (fields["b"], fields["c"]), fields["estimator"]
    plain = all(fields[name] == DEFAULTS[name] for name in ("discount", "decay", "delta"))
    if plain and (gates[0] == gates[1] or gates in GATES):
        arguments = _arguments(fields, *GATES.get(gates, (gates[0], "")))
        call = f"fastgae.{estimator}({{r}}, {arguments}{{settings}}, {{coefficients}}){fields['less'] and ' - {less}'}"
        call += ".advantages" * bool(fields["order"] and estimator != "discounted_returns")
    elif fields["settings"] or estimator != "gae":
        return ""
    else:
        call = "fastgae.reverse_scan({delta}, np.where({c}, 0, {decay}).astype(rewards.dtype))"
    # Parentheses and neutral operands that only the composition needs.
    call = expression(fields, f"{call}{{order}}").replace("+ 1.0 * ", "+ ").replace("(no_flags | ", "(")
    call = call.replace("no_flags", "np.zeros_like(rewards, bool)")
    return re.sub(r"(?<=, )\((\w+ \| \w+)\)(?!\[)", r"\1", call)


def _arguments(fields: Fields, terminated: str, truncated: str) -> str:
    """Return the values, the flags and the bootstrap of a call, in their shortest form."""
    values, n, last = fields["v"], fields["n"], fields["last"]
    no_flags = fields["e"].startswith("no_flags")  # or all but its last row
    flags = f"{terminated}, {truncated}" if truncated else terminated
    final = ""
    if n.startswith(f"np.where({truncated or '{u}'}, ") and (truncated or terminated == "{either}"):
        final = f", final_values={n.split(', ')[1]}" * bool(truncated)
        n = "{following}"
    bootstrap = f"last_values={'0.0' if last == NOTHING else last}{final}"
    if n != "{following}" or (truncated and not final):
        bootstrap = f"next_values={n}"
    elif not no_flags and (values, last) == ("values[:-1]", "values[-1]"):
        values, bootstrap = "values", final.removeprefix(", ")
    if no_flags:
        flags = "terminated=None" if bootstrap.startswith("last") else "np.zeros_like({r}, bool)"
    taken = [flags, bootstrap] if fields["estimator"] == "discounted_returns" else [values, flags, bootstrap]
    return ", ".join(filter(None, taken))
