"""A published family as data: one table of two-way rules for its configuration and one for its weights.

Importing reads a config.json into a spec and the tensors of a checkpoint into ours; exporting reads the same tables
backwards, and what comes out is imported once more: where the two specs differ, the family cannot say the model and
the export is refused by the path of the first difference.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..block import BlockSpec
from ..errors import GlassformerError, SettingError, UnsupportedError, nearest
from ..model import AnySpec
from ..nn.channel import hidden_width
from ..spec import from_data, to_data
from .tensors import Weight

Config = dict[str, Any]
WRONG = (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, IndexError)  # of a value that is no such
REQUIRED = object()  # the default of a field that a configuration must give


@dataclass(frozen=True)
class Rule:
    """Fields of a configuration and the places of a spec that say the same.

    fields  names in config.json
    places  paths in the spec, "blocks.*.mixer.heads"; a place whose parent is null is passed over
    read    the value of the places, from the configuration with its defaults
    write   the fields, from that value
    each    the value is a list, one for each block
    """

    fields: tuple[str, ...]
    places: tuple[str, ...]
    read: Callable[[Config], Any]
    write: Callable[[Any], Config]
    each: bool = False


def same(name: str, *places: str) -> Rule:
    """A field whose value the places have as it is."""
    return Rule((name,), places, lambda config: config[name], lambda value: {name: value})


def through(
    name: str, into: Callable[[Any], Any], back: Callable[[Any], Any], *places: str, each: bool = False
) -> Rule:
    """A field whose value is turned into the places' and back."""
    return Rule((name,), places, lambda config: into(config[name]), lambda value: {name: back(value)}, each)


def named(name: str, words: Mapping[str, Any], *places: str) -> Rule:
    """A field whose words mean values of ours; of several words for one value the first is written."""

    def read(config: Config) -> Any:
        word = config[name]
        if word not in words:
            raise UnsupportedError(f"{name}: {word!r} is not known here; known are {', '.join(map(str, words))}")
        return words[word]

    def write(value: Any) -> Config:
        return {name: next(word for word, ours in words.items() if ours == value)}

    return Rule((name,), places, read, write)


ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
}

# What a configuration may say of how text is written; generation_config.json has the same names.
WRITING = frozenset(
    """
    bos_token_id eos_token_id pad_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id
    max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p
    typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
    num_return_sequences remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens
    """.split()  # noqa: SIM905 (so many words read best as one text)
)
# What every configuration may hold without a word on what is computed: that, where it comes from, which ids mean what,
# how it was trained.
FREE = WRITING | frozenset(
    """
    architectures model_type transformers_version torch_dtype dtype _name_or_path use_cache return_dict torchscript
    sep_token_id cls_token_id mask_token_id unk_token_id initializer_range initializer_factor gradient_checkpointing
    output_attentions output_hidden_states task_specific_params problem_type id2label label2id num_labels prefix
    output_scores return_dict_in_generate tokenizer_class finetuning_task is_encoder_decoder _attn_implementation
    _attn_implementation_autoset _commit_hash attn_implementation language license chunk_size_feed_forward
    tie_encoder_decoder cross_attention_hidden_size unsloth_version unsloth_fixed _num_labels
    transformers.js_config
    """.split()  # noqa: SIM905
)
# At rest the models are the same, and a model that is trained anew starts at the family's own.
NOT_COMPARED = ("init", "dropout")


