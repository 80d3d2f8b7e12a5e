"""The words of the terminal views in both languages. No Korean particle follows a value directly, since it would have
to change with the value's last sound; `의`, which never changes, may."""

from __future__ import annotations

from .certificate_words import CERTIFICATE
from .explore_words import EXPLORE
from .fetching_words import FETCHING
from .training_words import TRAINING
from .vector_words import VECTORS

MORE = VECTORS | TRAINING | CERTIFICATE | FETCHING | EXPLORE

WORDS: dict[str, dict[str, str]] = {
    # the head of the sheet
    "title": {"en": "How the context vector of ‘{token}’ is computed", "ko": "‘{token}’의 문맥 벡터가 계산되는 과정"},
    "where": {
        "en": "model {model} · layer {layer} of 0–{last} · head {head} of 0–{last_head} · "
        "row {row} of 0–{last_row} · token {position} of 0–{end}",
        "ko": "모델 {model} · 층 {layer} (0–{last}) · 헤드 {head} (0–{last_head}) · "
        "행 {row} (0–{last_row}) · 토큰 {position} (0–{end})",
    },
    "by_none": {
        "en": "Of all heads, this one moves the token's vector most: {move:.2f} times its length.",
        "ko": "모든 헤드 가운데 토큰의 벡터를 가장 크게 움직이는 헤드입니다(길이의 {move:.2f}배).",
    },
    "by_layer": {
        "en": "In this layer, this head moves the token's vector most: {move:.2f} times its length.",
        "ko": "이 층에서 토큰의 벡터를 가장 크게 움직이는 헤드입니다(길이의 {move:.2f}배).",
    },
    "by_head": {
        "en": "Of all layers, head {head} moves the token's vector most in this one: {move:.2f} times its length.",
        "ko": "{head}번 헤드가 토큰의 벡터를 가장 크게 움직이는 층입니다(길이의 {move:.2f}배).",
    },
    "by_layer_head": {
        "en": "The head you chose. It moves the token's vector by {move:.2f} times its length.",
        "ko": "직접 지정한 헤드입니다. 토큰의 벡터를 길이의 {move:.2f}배만큼 움직입니다.",
    },
    "alone": {
        "en": "This token sees only itself here, so no context is mixed in yet.",
        "ko": "여기에서는 이 토큰이 자기 자신만 보므로 아직 섞이는 문맥이 없습니다.",
    },
    "beyond": {
        "en": "The text has {length} tokens and the model's context is {context}: from token {context} on, training "
        "never showed it such places. Shorten the text to at most {context} tokens.",
        "ko": "텍스트의 길이는 토큰 {length}개인데 모델의 문맥 길이는 {context}개입니다. {context}번 토큰부터는 "
        "학습할 때 본 적이 없는 위치이므로, 텍스트를 토큰 {context}개 이하로 줄이십시오.",
    },
    # 1
    "vectors": {"en": "1  One vector gives query, key and value", "ko": "1  한 벡터에서 나오는 쿼리, 키, 값"},
    # 2
    "steps": {
        "en": "2  Four steps: q·k, scaling, softmax, weighted sum of the values",
        "ko": "2  네 단계: q·k, 스케일링, softmax, 값의 가중합",
    },
    "token": {"en": "token", "ko": "토큰"},
    "shift": {"en": "+ shift", "ko": "+ 보정"},
    "score": {"en": "= score", "ko": "= 점수"},
    "weight": {"en": "α = softmax", "ko": "α = softmax"},
    "share": {"en": "|α·v|", "ko": "|α·v|"},
    "sum": {"en": "sum", "ko": "합"},
    "sink": {"en": "sink", "ko": "싱크"},
    "word": {"en": "{n} tokens", "ko": "토큰 {n}개"},
    "start": {"en": "⟨start⟩", "ko": "⟨시작⟩"},
    "end": {"en": "⟨end⟩", "ko": "⟨끝⟩"},
    "future": {"en": "masked: comes later", "ko": "가려짐: 뒤에 오는 토큰"},
    "padding": {"en": "masked: padding", "ko": "가려짐: 패딩"},
    "other document": {"en": "masked: another document", "ko": "가려짐: 다른 문서"},
    "outside the window": {"en": "masked: outside the window", "ko": "가려짐: 창 밖"},
    "off the stride": {"en": "masked: not a multiple of the stride away", "ko": "가려짐: 보폭의 배수가 아닌 거리"},
    "before the memory": {"en": "masked: before the segment's memory", "ko": "가려짐: 세그먼트의 메모리보다 앞"},
    "not among the largest": {"en": "masked: not among the largest scores", "ko": "가려짐: 상위 점수에 들지 않음"},
    "word_rule": {
        "en": "A word of several tokens: score = logsumexp, weight = sum, value = weighted mean; its last token asks.",
        "ko": "여러 토큰으로 된 단어: 점수 = logsumexp, 가중치 = 합, 값 = 가중평균, 쿼리 = 마지막 토큰의 쿼리.",
    },
    "z": {
        "en": "z is {away:.3f} away from this token's own value v: that far the others have moved it.",
        "ko": "z와 이 토큰 자신의 값 v의 거리는 {away:.3f}입니다. 다른 토큰들이 z를 그만큼 옮겨 놓았습니다.",
    },
    "z_sink": {
        "en": "z is {away:.3f} away from this token's own value v: that far the others and the sink have moved it.",
        "ko": "z와 이 토큰 자신의 값 v의 거리는 {away:.3f}입니다. 다른 토큰들과 싱크가 z를 그만큼 옮겨 놓았습니다.",
    },
    "z_own": {
        "en": "z is {away:.3f} away from this token's own value v: nothing has moved it.",
        "ko": "z와 이 토큰 자신의 값 v의 거리는 {away:.3f}입니다. 아무것도 z를 옮기지 않았습니다.",
    },
    # a mixer of another family
    "gives": {
        "en": "{mixer} gives this token a vector of {move:.2f} times its own length.",
        "ko": "이 층({mixer})이 이 토큰에 주는 벡터의 길이는 토큰 벡터의 {move:.2f}배입니다.",
    },
    "read": {"en": "1  The vector that is read", "ko": "1  읽어 들이는 벡터"},
    "mixing_text": {
        "en": "2  What {mixer} reads of the text for it",
        "ko": "2  {mixer}: 이 토큰을 위해 텍스트에서 읽는 것",
    },
    "mixing_source": {
        "en": "2  What {mixer} reads of the source for it",
        "ko": "2  {mixer}: 이 토큰을 위해 원문에서 읽는 것",
    },
    "plain_score": {"en": "score", "ko": "점수"},
    "own_weight": {"en": "weight", "ko": "가중치"},
    "reads_text": {"en": "‖∂y/∂x‖", "ko": "‖∂y/∂x‖"},
    "reads_source": {"en": "|α·v|", "ko": "|α·v|"},
    "reads_text_words": {
        "en": "‖∂y/∂x‖: how far what this layer gives moves with each token's vector; the bar is its share. Exact.",
        "ko": "‖∂y/∂x‖: 각 토큰의 벡터가 바뀔 때 이 층의 출력이 움직이는 정도의 정확한 값이며, 막대는 그 비율입니다.",
    },
    "reads_source_words": {
        "en": "|α·v|: the length of what is read of each source token; the bar is its share.",
        "ko": "|α·v|: 원문 토큰마다 읽어 온 벡터의 길이입니다. 막대는 그 비율입니다.",
    },
    "inside": {"en": "The values inside {mixer} at this token:", "ko": "이 토큰에서 이 층({mixer}) 안의 값:"},
    "change": {
        "en": "changed by {change:.0%} from the token before",
        "ko": "바로 앞 토큰에서와 {change:.0%} 달라졌습니다",
    },
    "mixing_caution": {
        "en": "This is what one layer reads; what the whole model takes from each word: glassformer influence.",
        "ko": "층 하나가 읽는 것입니다. 모델 전체가 각 단어에서 얻는 것은 glassformer influence로 볼 수 있습니다.",
    },
    # an alignment
    "aligned_influence": {
        "en": "This model has no alignment of its own; each row shows how strongly the source's tokens move what was "
        "written there, ‖∂y/∂x‖ as a share of the sum.",
        "ko": "정렬을 따로 계산하지 않는 모델입니다. 각 행은 원문의 토큰이 그 자리의 출력을 움직이는 정도, ‖∂y/∂x‖의 "
        "비율입니다.",
    },
    "aligned_mean": {"en": "layer {layer}, mean over {heads} heads", "ko": "층 {layer}, 헤드 {heads}개의 평균"},
    "aligned_head": {"en": "layer {layer}, head {head}", "ko": "층 {layer}, 헤드 {head}"},
    "shades": {
        "en": "{shades}: up to 0.1, 0.3, 0.5, 0.7, 1. At the right: what was read most.",
        "ko": "{shades}: 0.1, 0.3, 0.5, 0.7, 1까지. 오른쪽은 가장 많이 읽은 토큰입니다.",
    },
    # 3
    "rest": {"en": "3  The rest of the block", "ko": "3  블록의 나머지"},
    "vector": {"en": "vector", "ko": "벡터"},
    "length": {"en": "length", "ko": "길이"},
    "ffn": {
        "en": "FFN {widths}. Hidden units above zero: {active:.0%}.",
        "ko": "FFN {widths}. 0보다 큰 은닉 유닛: {active:.0%}.",
    },
    "experts": {
        "en": "The router chose expert {chosen} (each an FFN {widths}).",
        "ko": "라우터가 고른 전문가: {chosen} (각각 FFN {widths}).",
    },
    "journey": {
        "en": "Distance from x₀, which entered block 0, after each block, |x−x₀|/|x₀|: {values}",
        "ko": "0번 블록에 들어간 x₀에서 블록마다 멀어진 거리, |x−x₀|/|x₀|: {values}",
    },
    # 4
    "next": {"en": "4  The next token after ‘{token}’", "ko": "4  ‘{token}’ 다음에 올 토큰"},
    "own": {"en": "4  The token predicted in the place of ‘{token}’", "ko": "4  ‘{token}’ 자리에 예측한 토큰"},
    "heated": {"en": "at temperature {temperature:g}", "ko": "온도 {temperature:g}"},
    "spoken": {"en": "Language: {code}", "ko": "언어: {code}"},
    "silent": {"en": "No speech was heard.", "ko": "들리는 말이 없습니다."},
    "difference": {
        "en": "Fast path and written-out mathematics differ by at most {difference:.1e} (relative, {dtype}).",
        "ko": "빠른 경로와 식을 풀어 쓴 계산의 차이는 최대 {difference:.1e}입니다(상대값, {dtype}).",
    },
    "caution": {
        "en": "An attention weight says how much was read, not why the output came out so.",
        "ko": "어텐션 가중치는 얼마나 참조했는지를 나타낼 뿐, 출력이 왜 그렇게 나왔는지는 설명하지 않습니다.",
    },
    # all heads
    "heads": {
        "en": "How far each head moves ‘{token}’, |(z−v)W_O|/|x|",
        "ko": "각 헤드가 ‘{token}’의 벡터를 움직이는 정도, |(z−v)W_O|/|x|",
    },
    "layer": {"en": "layer", "ko": "층"},
    "head": {"en": "head", "ko": "헤드"},
    "looks": {
        "en": "What each head of layer {layer} reads most",
        "ko": "{layer}번 층의 각 헤드가 가장 많이 참조하는 곳",
    },
    "speed": {"en": "{tokens} tokens, {speed:.0f} tokens/s", "ko": "토큰 {tokens}개, 초당 {speed:.0f}개"},
    "repeated": {
        "en": "{token} occurs {n} times, in rows {places}; shown is {shown}. Choose with --token '#{example}'.",
        "ko": "{token}: {n}번 나옵니다(행 {places}). 지금은 {shown}번 행을 보여 줍니다. "
        "--token '#{example}'처럼 고를 수 있습니다.",
    },
    "several": {
        "en": "{token} covers rows {places}; shown is {shown}, {taken}. Choose with --token '#{example}'.",
        "ko": "{token}: 여러 행에 걸쳐 있습니다(행 {places}). 지금은 {shown}번 행({taken})을 보여 줍니다. "
        "--token '#{example}'처럼 고를 수 있습니다.",
    },
    # beside the views
    "drawn": {"en": "The figure is in {path}.", "ko": "그림을 저장했습니다: {path}"},
    "saved": {
        "en": "Wrote {count} values ({size} MiB) to {path}. "
        "Read them in Python: glassformer.stored.StoredTrace({read})",
        "ko": "값 {count}개({size} MiB)를 저장했습니다: {path}. "
        "파이썬에서 읽는 방법: glassformer.stored.StoredTrace({read})",
    },
    "page_saved": {
        "en": "Wrote the page ({size} MiB) to {path}. Open it in a browser; it needs no network.",
        "ko": "화면({size} MiB)을 저장했습니다: {path}. 네트워크 없이 브라우저에서 열 수 있습니다.",
    },
    "full": {
        "en": "Stopped after {new} new tokens: the model's context of {context} tokens is full. "
        "A shorter prompt leaves more room.",
        "ko": "새 토큰 {new}개에서 멈췄습니다. 모델의 문맥 길이인 토큰 {context}개가 모두 찼습니다. "
        "프롬프트를 줄이면 더 길게 쓸 수 있습니다.",
    },
    "predicted": {
        "en": "{bits_per_byte:.4f} bits per byte · loss {loss:.4f} nats per token · perplexity {perplexity:.2f} · "
        "{tokens:,} tokens · {bytes:,} bytes",
        "ko": "바이트당 {bits_per_byte:.4f}비트 · 토큰당 손실 {loss:.4f}nat · 퍼플렉시티 {perplexity:.2f} · "
        "토큰 {tokens:,}개 · {bytes:,}바이트",
    },
    "presets": {
        "en": "Presets, the architectures of papers without weights: {names}. In Python gf.build(NAME); those that "
        "write from left to right are also trained here: glassformer train TEXT --set model=gpt2",
        "ko": "프리셋(논문의 구조, 가중치 없음): {names}. 파이썬에서는 gf.build(이름)으로 만듭니다. "
        "왼쪽에서 오른쪽으로 쓰는 프리셋은 여기에서 학습할 수도 있습니다: glassformer train 텍스트 --set model=gpt2",
    },
    "all_shown": {
        "en": "The vocabulary has {count:,} tokens; all of them are shown.",
        "ko": "어휘의 토큰은 {count:,}개이며 모두 보여 주었습니다.",
    },
    # the card of a shipped model
    "card_scores": {
        "en": "Bits per byte on text that was not trained on; lower is better",
        "ko": "학습하지 않은 텍스트의 바이트당 비트(낮을수록 좋음)",
    },
    "card_model": {"en": "model", "ko": "모델"},
    "card_kneser_ney_5": {"en": "5-gram", "ko": "5-gram"},
    "card_xz_9": {"en": "xz -9", "ko": "xz -9"},
    "card_xz_9_after_the_training_text": {"en": "xz, primed", "ko": "xz(학습 후)"},
    "card_ko": {"en": "Korean", "ko": "한국어"},
    "card_en": {"en": "English", "ko": "영어"},
    "card_both": {"en": "both", "ko": "전체"},
    "card_parameters": {"en": "{count:,} parameters", "ko": "매개변수 {count:,}개"},
    "card_encoder": {"en": "encoder", "ko": "인코더"},
    "card_decoder": {"en": "decoder", "ko": "디코더"},
    "card_error": {
        "en": "{error:.2%} of the test images are put into a wrong class",
        "ko": "시험 이미지 오류율 {error:.2%}",
    },
    "card_loss": {"en": "Validation loss {loss:.4f} nats per token", "ko": "토큰당 검증 손실 {loss:.4f}nat"},
    "card_cannot": {"en": "What it cannot do", "ko": "할 수 없는 것"},
    "card_data": {"en": "Data (model: {licence})", "ko": "데이터 (모델: {licence})"},
    "card_training": {
        "en": "Made by {step:,} updates over {tokens:,} tokens of a text of {training_tokens:,}",
        "ko": "토큰 {training_tokens:,}개의 텍스트에서 토큰 {tokens:,}개로 {step:,}번 갱신한 모델",
    },
    "card_made": {"en": "How it was made", "ko": "만든 방법"},
    # influence
    "moved": {
        "en": "How strongly each word moves the vector of ‘{token}’, ‖∂y/∂x‖ as a share of the sum",
        "ko": "각 단어가 ‘{token}’의 벡터를 움직이는 정도, ‖∂y/∂x‖가 합에서 차지하는 비율",
    },
    "moved_weights": {
        "en": "With what weight each word is summed up in ‘{token}’, |w| as a share of the sum",
        "ko": "각 단어의 값이 ‘{token}’에 더해지는 가중치, |w|가 합에서 차지하는 비율",
    },
    "moved_source": {
        "en": "How strongly the source moves the vector that ‘{token}’ was written from, ‖∂y/∂x‖ as a share of the sum",
        "ko": "원문의 각 부분이 ‘{token}’의 출력 벡터를 움직이는 정도, ‖∂y/∂x‖가 합에서 차지하는 비율",
    },
    "moved_weights_source": {
        "en": "With what weight the source was read when ‘{token}’ was written, |w| as a share of the sum",
        "ko": "‘{token}’의 출력에서 원문의 각 부분에 주어진 가중치, |w|가 합에서 차지하는 비율",
    },
    "weights_mean": {
        "en": "{model}: {name}, the mean over its heads or channels.",
        "ko": "{model}: {name}, 모든 헤드 또는 채널의 평균입니다.",
    },
    "weights_head": {"en": "{model}: {name}, head {head}.", "ko": "{model}: {name}, {head}번 헤드입니다."},
    "weights_caution": {
        "en": "A weight says how much was read in one layer, not why the output came out so.",
        "ko": "가중치는 한 층에서 얼마나 참조했는지를 나타낼 뿐, 출력이 왜 그렇게 나왔는지는 설명하지 않습니다.",
    },
    "not_measured": {"en": "not measured", "ko": "측정하지 않음"},
    "moved_exact": {
        "en": "{model}: exact, from {passes:,} rows of the Jacobian.",
        "ko": "{model}: 야코비 행렬의 행 {passes:,}개로 정확히 계산했습니다.",
    },
    "moved_estimate": {
        "en": "{model}: estimated from {passes:,} random directions; standard error at most {error:.1%} of the "
        "largest.",
        "ko": "{model}: 무작위 방향 {passes:,}개로 추정했습니다. 표준오차는 가장 큰 값의 {error:.1%} 이하입니다.",
    },
    "moved_caution": {
        "en": "Influence says how far the vector would move if a token's vector changed a little, not what it is made "
        "of.",
        "ko": "영향은 토큰의 벡터가 조금 바뀔 때 결과 벡터가 얼마나 움직이는지를 나타내며, "
        "무엇으로 이루어졌는지는 나타내지 않습니다.",
    },
    # cost
    "cost": {"en": "What one text of {n:,} tokens costs", "ko": "토큰 {n:,}개짜리 텍스트 하나의 비용"},
    "cost_images": {"en": "What {n:,} image costs", "ko": "이미지 {n:,}장의 비용"},
    "cost_layers": {
        "en": "gpt2 with another mixer in the place of its attention, {n:,} tokens",
        "ko": "gpt2의 어텐션을 다른 믹서로 바꾼 모델, 토큰 {n:,}개",
    },
    "cost_model": {"en": "{name} (model)", "ko": "{name}(모델)"},
    "cost_beyond": {
        "en": "* it has weights for fewer positions than this text has tokens, and would refuse it; build it with a "
        "longer context.",
        "ko": "* 위치마다 따로 학습하는 가중치가 이 텍스트의 토큰 수보다 적어 이 길이를 읽을 수 없습니다. context를 "
        "늘려 만드십시오.",
    },
    "cost_parameters": {"en": "params", "ko": "매개변수"},
    "cost_flops": {"en": "products", "ko": "행렬 곱"},
    "cost_scan_flops": {"en": "scans", "ko": "스캔"},
    "cost_state_bytes": {"en": "state", "ko": "상태"},
    "cost_steps": {"en": "steps", "ko": "단계"},
    "cost_path": {"en": "path", "ko": "경로"},
    "cost_never": {"en": "none", "ko": "없음"},
    "cost_words": {
        "en": "products: FLOPs of matrix products, convolutions and attention written out; scans: those of "
        "recurrences besides. state: what is kept of the text to go on. steps: computations that wait for one another. "
        "path: mixers and states between the first token and the last; none: it never gets there.",
        "ko": "행렬 곱: 행렬 곱, 합성곱, 풀어 쓴 어텐션의 FLOP. 스캔: 그 밖의 순환 계산의 FLOP. "
        "상태: 이어서 계산하려고 텍스트에서 남겨 두는 것. 단계: 앞의 계산을 기다려야 하는 횟수. "
        "경로: 첫 토큰이 마지막 토큰에 닿기까지 지나는 믹서와 상태의 수이며, 없음은 닿지 않는다는 뜻입니다.",
    },
    # images
    "classified": {"en": "What {model} sees in {file}", "ko": "{model} 모델이 분류한 이미지: {file}"},
    "classified_text": {"en": "What {model} makes of: {text}", "ko": "{model} 모델이 분류한 텍스트: {text}"},
    "classified_texts": {"en": "What {model} makes of {count} texts", "ko": "{model} 모델이 분류한 텍스트 {count}개"},
    "classified_one": {"en": "What {model} makes of one text", "ko": "{model} 모델이 분류한 텍스트 1개"},
    "is_file": {
        "en": "{text} was read as a text, not as the file of that name; --file {text} classifies each of its lines",
        "ko": "{text}: 같은 이름의 파일이 아니라 텍스트로 읽었습니다. 그 파일의 각 줄을 분류하려면 --file로 "
        "지정하십시오.",
    },
    "files": {"en": "{count} files", "ko": "파일 {count}개"},
    "of_images": {"en": "{count:,} of {images:,} images", "ko": "이미지 {images:,}장 중 {count:,}장"},
    "fit_ink": {
        "en": "{which}: what is drawn was cut out, made light on dark, scaled, and centred in {size} × {size} pixels, "
        "as the digits of MNIST were",
        "ko": "{which}: MNIST 숫자처럼 그려진 부분만 잘라 어두운 바탕에 밝게 바꾸고, 크기를 맞춰 {size} × {size} 픽셀 "
        "한가운데에 놓았습니다.",
    },
    "fit_whole": {
        "en": "{which}: the whole image was scaled to {size} × {size} pixels",
        "ko": "{which}: 이미지 전체의 크기를 {size} × {size} 픽셀로 맞췄습니다.",
    },
    "exported": {
        "en": "{folder}: a {family} model ({architecture}), which transformers loads",
        "ko": "{folder}: transformers로 불러올 수 있는 {family} 모델입니다({architecture}).",
    },
    "exported_without": {
        "en": "without {names}: sentence vectors do not use it, and transformers fills it with random numbers",
        "ko": "{names} 없이 저장했습니다. 문장 벡터에는 쓰이지 않으며, transformers에서는 난수로 채워집니다.",
    },
    "fit_resize": {
        "en": "{which}: scaled and cut to {size} × {size} pixels as this model's settings say",
        "ko": "{which}: 이 모델의 설정대로 크기를 맞추고 잘라 {size} × {size} 픽셀로 만들었습니다.",
    },
    "fit_dark": {
        "en": "{which}: dark on light, and read as it is, though this model learnt light on dark; --fit ink turns it "
        "round",
        "ko": "{which}: 이 모델은 어두운 바탕에 밝은 그림으로 학습했는데, 밝은 바탕에 어두운 그림을 그대로 읽었습니다. "
        "명암을 바꾸려면 --fit ink를 지정하십시오.",
    },
    "wrong": {
        "en": "{error:.2%} of {images:,} images wrong · loss {loss:.4f} nats per image",
        "ko": "이미지 {images:,}장의 오류율 {error:.2%} · 이미지당 손실 {loss:.4f}nat",
    },
    "wrong_class": {
        "en": "{label}: {wrong} of {count} wrong, most often taken for {other}",
        "ko": "{label}: {count}장 중 {wrong}장을 틀렸습니다. 가장 많이 혼동한 분류: {other}",
    },
    "stopped": {
        "en": "Stopped and saved after step {step:,}. The same command goes on from there.",
        "ko": "{step:,}단계까지 마치고 저장했습니다. 같은 명령을 다시 실행하면 이어서 학습합니다.",
    },
    "left": {
        "en": "The reader of the output has left, so the training was stopped; what it had done is saved. "
        "The same command goes on from there.",
        "ko": "출력을 읽던 쪽이 닫혀서 학습을 멈추고 그때까지의 결과를 저장했습니다. "
        "같은 명령을 다시 실행하면 이어서 학습합니다.",
    },
    "nothing": {
        "en": "Stopped before the first step; nothing is lost.",
        "ko": "첫 단계 전에 멈췄습니다. 잃은 것은 없습니다.",
    },
} | MORE


def say(word: str, lang: str, **values: object) -> str:
    """The text `word` in a language, with values filled in."""
    return WORDS[word][lang].format(**values)
