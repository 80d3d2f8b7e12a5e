"""Hands on: what is changed in the page is what Python changes, and every number beside it is Python's."""

import base64
import itertools
import json
import re
import shlex

import pytest
from pages import settle
from quick import quick_first
from test_page_numbers import Figures, check_page

import glassformer as gf
from glassformer.cli import main
from glassformer.edit import KINDS, NUMBERED, SEEDED
from glassformer.terminal.edits import edit_of

TEXT = "고양이가 생선을 먹었다"


def trace_shown(page):
    """The trace that the page's own Python lines make, and the explanation of its last line."""
    lines = page.locator("#view pre").first.inner_text().splitlines()
    made: dict = {}
    exec("\n".join(lines[:-1]), made)
    return made["trace"], eval(lines[-1], made), made


def checked(page, least):
    """All numbers of the view against the run that its Python lines make; the command names the same edits."""
    trace, found, _ = trace_shown(page)
    assert check_page(page, trace, Figures(trace)) >= least
    command = page.locator("#view pre").nth(1)
    if command.count():
        words = shlex.split(command.inner_text())
        edits = [edit_of(one).line for option, one in itertools.pairwise(words) if option == "--edit"]
        assert words[:2] == ["glassformer", "trace"] and edits == [one.line for one in trace.edits]
    return found


def press(page, *names):
    for name in names:
        page.get_by_role("button", name=name, exact=True).click()
        settle(page)


def test_a_head_is_switched_off_and_back(pages):
    page = pages.open(text=TEXT, view="hands", lang="en", layer=2, head=1)
    assert "Nothing yet" in page.inner_text("#view") and checked(page, 8)
    assert page.locator("thead").inner_text().strip().split("\t")[1:] == ["as it is"]
    press(page, "switch head 2.1 off")
    found = checked(page, 40)
    assert "control" in page.inner_text("thead") and "gf.zero('blocks.2.mixer.z', h=2)" in page.inner_text("#view")
    assert next(one for one in found.checks if one.name == "variation").value > 0
    bars = page.eval_on_selector_all("tbody tr:first-child i b", "all => all.map((one) => one.style.width)")
    shares = [float(one.rstrip("%")) for one in bars]
    assert len(shares) == 3 and max(shares) == pytest.approx(100)  # the largest of all fills its bar: one scale
    press(page, "no MLP in layer 2")
    assert page.locator(".edits li").count() == 3 and checked(page, 40)
    press(page, "switch head 2.1 off")  # pressed again it is taken back
    assert json.loads(page.evaluate("new URLSearchParams(location.hash.slice(1)).get('edits')")) == [
        {"kind": "zero", "name": "blocks.2.channel.out", "where": {}, "value": None}
    ]
    press(page, "switch head 2.1 off")
    press(page, "head 2.1 to its mean")  # the same values: in the place of the other, and of what is inside a part
    assert page.locator(".edits code").all_inner_texts() == [
        "gf.zero('blocks.2.channel.out')",
        "gf.mean('blocks.2.mixer.z', h=1)",
    ]
    press(page, "no mixing in layer 2")
    assert page.locator(".edits code").all_inner_texts() == [
        "gf.zero('blocks.2.channel.out')",
        "gf.zero('blocks.2.mixer.out')",
    ]
    press(page, "switch head 2.1 off")
    assert page.locator(".edits code").last.inner_text() == "gf.zero('blocks.2.mixer.z', h=1)"
    press(page, "take all back")
    assert "Nothing yet" in page.inner_text("#view")


def changes(page):
    return page.locator(".edits code").all_inner_texts()


