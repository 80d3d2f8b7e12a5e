"""The build of the page with the package: which Node, when again, and what happens where it cannot be."""

import json
import time
import tomllib
from pathlib import Path

import pytest

import page_build

ROOT = Path(__file__).parents[2]
ENGINES = "^20.19 || ^22.12 || >=24"


@pytest.mark.parametrize(
    ("version", "allowed"),
    [
        ("v20.19.0", True),
        ("v20.20.2", True),
        ("v20.18.3", False),
        ("v18.20.0", False),
        ("v21.7.0", False),
        ("v22.11.0", False),
        ("v22.12.0", True),
        ("v23.9.0", False),
        ("v24.0.0", True),
        ("v30.1.2", True),
        ("", False),
    ],
)
def test_a_node_is_new_enough_or_not(version, allowed):
    assert page_build.fits(version, ENGINES) is allowed


def test_the_page_names_the_engines_that_are_understood():
    assert json.loads((ROOT / "ui" / "package.json").read_text())["engines"]["node"] == ENGINES


def test_the_lock_file_names_no_address_to_download_from():
    """Packages come from the registry of whoever builds; each is known by its hash."""
    lock = (ROOT / "ui" / "package-lock.json").read_text(encoding="utf-8")
    packages = json.loads(lock)["packages"]
    assert '"resolved"' not in lock
    assert all(one["integrity"].startswith("sha512-") for name, one in packages.items() if name)


def test_the_build_is_this_one_and_the_source_distribution_carries_what_it_needs():
    system = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]
    assert (system["build-backend"], system["backend-path"]) == ("page_build", ["ui"])
    carried = (ROOT / "MANIFEST.in").read_text().splitlines()
    assert "graft ui" in carried and "prune src/glassformer/serve/page" in carried


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """The build in another folder: its sources are two files, and nothing is built yet."""
    (tmp_path / "ui" / "src").mkdir(parents=True)
    (tmp_path / "ui" / "package.json").write_text(json.dumps({"engines": {"node": ENGINES}}))
    (tmp_path / "ui" / "src" / "main.ts").write_text("one")
    page = tmp_path / "page"
    for name, path in {
        "UI": tmp_path / "ui", "PAGE": page, "BUILT_FROM": page / "built-from.txt", "NOT_BUILT": page / "not-built.txt",
    }.items():  # fmt: skip
        monkeypatch.setattr(page_build, name, path)
    monkeypatch.setattr(page_build, "_setuptools", lambda: Setuptools)
    return tmp_path


class Setuptools:
    """In the place of setuptools, which an environment of today need not have."""

    build_wheel = build_editable = staticmethod(lambda *given: "made.whl")
    get_requires_for_build_wheel = get_requires_for_build_editable = staticmethod(lambda settings: [])


def build_it(elsewhere, monkeypatch):
    """A build whose programs are this function, which counts them."""
    ran = []

    def program(command, what, node):
        ran.append(what)
        if what == "vite build":
            made = Path(command[command.index("--outDir") + 1])
            made.mkdir()
            (made / "index.html").write_text("page")

    monkeypatch.setattr(page_build, "machine_node", lambda: [Path("node"), Path("npm")])
    monkeypatch.setattr(page_build, "_run", program)
    page_build.build()
    return ran


def test_the_page_is_built_again_only_where_its_sources_changed(elsewhere, monkeypatch, capsys):
    assert page_build.main(["--check"]) == 1 and "not built" in capsys.readouterr().out
    assert build_it(elsewhere, monkeypatch) == ["npm ci", "vite build"]
    assert build_it(elsewhere, monkeypatch) == [] and page_build.main(["--check"]) == 0
    (elsewhere / "ui" / "node_modules").mkdir()
    (elsewhere / "ui" / "node_modules" / "index.js").write_text("what npm put there is no source")
    assert build_it(elsewhere, monkeypatch) == []
    (elsewhere / "ui" / "src" / "main.ts").rename(elsewhere / "ui" / "src" / "other.ts")
    assert build_it(elsewhere, monkeypatch) == ["npm ci", "vite build"]
    assert sorted(path.name for path in elsewhere.iterdir()) == ["page", "ui"], "nothing is left beside the page"


def test_node_is_asked_of_the_package_index_only_where_it_is_needed(elsewhere, monkeypatch):
    monkeypatch.setattr(page_build, "machine_node", lambda: None)
    assert page_build.NODE_WHEEL in page_build.get_requires_for_build_wheel()
    assert page_build.NODE_WHEEL in page_build.get_requires_for_build_editable()
    build_it(elsewhere, monkeypatch)  # the machine has one
    monkeypatch.setattr(page_build, "machine_node", lambda: None)
    assert page_build.NODE_WHEEL not in page_build.get_requires_for_build_wheel()


def test_without_node_a_wheel_is_refused_and_an_editable_install_goes_on(elsewhere, monkeypatch, capsys):
    monkeypatch.setattr(page_build, "machine_node", lambda: None)
    monkeypatch.setattr(page_build, "wheel_node", lambda: None)
    with pytest.raises(SystemExit, match="page was not built: there is no Node.js"):
        page_build.build_wheel("dist")
    assert page_build.build_editable("dist") == "made.whl"
    assert "warning: The explorer's page was not built" in capsys.readouterr().err
    assert page_build.main(["--check"]) == 1 and "there is no Node.js" in capsys.readouterr().out


def test_what_a_program_said_is_in_the_complaint(elsewhere):
    import sys

    with pytest.raises(page_build.PageError, match=r"npm ci left with status 3.*\n\nno network"):
        page_build._run([sys.executable, "-c", "print('no network'); raise SystemExit(3)"], "npm ci", Path("node"))


def test_npm_gives_up_soon_where_no_package_can_be_fetched(tmp_path, monkeypatch):
    """With the options that the build gives it: a registry that nobody answers is told, and no option is a mistake."""
    found = page_build.machine_node()
    if found is None:
        pytest.skip("needs Node.js and npm")
    for name in ("package.json", "package-lock.json"):
        (tmp_path / name).write_bytes((page_build.UI / name).read_bytes())
    monkeypatch.setattr(page_build, "UI", tmp_path)
    monkeypatch.setattr(page_build, "is_built", lambda: False)
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))
    began = time.monotonic()
    with pytest.raises(page_build.PageError, match="ECONNREFUSED"):
        page_build.build()
    assert time.monotonic() - began < 60
