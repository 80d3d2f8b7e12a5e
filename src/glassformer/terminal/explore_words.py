"""The words of the explorer in the terminal, in both languages."""

EXPLORE: dict[str, dict[str, str]] = {
    "explore_link": {"en": "\nThe page of this run: {link}", "ko": "\n이 실행을 보여 주는 화면: {link}"},
    "explore_end": {"en": "Ctrl-C ends it.", "ko": "Ctrl-C를 누르면 끝납니다."},
    "explore_shared": {
        "en": "Whoever has this link and reaches this machine can use it; what it sends is not encrypted. Ctrl-C ends "
        "it.",
        "ko": "이 링크를 알고 이 컴퓨터에 접속할 수 있는 사람은 누구나 쓸 수 있으며, 오가는 내용은 암호화되지 "
        "않습니다. Ctrl-C를 누르면 끝납니다.",
    },
    "explore_ended": {"en": "The page is closed.", "ko": "화면을 닫았습니다."},
    "explore_how": {
        "en": "\nThe same run as a page in the browser: glassformer explore (or make run, in a terminal)",
        "ko": "\n같은 실행을 브라우저에서 보려면: glassformer explore (또는 터미널에서 make run)",
    },
}