def test_an_edge_is_cut_with_its_control_in_view(pages):
    """From the four steps in one head, then in the whole layer with the other weights as they were."""
    page = pages.open(text=TEXT, view="steps", lang="en", layer=1, head=2, token=6, key=3)
    press(page, "cut this edge")
    found = checked(page, 40)
    assert changes(page) == ["gf.cut('blocks.1.mixer', t=6, s=3, h=2)"]
    runs = [row[1] for row in found.figure("runs").rows]
    assert runs == ["", "gf.cut('blocks.1.mixer', t=6, s=3, h=2)", "gf.cut('blocks.1.mixer', t=6, s=3, h=3)"]
    assert next(one for one in found.checks if one.name == "variation").value > 0
    page.get_by_label("the other weights stay as they were").check()
    press(page, "cut it in all of layer 1", "cut it in head 1.2")
    assert changes(page) == [
        "gf.cut('blocks.1.mixer', t=6, s=3, renormalise=False)",
        "gf.cut('blocks.1.mixer', t=6, s=3, h=2, renormalise=False)",
    ]
    checked(page, 40)
    page.get_by_role("combobox", name="Control").select_option("norm")
    settle(page)
    first = checked(page, 40)
    assert first.figure("runs").rows[2][1].startswith("gf.add('blocks.1.mixer.out'")
    page.get_by_label("seed of the control").fill("7")
    page.keyboard.press("Tab")
    settle(page)
    found = checked(page, 40)
    assert "seed=7" in found.python and found.figure("outcome").rows != first.figure("outcome").rows
    again = pages.open(url=page.url, lang="en")  # all of it stands in the address
    assert again.inner_text("tbody") == page.inner_text("tbody") and changes(again) == changes(page)


@pytest.mark.slow
def test_any_value_is_changed_in_any_way_at_any_place(pages):
    """Each kind that a person can choose, each with a number or a seed where it takes one; at a token, in a head."""
    page = pages.open(text=TEXT, view="hands", lang="en", layer=1, head=2, token=5)
    value, kind = page.get_by_label("the value", exact=True), page.get_by_label("how it is changed")
    told = kind.locator("option").evaluate_all("all => all.map((one) => one.value)")
    assert {*told} | {"patch", "cut"} == {*KINDS}  # the two that name another place have fields of their own
    value.select_option("blocks.1.mixer.z")
    page.get_by_label("in head 2 alone").check()
    page.get_by_label("at “5 ", exact=False).check()
    wanted = []
    for name in told:
        kind.select_option(name)
        for label in ["the number"] * (name in NUMBERED) + ["seed"] * (name in SEEDED):
            page.get_by_label(label, exact=True).fill("3")
        press(page, "change it")
        more = "".join([", 3" * (name in NUMBERED), ", seed=3" * (name in SEEDED)])
        wanted = [f"gf.{name}('blocks.1.mixer.z'{more}, t=5, h=2)"]  # in the place of the one before
        assert changes(page) == wanted
    assert checked(page, 40).figure("runs").rows[2][1].startswith("gf.noise('blocks.1.mixer.z', 3, seed=3, t=5, h=")
    value.select_option("embed.out")
    press(page, "change it")
    assert (
        changes(page) == [*wanted, "gf.noise('embed.out', 3, seed=3, t=5)"]
        and page.get_by_label("in head").count() == 0
    )
    page.get_by_label("the number", exact=True).fill("")
    assert page.get_by_role("button", name="change it").is_disabled()
    checked(page, 40)


@pytest.mark.slow
def test_what_a_decoder_reads_of_its_source_is_cut(pages):
    page = pages.open(model="korean-g2p", text="고양이", view="hands", lang="en")
    page.get_by_label("Stack").select_option("decoder")
    page.get_by_label("Layer").select_option("2")  # the one that reads the source
    page.get_by_label("looks at").first.select_option("the source")
    [read, written] = [len(one.tokens[0]) for one in gf.load("korean-g2p").trace("고양이").stacks]
    assert page.locator("fieldset:has(legend:text-is('An edge')) option").count() == read != written
    press(page, "cut it in all of layer 2")
    assert re.fullmatch(r"gf\.cut\('decoder\.blocks\.2\.mixer\.cross', t=\d+, s=\d+.*\)", changes(page)[0])
    assert checked(page, 20).checks[0].value > 0


