"""What RLlib's GAE connector asks of episodes and of a module: lengths and values, which are recorded here."""

from collections.abc import Callable
from typing import Any

import torch
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from fastgae._call import Array


class Episode(SingleAgentEpisode):
    """An episode of which only the length is known."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.module_id = None

    def __len__(self) -> int:
        return self.steps


class Module(ValueFunctionAPI):
    """The values of a batch as a module, and the only module of itself."""

    framework = "torch"

    def __init__(self, values: Array) -> None:
        self._values = torch.from_numpy(values)

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> torch.Tensor:
        return self._values

    def foreach_module(self, func: Callable[[str, Any], Any], return_dict: bool) -> dict[str, Any]:
        return {"default_policy": func("default_policy", self)}

    def __getitem__(self, name: str) -> "Module":
        return self

    def is_stateful(self) -> bool:
        return False
