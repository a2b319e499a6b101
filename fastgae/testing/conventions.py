"""The conventions that ``identify`` knows, as data: what a loop may do, and the call of fastgae that does the same.

A convention is some ``Choice``s. Each changes a few of the expressions in ``Fields``, and ``call_of`` makes one call of
fastgae of them, as text. The search evaluates this text, so a report shows the very call that it compared.
"""

import re
from collections.abc import Iterator
from itertools import combinations, product
from typing import NamedTuple

NOTHING = "0 * {v}[0]"  # for ``last``

# Name -> an expression of NumPy. A name in braces stands for the expression of that name.
Fields = dict[str, str]

DEFAULTS: Fields = {
    "r": "rewards",
    "v": "values",
    "last": "last_values",  # V after the last step
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
    "settings": "",  # other arguments of ``gae``
}


class Choice(NamedTuple):
    """One thing that a loop may do in place of what fastgae does. Without ``why`` it is no mistake."""

    name: str
    words: str
    fields: Fields
    why: str = ""
    change: str = ""
    needs: str = ""  # the argument without which this choice has no meaning


def _moved(flags: str) -> Fields:
    return {"e": flags.format("{e}"), "u": flags.format("{u}")}


def _ends(b: str, c: str, **others: str) -> Fields:
    return {"b": f"{{{b}}}", "c": f"{{{c}}}", **others}


LATE_FLAGS = "np.concatenate([{0}[:1] & False, {0}[:-1]])"
EARLY_FLAGS = "np.concatenate([{0}[1:], {0}[:1] & False])"
SHIFTED = (
    "each episode ends one step too early. This is right if row t of the flags says that observation t begins an "
    'episode: say so with names={"your argument": "starts"}, and pass the flag after the last step as next_done'
)
LATE_REWARDS = "np.concatenate([{r}[:1] * 0, {r}[:-1]])"
EARLY_REWARDS = "np.concatenate([{r}[1:], {r}[:1] * 0])"
OWN_ROW = "read the flag of row t at step t"
LAST_ROW = "bootstrap the last row with V of the state after it"
FINAL = "bootstrap truncated steps with V of their final observation"
CUT = "cut the bootstrap where terminated, and the trace where terminated or truncated"
DECAY = "multiply the next advantage by gamma * gae_lambda"
LEAK = "values and advantages of the next episode leak into this one"