@pytest.mark.slow
def test_values_of_another_text_are_put_in_and_its_weights_kept(pages):
    other = "고양이는 생선을 먹었다"  # of as many tokens
    page = pages.open(text=TEXT, view="hands", lang="en", layer=2, head=1, token=4)
    assert page.get_by_role("button", name="put in its vector after layer 2").is_disabled()
    page.get_by_label("The other text", exact=True).fill(other)
    page.get_by_label("the token of the other text").fill("3")
    press(page, "put in its vector after layer 2")
    found = checked(page, 40)
    assert changes(page) == [f"gf.patch('blocks.2.resid_out', '{other}', t=4, there={{'t': 3}})"]
    assert "gf.patch('blocks.3.resid_out'" in found.figure("runs").rows[2][1]
    press(page, "the other way round")
    assert page.input_value("#text") == other
    assert changes(page) == [f"gf.patch('blocks.2.resid_out', '{TEXT}', t=3, there={{'t': 4}})"]
    checked(page, 40)
    press(page, "take all back", "freeze all layers")
    frozen = [f"gf.patch('blocks.{i}.mixer.pattern', '{TEXT}')" for i in range(4)]
    assert changes(page)[:4] == frozen and checked(page, 25).checks[0].value > 0
    press(page, "freeze all layers")
    assert "Nothing yet" in page.inner_text("#view")
    page.get_by_label("The other text", exact=True).fill("별")
    press(page, "freeze layer 2 to its weights")  # of another length
    assert (
        "the other run has 2 places where this one is patched at 9" in page.locator("#view [role=alert]").inner_text()
    )


@pytest.mark.slow
def test_an_edge_is_cut_from_the_map_of_a_head_on_a_phone_and_kept_in_a_file(pages, tmp_path):
    page = pages.open(text=TEXT, view="heads", layer=1, head=2, token=6, key=3, width=360)
    press(page, "이 연결 끊기")
    assert changes(page) == ["gf.cut('blocks.1.mixer', t=6, s=3, h=2)"] and "대조" in page.inner_text("thead")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    kept = tmp_path / "kept.html"
    gf.load("small").trace(TEXT, edits=gf.cut("blocks.1.mixer", t=6, s=3, h=2)).save(kept)
    page = pages.open(url=kept.as_uri(), lang="en", view="steps", key=3)
    assert "gf.cut('blocks.1.mixer', t=6, s=3, h=2)" in page.locator("#view [role=note]").inner_text()
    assert page.get_by_role("button", name="cut this edge").count() == 0


@pytest.mark.slow
def test_what_is_changed_is_changed_while_it_writes(pages):
    page = pages.open(text=TEXT, view="steps", lang="en", layer=1, head=2, token=6, key=3)
    press(page, "cut this edge")
    page.click("#tab-write")
    page.get_by_label("new tokens").fill("5")
    press(page, "Write")
    page.get_by_role("heading", name="Terminal").wait_for()
    line = page.locator("#view pre").first.inner_text()
    assert "edits=[gf.cut('blocks.1.mixer', t=6, s=3, h=2)]" in line and "with the changes above" in page.inner_text(
        "#view"
    )
    assert "--edit 'cut blocks.1.mixer t=6 s=3 h=2'" in page.locator("#view pre").nth(1).inner_text()


@pytest.mark.slow
def test_every_view_says_that_the_run_is_changed(pages, tmp_path):
    edits = json.dumps([{"kind": "zero", "name": "blocks.2.mixer.z", "where": {"h": 1}, "value": None}])
    page = pages.open(text=TEXT, lang="en", edits=edits)
    tabs = [
        one for one in page.locator("[role=tab]").evaluate_all("all => all.map((one) => one.id)") if one != "tab-hands"
    ]
    assert len(tabs) >= 6
    for tab in tabs:
        page.click(f"#{tab}")
        told = page.locator("#view [role=note]").inner_text()
        assert "gf.zero('blocks.2.mixer.z', h=1)" in told
        assert ("as it is" in told) == (tab in ("tab-families", "tab-two")), tab
    page.click("#tab-flow")
    settle(page)
    press(page, "take back gf.zero('blocks.2.mixer.z', h=1)")
    assert page.locator("#view [role=note]").count() == 0 and "edits" not in page.url
    kept = tmp_path / "kept.html"
    gf.load("small").trace(TEXT, edits=gf.zero("blocks.2.mixer.z", h=1)).save(kept)
    page = pages.open(url=kept.as_uri(), lang="en")
    told = page.locator("#view [role=note]")
    assert "gf.zero('blocks.2.mixer.z', h=1)" in told.inner_text() and told.locator("button").count() == 0


