"""What each layer would say against layer norms and products written out here; a lens that has something to learn."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sheet_models import SPECS, loaded

import glassformer as gf
from glassformer.data.display import alone
from glassformer.errors import InputError
from glassformer.explain import tuned

TEXT = "고양이가 생선을 먹었다"
TEXTS = [
    f"{a} {b} {c}"
    for a in ("고양이가", "개가", "별이")
    for b in ("생선을", "물을", "밤에")
    for c in ("먹었다", "보았다", "빛난다")
]
LAYERS = ("embed.out", "blocks.0.resid_out", "blocks.1.resid_out")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GLASSFORMER_HOME", str(tmp_path))
    return tmp_path / "lenses"


def logs_of(model, x):
    """Log probabilities in bits of a model whose last norm is a layer norm and whose head is its table."""
    norm, table = model.norm, model.embed.token.weight
    x = F.layer_norm(x.double(), x.shape[-1:], norm.weight.double(), norm.bias.double(), norm.spec.eps)
    return (x @ table.double().T).log_softmax(-1) / math.log(2)


def test_the_logit_lens_is_the_last_norm_and_the_head():
    trace = loaded().trace(TEXT)
    one = gf.explain("lens", trace, token=3)
    said = [logs_of(trace.model, trace[name][0]) for name in LAYERS]
    end = trace.logits[0].double().log_softmax(-1) / math.log(2)
    top = end.argmax(-1)
    for l, logs in enumerate(said):
        away = (end.exp2() * (end - logs)).sum(-1)
        assert one.figure("tokens").values[l] == pytest.approx(away.tolist(), rel=1e-4, abs=1e-5)
        assert one.figure("divergence").lines[0].values[l] == pytest.approx(away.mean().item(), rel=1e-4, abs=1e-5)
        final = [logs[t, top[t]].exp2().item() for t in range(len(top))]
        assert one.figure("final").values[l] == pytest.approx(final, rel=1e-4)
        name, token, share, bits, place = one.figure("candidates").rows[l]
        assert name == ("embed.out", "0", "1")[l] and token == alone(trace.loaded.cell(int(logs[3].argmax())))
        assert (share, bits) == (
            pytest.approx(logs[3].max().exp2().item(), rel=1e-4),
            pytest.approx(away[3].item(), abs=1e-5),
        )
        assert place == 1 + int((logs[3] > logs[3, top[3]]).sum())
    for l in (1, 2):
        moved = (said[l].exp2() * (said[l] - said[l - 1])).sum(-1)
        assert one.figure("change").values[l - 1] == pytest.approx(moved.tolist(), rel=1e-4)
    checks = {check.name: check for check in one.checks}
    assert checks["last"].passed and checks["last"].value < 1e-6
    assert checks["mean"].value == pytest.approx(np.mean(one.figure("tokens").values[:-1]))


@pytest.mark.parametrize(
    "edit", [gf.scale("norm.out", 3.0, t=2), gf.add("head.logits", 2.0, v=1), gf.zero("blocks.1.mixer.z", h=0)]
)
def test_the_last_layer_says_what_a_changed_run_said(edit):
    trace = loaded(SPECS["post"] if edit.name.startswith("blocks") else SPECS["rope"]).trace(TEXT, edits=edit)
    assert gf.explain("lens", trace).checks[0].passed


def test_a_regression_is_that_of_least_squares():
    x, y = (torch.randn(40, 6, generator=torch.Generator().manual_seed(k)) for k in (0, 1))
    a, b = tuned.regression(x, y, 0.1)
    away, to = ((one - one.mean(0)).double().numpy() for one in (x, y))
    weight = math.sqrt(0.1 * 40 * (away**2).mean())
    wanted = np.linalg.lstsq(np.vstack((away, weight * np.eye(6))), np.vstack((to, np.zeros((6, 6)))), rcond=None)[0]
    assert a.numpy() == pytest.approx(wanted, rel=1e-4, abs=1e-6)
    assert (x.mean(0) @ a + b).numpy() == pytest.approx(y.mean(0).numpy(), abs=1e-6)


@torch.no_grad()
def test_a_layer_that_says_the_end_in_another_basis_is_read():
    """What the blocks end in is an affine map of the layer: the regression finds it, gradient alone comes nearer, and
    where there is nothing to be read the lens stays the logit lens."""
    stack = loaded().trace(TEXT).stacks[-1]
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(400, 16, generator=draw)
    last = x @ (torch.eye(16) + 0.5 * torch.randn(16, 16, generator=draw)) + torch.randn(16, generator=draw)
    nothing = (torch.zeros(16, 16), torch.zeros(16))
    aside = torch.arange(400) % 5 == 4
    before, found = tuned._cost(stack, x, last, nothing), tuned._of_layer(stack, x, last, aside, 0, 0)
    assert tuned._cost(stack, x, last, found) < 1e-3 * before
    moved = tuned.descended(stack, x, last, nothing, 40, 0)
    assert tuned._cost(stack, x, last, moved) < 0.97 * before
    rest = torch.randn(400, 16, generator=draw)
    kept = tuned._of_layer(stack, x, x + 0.01 * rest, aside, 0, 0)
    assert tuned._cost(stack, x[aside], (x + 0.01 * rest)[aside], kept) <= tuned._cost(
        stack, x[aside], (x + 0.01 * rest)[aside], nothing
    )


def test_a_tuned_lens_learns_on_other_texts_and_is_kept(home):
    model = loaded()
    trace = model.trace(TEXT)
    assert TEXT in TEXTS
    one = gf.explain("lens", trace, lens="tuned", texts=TEXTS, steps=5)
    checks = {check.name: check for check in one.checks}
    plain = gf.explain("lens", trace)
    for figure in ("tokens", "final"):  # its map of the last layer is nothing, bit for bit
        assert one.figure(figure).values[-1] == plain.figure(figure).values[-1]
    assert checks["last"].passed and checks["last"].value == plain.checks[0].value
    assert one.figure("divergence").lines[0] == plain.figure("divergence").lines[0]
    assert checks["mean_logit"].value == plain.checks[1].value > checks["mean"].value
    others = [text for text in TEXTS if text != TEXT]
    lens = tuned.trained([model.trace(text) for text in others], 5)
    assert lens.tokens == sum(len(model.encode(text)) - 1 for text in others)
    x = trace["blocks.0.resid_out"][0]
    read = logs_of(trace.model, x + x @ lens.a[1] + lens.b[1])
    end = trace.logits[0].double().log_softmax(-1) / math.log(2)
    assert one.figure("tokens").values[1] == pytest.approx(
        (end.exp2() * (end - read)).sum(-1).tolist(), rel=1e-3, abs=1e-5
    )

    [file] = home.iterdir()
    written = file.read_bytes()
    assert gf.explain("lens", trace, lens="tuned").figures == one.figures  # the one that is kept
    file.write_bytes(written[: len(written) // 2])
    assert gf.explain("lens", trace, lens="tuned", texts=TEXTS, steps=5).figures == one.figures
    assert file.read_bytes() == written  # made again
    other = loaded()
    with torch.no_grad():
        other.model.blocks[0].mixer.q.weight[0, 0] += 1
    with pytest.raises(InputError, match="texts: a tuned lens learns on texts, and this model has none yet"):
        gf.explain("lens", other.trace(TEXT), lens="tuned")
    with pytest.raises(InputError, match="texts: [0-9]+ tokens are too few for a lens; give texts with 64 at least"):
        gf.explain("lens", trace, lens="tuned", texts=TEXTS[:2])
    # a text that a lens has learnt, in other blanks and capitals too, is never read by that lens
    for known in (others[0], f"  {others[0].upper()}\n", f"{TEXT} a\n{others[0]}"):
        with pytest.raises(InputError, match="this model has none yet that learnt on others than this"):
            gf.explain("lens", model.trace(known), lens="tuned")
    both = model.trace(f"{others[0]}\n{TEXT}")  # neither of its lines is learnt from, but the others are, as before
    found = gf.explain("lens", both, lens="tuned", texts=TEXTS, steps=0)
    assert len(list(home.iterdir())) == 2
    lens = tuned.trained([model.trace(text) for text in others[1:]], 0)
    x = both["blocks.0.resid_out"][0]
    read, end = logs_of(both.model, x + x @ lens.a[1] + lens.b[1]), both.logits[0].double().log_softmax(-1)
    away = (end.exp() * (end / math.log(2) - read)).sum(-1)
    assert found.figure("tokens").values[1] == pytest.approx(away.tolist(), rel=1e-3, abs=1e-5)
    assert gf.explain("lens", both, lens="tuned").figures == found.figures  # not the first lens, which knows a line
    for given in (TEXT, f" {TEXT} ", "\n"):
        with pytest.raises(InputError, match="texts: a lens learns on other texts than the one that it reads"):
            gf.explain("lens", trace, lens="tuned", texts=given)