AXES: dict[str, tuple[Choice, ...]] = {
    "flags": (
        Choice(
            "flags_late",
            "step t takes the flag of row t - 1",
            _moved(LATE_FLAGS),
            "each episode runs on for one step, into the first step of the next episode",
            OWN_ROW,
            "e",
        ),
        *(
            Choice("flags_early", f"step t takes the flag of row t + 1, {words}", _moved(flags), SHIFTED, OWN_ROW, "e")
            for words, flags in (
                ("and the last step none", EARLY_FLAGS),
                ("and the last step its own", "np.concatenate([{0}[1:], {0}[-1:]])"),
            )
        ),
        *(
            Choice(
                f"flags_{word}",
                f"step t takes {name} of row {row}, and the other flag of its own row",
                {field: flags.format(f"{{{field}}}")},
                "each episode ends at another step for its bootstrap than for its trace",
                OWN_ROW,
                "u",
            )
            for field, name in (("e", "terminated"), ("u", "truncated"))
            for word, row, flags in (("late", "t - 1", LATE_FLAGS), ("early", "t + 1", EARLY_FLAGS))
        ),
        Choice(
            "flags_inverted",
            "a flag that is False ends the episode",
            {"e": "~{e}"},
            "every step but the last one of an episode is taken for its end",
            "multiply by 1 - flag",
            "e",
        ),
    ),
    "rewards": (
        *(
            Choice(
                name, f"step t takes the reward of row {row}", {"r": rewards}, why, "read the reward of row t at step t"
            )
            for name, row, rewards, why in (
                ("rewards_late", "t - 1", LATE_REWARDS, "each action is judged by the reward of the action before it"),
                (
                    "rewards_early",
                    "t + 1",
                    EARLY_REWARDS,
                    "each action is judged by the next reward. This is right if rewards[t] came with observation t",
                ),
            )
        ),
    ),
    "rows": (
        Choice(
            "rows_late",
            "rewards and flags come one row late, with the next observation, and the last row gives nothing",
            {
                "r": EARLY_REWARDS,
                **_moved(EARLY_FLAGS),
                "delta": "np.concatenate([{delta}[:-1], {delta}[:1] * 0])",
            },
            needs="e",
        ),
    ),
    "last": (
        Choice(
            "last_values_ignored",
            "after the last step, V is 0",
            {"last": NOTHING},
            "the last episode of the rollout looks as if it had ended there",
            LAST_ROW,
            "last",
        ),
        Choice(
            "last_values_of_the_last_step",
            "the last step bootstraps from V of its own state",
            {"last": "{v}[-1]"},
            "V' of the last step is V of the state before its action",
            LAST_ROW,
            "last",
        ),
    ),
    "ends": (
        Choice(
            "truncation_as_termination",
            "a truncated step counts as terminated",
            _ends("either", "either"),
            "the state after a truncated step has no value then, so values near a time limit become too small",
            FINAL,
            "u",
        ),
        Choice(
            "value_of_the_same_state",
            "a truncated step bootstraps from V(s_t), the state before its action",
            _ends("e", "either", n="np.where({u}, {v}, {following})"),
            "V(s_t) is not the value of the state to which the step led",
            FINAL,
            "u",
        ),
        Choice(
            "value_of_the_reset_observation",
            "a truncated step bootstraps from values[t + 1]",
            _ends("e", "either", n="{following}"),
            "values[t + 1] belongs to the first observation of the next episode. This is right if row t + 1 holds the "
            'final observation, as with autoreset="next_step"',
            FINAL,
            "u",
        ),
        Choice(
            "truncation_dropped",
            "the TD error of a truncated step is 0, so its advantage is 0 and its return is V",
            {"delta": "np.where({u}, 0, {delta})", "n": "{following}"},
            "truncated steps, and their rewards, teach nothing",
            FINAL,
            "u",
        ),
        Choice(
            "bootstrap_at_termination",
            "flags cut the trace alone, and every step bootstraps",
            _ends("nowhere", "either"),
            "a terminated state has no value. This is right if V' is 0 there",
            CUT,
            "e",
        ),
        Choice(
            "bootstrap_at_termination",
            "flags cut the trace alone, and every step bootstraps from values[t + 1]",
            _ends("nowhere", "either", n="{following}"),
            "V of the next episode counts as the value of this one",
            CUT,
            "e",
        ),
        Choice(
            "truncation_ignored",
            "a truncated step is no boundary: bootstrap and trace go on to the next row",
            _ends("e", "e", n="{following}"),
            LEAK,
            CUT,
            "u",
        ),
        Choice(
            "flags_ignored",
            "flags have no effect",
            _ends("nowhere", "nowhere", n="{following}"),
            LEAK,
            CUT,
            "e",
        ),
        *(
            Choice("trace_not_cut", words, fields, "advantages of the next episode leak into this one", CUT, needs)
            for words, fields, needs in (
                ("the trace is never cut", _ends("e", "nowhere"), "e"),
                ("the trace is cut where terminated alone", _ends("e", "e"), "u"),
                ("no end bootstraps, and none cuts the trace", _ends("either", "nowhere", n="{following}"), "u"),
                ("no end bootstraps, and terminated cuts the trace", _ends("either", "e", n="{following}"), "u"),
            )
        ),
        *(
            Choice(
                "flags_mixed_up",
                f"terminated and truncated are mixed up: {words}",
                _ends(*closed, **n),
                "values are taken where there are none and left out where there are some, or the next episode leaks in",
                CUT,
                "u",
            )
            for words, closed in (
                ("truncated steps do not bootstrap, and terminated steps do", ("u", "either")),
                ("truncated steps end the episode, and terminated steps do not", ("u", "u")),
                ("truncated closes the bootstrap, and terminated cuts the trace", ("u", "e")),
                ("terminated closes the bootstrap, and truncated cuts the trace", ("e", "u")),
            )
            for n in ({}, {"n": "{following}"}, {"n": "np.where({e}, final_values, {following})"})
        ),
    ),
    "delta": (
        Choice(
            "values_not_subtracted",
            "V(s_t) is not subtracted in the TD error",
            {"delta": "({r} + {discount} * np.where({b}, 0, {n}))"},
            "the result grows with V(s_t), so it is no advantage",
            "subtract values[t] from the target of step t",
        ),
        Choice(
            "values_exchanged",
            "the TD error has V(s_t) and the next value exchanged",
            {"delta": "(({r} + {discount} * np.where({b}, 0, {v})) - {n})"},
            "good steps look bad",
            "subtract values[t], and bootstrap from the next value",
        ),
        Choice(
            "no_bootstrap",
            "no step bootstraps: the TD error is r_t - V(s_t)",
            {"delta": "({r} - {v})"},
            "the value of the next state is missing from every target",
            "add gamma * V' to the reward where not terminated",
        ),
    ),
    "coefficients": (
        *(
            Choice(
                name, f"V' is {words}", {"discount": factor}, "the target of a step is wrong", "multiply V' by gamma"
            )
            for name, words, factor in (
                ("discount_missing", "not discounted", "1.0"),
                ("coefficients_exchanged", "discounted by gae_lambda", "gae_lambda"),
            )
        ),
        *(
            Choice(name, f"the trace decays by {factor}", {"decay": factor}, why, DECAY)
            for name, factor, why in (
                ("lambda_missing", "gamma", "gae_lambda has no effect on the trace"),
                ("gamma_missing", "gae_lambda", "later rewards count too much"),
                ("gamma_twice", "gamma * gamma * gae_lambda", "later rewards count too little"),
            )
        ),
        Choice("no_trace", "the trace is left out", {"decay": "0.0"}, "gae_lambda has no effect", DECAY),
    ),
    "mask": (
        Choice(
            "masked_as_zero",
            "rewards and values outside the mask are 0, and the recursion runs through them",
            {"r": "({r} * mask)", "v": "({v} * mask)", "settings": ""},
            needs="mask",
        ),
        Choice(
            "mask_cuts",
            "a step before a masked one ends the sequence",
            {"e": "({e} | ~np.concatenate([mask[1:], mask[:1] | True]))", "settings": ""},
            needs="mask",
        ),
        Choice(
            "masked_without_discount",
            "V of a masked step is 0, and the trace passes it without a discount",
            {
                "r": "({r} * mask)",
                "v": "({v} * mask)",
                "last": "({last} * mask[-1])",
                "decay": "np.where(mask, {decay}, 1)",
                "settings": "",
            },
            needs="mask",
        ),
        Choice("mask_ignored", "the mask has no effect on the recursion", {"settings": ""}, needs="mask"),
    ),
    "form": (
        Choice(
            "tail_normalized",
            "the finite-horizon form: weights of k-step advantages add up to 1 also near the end",
            {"settings": "{settings}, tail_normalized=True"},
        ),
    ),
}