def test_the_blank_of_a_swapped_token_stays(pages):
    page = pages.open(text="The cat ate", view="hands", lang="en", token=2)
    page.get_by_label("instead of “␠c”").fill("dog")
    press(page, "swap")
    assert page.input_value("#text") == "The dogat ate"
    checked(page, 25)
    told = page.locator("tbody tr td:last-child").all_inner_texts()
    assert told and all(one.endswith(" pp") for one in told)
    # The outcome is looked at behind the last piece of what was put in, there and in the command.
    cells = gf.load("small").trace("The dogat ate").cells("token")
    (last,) = next(one.tokens for one in cells if one.end == len("The dog"))
    assert last > 2 and re.search(rf"token={last}\b", page.url)
    assert f"--token '#{last}'" in page.locator("#view pre").nth(1).inner_text()


def test_the_position_signal_of_the_shipped_model(pages):
    page = pages.open(text=TEXT, view="hands", lang="en")
    press(page, "none")
    assert checked(page, 25).figure("runs").rows[1][1] == "gf.zero('positions')"
    press(page, "reversed")  # in the place of the other
    found = checked(page, 25)
    assert found.figure("runs").rows[1][1] == "gf.scale('positions', -1), gf.add('positions', 8)"
    press(page, "shifted by")
    found = checked(page, 25)
    assert found.figure("runs").rows[1][1] == "gf.add('positions', 5)"
    assert found.checks[0].value < 1e-5  # RoPE sees distances alone
    press(page, "shifted by")
    assert "Nothing yet" in page.inner_text("#view")


def test_a_token_is_swapped_and_the_temperature_changed(pages):
    page = pages.open(text=TEXT, view="hands", lang="en", token=1)
    page.get_by_label("instead of").fill("여우")
    press(page, "swap")
    found = checked(page, 25)
    assert page.input_value("#text") == "여우양이가 생선을 먹었다" and TEXT in page.inner_text(".edits")
    assert found.figure("runs").rows[0][0] == TEXT
    page.get_by_label("temperature as a number").fill("2.5")
    page.keyboard.press("Tab")
    settle(page)
    checked(page, 25)
    assert "temperature=2.5" in page.locator("#view pre").first.inner_text()
    again = pages.open(url=page.url, lang="en")  # all of it stands in the address
    assert again.inner_text("tbody") == page.inner_text("tbody")
    page.get_by_label("temperature as a number").fill("")
    page.get_by_label("temperature as a number").press_sequentially("1e")  # no number; the slider brings one
    assert page.locator(".heat [role=alert]").count() == 1
    page.get_by_label("temperature", exact=True).press("ArrowRight")
    settle(page)
    assert page.locator(".heat [role=alert]").count() == 0
    press(page, "take all back")
    assert page.input_value("#text") == TEXT and "Nothing yet" in page.inner_text("#view")
    page.get_by_label("temperature as a number").fill("2")
    page.keyboard.press("Tab")
    settle(page)
    assert "No control" in page.inner_text("#view")


