"""Networks of images by hand: the convolution's formula, LeNet-5 as it was published, shifted images and permuted
pixels, and patches as tokens (S2, S3, S4, S30; identity 11)."""

import copy

import pytest
import torch

from contract.cases import assert_same
from contract.image_cases import built, images_of, kept
from glassformer.image import ImageModelSpec
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec
from glassformer.model import BlockSpec, build_model
from glassformer.nn.maps import LENET_TABLE, Conv2dSpec, SubsampleSpec
from glassformer.nn.pixels import PatchesSpec, Sinusoidal2dSpec
from glassformer.tap import Probe


def traced(model, images):
    probe = Probe()
    model(images, probe=probe)
    return probe.values


# ---------------------------------------------------------------- convolution


@pytest.mark.parametrize(("stride", "pad", "table"), [(1, 0, None), (2, 1, None), (1, 0, ((0, 2), (1,)))])
@torch.no_grad()
def test_s4_a_convolution_by_hand(stride, pad, table):
    """y[i,j,k] = b[k] + Σ_u Σ_v Σ_c W[u,v,c,k] · x[i+u,j+v,c], number by number: not mirrored, a cross-correlation."""
    conv = Conv2dSpec(maps=2, kernel=3, stride=stride, pad=pad, table=table, activation="none")
    model = build_model(ImageModelSpec(classes=2, size=5, channels=3, blocks=(conv,))).double()
    layer = model.blocks[0]
    layer.bias.copy_(torch.tensor([0.3, -0.7]))
    images = torch.rand(1, 3, 5, 5, dtype=torch.float64)
    found = traced(model, images)["blocks.0.pre"][0]
    x = torch.zeros(5 + 2 * pad, 5 + 2 * pad, 3, dtype=torch.float64)  # rows, columns, channels, as in the formula
    x[pad : pad + 5, pad : pad + 5] = images[0].permute(1, 2, 0)
    places = [(k, c) for k, row in enumerate(table or ((0, 1, 2), (0, 1, 2))) for c in row]
    weights = layer.weight if table else layer.weight.flatten(0, 1)
    for k in range(2):
        for i in range(found.shape[1]):
            for j in range(found.shape[2]):
                y = layer.bias[k].item()
                for (out, c), w in zip(places, weights, strict=True):
                    for u in range(3):
                        for v in range(3):
                            if out == k:
                                y += w[u, v].item() * x[stride * i + u, stride * j + v, c].item()
                assert abs(found[k, i, j].item() - y) < 1e-12


@torch.no_grad()
def test_subsampling_by_hand():
    x = torch.tensor([[1.0, 2.0, 0.0, 4.0], [3.0, 6.0, 0.0, 0.0], [1.0, 1.0, 5.0, 5.0], [1.0, 1.0, 5.0, 6.0]])
    wanted = {
        ("sum", True): [[25.0, 9.0], [9.0, 43.0]],  # 2 · Σ + 1
        ("sum", False): [[3.0, 1.0], [1.0, 5.25]],
        ("max", True): [[13.0, 9.0], [3.0, 13.0]],
        ("max", False): [[6.0, 4.0], [1.0, 6.0]],
    }
    for (pool, trained), numbers in wanted.items():
        layer = SubsampleSpec(pool=pool, trained=trained)
        model = build_model(ImageModelSpec(classes=2, size=4, blocks=(layer,)))
        if trained:
            assert model.blocks[0].weight.tolist() == [0.5 if pool == "sum" else 1.0]
            model.blocks[0].weight.fill_(2.0)
            model.blocks[0].bias.fill_(1.0)
        assert traced(model, x[None, None])["blocks.0.out"][0, 0].tolist() == numbers


# ---------------------------------------------------------------- LeNet-5


def test_s2_lenet_has_the_layers_of_the_paper():
    """Sizes and trainable parameters of C1 to F6 as section II.B gives them."""
    model = kept("lenet")
    counts = [sum(p.numel() for p in layer.parameters()) for layer in model.blocks]
    assert counts == [156, 12, 1_516, 32, 48_120, 10_164] and sum(counts) == 60_000
    sizes = [shape.sizes for shape in model.shapes]
    assert sizes == [(1, 32, 32), (6, 28, 28), (6, 14, 14), (16, 10, 10), (16, 5, 5), (120, 1, 1), (84,)]


def test_the_connections_of_c3_are_those_of_table_1():
    """Row by row as the table prints them: which maps of C3 each map of S2 goes to."""
    printed = """X...XXX..XXXX.XX
                 XX...XXX..XXXX.X
                 XXX...XXX..X.XXX
                 .XXX..XXXX..X.XX
                 ..XXX..XXXX.XX.X
                 ...XXX..XXXX.XXX"""
    rows = ["".join("X" if c in row else "." for row in LENET_TABLE) for c in range(6)]
    assert rows == printed.split()


def test_the_squashing_function_is_the_papers():
    """f(a) = 1.7159 tanh(2a/3): f(1) = 1, f(-1) = -1, gain near 1 around them; background -0.1, ink 1.175."""
    images = torch.stack((torch.zeros(1, 28, 28), torch.ones(1, 28, 28)))
    values = traced(kept("lenet"), images)
    assert_same(values["blocks.5.out"], 1.7159 * torch.tanh(values["blocks.5.pre"] * 2 / 3))
    assert abs(1.7159 * torch.tanh(torch.tensor(2 / 3)).item() - 1) < 1e-4
    assert torch.allclose(values["embed.out"][0], torch.tensor(-0.1))
    assert torch.allclose(values["embed.out"][1, :, 2:-2, 2:-2], torch.tensor(1.175))
    assert torch.allclose(values["embed.out"][1, :, :2], torch.tensor(-0.1))  # the padding is background


