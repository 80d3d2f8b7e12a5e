"""What the allocator's record says, and that writing on takes no more memory where the state has a fixed size."""

from functools import cache

import pytest
import torch

from glassformer.bench import memory
from glassformer.bench.families import FAMILIES
from glassformer.bench.memory import SHORT, Written, fixed, grows, main, peak_bytes, written

# Of FAMILIES all but those that keep every token, and those that do not write.
FIXED = set(FAMILIES) - {"attention", "strided", "top-k", "memory-caching"} - {"mixer", "fourier"}
once = cache(written)


def test_peak_bytes_are_those_held_at_once():
    def work():
        first = torch.empty(1000)
        del first
        second, third = torch.empty(300), torch.empty(200)
        return second, third

    assert peak_bytes(work) == 4000


def test_which_families_have_a_state_of_fixed_size():
    assert set(fixed(4096)) == FIXED


@pytest.mark.parametrize("name", ["lstm", "window", "gla", "transformer-xl", "memory-tokens", "alignment"])
def test_a_text_twice_as_long_takes_no_more_memory(name):
    short, long = once(name, SHORT), written(name, 2 * SHORT)
    assert short.state_bytes == long.state_bytes == (long.told_bytes,) and not grows(short, long)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FIXED))
def test_writing_4096_tokens_takes_no_more_memory_than_writing_a_few(name):
    short, long = once(name, SHORT), written(name, 4096)
    assert short.state_bytes == long.state_bytes == (long.told_bytes,) and not grows(short, long)


@pytest.mark.parametrize("name", ["attention", "memory-caching"])
def test_memory_that_grows_is_found_out(name, capsys, monkeypatch):
    short, long = once(name, SHORT), written(name, 4 * SHORT)
    assert long.state_bytes == (long.told_bytes,) > short.state_bytes and grows(short, long)
    assert long.first_bytes > short.first_bytes + long.told_bytes - short.told_bytes - 256
    same = Written((8,), 8, 1000, 1000), Written((8,), 8, 1000, 2000)
    assert not grows(same[0], same[0]) and grows(*same)  # the state alone does not tell
    monkeypatch.setattr(memory, "written", lambda name, tokens: same[tokens > SHORT])
    for families, status in (([name], 0), (["gla", name], 1)):  # from attention nothing else is asked
        assert main(["--families", *families, "--tokens", "4096"]) == status
        assert capsys.readouterr().out.count("grows") == len(families)