@pytest.mark.parametrize("model", quick_first(["korean-g2p", "lstm", "mlp", "vit"], ["mlp"]))
def test_models_of_every_kind(pages, model):
    """A pair, a recurrence, and an image: whatever can be switched off moves what the run ends in."""
    where = {"view": "hands", "model": model, "text": "값없이" if model == "korean-g2p" else TEXT, "lang": "en"}
    if model == "vit":
        page = pages.open(model="small", text=TEXT, lang="en")
        page.get_by_role("button", name="Model").click()
        page.locator("dialog li button", has=page.locator("b", has_text="vit")).first.click()
        settle(page)
        page.click("#tab-hands")
        settle(page)
    else:
        page = pages.open(**where)
    press(page, page.get_by_role("button", name="no mixing in layer").inner_text())
    assert page.locator("thead").inner_text().split("\t")[1:3] == ["before", "after"]
    if model == "vit":  # its picture lies in no file; what is written is what the page was told
        assert page.locator("#view pre").count() == 2 and page.locator("tbody tr").count() == 8
        press(page, "none")
        assert "gf.zero('embed.position')" in page.locator("#view pre").first.inner_text()
        return
    found = checked(page, 20)
    assert next(one for one in found.checks if one.name == "variation").value > 0


def test_a_model_without_a_position_signal_says_so(pages):
    page = pages.open(model="lstm", text=TEXT, view="hands", lang="en")
    assert "This model has none" in page.inner_text("#view")


def test_in_korean_on_a_phone(pages):
    page = pages.open(text=TEXT, view="hands", width=360)
    press(page, "없애기")
    assert "대조 없음" in page.inner_text("#view") and "바꾸기 전" in page.inner_text("thead")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def shown_in_terminal(page, capsys):
    """Every candidate that the command which the page offers prints as JSON, with its probability; and the command."""
    command = page.locator("#view pre").nth(1).inner_text()
    capsys.readouterr()
    assert main([*shlex.split(command)[1:], "--json", "--lang", "en"]) == 0, command
    found = json.loads(capsys.readouterr().out)
    if isinstance(found, list):  # of classes
        return {one["number"]: one["probability"] for one in found}, command
    return {one["token"]: one["probability"] for one in found.get("sheet", found)["next"]}, command


def compared(page, capsys):
    """The command's numbers against those that the page shows as after the change, or as it is; and the command."""
    found, command = shown_in_terminal(page, capsys)
    after = 2 if page.locator("#view table").first.locator("thead th").count() > 3 else 1
    outcome = "[data-figure*='/outcome']"
    numbers = page.eval_on_selector_all(outcome, "all => all.map((one) => [one.dataset.at, Number(one.value)])")
    table = trace_shown(page)[1].figure("outcome").rows
    shown = {table[int(at.split(".")[1])][0]: value for at, value in numbers if at.endswith(f".{after + 1}")}
    assert len(shown) == len(table) >= 2 and len(found) >= 2
    both = shown.keys() & found.keys()
    assert len(both) >= min(8, len(found)), (shown, found)
    assert {one: found[one] for one in both} == pytest.approx({one: shown[one] for one in both}, rel=1e-5), command
    return command


CHANGES = {
    "a head off": ("small", ["switch head 2.1 off"], "--edit 'zero blocks.2.mixer.z h=1'"),
    "a head to its mean": ("small", ["head 2.1 to its mean"], "--edit 'mean blocks.2.mixer.z h=1'"),
    "no mixing": ("lstm", ["no mixing in layer 0"], "--edit 'zero blocks.0.mixer.out'"),
    "no MLP": ("small", ["no MLP in layer 2"], "--edit 'zero blocks.2.channel.out'"),
    "no positions": ("small", ["none"], "--edit 'zero positions'"),
    "added positions": ("transformer", ["none"], "--edit 'zero "),
    "reversed": ("small", ["reversed"], "--edit 'add positions 8'"),
    "shifted": ("small", ["shifted by"], "--edit 'add positions 5'"),
    "two at once": ("small", ["switch head 2.1 off", "reversed"], "h=1' --edit 'scale positions -1'"),
    "a pair": ("korean-g2p", ["no mixing in layer 0"], "--target"),
}


def heated(page, value):
    """Choose a temperature."""
    page.get_by_label("temperature as a number").fill(value)
    page.keyboard.press("Tab")
    settle(page)


