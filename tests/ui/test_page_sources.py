"""The page's own checks: its types and its texts' types (svelte-check), and its unit tests (vitest)."""

import subprocess

import pytest

import page_build
from glassformer.page.saved import built


@pytest.mark.parametrize(
    "given",
    [
        ["svelte-check/bin/svelte-check", "--tsconfig", "./tsconfig.json", "--fail-on-warnings"],
        ["vitest/vitest.mjs", "run"],
    ],
    ids=["types", "units"],
)
def test_the_sources_of_the_page_pass_their_own_checks(given):
    found = page_build.machine_node()
    if found is None:
        pytest.skip("no Node.js of a version that ui/package.json allows")
    program = page_build.UI / "node_modules" / given[0]
    if not program.is_file():
        pytest.skip("the page's packages are not installed (npm ci in ui/)")
    done = subprocess.run(
        [found[0], program, *given[1:]], cwd=page_build.UI, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_script_of_the_page_and_of_a_saved_one_begins_with_the_notice_of_the_code_of_others():
    if not page_build.is_built():
        pytest.skip("the page is not built (make page)")
    notice = (page_build.UI.parent / "LICENSES" / "MIT-Svelte.txt").read_text(encoding="utf-8")
    script, _ = built()
    assert script.startswith(f"/*!\n{notice}*/\n") and "permission notice shall be included" in notice