class Output(NamedTuple):
    """An array that a function may return: what it is, as an expression, and why it is a mistake, if it is one."""

    expression: str
    why: str = ""
    change: str = ""

    @property
    def of_advantages(self) -> bool:
        """Whether the expression scales the advantages, so that to apply it again changes nothing."""
        return self.expression.startswith(("normalised", "A /")) and "V" not in self.expression


OUTPUTS: dict[str, Output] = {
    "advantages": Output("A"),
    "returns": Output("A + V"),
    "normalised advantages (mean 0, std 1)": Output("normalised(A)"),
    "normalised advantages (mean 0, Bessel's std 1)": Output("normalised(A, ddof=1)"),
    "advantages normalised per env": Output("normalised(A, axis=0)"),
    "advantages divided by their std": Output("A / A[mask].std()"),
    "rewards to go (returns with lambda 1)": Output("to_go()"),
    "one more TD step on the returns": Output("one_step(A + V)"),
    "values": Output("V"),
    "returns of normalised advantages": Output(
        "normalised(A) + V",
        "the critic learns values in units of the normalised advantages, and not of the rewards",
        "add values to the advantages before they are normalised",
    ),
}

# What else may be wrong: name -> what, why, and what to change.
ODD: dict[str, tuple[str, str, str]] = {
    "inputs_written": ("it writes into {}", "the caller's arrays change", "write into new arrays"),
    "not_deterministic": (
        "two calls with the same arrays give different numbers in {}",
        "nobody can repeat a run",
        "look for random numbers, and for memory that is not initialised",
    ),
    "not_finite": (
        "{} has numbers that are not finite, from rewards and values that are",
        "they spread to the loss",
        "look for a division by 0",
    ),
    "output_unknown": (
        "{} is nothing that fastgae knows",
        "it is no function of the advantages here",
        "return advantages + values",
    ),
    "outputs_equal": (
        "{} are returned twice",
        "if one of them is meant as returns, the critic learns advantages",
        "return advantages + values as returns",
    ),
    "both_flags": (
        "where terminated and truncated are both set, {} differ from fastgae's",
        "Gymnasium may set both. The episode ended for good then",
        "let terminated win: do not bootstrap there",
    ),
}