@pytest.mark.parametrize("change", quick_first(CHANGES, ["two at once"]))
def test_the_command_gives_the_numbers_of_the_page(pages, capsys, change):
    """Each kind of change, behind another token and at another temperature."""
    model, buttons, says = CHANGES[change]
    where = {"model": model, "text": "값없이" if model == "korean-g2p" else TEXT, "view": "hands", "lang": "en"}
    page = pages.open(**where, **({"layer": 2, "head": 1} if model == "small" else {"layer": 0}))
    press(page, *buttons)
    page.get_by_role("listbox", name="Where it is looked at").get_by_role("option").nth(2).click()
    settle(page)
    heated(page, "2.5")
    command = compared(page, capsys)
    assert says in command and "--token '#2'" in command and "--temperature 2.5" in command


def test_the_command_of_a_text_as_it_is_and_with_a_token_swapped(pages, capsys):
    page = pages.open(text=f"#1 {TEXT}", view="hands", lang="en", token=5)
    assert "--temperature" not in compared(page, capsys)
    heated(page, "0.5")
    assert "--temperature 0.5" in compared(page, capsys)
    page.get_by_label("instead of").fill("'여우' ")
    press(page, "swap")
    assert "여우" in compared(page, capsys)


def test_the_command_of_a_picture(pages, capsys, tmp_path, monkeypatch):
    """The picture lies in a file of that name, as the command says."""
    monkeypatch.chdir(tmp_path)
    page = pages.open(model="small", text=TEXT, lang="en")
    page.get_by_role("button", name="Model").click()
    page.locator("dialog li button", has=page.locator("b", has_text="vit")).first.click()
    settle(page)
    image = page.evaluate("new URLSearchParams(location.hash.slice(1)).get('image')")
    (tmp_path / "picture.png").write_bytes(base64.b64decode(image))
    page.click("#tab-hands")
    settle(page)
    press(page, page.get_by_role("button", name="no mixing in layer").inner_text(), "none")
    heated(page, "3")
    found, command = shown_in_terminal(page, capsys)
    assert command.count("--edit") == 2 and "--temperature 3" in command and command.startswith("glassformer classify")
    rows = """all => all.filter((row) => row.querySelector("[data-figure]")).map((row) =>
      [Number(row.querySelector("th").textContent), Number(row.querySelector("[data-at$='.3']").value)])"""
    shown = dict(page.eval_on_selector_all("#view tbody tr", rows))
    assert len(shown) >= 8 and {one: found[one] for one in shown} == pytest.approx(shown, rel=1e-5)


@pytest.mark.parametrize("model", quick_first(["small", "korean-g2p"], ["small"]))
def test_the_command_writes_what_was_written(pages, capsys, model):
    page = pages.open(model=model, text="값없이" if model == "korean-g2p" else TEXT, view="write", lang="en")
    page.get_by_label("new tokens").fill("6")
    page.get_by_label("temperature").fill("1.3")
    page.get_by_label("top-k").fill("5")
    page.get_by_label("seed").fill("7")
    press(page, "Write")
    page.get_by_role("heading", name="Terminal").wait_for()
    settle(page)
    command = page.locator("#view pre").nth(1).inner_text()
    capsys.readouterr()
    assert main([*shlex.split(command)[1:], "--json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    made: dict = {"seen": []}
    exec(page.locator("#view pre").first.inner_text().replace("print(event.text, end='')", "seen.append(event)"), made)
    assert [one["token"] for one in events] == [one.token for one in made["seen"]]
    assert [one["probability"] for one in events] == pytest.approx([one.probability for one in made["seen"]], rel=1e-5)
    text = page.get_by_role("listbox", name="The tokens written").inner_text()
    assert len(events) <= 6 and "".join(one["text"] for one in events).strip() in text.replace("␠", " ")
    ended = "number of new tokens" if events[-1]["finished"] == "length" else "its end token"
    assert ended in page.inner_text("#view")
