// The page "Play with GAE": one env, whose numbers are drawn anew whenever an input changes. No library, no server.
"use strict";

/** GAE of one env, in the order of operations of fastgae, so with the same bits in float64. */
function gae({ rewards, values, nextValues, terminated, truncated, gamma, lambda }) {
  const decay = gamma * lambda;
  const delta = [], advantages = [], returns = [];
  let later = 0;
  for (let t = rewards.length - 1; t >= 0; t--) {
    const bootstrap = terminated[t] ? rewards[t] : rewards[t] + gamma * nextValues[t];
    delta[t] = bootstrap - values[t];
    advantages[t] = terminated[t] || truncated[t] ? delta[t] : delta[t] + decay * later;
    returns[t] = advantages[t] + values[t];
    later = advantages[t];
  }
  return { delta, advantages, returns };
}

/** A rollout of 12 steps with a reward of 1 each, whose values are too low at first and too high at the end. */
function rollout({ end, kind, last, gamma, lambda }) {
  const steps = 12;
  const ends = (t, what) => kind === what && t === end;
  const age = (t) => (kind !== "none" && t > end ? t - end - 1 : t);
  const flags = (what) => Array.from({ length: steps }, (_, t) => ends(t, what));
  const valueAt = (steps) => 7 + 2 * Math.sin(1.3 * steps) - 0.25 * steps;
  const values = Array.from({ length: steps }, (_, t) => valueAt(age(t)));
  const nextValues = values.map((_, t) => (t === end && kind !== "none" ? valueAt(age(t) + 1) : t + 1 < steps ? values[t + 1] : last));
  const rewards = values.map(() => 1);
  return { rewards, values, nextValues, terminated: flags("terminated"), truncated: flags("truncated"), gamma, lambda };
}

const SERIES = [["delta", "TD errors: delta"], ["advantages", "advantages: A"], ["returns", "returns: R"]];

function chart(name, label, right, wrong, at, { values, terminated, truncated }) {
  const begins = (t) => t === 0 || terminated[t - 1] || truncated[t - 1];  // an episode
  const lines = [right[name], ...(wrong ? [wrong[name]] : []), ...(name === "returns" ? [values] : [])];
  const low = Math.min(0, ...lines.flat()), high = Math.max(0.1, ...lines.flat());
  const x = (t) => 66 + 46 * t, y = (number) => 146 - (104 * (number - low)) / (high - low);
  const path = (numbers) => numbers.map((number, t) => `${begins(t) ? "M" : "L"}${x(t)} ${y(number).toFixed(1)}`).join("");
  const dots = right[name].map((number, t) => `<circle cx="${x(t)}" cy="${y(number).toFixed(1)}" r="${t === at ? 6 : 3}"/>`);
  // The numbers of both axes. Numbers that would touch the 0 are left out.
  const heights = [low, high].filter((number) => Math.abs(y(number) - y(0)) > 24);
  const left = [0, ...heights].map((number) => `<text class="tick" x="50" y="${y(number) + 5}">${number ? number.toFixed(1) : 0}</text>`);
  const below = values.map((_, t) => `<text class="step" x="${x(t)}" y="178">${t}</text>`);
  return `<svg viewBox="0 0 600 184" role="img" aria-label="${label}, step by step">
    <text x="0" y="16">${label}</text>${left.join("")}${below.join("")}<text class="tick" x="50" y="178">t</text>
    <path class="zero" d="M56 ${y(0)}H590"/>
    ${name === "returns" ? `<path class="values" d="${path(values)}"/>` : ""}
    ${wrong ? `<path class="wrong" d="${path(wrong[name])}"/>` : ""}
    <path class="right" d="${path(right[name])}"/><g class="right">${dots.join("")}</g></svg>`;
}

function equations(given, computed, t) {
  const show = (number) => number.toFixed(3);
  const { rewards, values, nextValues, terminated, truncated, gamma, lambda } = given;
  const ended = terminated[t] || truncated[t], after = t + 1 < rewards.length ? computed.advantages[t + 1] : 0;
  const bootstrap = terminated[t] ? "" : ` + ${gamma} * ${show(nextValues[t])}`;
  const trace = ended ? "" : ` + ${gamma} * ${lambda} * ${show(after)}`;
  return `for t in reversed(range(12)):   # t = ${t}
    delta[t] = (r[t]${terminated[t] ? "" : " + gamma * next_values[t]"}) - V[t]
             = (${show(rewards[t])}${bootstrap}) - ${show(values[t])} = ${show(computed.delta[t])}
    A[t] = delta[t]${ended ? "" : ` + gamma * lambda * A[t + 1]\n         = ${show(computed.delta[t])}${trace}`} = ${show(computed.advantages[t])}
    R[t] = A[t] + V[t] = ${show(computed.returns[t])}`;
}

function start(root) {
  const inputs = Object.fromEntries([...root.querySelectorAll("input, select")].map((each) => [each.name, each]));
  const draw = () => {
    const number = (name) => Number(inputs[name].value);
    const asked = { gamma: number("gamma"), lambda: number("lambda"), end: number("end"), kind: inputs.kind.value, last: number("last") };
    for (const output of root.querySelectorAll("output")) output.textContent = root.querySelector(`#${output.htmlFor[0]}`).value;
    const given = rollout(asked), right = gae(given), t = number("t");
    const wrong = asked.kind === "truncated" ? gae({ ...given, terminated: given.truncated }) : null;
    root.querySelector(".charts").innerHTML = SERIES.map(([name, label]) => chart(name, label, right, wrong, t, given)).join("");
    root.querySelector(".code").textContent = equations(given, right, t);
    root.querySelector(".legend").hidden = wrong === null;
  };
  root.addEventListener("input", draw);
  draw();
}

document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("#play").forEach(start));
