"""Words that a shipped model must not learn, and a match that sees through spaces, digits and signs.

The lists are wide on purpose: curses, sexual words, slurs against groups, party politics and abuse. Reviews are
plentiful, so a harmless sentence lost ("다시 발견" contains one of the words once its space is gone) costs nothing.
"""

import re

# Matched after everything but letters is removed, so that 시1발, 시 발 and 시.발 are one word.
LOOSE = """
시발 씨발 씨팔 시팔 씨빨 시빨 씌발 쒸발 슈발 쉬발 시벌 씨벌 씨바 씨부랄 시부랄 씨불 씹 십팔 썅 쌍년 쌍놈 쌍욕
병신 븅신 빙신 뷩신 벼엉신 등신 지랄 지럴 염병 옘병 좆 좃 조까 졷 존나 존내 조낸 졸라 쫀나 쩐나 죤나 죤내 새끼
새퀴 쉐끼 쉐키 세끼들 색히 색휘 쉑히 쉑끼 시키들 개년 개놈 개넘 개같 개쓰레 개쉑 개색 개새 개세 개섀 개쉐 개소리
개지 느금 니애미 니에미 네미랄 제기랄 젠장 엿먹 엿이나 빌어먹 우라질 육시랄 호로자식 후레자식 호래자식 화냥
미친놈 미친년 미친넘 미친새 미친개 미친것 또라이 똘아이 돌아이 또라에 정신병자 정박아 돌대가리 대가리 아가리
주둥이 주둥아리 닥쳐 닥치 꺼져라 뒤져라 뒤져버 뒤질 뒈져 뒈질 뒈지 처먹 쳐먹 처맞 쳐맞 처박 쳐박 처자빠 쳐자빠
자빠졌 쳐발 처발 쓰레기 쓰래기 쓰렉 쓰뤠기 찌질 빡치 빡쳐 빡친 빡침 골빈 무뇌 뇌없 뇌가없 뇌도없 암걸 암덩 똥꼬
똥구멍 불알 부랄 잡것 잡년 잡놈 섹스 쎅스 섹쓰 섹스럽 야동 포르노 강간 윤간 성폭 창녀 창년 갈보 매춘 떡치 떡씬
변태 오르가 사까시 딸딸 딸치 딸감 빨통 젖탱 젖가슴 젖꼭 정사씬 베드신 베드씬 성행위 체위 빨갱이 좌빨 좌좀 수꼴
종북 쥐박 쥐새끼 닭그네 짱깨 짱개 짱께 쪽바리 쪽발이 쪽빠리 쪽국 깜둥이 검둥이 껌둥이 조센징 섬숭이 김치녀
된장녀 한남충 메갈 워마드 꼴페 맘충 틀딱 급식충 노알라 운지하 홍어족 발정 음란 원조교제 성노예 성추행 성매매
수간 근친 소아성 호스트바 벙어리 빙다리 죽어버려라 일본놈 중국놈 미국놈 한국놈 미친녀석 미친인간 개막장 개짜증
뽕빨 빨아대 브라자 빤쓰 야설 겁탈 조지겠 빨아주
"""

# Matched inside one word only, since they arise too often where two innocent words meet ("한 남자").
STRICT = r"""
시바 (?<!전)성기 씨뱅 애미 에미 애비 니미 엠창 앰창 자위 \b자지 꼬추 걸레 호모 게이 레즈 한남 페미 일베 홍어
좌파 우파 좌익 우익 보수 진보 정권 노무현 이명박 박근혜 문재인 김대중 박정희 전두환 김정일 김정은 대통령 전라
경상도 똥 짱꼴 왜놈 양키 흑형 백정 \b애자 찐따 찐다 호구 벌레 기생충 충들 육갑 환장 발광 퉤 꺼져 뒤져 뒤짐
죽여버 디져 디질 가슴노출 노출 벗는 벗기 \b야하 \b야한\b \b야해\b 성인영화 에로 19금 18금 몸매 빙딱 멍청 무식
역겨 토나 토할 구역질 알바년 알바놈 쌔끼 시끼 쉐이 썩을 망할 씨댕 쓰바 스바 지롤 즐쳐 십새 십원 십알 니기미
니주가리 놈아 놈들 놈의 놈이 종자 족속 팬티 엉덩이
"""

# Curses with one syllable hidden (씨x, 병*, ㅅㅂ is caught by the rule on single jamo) or typed on a Latin keyboard.
HIDDEN = re.compile(
    r"(?:씨|시|지|병|븅|존|쌍|미친|개|새|세|좆|조)[x×*○◯ㅇ@#0]+(?:발|팔|벌|신|랄|나|년|놈|끼|까|같|넘|\b)"
    r"|[x×*○◯]+(?:발|팔|신|랄|같|까|년|놈|끼)"
    r"|[ㄱ-ㅊㅌㅍㅏ-ㅛㅡㅣ]"
    r"|tlqkf|wlfkf|qudtls|whssk|rotoRl|toRl|18\s*(?:놈|년|넘|새)|씨\s*8|ㅆ|ㅗ"
)
ENGLISH = re.compile(
    r"\b(?:fuck|motherf|shit|bullshit|bitch|cunt|nigg|negro|fagg|whore|slut|rape\b|raped|raping|rapist|rapes\b"
    r"|porn|asshole|sexual (?:act|assault|abuse|intercourse)|sex (?:scene|tape|appeal|slave|act|toy)"
    r"|masturbat|penis|vagina|orgasm|genital|prostitut|pedoph|paedoph|jerk off)",
    re.IGNORECASE,
)

_loose = re.compile("|".join(sorted(set(LOOSE.split()))))
_strict = re.compile("|".join(sorted(set(STRICT.split()))))
_not_letters = re.compile(r"[^가-힣ㄱ-ㅎㅏ-ㅣa-zA-Z]+")
_not_letters_or_space = re.compile(r"[^가-힣ㄱ-ㅎㅏ-ㅣa-zA-Z\s]+")


def is_profane(text: str) -> bool:
    """Whether a word of the lists occurs in `text`, in the open, split by spaces, digits or signs, or hidden."""
    return bool(
        _loose.search(_not_letters.sub("", text))
        or _strict.search(text)
        or _strict.search(_not_letters_or_space.sub("", text))
        or HIDDEN.search(text)
        or ENGLISH.search(text)
    )
