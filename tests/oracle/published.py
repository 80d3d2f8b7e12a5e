"""A small random model of transformers beside ours with its weights, and the comparisons that every family shares."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from glassformer.hf import Family, export, family_of, read_model
from glassformer.hf.rules import written_out
from glassformer.hf.tensors import write_tensors
from glassformer.spec import to_data

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of an older library's own imports
    transformers = pytest.importorskip("transformers", reason="the published models are compared with transformers")
transformers.logging.set_verbosity_error()

LOGITS = 5e-5  # the largest absolute difference, fp32
GRADIENTS = 1e-4  # the largest difference over the largest number of the same tensor
LEAST = 1e-3  # gradients below this part of the largest of all are rounding, as a key's bias has them without RoPE

Run = Callable[[nn.Module], Tensor]


@torch.no_grad()
def lively(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model in evaluation mode with weights so large that every part matters: norms and biases as well."""
    generator = torch.Generator().manual_seed(seed)
    for _, x in sorted(model.named_parameters()):
        if not x.requires_grad:  # sinusoids
            continue
        noise = torch.randn(x.shape, generator=generator)
        x.copy_(noise * x[0].numel() ** -0.5 if x.ndim > 1 else x + 0.3 * noise)
    return model.eval()


def tokens(vocab: int, length: int, batch: int = 2, seed: int = 1) -> Tensor:
    """Random ids `b t`."""
    return torch.randint(0, vocab, (batch, length), generator=torch.Generator().manual_seed(seed))


@dataclass
class Pair:
    """The two models; ask and answer: how theirs and ours are run on the same input, to the same numbers."""

    theirs: nn.Module
    ours: nn.Module
    ask: Run
    answer: Run

    @property
    def config(self) -> dict[str, Any]:
        """The configuration as a file has it."""
        return written(self.theirs)


def written(model: nn.Module) -> dict[str, Any]:
    """The config.json of a model of transformers."""
    return json.loads(model.config.to_json_string(use_diff=False)) | {"architectures": [type(model).__name__]}


def pair(config: Any, kind: type | str, ask: Run, answer: Run, seed: int = 0) -> Pair:
    """A random model of a class of transformers, and ours read from its configuration and tensors."""
    kind = getattr(transformers, kind) if isinstance(kind, str) else kind
    config._attn_implementation = "eager"  # the only one that does all that the configurations say, such as soft caps
    theirs = lively(kind(config), seed)
    return Pair(theirs, read_model(written(theirs), theirs.state_dict(), "memory"), ask, answer)


def check_same(both: Pair, tolerance: float = LOGITS) -> None:
    """The same numbers, and the same gradients of their random weighted sum."""
    with torch.enable_grad():
        theirs, ours = both.ask(both.theirs), both.answer(both.ours)
    assert theirs.shape == ours.shape and theirs.std() > 0.05, "what hardly varies shows nothing"
    assert (theirs - ours).abs().max() <= tolerance
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2))
    for one in (theirs, ours):
        ((one * weights).sum() / len(one)).backward()
    family, names = family_of(both.config), dict(both.theirs.named_parameters())
    grads = {name: x.grad for name, x in both.ours.named_parameters()}
    found = write_tensors(family, both.ours.spec, grads, not any(name.startswith(family.prefix) for name in names))
    wanted = {newest(family, name): x.grad for name, x in names.items() if x.grad is not None}
    wanted = {name if name in found else family.aliases.get(name, name): x for name, x in wanted.items()}
    assert wanted.keys() <= found.keys(), wanted.keys() - found.keys()
    overall = max(x.abs().max() for x in wanted.values())
    for name, x in wanted.items():
        size = max(x.abs().max(), LEAST * overall)
        assert (x - found[name]).abs().max() <= GRADIENTS * size, name


def newest(family: Family, name: str) -> str:
    """The name under which a family's rules know a tensor."""
    for old, new in family.legacy:
        name = re.sub(old, new, name)
    return name


def check_greedy(both: Pair, prompt: Tensor, count: int) -> None:
    """The same text without drawing, ours one token after the other with its cache, theirs by `generate`."""
    with torch.no_grad():
        both.theirs.generation_config.update(eos_token_id=None, pad_token_id=0, bos_token_id=None)
        wanted = both.theirs.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count, do_sample=False, num_beams=1
        )
        logits, state = both.ours.step(prompt, both.ours.empty(len(prompt), prompt.shape[1] + count))
        made = [logits[:, -1:].argmax(-1)]
        for _ in range(count - 1):
            logits, state = both.ours.step(made[-1], state)
            made.append(logits[:, -1:].argmax(-1))
    assert torch.equal(torch.cat([prompt, *made], 1), wanted)
    assert len({tuple(row) for row in wanted.T.tolist()}) > 3, "one token repeated shows nothing"


def meaning(spec: Any) -> dict[str, Any]:
    """A spec with what null stands for written out."""
    return written_out(to_data(spec))


def check_export(both: Pair, folder: Path) -> None:
    """What is written is loaded by transformers, has the same numbers, and means the same spec."""
    config, tensors = export(both.ours, family_of(both.config).name)
    assert meaning(family_of(config).spec(config)) == meaning(both.ours.spec)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    kind = getattr(transformers, config["architectures"][0])
    loaded, told = kind.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
    )
    assert not any(told[which] for which in ("missing_keys", "unexpected_keys", "mismatched_keys")), told
    with torch.no_grad():
        assert (both.ask(loaded.eval()) - both.ask(both.theirs)).abs().max() <= LOGITS