@dataclass(frozen=True)
class Family:
    """One published family.

    name           its model_type
    base           the spec with one block in each stack, as the family has it whatever the configuration says
    stacks         place of a stack's blocks -> the field that counts them
    architectures  name of a class -> places of the base that differ in it; the first one is written where several do
    defaults       what a field means that a configuration leaves out
    rules          what fields say of the spec
    fixed          fields that may only have these values, the first of them the default
    free           more fields that say nothing of what is computed
    weights        where each tensor lies
    prefix         before the names of all tensors but the head's, in a checkpoint with a head
    aliases        name of a tensor that may be stored a second time -> the first, or those that may be it
    apart          (two tensors, a place): the place is false where both are stored and differ, whatever a configuration
                   says of it
    legacy         (pattern, replacement) of names in old checkpoints
    skipped        patterns of tensors that are worked out anew here
    ready          turns an older form of the configuration into the newer one
    complete       adds to a written configuration what follows from its other fields, and ids that the sizes allow;
                   those that a published configuration says itself are written in their place
    beside         a further file of such a folder -> the fields of the configuration that stand there
    headed         names of classes that end in "Model" and have a head, so that their tensors have the prefix
    lacking        name of a class -> (a tensor, places of the spec that differ where a checkpoint lacks it)
    """

    name: str
    base: AnySpec
    stacks: Mapping[str, str]
    architectures: Mapping[str, Mapping[str, Any]]
    rules: tuple[Rule, ...]
    weights: tuple[Weight, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    free: frozenset[str] = frozenset()
    prefix: str = ""
    headed: tuple[str, ...] = ()
    aliases: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    apart: tuple[str, str, str] | None = None
    legacy: tuple[tuple[str, str], ...] = ()
    skipped: tuple[str, ...] = ()
    ready: Callable[[Config], Config] = dict
    complete: Callable[[Config], Config] = dict
    beside: Mapping[str, frozenset[str]] = field(default_factory=dict)
    lacking: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)

    # ------------------------------------------------------------ configuration to spec

    def spec(self, config: Config) -> AnySpec:
        """The spec that a configuration means.

        Raises UnsupportedError for a field that is not known or has a value that this family's rules do not cover, and
        SettingError for one that is missing or no model can have.
        """
        try:
            config = self.ready({**config})
        except GlassformerError:
            raise
        except WRONG as error:
            raise SettingError(f"the configuration cannot be read ({error}); restore its config.json") from None
        self._check(config)
        full = {name: values[0] for name, values in self.fixed.items()} | dict(self.defaults) | config
        data = self._begun(self._architecture(config), full)
        for rule in self.rules:
            for name in rule.fields:
                if full.get(name, REQUIRED) is REQUIRED:
                    raise SettingError(f"{name}: the configuration lacks it; restore its config.json")
            try:
                value = rule.read(full)
            except GlassformerError:
                raise
            except WRONG:
                shown = ", ".join(f"{name}={full[name]!r}" for name in rule.fields)
                raise SettingError(f"{shown}: this is not what such a field holds; restore the config.json") from None
            for place in rule.places:
                put(data, place, value, rule.each)
        return from_data(data, AnySpec)

    def without(self, config: Config) -> tuple[str, AnySpec] | None:
        """A tensor and the spec of a checkpoint that lacks it; None where each must be there."""
        name, changes = self.lacking.get(self._architecture(config), (None, {}))
        if name is None:
            return None
        data = to_data(self.spec(config))
        for place, value in changes.items():
            put(data, place, value)
        return name, from_data(data, AnySpec)

    def _check(self, config: Config) -> None:
        """Raise UnsupportedError for fields that are unknown, or fixed and different."""
        read = {name for rule in self.rules for name in rule.fields} | set(self.stacks.values())
        known = read | self.fixed.keys() | self.free | FREE
        for name, value in config.items():
            if name not in known:
                raise UnsupportedError(
                    f"{name}: this field of a {self.name} configuration (here {value!r}) is not known; "
                    f"{nearest(name, known)}"
                )
            if name in self.fixed and not any(_equal(value, one) for one in self.fixed[name]):
                allowed = ", ".join(map(repr, self.fixed[name]))
                raise UnsupportedError(f"{name}: {value!r} is not supported in a {self.name} model; only {allowed}")

    def _architecture(self, config: Config) -> str:
        """The class that a configuration names; the first one where it names none."""
        given = config.get("architectures") or [next(iter(self.architectures))]
        given = given if isinstance(given, list) else [given]
        for name in given:
            if isinstance(name, str) and name in self.architectures:
                return name
        raise UnsupportedError(
            f"architectures: {', '.join(map(str, given))} is not known; of {self.name} models there are: "
            f"{', '.join(self.architectures)}"
        )

    def _begun(self, architecture: str, config: Config) -> dict[str, Any]:
        """The base as plain data, with the changes of an architecture and as many blocks as the configuration says."""
        data = to_data(self.base)
        for place, value in self.architectures[architecture].items():
            put(data, place, copy.deepcopy(value))
        for place, name in self.stacks.items():
            count = config.get(name)
            if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= 10_000:
                raise SettingError(f"{name}: {count!r} is not allowed; use a whole number from 1 to 10000")
            block = get(data, place)[0][0]
            put(data, place, [copy.deepcopy(block) for _ in range(count)])
        return data

    # ------------------------------------------------------------ spec to configuration

    def config(self, spec: AnySpec) -> Config:
        """The configuration of a spec. Raises UnsupportedError with the first path that the family cannot say."""
        config, found = self.nearest(spec)
        if found:
            raise UnsupportedError(f"a {self.name} model cannot be this one: {found[0]}")
        return config

    def nearest(self, spec: AnySpec) -> tuple[Config, list[Difference]]:
        """The configuration that comes nearest to a spec, and where its own spec differs."""
        wanted, best, own = written_out(to_data(spec)), None, self.base.__struct_config__.tag
        if own != wanted["kind"]:
            return {}, [Difference("kind", f"it can only have {own}, not {wanted['kind']}")]
        for architecture in self.architectures:
            config, found = self._config(wanted, architecture)
            try:
                config = self.complete(config)
                lacking = self.without(config)
                specs = [self.spec(config), *([] if lacking is None else [lacking[1]])]
                found += min((differences(wanted, written_out(to_data(one))) for one in specs), key=len)
            except GlassformerError as error:
                found = found or [Difference("", str(error))]
            if best is None or len(found) < len(best[1]):
                best = config, found
        assert best is not None
        return best

    def _config(self, data: dict[str, Any], architecture: str) -> tuple[Config, list[Difference]]:
        """The configuration, with a default where a rule cannot say a value; and these values."""
        config: Config = {"architectures": [architecture], "model_type": self.name}
        unsaid = []
        for place, name in self.stacks.items():
            config[name] = len((get(data, place) or [[]])[0])
        for rule in self.rules:
            values = [value for place in rule.places for value in get(data, place)]
            try:
                if values:
                    config |= rule.write(values if rule.each else values[0])
                    continue
            except (*WRONG, StopIteration):
                place = next(place for place in rule.places if get(data, place))
                what = f"{short(values[0])} cannot be said in {rule.fields[0]}"
                unsaid.append(Difference(place, what, short(values[0])))
            usual = {name: self.defaults.get(name) for name in rule.fields}
            config = {name: value for name, value in usual.items() if value is not None} | config
        return config, unsaid


