"""The numbers of a text that is written: what each token was chosen among, and what the model keeps."""

import re

import pytest
import torch
from test_page_numbers import digits

import glassformer as gf

TEXT = "고양이가 잤다"
SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}


def size(text):
    """(its digits, the bytes of its unit) of a size that the page writes."""
    number, unit = text.split()
    return number, SIZES[unit]


@pytest.mark.slow
def test_what_is_said_of_a_written_token_is_pythons(pages):
    """Each token against logits of the whole text before it, and the size of its cache counted by hand."""
    model, settings = gf.load("small"), {"max_new_tokens": 4, "temperature": 0.8, "seed": 3}
    made = [event.token for event in model.generate(TEXT, **settings)]
    more = "write=" + "%26".join(f"{name}%3D{value}" for name, value in settings.items())
    page = pages.open(model="small", text=TEXT, view="write", lang="en", more=more)
    assert page.locator(".text button").count() == len(made) == 4
    spec, ids = model.model.spec, [*model.encode(TEXT)]
    # In every layer a key and a value, in fp32, of each token, and where it stands, in int64.
    keeps = len(spec.blocks) * (2 * spec.dim * 4 + 8)
    for k, token in enumerate(made):
        page.locator(".text button").nth(k).click()
        with torch.no_grad():
            shares = model.model(torch.tensor([ids]))[0, -1].softmax(-1)
        rows = page.locator("#view .bars tr")
        assert rows.count() == 8
        for row, p in zip(rows.all(), shares.topk(8).values.tolist(), strict=True):
            assert digits(row.locator(".n").inner_text(), p)
        told = page.inner_text("#view .below")
        assert digits(re.search(r"The chosen one: ([<0-9.]+ ?%)", told)[1], shares[token].item())
        length, kept = re.search(r"Before this token: (\d+) tokens, ([0-9.]+ \w+);", told).groups()
        number, unit = size(kept)
        assert int(length) == len(ids) and digits(number, keeps * len(ids) / unit)
        ids.append(token)
    first, last = (size(one) for one in page.locator("#view .ends span").all_inner_texts())
    assert digits(first[0], keeps * (len(ids) - 4) / first[1]) and digits(last[0], keeps * (len(ids) - 1) / last[1])