@torch.no_grad()
def test_s4_a_shifted_image_has_shifted_features_in_the_interior():
    """Bit for bit: C1 and C3 of LeNet for a shift by as many pixels as subsampling keeps whole; not so by one pixel."""
    model, place = kept("lenet"), slice(9, 17)
    image = torch.zeros(1, 1, 28, 28)
    image[..., place, place] = torch.rand(8, 8, generator=torch.Generator().manual_seed(1))
    before = traced(model, image)
    for by, same in ((4, True), (1, False)):
        after = traced(model, image.roll((by, by), (2, 3)))
        for i, name in enumerate(("blocks.0.out", "blocks.1.out", "blocks.2.out", "blocks.3.out")):
            step = (1, 2, 2, 4)[i]
            a, b = before[name], after[name]
            moved = by // step
            inner = a.shape[-1] - moved
            shifted = torch.equal(b[..., moved:, moved:], a[..., :inner, :inner])
            assert shifted == (same or i == 0), (by, name)


# ---------------------------------------------------------------- the MLP knows no places


def shuffled(model, order):
    """The MLP whose first layer reads pixel order[i] where the given one reads pixel i."""
    made = copy.deepcopy(model)
    weight = made.blocks[0].linear.weight
    weight.data = weight.data[:, order].contiguous()
    return made


@torch.no_grad()
def test_s3_permuting_the_pixels_with_the_weights_changes_nothing():
    model, images = built("mlp"), images_of("mlp", 4)
    order = torch.randperm(images[0].numel(), generator=torch.Generator().manual_seed(3))
    permuted = images.flatten(1)[:, order].view_as(images)
    assert_same(shuffled(model, order)(permuted), model(images), 1e-6)


@pytest.mark.parametrize("rule", [torch.optim.SGD, torch.optim.AdamW])
def test_s3_an_mlp_on_permuted_pixels_learns_along_the_same_path(rule):
    """Identity 11: from permuted initial weights, every update is the permuted one, in fp64 to rounding."""
    plain = built("mlp").double()
    images = torch.cat([images_of("mlp", 8, seed) for seed in range(20)]).double()
    truth = torch.randint(3, (len(images),), generator=torch.Generator().manual_seed(4))
    order = torch.randperm(images[0].numel(), generator=torch.Generator().manual_seed(3))
    permuted = images.flatten(1)[:, order].view_as(images)
    other = shuffled(plain, order)
    start = plain.blocks[0].linear.weight.clone()
    for model, seen in ((plain, images), (other, permuted)):
        optimizer = rule(model.parameters(), lr=0.01)
        for first in range(0, len(images), 8):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(seen[first : first + 8]), truth[first : first + 8])
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        assert (plain.blocks[0].linear.weight - start).abs().max() > 0.01  # it has moved
        assert_same(other.blocks[0].linear.weight, plain.blocks[0].linear.weight[:, order], 1e-9)
        assert_same(other(permuted), plain(images), 1e-9)


# ---------------------------------------------------------------- patches are tokens


@torch.no_grad()
def test_s30_patches_are_read_row_by_row_and_the_class_from_its_token():
    model, images = kept("vit"), images_of("vit", 2)
    values, embed, p = traced(model, images), model.embed, 4
    normed = (images - 0.5) / 0.5
    for row in range(3):
        for column in range(3):
            square = normed[:, :, p * row : p * row + p, p * column : p * column + p]  # b c y x
            wanted = square.flatten(1) @ embed.patch.weight.T + embed.patch.bias
            assert_same(values["embed.patch"][:, 3 * row + column], wanted)
    table = embed.position.weight
    assert_same(values["embed.out"][:, 0], (embed.first + table[0]).expand(2, -1))
    assert_same(values["embed.out"][:, 1:], values["embed.patch"] + table[1:])
    assert torch.equal(values["head.pooled"], values["norm.out"][:, 0])
    values = traced(kept("vit-mean"), images_of("vit-mean", 2))
    assert_same(values["head.pooled"], values["norm.out"].mean(1))


@torch.no_grad()
def test_sinusoids_tell_row_and_column_in_two_halves():
    values = traced(kept("vit-mean"), images_of("vit-mean", 1))["embed.position"][0].view(4, 4, 16)  # row, column
    assert torch.equal(values[2, :, :8], values[2, :1, :8].expand(4, 8)) and not values[0, 0, :8].equal(
        values[1, 0, :8]
    )
    assert torch.equal(values[:, 3, 8:], values[:1, 3, 8:].expand(4, 8)) and torch.equal(
        values[1, 2, :8], values[2, 1, 8:]
    )
    three = torch.tensor(3.0)
    assert_same(values[3, 0, :2], torch.stack((three.sin(), three.cos())))


@torch.no_grad()
def test_s15_without_positions_a_vision_transformer_sees_a_bag_of_patches():
    def outputs(position):
        block = BlockSpec(mixer=AttentionSpec(heads=2, mask=Mask(causal=False)))
        spec = ImageModelSpec(
            classes=4, size=6, embed=PatchesSpec(patch=2, dim=16, position=position), blocks=(block, block)
        )
        torch.manual_seed(0)
        model = build_model(spec)
        image = torch.rand(1, 1, 6, 6)
        swapped = image.clone()
        swapped[..., :2, :2], swapped[..., 4:, 2:4] = image[..., 4:, 2:4], image[..., :2, :2]
        return model(image), model(swapped)

    plain, swapped = outputs(None)
    assert_same(swapped, plain, 1e-5)
    plain, swapped = outputs(Sinusoidal2dSpec())
    assert (plain - swapped).abs().max() > 1e-3
