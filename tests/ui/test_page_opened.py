"""How the page opens: in the language of the command that opened it, until a person chooses another."""

from pages import settle


def lang(page):
    return page.evaluate("document.documentElement.lang")


def test_the_language_of_the_command_and_a_choice_after_it(pages):
    page = pages.open(lang="en", url=f"{pages.server}?lang=ko", text="별")
    assert lang(page) == "ko" and "lang" not in page.url.partition("#")[0]
    page.reload()
    settle(page)
    assert lang(page) == "ko"  # it holds for this tab
    page.get_by_label("언어").select_option("en")
    page.reload()
    settle(page)
    assert lang(page) == "en"
    page.goto("about:blank")
    page.goto(f"{pages.server}?lang=ko#text=별")  # the command names it again
    settle(page)
    assert lang(page) == "ko"
    assert lang(pages.open(lang="en", url=f"{pages.server}?lang=xx", text="별")) == "en"


def test_a_model_of_sound_is_greyed_with_the_reason(pages):
    page = pages.open(text="별")
    page.get_by_role("button", name="모델").first.click()
    one = page.locator("dialog li button", has_text="whisper-base")
    assert one.is_disabled() and "터미널에서만" in one.inner_text()
    assert page.locator("dialog li button", has_text="smollm2").first.is_enabled()
    page.locator("dialog input").fill("whisper-base")
    page.get_by_role("button", name="열기").click()
    page.locator("dialog [role=alert]").wait_for()
    assert "소리를 읽는 모델" in page.inner_text("dialog [role=alert]")
    settle(page)
