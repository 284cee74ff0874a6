"""vLLM's engine in this process behind `StepEngine`: add, step, abort; weights in place; sleep where it frees memory.

vLLM reads the model's shape from a folder. Scheduling is synchronous (a step returns the tokens that it computed), so
nothing is under way between two steps: weights change there, and whatever was generated is known when a request is
aborted. The same code drives CPUs and GPUs; on a CPU everything is float32 and nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from engine.config.errors import one_line
from engine.learning.vllm.process import import_vllm, keeping_threads
from engine.learning.vllm.step_engine import Generated, Pick

BLOCK_TOKENS = 32
"""Tokens of a block of keys and values: the smallest that the CPU's attention takes; whole blocks of a prompt are
computed once for a group."""

FREE_SHARE = 0.01
"""Of a GPU's memory, what vLLM wants to find free before it starts. With `kv_cache_memory_bytes` it uses the figure for
nothing else, and its default, 0.92, leaves no room for a trainer or a model that is there already."""

PREFILL_TOKENS = 8192
"""Tokens of one forward pass: the prompts of a handful of groups at once."""


class InProcessEngine:
    """See `StepEngine`."""

    def __init__(
        self,
        folder: Path,
        pick: Pick,
        *,
        end_tokens: Iterable[int],
        slots: int,
        longest: int,
        kv_bytes: int,
        dtype: str = "float32",
        weights_from_folder: bool = False,
    ) -> None:
        """`folder` holds config.json and, with `weights_from_folder`, weights: else they are arbitrary until `load`.
        `longest` sequence in tokens; `kv_bytes` for keys and values.

        Raises ValueError when vLLM is missing, does not import, or refuses the model.
        """
        import_vllm()
        from vllm import LLM
        from vllm.config import WeightTransferConfig
        from vllm.platforms import current_platform

        from engine.learning.vllm.drawing import drawing_by
        from engine.learning.vllm.transfer import BACKEND, register

        register()
        self._end_tokens = sorted(end_tokens)
        self._on_cpu = current_platform.is_cpu()
        self._kv_bytes = kv_bytes
        make: Any = LLM
        with keeping_threads():
            try:
                llm = make(
                    model=str(folder),
                    skip_tokenizer_init=True,
                    generation_config="vllm",
                    load_format="auto" if weights_from_folder else "dummy",
                    dtype=dtype,
                    seed=0,
                    enforce_eager=self._on_cpu,
                    async_scheduling=False,
                    max_model_len=longest,
                    max_num_seqs=slots,
                    max_num_batched_tokens=max(PREFILL_TOKENS, longest),
                    block_size=BLOCK_TOKENS,
                    kv_cache_memory_bytes=kv_bytes,
                    gpu_memory_utilization=FREE_SHARE,
                    enable_prefix_caching=True,
                    enable_sleep_mode=not self._on_cpu,
                    weight_transfer_config=WeightTransferConfig(backend=BACKEND),
                    logits_processors=[drawing_by(pick)],
                    disable_log_stats=True,
                )
            except (ValueError, NotImplementedError, RuntimeError) as error:
                text = one_line(error, 500)
                raise ValueError(f"devices.rollouter vllm: vLLM does not take the model: {text}") from error
        self._llm = llm
        self._engine: Any = llm.llm_engine
        llm.init_weight_transfer_engine({"init_info": {}})

    @property
    def frees_memory(self) -> bool:
        return not self._on_cpu

    @property
    def nbytes(self) -> int:
        weights = self._llm.apply_model(lambda model: sum(tensor.nbytes for tensor in model.parameters()))
        return int(sum(weights)) + self._kv_bytes

    def add(self, key: str, tokens: Sequence[int], *, longest: int, salt: str) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        from engine.learning.vllm.drawing import KEY

        params = SamplingParams(
            temperature=0.0,
            max_tokens=longest,
            stop_token_ids=self._end_tokens,
            ignore_eos=True,  # which ends an answer is ours to say, and said above
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            extra_args={KEY: key},
        )
        prompt: Any = {"prompt_token_ids": list(tokens), "cache_salt": salt}
        self._engine.add_request(key, prompt, params)

    def step(self) -> list[Generated]:
        generated = []
        for output in self._engine.step():
            completion = output.outputs[0]
            if len(completion.token_ids) != 1:
                raise RuntimeError(
                    f"vLLM gave request {output.request_id} {len(completion.token_ids)} tokens in a step"
                )
            generated.append(
                Generated(key=output.request_id, token=int(completion.token_ids[0]), finished=bool(output.finished))
            )
        return generated

    def abort(self, keys: Sequence[str]) -> None:
        self._engine.abort_request(list(keys))

    def load(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        self._llm.start_weight_update()
        self._llm.update_weights({"update_info": {"tensors": weights}})
        self._llm.finish_weight_update(weight_version=str(version))
        # blocks of running requests cannot be forgotten: they carry the salt of their version, which no new one has
        self._engine.reset_prefix_cache()

    def sleep(self) -> None:
        assert not self._on_cpu, "sleeping frees nothing on a CPU"
        self._llm.sleep(level=1)

    def wake(self) -> None:
        self._llm.wake_up()