# Where bootstrap and trace are closed -> the flags to pass to ``gae`` as terminated and truncated.
GATES = {
    ("{e}", "{either}"): ("{e}", "{u}"),
    ("{u}", "{either}"): ("{u}", "{e}"),
    ("{nowhere}", "{either}"): ("{nowhere}", "{either}"),
}


def conventions(base: Fields, given: set[str], count: int) -> Iterator[tuple[tuple[Choice, ...], Fields]]:
    """Yield the conventions with this count of choices for which a function has the arguments."""
    open_axes = [[choice for choice in axis if choice.needs in given | {""}] for axis in AXES.values()]
    for axes in combinations(open_axes, count):
        for choices in product(*axes):
            fields = dict(base)
            for choice in choices:
                # A field that names itself stands for its expression before this choice.
                fields |= {name: new.replace(f"{{{name}}}", fields[name]) for name, new in choice.fields.items()}
            yield choices, fields


def expression(fields: Fields, text: str) -> str:
    """Return an expression in which no name is left in braces."""
    while "{" in text:
        text = text.format_map(fields)
    return text


def call_of(fields: Fields) -> str:
    """Return the call that gives the advantages: ``gae`` if its gates can express them, else ``reverse_scan``.

    Empty if there is no such call.
    """
    gates = fields["b"], fields["c"]
    plain = all(fields[name] == DEFAULTS[name] for name in ("discount", "decay", "delta"))
    if plain and (gates[0] == gates[1] or gates in GATES):
        arguments = _arguments(fields, *GATES.get(gates, (gates[0], "")))
        call = f"fastgae.gae({{r}}, {arguments}{{settings}}, gamma=gamma, gae_lambda=gae_lambda)"
    elif fields["settings"]:
        return ""
    else:
        call = "fastgae.reverse_scan({delta}, np.where({c}, 0, {decay}).astype(rewards.dtype))"
    # Parentheses and neutral operands that only the composition needs.
    call = expression(fields, call).replace("+ 1.0 * ", "+ ").replace("(no_flags | ", "(")
    return re.sub(r"(?<=, )\((\w+ \| \w+)\)", r"\1", call)


def _arguments(fields: Fields, terminated: str, truncated: str) -> str:
    """Return the values, the flags and the bootstrap of a call of ``gae``, in their shortest form."""
    has_flags = fields["e"] != "no_flags"
    flags = f", {terminated}" if has_flags else ", terminated=None"
    values, n, last = fields["v"], fields["n"], fields["last"]
    final = ""
    if truncated:
        flags += f", {truncated}"
        if n.startswith(f"np.where({truncated}, "):
            final = f", final_values={n.split(', ')[1]}"
            n = "{following}"
    elif terminated == "{either}" and n.startswith("np.where({u}, "):
        n = "{following}"
    if n != "{following}" or (truncated and not final):
        return f"{values}{flags}, next_values={n}"
    if has_flags and (values, last) == ("values[:-1]", "values[-1]"):
        return f"values{flags}{final}"
    return f"{values}{flags}, last_values={'0.0' if last == NOTHING else last}{final}"
