"""Sentences that say the same, twice in Korean and twice in English."""

# The same said in Korean twice and in English twice; each group about something else.
GROUPS = [
    (
        "고양이가 소파 위에서 자고 있다.",
        "소파에서 잠든 고양이 한 마리.",
        "A cat is sleeping on the sofa.",
        "There is a cat asleep on the couch.",
    ),
    (
        "오늘 서울에는 비가 많이 온다.",
        "서울은 지금 폭우가 내리는 중이다.",
        "It is raining heavily in Seoul today.",
        "Seoul is having a downpour right now.",
    ),
    (
        "기차가 한 시간이나 늦게 도착했다.",
        "열차 도착이 한 시간 지연되었다.",
        "The train arrived an hour late.",
        "The train was delayed by one hour.",
    ),
    (
        "이 식당의 김치찌개는 정말 맛있다.",
        "여기 김치찌개 맛이 훌륭하다.",
        "The kimchi stew at this restaurant is delicious.",
        "This place makes excellent kimchi stew.",
    ),
    (
        "아이들이 공원에서 축구를 하고 있다.",
        "공원에서 어린이들이 공을 찬다.",
        "Children are playing soccer in the park.",
        "Kids kick a ball around in the park.",
    ),
    (
        "천문학자가 새로운 소행성을 발견했다.",
        "새 소행성 하나가 천문학자에게 관측되었다.",
        "An astronomer discovered a new asteroid.",
        "A new asteroid was found by an astronomer.",
    ),
    (
        "중앙은행이 기준 금리를 올렸다.",
        "기준 금리가 중앙은행에 의해 인상되었다.",
        "The central bank raised interest rates.",
        "Interest rates were increased by the central bank.",
    ),
    (
        "컴퓨터가 갑자기 꺼져서 문서를 잃었다.",
        "컴퓨터가 멈추는 바람에 파일이 사라졌다.",
        "My computer shut down suddenly and I lost the document.",
        "The file was gone because the computer crashed.",
    ),
    (
        "의사는 하루에 물 두 잔을 더 마시라고 했다.",
        "물을 매일 두 잔씩 더 마시라는 의사의 권고가 있었다.",
        "The doctor told me to drink two more glasses of water a day.",
        "My physician advised drinking two extra glasses of water daily.",
    ),
    (
        "그녀는 매일 아침 피아노를 연습한다.",
        "아침마다 그녀는 피아노를 친다.",
        "She practices the piano every morning.",
        "Every morning she plays the piano.",
    ),
    (
        "대학 도서관은 밤 열한 시에 문을 닫는다.",
        "학교 도서관 폐관 시간은 오후 11시이다.",
        "The university library closes at eleven at night.",
        "Closing time at the college library is 11 p.m.",
    ),
    (
        "지진으로 다리 두 개가 무너졌다.",
        "두 개의 교량이 지진에 붕괴했다.",
        "The earthquake destroyed two bridges.",
        "Two bridges collapsed in the quake.",
    ),
    (
        "그 영화는 지루했지만 음악은 좋았다.",
        "영화 자체는 재미없었고 음악만 훌륭했다.",
        "The movie was boring but the music was good.",
        "The film was dull, though its soundtrack was great.",
    ),
    (
        "비밀번호를 잊어버려서 로그인할 수 없다.",
        "패스워드가 기억나지 않아 접속이 안 된다.",
        "I forgot my password and cannot log in.",
        "I can't sign in because I don't remember my password.",
    ),
    (
        "전기차 판매가 작년보다 두 배로 늘었다.",
        "전기 자동차는 지난해의 두 배가 팔렸다.",
        "Electric car sales doubled compared to last year.",
        "Twice as many electric vehicles were sold as the year before.",
    ),
    (
        "할머니는 정원에 토마토를 심으셨다.",
        "할머니께서 텃밭에 토마토 모종을 심으셨다.",
        "Grandmother planted tomatoes in the garden.",
        "My grandma put tomato plants in her garden.",
    ),
    (
        "비행기 표를 취소하고 환불을 받고 싶습니다.",
        "항공권 취소와 환불을 요청합니다.",
        "I want to cancel my flight ticket and get a refund.",
        "Please cancel my plane ticket and refund me.",
    ),
    (
        "빙하가 예상보다 빠르게 녹고 있다.",
        "예측했던 것보다 빙하의 감소가 빠르다.",
        "Glaciers are melting faster than expected.",
        "The glaciers melt more quickly than predicted.",
    ),
    (
        "경찰이 은행 강도 두 명을 체포했다.",
        "은행을 턴 두 사람이 경찰에 붙잡혔다.",
        "The police arrested two bank robbers.",
        "Two people who robbed a bank were caught by police.",
    ),
    (
        "세종대왕은 한글을 창제하였다.",
        "한글을 만든 왕은 세종이다.",
        "King Sejong created the Korean alphabet.",
        "Hangul was invented by King Sejong.",
    ),
    (
        "커피를 마시면 밤에 잠이 오지 않는다.",
        "커피 때문에 밤에 잠들기 어렵다.",
        "Drinking coffee keeps me awake at night.",
        "I have trouble sleeping at night because of coffee.",
    ),
    (
        "우리 팀은 결승전에서 삼 대 영으로 이겼다.",
        "결승에서 우리 팀이 3 대 0으로 승리했다.",
        "Our team won the final three to nothing.",
        "We beat them 3-0 in the championship match.",
    ),
]