# ---------------------------------------------------------------- places


def get(data: Any, place: str) -> list[Any]:
    """The values at a place of plain data, one for each element where it holds a *; none where a parent is null."""
    found = [data]
    for part in place.split("."):
        if part == "*":
            found = [one for several in found if isinstance(several, list) for one in several]
        else:
            found = [one[part] for one in found if isinstance(one, dict) and part in one]
    return found


def put(data: Any, place: str, value: Any, each: bool = False) -> None:
    """Set the places to a value, or with `each` the i-th of them to the i-th value. Settings without a kind replace
    only those of their names."""
    *above, last = place.split(".")
    parents = get(data, ".".join(above)) if above else [data]
    if each and len(value) != len(parents):
        raise SettingError(f"{place}: there are {len(value)} values for {len(parents)} blocks; give one for each")
    for i, parent in enumerate(parents):
        if isinstance(parent, dict) and last in parent:
            new = copy.deepcopy(value[i] if each else value)
            partly = isinstance(new, dict) and "kind" not in new and isinstance(parent[last], dict)
            parent[last] = parent[last] | new if partly else new


def written_out(data: dict[str, Any]) -> dict[str, Any]:
    """Plain data of a spec with what null stands for written out: head widths, groups, scales, hidden widths."""
    data = copy.deepcopy(data)
    for stack in [data, *(data[name] for name in ("encoder", "decoder") if isinstance(data.get(name), dict))]:
        dim = stack.get("dim") or (stack.get("embed") or {}).get("dim")
        for block in stack.get("blocks", ()):
            if block.get("kind") == "block" and dim:
                _write_out(block, dim)
                dim = block["width"] or dim
    return data


def _write_out(block: dict[str, Any], dim: int) -> None:
    for part in (block["mixer"], block["cross"]):
        if part and "kv_heads" in part:
            part["kv_heads"] = part["kv_heads"] or part["heads"]
            part["head_dim"] = part["head_dim"] or max(1, dim // part["heads"])
            part["scale"] = part["scale"] or part["head_dim"] ** -0.5
    if block["mixer"]["kind"] == "mamba":
        block["mixer"]["rank"] = block["mixer"]["rank"] or -(-dim // 16)
    if block["channel"] and "hidden" in block["channel"]:
        block["channel"]["hidden"] = hidden_width(from_data(block, BlockSpec).channel, dim)


@dataclass(frozen=True)
class Difference:
    """A place of a spec where a family has something else: its path (empty where it is not known), what is the matter,
    in words, and the value that the family cannot have."""

    path: str
    what: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.what}" if self.path else self.what


def differences(wanted: Any, found: Any, path: str = "") -> list[Difference]:
    """Where two specs differ, as plain data with everything written out."""
    if isinstance(wanted, dict) and isinstance(found, dict) and wanted.get("kind") == found.get("kind"):
        pairs = [(name, wanted.get(name), found.get(name)) for name in wanted | found if name not in NOT_COMPARED]
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = [(i, a, b) for i, (a, b) in enumerate(zip(wanted, found, strict=True))]
    elif _equal(wanted, found):
        pairs = []
    else:
        return [Difference(path, f"it can only have {short(found)}, not {short(wanted)}", short(wanted))]
    return [one for name, a, b in pairs for one in differences(a, b, f"{path}.{name}" if path else str(name))]


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) <= 1e-12 * abs(a)
    return a == b


def short(value: Any) -> str:
    """A value in a message: the kind of a part, or what Python shows."""
    text = value["kind"] if isinstance(value, dict) and "kind" in value else repr(value)
    return text if len(text) < 60 else f"{text[:59]}…"
